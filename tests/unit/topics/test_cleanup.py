"""A run of cleanup over a real log: what goes by policy, what stays and why, and what a failure does to the rest."""

from __future__ import annotations

import errno
import logging
import sys
import threading
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from headwater.errors import Closed, DamagedLog, Forgotten, InvalidRequest, OutcomeUnknown, Poisoned, Unavailable
from headwater.ids import Lsn
from headwater.log.pins import PinFound
from headwater.metadata.operations import DeletedTopic, TopicRecord
from headwater.metadata.state import MetadataState
from headwater.topics.cleanup import Cleanup, CleanupReport
from headwater.topics.compaction import Reach
from headwater.topics.retention import NOTHING_LANDED, ClockCaution, Landings
from tests.unit.log.small_logs import WAIT_S, crashing_at_every_call, rows, segment_names, simulated, spoil, stored
from tests.unit.topics.keyed_logs import (
    DAY_S,
    Stage,
    delete,
    deleted_topic,
    keyed_topic,
    latest_of,
    open_stage,
    rows_of,
    stage,
    upsert,
    values_of,
)
from tests.unit.topics.known_landings import KnownLandings, landed_at_once
from tests.unit.topics.small_engines import PLAIN, World, engine_of, with_log

BELIEVED = ClockCaution(0, 0)
GRACE_S = 600.0


def cleanup_of(on: Stage, *, caution: ClockCaution = BELIEVED, landings: Landings = NOTHING_LANDED) -> Cleanup:
    return Cleanup(
        on.log,
        pins=on.pins,
        record_intent=on.record_intent,
        forget_topics=on.forget_topics,
        landings=landings,
        caution=caution,
        clock=on.world.clock,
        settings=on.world.settings,
    )


def run(
    on: Stage,
    topics: Sequence[TopicRecord],
    deleted: Sequence[DeletedTopic] = (),
    *,
    cleanup: Cleanup | None = None,
    covered: int | None = None,
) -> CleanupReport:
    cleanup = cleanup if cleanup is not None else cleanup_of(on)
    return cleanup.run(
        topics=topics,
        deleted=deleted,
        log_start=Lsn(on.world.log_start),
        covered_lsn=Lsn(covered if covered is not None else on.log.durable_lsn()),
    )


def sealed(on: Stage, *contents: tuple[TopicRecord, Any]) -> str:
    """Append rows of topics, and seal them; returns the segment's name."""
    for topic, given in contents:
        upsert(on.log, topic, given)
    name = on.log.segments()[-1].name
    on.log.roll()
    return name


# Deleting -------------------------------------------------------------------------------------------------


def test_rows_that_are_older_than_their_retention_go_with_their_segment() -> None:
    topic = keyed_topic(key=(), cleanup="delete", retention_s=DAY_S)
    on = stage()
    old = sealed(on, (topic, {1: "old"}))
    on.world.clock.advance(DAY_S)
    young = sealed(on, (topic, {2: "young"}))
    size = len(on.files.contents(f"log/{old}"))
    on.world.clock.advance(GRACE_S + 1)

    report = run(on, [topic])

    assert report.deleted == (old,) and report.rows_removed == 1 and report.bytes_saved == size
    assert report.kept == {young: "topics not released: 1"}
    assert values_of(on.log, topic) == [(2, "young")]
    assert [intent.segments for intent in on.intents] == [(old,)]
    with pytest.raises(Forgotten):
        next(on.log.read(Lsn(1)))


def test_grace_is_waited_for_before_anything_goes() -> None:
    topic = keyed_topic(key=(), cleanup="delete", retention_s=DAY_S)
    on = stage()
    old = sealed(on, (topic, {1: "old"}))

    on.world.clock.advance(DAY_S + GRACE_S - 1)
    early = run(on, [topic])
    on.world.clock.advance(2)
    late = run(on, [topic])

    assert (early.deleted, late.deleted) == ((), (old,))


def test_a_log_that_seals_faster_than_grace_passes_still_lets_go() -> None:
    topic = keyed_topic(key=(), cleanup="delete", retention_s=0.0)
    on = stage()
    names = []
    for _ in range(12):
        names.append(sealed(on, (topic, {1: "a"})))
        on.world.clock.advance(60.0)

    report = run(on, [topic])

    assert report.deleted == tuple(names[:3])


