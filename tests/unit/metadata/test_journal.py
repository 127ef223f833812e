"""The open journal: what is appended is durable, applied and numbered; checkpoints, compaction, the ring, readers."""

from __future__ import annotations

import errno
import threading
from random import Random
from typing import Any

import pytest

from headwater.errors import (
    Closed,
    Conflict,
    InvalidRequest,
    LogLocked,
    TopicExists,
    Unavailable,
    UnknownTopic,
)
from headwater.frames.frame import Kind
from headwater.log import open_log
from headwater.metadata.operations import AddPartitions, AddSchema, CreateGroup, DeleteGroup, ForgetTopics, TopicRecord
from headwater.metadata.recovery import log_start
from headwater.metadata.ring import SLOTS
from headwater.metadata.state import MetadataState
from headwater.storage.simulated import Choice, SimulatedFiles
from tests.unit.metadata.small_journals import (
    CHECKPOINTS,
    ONE_OF_EACH,
    SETTINGS,
    create,
    facts,
    folded,
    group,
    groups,
    journal_on,
    segment_names,
)

# Opening and appending ------------------------------------------------------------------------------------------------


def test_nothing_on_disk_is_an_empty_start_and_opening_changes_nothing() -> None:
    files = SimulatedFiles()

    journal = journal_on(files)

    assert journal.state == MetadataState()
    assert (journal.last_lsn, journal.checkpoint_lsn, journal.remaining_capacity) == (0, 0, SLOTS)
    assert not journal.report.found
    assert journal.headers_from(1) == [] and journal.header(1) is None
    assert journal.refresh() is journal.state
    assert files.list("") == []


def test_every_operation_is_durable_and_applied_when_the_append_returns() -> None:
    files = SimulatedFiles()
    journal = journal_on(files)

    state = journal.append(ONE_OF_EACH)

    assert state is journal.state is journal.refresh()
    assert facts(state) == facts(folded(ONE_OF_EACH))
    # The frame that begins the owner's epoch is number 1.
    assert state.lsn == journal.last_lsn == len(ONE_OF_EACH) + 1
    with journal_on(files.crash(Random(1), choice=Choice.NOTHING)) as after:
        after.claim()
        assert after.state == state


def test_the_operations_of_one_append_are_one_write_of_one_frame_each() -> None:
    journal = journal_on(SimulatedFiles())
    journal.append([create(1)])

    journal.append([create(2), group(1), group(2)])

    headers = journal.headers_from(3)
    assert [(each.lsn, each.kind, each.write_index, each.write_count) for each in headers] == [
        (3, Kind.METADATA, 0, 3),
        (4, Kind.METADATA, 1, 3),
        (5, Kind.METADATA, 2, 3),
    ]


def test_a_published_state_is_never_changed() -> None:
    journal = journal_on(SimulatedFiles())
    first = journal.append([create(1)])
    before = first.copy()

    journal.append([create(2), AddPartitions(1, 5), CreateGroup("billing", 1)])

    assert first == before


@pytest.mark.parametrize(
    ("operations", "error"),
    [
        ([create(2), create(3, "topic-1")], TopicExists),
        ([create(3)], Conflict),
        ([AddSchema(1, 3, b"")], Conflict),
        ([AddPartitions(1, 1)], InvalidRequest),
        ([create(2), AddPartitions(7, 1)], UnknownTopic),
        ([], InvalidRequest),
    ],
    ids=["taken", "number", "version", "shrink", "unknown", "nothing"],
)
def test_what_the_state_refuses_is_not_written(operations: list[Any], error: type[Exception]) -> None:
    files = SimulatedFiles()
    journal = journal_on(files)
    before = journal.append([create(1)])
    calls = len(files.calls)

    with pytest.raises(error) as refused:
        journal.append(operations)

    assert type(refused.value) is error
    assert journal.state is before
    assert files.calls[calls:] == []


@pytest.mark.parametrize(
    "wrong",
    [
        DeleteGroup(7),  # type: ignore[arg-type]
        AddPartitions(-1, 2),
        AddPartitions(2**70, 2),
        DeleteGroup(object()),  # type: ignore[arg-type]
        "create",
        create(1, topic_id=b"short"),
    ],
    ids=["type", "below zero", "too large", "no data", "no operation", "id"],
)
def test_what_could_not_be_read_back_is_not_written(wrong: Any) -> None:
    journal = journal_on(SimulatedFiles())

    with pytest.raises(InvalidRequest, match=r"this is not an operation: .*operation=1"):
        journal.append([group(1), wrong])

    assert journal.last_lsn == 0


def test_what_is_applied_is_what_replay_will_read() -> None:
    files = SimulatedFiles()
    journal = journal_on(files)
    journal.append([create(1, key=["id"], schemas=[b"schema"])])

    journal.close()

    assert journal.state.topics[1].key == ("id",)
    assert journal_on(files).state == journal.state


