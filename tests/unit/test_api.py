"""The front doors: what they hold, what they load, and that Log and Topic hand on what they are given."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater import api
from headwater.errors import Closed, InvalidRequest, TopicExists, UnknownTopic
from headwater.storage.simulated import SimulatedFiles
from tests.unit.topics.known_landings import KnownLandings
from tests.unit.topics.small_engines import QUIET

DOOR = [
    "open", "connect", "connect_async", "Log", "Topic", "NewTopic", "BYTES", "Lsn", "Settings", "LogSettings",
    "LandingSettings", "ClientSettings", "Appended", "LandingReport", "Rows", "Scan", "Cut", "Consumer",
    "Producer", "Transaction", "Registry", "AsyncLog", "AsyncTopic", "AsyncConsumer", "AsyncTransaction",
]  # fmt: skip


@dataclass
class Order:
    order_id: int
    note: str | None = None


def a_log(**options: Any) -> hw.Log:
    return hw.open(":memory:", settings=QUIET, **options)


def test_the_front_door_is_small_and_explicit() -> None:
    assert hw.__all__ == [*DOOR, "HeadwaterError", "errors"]
    assert api.__all__ == DOOR
    for name in hw.__all__:
        assert getattr(hw, name) is not None
        assert name in dir(hw)
    for name in DOOR:
        assert getattr(hw, name) is getattr(api, name)
        assert name in dir(api)
    with pytest.raises(AttributeError, match="nothing_like_it"):
        hw.nothing_like_it  # noqa: B018


@pytest.mark.parametrize(
    "module", ["headwater", "headwater.log", "headwater.metadata.journal", "headwater.testing.plugin"]
)
def test_the_log_is_loaded_without_pyarrow(module: str) -> None:
    code = f"import sys, {module}; sys.exit('pyarrow' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_a_directory_is_made_when_something_is_first_written(tmp_path: Path) -> None:
    where = tmp_path / "data"
    with hw.open(where, settings=QUIET) as log:
        assert (log.topics(), where.exists()) == ([], False)
        log.topic("orders", schema=Order).append([Order(1), Order(2, "two")])
    with hw.open(str(where), settings=QUIET) as log:
        assert log["orders"].read().to_pylist() == [{"order_id": 1, "note": None}, {"order_id": 2, "note": "two"}]
        assert repr(log) == f"Log({str(where)!r})"


def test_a_log_in_memory_is_gone_when_it_is_closed() -> None:
    with a_log() as log:
        log.topic("a", schema={"x": int}).append({"x": 1})
        assert log.status().directory == ":memory:"
    with a_log() as log:
        assert log.topics() == []


def test_files_may_be_given_in_place_of_a_directory() -> None:
    with hw.open(SimulatedFiles(), settings=QUIET) as log:
        assert log.directory == "SimulatedFiles"


def test_a_closed_log_is_not_entered_again() -> None:
    log = a_log()
    log.close()

    with pytest.raises(Closed):
        log.__enter__()


def test_an_unknown_name_needs_a_schema() -> None:
    log = a_log()

    with pytest.raises(UnknownTopic, match=r"hw\.BYTES"):
        log.topic("a")
    with pytest.raises(UnknownTopic):
        log["a"]
    assert "a" not in log and 7 not in log
    made = log.topic("a", schema=hw.BYTES)
    made.append(b"payload")

    assert "a" in log
    assert log.topic("a").number == made.number == log["a"].number
    assert made.read(columns=["value"]).to_pylist() == [{"value": b"payload"}]


def test_a_topic_says_what_it_is() -> None:
    topic = a_log().topic("a", schema=Order, key="order_id", partitions=3)

    assert (topic.name, topic.number, topic.key, topic.partitions) == ("a", 1, ("order_id",), 3)
    assert topic.schema.names == ["order_id", "note"]
    assert bytes.fromhex(topic.topic_id) and repr(topic) == "Topic('a')"


def test_asking_for_another_topic_of_the_same_name_is_refused() -> None:
    log = a_log()
    log.topic("a", schema=Order)

    assert log.topic("a", schema=Order).number == 1
    with pytest.raises(TopicExists, match="another schema"):
        log.topic("a", schema={"order_id": str})


def test_a_topic_is_changed_by_alter() -> None:
    topic = a_log().topic("a", schema=Order)

    assert topic.alter(add={"amount": float}, partitions=2, retention="3d") is topic

    told = topic.describe()
    assert (told.schema_version, told.partitions, told.policy.retention_s) == (2, 2, 3 * 86_400)


def test_upsert_and_delete_are_for_keyed_topics() -> None:
    log = a_log()
    plain, keyed = log.topic("a", schema=Order), log.topic("k", schema=Order, key="order_id")

    with pytest.raises(InvalidRequest, match="use append"):
        plain.upsert(Order(1))
    with pytest.raises(InvalidRequest, match="no key"):
        plain.delete(1)
    first = keyed.upsert(Order(1), idempotency_key="u")
    assert keyed.upsert(Order(1), idempotency_key="u").lsn == first.lsn
    gone = keyed.delete(1, idempotency_key="d")
    assert keyed.delete(1, idempotency_key="d").duplicate and not gone.duplicate


def test_append_all_makes_a_write_of_each_item_and_stops_at_what_does_not_fit() -> None:
    topic = a_log().topic("a", schema={"x": int})

    answers = topic.append_all([{"x": 1}, [{"x": 2}, {"x": 3}]])
    with pytest.raises(InvalidRequest):
        topic.append_all([{"x": 4}, {"x": "no"}, {"x": 5}])

    assert [answer.rows for answer in answers] == [1, 2]
    assert [row["x"] for row in topic.read().to_pylist()] == [1, 2, 3, 4]


def test_a_future_can_be_awaited() -> None:
    topic = a_log().topic("a", schema={"x": int})

    async def main() -> int:
        answers = await asyncio.gather(*(asyncio.wrap_future(topic.append_future({"x": n})) for n in range(5)))
        return sum(answer.rows for answer in answers)

    assert asyncio.run(main()) == 5
    assert len(topic.read().to_pylist()) == 5


def test_a_topic_and_a_log_are_compacted_on_demand() -> None:
    log = a_log()
    topic = log.topic("k", schema={"id": int}, key="id", cleanup="compact")
    log.topic("plain", schema={"id": int})
    for _ in range(5):
        topic.upsert({"id": 1})
    log.checkpoint()
    topic.upsert({"id": 2})
    log.checkpoint()

    saved = topic.compact()

    assert (saved.topic, saved.rows_removed) == ("k", 4)
    assert [each.topic for each in log.compact().compacted] == ["k"]
    assert [each.topic for each in log.compact("k").compacted] == ["k"]
    with pytest.raises(InvalidRequest):
        log["plain"].compact()


def test_groups_sources_and_producers_are_told() -> None:
    log = a_log()
    log.topic("a", schema={"x": int}).append({"x": 1})
    with log.consumer("a", group="g") as consumer:
        assert consumer.poll() is not None
        consumer.commit()
        (group,) = log.groups()
    with log.transaction() as tx:
        tx.set_source("pg", 5)

    assert (group.group, group.total_lag, group.members) == ("g", 0, 1)
    at = log.source_position("pg")
    assert at is not None and at.position == 5
    assert log.producer("p").name == "p"
    assert log.cleanup().failures == ()
    log.flush()
    assert log.status().producers == 1


def test_what_is_landed_is_asked_of_whoever_lands() -> None:
    landings = KnownLandings({1: [(10**9, 0)]})
    log = a_log(landings=landings)
    log.topic("a", schema={"x": int}, table="s.a").append({"x": 1})
    log.delete_topic("a")

    assert landings.asked == ["a"]