def test_a_topic_above_its_size_loses_its_oldest_rows() -> None:
    topic = keyed_topic(key=(), cleanup="delete", retention_bytes=3000)
    on = stage()
    names = [sealed(on, (topic, {1: "x" * 1000})) for _ in range(4)]
    on.world.clock.advance(GRACE_S + 1)

    report = run(on, [topic])

    assert report.deleted == tuple(names[:2])
    assert len(rows_of(on.log, topic)) == 2


def test_a_topic_that_is_kept_does_not_keep_the_others_rows() -> None:
    large = keyed_topic(1, key=(), cleanup="delete", retention_s=DAY_S)
    small = keyed_topic(2, key=(), cleanup="delete")
    on = stage()
    sealed(on, (large, {1: "x" * 9000}), (small, {1: "kept"}))
    on.world.clock.advance(DAY_S + GRACE_S + 1)

    report = run(on, [large, small])

    assert report.deleted == () and len(report.drained) == 1
    assert report.rows_removed == 1 and report.bytes_saved > 9000
    assert values_of(on.log, large) == [] and values_of(on.log, small) == [(1, "kept")]


def test_what_no_checkpoint_covers_stays() -> None:
    topic = keyed_topic(cleanup="both", retention_s=0.0)
    on = stage()
    name = sealed(on, (topic, [(1, "a"), (1, "b")]))
    on.world.clock.advance(DAY_S)

    report = run(on, [topic], covered=1)

    assert report.kept == {name: "covered only up to lsn 1"} and report.compacted == ()
    assert len(rows_of(on.log, topic)) == 2


def test_of_a_topic_with_a_table_nothing_goes_before_it_has_landed() -> None:
    topic = keyed_topic(cleanup="both", retention_s=0.0, table="lake.t")
    on = stage()
    name = sealed(on, (topic, [(1, "a"), (1, "b")]))
    on.world.clock.advance(DAY_S)

    unlanded = run(on, [topic])
    landed = run(on, [topic], cleanup=cleanup_of(on, landings=landed_at_once(1, 2)))

    assert (unlanded.deleted, unlanded.rows_removed) == ((), 0)
    assert (landed.deleted, landed.rows_removed) == ((name,), 2)


def test_what_a_table_holds_goes_after_grace_without_any_retention() -> None:
    topic = keyed_topic(key=(), cleanup="delete", table="lake.t")
    on = stage()
    first = sealed(on, (topic, {1: "a"}))
    second = sealed(on, (topic, {2: "b"}))
    landings = KnownLandings()
    cleanup = cleanup_of(on, landings=landings)
    landings.add(1, on.log.segments()[0].last_lsn, on.world.clock.now_us())

    on.world.clock.advance(GRACE_S - 1)
    early = run(on, [topic], cleanup=cleanup)
    on.world.clock.advance(1)
    ripe = run(on, [topic], cleanup=cleanup)

    assert early.deleted == () and ripe.deleted == (first,)
    assert ripe.kept == {second: "topics not released: 1"}
    assert values_of(on.log, topic) == [(2, "b")]


def test_one_topic_that_is_not_landed_does_not_hold_the_rows_of_others() -> None:
    stuck, other = (keyed_topic(number, key=(), cleanup="delete", table=f"lake.t{number}") for number in (1, 2))
    on = stage()
    sealed(on, (stuck, {1: "a"}), (other, dict.fromkeys(range(50), "x" * 100)))
    landings = landed_at_once(2, on.log.segments()[0].last_lsn)
    before = sum(segment.bytes for segment in on.log.segments())
    on.world.clock.advance(DAY_S)

    report = run(on, [stuck, other], cleanup=cleanup_of(on, landings=landings))

    assert len(report.drained) == 1 and report.rows_removed == 50
    assert values_of(on.log, stuck) == [(1, "a")]
    assert sum(segment.bytes for segment in on.log.segments()) < before / 2


def test_what_the_landings_have_to_say_is_among_the_notes() -> None:
    on = stage()
    cleanup = cleanup_of(on, landings=KnownLandings(said=("the ledger cannot be read",)))

    assert cleanup.notes() == ("the ledger cannot be read",)
    assert cleanup.run(topics=[], deleted=[], log_start=Lsn(1), covered_lsn=Lsn(0)).notes == cleanup.notes()


