"""Reads that begin before the log does: what it has let go of comes from the table, in order, once each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import Forgotten, InvalidRequest, LandingHalted, Unavailable, UnknownTopic
from headwater.lake.mark import FORGOTTEN
from headwater.topics.positions import time_of
from tests.unit.lake.older_lakes import OlderLake, places
from tests.unit.lake.small_lakes import Once


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[OlderLake]:
    lake = OlderLake(tmp_path)
    yield lake
    lake.close()


def landed(lake: OlderLake, frames: int = 6, partitions: int = 2, **options: Any) -> None:
    """Row n is in partition n % partitions, a minute after the one before; the log has let go of all but the last
    two, which have not landed."""
    lake.topic("orders", partitions=partitions, **options)
    for number in range(frames):
        if number == frames - 2:
            lake.round()
            assert lake.let_go()
        lake.log["orders"].append({"x": number}, partition=number % partitions)
        lake.clock.advance(60)


# Places -------------------------------------------------------------------------------------------


def test_a_read_from_the_first_row_crosses_from_the_table_into_the_log(lake: OlderLake) -> None:
    landed(lake)

    assert lake.read() == [0, 1, 2, 3, 4, 5]
    assert lake.log["orders"].offsets() == {0: (2, 3), 1: (2, 3)}
    rows = lake.log["orders"].read(system_columns=True)
    assert places(rows) == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]


def test_every_place_before_the_log_is_found(lake: OlderLake) -> None:
    landed(lake)
    rows = lake.log["orders"].read(system_columns=True).to_pylist()
    lsns = [row["_hw_lsn"] for row in rows]
    times = [row["_hw_time"] for row in rows]
    assert lsns == sorted(lsns) and times == sorted(times)

    assert lake.read(hw.Lsn(lsns[1])) == [1, 2, 3, 4, 5]
    assert lake.read(times[2]) == [2, 3, 4, 5]
    assert lake.read(times[2] - timedelta(seconds=1)) == [2, 3, 4, 5]
    assert lake.read(times[5]) == [5]
    assert lake.read(time_of(0)) == [0, 1, 2, 3, 4, 5]
    assert lake.read({0: 1, 1: 2}) == [2, 4, 5]
    assert lake.read({1: 1}) == [3, 5]
    assert lake.read(1, partition=0) == [2, 4]
    assert lake.read(partition=1) == [1, 3, 5]
    assert lake.read(2, partition=1) == [5]
    assert lake.read(9, partition=1) == []
    assert lake.read("latest") == []


def test_every_stop_before_the_log_is_kept(lake: OlderLake) -> None:
    landed(lake)
    rows = lake.log["orders"].read(system_columns=True).to_pylist()

    assert lake.read(stop=hw.Lsn(rows[3]["_hw_lsn"])) == [0, 1, 2]
    assert lake.read(stop=rows[3]["_hw_time"]) == [0, 1, 2]
    assert lake.read(stop={0: 1, 1: 2}) == [0, 1, 3]
    assert lake.read({0: 1}, {0: 3, 1: 1}) == [2, 4]
    assert lake.read(stop={0: 3, 1: 1}, follow=True, timeout_s=0) == [0, 1, 2, 4]
    assert lake.read(rows[1]["_hw_time"], rows[3]["_hw_time"]) == [1, 2]
    assert lake.read(stop="earliest") == []


def test_limits_batches_and_columns_are_as_they_are_for_the_log(lake: OlderLake) -> None:
    landed(lake)

    assert lake.read(limit=3) == [0, 1, 2]
    assert lake.read(limit=5) == [0, 1, 2, 3, 4]
    assert [batch.num_rows for batch in lake.log["orders"].read(batch_rows=3)] == [3, 1, 2]
    rows = lake.log["orders"].read(columns=["_hw_offset", "x"], system_columns=True, limit=2)
    assert rows.to_pylist() == [{"_hw_offset": 0, "x": 0}, {"_hw_offset": 0, "x": 1}]
    assert rows.schema == rows.to_arrow().schema


def test_a_follower_begins_in_the_table_and_is_given_what_comes(lake: OlderLake) -> None:
    landed(lake)
    batches = iter(lake.log["orders"].read(follow=True, timeout_s=0, batch_rows=1))
    seen = [next(batches) for _ in range(6)]
    lake.log["orders"].append({"x": 6}, partition=0)
    seen += batches

    assert [batch["x"][0].as_py() for batch in seen] == [0, 1, 2, 3, 4, 5, 6]


def test_a_topic_that_the_log_holds_whole_is_not_looked_up_in_its_table(lake: OlderLake) -> None:
    lake.topic("orders")
    lake.append("orders", 3)
    lake.round()
    lake.calls.clear()

    assert lake.read() == [0, 1, 2]
    assert lake.calls == []


def test_a_topic_that_has_landed_nothing_is_read_from_the_log_alone(lake: OlderLake) -> None:
    lake.topic("late")
    landed(lake)
    lake.append("late", 2)
    lake.calls.clear()

    assert len(lake.read(name="late")) == 2
    assert lake.calls == []


# Meanwhile ----------------------------------------------------------------------------------------


def test_rows_that_are_cleaned_up_while_they_are_read_come_from_the_table(lake: OlderLake) -> None:
    lake.topic("orders")
    for _ in range(4):
        lake.append("orders", 2)
        lake.roll()
    batches = iter(lake.log["orders"].read(batch_rows=1))
    seen = [next(batches) for _ in range(3)]

    lake.round()
    assert lake.let_go()
    lake.append("orders", 1)
    seen += batches

    assert [batch["x"][0].as_py() for batch in seen] == list(range(8))


def test_rows_that_go_from_before_others_that_stay_are_not_passed_over(lake: OlderLake) -> None:
    lake.topic("orders")
    for number in range(4):
        lake.append("orders", 1)
        lake.roll()
        if number == 1:
            lake.round()
    batches = iter(lake.log["orders"].read(batch_rows=1))
    seen = [next(batches)]

    assert len(lake.let_go()) == 2
    seen += batches

    assert [batch["x"][0].as_py() for batch in seen] == [0, 1, 2, 3]


def test_a_data_file_that_is_gone_under_the_read_is_read_where_its_rows_are_now(tmp_path: Path) -> None:
    lake = OlderLake(tmp_path, window_bytes=1)
    try:
        lake.topic("orders")
        for _ in range(3):
            lake.append("orders", 2)
            lake.round()
        lake.let_go()
        batches = iter(lake.log["orders"].read(batch_rows=1))
        seen = [next(batches) for _ in range(2)]

        lake.compact_table()
        seen += batches

        assert [batch["x"][0].as_py() for batch in seen] == list(range(6))
    finally:
        lake.close()


def test_a_data_file_that_is_lost_is_told(lake: OlderLake) -> None:
    lake.topic("orders")
    lake.append("orders", 2)
    lake.round()
    lake.let_go()
    lake.files()[0].unlink()

    with pytest.raises(Unavailable, match="is gone"):
        lake.read()


@pytest.mark.parametrize("seed", range(12))
def test_a_read_from_the_first_row_gives_every_row_once_in_order_whatever_goes_on(tmp_path: Path, seed: int) -> None:
    """Appends, landings, deletion of the log and compaction of the table between any two batches."""
    random = Random(seed)
    lake = OlderLake(tmp_path, window_bytes=random.choice([1, 2_000, 1 << 27]))
    lake.topic("orders", partitions=2)
    acts: dict[str, Callable[[], object]] = {
        "append": lambda: lake.append("orders", random.randrange(1, 4)),
        "roll": lake.roll,
        "land": lambda: lake.round("orders"),
        "let go": lake.let_go,
        "compact": lambda: lake.compact_table() if lake.known().landed_lsn else None,
    }

    def act() -> None:
        acts[random.choices(list(acts), [6, 2, 2, 2, 1])[0]]()

    try:
        for _ in range(random.randrange(4, 16)):
            act()
        follow = random.random() < 0.5
        known = lake._next
        batches = iter(lake.log["orders"].read(batch_rows=2, follow=follow, timeout_s=0, system_columns=True))
        seen: list[dict[str, Any]] = []
        for batch in batches:
            seen += batch.to_pylist()
            if len(seen) < 30:
                act()

        assert [row["x"] for row in seen] == list(range(lake._next if follow else known))
        assert [row["_hw_lsn"] for row in seen] == sorted(row["_hw_lsn"] for row in seen)
        for partition in range(2):
            offsets = [row["_hw_offset"] for row in seen if row["_hw_partition"] == partition]
            assert offsets == list(range(len(offsets)))
    finally:
        lake.close()


# Consumers ----------------------------------------------------------------------------------------


def polled(consumer: Any, rows: int) -> list[int]:
    found: list[int] = []
    while (poll := consumer.poll(max_rows=rows)) is not None:
        found += poll.batch["x"].to_pylist()
    return found


def test_a_consumer_begins_at_the_first_row_ever_and_loads_the_table_once(lake: OlderLake) -> None:
    lake.topic("orders")
    for _ in range(4):
        lake.append("orders", 3)
    lake.round()
    assert lake.let_go()
    lake.append("orders", 2)
    lake.calls.clear()

    with lake.log.consumer("orders", group="billing") as consumer:
        assert polled(consumer, 2) == list(range(14))
        assert consumer.skipped == {}
        assert consumer.commit() == {0: 14}

    assert lake.calls.count("load") == 1


def test_a_consumer_of_many_partitions_reads_the_table_and_then_the_log(lake: OlderLake) -> None:
    lake.topic("orders", partitions=12)
    numbers = iter(range(1000))

    def append(partitions: range, rows: int) -> None:
        for partition in partitions:
            lake.log["orders"].append([{"x": next(numbers)} for _ in range(rows)], partition=partition)

    append(range(12), 2)
    lake.round()
    assert lake.let_go()
    append(range(6, 12), 2)
    lake.round()
    append(range(12), 1)

    with lake.log.consumer("orders", group="billing") as consumer:
        seen: dict[int, list[int]] = {}
        while (poll := consumer.poll()) is not None:
            assert poll.offset == len(seen.setdefault(poll.partition, []))
            seen[poll.partition] += poll.batch["x"].to_pylist()
        assert consumer.skipped == {}

    assert sorted(each for rows in seen.values() for each in rows) == list(range(48))
    assert all(rows == sorted(rows) for rows in seen.values())


def test_a_consumer_goes_on_in_the_table_where_it_committed_and_where_it_is_sent(lake: OlderLake) -> None:
    landed(lake, partitions=1)
    with lake.log.consumer("orders", group="billing") as consumer:
        assert consumer.poll(max_rows=2).batch["x"].to_pylist() == [0, 1]  # type: ignore[union-attr]
        consumer.commit()
        assert consumer.lag() == {0: 4}
        assert consumer.poll(max_rows=1).batch["x"].to_pylist() == [2]  # type: ignore[union-attr]
        consumer.seek(0, 1)
        assert consumer.poll(max_rows=1).batch["x"].to_pylist() == [1]  # type: ignore[union-attr]
        consumer.rewind()
        assert polled(consumer, 100) == [2, 3, 4, 5]


# Keyed --------------------------------------------------------------------------------------------


def keyed(lake: OlderLake, partitions: int = 1) -> None:
    lake.topic("people", {"id": int, "name": str}, key="id", partitions=partitions)
    lake.log["people"].upsert([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    lake.clock.advance(60)
    lake.log["people"].delete([{"id": 1}])
    lake.clock.advance(60)
    lake.log["people"].upsert([{"id": 3, "name": "c"}])
    lake.round()
    assert lake.let_go()
    lake.log["people"].upsert({"id": 2, "name": "z"})


def forget(lake: OlderLake, lsn: int) -> None:
    """As upkeep leaves a change table whose oldest changes are past their retention."""
    with lake.native("people_changes") as table:
        table.delete(f"_hw_lsn <= {lsn}")
        with table.transaction() as change:
            change.set_properties({FORGOTTEN: str(lsn)})


def test_changes_of_a_keyed_topic_are_read_with_their_operation(lake: OlderLake) -> None:
    keyed(lake)

    assert [tuple(row.values()) for row in lake.log["people"].read().to_pylist()] == [
        (1, "a", "U"),
        (2, "b", "U"),
        (1, None, "D"),
        (3, "c", "U"),
        (2, "z", "U"),
    ]
    assert lake.log["people"].read(columns="_hw_op", limit=3).to_arrow()["_hw_op"].to_pylist() == ["U", "U", "D"]


def test_changes_past_their_retention_are_forgotten_by_name(lake: OlderLake) -> None:
    keyed(lake)
    rows = lake.log["people"].read(system_columns=True).to_pylist()
    lsns = [row["_hw_lsn"] for row in rows]
    forget(lake, lsns[0])
    people = lake.log["people"]

    def ids(*args: Any, **options: Any) -> list[int]:
        return [row["id"] for row in people.read(*args, **options).to_pylist()]

    assert ids() == [1, 3, 2]
    assert ids(hw.Lsn(lsns[2])) == [1, 3, 2]
    assert ids(3, partition=0) == [3, 2]
    assert ids(rows[3]["_hw_time"]) == [3, 2]
    for gone in (hw.Lsn(1), rows[0]["_hw_time"], {0: 1}):
        with pytest.raises(Forgotten, match="past their retention"):
            people.read(gone).to_arrow()
    forget(lake, lsns[3])
    assert ids() == [2]
    for gone in (rows[3]["_hw_time"], {0: 1}):
        with pytest.raises(Forgotten, match="past their retention"):
            people.read(gone).to_arrow()


@pytest.mark.parametrize("kept", [1, 0])
def test_a_consumer_passes_over_changes_that_are_forgotten_and_counts_them_if_it_had_begun(
    lake: OlderLake, kept: int
) -> None:
    keyed(lake)
    rows = lake.log["people"].read(system_columns=True).to_pylist()
    with lake.log.consumer("people", group="begun") as begun:
        assert begun.poll(max_rows=1) is not None
        begun.commit()
    forget(lake, rows[2 if kept else 3]["_hw_lsn"])

    for group, missed in (("begun", {0: 3 - kept}), ("new", {})):
        with lake.log.consumer("people", group=group) as consumer:
            found = [row["id"] for batch in iter(consumer.poll, None) for row in batch.batch.to_pylist()]
        assert found == ([3, 2] if kept else [2])
        assert consumer.skipped == missed


def test_changes_that_are_forgotten_while_they_are_read_are_told(tmp_path: Path) -> None:
    lake = OlderLake(tmp_path, window_bytes=1)
    try:
        keyed(lake)
        lsns = [row["_hw_lsn"] for row in lake.log["people"].read(system_columns=True).to_pylist()]
        batches = iter(lake.log["people"].read(batch_rows=1))
        next(batches)
        files = lake.files("people_changes")
        forget(lake, lsns[2])
        for path in files:
            path.unlink()

        with pytest.raises(Forgotten, match="past their retention"):
            list(batches)
    finally:
        lake.close()


# Tables that are not what they were ---------------------------------------------------------------


@pytest.mark.parametrize("trouble", ["drop", "rollback"])
def test_a_table_that_no_longer_holds_what_the_log_let_go_of_halts_the_read(lake: OlderLake, trouble: str) -> None:
    lake.topic("orders")
    lake.append("orders", 2)
    lake.round()
    first = lake.state().branches["main"]
    lake.append("orders", 2)
    lake.round()
    lake.let_go()
    if trouble == "drop":
        lake.drop()
    else:
        lake.rollback(first)

    with pytest.raises(LandingHalted, match=r"read from hw.Lsn\(\d+\) on"):
        lake.read()


def test_rows_of_somebody_else_in_the_table_are_not_the_topic_s(lake: OlderLake) -> None:
    landed(lake)
    lake.foreign_append()
    lake.foreign_delete(x=1)

    assert lake.read() == [0, 2, 3, 4, 5]


def test_a_topic_that_is_deleted_while_its_table_is_read_is_told(lake: OlderLake) -> None:
    landed(lake)
    asked = lake.log["orders"].read()
    follower = iter(lake.log["orders"].read(batch_rows=1))
    next(follower)
    lake.log.delete_topic("orders", force=True)

    with pytest.raises(UnknownTopic):
        asked.to_arrow()
    with pytest.raises(UnknownTopic):
        list(follower)


def test_a_policy_that_only_compacts_keeps_reading_to_the_log(lake: OlderLake) -> None:
    lake.topic("people", {"id": int, "name": str}, key="id", cleanup="compact")
    for name in "abc":
        lake.log["people"].upsert({"id": 1, "name": name})
        lake.roll()
    lake.round()
    lake.let_go()
    lake.log["people"].compact()
    lake.calls.clear()

    assert [row["name"] for row in lake.log["people"].read().to_pylist()][-1] == "c"
    assert lake.calls == []


# Types --------------------------------------------------------------------------------------------


def test_rows_come_in_the_types_of_the_topic_old_versions_too(lake: OlderLake) -> None:
    schema = pa.schema(
        [
            pa.field("i8", pa.int8()),
            pa.field("u32", pa.uint32()),
            pa.field("half", pa.float16()),
            pa.field("day", pa.date32()),
            pa.field("at", pa.timestamp("us")),
            pa.field("money", pa.decimal128(20, 4)),
            pa.field("tags", pa.list_(pa.string())),
            pa.field("point", pa.struct([pa.field("a", pa.int16()), pa.field("b", pa.string())])),
            pa.field("by", pa.map_(pa.string(), pa.int8())),
            pa.field("small", pa.int32()),
        ]
    )
    lake.topic("wide", schema)
    row = {
        "i8": -8, "u32": 4_000_000_000, "half": 0.5, "day": time_of(0).date(), "at": time_of(5).replace(tzinfo=None),
        "money": Decimal("12.3400"), "tags": ["a", None], "point": {"a": 3, "b": None}, "by": {"k": 1}, "small": 7,
    }  # fmt: skip
    empty = dict.fromkeys(row)
    lake.log["wide"].append([row, empty])
    before = lake.log["wide"].read()
    lake.round()
    lake.log["wide"].alter(add={"new": str}, widen={"small": pa.int64()})
    expected = lake.log["wide"].read().to_arrow()
    lake.let_go()

    found = lake.log["wide"].read().to_arrow()

    assert found.schema == expected.schema and found.equals(expected)
    assert before.to_arrow().schema.field("small").type == pa.int32()


def test_a_value_that_does_not_fit_the_schema_with_which_the_read_began_is_named(lake: OlderLake) -> None:
    lake.topic("orders", {"x": pa.int32()})
    lake.log["orders"].append({"x": 1})
    follower = iter(lake.log["orders"].read(follow=True, timeout_s=0))
    assert next(follower)["x"].to_pylist() == [1]
    lake.log["orders"].alter(widen={"x": pa.int64()})
    lake.log["orders"].append({"x": 1 << 40})
    lake.round()
    lake.let_go()

    with pytest.raises(InvalidRequest, match="was widened"):
        list(follower)


def test_many_partitions_are_wanted_at_once(lake: OlderLake) -> None:
    lake.topic("orders", partitions=70)
    for number in range(140):
        lake.log["orders"].append({"x": number}, partition=number % 70)
    lake.round()
    lake.let_go()

    assert lake.read(dict.fromkeys(range(70), 1)) == list(range(70, 140))


def test_a_connection_that_fails_is_not_used_again(lake: OlderLake) -> None:
    landed(lake)
    made = len(lake.connections)

    def fail() -> None:
        raise Unavailable("no catalog")

    lake.before["load"] = Once(fail)
    with pytest.raises(Unavailable, match="no catalog"):
        lake.read()

    assert lake.read() == [0, 1, 2, 3, 4, 5]
    assert len(lake.connections) == made + 2
