"""The latest row of each key, held against a plain dict."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.lake.latest import latest_of, latest_rows, without_keys

# Of every type that a key may have: values that are equal in one sense and not in another, and the ends of its range.
KEY_VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [False, True]),
    (pa.int32(), [0, -1, 2**31 - 1]),
    (pa.int64(), [0, -1, 2**63 - 1, -(2**63)]),
    (pa.date32(), [date(1970, 1, 1), date(1, 1, 1), date(9999, 12, 31)]),
    (pa.timestamp("us"), [datetime.fromisoformat(text) for text in ("1970-01-01", "1969-12-31T23:59:59.999999")]),
    (pa.timestamp("us", "UTC"), [datetime(2026, 11, 15, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)]),
    (pa.decimal128(5, 2), [Decimal("0.00"), Decimal("-0.01"), Decimal("999.99")]),
    (pa.decimal128(38, 0), [Decimal(0), Decimal(2**64), Decimal(10**38 - 1)]),
    (pa.string(), ["", "a", "A", "a\0", "é", "e\u0301"]),
    (pa.binary(), [b"", b"\0", b"\0\0", b"a"]),
    (pa.binary(3), [b"\0\0\0", b"abc", b"\xff\xff\xff"]),
]
NAMES = ["id", ".a", "[0]"]
NOTE = pa.list_(pa.struct([pa.field("deep", pa.map_(pa.string(), pa.int32()))]))

Key = tuple[Any, ...]
Change = tuple[Key, int, int, str, Any]
"""Its key, LSN, offset, operation and note."""


def table(key: pa.Schema, changes: Sequence[Change], chunk_rows: int, *, with_operation: bool = True) -> pa.Table:
    columns = [pa.array([each[0][place] for each in changes], field.type) for place, field in enumerate(key)]
    columns += [
        pa.array([each[4] for each in changes], NOTE),
        pa.array([each[1] for each in changes], pa.int64()),
        pa.array([each[2] for each in changes], pa.int64()),
    ]
    names = [*key.names, "note", "_hw_lsn", "_hw_offset"]
    if with_operation:
        columns.append(pa.array([each[3] for each in changes], pa.string()))
        names.append("_hw_op")
    rows = pa.table(columns, names=names)
    return pa.concat_tables([rows.slice(first, chunk_rows) for first in range(0, max(len(changes), 1), chunk_rows)])


def contents(rows: pa.Table, key: pa.Schema) -> dict[Key, tuple[Any, ...]]:
    """By key; a key that stands in it twice fails."""
    found = {
        tuple(row[name] for name in key.names): (row["_hw_lsn"], row["_hw_offset"], row["note"])
        for row in rows.to_pylist()
    }
    assert len(found) == rows.num_rows
    return found


@st.composite
def keyed_changes(draw: st.DrawFn) -> tuple[pa.Schema, list[Change], list[Change], int]:
    """A key of one to three columns, a state, changes after it in any order, and how long a chunk is."""
    chosen = draw(st.lists(st.sampled_from(KEY_VALUES), min_size=1, max_size=3))
    key = pa.schema([pa.field(NAMES[place], type_) for place, (type_, _) in enumerate(chosen)])
    keys = st.tuples(*(st.sampled_from(values) for _, values in chosen))
    notes: st.SearchStrategy[Any] = (
        st.none() | st.just([]) | st.lists(st.none() | st.just({"deep": [("x", 1)]}), max_size=2)
    )
    state = [(each, 1, place, "U", draw(notes)) for place, each in enumerate(draw(st.lists(keys, unique=True)))]
    places = draw(st.lists(st.tuples(st.integers(2, 6), st.integers(0, 9)), unique=True, max_size=20))
    changes = [(draw(keys), lsn, offset, draw(st.sampled_from("UD")), draw(notes)) for lsn, offset in places]
    return key, state, changes, draw(st.integers(1, 8))


@settings(max_examples=200, deadline=None)
@given(keyed_changes())
def test_the_rows_of_a_keyed_topic_are_those_that_a_dict_would_hold(
    given: tuple[pa.Schema, list[Change], list[Change], int],
) -> None:
    key, state, changes, chunk_rows = given
    expected = {each[0]: (each[1], each[2], each[4]) for each in state}
    for each in sorted(changes, key=lambda change: change[1:3]):
        if each[3] == "U":
            expected[each[0]] = (each[1], each[2], each[4])
        else:
            expected.pop(each[0], None)

    state_rows = table(key, state, chunk_rows, with_operation=False)
    parts = [state_rows.slice(first, chunk_rows) for first in range(0, state_rows.num_rows, chunk_rows)]
    found = list(latest_rows(parts, table(key, changes, chunk_rows), key.names))

    assert all(each.num_rows and each.schema.equals(state_rows.schema) for each in found)
    assert contents(pa.concat_tables([state_rows.slice(0, 0), *found]), key) == _with_pairs(expected)


def _with_pairs(rows: dict[Key, tuple[Any, ...]]) -> dict[Key, tuple[Any, ...]]:
    """The notes as Arrow gives them back."""
    return {key: (lsn, offset, pa.array([note], NOTE).to_pylist()[0]) for key, (lsn, offset, note) in rows.items()}


ID = pa.schema([pa.field("id", pa.int64())])


def test_of_several_changes_of_a_key_in_one_frame_the_one_with_the_greatest_offset_is_the_last() -> None:
    changes: list[Change] = [((1,), 7, 2, "D", []), ((1,), 7, 0, "U", []), ((2,), 7, 1, "U", [])]

    found = latest_of(table(ID, changes, 2), ["id"])

    assert found.select(["id", "_hw_offset", "_hw_op"]).to_pylist() == [
        {"id": 1, "_hw_offset": 2, "_hw_op": "D"},
        {"id": 2, "_hw_offset": 1, "_hw_op": "U"},
    ]


def test_a_row_of_a_change_table_that_no_landing_brought_is_no_change() -> None:
    changes: list[Any] = [((1,), None, 2, "D", []), ((2,), 0, 0, "D", []), ((3,), 4, 1, "U", [])]
    state: list[Change] = [((1,), 1, 0, "U", []), ((2,), 1, 1, "U", [])]

    found = latest_rows([table(ID, state, 9, with_operation=False)], table(ID, changes, 9), ["id"])

    assert sorted(pa.concat_tables(found)["id"].to_pylist()) == [1, 2, 3]


def test_without_changes_the_state_is_given_out_as_it_lies() -> None:
    state = table(ID, [((1,), 1, 0, "U", [])], 9, with_operation=False)

    (found,) = latest_rows([state], table(ID, [], 9), ["id"])

    assert found.equals(state)
    assert list(latest_rows([], table(ID, [], 9), ["id"])) == []


def test_the_state_is_joined_in_tables_of_as_many_rows_as_keys_have_changed() -> None:
    state = [table(ID, [((number,), 1, number, "U", [])], 9, with_operation=False) for number in range(10)]
    changes: list[Change] = [((number,), 2, number, "D", []) for number in range(100, 104)]

    found = list(latest_rows(state, table(ID, changes, 9), ["id"]))

    assert [each.num_rows for each in found] == [4, 4, 2]


def test_a_row_without_a_key_is_no_key_that_changed() -> None:
    rows = pa.table({"id": pa.array([None, 1, 2], pa.int64())})

    found = without_keys(rows, pa.table({"id": pa.array([1], pa.int64())}), ["id"])

    assert found["id"].to_pylist() == [None, 2]


def test_a_million_keys_take_less_than_a_second() -> None:
    count = 1_000_000
    numbers = np.random.default_rng(6).permutation(2 * count)
    system = {"_hw_lsn": np.arange(count) // 1000 + 1, "_hw_offset": np.arange(count)}
    state = pa.table({"id": numbers[:count], **system})
    changes = pa.table({"id": numbers[count // 2 : count // 2 + count], **system, "_hw_op": ["U", "D"] * (count // 2)})

    begun = time.perf_counter()
    found = pa.concat_tables(latest_rows([state], changes, ["id"]))
    took_s = time.perf_counter() - begun

    assert found.num_rows == count
    # It takes under half a second on two free cores; the machine that runs the tests may have other things to do.
    assert took_s < 4
