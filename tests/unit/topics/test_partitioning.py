"""The partition of a key by docs/formats/partitioning.md, the same for ever, and the split of a batch by it."""

from __future__ import annotations

import datetime
import decimal
import re
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.topics import partitioning
from headwater.topics.partitioning import hash_keys, partition_ids, split_by_partition

PAGE = Path(__file__).resolve().parents[3] / "docs/formats/partitioning.md"
UTC = datetime.UTC

# The formula once more, from its page and in the plainest Python, sharing nothing with the product.


def plain_mix(x: int) -> int:
    x ^= x >> 33
    x = x * 0xFF51AFD7ED558CCD % 2**64
    x ^= x >> 33
    x = x * 0xC4CEB9FE1A85EC53 % 2**64
    return x ^ x >> 33


def plain_hash_of_bytes(data: bytes) -> int:
    total, power = len(data), 1
    for byte in data:
        power = power * 0x9E3779B97F4A7C15 % 2**64
        total += byte * power
    return plain_mix(total % 2**64)


def plain_hash(value: object) -> int:
    if isinstance(value, str):
        return plain_hash_of_bytes(value.encode())
    if isinstance(value, bytes):
        return plain_hash_of_bytes(value)
    if isinstance(value, decimal.Decimal):  # of a column with two decimals
        return plain_hash_of_bytes(int(value.scaleb(2)).to_bytes(16, "little", signed=True))
    if isinstance(value, datetime.datetime):
        return plain_mix(
            (value - datetime.datetime(1970, 1, 1, tzinfo=UTC)) // datetime.timedelta(microseconds=1) % 2**64
        )
    if isinstance(value, datetime.date):
        return plain_mix((value - datetime.date(1970, 1, 1)).days % 2**64)
    assert isinstance(value, int)
    return plain_mix(int(value) % 2**64)


def plain_hash_of_key(key: Iterable[object]) -> int:
    first, *further = key
    h = plain_hash(first)
    for value in further:
        h = plain_mix((h * 0x9E3779B97F4A7C15 + plain_hash(value)) % 2**64)
    return h


def column(values: Sequence[object], type_: pa.DataType) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(list(values), type_)], ["k"])


# The vectors, never changed --------------------------------------------------------------------------------------

VECTORS: list[tuple[str, object, pa.DataType, int]] = [
    ("int64 zero", 0, pa.int64(), 0x0000000000000000),
    ("int8", 1, pa.int8(), 0xB456BCFC34C2CB2C),
    ("int32", -1, pa.int32(), 0x64B5720B4B825F21),
    ("int64", 9223372036854775807, pa.int64(), 0xABB93DF0A930EDEA),
    ("uint32", 4294967295, pa.uint32(), 0xCC71ECDA2AA8BCC6),
    ("bool", True, pa.bool_(), 0xB456BCFC34C2CB2C),
    ("date", datetime.date(2026, 11, 15), pa.date32(), 0x40C7160CB2B9F92C),
    ("timestamp", datetime.datetime(2026, 11, 15, 5, 50, tzinfo=UTC), pa.timestamp("us", "UTC"), 0x0E1CC9EE160EC075),
    ("empty text", "", pa.string(), 0x0000000000000000),
    ("a", "a", pa.string(), 0x948677EF838BB4E7),
    ("order", "order-1", pa.string(), 0x38999ABF855F433D),
    ("not ASCII", "Zürich", pa.string(), 0x26A1B74136E75D18),
    ("uuid", "123e4567-e89b-12d3-a456-426614174000", pa.string(), 0xE5C83F7E53ED8EE8),
    ("a zero byte", b"\0", pa.binary(), 0xB456BCFC34C2CB2C),
    ("two zero bytes", b"\0\0", pa.binary(), 0x3ABF2A20650683E7),
    ("fixed bytes", bytes(range(16)), pa.binary(16), 0x1C22A837196C0D34),
    ("decimal", decimal.Decimal("12.34"), pa.decimal128(10, 2), 0x96C64E264BF64669),
    ("negative decimal", decimal.Decimal("-12.34"), pa.decimal128(38, 2), 0xB717C719918DB330),
]