def test_readers_for_whom_something_stays_are_named() -> None:
    topic = keyed_topic(key=(), cleanup="delete", retention_s=0.0)
    on = stage()
    name = sealed(on, (topic, {1: "a"}))
    on.world.clock.advance(DAY_S)
    pins = []
    on.on_intent = lambda intent: pins.append(on.pins.hold(Lsn(1), lambda: 1))

    report = run(on, [topic])

    assert [pin.lsn for pin in report.held_by_pins] == [1] and report.deleted == ()
    assert name in segment_names(on.files)


def test_an_unlink_that_failed_is_tried_again_at_the_next_run() -> None:
    topic = keyed_topic(key=(), cleanup="delete", retention_s=0.0)
    on = stage()
    name = sealed(on, (topic, {1: "a"}))
    on.world.clock.advance(DAY_S)
    on.files.fail(2, errno.EIO, verbs=["unlink"])  # the index goes, the segment does not

    first = run(on, [topic])
    second = run(on, [topic])

    assert (first.deleted, second.deleted) == ((), (name,))


# Deleted topics -------------------------------------------------------------------------------------------


def test_a_deleted_topics_rows_go_the_others_stay_and_then_it_is_forgotten() -> None:
    doomed, other = keyed_topic(1, cleanup="delete"), keyed_topic(2, cleanup="delete")
    on = stage()
    sealed(on, (doomed, {1: "x" * 5000}), (other, {1: "kept"}))
    sealed(on, (doomed, {2: "x" * 5000}))
    deleted = [deleted_topic(doomed, on.world.clock.now_us())]
    on.world.clock.advance(GRACE_S)

    report = run(on, [other], deleted)

    assert len(report.drained) == 2 and report.rows_removed == 2
    assert rows_of(on.log, doomed) == [] and values_of(on.log, other) == [(1, "kept")]
    assert report.forgotten == (1,) and on.forgotten == [1]


def test_a_deleted_topic_is_not_forgotten_while_a_frame_of_it_is_there() -> None:
    doomed = keyed_topic(1, cleanup="delete")
    on = stage()
    sealed(on, (doomed, {1: "a"}))
    upsert(on.log, doomed, {2: "in the segment that is being written"})
    deleted = [deleted_topic(doomed, on.world.clock.now_us())]
    on.world.clock.advance(GRACE_S)

    first = run(on, [], deleted)
    on.log.roll()
    second = run(on, [], deleted)

    assert (len(first.deleted), first.forgotten) == (1, ())
    assert (len(second.deleted), second.forgotten) == (1, (1,))
    assert on.forgotten == [1]


def test_a_topic_of_a_deleted_ones_name_keeps_its_own_rows() -> None:
    old, new = keyed_topic(1), keyed_topic(2)
    on = stage()
    sealed(on, (old, {1: "old"}), (new, {1: "new"}), (new, {2: "new"}))
    on.world.clock.advance(GRACE_S)

    run(on, [new], [deleted_topic(old, 0)])

    assert values_of(on.log, new) == [(1, "new"), (2, "new")]


# Compacting -----------------------------------------------------------------------------------------------


def test_topics_whose_policy_asks_for_it_are_compacted() -> None:
    policies: list[Any] = ["compact", "both", "delete"]
    topics = [keyed_topic(number, cleanup=cleanup) for number, cleanup in enumerate(policies, 1)]
    on = stage()
    sealed(on, *((topic, [(1, "a"), (2, "b"), (1, "c")]) for topic in topics))

    report = run(on, topics)

    assert [(done.topic, done.rows_removed) for done in report.compacted] == [("topic-1", 1), ("topic-2", 1)]
    assert report.rows_removed == 2 and len(segment_names(on.files)) == 2
    assert [len(rows_of(on.log, topic)) for topic in topics] == [2, 2, 3]


def test_a_keyless_topic_is_never_compacted_by_a_run() -> None:
    topic = keyed_topic(key=(), cleanup="compact")
    on = stage()
    sealed(on, (topic, [(1, "a"), (1, "b")]))

    report = run(on, [topic])

    assert report == CleanupReport(kept=report.kept)
    assert len(rows_of(on.log, topic)) == 2


