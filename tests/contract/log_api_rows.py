"""Rows: their forms, refused ones, partitions, upserts and deletes, limits of size.  How it is run: log_api.py."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import InvalidRequest, RowsRefused, TooLarge
from headwater.settings import LogSettings
from tests.contract.log_api import KIB, ORDER, Place, next_offsets, numbers, order, orders

TINY_FRAMES = hw.Settings(
    log=LogSettings(reserve_bytes=0, write_body_bytes_max=64 * KIB),
    join_bytes_max=1 * KIB,
    frame_bytes_max=4 * KIB,
    upkeep_interval_s=0.0,
)


@dataclasses.dataclass
class Order:
    order_id: int
    amount: float
    note: str | None = None


def as_pydantic(rows: list[dict[str, Any]]) -> list[Any]:
    pydantic = pytest.importorskip("pydantic")
    fields = {"order_id": (int, ...), "amount": (float, ...), "note": (str | None, None)}
    model = pydantic.create_model("PydanticOrder", **fields)
    return [model(**row) for row in rows]


MANY: dict[str, Callable[[list[dict[str, Any]]], object]] = {
    "dicts": list,
    "tuple of dicts": tuple,
    "generator of dicts": lambda rows: (row for row in rows),
    "dicts in another order of columns": lambda rows: [dict(reversed(row.items())) for row in rows],
    "dataclasses": lambda rows: [Order(**row) for row in rows],
    "pydantic models": as_pydantic,
    "record batch": pa.RecordBatch.from_pylist,
    "record batch, columns turned round": lambda rows: pa.RecordBatch.from_pylist(rows).select(
        ["note", "amount", "order_id"]
    ),
    "table": pa.Table.from_pylist,
    "table of two chunks": lambda rows: pa.concat_tables(
        [pa.Table.from_pylist(rows[:1]), pa.Table.from_pylist(rows[1:])], promote_options="permissive"
    ),
    "record batch reader": lambda rows: pa.Table.from_pylist(rows).to_reader(),
    "pandas": lambda rows: pytest.importorskip("pandas").DataFrame(rows),
    "polars": lambda rows: pytest.importorskip("polars").DataFrame(rows),
}

ONE: dict[str, Callable[[dict[str, Any]], object]] = {
    "dict": dict,
    "dataclass": lambda row: Order(**row),
    "pydantic model": lambda row: as_pydantic([row])[0],
}

DO_NOT_FIT: dict[str, tuple[object, str]] = {
    "a column is missing": ({"order_id": 1}, "amount"),
    "null where none may be": ({"order_id": None, "amount": 1.0}, "order_id"),
    "another type": ({"order_id": "one", "amount": 1.0}, "order_id"),
    "a number that is too large": ({"order_id": 2**63, "amount": 1.0}, "order_id"),
    "a fraction for an integer": ({"order_id": 1.5, "amount": 1.0}, "order_id"),
    "a column that is not there": ({"order_id": 1, "amount": 1.0, "colour": "red"}, "colour"),
    "not a row": (5, ""),
}


class Rows:
    # Forms ----------------------------------------------------------------------------------------

    @pytest.mark.parametrize("form", MANY)
    def test_many_rows_are_taken_in_this_form(self, log: hw.Log, form: str) -> None:
        topic = log.topic("orders", schema=ORDER)
        rows = [order(1, 2.5, "x"), order(2, -1.0, None), order(3, 0.0, "ä")]

        appended = topic.append(MANY[form](rows))

        assert appended.rows == 3
        assert topic.read().to_pylist() == rows

    @pytest.mark.parametrize("form", ONE)
    def test_one_row_is_taken_in_this_form(self, log: hw.Log, form: str) -> None:
        topic = log.topic("orders", schema=ORDER)

        appended = topic.append(ONE[form](order(1, 2.5, "x")))

        assert appended.rows == 1
        assert topic.read().to_pylist() == [order(1, 2.5, "x")]

    def test_a_dataclass_is_a_schema_and_its_instances_are_rows(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=Order, key="order_id")

        topic.append([Order(1, 2.5), Order(2, 3.5, "x")])

        assert [field.nullable for field in topic.schema] == [False, False, True]
        assert [Order(row["order_id"], row["amount"], row["note"]) for row in topic.read().to_pylist()] == [
            Order(1, 2.5),
            Order(2, 3.5, "x"),
        ]

    def test_bytes_are_rows_of_the_schema_for_bytes(self, log: hw.Log) -> None:
        topic = log.topic("raw", schema=hw.BYTES)

        topic.append(b"one")
        topic.append([b"two", b""])
        topic.append({"key": b"k", "value": None, "headers": {"h": b"v"}})

        rows = topic.read().to_pylist()
        assert [row["value"] for row in rows] == [b"one", b"two", b"", None]
        assert rows[3]["key"] == b"k"
        assert rows[3]["headers"] == [("h", b"v")]

    def test_bytes_are_no_rows_of_another_schema(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)

        with pytest.raises(InvalidRequest):
            topic.append(b"one")

        assert numbers(topic) == []

    def test_no_rows_are_no_write(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)
        topic.append(order(1))
        durable_lsn = log.status().durable_lsn

        nothings: list[object] = [[], pa.Table.from_pylist([], schema=topic.schema), iter(())]
        for nothing in nothings:
            appended = topic.append(nothing)
            assert (appended.rows, appended.offsets, appended.duplicate) == (0, {}, False)

        assert log.status().durable_lsn == durable_lsn

    # Answers --------------------------------------------------------------------------------------

    def test_offsets_are_dense_from_zero_in_every_partition_and_lsns_and_times_only_rise(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER, partitions=2)

        answers = [topic.append(orders(n + 1), partition=n % 2) for n in range(6)]

        assert [answer.offsets for answer in answers] == [
            {0: (0, 1)}, {1: (0, 2)}, {0: (1, 4)}, {1: (2, 6)}, {0: (4, 9)}, {1: (6, 12)},
        ]  # fmt: skip
        assert [answer.rows for answer in answers] == [1, 2, 3, 4, 5, 6]
        for before, after in pairwise(answers):
            assert before.first_lsn <= before.lsn < after.first_lsn <= after.lsn
            assert before.time < after.time
        assert all(answer.topic == "orders" and answer.time.tzinfo is not None for answer in answers)
        assert next_offsets(topic) == {0: 9, 1: 12}

    def test_what_was_appended_is_durable_and_can_be_read_when_the_call_returns(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)

        for number in range(20):
            appended = topic.append(order(number))
            assert log.status().durable_lsn >= appended.lsn
            assert numbers(topic)[-1] == number

    def test_futures_are_done_in_the_order_in_which_they_were_asked_for(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)

        futures = [topic.append_future(order(number)) for number in range(100)]
        answers = [future.result(timeout=30) for future in futures]

        assert [answer.offsets[0] for answer in answers] == [(n, n + 1) for n in range(100)]
        assert numbers(topic) == list(range(100))

    def test_a_future_of_a_refused_request_says_why(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)

        with pytest.raises(InvalidRequest):
            topic.append_future(order(1), expect_offset=0, partition=5).result(timeout=30)
        with pytest.raises(RowsRefused):
            topic.append_future({"order_id": "x"}).result(timeout=30)

        assert numbers(topic) == []

    def test_each_item_of_an_iterable_is_a_write_of_its_own(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)

        answers = topic.append_all(orders(2, first) for first in (0, 2, 4))
        with pytest.raises(RowsRefused):
            topic.append_all([orders(1, 6), {"order_id": "x"}, orders(1, 7)])

        assert [answer.offsets[0] for answer in answers] == [(0, 2), (2, 4), (4, 6)]
        assert numbers(topic) == [0, 1, 2, 3, 4, 5, 6], "those before the refused one are durable"

    # Refused rows ---------------------------------------------------------------------------------

    @pytest.mark.parametrize("trouble", DO_NOT_FIT)
    def test_rows_that_do_not_fit_are_refused_by_number_and_reason_and_nothing_is_appended(
        self, log: hw.Log, trouble: str
    ) -> None:
        topic = log.topic("orders", schema=ORDER)
        bad, reason = DO_NOT_FIT[trouble]

        with pytest.raises(RowsRefused) as caught:
            topic.append([order(1), order(2), bad, order(3), bad])

        assert [row.number for row in caught.value.refused] == [2, 4]
        assert caught.value.refused_count == 2
        assert all(reason in row.reason for row in caught.value.refused)
        assert "row 2" in str(caught.value)
        assert numbers(topic) == []
        assert topic.append(order(9)).offsets == {0: (0, 1)}

    @pytest.mark.parametrize(
        "batch",
        [
            pa.RecordBatch.from_pylist([{"order_id": 1, "amount": "x"}]),
            pa.RecordBatch.from_pylist([{"order_id": 1}]),
            pa.RecordBatch.from_pylist([{"order_id": None, "amount": 1.0}]),
            pa.RecordBatch.from_pylist([{**order(1), "more": 1}]),
            pa.RecordBatch.from_arrays([pa.array([1]), pa.array([1]), pa.array([1.0])], ["order_id"] * 2 + ["amount"]),
            pa.RecordBatch.from_arrays([pa.array([2**63], pa.uint64()), pa.array([1.0])], ["order_id", "amount"]),
        ],
    )
    def test_an_arrow_batch_that_does_not_fit_is_refused(self, log: hw.Log, batch: pa.RecordBatch) -> None:
        topic = log.topic("orders", schema=ORDER)

        with pytest.raises(InvalidRequest):
            topic.append(batch)

        assert numbers(topic) == []

    def test_rows_that_do_not_fit_can_be_kept_beside_the_others_by_the_same_write(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)
        sent = [order(1), {"order_id": "x", "amount": 1.0}, order(2), {"colour": b"\xff"}]

        appended = topic.append(sent, rejected="keep")

        assert (appended.rows, appended.rejected) == (2, 2)
        assert appended.rows + appended.rejected == len(sent)
        assert numbers(topic) == [1, 2]
        kept = log["orders.rejected"].read(system_columns=True).to_pylist()
        assert [row["number"] for row in kept] == [1, 3]
        assert json.loads(kept[0]["row"]) == sent[1]
        assert "order_id" in kept[0]["reason"]
        assert "colour" in kept[1]["reason"]
        assert all(appended.first_lsn <= row["_hw_lsn"] <= appended.lsn for row in kept)

    def test_where_every_row_is_kept_as_rejected_none_is_appended(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)

        appended = topic.append([{"a": 1}, 5, None], rejected="keep")

        assert (appended.rows, appended.rejected, appended.offsets) == (0, 3, {})
        assert numbers(topic) == []
        assert len(log["orders.rejected"].read().to_pylist()) == 3

    def test_where_every_row_fits_nothing_is_kept_as_rejected(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)

        appended = topic.append(orders(3), rejected="keep")

        assert (appended.rows, appended.rejected) == (3, 0)
        assert "orders.rejected" not in log

    def test_another_way_with_rejected_rows_is_refused(self, log: hw.Log) -> None:
        with pytest.raises(InvalidRequest):
            log.topic("orders", schema=ORDER).append(order(1), rejected="drop")  # type: ignore[arg-type]

    # Partitions -----------------------------------------------------------------------------------

    def test_rows_with_a_key_go_by_it_and_the_same_key_always_goes_to_the_same_partition(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER, key="order_id", partitions=4)

        topic.append(orders(100))
        for number in range(100):
            topic.append(order(number))

        found: dict[int, set[int]] = {}
        for row in topic.read(system_columns=True).to_pylist():
            found.setdefault(row["order_id"], set()).add(row["_hw_partition"])
        assert all(len(partitions) == 1 for partitions in found.values())
        assert set.union(*found.values()) == {0, 1, 2, 3}

    def test_rows_of_one_request_keep_their_order_in_every_partition(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER, key="order_id", partitions=4)

        appended = topic.append([order(n, amount) for amount in (1.0, 2.0, 3.0) for n in range(50)])

        assert sum(after - first for first, after in appended.offsets.values()) == 150
        for partition in range(4):
            rows = topic.read(partition=partition, system_columns=True).to_pylist()
            assert [row["_hw_offset"] for row in rows] == list(range(len(rows)))
            assert [row["amount"] for row in rows] == sorted(row["amount"] for row in rows)

    def test_rows_without_a_key_go_where_the_caller_says(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER, partitions=3)

        assert topic.append(orders(2), partition=2).offsets == {2: (0, 2)}
        assert topic.append(orders(1), partition=0).offsets == {0: (0, 1)}

    def test_rows_with_a_key_cannot_be_sent_elsewhere(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER, key="order_id", partitions=3)

        with pytest.raises(InvalidRequest):
            topic.append(order(1), partition=1)

    def test_rows_without_a_key_stay_with_a_partition_for_a_while_and_reach_them_all(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER, partitions=3)

        answers = [topic.append(orders(500)) for _ in range(20)]

        assert all(len(answer.offsets) == 1 for answer in answers), "rows of one call stay together"
        chosen = [next(iter(answer.offsets)) for answer in answers]
        assert set(chosen) == {0, 1, 2}
        assert sum(before != after for before, after in pairwise(chosen)) < 15

    # Upserts and deletes --------------------------------------------------------------------------

    def test_an_upsert_is_read_as_one_and_a_delete_as_its_key_and_nulls(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER, key="order_id")

        topic.upsert(order(1, 2.5, "x"))
        topic.upsert([order(1, 3.5, "y"), order(2)])
        deleted = topic.delete(1)

        assert deleted.rows == 1
        assert deleted.offsets == {0: (3, 4)}
        assert topic.read().to_pylist() == [
            {**order(1, 2.5, "x"), "_hw_op": "U"},
            {**order(1, 3.5, "y"), "_hw_op": "U"},
            {**order(2), "_hw_op": "U"},
            {"order_id": 1, "amount": None, "note": None, "_hw_op": "D"},
        ]

    @pytest.mark.parametrize(
        "keys",
        [[1, 2], (1, 2), [{"order_id": 1}, {"order_id": 2}], pa.table({"order_id": [1, 2]})],
        ids=["list", "tuple", "dicts", "table"],
    )
    def test_keys_to_delete_are_taken_in_this_form(self, log: hw.Log, keys: object) -> None:
        topic = log.topic("orders", schema=ORDER, key="order_id")
        topic.upsert(orders(3))

        topic.delete(keys)

        assert [(row["order_id"], row["_hw_op"]) for row in topic.read().to_pylist()[3:]] == [(1, "D"), (2, "D")]

    def test_a_delete_goes_to_the_partition_of_its_key(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER, key="order_id", partitions=8)
        topic.upsert(orders(50))

        topic.delete(list(range(50)))

        found: dict[int, set[int]] = {}
        for row in topic.read(system_columns=True).to_pylist():
            found.setdefault(row["order_id"], set()).add(row["_hw_partition"])
        assert all(len(partitions) == 1 for partitions in found.values())

    def test_a_key_may_be_of_several_columns(self, log: hw.Log) -> None:
        topic = log.topic("stock", schema={"shop": str, "item": int, "count": int}, key=("shop", "item"), partitions=3)

        topic.upsert([{"shop": "a", "item": 1, "count": 5}, {"shop": "b", "item": 1, "count": 6}])
        topic.delete({"shop": "a", "item": 1})
        with pytest.raises(RowsRefused, match="item"):
            topic.delete({"shop": "a"})

        assert topic.key == ("shop", "item")
        rows = topic.read().to_pylist()
        assert [(row["shop"], row["count"], row["_hw_op"]) for row in rows if row["shop"] == "a"] == [
            ("a", 5, "U"),
            ("a", None, "D"),
        ]

    def test_a_row_without_its_key_is_refused(self, log: hw.Log) -> None:
        topic = log.topic("people", schema={"name": "string", "age": "int64"}, key="name")

        with pytest.raises(RowsRefused, match="name"):
            topic.upsert({"name": None, "age": 1})
        with pytest.raises(RowsRefused, match="name"):
            topic.append([{"age": 1}])

        assert topic.read().to_pylist() == []

    def test_a_topic_without_a_key_has_neither_upserts_nor_deletes(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)

        with pytest.raises(InvalidRequest, match="key"):
            topic.upsert(order(1))
        with pytest.raises(InvalidRequest, match="key"):
            topic.delete(1)

        topic.append(order(1))
        assert "_hw_op" not in topic.read().schema.names

    # Sizes ----------------------------------------------------------------------------------------

    def test_rows_that_need_several_frames_are_one_write_and_are_read_back_as_they_were(self, place: Place) -> None:
        rows = [order(number, 1.5, "x" * (number * 7 % 1_000)) for number in range(60)]
        with place.open(TINY_FRAMES) as log:
            topic = log.topic("orders", schema=ORDER)

            appended = topic.append(rows)

            assert appended.offsets == {0: (0, 60)}
            assert appended.lsn - appended.first_lsn >= 5
            assert topic.read().to_pylist() == rows

    def test_small_requests_that_are_joined_are_read_back_one_by_one(self, place: Place) -> None:
        with place.open(TINY_FRAMES) as log:
            topic = log.topic("orders", schema=ORDER)

            futures = [topic.append_future(order(number, 1.5, "x" * 900)) for number in range(300)]
            answers = [future.result(timeout=30) for future in futures]

            assert [answer.offsets for answer in answers] == [{0: (n, n + 1)} for n in range(300)]
            assert numbers(topic) == list(range(300))

    def test_a_row_above_the_limit_of_a_frame_is_refused_by_its_number_and_nothing_is_appended(
        self, place: Place
    ) -> None:
        rows = [order(number, 1.5, "x" * 100) for number in range(40)]
        rows[17]["note"] = "x" * 5_000
        with place.open(TINY_FRAMES) as log:
            topic = log.topic("orders", schema=ORDER)

            with pytest.raises(TooLarge) as caught:
                topic.append(rows)

            assert caught.value.facts["row"] == 17
            assert caught.value.facts["limit_bytes"] == 4 * KIB
            assert numbers(topic) == []

    def test_a_row_above_the_limit_has_the_number_that_it_has_in_the_request_in_a_keyed_topic_too(
        self, place: Place
    ) -> None:
        rows = [order(number, 1.5, "x" * 100) for number in range(40)]
        rows[17]["note"] = "x" * 5_000
        with place.open(TINY_FRAMES) as log:
            topic = log.topic("orders", schema=ORDER, key="order_id", partitions=4)

            with pytest.raises(TooLarge) as caught:
                topic.append(rows)

            assert caught.value.facts["row"] == 17
            assert numbers(topic) == []

    def test_a_request_above_the_limit_of_a_write_is_refused_and_names_the_limit(self, place: Place) -> None:
        with place.open(TINY_FRAMES) as log:
            topic = log.topic("orders", schema=ORDER)

            with pytest.raises(TooLarge) as caught:
                topic.append([order(number, 1.5, "x" * 1_000) for number in range(100)])

            assert caught.value.facts["limit_bytes"] == 64 * KIB
            assert numbers(topic) == []


class RowsKept:
    def test_rows_are_there_after_a_close_and_offsets_go_on(self, place: Place) -> None:
        with place.open() as log:
            log.topic("orders", schema=ORDER, partitions=2).append(orders(3), partition=1)

        with place.open() as log:
            topic = log["orders"]
            assert numbers(topic) == [0, 1, 2]
            assert topic.append(order(3), partition=1).offsets == {1: (3, 4)}

        with place.open() as log:
            assert numbers(log["orders"]) == [0, 1, 2, 3]

    def test_a_key_goes_to_the_same_partition_after_a_close(self, place: Place) -> None:
        found = []
        for _ in range(2):
            with place.open() as log:
                topic = log.topic("orders", schema=ORDER, key="order_id", partitions=8)
                topic.append(orders(50))
        with place.open() as log:
            rows = log["orders"].read(system_columns=True).to_pylist()
            found = [(row["order_id"], row["_hw_partition"]) for row in rows]

        assert sorted(found[:50]) == sorted(found[50:])
        assert len(set(found)) == 50
