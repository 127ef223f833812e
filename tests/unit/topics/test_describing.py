"""What there is, described: the same for an owner and for somebody who looks, and looking claims nothing."""

from __future__ import annotations

from datetime import timedelta

from headwater.api import Log
from headwater.topics.positions import time_of
from tests.unit.topics.small_engines import PLAIN, World, engine_of, with_log


def a_log(world: World) -> Log:
    log = world.log()
    log.topic("b", PLAIN, partitions=2, table="sales.b", partition_by="bucket(4, x)", retention="7d")
    log.topic("a", {"id": int}, key="id")
    for number in range(3):
        log["b"].append({"x": number}, partition=number % 2)
    return log


def test_a_topic_is_described_by_what_it_is_and_what_it_holds() -> None:
    world = World()
    log = a_log(world)
    log["b"].alter(add={"note": str})

    told = log["b"].describe()

    assert (told.name, told.number, told.topic_id) == ("b", 1, engine_of(log).topic("b").topic_id.hex())
    assert (told.partitions, told.key, told.time_column, told.table) == (2, (), None, "sales.b")
    assert told.partition_by == ("bucket(4, x)",)
    assert (told.schema_version, told.schema.names) == (2, ["x", "note"])
    assert told.created == time_of(world.clock.now_us())
    assert (told.offsets, told.rows) == ({0: (0, 2), 1: (0, 1)}, 3)
    assert told.bytes > 3 * 128
    assert told.policy.retention_s == timedelta(days=7).total_seconds()


def test_topics_are_listed_by_name_with_what_they_hold() -> None:
    log = a_log(World())

    told = log.topics()

    assert [(each.name, each.rows, each.appended, each.partitions) for each in told] == [("a", 0, 0, 1), ("b", 3, 3, 2)]
    assert (told[0].key, told[1].table, told[0].bytes) == (("id",), "sales.b", 0)


def test_rows_that_were_forgotten_are_still_counted_as_appended() -> None:
    world = World(settings=with_log(deletion_grace_s=0))
    log = world.log()
    log.topic("a", PLAIN, retention="10s")
    log["a"].append([{"x": 1}] * 5)
    engine_of(log).shard.log.roll()
    world.clock.advance(3_600)
    for _ in range(2):
        log["a"].append({"x": 2})
        log.checkpoint()
    assert log.cleanup().deleted

    (told,) = log.topics()

    assert (told.rows, told.appended) == (2, 7)
    assert log["a"].offsets() == {0: (5, 7)}
    assert log["a"].describe().rows == 2


def test_a_group_is_described_by_what_it_committed_and_what_is_left() -> None:
    log = a_log(World())
    consumer = log.consumer("b", group="g")
    last = -1
    while (polled := consumer.poll()) is not None:
        last = polled.partition
    consumer.commit()
    log["b"].append({"x": 9}, partition=last)
    log.consumer("a", group="h")

    (told,) = log.groups()

    assert (told.group, told.topic, told.members) == ("g", "b", 1)
    assert told.committed == {0: 2, 1: 1}
    assert told.lag == {last: 1, 1 - last: 0} and told.total_lag == 1


def test_a_partition_in_which_a_group_has_committed_nothing_lags_by_all_of_it() -> None:
    log = a_log(World())
    consumer = log.consumer("b", group="g")
    polled = consumer.poll()
    assert polled is not None
    consumer.commit()

    (told,) = log.groups()

    other = 1 - polled.partition
    assert told.lag == {polled.partition: 0, other: log["b"].offsets()[other].next}


def test_a_group_of_a_deleted_topic_is_not_told() -> None:
    log = a_log(World())
    consumer = log.consumer("b", group="g")
    consumer.poll()
    consumer.commit()
    log.delete_topic("b", force=True)

    assert log.groups() == []


def test_the_status_is_the_same_for_somebody_who_looks() -> None:
    world = World()
    log = a_log(world)
    log.producer("p").append("b", {"x": 1}, partition=0)
    with log.transaction() as tx:
        tx.set_source("pg", 7)
    log.checkpoint()
    owner, reader = log.status(), world.log().status()

    assert (owner.owner, reader.owner) == (True, False)
    for fact in ("log_id", "first_lsn", "durable_lsn", "segments", "log_bytes", "checkpoint_lsn", "journal_lsn"):
        assert getattr(owner, fact) == getattr(reader, fact)
    assert owner.topics == reader.topics and owner.sources == reader.sources
    assert (owner.producers, owner.sources["pg"].position) == (1, 7)
    assert owner.epoch == 1 and owner.directory == "small"
    assert owner.replay_bytes == 0
    assert owner.counters["append_rows"] == 4
    assert owner.deleted_topics == 0 and owner.journal_remaining > 0


def test_the_status_of_an_empty_directory() -> None:
    told = World().log().status()

    assert (told.first_lsn, told.durable_lsn, told.segments, told.topics, told.groups) == (0, 0, 0, [], [])
