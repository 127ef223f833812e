"""The digest by docs/formats/digest.md: of every type, in every encoding, cut in any way; and its text for Spark."""

from __future__ import annotations

import ast
import datetime
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import InvalidRequest
from headwater.lake.digest import ROWS_AT_ONCE, combine, digest_of
from headwater.lake.digest_words import words_of
from headwater.lake.work import Block, Digest
from tests.unit.lake import plain_digest
from tests.unit.lake.digest_columns import SYSTEM, array_of, column_types, table_of, tables, values_of

PAGE = Path(__file__).resolve().parents[3] / "docs/formats/digest.md"
TYPES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "fixed[4]": pa.binary(4),
    "uuid": pa.uuid(),
    "decimal(10, 2)": pa.decimal128(10, 2),
    "decimal(18, 2)": pa.decimal128(18, 2),
    "decimal(19, 2)": pa.decimal128(19, 2),
    "decimal(38, 0)": pa.decimal128(38, 0),
    "struct<a: int, b: string>": pa.struct([("a", pa.int32()), ("b", pa.string())]),
    "list<int>": pa.list_(pa.int32()),
    "list<list<int>>": pa.list_(pa.list_(pa.int32())),
    "map<string, int>": pa.map_(pa.string(), pa.int32()),
}


def values_on_the_page(type_: pa.DataType, text: str) -> list[Any]:
    """What a cell of the page's table says, as plain_digest.py names it."""
    types = pa.types
    if text == "0.0 and -0.0":
        return [0.0, -0.0]
    if text == "NaN, any":
        return [float("nan"), -float("nan"), float(np.uint64(0x7FF0000000000001).view(np.float64))]
    if text.startswith("bytes "):
        return [bytes.fromhex(text.removeprefix("bytes "))]
    if isinstance(type_, pa.UuidType):
        return [bytes.fromhex(text.replace("-", ""))]
    if types.is_string(type_):
        return ["" if text == "(empty)" else text]
    if types.is_floating(type_):
        return [float(text)]
    if types.is_decimal(type_):
        return [int(Decimal(text).scaleb(type_.scale))]
    if types.is_date(type_):
        return [(datetime.date.fromisoformat(text) - datetime.date(1970, 1, 1)).days]
    if types.is_timestamp(type_):
        epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC if text.endswith("Z") else None)
        return [(datetime.datetime.fromisoformat(text) - epoch) // datetime.timedelta(microseconds=1)]
    value = ast.literal_eval(re.sub(r"\bnull\b", "None", text.replace("true", "True")))
    if types.is_map(type_):
        return [list(value.items())]
    if types.is_struct(type_):  # {7, "eu"} is a set to Python, which forgets the order
        return [ast.literal_eval(re.sub(r"\bnull\b", "None", text).replace("{", "(").replace("}", ")"))]
    return [value]


def vectors() -> list[tuple[str, str, int]]:
    section = PAGE.read_text().split("## Test vectors")[1].split("## Worked")[0]
    return [
        (kind, text, int(word, 16))
        for kind, text, word in re.findall(r"^\| `(.+?)` \| (.+?) \| `(0x\w+)` \|$", section, re.MULTILINE)
    ]


@pytest.mark.parametrize(("kind", "text", "word"), vectors())
def test_a_value_of_the_page_has_the_word_that_stands_beside_it(kind: str, text: str, word: int) -> None:
    type_ = TYPES[kind]

    for value in values_on_the_page(type_, text):
        assert plain_digest.word(type_, value) == word
        assert words_of(array_of(type_, [value])).tolist() == [word]
        assert words_of(array_of(type_, [None, value])).tolist() == [plain_digest.NULL, word]


def test_the_page_has_a_vector_of_every_type() -> None:
    assert {kind for kind, _, _ in vectors()} == set(TYPES)


def test_the_worked_example_of_the_page_is_right() -> None:
    text = PAGE.read_text().split("## Worked example")[1].split("## In Spark")[0]
    steps = [
        [int(number, 16) for number in re.findall(r"0x[0-9A-F]{16}", line)]
        for line in text.splitlines()
        if "| `" in line
    ]
    assert all(len(step) == 3 for step in steps) and len(steps) == 8

    for word, before, after in steps:
        assert plain_digest.xxh64(word.to_bytes(8, "little"), before) == after

    at = 1_794_721_800_000_000
    types = [pa.int32(), pa.string(), pa.float64()]
    first, second = (7, "eu", None, 0, 12, 3, 65_537, at), (8, "", 1.5, 0, 12, 3, 65_538, at)
    assert digest_of(table_of(types, [first])) == Digest((Block(3, 1, 1, steps[-1][2]),))
    row, total = (
        int(number, 16) for number in re.findall(r"0x[0-9A-F]{16}", text.splitlines()[-1] or text.splitlines()[-2])
    )
    assert digest_of(table_of(types, [second])).total == row
    assert digest_of(table_of(types, [first, second])) == Digest((Block(3, 1, 2, total),))


# ------------------------------------------------------------------------------------------- any type, any rows


def plain(schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> Digest:
    found = plain_digest.digest(schema, rows)
    return Digest(tuple(Block(*place, *found[place]) for place in sorted(found)))


@settings(max_examples=300, deadline=None)
@given(tables())
def test_rows_of_any_types_have_the_digest_of_the_page(drawn: tuple[pa.Schema, list[tuple[Any, ...]]]) -> None:
    schema, rows = drawn

    found = digest_of(table_of(schema.types[: -len(SYSTEM)], rows))

    assert found == plain(schema, rows)
    assert found.rows == len(rows)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_slice_of_a_column_has_the_words_of_its_own_values(data: st.DataObject) -> None:
    type_ = data.draw(column_types())
    values = data.draw(st.lists(values_of(type_), min_size=1, max_size=12))
    start = data.draw(st.integers(0, len(values) - 1))
    stop = data.draw(st.integers(start, len(values)))

    words = words_of(array_of(type_, values).slice(start, stop - start))

    assert words.tolist() == [plain_digest.word(type_, value) for value in values[start:stop]]


@settings(max_examples=50, deadline=None)
@given(tables(rows_max=20), st.randoms(use_true_random=False))
def test_order_chunks_and_workers_do_not_change_a_digest(
    drawn: tuple[pa.Schema, list[tuple[Any, ...]]], order: random.Random
) -> None:
    schema, rows = drawn
    table = table_of(schema.types[: -len(SYSTEM)], rows)
    whole = digest_of(table)

    shuffled = order.sample(rows, len(rows))
    again = table_of(schema.types[: -len(SYSTEM)], shuffled)
    cut = sorted(order.choices(range(len(rows) + 1), k=2))
    parts = [again.slice(start, stop - start) for start, stop in zip([0, *cut], [*cut, len(rows)], strict=True)]

    assert digest_of(pa.concat_tables(parts)) == whole
    assert combine([digest_of(part) for part in parts]) == whole


def test_rows_of_many_blocks_and_partitions_are_told_apart_and_more_rows_than_are_mixed_at_once() -> None:
    # The sum over a block crosses the batches that are mixed at once, and partitions change with every row.
    count = ROWS_AT_ONCE + 11
    places = np.arange(count)
    table = pa.table(
        {
            "c0": pa.array(places),
            "_hw_partition": pa.array((places % 5).astype(np.int32)),
            "_hw_offset": pa.array(65_530 + places // 5),
        }
    )

    found = digest_of(table)

    rows = [tuple(row.values()) for row in table.to_pylist()]
    assert found == plain(table.schema, rows)
    assert [(block.partition, block.block) for block in found.blocks] == [(p, b) for p in range(5) for b in (0, 1)]
    assert digest_of(table.to_batches()[0]) == found


def test_no_rows_have_an_empty_digest() -> None:
    empty = table_of([pa.int32(), pa.list_(pa.string())], [])

    assert digest_of(empty) == Digest()
    assert digest_of(pa.Table.from_batches([], empty.schema)) == Digest()
    assert combine([]) == combine([Digest()]) == Digest()
    assert (digest_of(empty).rows, str(digest_of(empty))) == (0, "0" * 16)


def test_totals_are_added_modulo_two_to_the_64() -> None:
    one, two = Digest((Block(0, 0, 1, 2**64 - 1),)), Digest((Block(0, 0, 2, 3), Block(1, 0, 1, 2**64 - 1)))

    assert combine([two, one]) == Digest((Block(0, 0, 3, 2), Block(1, 0, 1, 2**64 - 1)))
    assert combine([two, one]).total == 1


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_change_of_any_value_changes_the_digest(data: st.DataObject) -> None:
    type_ = data.draw(column_types())
    first, second = data.draw(values_of(type_)), data.draw(values_of(type_))
    system = (0, 1, 0, 0, 1)

    one, two = (digest_of(table_of([type_], [(value, *system)])) for value in (first, second))

    same = plain_digest.word(type_, first) == plain_digest.word(type_, second)
    assert (one == two) == same
    assert same == same_value(first, second)


def same_value(a: Any, b: Any) -> bool:
    """As the page has it: NaN is NaN, and True is not told from 1 because no column has both."""
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(same_value(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float) and a != a and b != b:  # noqa: PLR0124  NaN
        return True
    return bool(a == b)


# ------------------------------------------------------------------------------------------------- encodings


@pytest.mark.parametrize(
    ("given", "as_in_the_table"),
    [
        (pa.array([-128, None, 127], pa.int8()), pa.int32()),
        (pa.array([-(2**15), None, 2**15 - 1], pa.int16()), pa.int32()),
        (pa.array([0, None, 255], pa.uint8()), pa.int32()),
        (pa.array([0, None, 2**16 - 1], pa.uint16()), pa.int32()),
        (pa.array([0, None, 2**32 - 1], pa.uint32()), pa.int64()),
        (pa.array([-1, None, 1], pa.int32()), pa.int64()),
        (pa.array(np.array([1.5, -0.0, np.nan, np.inf, 6e-8], np.float16)), pa.float32()),
        (pa.array([1.5, None, -0.0, 0.1], pa.float32()), pa.float64()),
        (pa.array(["a", None, "ß" * 50]), pa.large_string()),
        (pa.array([b"a", None, b"\0" * 50]), pa.large_binary()),
        (pa.array([b"ab", None, b"\0\0"], pa.binary(2)), pa.binary()),
        (pa.array([[1], None, [], [None, 2]], pa.list_(pa.int32())), pa.large_list(pa.int64())),
        (pa.array([1, None, -1], pa.timestamp("s")), pa.timestamp("us")),
        (pa.array([1, None, -1], pa.timestamp("ms", "UTC")), pa.timestamp("us", "UTC")),
        (pa.array([1, None, -1], pa.timestamp("us", "Europe/Zurich")), pa.timestamp("us", "UTC")),
        (pa.array([Decimal("1.5"), None], pa.decimal128(5, 1)), pa.decimal128(18, 1)),
        (pa.array([Decimal("1.5"), None], pa.decimal128(19, 1)), pa.decimal128(38, 1)),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
def test_a_value_has_one_word_in_every_encoding(given: pa.Array, as_in_the_table: pa.DataType) -> None:
    assert words_of(given).tolist() == words_of(given.cast(as_in_the_table)).tolist()


def test_a_decimal_of_more_than_18_digits_has_another_word_than_one_of_less() -> None:
    values = pa.array([Decimal("1.5")], pa.decimal128(18, 1))

    assert words_of(values).tolist() != words_of(values.cast(pa.decimal128(19, 1))).tolist()


def test_what_arrow_keeps_below_a_null_does_not_count() -> None:
    # A mask laid over values leaves the values where they are, with lists that have items and structs with fields.
    hidden = pa.array([False, True, False])
    numbers = pa.array([1, 2, 3], pa.int64())
    masked_numbers = pa.Array.from_buffers(pa.int64(), 3, [pa.py_buffer(b"\x05"), numbers.buffers()[1]])
    lists = pa.ListArray.from_arrays([0, 1, 3, 4], pa.array([1, 2, 3, 4]), mask=hidden)
    maps = pa.MapArray.from_arrays([0, 1, 3, 4], pa.array(list("abcd")), pa.array([1, 2, 3, 4]), mask=hidden)
    structs = pa.StructArray.from_arrays([numbers], names=["a"], mask=hidden)
    assert lists.values.to_pylist() == [1, 2, 3, 4] and structs.field(0).to_pylist() == [1, 2, 3]

    for column in (masked_numbers, lists, maps, structs):
        clean = pa.array(column.to_pylist(), column.type)
        assert words_of(column).tolist() == words_of(clean).tolist()
        assert words_of(column).tolist()[1] == plain_digest.NULL
        assert words_of(column.slice(1)).tolist() == words_of(clean).tolist()[1:]


def test_uuids_inside_other_types_are_hashed_as_text_too() -> None:
    ids = [bytes(range(16)), b"\xff" * 16, bytes(16)]
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array(ids, pa.binary(16)))
    lists = pa.ListArray.from_arrays([0, 1, 3], uuids)
    structs = pa.StructArray.from_arrays([uuids], names=["id"])

    assert words_of(lists).tolist() == [plain_digest.word(lists.type, value) for value in ([ids[0]], ids[1:])]
    assert words_of(structs).tolist() == [plain_digest.word(structs.type, (value,)) for value in ids]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1], pa.time64("us")),
        pa.array([1], pa.duration("us")),
        pa.array([1], pa.timestamp("ns")),
        pa.array([1], pa.uint64()),
        pa.array([1], pa.date64()),
        pa.nulls(1),
        pa.array(["a"]).dictionary_encode(),
        pa.array([[1]], pa.list_(pa.int32(), 1)),
        pa.array([Decimal(1)], pa.decimal256(40, 0)),
        pa.array([{"a": 1}], pa.struct([("a", pa.time64("us"))])),
    ],
    ids=lambda column: str(column.type),
)
def test_a_type_that_no_table_has_is_refused(column: pa.Array) -> None:
    with pytest.raises(InvalidRequest, match="has no digest"):
        words_of(column)


# -------------------------------------------------------------------------------------- what must be installed


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()


def test_adding_digests_needs_neither_numpy_nor_polars() -> None:
    loaded = run(
        "import sys; sys.modules['numpy'] = sys.modules['polars'] = sys.modules['polars_hash'] = None\n"
        "from headwater.lake.digest import combine; from headwater.lake.work import Digest, Block\n"
        "print(combine([Digest((Block(0, 0, 1, 2),))]).total)"
    )

    assert loaded == "2"


def test_a_digest_without_polars_hash_names_what_to_install() -> None:
    said = run(
        "import sys, pyarrow as pa; sys.modules['polars_hash'] = None\n"
        "from headwater.lake.digest import digest_of; from headwater.errors import InvalidRequest\n"
        "try: digest_of(pa.table({'a': [1]}))\n"
        "except InvalidRequest as error: print(error)"
    )

    assert "polars_hash" in said and "pip install 'headwater[lake]'" in said
