"""A journal in a bucket: what a list does not know yet is not lost, and what is lost is said so."""

from __future__ import annotations

from random import Random

import pytest

from headwater.clock import ManualClock
from headwater.errors import CheckpointLost
from headwater.metadata.journal import Journal, open_journal
from headwater.metadata.operations import CreateGroup
from headwater.settings import LogSettings
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.objects import Listed
from headwater.storage.simulated_store import SimulatedStore


def journal_on(store: SimulatedStore, seed: int) -> Journal:
    files = BucketFiles(store, clock=ManualClock(), entropy=Random(seed).randbytes, threads=False)
    return open_journal(files, settings=LogSettings(), clock=ManualClock(), entropy=Random(seed).randbytes)


def compacted() -> SimulatedStore:
    """A journal whose first operations are only in checkpoints."""
    store = SimulatedStore()
    with journal_on(store, 1) as journal:
        for number in range(4):
            journal.append([CreateGroup(f"group {number}", number)])
            journal.checkpoint()
        assert journal.dropped is not None
    return store


def test_a_journal_that_was_compacted_is_read_and_gone_on_with_by_another() -> None:
    store = compacted()

    with journal_on(store, 2) as journal:
        assert sorted(journal.state.groups) == [f"group {number}" for number in range(4)]
        journal.append([CreateGroup("one more", 5)])
        with journal_on(store, 3) as reader:
            assert "one more" in reader.state.groups
            journal.append([CreateGroup("and another", 6)])
            assert "and another" in reader.refresh().groups


def with_stale_lists(store: SimulatedStore, lists: int) -> None:
    """The next lists know nothing."""
    left = [True] * lists
    listed = store.list_after

    def list_after(prefix: str, after: str = "", *, limit: int = 1000) -> list[Listed]:
        return [] if left and left.pop() else listed(prefix, after, limit=limit)

    store.list_after = list_after  # type: ignore[method-assign]


def test_a_checkpoint_that_a_list_does_not_know_yet_is_not_lost() -> None:
    store = compacted()
    with_stale_lists(store, 4)

    with journal_on(store, 2) as journal:
        assert len(journal.state.groups) == 4


def test_checkpoints_that_no_list_knows_are_lost() -> None:
    store = compacted()
    with_stale_lists(store, 1000)

    with pytest.raises(CheckpointLost):
        journal_on(store, 2)