def test_a_topic_with_nothing_new_is_not_read_again() -> None:
    topic, other = keyed_topic(1), keyed_topic(2)
    on = stage()
    cleanup = cleanup_of(on)
    sealed(on, (topic, {1: "a"}))

    first = run(on, [topic, other], cleanup=cleanup)
    idle = run(on, [topic, other], cleanup=cleanup)
    sealed(on, (other, {1: "a"}))
    others = run(on, [topic, other], cleanup=cleanup)
    sealed(on, (topic, {1: "b"}))
    more = run(on, [topic, other], cleanup=cleanup)

    compacted = [[done.topic for done in report.compacted] for report in (first, idle, others, more)]
    assert compacted == [["topic-1"], [], ["topic-2"], ["topic-1"]]
    assert more.rows_removed == 1


def test_rows_that_have_landed_since_are_something_new() -> None:
    topic = keyed_topic(table="lake.t")
    on = stage()
    landings = KnownLandings()
    cleanup = cleanup_of(on, landings=landings)
    for value in "abc":
        upsert(on.log, topic, {1: value})
    on.log.roll()

    reports = []
    for lsn in (0, 2, 2, 3, 4):
        landings.add(1, lsn)
        reports.append(run(on, [topic], cleanup=cleanup))

    assert [report.rows_removed for report in reports] == [0, 0, 0, 1, 1]
    assert [len(report.compacted) for report in reports] == [1, 1, 0, 1, 1]


def test_a_delete_whose_time_is_over_is_something_new() -> None:
    topic = keyed_topic(tombstones_s=3600.0)
    on = stage()
    cleanup = cleanup_of(on)
    upsert(on.log, topic, {1: "a", 2: "b"})
    delete(on.log, topic, 1)
    on.log.roll()

    reports = [run(on, [topic], cleanup=cleanup) for _ in range(2)]
    on.world.clock.advance(3601.0)
    reports += [run(on, [topic], cleanup=cleanup) for _ in range(2)]

    assert [report.rows_removed for report in reports] == [1, 0, 1, 0]
    assert [len(report.compacted) for report in reports] == [1, 0, 1, 0]


def test_a_topic_that_was_deleted_is_no_longer_remembered() -> None:
    topic = keyed_topic()
    on = stage()
    cleanup = cleanup_of(on)
    sealed(on, (topic, {1: "a"}))
    run(on, [topic], cleanup=cleanup)
    assert cleanup._reached == {1: Reach(Lsn(2), None)}

    run(on, [], cleanup=cleanup)

    assert cleanup._reached == {}


def test_compaction_on_demand_looks_whether_or_not_there_is_something_new() -> None:
    topic = keyed_topic()
    on = stage()
    cleanup = cleanup_of(on)
    sealed(on, (topic, [(1, "a"), (1, "b")]))

    done = [cleanup.compact([topic], covered_lsn=Lsn(99)).compacted for _ in range(2)]

    assert [[each.rows_removed for each in compacted] for compacted in done] == [[1], [0]]
    assert run(on, [topic], cleanup=cleanup).compacted == ()


def test_compaction_on_demand_refuses_before_anything_is_done() -> None:
    on = stage()
    topic = keyed_topic()
    sealed(on, (topic, [(1, "a"), (1, "b")]))

    with pytest.raises(InvalidRequest, match="without a key"):
        cleanup_of(on).compact([topic, keyed_topic(2, key=())], covered_lsn=Lsn(99))

    assert len(rows_of(on.log, topic)) == 2


