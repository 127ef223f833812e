"""Readers beside an owner that appends and compacts: at every call of the one, the other comes between.

A reader sees a state that was true when it began to look, or a later one; it never halts because of what an owner does.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from headwater.clock import ManualClock
from headwater.metadata.journal import Journal, open_journal
from headwater.storage.simulated import SimulatedFile, SimulatedFiles
from tests.unit.metadata.small_journals import SETTINGS, create, facts, group, journal_on


class LookedAt:
    """Files as a reader in another process has them: before its n-th call something else happens to them."""

    def __init__(self, files: SimulatedFiles, call: int, happens: Callable[[], None]) -> None:
        self._files = files
        self._left = call
        self._happens = happens
        self.happened = False

    def open(self, name: str, *, writable: bool = False) -> SimulatedFile:
        self._count()
        return self._files.open(name, writable=writable)

    def list(self, directory: str) -> list[str]:
        self._count()
        return self._files.list(directory)

    def _count(self) -> None:
        self._left -= 1
        if self._left == 0:
            self.happened = True
            self._happens()


def owner_on(files: SimulatedFiles) -> Journal:
    journal = journal_on(files)
    for number in (1, 2):
        journal.append([create(number)])
        journal.checkpoint()
    journal.append([group(0)])
    return journal


def reader_on(files: LookedAt) -> Journal:
    return open_journal(files, settings=SETTINGS, clock=ManualClock(), entropy=Random(9).randbytes)  # type: ignore[arg-type]


class Owner:
    """An owner, and every state that it has published."""

    def __init__(self) -> None:
        self.files = SimulatedFiles()
        self.journal = owner_on(self.files)
        self.states = [facts(self.journal.state)]
        self._number = 0

    def go_on(self, steps: int) -> None:
        for _ in range(steps):
            self._number += 1
            self.states.append(facts(self.journal.append([group(self._number)])))
            self.journal.checkpoint()


@pytest.mark.parametrize("steps", [1, 2, 4], ids=["one compaction", "two", "four"])
def test_opening_is_not_disturbed_by_a_compaction_at_any_of_its_calls(steps: int) -> None:
    call = 0

    while True:
        call += 1
        owner = Owner()
        looked_at = LookedAt(owner.files, call, lambda owner=owner: owner.go_on(steps))  # type: ignore[misc]

        reader = reader_on(looked_at)

        assert facts(reader.state) in owner.states
        assert reader.refresh() == owner.journal.state
        if not looked_at.happened:
            break

    assert call > 15


@pytest.mark.parametrize("steps", [1, 2, 4], ids=["one compaction", "two", "four"])
def test_a_look_is_not_disturbed_by_a_compaction_at_any_of_its_calls(steps: int) -> None:
    call = 0

    while True:
        call += 1
        owner = Owner()
        looked_at = LookedAt(owner.files, 0, lambda owner=owner: owner.go_on(steps))  # type: ignore[misc]
        reader = reader_on(looked_at)
        owner.go_on(1)
        seen = len(owner.states) - 1
        looked_at._left = call

        state = reader.refresh()

        assert facts(state) in owner.states[seen:]
        assert reader.refresh() == owner.journal.state
        if not looked_at.happened:
            break

    assert call > 5


def test_at_every_call_of_an_owner_a_reader_sees_what_it_has_acknowledged() -> None:
    owner = Owner()
    reader = journal_on(owner.files)
    looks = 0

    def look(verb: str, name: str) -> None:
        nonlocal looks
        looks += 1
        # What is being appended may be durable, and seen, a moment before its append returns.
        known = facts(owner.journal.state)
        seen = facts(reader.refresh())
        opened = journal_on(owner.files)
        assert facts(opened.state) == seen
        assert seen == known or len(reader.state.groups) == len(owner.journal.state.groups) + 1
        opened.close()

    owner.files.before_call = look
    owner.go_on(4)

    owner.files.before_call = None
    assert looks > 60
    assert reader.refresh() == owner.journal.state
