"""Rows of docs/reference-designs.md about metadata, checkpoints and recovery, shown on a whole data directory.

SEED     A CrashableLog draws everything from its seed.
NOT HERE The journal and its checkpoints alone: tests/unit/metadata, tests/faults/test_journal.py.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from random import Random

import pytest

import headwater as hw
from headwater.clock import ManualClock
from headwater.errors import (
    CheckpointLost,
    Halted,
    InvalidRequest,
    MetadataBehindLog,
    OperationRefused,
    OutcomeUnknown,
    Unavailable,
)
from headwater.frames.frame import Kind
from headwater.log import Draft, open_log
from headwater.metadata.operations import AddPartitions, encode_operation
from headwater.metadata.ring import MARGIN, SLOTS
from headwater.settings import LogSettings
from headwater.storage.simulated import SimulatedFiles
from headwater.testing import CrashableLog
from tests.unit.topics.small_engines import engine_of

NUMBER = {"n": int}
KIB = 1024

SMALL = hw.Settings(
    log=LogSettings(
        segment_size_bytes_max=8 * KIB, write_body_bytes_max=8 * KIB, reserve_bytes=0, deletion_grace_s=0.0
    ),
    journal=LogSettings(reserve_bytes=0, segment_age_s_max=float("inf")),
    upkeep_interval_s=0.0,
)


def numbers(topic: hw.Topic) -> list[int]:
    return [row["n"] for row in topic.read().to_pylist()]


def names_of(log: hw.Log) -> list[str]:
    return [each.name for each in log.topics()]


def remove(files: SimulatedFiles, directory: str) -> None:
    """All files of a directory, as if somebody had deleted them."""
    for name in files.list(directory):
        if name != "checkpoints":
            files.unlink(f"{directory}/{name}")
    files.sync_directory(directory)


def damage(files: SimulatedFiles, *names: str) -> None:
    for name in names:
        files.flip_bit(f"checkpoints/{name}", 8 * 70)


def contents(files: SimulatedFiles) -> dict[str, bytes]:
    """What journal, log and checkpoints hold; a mark and a lock say who came last."""
    found = {}
    for directory in ("journal", "journal/checkpoints", "log", "checkpoints"):
        for name in files.list(directory):
            if name not in ("lock", "mark", "checkpoints"):
                found[f"{directory}/{name}"] = files.contents(f"{directory}/{name}")
    return found


# The ring and what fits in it -----------------------------------------------------------------------------------------


def test_a_thousand_topics_are_made_by_one_call_however_full_the_ring_is() -> None:
    world = CrashableLog(settings=SMALL)
    topic = world.log.topic("first", schema=NUMBER)
    for partitions in range(2, 300):
        topic.alter(partitions=partitions)
    assert world.log.status().journal_remaining < 1_000

    made = world.log.create_topics([hw.NewTopic(f"t{n:04}", NUMBER) for n in range(1_000)])

    assert len({each.number for each in made}) == 1_000
    assert names_of(world.lose_power()) == ["first", *(f"t{n:04}" for n in range(1_000))]


def test_more_operations_than_the_ring_holds_are_refused_whole_and_named() -> None:
    world = CrashableLog(settings=SMALL)

    with pytest.raises(InvalidRequest, match=str(SLOTS - 1)):
        world.log.create_topics([hw.NewTopic(f"t{n:04}", NUMBER) for n in range(SLOTS)])

    assert names_of(world.log) == []


def test_a_checkpoint_is_made_while_slots_remain_and_status_says_how_many() -> None:
    world = CrashableLog(settings=SMALL)
    topic = world.log.topic("t", schema=NUMBER)
    remaining = []

    for partitions in range(2, SLOTS + 200):
        topic.alter(partitions=partitions)
        remaining.append(world.log.status().journal_remaining)

    assert min(remaining) >= MARGIN
    assert any(later > earlier for earlier, later in pairwise(remaining)), "it was made, and the ring is free again"
    assert world.lose_power()["t"].partitions == SLOTS + 199


# Numbering ------------------------------------------------------------------------------------------------------------


def test_after_a_checkpoint_with_nothing_behind_it_every_number_goes_on() -> None:
    world = CrashableLog(settings=SMALL)
    world.log.topic("gone", schema=NUMBER).append({"n": 0})
    world.log.topic("t", schema=NUMBER).append([{"n": 1}, {"n": 2}])
    world.log.delete_topic("gone")
    assert world.log.checkpoint()
    before = world.log.status()

    for again in (world.reopen(), world.kill(), world.lose_power()):
        assert not again.checkpoint() or again.status().durable_lsn > before.durable_lsn
        found = again.status()
        assert found.journal_lsn >= before.journal_lsn and found.durable_lsn >= before.durable_lsn

    assert world.log["t"].append({"n": 3}).offsets == {0: (2, 3)}
    assert world.log.topic("new", schema=NUMBER).number == 3
    assert world.log["t"].append({"n": 4}).lsn > before.durable_lsn


# Replay ---------------------------------------------------------------------------------------------------------------


def test_an_operation_that_the_state_refuses_stops_the_start_and_changes_nothing() -> None:
    world = CrashableLog(settings=SMALL)
    world.log.topic("t", schema=NUMBER, partitions=2).append({"n": 1})
    world.log.close()
    with open_log(world.files, "journal", settings=SMALL.journal, clock=ManualClock()) as journal:
        refused = journal.append([Draft(Kind.METADATA, encode_operation(AddPartitions(1, 2)))])
    before = contents(world.files)

    with pytest.raises(OperationRefused) as caught:
        hw.open(world.files, settings=SMALL)

    assert caught.value.facts["lsn"] == refused.first_lsn
    assert contents(world.files) == before


def test_only_what_came_after_the_checkpoint_is_folded_when_a_log_is_opened() -> None:
    world = CrashableLog(settings=SMALL)
    topic = world.log.topic("t", schema=NUMBER)
    for n in range(50):
        topic.append({"n": n})
    world.log.checkpoint()
    covered = world.log.status().checkpoint_lsn
    for n in range(50, 53):
        topic.append({"n": n})

    log = world.kill()

    assert log["t"].offsets() == {0: (0, 53)} and numbers(log["t"]) == list(range(53))
    assert engine_of(log).shard.frames_replayed == log.status().durable_lsn - covered


def test_after_a_clean_close_nothing_is_folded() -> None:
    world = CrashableLog(settings=SMALL)
    world.log.topic("t", schema=NUMBER).append([{"n": n} for n in range(50)])

    log = world.reopen()

    assert log["t"].offsets() == {0: (0, 50)}
    assert (engine_of(log).shard.frames_replayed, log.status().replay_bytes) == (0, 0)


def test_recovering_again_and_again_changes_nothing() -> None:
    world = CrashableLog()
    world.log.topic("t", schema=NUMBER).append([{"n": n} for n in range(5)])
    seen = []

    for _ in range(4):
        log = world.kill()
        seen.append((numbers(log["t"]), log["t"].offsets(), log["t"].topic_id, log.status().durable_lsn))

    assert seen[0][:2] == ([0, 1, 2, 3, 4], {0: (0, 5)})
    assert seen == seen[:1] * 4


def test_what_an_opening_would_replay_is_told_and_bounded_by_bytes() -> None:
    bound = 16 * KIB
    settings = hw.Settings(
        log=LogSettings(reserve_bytes=0), shard_checkpoint_bytes=bound, upkeep_interval_s=0.0, join_bytes_max=0
    )
    with hw.open(SimulatedFiles(), settings=settings, clock=ManualClock()) as log:
        assert (log.status().log_bytes, log.status().replay_bytes) == (0, 0), "there is no log yet"
        topic = log.topic("t", schema={"text": str})
        told = []
        for _ in range(60):
            topic.append({"text": "x" * 1_000})
            told.append(log.status().replay_bytes)

        assert max(told) < bound + 4 * KIB
        assert log.status().log_bytes > 4 * bound
        assert log.checkpoint() and log.status().replay_bytes == 0


def lived_long(seed: int = 0) -> CrashableLog:
    """A log whose beginning is gone, with two checkpoints, a producer, a source and a group."""
    world = CrashableLog(seed=seed, settings=SMALL)
    topic = world.log.topic("t", schema={"n": int, "text": str}, retention="1h")
    with world.log.transaction(producer=world.log.producer("loader")) as tx:
        tx.append("t", {"n": 0, "text": ""})
        tx.set_source("pg", 10)
    consumer = world.log.consumer("t", group="g")
    consumer.poll()
    consumer.commit()
    for n in range(1, 40):
        topic.append({"n": n, "text": "x" * 1_000})
    world.clock.advance(2 * 3600)
    world.log.checkpoint()
    topic.append({"n": 40, "text": "x"})
    world.log.checkpoint()
    world.log.cleanup()
    topic.append({"n": 41, "text": "x"})
    assert world.log.status().first_lsn > 1
    world.kill()
    return world


def facts(log: hw.Log) -> tuple[object, ...]:
    status = log.status()
    return (
        numbers(log["t"]),
        log["t"].offsets(),
        {name: each.position for name, each in status.sources.items()},
        {each.group: each.committed for each in status.groups},
        status.producers,
    )


def test_a_damaged_newest_checkpoint_of_the_shard_falls_back_to_the_older_one() -> None:
    expected = facts(lived_long().log)
    world = lived_long()
    _, newest = world.files.list("checkpoints")
    damage(world.files, newest)

    log = world.kill()

    assert facts(log) == expected
    assert log["t"].append({"n": 42, "text": "x"}).offsets == {0: (42, 43)}
    assert facts(world.lose_power())[1] == {0: (facts(world.log)[1][0][0], 43)}  # type: ignore[index]


def test_without_any_checkpoint_a_log_that_reaches_back_is_folded_whole_and_one_that_does_not_halts() -> None:
    young = CrashableLog(settings=SMALL)
    with young.log.transaction() as tx:
        young.log.topic("t", schema=NUMBER)
        tx.append("t", [{"n": 1}, {"n": 2}])
        tx.set_source("pg", 10)
    young.log.checkpoint()
    expected = facts(young.log)
    young.log.close()
    damage(young.files, *young.files.list("checkpoints"))
    assert facts(young.kill()) == expected

    old = lived_long()
    old.log.close()
    damage(old.files, *old.files.list("checkpoints"))
    before = contents(old.files)
    with hw.open(old.files, settings=SMALL) as log, pytest.raises(CheckpointLost) as caught:
        log["t"].append({"n": 42, "text": "x"})
    assert "checkpoints/" in str(caught.value)
    assert contents(old.files) == before


def test_where_cleanup_let_go_of_state_it_halts_without_a_checkpoint_though_the_log_begins_at_its_first_lsn() -> None:
    world = CrashableLog(settings=SMALL)
    world.log.topic("t", schema=NUMBER).append({"n": 1})
    short = world.log.topic("short", schema={"text": str}, retention="1h")
    with world.log.transaction() as tx:
        tx.set_source("pg", 42)
    for _ in range(20):
        short.append({"text": "x" * 1_000})
    world.clock.advance(2 * 3600)
    for _ in range(2):
        short.append({"text": "x"})
        world.log.checkpoint()
    assert world.log.cleanup().drained and world.log.status().first_lsn == 1
    expected = facts(world.log)
    world.log.close()
    newest, *_ = reversed(world.files.list("checkpoints"))

    damage(world.files, newest)
    assert facts(world.kill()) == expected, "the older checkpoint holds what was let go of"
    world.log.close()
    damage(world.files, *(name for name in world.files.list("checkpoints") if name != newest))
    with hw.open(world.files, settings=SMALL) as log, pytest.raises(CheckpointLost):
        log["t"].append({"n": 2})


@pytest.mark.parametrize("look", [facts, lambda log: log["t"].append({"n": 3})], ids=["reading", "appending"])
def test_a_checkpoint_without_its_log_halts_and_is_never_taken_for_all_there_is(look: object) -> None:
    world = CrashableLog(settings=SMALL)
    world.log.topic("t", schema=NUMBER).append([{"n": 1}, {"n": 2}])
    world.log.close()
    remove(world.files, "log")

    with pytest.raises(Halted), hw.open(world.files, settings=SMALL) as log:
        look(log)  # type: ignore[operator]


def test_a_lost_journal_halts_by_name_and_no_topic_is_made_up_or_overwritten() -> None:
    world = CrashableLog(settings=SMALL)
    world.log.topic("t", schema=NUMBER).append([{"n": 1}, {"n": 2}])
    world.log.checkpoint()
    world.log.close()
    remove(world.files, "journal")
    remove(world.files, "journal/checkpoints")
    before = {name: data for name, data in contents(world.files).items() if name.endswith(".seg")}

    with hw.open(world.files, settings=SMALL) as log:
        with pytest.raises(MetadataBehindLog, match="headwater log rebuild"):
            log.topics()
        with pytest.raises(MetadataBehindLog):
            log.topic("other", schema=NUMBER)

    after = contents(world.files)
    assert {name: after[name] for name in before} == before


def more_partitions(topic: hw.Topic) -> None:
    topic.alter(partitions=4).append({"n": 1}, partition=3)


def another_schema(topic: hw.Topic) -> None:
    topic.alter(add={"note": "string"}).append({"n": 1, "note": "x"}, partition=1)


LOOKS: dict[str, Callable[[hw.Topic], object]] = {
    "offsets": lambda topic: topic.offsets(),
    "append": lambda topic: topic.append({"n": 2}, partition=0),
    "read": lambda topic: topic.read().to_pylist(),
}


@pytest.mark.parametrize(
    ("change", "killed", "looks"),
    [
        (more_partitions, False, ("offsets", "append")),
        (more_partitions, True, ("offsets", "append")),
        (another_schema, False, ("offsets", "append", "read")),
        (another_schema, True, ("offsets", "append", "read")),
    ],
)
def test_a_journal_that_was_put_back_and_is_older_than_the_log_halts_by_name(
    change: Callable[[hw.Topic], None], killed: bool, looks: Sequence[str]
) -> None:
    world = CrashableLog(settings=SMALL)
    world.log.topic("t", schema=NUMBER, partitions=2).append({"n": 0}, partition=0)
    world.log.close()
    older = {name: world.files.contents(f"journal/{name}") for name in world.files.list("journal")}
    change(world.kill()["t"])
    if not killed:
        world.log.close()
    world.files = world.files.restart()
    remove(world.files, "journal")
    for name, data in older.items():
        world.files.put(f"journal/{name}", data)

    for look in looks:
        with hw.open(world.files, settings=SMALL) as log, pytest.raises(MetadataBehindLog):
            LOOKS[look](log["t"])


# Changes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["append", "sync_data"])
def test_a_change_whose_write_failed_is_not_seen(verb: str) -> None:
    world = CrashableLog(settings=SMALL)
    topic = world.log.topic("t", schema=NUMBER, partitions=2)
    topic.append({"n": 1}, partition=1)
    world.files.fail(1, errno.EIO, verbs=[verb])

    with pytest.raises((Unavailable, OutcomeUnknown)):
        world.log.topic("new", schema=NUMBER)

    assert names_of(world.log) == ["t"] and "new" not in world.log
    assert topic.append({"n": 2}, partition=1).offsets == {1: (1, 2)}, "topics that are there go on"
    assert names_of(world.lose_power(3)) in (["t"], ["new", "t"] if verb == "sync_data" else ["t"])
    assert numbers(world.log["t"]) == [1, 2]


def test_metadata_is_the_same_after_any_number_of_crashes_checkpoints_and_closes(seed: int) -> None:
    chance = Random(seed)
    world = CrashableLog(seed=seed, settings=SMALL)
    expected: dict[str, int] = {}

    for step in range(60):
        act = chance.choice(["create", "create", "alter", "alter", "delete", "checkpoint", "kill", "lose", "reopen"])
        name = chance.choice(sorted(expected)) if expected else ""
        if act == "create":
            world.log.topic(f"t{step}", schema=NUMBER, partitions=1)
            expected[f"t{step}"] = 1
        elif act == "alter" and name:
            expected[name] += 1
            world.log[name].alter(partitions=expected[name])
        elif act == "delete" and name:
            world.log.delete_topic(name)
            del expected[name]
        elif act == "checkpoint":
            world.log.checkpoint()
        elif act == "kill":
            world.kill()
        elif act == "lose":
            world.lose_power(chance.randrange(1_000))
        elif act == "reopen":
            world.reopen()
        assert {each.name: each.partitions for each in world.log.topics()} == expected


def test_a_topics_creation_time_is_the_clocks_when_it_was_made_and_survives_changes_and_crashes() -> None:
    world = CrashableLog()
    made_at = datetime.fromtimestamp(world.clock.now_us() / 1_000_000, UTC)
    topic = world.log.topic("t", schema=NUMBER)
    world.clock.advance(86_400)
    topic.alter(partitions=2, retention="3d", add={"note": "string"})
    world.log.checkpoint()
    world.clock.advance(86_400)

    assert world.lose_power()["t"].describe().created == made_at
