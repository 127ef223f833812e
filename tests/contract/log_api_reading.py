"""Reading: where it begins and ends, its forms, following, older schemas.  How it is run: log_api.py."""

from __future__ import annotations

import contextlib
import threading
import time
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.clock import ManualClock
from headwater.errors import Closed, InvalidRequest, UnknownTopic
from tests.contract.log_api import ORDER, Place, numbers, order, orders

BEGAN = datetime(2024, 5, 1, 12, 0, tzinfo=UTC)


def ids(rows: hw.Rows) -> list[int]:
    return [row["order_id"] for row in rows.to_pylist()]


def filled(log: hw.Log) -> hw.Topic:
    """Order n is offset n // 2 of partition n % 2; each is a write of its own."""
    topic = log.topic("orders", schema=ORDER, partitions=2)
    for number in range(10):
        topic.append(order(number), partition=number % 2)
    return topic


class Reading:
    # Where ----------------------------------------------------------------------------------------

    def test_a_read_begins_at_the_earliest_row_and_ends_at_what_is_durable_when_it_is_asked_for(
        self, log: hw.Log
    ) -> None:
        topic = filled(log)

        rows = topic.read()
        topic.append(order(10), partition=0)

        assert ids(rows) == list(range(10))
        assert ids(topic.read("earliest")) == list(range(11))

    def test_latest_is_after_what_is_durable_now(self, log: hw.Log) -> None:
        topic = filled(log)

        assert ids(topic.read("latest")) == []
        assert ids(topic.read(stop="latest")) == list(range(10))

    def test_offsets_say_where_each_partition_begins_and_leave_out_the_others(self, log: hw.Log) -> None:
        topic = filled(log)

        assert ids(topic.read({0: 3, 1: 4})) == [6, 8, 9]
        assert ids(topic.read({1: 2})) == [5, 7, 9]
        assert ids(topic.read({0: 5, 1: 99})) == []
        assert ids(topic.read({})) == []

    def test_a_bare_number_is_an_offset_of_the_partition_that_is_named(self, log: hw.Log) -> None:
        topic = filled(log)

        assert ids(topic.read(2, partition=1)) == [5, 7, 9]
        assert ids(topic.read(2, 4, partition=1)) == [5, 7]
        with pytest.raises(InvalidRequest):
            topic.read(2)

    def test_one_partition_can_be_read_alone(self, log: hw.Log) -> None:
        topic = filled(log)

        assert ids(topic.read(partition=1)) == [1, 3, 5, 7, 9]
        assert ids(topic.read(partition=0, limit=2)) == [0, 2]

    def test_an_offset_in_the_middle_of_a_batch_begins_there(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)
        topic.append(orders(100))

        assert ids(topic.read({0: 97})) == [97, 98, 99]
        assert ids(topic.read({0: 10}, {0: 13})) == [10, 11, 12]
        assert ids(topic.read(stop={0: 2})) == [0, 1]

    def test_an_lsn_says_where_it_begins_and_a_stop_is_not_in_it(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)
        answers = [topic.append(order(number)) for number in range(5)]

        assert ids(topic.read(hw.Lsn(answers[2].lsn))) == [2, 3, 4]
        assert ids(topic.read(hw.Lsn(answers[1].lsn), hw.Lsn(answers[3].lsn))) == [1, 2]
        assert ids(topic.read(hw.Lsn(0))) == [0, 1, 2, 3, 4]
        assert ids(topic.read(hw.Lsn(10_000))) == []

    def test_a_time_is_the_time_of_appending_whatever_its_zone(self, place: Place) -> None:
        clock = ManualClock(round(BEGAN.timestamp() * 1_000_000))
        with place.open(clock=clock) as log:
            topic = log.topic("orders", schema=ORDER)
            for number in range(5):
                topic.append(order(number))
                clock.advance(60)
            third = BEGAN + timedelta(minutes=2)

            assert ids(topic.read(third)) == [2, 3, 4]
            assert ids(topic.read(third.astimezone(timezone(timedelta(hours=5))))) == [2, 3, 4]
            assert ids(topic.read("2024-05-01T12:02:00+00:00")) == [2, 3, 4]
            assert ids(topic.read("2024-05-01T14:02:00+02:00")) == [2, 3, 4]
            assert ids(topic.read("2024-05-01T12:02:00.000001Z")) == [3, 4]
            assert ids(topic.read(BEGAN - timedelta(days=1), third)) == [0, 1]
            assert ids(topic.read(BEGAN + timedelta(days=1))) == []

    @pytest.mark.parametrize(
        "where",
        ["soon", "2024-05-01", "2024-05-01T12:00:00", BEGAN.replace(tzinfo=None), -1, {0: -1}, 1.5, True, b"latest"],
    )
    def test_a_place_that_is_none_is_refused(self, log: hw.Log, where: Any) -> None:
        topic = filled(log)

        with pytest.raises(InvalidRequest):
            topic.read(where, partition=0 if isinstance(where, int) else None)
        with pytest.raises(InvalidRequest):
            topic.read(stop=where, partition=0 if isinstance(where, int) else None)

    # How much -------------------------------------------------------------------------------------

    @pytest.mark.parametrize("limit", [0, 1, 7, 10, 100])
    def test_a_limit_is_kept(self, log: hw.Log, limit: int) -> None:
        topic = filled(log)

        assert ids(topic.read(limit=limit)) == list(range(min(limit, 10)))

    def test_a_limit_cuts_a_batch(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)
        topic.append(orders(100))

        assert ids(topic.read(limit=3)) == [0, 1, 2]
        assert ids(topic.read({0: 50}, limit=3)) == [50, 51, 52]

    def test_no_batch_is_larger_than_asked_for_and_none_is_empty(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)
        for size in (1, 10, 3, 25):
            topic.append(orders(size))

        for batch_rows in (1, 4, 39, 1_000):
            sizes = [batch.num_rows for batch in topic.read(batch_rows=batch_rows)]
            assert sum(sizes) == 39
            assert all(1 <= size <= batch_rows for size in sizes)

    def test_small_writes_are_read_in_batches_of_a_useful_size(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)
        for number in range(200):
            topic.append(order(number))

        assert [batch.num_rows for batch in topic.read()] == [200]

    def test_limits_that_make_no_sense_are_refused(self, log: hw.Log) -> None:
        topic = filled(log)

        with pytest.raises(InvalidRequest):
            topic.read(limit=-1)
        with pytest.raises(InvalidRequest):
            topic.read(batch_rows=0)

    # Forms ----------------------------------------------------------------------------------------

    def test_rows_can_be_had_in_every_form(self, log: hw.Log) -> None:
        topic = filled(log)
        expected = orders(10)

        assert topic.read().to_pylist() == expected
        assert topic.read().to_arrow() == pa.Table.from_pylist(expected, schema=topic.schema)
        assert [row for batch in topic.read() for row in batch.to_pylist()] == expected
        assert pa.table(topic.read()).to_pylist() == expected, "as an Arrow stream"

    def test_rows_can_be_had_as_a_pandas_frame(self, log: hw.Log) -> None:
        pytest.importorskip("pandas")
        frame = filled(log).read().to_pandas()

        assert list(frame.columns) == ["order_id", "amount", "note"]
        assert list(frame["order_id"]) == list(range(10))

    def test_rows_can_be_had_as_a_polars_frame(self, log: hw.Log) -> None:
        pytest.importorskip("polars")
        frame = filled(log).read().to_polars()

        assert frame.columns == ["order_id", "amount", "note"]
        assert frame["order_id"].to_list() == list(range(10))

    def test_a_time_that_python_has_not_is_refused_by_its_column_and_had_in_other_forms(self, log: hw.Log) -> None:
        beyond = pa.array([400_000_000_000_000_000], pa.timestamp("us", "UTC"))
        topic = log.topic("far", schema=pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))]))
        topic.append(pa.table({"id": pa.array([1]), "at": beyond}))

        for rows in (topic.read(), topic.scan()):
            with pytest.raises(InvalidRequest, match=r"'at'.*to_arrow\(\)") as refused:
                rows.to_pylist()
            assert refused.value.facts["column"] == "at"
            assert rows.to_arrow()["at"].combine_chunks().equals(beyond)

    def test_what_a_prompt_shows_names_columns_and_reads_nothing(self, log: hw.Log) -> None:
        topic = log.topic("wide", schema={f"c{number}": int for number in range(14)})

        assert repr(topic.read(columns=["c0"])).startswith("<Rows of c0: int64; take them with to_arrow()")
        assert "c11: int64, and 2 more;" in repr(topic.read())

    def test_what_a_prompt_shows_of_an_append_is_one_plain_line(self, log: hw.Log) -> None:
        topic = log.topic("plain", schema={"id": int})

        shown = repr(appended := topic.append([{"id": 1}, {"id": 2}]))

        assert f"rows=2, first_lsn={appended.first_lsn}, lsn={appended.lsn}, offsets={{0: 0..1}}, time=20" in shown
        assert shown.startswith("Appended(topic='plain', ") and "rejected" not in shown and "datetime" not in shown

    def test_an_empty_read_still_has_its_schema(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)

        assert topic.read().to_arrow().schema == topic.schema
        assert topic.read().to_pylist() == []
        assert list(topic.read()) == []

    def test_a_read_can_be_gone_through_twice(self, log: hw.Log) -> None:
        rows = filled(log).read(limit=3)

        assert ids(rows) == ids(rows) == [0, 1, 2]

    def test_columns_are_those_asked_for_in_that_order(self, log: hw.Log) -> None:
        topic = filled(log)

        assert topic.read(columns=["note", "order_id"], limit=1).to_pylist() == [{"note": None, "order_id": 0}]
        assert topic.read(columns=["note", "order_id"]).to_arrow().schema.names == ["note", "order_id"]
        with pytest.raises(InvalidRequest, match="colour"):
            topic.read(columns=["colour"])

    def test_system_columns_say_where_a_row_is_and_when_it_came(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER, partitions=2)
        first = topic.append(orders(2), partition=1)
        second = topic.append(orders(1), partition=1)

        table = topic.read(system_columns=True).to_arrow()
        rows = table.to_pylist()

        assert table.schema.names == [
            "order_id", "amount", "note", "_hw_lsn", "_hw_partition", "_hw_offset", "_hw_time",
        ]  # fmt: skip
        assert [row["_hw_offset"] for row in rows] == [0, 1, 2]
        assert [row["_hw_partition"] for row in rows] == [1, 1, 1]
        assert [row["_hw_lsn"] for row in rows] == [first.lsn, first.lsn, second.lsn]
        assert [row["_hw_time"] for row in rows] == [first.time, first.time, second.time]

    def test_a_keyed_topic_has_the_operation_and_the_system_columns_after_its_own(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER, key="order_id")
        topic.append(order(1))

        names = topic.read(system_columns=True).schema.names

        assert names[3:] == ["_hw_op", "_hw_lsn", "_hw_partition", "_hw_offset", "_hw_time"]
        assert topic.read(columns=["_hw_op"]).to_pylist() == [{"_hw_op": "U"}]

    # Older rows -----------------------------------------------------------------------------------

    def test_rows_of_every_version_come_in_the_present_schema(self, log: hw.Log) -> None:
        topic = log.topic("readings", schema={"n": "int16"})
        topic.append({"n": 1})
        topic.alter(add={"place": str})
        topic.append({"n": 2, "place": "a"})
        topic.alter(widen={"n": "int64"}, add={"x": float})
        topic.append({"n": 2**40, "place": "b", "x": 1.5})

        table = topic.read().to_arrow()

        assert table.schema == topic.schema
        assert table.to_pylist() == [
            {"n": 1, "place": None, "x": None},
            {"n": 2, "place": "a", "x": None},
            {"n": 2**40, "place": "b", "x": 1.5},
        ]
        assert topic.read(columns=["x", "n"], limit=1).to_pylist() == [{"x": None, "n": 1}]

    def test_deletes_of_an_older_version_come_in_the_present_schema(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER, key="order_id")
        topic.upsert(order(1))
        topic.delete(1)

        topic.alter(add={"colour": str})

        assert topic.read().to_pylist() == [
            {**order(1), "colour": None, "_hw_op": "U"},
            {"order_id": 1, "amount": None, "note": None, "colour": None, "_hw_op": "D"},
        ]

    # Following ------------------------------------------------------------------------------------

    def test_a_follower_gets_what_comes(self, log: hw.Log) -> None:
        topic = filled(log)
        found: list[int] = []
        caught_up = threading.Event()

        def follow() -> None:
            for batch in topic.read(follow=True, limit=15):
                found.extend(batch.column("order_id").to_pylist())
                caught_up.set()

        follower = threading.Thread(target=follow, daemon=True)
        follower.start()
        assert caught_up.wait(30)
        for number in range(10, 15):
            topic.append(order(number), partition=0)
        follower.join(30)

        assert not follower.is_alive()
        assert found == list(range(15))

    def test_a_follower_ends_when_nothing_came_for_its_time(self, log: hw.Log) -> None:
        topic = filled(log)
        began_s = time.monotonic()

        assert ids(topic.read(follow=True, timeout_s=0.1)) == list(range(10))
        assert time.monotonic() - began_s >= 0.1

    def test_a_follower_whose_caller_takes_long_misses_nothing(self, place: Place) -> None:
        clock = ManualClock()
        with place.open(clock=clock) as log:
            topic = log.topic("orders", schema=ORDER)
            topic.append(order(0))
            found = []

            for batch in topic.read(follow=True, timeout_s=0.05):
                found += batch.column("order_id").to_pylist()
                if len(found) < 5:
                    topic.append(order(len(found)))
                clock.advance(10)

            assert found == [0, 1, 2, 3, 4]

    def test_a_follower_without_time_ends_with_what_is_there(self, log: hw.Log) -> None:
        topic = filled(log)

        assert ids(topic.read(follow=True, timeout_s=0)) == list(range(10))
        assert ids(topic.read("latest", follow=True, timeout_s=0)) == []

    def test_a_follower_ends_at_its_limit_or_its_stop(self, log: hw.Log) -> None:
        topic = filled(log)

        assert ids(topic.read(follow=True, limit=4)) == [0, 1, 2, 3]
        assert ids(topic.read(follow=True, stop="latest")) == list(range(10))

    def test_a_follower_ends_where_every_partition_has_reached_its_stop(self, log: hw.Log) -> None:
        topic = filled(log)
        began_s = time.monotonic()

        found = ids(topic.read(follow=True, stop={0: 2, 1: 1}, timeout_s=2))

        assert found == [0, 1, 2]
        assert time.monotonic() - began_s < 1.5, "it did not wait for more"

    def test_rows_of_other_topics_do_not_put_off_a_followers_end(self, log: hw.Log) -> None:
        topic = filled(log)
        other = log.topic("other", schema=ORDER)
        stopped = threading.Event()

        def disturb() -> None:
            while not stopped.wait(0.01):
                other.append(order(1))

        disturber = threading.Thread(target=disturb)
        disturber.start()
        began_s = time.monotonic()
        try:
            found = ids(topic.read(follow=True, timeout_s=0.1))
        finally:
            stopped.set()
            disturber.join()

        assert found == list(range(10))
        assert time.monotonic() - began_s < 5

    def test_a_follower_without_an_end_ends_when_the_log_is_closed(self, place: Place) -> None:
        log = place.open()
        topic = filled(log)
        found: list[int] = []
        caught_up = threading.Event()

        def follow() -> None:
            with contextlib.suppress(Closed):
                for batch in topic.read(follow=True):
                    found.extend(batch.column("order_id").to_pylist())
                    caught_up.set()

        follower = threading.Thread(target=follow, daemon=True)
        follower.start()
        assert caught_up.wait(30)
        log.close()
        follower.join(10)

        assert not follower.is_alive()
        assert found == list(range(10))

    def test_a_follower_of_a_topic_that_is_deleted_is_told(self, log: hw.Log) -> None:
        topic = filled(log)
        following = iter(topic.read(follow=True, timeout_s=30))
        next(following)
        log.delete_topic("orders")
        log.topic("other", schema=ORDER).append(order(1))

        with pytest.raises(UnknownTopic):
            next(following)


class ReadingKept:
    def test_every_place_means_the_same_after_a_close(self, place: Place) -> None:
        clock = ManualClock(round(BEGAN.timestamp() * 1_000_000))
        with place.open(clock=clock) as log:
            topic = log.topic("orders", schema=ORDER, partitions=2)
            lsn = 0
            for number in range(10):
                appended = topic.append(order(number), partition=number % 2)
                lsn = appended.lsn if number == 4 else lsn
                clock.advance(60)

        with place.open(clock=clock) as log:
            topic = log["orders"]
            assert numbers(topic) == list(range(10))
            assert ids(topic.read({0: 3, 1: 4})) == [6, 8, 9]
            assert ids(topic.read(hw.Lsn(lsn))) == [4, 5, 6, 7, 8, 9]
            assert ids(topic.read(BEGAN + timedelta(minutes=7))) == [7, 8, 9]
            assert ids(topic.read("latest")) == []
