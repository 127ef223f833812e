"""Rows of docs/reference-designs.md about topics, each shown on an open log whose power can be cut.

SEED     A CrashableLog draws everything from its seed; threads are held by events, never by sleeping.
NOT HERE What one process sees while nothing goes wrong: tests/contract/log_api_*.py.
"""

from __future__ import annotations

import errno
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

import headwater as hw
from headwater.errors import CorruptData, OutcomeUnknown, Poisoned, RowsUnlanded, Unavailable, UnknownTopic
from headwater.log.names import parse_segment_name
from headwater.settings import LogSettings
from headwater.storage.simulated import Choice, SimulatedFiles
from headwater.testing import CrashableLog
from tests.unit.topics.known_landings import KnownLandings

KIB = 1024
DAY_S = 86_400.0
WAIT_S = 20.0
"""How long a test waits for a thread before it says that it hangs."""

NUMBER = {"n": int}
KEYED = {"id": int, "value": "string"}
LONG = "x" * 1_000

SMALL = hw.Settings(
    log=LogSettings(
        segment_size_bytes_max=8 * KIB, write_body_bytes_max=8 * KIB, reserve_bytes=0, deletion_grace_s=0.0
    ),
    journal=LogSettings(reserve_bytes=0, segment_age_s_max=float("inf")),
    upkeep_interval_s=0.0,
)
"""A few rows fill a segment, nothing happens by itself, and what may be deleted goes at once."""


def numbers(topic: hw.Topic) -> list[int]:
    return [row["n"] for row in topic.read().to_pylist()]


def all_files(files: SimulatedFiles, directory: str = "") -> dict[str, bytes]:
    """Every file below a directory, by name and content."""
    found: dict[str, bytes] = {}
    for name in files.list(directory):
        path = f"{directory}/{name}" if directory else name
        try:
            found[path] = files.contents(path)
        except FileNotFoundError:
            found.update(all_files(files, path))
    return found


def segment_names(files: SimulatedFiles) -> list[str]:
    return [name for name in files.list("log") if parse_segment_name(name) is not None]


def newest_segment(files: SimulatedFiles) -> str:
    return f"log/{segment_names(files)[-1]}"


class Held:
    """Stops the next call of a verb on a file whose name begins so, until it is let go."""

    def __init__(self, files: SimulatedFiles, verb: str, name: str) -> None:
        self.reached = threading.Event()
        self.let_go = threading.Event()

        def stop(each: str, path: str) -> None:
            if each == verb and path.startswith(name) and not self.reached.is_set():
                self.reached.set()
                assert self.let_go.wait(WAIT_S)

        files.before_call = stop


