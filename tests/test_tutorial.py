"""The tutorial can be typed as it stands, and whoever types it notices what the page does not show.

The typing itself, in a new environment, takes minutes: `python -m tests.tutorial`, `just tutorial`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.tutorial.__main__ import AFTER, INSTALL, SPARK, Differs, follow
from tests.tutorial.page import PAGE, Step, difference, steps_of
from tests.tutorial.terminal import Terminal, has_tmux

STEPS = list(steps_of(PAGE.read_text()))


def test_the_page_has_the_sections_that_can_be_left_out_and_ends_in_audits() -> None:
    sections = [step.section for step in STEPS]
    typed = [step.typed for step in STEPS if step.section != SPARK]

    assert INSTALL in sections
    assert SPARK in sections
    assert f"## {AFTER}" in PAGE.read_text()
    assert typed[-1] == "headwater audit --full --data data"
    assert "log.audit(spark=spark)" in next(step.typed for step in STEPS if step.file == "with_spark.py")
    assert len(STEPS) > 30


@pytest.mark.parametrize("step", [step for step in STEPS if step.file or step.prompt == ">>>"], ids=lambda it: it.typed)
def test_every_program_of_the_page_is_python(step: Step) -> None:
    compile(step.typed, step.file or "<a line>", "exec" if step.file else "single")


def test_what_differs_from_the_page_is_told_and_what_is_only_of_this_run_is_not() -> None:
    shown = Step("A", "headwater audit", shown="PASS  orders: 3 of 3 rows, in 0.1 s\n...\nlast\n")
    numbers = Step("A", "headwater query", shown="orders  total\n   127  3194.75\n", any_numbers=True)

    assert difference(shown, "PASS  orders: 3 of 3 rows, in 2.9 s\n[1]+  Done  python\nbetween\nlast") is None
    assert "-PASS  orders: 3 of 3" in (difference(shown, "PASS  orders: 2 of 3 rows, in 2.9 s\nlast") or "")
    assert difference(numbers, "orders  total\n     8  1.5") is None
    assert difference(numbers, "orders  total\n     -  1.5") is not None
    assert difference(Step("A", "pip install x"), "whatever it says") is None


@pytest.mark.skipif(not has_tmux() and os.environ.get("CI") != "true", reason="tmux is not on the path")
def test_lines_are_typed_into_a_terminal_and_read_back_from_its_screen(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    with Terminal(tmp_path, environment) as terminal:
        terminal.save("greeting.txt", "first\n\n  second\n", within_s=30)
        seen = terminal.type("cat greeting.txt; false", within_s=30)
        python = [terminal.type(line, within_s=30)[0] for line in ("python3 -q", "6 * 7", "exit()")]
        steps = [Step("A", "echo here", shown="here\n"), Step("A", "echo here", shown="there\n")]
        seconds: dict[str, float] = {}
        with pytest.raises(Differs, match="echo here"):
            follow(terminal, steps, seconds)

    assert (tmp_path / "greeting.txt").read_text() == "first\n\n  second\n"
    assert seen == ("first\n\n  second", 1)
    assert python == ["", "42", ""]
    assert list(seconds) == ["A"]
