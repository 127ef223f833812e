"""Readers in other processes beside the one that owns a log, and others who would like to own it.

PROMISED  A process that reads needs no lock and sees what was acknowledged before it looked: rows, topics, groups,
          sources.  It goes on over whatever the owner does: new topics, new columns, deleted topics, cleanup.
          A process that writes beside the owner is refused as LogLocked, which names the owner, and waits for nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import headwater as hw
from headwater.errors import LogLocked, UnknownTopic
from tests.e2e.appender_process import Nursery, appender_environment
from tests.e2e.test_topic_kills import WRITER, History, check_log, rows_of
from tests.e2e.topic_writer import KIB, REQUEST, WriterSettings, log_settings, request

LOOKS = 20
ROW = {"number": int}


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery(WRITER) as started:
        yield started


def numbers(topic: hw.Topic) -> list[int]:
    return [row["number"] for row in topic.read().to_pylist()]


def test_a_reader_beside_a_writer_sees_all_that_was_acknowledged_and_only_whole_requests(
    tmp_path: Path, nursery: Nursery
) -> None:
    settings = WriterSettings(appenders=2, upkeep=0, pause_s=0.02)
    seen = grown = 0

    with nursery.running_appender(tmp_path, settings) as writer:
        writer.wait_for_acknowledgements(10)
        with hw.open(tmp_path) as staying:
            for look in range(LOOKS):
                history = History()
                history.add_lines(0, writer.lines)
                # Every other look is by somebody who has just come.
                if look % 2:
                    check_appended(staying, history)
                else:
                    with hw.open(tmp_path) as newcomer:
                        check_appended(newcomer, history)
                        rows = newcomer.status().durable_lsn
                        grown += rows > seen
                        seen = rows
                writer.listen_for(0.02)
            assert not staying.status().owner
        writer.kill()

    assert grown > LOOKS // 4, "the writer was writing all the while"
    history = History()
    history.add_lines(0, writer.lines)
    with hw.open(tmp_path) as log:
        check_log(log, history)


def check_appended(log: hw.Log, history: History) -> None:
    """What was acknowledged before is there now; a later look at one topic may hold more than an earlier at another."""
    events = {(row["thread"], row["number"], row["row"]) for row in rows_of(log, "events")}
    for (_, thread, number), (_, first, after) in history.appended.items():
        assert all((thread, number, row) in events for row in range(after - first))
    left = {(row["thread"], row["number"]) for row in rows_of(log, "left")}
    right = {(row["thread"], row["number"]) for row in rows_of(log, "right")}
    assert {(thread, number) for _, thread, number in history.transactions} <= left <= right
    source = log.source_position("source-2")
    newest = max((number for _, _, number in history.transactions), default=0)
    assert not history.transactions or (source is not None and source.position[1] >= newest)


def test_a_follower_in_another_process_gets_every_row_in_order(tmp_path: Path, nursery: Nursery) -> None:
    settings = WriterSettings(appenders=0, transactions=0, keyed=0, copiers=0, upkeep=0)
    found: list[tuple[int, int]] = []

    with nursery.running_appender(tmp_path, settings) as writer:
        writer.wait_for_acknowledgements(1)
        with hw.open(tmp_path) as log:
            for batch in log["sent"].read(follow=True, timeout_s=30):
                found += zip(batch.column("number").to_pylist(), batch.column("row").to_pylist(), strict=True)
                if len(found) > 300:
                    break
        writer.kill()

    expected = [(row["number"], row["row"]) for n in range(300) for row in request(0, 0, n)]
    assert found == expected[: len(found)]


def test_a_process_that_would_write_beside_the_owner_is_told_whose_the_log_is(tmp_path: Path, nursery: Nursery) -> None:
    with nursery.running_appender(tmp_path, WriterSettings()) as writer:
        writer.wait_for_acknowledgements(1)
        with hw.open(tmp_path) as log:
            for use in (
                lambda: log["events"].append(request(0, 0, 0)),
                lambda: log["events"].append_future(request(0, 0, 0)).result(timeout=10),
                lambda: log.topic("other", schema=REQUEST),
                lambda: log["events"].alter(partitions=9),
                lambda: log.delete_topic("events"),
                lambda: log.consumer("events", group="g"),
                lambda: log.producer("p"),
                log.checkpoint,
                log.cleanup,
            ):
                with pytest.raises(LogLocked, match=r"pid \d+"):
                    use()
            assert rows_of(log, "events"), "and it can go on reading"
            writer.kill()

            log["events"].append(request(9, 9, 0), partition=0)
            assert log.status().owner


def test_the_pid_that_is_named_is_the_owners(tmp_path: Path) -> None:
    script = (
        "import sys, headwater as hw\n"
        "log = hw.open(sys.argv[1])\n"
        "try:\n    log.topic('other', schema={'a': int})\n"
        "except hw.errors.LogLocked as error:\n    print(error)\n"
    )
    with hw.open(tmp_path) as log:
        log.topic("events", schema=ROW).append({"number": 1})

        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)],
            capture_output=True,
            text=True,
            env=appender_environment(),
            timeout=60,
        )

        assert done.returncode == 0, done.stderr
        assert str(os.getpid()) in done.stdout
        assert "other" not in log


def test_whoever_comes_second_owns_the_log_when_the_first_has_closed_it(tmp_path: Path) -> None:
    first, second = hw.open(tmp_path), hw.open(tmp_path)
    topic = first.topic("events", schema=ROW)
    topic.append({"number": 1})
    with pytest.raises(LogLocked):
        second["events"].append({"number": 2})

    first.close()
    second["events"].append({"number": 2})
    second.topic("more", schema=ROW)

    assert numbers(second["events"]) == [1, 2]
    second.close()
    with hw.open(tmp_path) as third:
        assert [each.name for each in third.topics()] == ["events", "more"]


# -------------------------------------------------------------------------------- what an owner does beside a reader


def test_a_reader_sees_topics_come_change_and_go(tmp_path: Path) -> None:
    with hw.open(tmp_path) as owner, hw.open(tmp_path) as reader:
        assert reader.topics() == []
        topic = owner.topic("events", schema=ROW)
        assert numbers(reader["events"]) == []
        topic.append({"number": 1})
        assert numbers(reader["events"]) == [1]

        topic.alter(add={"note": str}, partitions=3)
        topic.append({"number": 2, "note": "x"}, partition=2)
        seen = reader["events"]
        assert seen.partitions == 3
        assert seen.read().to_pylist() == [{"number": 1, "note": None}, {"number": 2, "note": "x"}]
        assert seen.describe() == topic.describe()

        owner.delete_topic("events")
        assert "events" not in reader
        with pytest.raises(UnknownTopic):
            seen.read()


def test_a_reader_sees_groups_sources_and_producers(tmp_path: Path) -> None:
    with hw.open(tmp_path) as owner, hw.open(tmp_path) as reader:
        topic = owner.topic("events", schema=ROW)
        assert reader.groups() == []
        for number in range(5):
            topic.append({"number": number})
        consumer = owner.consumer("events", group="billing")
        consumer.poll(max_rows=2)
        consumer.commit()
        owner.producer("loader")
        with owner.transaction() as tx:
            tx.set_source("pg", 7)

        [group] = reader.groups()
        source = reader.source_position("pg")
        status = reader.status()

        assert (group.group, group.committed, group.lag) == ("billing", {0: 2}, {0: 3})
        assert source is not None and source.position == 7
        assert (status.owner, status.producers) == (False, 1)
        assert status.durable_lsn == owner.status().durable_lsn


def test_a_reader_goes_on_over_cleanup_and_compaction(tmp_path: Path) -> None:
    settings = log_settings(16 * KIB)
    with hw.open(tmp_path, settings=settings) as owner, hw.open(tmp_path, settings=settings) as reader:
        short = owner.topic("short", schema={"number": int, "pad": str}, retention_bytes=64 * KIB)
        state = owner.topic("state", schema={"key": int, "number": int, "pad": str}, key="key", cleanup="compact")
        for number in range(240):
            short.append({"number": number, "pad": "x" * 500})
            state.upsert({"key": number % 5, "number": number, "pad": "x" * 500})
            if number % 40 == 39:
                owner.cleanup()
                owner.checkpoint()
                seen = numbers(reader["short"])
                assert seen == list(range(seen[0], number + 1)), "the newest rows, without a hole"
                latest = {row["key"]: row["number"] for row in reader["state"].read().to_pylist()}
                assert latest == {key: number - 4 + key for key in range(5)}
                assert reader["short"].offsets() == short.offsets()
                assert reader["short"].offsets()[0].first == seen[0]

        assert short.offsets()[0].first > 60
        assert len(state.read().to_pylist()) < 150
        assert reader.status().segments == owner.status().segments