def in_thread(act: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    return thread


def join(*threads: threading.Thread) -> None:
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()


# Storage --------------------------------------------------------------------------------------------------------------


def test_the_first_write_makes_the_directory_with_its_parents_and_metadata_has_one_of_its_own(tmp_path: Path) -> None:
    where = tmp_path / "not" / "there" / "yet"

    with hw.open(where) as log:
        assert log.topics() == []
        assert not where.exists(), "looking makes nothing"
        log.topic("t", schema=NUMBER).append({"n": 1})

        assert {each.name for each in where.iterdir()} >= {"log", "journal"}


def test_a_log_in_memory_leaves_nothing_behind_and_the_next_one_finds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with hw.open(":memory:") as log:
        log.topic("t", schema=NUMBER).append({"n": 1})
        assert numbers(log["t"]) == [1]
    with hw.open(":memory:") as log:
        found = log.status()
        assert (found.topics, found.durable_lsn, found.journal_lsn, found.segments) == ([], 0, 0, 0)

    assert list(tmp_path.iterdir()) == []


def test_files_that_are_not_ours_are_passed_over_by_opening_cleanup_and_deletion() -> None:
    world = CrashableLog(settings=SMALL)
    foreign = {
        f"{place}{name}": f"{place}{name}".encode()
        for place in ("", "log/", "journal/", "checkpoints/", "journal/checkpoints/", "pins/")
        for name in ("notes.txt", "notes.tmp", ".hidden", "_temporary/part-0", "00000000000000000001.seg.bak")
    }
    for name, data in foreign.items():
        world.files.put(name, data)

    log = world.reopen()
    topic = log.topic("t", schema={"n": int, "text": str}, retention_bytes="8KiB")
    for n in range(40):
        topic.append({"n": n, "text": LONG})
        world.clock.advance(1)
    assert log.cleanup().deleted
    log = world.reopen()

    kept = numbers(log["t"])
    assert kept and kept == list(range(40 - len(kept), 40))
    there = all_files(world.files)
    assert {name: there.get(name) for name in foreign} == foreign


# A failing call reaches the caller ------------------------------------------------------------------------------------


def test_a_write_that_fails_is_refused_to_the_appender_of_the_partition_and_the_next_one_works() -> None:
    world = CrashableLog()
    topic = world.log.topic("t", schema=NUMBER)
    topic.append({"n": 0})
    world.files.fail(1, errno.EIO, verbs=["append"])

    with pytest.raises(Unavailable):
        topic.append({"n": 1})

    assert topic.append({"n": 2}).offsets == {0: (1, 2)}
    assert world.log.status().counters["io_errors"] == 1
    assert numbers(world.lose_power()["t"]) == [0, 2]


def test_a_sync_that_fails_leaves_the_appender_in_doubt_and_no_other_append_is_taken_until_it_is_opened_again() -> None:
    world = CrashableLog()
    topic = world.log.topic("t", schema=NUMBER)
    topic.append({"n": 0})
    world.files.fail(1, errno.EIO, verbs=["sync_data"])

    with pytest.raises(OutcomeUnknown):
        topic.append({"n": 1})
    with pytest.raises(Poisoned):
        topic.append({"n": 2})

    assert numbers(world.lose_power()["t"]) in ([0], [0, 1])


def test_a_damaged_row_is_an_error_for_whoever_reads_it_and_never_a_row_less() -> None:
    world = CrashableLog()
    topic = world.log.topic("t", schema=NUMBER)
    for n in range(3):
        topic.append({"n": n})
    body = world.files.contents(newest_segment(world.files)).rindex((1).to_bytes(8, "little") + bytes(56))
    world.files.flip_bit(newest_segment(world.files), body * 8)

    with pytest.raises(CorruptData):
        numbers(topic)


# What comes back ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_the_whole_message_comes_back_with_its_offset_after_a_power_loss(seed: int) -> None:
    world = CrashableLog(seed=seed)
    topic = world.log.topic("raw", schema=hw.BYTES, partitions=2)
    message = {"key": b"\x00k", "value": b"\xff" * 300, "headers": [("trace", b"1"), ("trace", b"2")]}
    producer = world.log.producer("loader")
    topic.append([message, {"key": None, "value": None, "headers": None}], partition=1)
    first = producer.append("raw", {"value": b"from a producer"}, partition=1)

    log = world.lose_power(seed)

    found = log["raw"].read(partition=1, system_columns=True).to_pylist()
    assert [(row["key"], row["value"], row["headers"], row["_hw_offset"]) for row in found] == [
        (b"\x00k", b"\xff" * 300, [("trace", b"1"), ("trace", b"2")], 0),
        (None, None, None, 1),
        (None, b"from a producer", None, 2),
    ]
    assert first.offsets == {1: (2, 3)}
    assert log["raw"].append({"value": b"later"}, partition=1).offsets == {1: (3, 4)}
    assert log.producer("loader").epoch == producer.epoch + 1, "the producer is remembered, and fenced"


def test_what_came_after_a_checkpoint_can_be_had_as_an_ordered_list_with_deletes() -> None:
    world = CrashableLog()
    topic = world.log.topic("k", schema=KEYED, key="id")
    topic.upsert([{"id": 1, "value": "old"}, {"id": 2, "value": "old"}])
    world.log.checkpoint()
    covered = world.log.status().checkpoint_lsn
    topic.upsert({"id": 1, "value": "new"})
    topic.delete(2)

    tail = world.kill()["k"].read(hw.Lsn(covered + 1)).to_pylist()

    assert [(row["id"], row["_hw_op"], row["value"]) for row in tail] == [(1, "U", "new"), (2, "D", None)]


def test_segments_of_an_earlier_life_are_cleaned_up_like_those_of_this_one() -> None:
    world = CrashableLog(settings=SMALL)
    topic = world.log.topic("t", schema={"n": int, "text": str}, retention="1h")
    for n in range(30):
        topic.append({"n": n, "text": LONG})
    log = world.kill()
    of_the_earlier = segment_names(world.files)[:-1]
    log["t"].append({"n": 30, "text": LONG})
    world.clock.advance(2 * 3600)

    report = log.cleanup()

    assert len(of_the_earlier) >= 3 and set(report.deleted) >= set(of_the_earlier)
    assert not set(of_the_earlier) & set(segment_names(world.files))
    assert numbers(log["t"])[-1] == 30


def test_with_a_policy_the_log_stays_small_however_long_it_runs() -> None:
    world = CrashableLog(settings=SMALL)
    topic = world.log.topic("t", schema={"n": int, "text": str}, retention="1h")
    sizes = []

    for round_ in range(40):
        for n in range(5):
            topic.append({"n": round_ * 5 + n, "text": LONG})
        world.clock.advance(0.5 * 3600)
        world.log.cleanup()
        sizes.append(world.log.status().log_bytes)

    assert max(sizes) < 6 * 8 * KIB
    assert topic.offsets()[0].next == 200


# Topics ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns as often as Python lets them."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def together(act: Callable[[], object], threads: int = 6) -> list[object]:
    """What each of so many threads got that do the same at the same time."""
    start = threading.Barrier(threads)
    found: list[object] = []

    def do() -> None:
        start.wait(WAIT_S)
        try:
            found.append(act())
        except hw.HeadwaterError as error:
            found.append(error)

    join(*[in_thread(do) for _ in range(threads)])
    return found


@pytest.mark.usefixtures("restless")
def test_threads_that_ask_for_a_new_topic_at_once_all_get_the_same_one() -> None:
    world = CrashableLog()

    for name in (f"t{number:02}" for number in range(20)):
        found = together(lambda name=name: world.log.topic(name, schema=NUMBER, partitions=3).topic_id)  # type: ignore[misc]
        assert found == [world.log[name].topic_id] * 6

    assert [each.name for each in world.lose_power().topics()] == [f"t{number:02}" for number in range(20)]


@pytest.mark.usefixtures("restless")
def test_threads_that_add_partitions_at_once_add_each_number_once_and_rows_stay_where_they_were() -> None:
    world = CrashableLog()
    topic = world.log.topic("t", schema=NUMBER, partitions=2)
    topic.append({"n": 7}, partition=1)

    for wanted in range(3, 23):
        found = together(lambda wanted=wanted: topic.alter(partitions=wanted).partitions)  # type: ignore[misc]
        assert found == [wanted] * 6

    log = world.lose_power()
    assert sorted(log["t"].offsets()) == list(range(22))
    assert log["t"].read(partition=1).to_pylist() == [{"n": 7}]
    assert log["t"].append({"n": 8}, partition=21).offsets == {21: (0, 1)}


def test_fewer_partitions_are_refused_and_the_same_number_is_nothing() -> None:
    world = CrashableLog()
    topic = world.log.topic("t", schema=NUMBER, partitions=4)
    before = world.log.status().journal_lsn

    with pytest.raises(hw.errors.InvalidRequest, match="partitions"):
        topic.alter(partitions=3)
    topic.alter(partitions=4)

    assert (topic.partitions, world.log.status().journal_lsn) == (4, before)


@pytest.mark.parametrize("seed", range(4))
def test_rows_of_a_deleted_topic_are_passed_over_in_replay_and_a_new_one_of_its_name_has_none(seed: int) -> None:
    world = CrashableLog(seed=seed)
    world.log.topic("other", schema=NUMBER).append({"n": 1})
    gone = world.log.topic("t", schema=NUMBER)
    gone.append([{"n": n} for n in range(3)])
    world.log.delete_topic("t")

    log = world.lose_power(seed)

    assert "t" not in log and [each.name for each in log.topics()] == ["other"]
    assert numbers(log["other"]) == [1]
    again = log.topic("t", schema=NUMBER)
    assert (numbers(again), again.offsets(), again.number) == ([], {0: (0, 0)}, 3)
    again.append({"n": 9})
    assert numbers(world.lose_power(seed + 1)["t"]) == [9]
    with pytest.raises(UnknownTopic):
        gone.describe()


def test_a_topic_with_a_table_is_deleted_only_by_force_while_rows_are_not_in_it() -> None:
    world = CrashableLog()
    topic = world.log.topic("t", schema=NUMBER, table="lake.t")
    topic.append({"n": 1})

    with pytest.raises(RowsUnlanded) as caught:
        world.log.delete_topic("t")
    assert caught.value.facts["topic"] == "t" and "t" in world.log

    world.log.delete_topic("t", force=True)
    assert "t" not in world.lose_power()


def test_where_a_topics_rows_are_all_in_its_table_it_is_deleted_unforced() -> None:
    landings = KnownLandings()
    with hw.open(SimulatedFiles(), settings=SMALL, landings=landings) as log:
        last_lsn = log.topic("t", schema=NUMBER, table="lake.t").append({"n": 1}).lsn
        landings.add(1, last_lsn - 1)
        with pytest.raises(RowsUnlanded):
            log.delete_topic("t")

        landings.add(1, last_lsn)
        log.delete_topic("t")

        assert "t" not in log


# Transactions, sources ------------------------------------------------------------------------------------------------


def crash_states_of(act: Callable[[hw.Log], object], seed: int) -> Iterator[tuple[CrashableLog, bool]]:
    """Worlds in which the power failed, one way and another, before each call of an act, and whether the act had
    returned; what was there before it is the same each time."""
    for call in count(1):
        world = prepared(seed)
        countdown = Countdown(world.files, call, Random(seed * 1_000 + call))
        act(world.log)
        world.files.before_call = None
        done = not countdown.lost
        for files in countdown.lost or [world.files.crash(Random(seed), choice=choice) for choice in Choice]:
            after = CrashableLog(seed=seed + 1)
            after.files = files
            after.kill()
            yield after, done
        if done:
            assert call > 1, "the act changed nothing"
            return


class Countdown:
    """Notes down what a power loss before the n-th call from now would leave."""

    def __init__(self, files: SimulatedFiles, calls: int, chance: Random) -> None:
        self.lost: list[SimulatedFiles] = []
        self._left = calls
        self._files = files
        self._chance = chance
        files.before_call = self._count

    def _count(self, verb: str, name: str) -> None:
        self._left -= 1
        if self._left == 0:
            self.lost = [self._files.crash(self._chance, choice=choice) for choice in Choice]


def prepared(seed: int) -> CrashableLog:
    world = CrashableLog(seed=seed)
    world.log.create_topics(
        [hw.NewTopic("in", NUMBER), hw.NewTopic("out", KEYED, key="id"), hw.NewTopic("log", NUMBER)]
    )
    world.log["in"].append([{"n": n} for n in range(4)])
    world.log["out"].upsert([{"id": 1, "value": "old"}, {"id": 2, "value": "old"}])
    with world.log.transaction() as tx:
        tx.set_source("pg", {"file": 1, "at": 10}, watermark=datetime(2026, 1, 1, tzinfo=UTC))
        tx.set_source("mail", 7)
    world.log.checkpoint()
    return world


def test_puts_deletes_rows_offsets_and_a_sources_position_are_all_there_or_none_wherever_the_power_fails(
    seed: int,
) -> None:
    def act(log: hw.Log) -> None:
        consumer = log.consumer("in", group="g")
        consumer.poll(max_rows=3)
        with log.transaction() as tx:
            tx.upsert("out", {"id": 1, "value": "new"})
            tx.delete("out", 2)
            tx.append("log", [{"n": 1}, {"n": 2}])
            tx.commit_offsets(consumer)
            tx.set_source("pg", {"file": 1, "at": 20}, watermark=datetime(2026, 1, 2, tzinfo=UTC))

    before: tuple[Any, ...] = (
        [(1, "old"), (2, "old")],
        [],
        {},
        {"file": 1, "at": 10},
        datetime(2026, 1, 1, tzinfo=UTC),
    )
    after: tuple[Any, ...] = (
        [(1, "old"), (2, "old"), (1, "new"), (2, None)],
        [1, 2],
        {0: 3},
        {"file": 1, "at": 20},
        datetime(2026, 1, 2, tzinfo=UTC),
    )
    seen = set()
    for world, done in crash_states_of(act, seed % 1_000):
        log = world.log
        source = log.source_position("pg")
        assert source is not None
        found = (
            [(row["id"], row["value"]) for row in log["out"].read().to_pylist()],
            numbers(log["log"]),
            {partition: offset for each in log.groups() for partition, offset in each.committed.items()},
            source.position,
            source.watermark,
        )
        assert found in ((after,) if done else (before, after))
        seen.add(found == after)
        untouched = log.source_position("mail")
        assert untouched is not None and untouched.position == 7

    assert seen == {True, False}


@pytest.mark.parametrize("seed", range(4))
def test_after_a_crash_sources_are_the_checkpoints_and_over_them_what_was_committed_since(seed: int) -> None:
    world = prepared(seed)
    with world.log.transaction() as tx:
        tx.append("log", {"n": 1})
        tx.set_source("pg", {"file": 2, "at": 0})
    with world.log.transaction() as tx:
        tx.set_source("kafka", [3, 4], watermark=datetime(2026, 3, 1, tzinfo=UTC))

    log = world.lose_power(seed)

    found = {name: (each.position, each.watermark) for name, each in log.status().sources.items()}
    assert found == {
        "pg": ({"file": 2, "at": 0}, datetime(2026, 1, 1, tzinfo=UTC)),
        "mail": (7, None),
        "kafka": ([3, 4], datetime(2026, 3, 1, tzinfo=UTC)),
    }


def test_the_watermark_of_the_latest_commit_that_had_one_stands_over_checkpoints_and_crashes() -> None:
    world = prepared(0)
    marks = [datetime(2026, month, 1, tzinfo=UTC) for month in (2, 3)]
    found = []

    for position, watermark in enumerate([marks[0], None, marks[1], None]):
        with world.log.transaction() as tx:
            tx.set_source("pg", position, watermark=watermark)
        source = world.lose_power(position).source_position("pg")
        assert source is not None
        found.append((source.position, source.watermark))
        if position % 2:
            world.log.checkpoint()

    assert found == [(0, marks[0]), (1, marks[0]), (2, marks[1]), (3, marks[1])]


# One sync for many, and nobody waits for it who only looks ------------------------------------------------------------


def test_writers_that_come_while_a_sync_runs_share_the_next_one() -> None:
    world = CrashableLog()
    topic = world.log.topic("t", schema=NUMBER)
    topic.append({"n": 0})
    held = Held(world.files, "sync_data", "log/")
    first = in_thread(lambda: topic.append({"n": 1}))
    assert held.reached.wait(WAIT_S)
    before = world.log.status().counters["commits"]

    futures = [topic.append_future({"n": n}) for n in range(2, 50)]
    held.let_go.set()
    offsets = [future.result(WAIT_S).offsets[0].first for future in futures]

    join(first)
    assert offsets == list(range(2, 50))
    assert world.log.status().counters["commits"] - before == 2


def test_readers_never_wait_for_the_writers_sync_and_see_nothing_that_it_has_not_covered() -> None:
    world = CrashableLog()
    topic = world.log.topic("t", schema=NUMBER)
    topic.append({"n": 1})
    held = Held(world.files, "sync_data", "log/")
    writer = in_thread(lambda: topic.append({"n": 2}))
    assert held.reached.wait(WAIT_S)

    seen: list[Any] = []

    def look() -> None:
        seen.append(numbers(topic))
        seen.append(topic.offsets()[0].next)
        seen.append([each.name for each in world.log.topics()])
        seen.append(world.log.status().durable_lsn)
        seen.append(topic.describe().partitions)

    reader = in_thread(look)
    reader.join(WAIT_S)
    waited = reader.is_alive()
    held.let_go.set()
    join(writer, reader)

    assert not waited
    assert seen[:3] == [[1], 1, ["t"]] and seen[4] == 1
    assert numbers(topic) == [1, 2]


def test_rows_are_appended_and_read_while_a_new_topic_waits_for_its_sync() -> None:
    world = CrashableLog()
    topic = world.log.topic("t", schema=NUMBER)
    topic.append({"n": 1})
    held = Held(world.files, "sync_data", "journal/")
    maker = in_thread(lambda: world.log.topic("new", schema=NUMBER))
    assert held.reached.wait(WAIT_S)

    worker = in_thread(lambda: topic.append({"n": 2}))
    worker.join(WAIT_S)
    waited = worker.is_alive()
    names = [each.name for each in world.log.topics()]
    held.let_go.set()
    join(maker, worker)

    assert not waited and names == ["t"]
    assert numbers(topic) == [1, 2] and "new" in world.log


def test_rows_are_appended_and_read_while_a_checkpoint_is_written() -> None:
    world = CrashableLog()
    topic = world.log.topic("t", schema=NUMBER)
    topic.append({"n": 1})
    held = Held(world.files, "sync_all", "checkpoints/")
    checkpoint = in_thread(world.log.checkpoint)
    assert held.reached.wait(WAIT_S)

    worker = in_thread(lambda: topic.append({"n": 2}))
    worker.join(WAIT_S)
    waited = worker.is_alive()
    seen = None if waited else numbers(topic)
    held.let_go.set()
    join(checkpoint, worker)

    assert not waited and seen == [1, 2]
