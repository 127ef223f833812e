"""A member of a group over a log in memory: what it hands out, what it commits, and what it may not."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from headwater.clock import ManualClock
from headwater.errors import Closed, CorruptData, Fenced, Forgotten, InvalidRequest, Unavailable, UnknownTopic
from headwater.topics import consumer as consumer_module
from headwater.topics.consumer import ALONE_MAX, FEW_ROWS, KNOWN_S, MANY, VERY_MANY, Consumer, Polled
from headwater.topics.groups import Generation, GroupCoordinator

LEASE_S = 30.0
TOPIC = 5


class MemoryEngine:
    """The log as a consumer sees it: a list of rows for each partition, and the committed offsets of each group."""

    def __init__(self, partitions: int = 2) -> None:
        self.clock = ManualClock()
        self.coordinator = GroupCoordinator(self.clock, LEASE_S, lambda: 1)
        self.rows: list[list[int]] = [[] for _ in range(partitions)]
        self.first = [0] * partitions
        self.compacted: set[tuple[int, int]] = set()
        self.offsets: dict[str, dict[int, int]] = {}
        self.commits = 0
        self.lsn = 0
        self.deleted = False
        self.waits: list[float] = []
        self.while_waiting: list[Callable[[], None]] = []
        self.before_a_read: Callable[[], None] = lambda: None
        self.before_a_commit: Callable[[], None] = lambda: None
        self.before_a_gather: Callable[[], None] = lambda: None
        self.gathered: list[dict[int, int]] = []

    def append(self, partition: int, *rows: int) -> None:
        self.rows[partition].extend(rows)
        self.lsn += 1

    def add_partition(self) -> None:
        self.rows.append([])
        self.first.append(0)

    def clean_up(self, partition: int, first: int) -> None:
        self.first[partition] = first

    def partitions_of(self, topic_number: int) -> int:
        if self.deleted or topic_number != TOPIC:
            raise UnknownTopic("there is no such topic", number=topic_number)
        return len(self.rows)

    def committed(self, group: str, topic_number: int) -> Mapping[int, int]:
        return dict(self.offsets.get(group, {}))

    def commit_offsets(self, group: str, topic_number: int, offsets: Mapping[int, tuple[int, Generation]]) -> None:
        before, self.before_a_commit = self.before_a_commit, lambda: None
        before()
        for partition, (_, generation) in offsets.items():
            self.coordinator.check(group, topic_number, partition, generation)
        self.offsets.setdefault(group, {}).update({number: offset for number, (offset, _) in offsets.items()})
        self.commits += 1
        self.lsn += 1

    def first_offset(self, topic_number: int, partition: int) -> int:
        return self.first[partition]

    def next_offset(self, topic_number: int, partition: int) -> int:
        return len(self.rows[partition])

    def read_rows(
        self, topic_number: int, partition: int, offset: int, rows_max: int
    ) -> tuple[pa.RecordBatch | None, int]:
        before, self.before_a_read = self.before_a_read, lambda: None
        before()
        if offset < self.first[partition]:
            raise Forgotten("cleanup has removed this offset", offset=offset)
        after = min(offset + rows_max, len(self.rows[partition]))
        live = [self.rows[partition][at] for at in range(offset, after) if (partition, at) not in self.compacted]
        return (pa.record_batch({"n": live}) if live else None), after

    def gather(self, topic_number: int, offsets: Mapping[int, int]) -> list[pa.RecordBatch]:
        """As much as there is of each, a row of one after a row of the other."""
        before, self.before_a_gather = self.before_a_gather, lambda: None
        before()
        self.gathered.append(dict(offsets))
        found = [
            (at - offset, partition, at)
            for partition, offset in offsets.items()
            for at in range(max(offset, self.first[partition]), len(self.rows[partition]))
            if (partition, at) not in self.compacted
        ]
        schema = pa.schema([("n", pa.int64()), ("_hw_partition", pa.int32()), ("_hw_offset", pa.int64())])
        found.sort()
        half = len(found) // 2
        return [
            pa.record_batch(
                [[self.rows[each][at] for _, each, at in some], [each for _, each, _ in some], [at for *_, at in some]],
                schema=schema,
            )
            for some in (found[:half], found[half:])
            if some
        ]

    def older_rows(self, topic_number: int, partition: int, offset: int) -> None:
        return None

    def wait_for_rows(self, lsn: int, timeout_s: float) -> bool:
        self.waits.append(timeout_s)
        if self.while_waiting:
            self.while_waiting.pop(0)()
        if self.lsn > lsn:
            return True
        self.clock.advance(timeout_s)
        return False

    def durable_lsn(self) -> int:
        return self.lsn

    def consumer(self, group: str = "billing", **options: object) -> Consumer:
        return Consumer(self, "orders", TOPIC, group, **options)  # type: ignore[arg-type]


def numbers(polled: Polled | None) -> list[int]:
    assert polled is not None
    rows: list[int] = polled.batch.column("n").to_pylist()
    return rows


def drain(consumer: Consumer) -> list[int]:
    """All that there is for it now."""
    found: list[int] = []
    while (polled := consumer.poll()) is not None:
        found += numbers(polled)
    return found


@pytest.fixture
def engine() -> MemoryEngine:
    engine = MemoryEngine()
    engine.append(0, 0, 1, 2)
    engine.append(1, 100, 101, 102)
    return engine


# ------------------------------------------------------------------------------------------------------- reading


def test_a_poll_hands_out_a_batch_of_one_partition_and_says_where_it_was(engine: MemoryEngine) -> None:
    consumer = engine.consumer()

    polled = consumer.poll()

    assert polled is not None and numbers(polled) == [0, 1, 2]
    assert (polled.partition, polled.offset, polled.next_offset) == (0, 0, 3)
    assert consumer.assignment == (0, 1)
    assert (consumer.position(0), consumer.position(1), consumer.position(2)) == (3, 0, None)
    assert numbers(consumer.poll()) == [100, 101, 102]
    assert consumer.poll() is None


def test_partitions_take_turns_so_that_a_full_one_does_not_hold_up_the_others(engine: MemoryEngine) -> None:
    engine.append(0, *range(3, 10))
    consumer = engine.consumer(batch_rows=1)

    assert [numbers(consumer.poll())[0] for _ in range(8)] == [0, 100, 1, 101, 2, 102, 3, 4]
    engine.append(1, 103)
    assert [numbers(consumer.poll())[0] for _ in range(2)] == [103, 5]


def test_a_poll_hands_out_no_more_rows_than_it_is_asked_for(engine: MemoryEngine) -> None:
    consumer = engine.consumer(batch_rows=3)

    assert numbers(consumer.poll(max_rows=2)) == [0, 1]
    assert numbers(consumer.poll()) == [100, 101, 102]
    for refused in (0, -1):
        with pytest.raises(InvalidRequest):
            consumer.poll(max_rows=refused)
        with pytest.raises(InvalidRequest):
            engine.consumer(batch_rows=refused)


def test_a_poll_waits_for_rows_and_renews_its_lease_meanwhile(engine: MemoryEngine) -> None:
    consumer = engine.consumer()
    drain(consumer)
    engine.while_waiting = [lambda: None] * 40 + [lambda: engine.append(1, 103)]

    polled = consumer.poll(timeout_s=100.0)

    assert numbers(polled) == [103]
    assert engine.clock.monotonic_s() == 40.0
    assert max(engine.waits) == 1.0
    (status,) = engine.coordinator.members("billing", TOPIC)
    assert status.lease_left_s == LEASE_S


def test_a_poll_that_waits_gives_up_partitions_to_a_member_that_comes(engine: MemoryEngine) -> None:
    consumer = engine.consumer()
    drain(consumer)
    consumer.commit()
    came: list[Consumer] = []
    engine.while_waiting = [lambda: came.append(engine.consumer())]

    assert consumer.poll(timeout_s=5.0) is None

    assert engine.clock.monotonic_s() == 5.0
    assert len(consumer.assignment) == 1
    assert came[0].poll() is None and len(came[0].assignment) == 1


def test_a_short_lease_is_renewed_in_time_while_waiting() -> None:
    engine = MemoryEngine()
    engine.coordinator = GroupCoordinator(engine.clock, 0.3, lambda: 1)
    consumer = engine.consumer()
    consumer.poll()

    consumer.poll(timeout_s=1.0)

    assert max(engine.waits) == pytest.approx(0.1)


def test_rows_that_come_between_the_look_and_the_wait_end_the_wait() -> None:
    engine = MemoryEngine(partitions=2)
    engine.append(1, 100)
    engine.compacted.add((1, 0))
    consumer = engine.consumer()
    # The first partition was looked at and is empty; the row comes while the second is being read.
    engine.before_a_read = lambda: engine.append(0, 1)

    assert numbers(consumer.poll(timeout_s=9.0)) == [1]
    assert engine.clock.monotonic_s() == 0.0


def test_iteration_gives_batches_until_nothing_has_come_for_its_time(engine: MemoryEngine) -> None:
    consumer = engine.consumer(timeout_s=2.0)
    engine.while_waiting = [lambda: engine.append(0, 3)]

    found = [batch.column("n").to_pylist() for batch in consumer]

    assert found == [[0, 1, 2], [100, 101, 102], [3]]
    assert engine.clock.monotonic_s() == 2.0


def test_iteration_follows_until_the_consumer_is_closed_in_the_loop_or_from_another_thread(
    engine: MemoryEngine,
) -> None:
    in_the_loop = engine.consumer("one")
    seen = 0
    for _ in in_the_loop:
        seen += 1
        if seen == 2:
            in_the_loop.close()
    assert seen == 2

    from_outside = engine.consumer("two")

    def close_from_another_thread() -> None:
        closer = threading.Thread(target=from_outside.close)
        closer.start()
        closer.join()

    engine.while_waiting = [lambda: None, close_from_another_thread]
    assert len(list(from_outside)) == 2
    assert engine.coordinator.members("two", TOPIC) == ()


def test_a_topic_that_is_deleted_ends_iteration_by_name(engine: MemoryEngine) -> None:
    consumer = engine.consumer()
    engine.deleted = True

    with pytest.raises(UnknownTopic):
        next(iter(consumer))


# --------------------------------------------------------------------------------------------- where it begins


def test_a_group_goes_on_where_it_committed(engine: MemoryEngine) -> None:
    with engine.consumer() as first:
        assert numbers(first.poll(max_rows=2)) == [0, 1]
        assert first.commit() == {0: 2}
        assert numbers(first.poll(max_rows=2)) == [100, 101]

    with engine.consumer() as second:
        assert sorted(drain(second)) == [2, 100, 101, 102]
    with engine.consumer("audit") as other_group:
        assert len(drain(other_group)) == 6


def test_latest_begins_at_the_end_and_a_committed_offset_comes_first(engine: MemoryEngine) -> None:
    engine.offsets["billing"] = {0: 1}
    consumer = engine.consumer(start="latest")

    assert drain(consumer) == [1, 2]
    engine.append(1, 103)
    assert drain(consumer) == [103]


def test_rows_that_come_before_the_first_commit_of_a_group_at_latest_are_not_passed_over(engine: MemoryEngine) -> None:
    first = engine.consumer(start="latest")
    assert first.poll() is None
    engine.append(0, 3)
    first.close()

    # It died without a commit of its own: where it began is known all the same.
    second = engine.consumer(start="latest")

    assert drain(second) == [3]


def test_a_partition_that_is_added_is_read_from_its_first_row_also_at_latest(engine: MemoryEngine) -> None:
    consumer = engine.consumer(start="latest")
    consumer.poll()
    engine.add_partition()
    engine.append(2, 200, 201)

    assert drain(consumer) == [200, 201]


def test_a_lease_that_is_over_before_its_start_was_committed_is_begun_again(engine: MemoryEngine) -> None:
    consumer = engine.consumer(start="latest")

    def too_late() -> None:
        engine.clock.advance(LEASE_S)
        engine.coordinator.leave("billing", TOPIC, engine.coordinator.join("billing", TOPIC, 2))

    engine.before_a_commit = too_late

    assert consumer.poll() is None
    assert list(consumer.assignment) == []
    engine.append(0, 3)
    assert consumer.poll() is None
    assert list(consumer.assignment) == [0, 1]
    assert engine.offsets["billing"] == {0: 4, 1: 3}, "it began at the end as it was when its lease was good"


def test_a_start_that_was_fenced_is_tried_again_also_under_the_same_lease(engine: MemoryEngine) -> None:
    consumer = engine.consumer(start="latest")

    def fenced() -> None:
        raise Fenced("not yet")

    engine.before_a_commit = fenced

    assert consumer.poll() is None
    assert list(consumer.assignment) == []
    consumer.poll()
    assert list(consumer.assignment) == [0, 1]


def test_a_start_that_could_not_be_committed_is_tried_again(engine: MemoryEngine) -> None:
    consumer = engine.consumer(start="latest")

    def full() -> None:
        raise Unavailable("the disk is full")

    engine.before_a_commit = full
    with pytest.raises(Unavailable):
        consumer.poll()

    assert list(consumer.assignment) == []
    assert consumer.poll() is None
    assert list(consumer.assignment) == [0, 1] and engine.offsets["billing"] == {0: 3, 1: 3}


def test_another_start_is_refused(engine: MemoryEngine) -> None:
    with pytest.raises(InvalidRequest):
        engine.consumer(start="yesterday")
    assert engine.coordinator.members("billing", TOPIC) == ()


def test_rows_that_cleanup_removed_are_passed_over_and_counted(
    engine: MemoryEngine, caplog: pytest.LogCaptureFixture
) -> None:
    engine.offsets["billing"] = {0: 1, 1: 0}
    engine.clean_up(0, 2)
    consumer = engine.consumer()

    assert sorted(drain(consumer)) == [2, 100, 101, 102]

    assert consumer.skipped == {0: 1}
    assert "offsets 1 to 1" in caplog.text and "partition 0" in caplog.text


def test_a_new_group_after_a_cleanup_has_missed_nothing(engine: MemoryEngine) -> None:
    engine.clean_up(0, 2)
    consumer = engine.consumer()

    assert sorted(drain(consumer)) == [2, 100, 101, 102]
    assert consumer.skipped == {}


def test_a_cleanup_between_the_look_and_the_read_is_met(engine: MemoryEngine) -> None:
    consumer = engine.consumer()
    engine.before_a_read = lambda: engine.clean_up(0, 1)

    assert numbers(consumer.poll()) == [1, 2]
    assert consumer.skipped == {0: 1}


def test_rows_that_are_forgotten_without_a_new_first_offset_are_told(engine: MemoryEngine) -> None:
    consumer = engine.consumer()

    def gone() -> None:
        raise Forgotten("a segment is gone")

    engine.before_a_read = gone

    with pytest.raises(Forgotten):
        consumer.poll()


def test_offsets_that_compaction_emptied_are_passed_over_and_can_be_committed(engine: MemoryEngine) -> None:
    engine.compacted = {(0, 0), (0, 1), (0, 2), (1, 1)}
    consumer = engine.consumer(batch_rows=2)

    assert [numbers(consumer.poll()), numbers(consumer.poll())] == [[100], [102]]
    assert consumer.poll() is None
    assert consumer.commit() == {0: 3, 1: 3}


def test_a_poll_goes_on_past_what_compaction_emptied() -> None:
    engine = MemoryEngine(partitions=1)
    engine.append(0, *range(7))
    engine.compacted = {(0, offset) for offset in range(6)}
    consumer = engine.consumer(batch_rows=2)

    polled = consumer.poll()

    assert polled is not None and numbers(polled) == [6]
    assert (polled.offset, polled.next_offset) == (6, 7)


def test_rows_that_are_announced_and_cannot_be_read_yet_do_not_hold_up_the_other_partitions(
    engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = engine.consumer()
    read_rows = engine.read_rows

    def not_yet(topic_number: int, partition: int, offset: int, rows_max: int) -> tuple[pa.RecordBatch | None, int]:
        return (None, offset) if partition == 0 else read_rows(topic_number, partition, offset, rows_max)

    monkeypatch.setattr(engine, "read_rows", not_yet)

    assert drain(consumer) == [100, 101, 102]


# ---------------------------------------------------------------------------------------------------- committing


def test_nothing_is_committed_unless_it_is_asked_for(engine: MemoryEngine) -> None:
    with engine.consumer() as consumer:
        drain(consumer)

    assert engine.offsets == {}


def test_a_commit_of_nothing_writes_nothing(engine: MemoryEngine) -> None:
    consumer = engine.consumer()

    assert consumer.commit() == {}
    consumer.poll()
    assert consumer.commit() == {0: 3}
    assert consumer.commit() == {}
    assert engine.commits == 1


def test_a_member_that_commits_before_it_polls_loses_nothing_to_a_newcomer(engine: MemoryEngine) -> None:
    first = engine.consumer(batch_rows=1)
    found = numbers(first.poll())
    second = engine.consumer(batch_rows=1)
    assert second.poll() is None, "the first is still at work on what it has"

    first.commit()
    for _ in range(10):
        for member in (first, second):
            if (polled := member.poll()) is not None:
                found += numbers(polled)
                member.commit()

    assert sorted(found) == [0, 1, 2, 100, 101, 102]
    assert len(first.assignment) == len(second.assignment) == 1


def test_a_member_that_commits_now_and_then_is_not_robbed_between(engine: MemoryEngine) -> None:
    first = engine.consumer(batch_rows=1)
    numbers(first.poll()), numbers(first.poll())
    second = engine.consumer()

    first.poll(), first.poll()
    assert second.poll() is None
    assert first.commit() == {0: 2, 1: 2}
    first.poll()

    assert len(first.assignment) == 1
    assert numbers(second.poll()) in ([2], [102])


def test_a_zombie_s_commit_is_fenced_and_its_rows_go_to_the_new_holder(engine: MemoryEngine) -> None:
    zombie = engine.consumer()
    drain(zombie)
    engine.clock.advance(LEASE_S)
    successor = engine.consumer()

    assert len(drain(successor)) == 6
    with pytest.raises(Fenced) as fenced:
        zombie.commit()
    assert fenced.value.facts["partitions"] == [0, 1]
    assert engine.offsets == {}
    assert successor.commit() == {0: 3, 1: 3}

    # It is a member like another now: it said what was lost, once, and goes on.
    assert zombie.commit() == {}
    successor.poll()
    assert zombie.poll() is None and len(zombie.assignment) == 1


def test_a_slow_member_that_nobody_replaced_commits_and_goes_on(engine: MemoryEngine) -> None:
    slow = engine.consumer()
    assert numbers(slow.poll()) == [0, 1, 2]
    engine.clock.advance(LEASE_S * 5)

    assert slow.commit() == {0: 3}
    assert drain(slow) == [100, 101, 102]


def test_what_was_lost_between_is_named_and_the_rest_is_committed(engine: MemoryEngine) -> None:
    first = engine.consumer(batch_rows=2)
    numbers(first.poll()), numbers(first.poll())
    engine.consumer()
    first.heartbeat()
    # It was asked for one partition, and has not committed for a whole lease.
    engine.clock.advance(LEASE_S * 0.6)
    first.heartbeat()
    engine.clock.advance(LEASE_S * 0.6)
    engine.consumer()
    first.heartbeat()
    (kept,) = first.assignment
    lost = 1 - kept

    with pytest.raises(Fenced) as fenced:
        first.commit()

    assert fenced.value.facts["partitions"] == [lost]
    assert engine.offsets["billing"] == {kept: 2}
    assert first.commit() == {}


def test_a_partition_that_is_lost_and_regained_is_read_from_its_committed_offset(engine: MemoryEngine) -> None:
    consumer = engine.consumer(batch_rows=1)
    numbers(consumer.poll()), numbers(consumer.poll())
    consumer.commit()
    numbers(consumer.poll()), numbers(consumer.poll())
    engine.clock.advance(LEASE_S)

    assert sorted(drain(consumer)) == [1, 2, 101, 102]
    with pytest.raises(Fenced):
        consumer.commit()
    assert consumer.commit() == {}
    assert engine.offsets["billing"] == {0: 3, 1: 3}


def test_a_transaction_with_rows_that_were_lost_is_refused_until_it_is_begun_again(engine: MemoryEngine) -> None:
    consumer = engine.consumer()
    drain(consumer)
    engine.clock.advance(LEASE_S)
    # The same partitions come back, and the same rows: but the output of the first time is in the transaction too.
    drain(consumer)

    for _ in range(2):
        offsets = consumer.offsets_to_commit()
        with pytest.raises(Fenced):
            engine.commit_offsets("billing", TOPIC, offsets)

    consumer.rewind()
    assert len(drain(consumer)) == 6
    engine.commit_offsets("billing", TOPIC, consumer.offsets_to_commit())
    consumer.mark_committed()
    assert consumer.offsets_to_commit() == {}


def test_a_transaction_commits_what_was_handed_out_when_it_asked(engine: MemoryEngine) -> None:
    consumer = engine.consumer()
    consumer.poll()
    offsets = consumer.offsets_to_commit()
    consumer.poll()

    engine.commit_offsets("billing", TOPIC, offsets)
    consumer.mark_committed(offsets)

    assert engine.offsets["billing"] == {0: 3}
    assert {number: offset for number, (offset, _) in consumer.offsets_to_commit().items()} == {1: 3}


def test_a_mark_of_an_earlier_lease_says_nothing_about_this_one(engine: MemoryEngine) -> None:
    consumer = engine.consumer()
    consumer.poll()
    offsets = consumer.offsets_to_commit()
    engine.clock.advance(LEASE_S)
    consumer.heartbeat()

    consumer.mark_committed(offsets)
    consumer.rewind()

    assert numbers(consumer.poll()) == [0, 1, 2]


def test_a_rewind_after_an_unknown_outcome_begins_at_what_the_log_says(engine: MemoryEngine) -> None:
    consumer = engine.consumer()
    drain(consumer)
    # The transaction was committed, but its answer never came: nobody marks it.
    engine.commit_offsets("billing", TOPIC, consumer.offsets_to_commit())

    consumer.rewind()

    assert drain(consumer) == []


def test_a_commit_that_is_refused_for_another_reason_can_be_tried_again(engine: MemoryEngine) -> None:
    consumer = engine.consumer()
    consumer.poll()

    def full() -> None:
        raise Unavailable("the disk is full")

    engine.before_a_commit = full
    with pytest.raises(Unavailable):
        consumer.commit()

    assert consumer.commit() == {0: 3}


def test_a_fence_of_the_engine_is_passed_on_where_the_lease_is_still_held(engine: MemoryEngine) -> None:
    consumer = engine.consumer()
    consumer.poll()

    def fenced() -> None:
        raise Fenced("the log has a later owner")

    engine.before_a_commit = fenced
    with pytest.raises(Fenced, match="later owner"):
        consumer.commit()


# -------------------------------------------------------------------------------------------- seeking and looking


def test_a_seek_moves_the_reading_and_the_next_commit(engine: MemoryEngine) -> None:
    consumer = engine.consumer()
    drain(consumer)
    consumer.commit()

    consumer.seek(0, 1)
    assert drain(consumer) == [1, 2]
    consumer.seek(1, 2)

    assert consumer.commit() == {1: 2}


@pytest.mark.parametrize(("partition", "offset"), [(0, -1), (0, 4), (2, 0)])
def test_a_seek_to_where_nothing_is_is_refused(engine: MemoryEngine, partition: int, offset: int) -> None:
    consumer = engine.consumer()
    drain(consumer)

    with pytest.raises(InvalidRequest):
        consumer.seek(partition, offset)
    assert consumer.poll() is None
    consumer.seek(0, 3)


def test_lag_is_what_is_durable_and_not_committed(engine: MemoryEngine) -> None:
    consumer = engine.consumer()

    assert consumer.lag() == {0: 3, 1: 3} and consumer.total_lag() == 6
    consumer.poll(max_rows=2)
    assert consumer.total_lag() == 6, "handed out is not committed"
    consumer.commit()
    engine.append(1, 103)
    assert consumer.lag() == {0: 1, 1: 4}
    engine.clean_up(1, 2)
    assert consumer.lag() == {0: 1, 1: 2}


def test_a_closed_consumer_has_left_and_says_so(engine: MemoryEngine) -> None:
    consumer = engine.consumer()
    consumer.poll()
    assert repr(consumer) == "<Consumer of 'orders' in group 'billing': partitions [0, 1]>"

    consumer.close()
    consumer.close()

    assert engine.coordinator.members("billing", TOPIC) == ()
    assert repr(consumer) == "<Consumer of 'orders' in group 'billing': closed>"
    refused: list[Callable[[], object]] = [
        consumer.poll,
        consumer.heartbeat,
        consumer.commit,
        consumer.offsets_to_commit,
        consumer.rewind,
        consumer.lag,
        lambda: consumer.seek(0, 0),
    ]
    for call in refused:
        with pytest.raises(Closed):
            call()
    assert list(consumer) == []
    assert engine.coordinator.members("billing", TOPIC) == (), "none of them has joined again"


def test_a_forked_child_is_not_the_member(engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = engine.consumer()
    consumer.poll()
    parent = os.getpid()

    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    consumer.close()
    with pytest.raises(Closed):
        consumer.poll()
    with pytest.raises(Closed):
        next(iter(consumer))
    monkeypatch.undo()

    assert numbers(consumer.poll()) == [100, 101, 102]


# ------------------------------------------------------------------------------------------------ in any order


# Many partitions with a few rows each ---------------------------------------------------------------------------------


@pytest.fixture
def many() -> MemoryEngine:
    """Twelve partitions with two rows each: 0 and 1 of the first, 10 and 11 of the next."""
    engine = MemoryEngine(partitions=12)
    for partition in range(12):
        engine.append(partition, 10 * partition, 10 * partition + 1)
    return engine


def test_rows_of_many_partitions_are_gathered_once_and_come_by_partition_in_turn(many: MemoryEngine) -> None:
    consumer = many.consumer()

    found = [consumer.poll() for _ in range(12)]

    assert [numbers(each) for each in found] == [[10 * partition, 10 * partition + 1] for partition in range(12)]
    assert [(each.partition, each.offset, each.next_offset) for each in found if each] == [(n, 0, 2) for n in range(12)]
    assert many.gathered == [dict.fromkeys(range(12), 0)]
    assert consumer.poll() is None


def test_what_is_left_of_a_partition_comes_after_the_others(many: MemoryEngine) -> None:
    consumer = many.consumer()

    found = [consumer.poll(max_rows=1) for _ in range(24)]

    assert [numbers(each) for each in found[:12]] == [[10 * partition] for partition in range(12)]
    assert [numbers(each) for each in found[12:]] == [[10 * partition + 1] for partition in range(12)]
    assert [(each.offset, each.next_offset) for each in found if each] == [(0, 1)] * 12 + [(1, 2)] * 12
    assert len(many.gathered) == 1


def test_few_partitions_are_read_one_by_one(many: MemoryEngine) -> None:
    first, second = many.consumer(), many.consumer()
    second.poll()

    assert len(first.assignment) < MANY
    drain(first)

    assert many.gathered == []


def test_a_partition_with_many_rows_is_read_by_itself(many: MemoryEngine) -> None:
    many.append(5, *range(1000, 1000 + FEW_ROWS))
    consumer = many.consumer()

    found = drain(consumer)

    assert sorted(found) == sorted(each for rows in many.rows for each in rows)
    assert [5 in asked for asked in many.gathered] == [False]


def test_of_very_many_partitions_all_are_gathered_however_many_rows_they_have() -> None:
    engine = MemoryEngine(partitions=VERY_MANY + 1)
    for partition in range(VERY_MANY + 1):
        engine.append(partition, *range(FEW_ROWS + 1))
    consumer = engine.consumer()

    assert len(drain(consumer)) == (VERY_MANY + 1) * (FEW_ROWS + 1)

    assert engine.gathered == [dict.fromkeys(range(VERY_MANY + 1), 0)]


def test_a_partition_of_which_rows_have_gone_is_read_by_itself_and_they_are_counted(many: MemoryEngine) -> None:
    consumer = many.consumer()
    consumer.heartbeat()
    many.clean_up(0, 1)
    many.clean_up(7, 1)

    found = drain(consumer)

    assert found[:3] == [1, 10, 11]  # its turn is kept, although the others' rows are at hand
    assert sorted(found) == sorted(set(range(0, 120, 10)) - {0, 70} | set(range(1, 121, 10)))
    assert consumer.skipped == {0: 1, 7: 1}


def test_a_hole_that_compaction_left_is_passed_over(many: MemoryEngine) -> None:
    many.append(3, 32, 33)
    many.compacted = {(3, 1), (4, 0)}
    consumer = many.consumer()

    by_partition = {polled.partition: (numbers(polled), polled.next_offset) for polled in iter(consumer.poll, None)}

    assert by_partition[3] == ([30, 32, 33], 4)
    assert by_partition[4] == ([41], 2)
    assert consumer.skipped == {}


def test_rows_that_wait_are_not_handed_out_where_the_partition_is_read_from_elsewhere(many: MemoryEngine) -> None:
    consumer = many.consumer()
    consumer.poll()
    consumer.seek(1, 1)
    consumer.seek(2, 0)

    assert drain(consumer) == [20, 21, *(10 * n + i for n in range(3, 12) for i in (0, 1)), 11]


def test_rows_that_wait_are_not_handed_out_of_a_partition_that_was_lost(many: MemoryEngine) -> None:
    first = many.consumer()
    first.poll()
    first.commit()
    second = many.consumer()
    first.poll()  # the group's word of before the commit does not stand: it gives up six, and takes one
    theirs = {number for number in range(12) if number not in first.assignment}
    assert len(theirs) == 6

    rows = drain(first)

    assert not {row // 10 for row in rows} & theirs
    assert {row // 10 for row in drain(second)} == theirs


def test_the_group_is_asked_again_after_a_while_although_rows_wait(many: MemoryEngine) -> None:
    first = many.consumer()
    first.poll()
    many.consumer()

    first.poll()
    assert len(first.assignment) == 12
    many.clock.advance(KNOWN_S)
    first.poll()

    assert len(first.assignment) < 12


def test_a_consumer_that_is_closed_hands_out_nothing_that_waits(many: MemoryEngine) -> None:
    consumer = many.consumer()
    consumer.poll()
    consumer.close()

    with pytest.raises(Closed):
        consumer.poll()


def test_a_pass_that_fails_keeps_nobody_from_reading_one_by_one(many: MemoryEngine) -> None:
    def damaged() -> None:
        raise CorruptData("a frame of another topic")

    consumer = many.consumer()
    many.before_a_gather = damaged

    with pytest.raises(CorruptData):
        consumer.poll()

    assert numbers(consumer.poll()) == [0, 1]
    assert many.gathered == []
    assert sorted(drain(consumer)) == sorted(each for rows in many.rows[1:] for each in rows)


def test_where_gathering_does_not_help_it_is_tried_ever_less_often(
    many: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0

    def nothing(topic_number: int, offsets: Mapping[int, int]) -> list[pa.RecordBatch]:
        nonlocal tries
        tries += 1
        return []

    monkeypatch.setattr(many, "gather", nothing)
    consumer = many.consumer(batch_rows=1)
    for partition in range(12):
        many.append(partition, *range(100 * partition + 100, 100 * partition + 150))

    found = drain(consumer)

    assert len(found) == 12 * 52
    # Before the 1st of the 624 reads, the 3rd, 7th, 15th, 31st, 63rd and 127th; then before each 65th.
    assert tries == 7 + (12 * 52 - 127) // (ALONE_MAX + 1)


class ConsumerMachine(RuleBasedStateMachine):
    """Members that read, commit, die and come back, while rows come: each row reaches the group, and output that is
    committed with its offsets holds each row exactly once."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = MemoryEngine(partitions=2)
        self.members: list[Consumer] = []
        self.work: dict[int, list[int]] = {}  # by id of the member: output of its open transaction
        self.output: list[int] = []
        self.appended = 0

    @rule(partition=st.integers(0, 3), count=st.integers(1, 3))
    def append(self, partition: int, count: int) -> None:
        rows = range(self.appended, self.appended + count)
        self.engine.append(partition % len(self.engine.rows), *rows)
        self.appended += count

    @precondition(lambda self: len(self.members) < 3)
    @rule()
    def join(self) -> None:
        consumer = self.engine.consumer(batch_rows=2)
        self.members.append(consumer)
        self.work[id(consumer)] = []

    def drawn(self, data: st.DataObject) -> Consumer:
        return self.members[data.draw(st.integers(0, len(self.members) - 1))]

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def poll(self, data: st.DataObject) -> None:
        consumer = self.drawn(data)
        if (polled := consumer.poll()) is not None:
            self.work[id(consumer)] += numbers(polled)

    def commit_work(self, consumer: Consumer) -> None:
        work = self.work[id(consumer)]
        try:
            self.engine.commit_offsets("billing", TOPIC, consumer.offsets_to_commit())
        except Fenced:
            consumer.rewind()
        else:
            consumer.mark_committed()
            self.output += work
        self.work[id(consumer)] = []

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        self.commit_work(self.drawn(data))

    @precondition(lambda self: self.members)
    @rule(data=st.data(), says_goodbye=st.booleans())
    def die(self, data: st.DataObject, says_goodbye: bool) -> None:
        consumer = self.drawn(data)
        self.members.remove(consumer)
        if says_goodbye:
            consumer.close()

    @rule(part=st.sampled_from([0.3, 0.99, 1.0]))
    def time_passes(self, part: float) -> None:
        self.engine.clock.advance(LEASE_S * part)

    @precondition(lambda self: len(self.engine.rows) < 4)
    @rule()
    def grow(self) -> None:
        self.engine.add_partition()

    def teardown(self) -> None:
        for consumer in self.members:
            consumer.close()
        self.engine.clock.advance(LEASE_S)  # for those who died without a word
        last = self.engine.consumer(batch_rows=2)
        self.work[id(last)] = drain(last)
        self.commit_work(last)

        assert sorted(self.output) == list(range(self.appended))
        assert last.total_lag() == 0


@pytest.mark.parametrize("many", [consumer_module.MANY, 1])
def test_output_that_is_committed_with_its_offsets_holds_each_row_once_whatever_happens(
    many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_module, "MANY", many)
    run_state_machine_as_test(
        ConsumerMachine,
        settings=settings(
            max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