class WatchedLock:
    """A lock that says when somebody has to wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.waited_for = threading.Event()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.waited_for.set()
            self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


def test_a_second_cleanup_waits_for_the_first() -> None:
    topic = keyed_topic()
    on = stage()
    sealed(on, (topic, [(1, "a"), (1, "b")]))
    cleanup = cleanup_of(on)
    lock = WatchedLock()
    cleanup.one_at_a_time = lock  # type: ignore[assignment]
    reports: list[CleanupReport] = []
    second = threading.Thread(target=lambda: reports.append(run(on, [topic], cleanup=cleanup)))

    def start_the_second(verb: str, name: str) -> None:
        if verb == "rename" and not second.ident:
            second.start()
            assert lock.waited_for.wait(WAIT_S) and not reports

    on.files.before_call = start_the_second
    first = run(on, [topic], cleanup=cleanup)
    second.join(WAIT_S)

    assert first.rows_removed == 1
    assert [report.rows_removed for report in reports] == [0]


# The clock ------------------------------------------------------------------------------------------------


def test_while_the_clock_is_not_believed_nothing_expires_by_age_and_the_report_says_so() -> None:
    by_age = keyed_topic(1, key=(), cleanup="delete", retention_s=0.0)
    keyed = keyed_topic(2, tombstones_s=0.0)
    on = stage()
    sealed(on, (by_age, {1: "a"}))
    upsert(on.log, keyed, {1: "a"})
    delete(on.log, keyed, 1)
    on.log.roll()
    newest_us = on.log.segments()[1].last_append_time_us
    on.world.clock.advance(2 * DAY_S)
    cleanup = cleanup_of(on, caution=ClockCaution(on.world.clock.now_us(), newest_us))

    doubted = run(on, [by_age, keyed], cleanup=cleanup)
    note = cleanup.notes()
    idle = run(on, [by_age, keyed], cleanup=cleanup)
    on.world.clock.advance(3600.0)
    believed = run(on, [by_age, keyed], cleanup=cleanup)

    assert doubted.deleted == () and doubted.rows_removed == 1  # the row that the delete supersedes: not by age
    assert doubted.notes == note == ("nothing expires by age for 3600 s more: " + cleanup._caution.reason,)
    assert idle.compacted == ()
    assert len(believed.deleted) == 1 and believed.rows_removed == 2
    assert believed.notes == ()


# Failures -------------------------------------------------------------------------------------------------


def test_a_deletion_that_fails_is_reported_and_compaction_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    by_age = keyed_topic(1, key=(), cleanup="delete", retention_s=0.0)
    keyed = keyed_topic(2)
    on = stage()
    sealed(on, (by_age, {1: "a"}))
    sealed(on, (keyed, [(1, "a"), (1, "b")]))
    on.world.clock.advance(DAY_S)
    on.refusal = Unavailable("the journal has no room")

    with caplog.at_level(logging.INFO, "headwater.topics"):
        report = run(on, [by_age, keyed], [deleted_topic(keyed_topic(3), 0)])

    assert [str(failure) for failure in report.failures] == ["the journal has no room"] * 2
    assert report.deleted == () and report.kept == {} and report.forgotten == ()
    assert report.rows_removed == 1
    assert values_of(on.log, by_age) == [(1, "a")]
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING", "INFO"]


def test_a_topic_that_fails_is_reported_and_tried_again() -> None:
    topic, other = keyed_topic(1), keyed_topic(2)
    on = stage()
    cleanup = cleanup_of(on)
    sealed(on, (topic, [(1, "a"), (1, "b")]))
    sealed(on, (other, [(1, "a"), (1, "b")]))
    on.files.fail(1, errno.ENOSPC, verbs=["create"])

    failed = run(on, [topic, other], cleanup=cleanup)
    healed = run(on, [topic, other], cleanup=cleanup)

    assert [failure.topic for failure in failed.failures] == ["topic-1"]
    assert [done.topic for done in failed.compacted] == ["topic-2"]
    assert [(done.topic, done.rows_removed) for done in healed.compacted] == [("topic-1", 1)]


def test_while_pins_cannot_be_read_nothing_goes_and_the_report_says_so() -> None:
    topic = keyed_topic(cleanup="both", retention_s=0.0)
    on = stage()
    sealed(on, (topic, [(1, "a"), (1, "b")]))
    on.world.clock.advance(DAY_S)
    on.files.make_directory("pins")
    cleanup = cleanup_of(on)
    on.files.fail(1, errno.EIO, verbs=["list"], for_ever=True)

    report = run(on, [topic], cleanup=cleanup)

    assert len(report.failures) == 2 and report.rows_removed == 0
    on.files.heal()
    assert run(on, [topic], cleanup=cleanup).rows_removed == 2


def test_damage_is_raised() -> None:
    topic = keyed_topic()
    on = stage()
    other = on.log.append([rows(9)])
    name = sealed(on, (topic, [(1, "a"), (2, "b"), (1, "c")]))
    spoil(on.files, f"log/{name}", stored(on.files)[other.first_lsn], body=True)

    with pytest.raises(DamagedLog):
        run(on, [topic])


def test_a_log_that_promises_nothing_any_more_is_raised() -> None:
    topic = keyed_topic()
    on = stage()
    sealed(on, (topic, [(1, "a"), (1, "b")]))
    on.files.fail(1, errno.EIO, verbs=["sync_data"])
    with pytest.raises(OutcomeUnknown):
        upsert(on.log, topic, {1: "never"})

    with pytest.raises(Poisoned):
        run(on, [topic])


def test_a_closed_log_is_raised() -> None:
    topic = keyed_topic(cleanup="both", retention_s=0.0)
    on = stage()
    sealed(on, (topic, [(1, "a"), (1, "b")]))
    cleanup = cleanup_of(on)
    on.log.close()

    with pytest.raises(Closed):
        run(on, [topic], cleanup=cleanup, covered=99)
    with pytest.raises(Closed):
        cleanup.compact([topic], covered_lsn=Lsn(99))


def test_a_journal_that_is_closed_is_raised() -> None:
    topic = keyed_topic(1, key=(), cleanup="delete", retention_s=0.0)
    on = stage()
    sealed(on, (topic, {1: "a"}))
    on.world.clock.advance(DAY_S)
    on.refusal = Closed("this journal is closed")

    with pytest.raises(Closed):
        run(on, [topic])
    with pytest.raises(Closed):
        run(on, [], [deleted_topic(keyed_topic(3), 0)])


# Crashes --------------------------------------------------------------------------------------------------


def test_a_crash_at_any_moment_of_a_cleanup_loses_nothing_that_should_stay() -> None:
    expiring = keyed_topic(1, key=(), cleanup="delete", retention_s=DAY_S)
    keyed = keyed_topic(2, tombstones_s=DAY_S)
    doomed = keyed_topic(3)

    def prepared() -> Stage:
        files, world = simulated(5)
        on = open_stage(files, world)
        sealed(on, (expiring, {1: "old"}), (doomed, {1: "x" * 3000}))
        sealed(on, (keyed, {1: "a", 2: "b"}), (doomed, {1: "x" * 3000}))
        delete(on.log, keyed, 2)
        on.log.roll()
        world.clock.advance(2 * DAY_S)
        sealed(on, (expiring, {2: "young"}), (keyed, {1: "a2"}))
        on.log.close()
        return on

    def clean(on: Stage) -> CleanupReport:
        return run(on, [expiring, keyed], [deleted_topic(doomed, 0)])

    worlds: list[Stage] = []

    def fresh() -> Any:
        worlds.append(prepared())
        return worlds[-1].files

    def act(files: Any) -> None:
        clean(open_stage(files, worlds[-1].world))

    for number, crashed in crashing_at_every_call(fresh, act):
        world = worlds[-1].world
        again = open_stage(crashed.crash(Random(number)), world)
        assert values_of(again.log, expiring)[-1:] == [(2, "young")], number
        assert latest_of(rows_of(again.log, keyed)) == {1: "a2"}, number

        clean(again)

        assert values_of(again.log, expiring) == [(2, "young")], number
        assert values_of(again.log, keyed) == [(1, "a2")], number
        assert rows_of(again.log, doomed) == []
        assert again.forgotten == [3]
        assert world.verify(again.files, log_start=world.log_start).ok


def test_a_run_that_waited_for_another_goes_by_what_that_one_has_done() -> None:
    """Found by cuts under load: two runs at once, and the later one would have taken the log's start back."""
    world = World(settings=with_log(segment_size_bytes_max=4096, write_body_bytes_max=4096, deletion_grace_s=0))
    log = world.log()
    topic = log.topic("a", PLAIN, retention_bytes=1)
    engine = engine_of(log)

    for number in range(120):
        topic.append({"x": number})
    log.checkpoint()
    topic.append({"x": 120})
    log.checkpoint()
    world.clock.advance(1)
    middle = engine.shard.log.segments()[3].first_lsn
    look, read_pins = engine.metadata, engine.pins.read
    pins = iter([read_pins()])
    late = PinFound("late", "a reader", Lsn(middle))
    # A reader that comes just after the first plan was made: what is recorded to go stays for now.
    engine.pins.read = lambda: next(pins, [late])  # type: ignore[method-assign]
    done = threading.Event()

    def other() -> None:
        log.cleanup()
        done.set()

    thread = threading.Thread(target=other)

    def look_late() -> MetadataState:
        found = look()
        if sys._getframe(1).f_code.co_name == "cleanup" and not thread.ident:
            thread.start()
            done.wait(0.5)  # it cannot be done before this run is, or this one would go by what was before
        return found

    engine.metadata = look_late  # type: ignore[method-assign]

    log.cleanup()
    thread.join(WAIT_S)

    assert done.is_set()
    assert engine.metadata().log_start > 1
