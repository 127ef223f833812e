"""What to do about a halt: every cause that landings know has its words, the same that docs/landing.md has."""

from __future__ import annotations

import re
from pathlib import Path

from headwater.page.halts import _ANY, _STEPS, next_step

ROOT = Path(__file__).resolve().parents[3]


def test_every_cause_that_the_docs_name_has_a_next_step_and_no_other_has() -> None:
    text = (ROOT / "docs" / "landing.md").read_text(encoding="utf-8").partition("## When a topic halts")[2]

    causes = set(re.findall(r"^\| `([a-z-]+)` \|", text.partition("## What others see")[0], re.MULTILINE))

    assert causes == set(_STEPS)


def test_a_command_names_the_topic_and_the_place_as_a_shell_takes_them() -> None:
    assert next_step("gap", "orders", "/srv/my data").command == (
        "headwater land orders --after-rollback orders --data '/srv/my data'"
    )


def test_who_may_not_know_where_the_log_lies_is_told_to_put_it_in() -> None:
    assert next_step("mark-unproven", "orders", None).command == (
        "headwater land orders --landed-lsn orders=LSN --data DATA"
    )


def test_a_cause_of_a_later_version_has_words_too() -> None:
    assert next_step("unheard-of", "orders", None).text == _ANY.text