def test_opening_again_goes_on_with_the_next_number() -> None:
    files = SimulatedFiles()
    with journal_on(files) as journal:
        journal.append([create(1), group(1)])

    with journal_on(files) as journal:
        assert journal.report.found and journal.report.replayed == 2
        state = journal.append([create(2)])

    # 1 epoch, 2 operations, and the second owner's epoch before its operation.
    assert state.lsn == 5
    assert journal.report.epoch == 2
    assert journal_on(files).state == state


def test_a_second_owner_is_refused_and_a_reader_is_not() -> None:
    files = SimulatedFiles()
    journal = journal_on(files)
    journal.append([create(1)])
    reader = journal_on(files)

    with pytest.raises(LogLocked):
        reader.append([create(2)])

    journal.append([create(2)])
    assert reader.refresh() == journal.state


def test_a_closed_journal_says_so() -> None:
    journal = journal_on(SimulatedFiles())
    journal.append([create(1)])
    journal.close()
    journal.close()

    with pytest.raises(Closed):
        journal.append([create(2)])
    with pytest.raises(Closed), journal:
        pass


def test_in_the_child_of_a_fork_the_journal_is_closed_even_if_a_thread_held_its_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    journal = journal_on(SimulatedFiles())
    journal.append([create(1)])
    monkeypatch.setattr(journal, "_lock", None)
    monkeypatch.setattr(journal, "_pid", journal._pid + 1)

    for act in (lambda: journal.append([create(2)]), journal.checkpoint, journal.claim, journal.refresh):
        with pytest.raises(Closed, match="forked this one: open it here"):
            act()

    assert list(journal.state.topics) == [1]


# The ring -------------------------------------------------------------------------------------------------------------


def test_headers_are_found_by_number_with_their_predecessors() -> None:
    journal = journal_on(SimulatedFiles())
    journal.append([create(1), create(2)])

    assert [each.lsn for each in journal.headers_from(2)] == [2, 3]
    header = journal.header(3)
    assert header is not None
    before = journal.previous(3)
    assert before is not None and header.prev == before.header_crc << 32 | before.body_crc
    assert journal.previous(1) is None
    assert journal.header(4) is None


def test_an_operation_is_read_by_its_number_and_an_epoch_is_none() -> None:
    journal = journal_on(SimulatedFiles())
    journal.append([create(1)])

    assert journal.operation(2) == create(1)
    assert journal.operation(1) is None
    assert journal.operation(3) is None


def test_an_operation_that_cannot_be_read_is_an_error_and_not_absent() -> None:
    files = SimulatedFiles()
    journal = journal_on(files)
    journal.append([create(1)])
    journal.headers_from(1)
    files.fail(1, errno.EIO, verbs=["read_into", "read_at"])

    with pytest.raises(OSError, match="Input/output"):
        journal.operation(2)


def test_the_ring_is_rebuilt_when_the_journal_is_opened() -> None:
    files = SimulatedFiles()
    with journal_on(files) as journal:
        journal.append(ONE_OF_EACH)
        journal.checkpoint()
        journal.append([group(1)])
        headers = journal.headers_from(1)

    again = journal_on(files)

    assert len(headers) == len(ONE_OF_EACH) + 2
    assert again.headers_from(1) == headers
    assert again.remaining_capacity == SLOTS - 1


def test_a_header_that_a_checkpoint_covers_may_be_evicted() -> None:
    journal = journal_on(SimulatedFiles())
    journal.append(groups(0, 900))
    journal.append(groups(1_000, 900))

    assert journal.header(2) is None
    assert journal.header(1801) is not None
    assert [each.lsn for each in journal.headers_from(0)] == list(range(journal.headers_from(0)[0].lsn, 1802))
    assert len(journal.headers_from(0)) <= SLOTS


# Readers --------------------------------------------------------------------------------------------------------------


def test_a_reader_follows_the_owner_across_rolls_and_compactions() -> None:
    files = SimulatedFiles()
    journal = journal_on(files)
    reader = journal_on(files)

    for number in range(1, 12):
        journal.append([create(number)])
        if number % 3:
            assert reader.refresh() == journal.state
        if number % 2:
            journal.checkpoint()
    state = reader.refresh()

    assert state == journal.state
    assert reader.header(state.lsn) == journal.header(state.lsn)


def test_a_reader_that_slept_through_compactions_begins_at_the_newest_checkpoint() -> None:
    files = SimulatedFiles()
    journal = journal_on(files)
    journal.append([create(1)])
    reader = journal_on(files)
    for number in range(2, 6):
        journal.append([create(number)])
        journal.checkpoint()
    state = journal.append([create(6)])

    assert reader.refresh() == state

    assert reader.report.checkpoint_lsn == 6
    assert reader.checkpoint_lsn == 6