def test_hashes_are_those_that_were_published() -> None:
    for name, value, type_, expected in VECTORS:
        assert hash_keys(column([value], type_), ["k"]).to_pylist() == [expected], name
        # Many rows go another way than few.
        assert set(hash_keys(column([value] * 100, type_), ["k"]).to_pylist()) == {expected}, name
        assert plain_hash(value) == expected, name


def test_the_page_and_the_vectors_are_the_same() -> None:
    line = re.compile(r"^\| `([^`]+)` \| .* \| `(0x[0-9A-F]{16})` \| (\d+) \|$", re.MULTILINE)

    on_the_page = line.findall(PAGE.read_text("utf-8"))

    assert len(on_the_page) == len(VECTORS) + 2
    for (type_name, written, partition), (_, _, type_, expected) in zip(on_the_page, VECTORS, strict=False):
        assert (type_name, int(written, 16), int(partition)) == (str(type_), expected, expected % 16)


def test_the_order_of_key_columns_matters() -> None:
    batch = pa.record_batch({"a": [7], "b": ["eu"]})

    forward, backward = hash_keys(batch, ["a", "b"])[0].as_py(), hash_keys(batch, ["b", "a"])[0].as_py()

    assert (forward, backward) == (plain_hash_of_key([7, "eu"]), plain_hash_of_key(["eu", 7]))
    assert (forward, backward) == (COMPOSITE_AB, COMPOSITE_BA)


COMPOSITE_AB = 0x4D5AB56232F8893B
COMPOSITE_BA = 0x8D841A6E7C08E812

# The formula, in any shape of data -----------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.binary(max_size=40), max_size=40), st.integers(0, 5), st.integers(0, 5), st.sampled_from([7, 1 << 16])
)
def test_bytes_hash_by_the_formula_in_slices_and_blocks_of_any_size(
    values: list[bytes], before: int, after: int, block: int
) -> None:
    batch = column([b"before"] * before + values + [b"after"] * after, pa.binary()).slice(before, len(values))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitioning, "_BLOCK_BYTES", block)
        patch.setattr(partitioning, "_FEW_ROWS", 2)
        partitioning._powers.cache_clear()
        hashes = hash_keys(batch, ["k"]).to_pylist()
    partitioning._powers.cache_clear()

    assert hashes == [plain_hash(value) for value in values]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(-(2**63), 2**63 - 1),
            st.text(max_size=20),
            st.datetimes(timezones=st.just(UTC)),
            st.decimals(-(10**9), 10**9, places=2),
            st.dates(),
            st.booleans(),
        ),
        max_size=30,
    ),
    st.integers(0, 4),
)
def test_keys_of_all_types_hash_by_the_formula_in_slices(rows: list[tuple[object, ...]], skipped: int) -> None:
    types = [pa.int64(), pa.string(), pa.timestamp("us", "UTC"), pa.decimal128(20, 2), pa.date32(), pa.bool_()]
    columns = [pa.array([row[place] for row in rows], type_) for place, type_ in enumerate(types)]
    batch = pa.RecordBatch.from_arrays(columns, list("abcdef")).slice(min(skipped, len(rows)))

    assert hash_keys(batch, list("abcdef")).to_pylist() == [plain_hash_of_key(row) for row in rows[skipped:]]
    for place, name in enumerate("abcdef"):
        assert hash_keys(batch, [name]).to_pylist() == [plain_hash(row[place]) for row in rows[skipped:]]


def test_a_key_longer_than_a_block_hashes_like_any_other() -> None:
    values: list[object] = ["short", "x" * 200_000, "", "é" * 40_000, "y" * 65_536, "z" * 65_537]

    assert hash_keys(column(values, pa.string()), ["k"]).to_pylist() == [plain_hash(value) for value in values]


