"""Processes of the demo: what they said is heard, and whoever is silent or dead is told.

The child here is `python -m json.tool --json-lines`: it says what it is told, when its input is over.
"""

from __future__ import annotations

import pytest

from headwater.demo.children import Child, ChildTrouble, Message


def _echo(heard: list[Message]) -> Child:
    return Child("the echo", "json.tool", "--json-lines", "--no-indent", on_message=heard.append)


def test_what_a_child_said_before_its_end_is_heard() -> None:
    heard: list[Message] = []
    child = _echo(heard)
    child.send(first=1)
    child.send(second=2)

    child.end()

    assert heard == [{"first": 1}, {"second": 2}]
    assert child.answer("second", within_s=5) == {"second": 2}
    assert not child.is_running


def test_a_child_that_was_killed_is_told_to_whoever_waits_for_it() -> None:
    child = _echo([])

    child.kill()

    with pytest.raises(ChildTrouble, match="the echo ended by itself"):
        child.answer("anything", within_s=5)
    with pytest.raises(ChildTrouble, match="the echo ended by itself"):
        child.answer("anything", within_s=5)
    child.send(too="late")


def test_a_child_that_says_nothing_is_told_when_the_time_is_over() -> None:
    child = _echo([])
    try:
        with pytest.raises(ChildTrouble, match="said nothing"):
            child.answer("anything", within_s=0.2)
    finally:
        child.kill()


def test_the_words_of_a_child_that_failed_are_told() -> None:
    child = _echo([])
    assert child.process.stdin is not None
    child.process.stdin.write("this is no JSON\n")

    child.end()

    with pytest.raises(ChildTrouble, match="Expecting value"):
        child.answer("anything", within_s=5)