def test_a_reader_that_becomes_the_owner_first_takes_in_what_it_has_missed() -> None:
    files = SimulatedFiles()
    journal = journal_on(files)
    journal.append([create(1)])
    reader = journal_on(files)
    journal.append([create(2)])
    journal.close()

    state = reader.append([create(3)])

    assert list(state.topics) == [1, 2, 3]
    assert reader.report.last_lsn == 3


def test_a_reader_that_becomes_the_owner_after_compactions_goes_on_from_the_checkpoint() -> None:
    files = SimulatedFiles()
    journal = journal_on(files)
    journal.append([create(1)])
    reader = journal_on(files)
    for number in range(2, 6):
        journal.append([create(number)])
        journal.checkpoint()
    journal.append([create(6)])
    journal.close()

    state = reader.append([create(7)])

    assert list(state.topics) == [1, 2, 3, 4, 5, 6, 7]
    reader.close()
    assert journal_on(files).state == state


def test_an_owner_that_could_not_read_what_it_missed_tries_again() -> None:
    files = SimulatedFiles()
    journal = journal_on(files)
    journal.append([create(1)])
    reader = journal_on(files)
    journal.append([create(2)])
    journal.close()
    original = reader._read_on
    reader._read_on = failing_once(original)  # type: ignore[method-assign]

    with pytest.raises(Unavailable, match="the journal could not be read"):
        reader.append([create(3)])
    assert list(reader.refresh().topics) == [1, 2]
    state = reader.append([create(3)])

    assert list(state.topics) == [1, 2, 3]


def failing_once(act: Any) -> Any:
    calls = 0

    def fails() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise OSError(errno.EIO, "injected")
        act()

    return fails


def test_a_reader_whose_files_go_between_two_looks_looks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    files = SimulatedFiles()
    journal = journal_on(files)
    for number in (1, 2):
        journal.append([create(number)])
        journal.checkpoint()

    def compact_first(*given: Any, **settings: Any) -> Any:
        monkeypatch.setattr("headwater.metadata.journal.open_log", open_log)
        stale = log_start(*seen)
        for number in (3, 4, 5):
            journal.append([create(number)])
            journal.checkpoint()
        return open_log(*given, **{**settings, "log_start": lambda: stale})

    seen = journal._look()
    monkeypatch.setattr("headwater.metadata.journal.open_log", compact_first)

    reader = journal_on(files)

    assert reader.state == journal.state


# Threads --------------------------------------------------------------------------------------------------------------


def test_threads_append_and_checkpoint_beside_each_other() -> None:
    files = SimulatedFiles()
    journal = journal_on(files)
    failures: list[BaseException] = []

    def work(worker: int) -> None:
        try:
            for number in range(40):
                state = journal.append([group(worker * 1_000 + number)])
                assert f"group-{worker * 1_000 + number}" in state.groups
                if number % 10 == worker:
                    journal.checkpoint()
        except BaseException as error:  # noqa: BLE001  The test's thread must hear of it.
            failures.append(error)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert len(journal.state.groups) == 160
    journal.close()
    assert journal_on(files).state == journal.state


def test_of_threads_that_create_the_same_topic_one_wins() -> None:
    journal = journal_on(SimulatedFiles())
    answers: list[str] = []

    def work() -> None:
        try:
            journal.append([create(1, "orders")])
            answers.append("made")
        except TopicExists:
            answers.append("exists")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(answers) == ["exists"] * 7 + ["made"]


def test_a_hundred_thousand_operations_leave_a_small_journal_that_opens_from_its_checkpoint() -> None:
    files = SimulatedFiles()
    journal = journal_on(files)
    journal.append([create(number) for number in range(1, 1_001)])
    for number in range(50):
        journal.append(groups(number * 1_000, 1_000))
        journal.append([DeleteGroup(f"group-{number * 1_000 + each}") for each in range(1_000)])
    journal.close()

    again = journal_on(files)

    assert again.state == journal.state
    assert again.last_lsn == 101_001
    assert again.report.replayed + again.report.skipped <= 2 * SLOTS
    assert len(segment_names(files)) == 2


def test_the_journal_is_a_frame_log_that_anyone_can_read() -> None:
    files = SimulatedFiles()
    with journal_on(files) as journal:
        journal.append([create(1), ForgetTopics(())])
        assert journal.log.durable_lsn() == 3

    frames = list(open_log(files, "journal", settings=SETTINGS).read())

    assert [frame.header.kind for frame in frames] == [Kind.EPOCH, Kind.METADATA, Kind.METADATA]
    assert isinstance(journal.state.topics[1], TopicRecord)
    assert CHECKPOINTS == "journal/checkpoints"