def test_keys_of_one_value_and_of_empty_texts_only() -> None:
    assert hash_keys(column([""] * 20, pa.string()), ["k"]).to_pylist() == [0] * 20
    assert hash_keys(column([], pa.string()), ["k"]).to_pylist() == []
    assert partition_ids(column([], pa.int64()), ["k"], 4).to_pylist() == []


def test_empty_text_and_zero_bytes_are_different_keys() -> None:
    hashes = hash_keys(column([b"\0" * length for length in range(20)], pa.binary()), ["k"]).to_pylist()

    assert len(set(hashes)) == 20


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (pa.int8(), pa.int64()),
        (pa.int16(), pa.int32()),
        (pa.uint8(), pa.int16()),
        (pa.uint32(), pa.int64()),
        (pa.decimal128(4, 0), pa.decimal128(38, 0)),
    ],
)
def test_widening_a_key_moves_no_row(narrow: pa.DataType, wide: pa.DataType) -> None:
    values: list[object] = [0, 1, 99, 100]

    assert hash_keys(column(values, narrow), ["k"]).equals(hash_keys(column(values, wide), ["k"]))
    assert hash_keys(column(values * 5, narrow), ["k"]).equals(hash_keys(column(values * 5, wide), ["k"]))


def test_a_null_key_is_our_own_mistake() -> None:
    with pytest.raises(AssertionError, match="never null"):
        hash_keys(column([1, None], pa.int64()), ["k"])


# Partitions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param([str(number) for number in range(100_000)], id="short texts"),
        pytest.param(list(range(100_000)), id="sequential numbers"),
        pytest.param([number * 1024 for number in range(100_000)], id="numbers with equal low bits"),
        pytest.param(
            [str(uuid.UUID(int=number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128)) for number in range(100_000)],
            id="uuids",
        ),
        pytest.param([f"customer-{number:012d}" for number in range(100_000)], id="long texts that differ late"),
    ],
)
@pytest.mark.parametrize("partitions", [16, 12])
def test_keys_spread_evenly(keys: list[object], partitions: int) -> None:
    batch = pa.record_batch({"k": keys})

    counts = [entry["counts"] for entry in partition_ids(batch, ["k"], partitions).value_counts().to_pylist()]

    # The standard deviation of a fair share is 1.2 % of it (16 partitions): four of them is far out.
    assert len(counts) == partitions
    assert max(counts) < 1.05 * 100_000 / partitions
    assert min(counts) > 0.95 * 100_000 / partitions


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=30), st.integers(1, 10_000))
def test_a_partition_is_the_hash_modulo_their_number(keys: list[object], partitions: int) -> None:
    ids = partition_ids(column(keys, pa.int64()), ["k"], partitions)

    assert ids.to_pylist() == [plain_hash(key) % partitions for key in keys]
    assert ids.type == pa.int32()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 6), max_size=60))
def test_a_split_loses_nothing_and_keeps_the_order_of_each_partition(ids: list[int]) -> None:
    batch = pa.record_batch(
        {"number": pa.array(range(len(ids)), pa.int64()), "text": [f"row {n}" for n in range(len(ids))]}
    )

    parts = split_by_partition(batch, pa.array(ids, pa.int32()), 7)

    assert [partition for partition, _ in parts] == sorted(set(ids))
    for partition, part in parts:
        numbers = [number for number, id_ in enumerate(ids) if id_ == partition]
        assert part["number"].to_pylist() == numbers
        assert part["text"].to_pylist() == [f"row {number}" for number in numbers]


def test_a_batch_of_one_partition_is_not_copied() -> None:
    batch = pa.record_batch({"k": [1, 2, 3]})

    assert split_by_partition(batch, pa.array([5, 5, 5], pa.int32()), 8) == [(5, batch)]
    assert split_by_partition(batch, pa.array([5, 5, 5], pa.int32()), 8)[0][1] is batch


def test_a_partition_that_does_not_exist_is_our_own_mistake() -> None:
    with pytest.raises(AssertionError, match="does not have"):
        split_by_partition(pa.record_batch({"k": [1]}), pa.array([8], pa.int32()), 8)
