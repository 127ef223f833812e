"""Bodies of rows: what is encoded is decoded as it was, with its offsets, and what does not fit its header is named."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headwater.errors import CorruptData
from headwater.frames.codecs import encode_body
from headwater.frames.frame import Codec, Flag, Header, Kind, pack_chain_value
from headwater.topics.batches import OFFSET_COLUMN, FrameRows, decode_rows, encode_batch, encode_sparse

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("note", pa.string())])
BATCH = pa.record_batch([pa.array([1, 2, 3]), pa.array(["a", None, "c"])], schema=SCHEMA)
OFFSETS = pa.array([4, 7, 9], pa.int64())


def header(kind: Kind, body: bytes | memoryview, *, rows: int = 3, codec: Codec = Codec.NONE, flags: int = 0) -> Header:
    return Header(
        b"", 0, 0, 1, kind, codec, flags, len(body), 0, 0, 5, 0, 0, 1, 0, 1, 1, 0, 10, rows, 6, 1, 0, 0, 0, 0, 0, 0
    )


def test_the_rows_of_a_data_frame_come_back_and_their_offsets_are_dense() -> None:
    body = encode_batch(BATCH)

    found = decode_rows(header(Kind.DATA, body), body, SCHEMA)

    assert found == FrameRows(BATCH, None)
    assert found.batch.schema == SCHEMA


def test_a_slice_is_encoded_without_what_is_around_it() -> None:
    big = pa.record_batch([pa.array(range(100_000))], names=["id"])

    body = encode_batch(big.slice(50, 2))

    assert body.nbytes < 1_000
    assert decode_rows(header(Kind.DATA, body, rows=2), body, big.schema).batch.to_pydict() == {"id": [50, 51]}


def test_the_rows_of_a_sparse_frame_come_with_the_offset_of_each() -> None:
    body = memoryview(encode_sparse(BATCH, OFFSETS) + pack_chain_value(77))

    found = decode_rows(header(Kind.SPARSE, body, flags=Flag.REWRITTEN), body, SCHEMA)

    assert found.batch.equals(BATCH)
    assert found.offsets is not None and found.offsets.equals(OFFSETS)
    assert OFFSET_COLUMN not in found.batch.schema.names


def test_a_body_that_was_compressed_is_decoded() -> None:
    body = memoryview(encode_body(Codec.ZSTD, encode_batch(BATCH)))

    assert decode_rows(header(Kind.DATA, body, codec=Codec.ZSTD), body, SCHEMA).batch.equals(BATCH)


@pytest.mark.parametrize("body", [b"", b"no message at all", bytes(encode_batch(BATCH))[:40]])
def test_a_body_that_arrow_does_not_read_is_corrupt_data_with_its_lsn(body: bytes) -> None:
    with pytest.raises(CorruptData) as corrupt:
        decode_rows(header(Kind.DATA, body), memoryview(body), SCHEMA)

    assert corrupt.value.facts == {"lsn": 5}


def test_another_number_of_rows_than_the_header_says_is_corrupt_data() -> None:
    body = encode_batch(BATCH)

    with pytest.raises(CorruptData) as corrupt:
        decode_rows(header(Kind.DATA, body, rows=4), body, SCHEMA)

    assert corrupt.value.facts == {"lsn": 5, "rows": 3, "row_count": 4}
