"""The golden files of records and rows are read, by two readers, as the facts beside them say.

The second reader stands here: records by their tables in docs/formats/records.md, rows from the words of rows.md and
of Arrow's own columnar format, without pyarrow.  A golden file is never made again; make_v1_records.py made them.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from headwater.frames.frame import Flag, Kind
from headwater.log.device import Frame as LogFrame
from headwater.log.index import partition_key
from headwater.metadata.records import (
    CommittedOffset,
    OffsetsRecord,
    Part,
    ProducerRecord,
    SchemaRecord,
    SequenceEntry,
    SourceRecord,
    pack_record,
    unpack_offsets,
    unpack_producer,
    unpack_schema_record,
    unpack_sequences,
    unpack_source,
)
from headwater.metadata.shard_state import ShardState, fold_frames
from headwater.topics.batches import decode_rows
from headwater.topics.schema import unpack_schema
from tests.formats import make_v1_records
from tests.formats.independent_decoder import FLAGS, KINDS, Frame, cells, hexdump_bytes, read_segment
from tests.formats.make_v1_journal import readable
from tests.formats.make_v1_records import DIRECTORY as GOLDEN
from tests.formats.segments import walk
from tests.formats.test_golden_journal import unpack_msgpack

NAMES = ["records.seg", "rewritten.seg"]
UNPACK: dict[str, Callable[[bytes], Any]] = {
    "SCHEMA": unpack_schema_record,
    "PRODUCER": unpack_producer,
    "SEQUENCES": unpack_sequences,
    "OFFSETS": unpack_offsets,
    "SOURCE": unpack_source,
}


def golden(name: str) -> bytes:
    return (GOLDEN / name).read_bytes()


def facts_of(name: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    return facts


# The second reader ----------------------------------------------------------------------------------------------------


class Table:
    """A table of a flatbuffer: fields by their number, as the flatbuffers' own words have it."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at
        self.vtable = at - struct.unpack_from("<i", data, at)[0]

    def position(self, field: int) -> int:
        slot = 4 + 2 * field
        (size,) = struct.unpack_from("<H", self.data, self.vtable)
        (offset,) = struct.unpack_from("<H", self.data, self.vtable + slot) if slot < size else (0,)
        return self.at + offset if offset else 0

    def number(self, field: int, kind: str) -> int:
        at = self.position(field)
        return int(struct.unpack_from("<" + kind, self.data, at)[0]) if at else 0

    def target(self, field: int) -> int:
        at = self.position(field)
        return at + int(struct.unpack_from("<I", self.data, at)[0]) if at else 0

    def pairs(self, field: int) -> list[tuple[int, int]]:
        """A vector of structs of two int64."""
        at = self.target(field)
        (count,) = struct.unpack_from("<I", self.data, at)
        return [struct.unpack_from("<qq", self.data, at + 4 + 16 * number) for number in range(count)]


def independent_rows(body: bytes, types: list[str]) -> list[list[Any]]:
    """The columns of one record batch message; the types are int64 and string only."""
    marker, size = struct.unpack_from("<Ii", body)
    assert marker == 0xFFFFFFFF
    metadata, buffers = body[8 : 8 + size], body[8 + size :]
    message = Table(metadata, struct.unpack_from("<I", metadata)[0])
    assert message.number(1, "B") == 3, "a record batch"
    assert message.number(3, "q") == len(buffers)
    record = Table(metadata, message.target(2))
    assert record.position(3) == 0, "not compressed"
    rows, nodes, places = record.number(0, "q"), record.pairs(1), record.pairs(2)
    assert [length for length, _ in nodes] == [rows] * len(types)
    columns = []
    for kind, (_, nulls) in zip(types, nodes, strict=True):
        there, first, *rest = (buffers[at : at + length] for at, length in places[: 2 if kind == "int64" else 3])
        del places[: 2 if kind == "int64" else 3]
        values: list[Any]
        if kind == "int64":
            values = list(struct.unpack_from(f"<{rows}q", first))
        else:
            ends = struct.unpack_from(f"<{rows + 1}i", first)
            values = [rest[0][ends[row] : ends[row + 1]].decode() for row in range(rows)]
        columns.append(
            [value if not nulls or there[row // 8] >> row % 8 & 1 else None for row, value in enumerate(values)]
        )
    assert places == []
    return columns


def frames_of_rows(name: str) -> list[Frame]:
    frames = read_segment(golden(name)).frames
    return [frame for frame in frames if frame.fields["kind"] in (KINDS["DATA"], KINDS["SPARSE"])]


# The files ------------------------------------------------------------------------------------------------------------


def test_the_golden_files_of_records_are_all_there() -> None:
    made = {file.name for file in make_v1_records.golden_files()}

    assert {path.name for path in GOLDEN.iterdir()} == made | {f"{name}.json" for name in made}
    assert made == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_golden_file_has_not_changed(name: str) -> None:
    data, facts = golden(name), facts_of(name)

    assert (len(data), hashlib.sha256(data).hexdigest()) == (facts["size_bytes"], facts["sha256"])


def test_a_golden_file_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    (tmp_path / NAMES[0]).write_bytes(b"as it was")

    made = make_v1_records.main(tmp_path)

    assert (tmp_path / NAMES[0]).read_bytes() == b"as it was"
    assert len(made) == 3


# Records --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_headwater_reads_every_golden_record_and_writes_it_again(name: str) -> None:
    found = []
    for frame in walk(golden(name)).frames:
        kind = Kind(frame.header.kind).name
        if kind in UNPACK:
            record = UNPACK[kind](bytes(frame.body))
            assert pack_record(record) == bytes(frame.body)
            value = msgspec.msgpack.decode(pack_record(record))
            found.append({"lsn": frame.header.lsn, "at": frame.at, "kind": kind, "body": readable(value)})

    assert found == facts_of(name)["records"]
    assert {record["kind"] for record in found} == set(UNPACK)


@pytest.mark.parametrize("name", NAMES)
def test_a_reader_written_from_the_documents_reads_every_golden_record_as_its_facts_say(name: str) -> None:
    kinds = {number: kind for kind, number in KINDS.items()}
    segment = read_segment(golden(name))
    assert segment.why == "END"

    found = [
        {"lsn": frame.fields["lsn"], "at": frame.at, "kind": kind, "body": readable(unpack_msgpack(frame.body))}
        for frame in segment.frames
        if (kind := kinds[frame.fields["kind"]]) in UNPACK
    ]

    assert found == facts_of(name)["records"]


def test_the_document_names_every_record_and_its_fields() -> None:
    records = {"SCHEMA": SchemaRecord, "PRODUCER": ProducerRecord, "OFFSETS": OffsetsRecord, "SOURCE": SourceRecord}
    told = {kind: [field for field, _, _ in cells("records.md", kind, 3)] for kind in UNPACK}

    assert [kind for kind, _, _ in cells("records.md", "Bodies", 3)] == list(UNPACK)
    assert told.pop("SEQUENCES") == [*SequenceEntry.__struct_fields__, *Part.__struct_fields__]
    assert told.pop("OFFSETS") == [*OffsetsRecord.__struct_fields__, *CommittedOffset.__struct_fields__]
    for kind, fields in told.items():
        assert fields == list(records[kind].__struct_fields__)


@pytest.mark.parametrize("kind", list(UNPACK))
def test_the_hexdump_of_a_worked_record_is_the_golden_file_and_holds_all_of_it(kind: str) -> None:
    first, dumped = hexdump_bytes("records.md", f"A worked example: {kind}")
    (record,) = [each for each in facts_of("records.seg")["records"] if each["kind"] == kind]
    (frame,) = [each for each in read_segment(golden("records.seg")).frames if each.fields["lsn"] == record["lsn"]]

    assert dumped == golden("records.seg")[first : first + len(dumped)]
    assert first == record["at"] + 128
    assert dumped[: len(frame.body)] == frame.body


@pytest.mark.parametrize("name", NAMES)
def test_the_golden_records_fold_to_the_same_state_before_and_after_a_compaction(name: str) -> None:
    frames = [LogFrame(met.header, met.body, name, met.at) for met in walk(golden(name)).frames]

    state = fold_frames(ShardState(), frames)

    assert state.next_offsets == {partition_key(1, 2): 5}
    assert (state.producer_ids, state.producers[1].next_sequence) == ({"loader-1": 1}, 1)
    assert [part.base_offset for answer in state.keys.values() for part in answer.parts] == [2]
    assert state.groups["billing", 1][2].offset == 3
    assert state.sources["pg"].position == {"lsn": "0/16B3748"}
    assert state.pack() == ShardState.unpack(state.pack()).pack()


# Rows -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_headwater_reads_the_golden_rows_as_their_facts_say(name: str) -> None:
    found = []
    schema: pa.Schema | None = None
    for frame in walk(golden(name)).frames:
        if frame.header.kind == Kind.SCHEMA:
            schema = unpack_schema(unpack_schema_record(frame.body).schema)
        if frame.header.kind in (Kind.DATA, Kind.SPARSE):
            assert schema is not None, "it stands before the rows"
            rows = decode_rows(frame.header, frame.body, schema)
            first = frame.header.base_offset
            offsets = (
                list(range(first, first + rows.batch.num_rows)) if rows.offsets is None else rows.offsets.to_pylist()
            )
            told = {"lsn": frame.header.lsn, "kind": Kind(frame.header.kind).name, "flags": int(frame.header.flags)}
            found.append({**told, "offsets": offsets, "rows": rows.batch.to_pylist()})

    assert found == facts_of(name)["rows"]


@pytest.mark.parametrize("name", NAMES)
def test_a_reader_written_from_the_documents_reads_the_golden_rows_as_their_facts_say(name: str) -> None:
    found = []
    for frame in frames_of_rows(name):
        sparse = frame.fields["kind"] == KINDS["SPARSE"]
        body = frame.body[:-8] if frame.fields["flags"] & FLAGS["REWRITTEN"] else frame.body
        ids, notes, *rest = independent_rows(body, ["int64", "string", *(["int64"] if sparse else [])])
        first = frame.fields["base_offset"]
        assert len(ids) == frame.fields["row_count"]
        found.append(
            {
                "lsn": frame.fields["lsn"],
                "kind": "SPARSE" if sparse else "DATA",
                "flags": frame.fields["flags"],
                "offsets": rest[0] if sparse else list(range(first, first + len(ids))),
                "rows": [{"id": number, "note": note} for number, note in zip(ids, notes, strict=True)],
            }
        )

    assert found == facts_of(name)["rows"]


def test_a_sparse_frame_keeps_the_offsets_that_its_frame_had() -> None:
    before, after = (frames_of_rows(name)[0] for name in NAMES)

    for field in ("lsn", "topic_number", "partition", "base_offset", "offset_count", "schema_version"):
        assert before.fields[field] == after.fields[field]
    assert (before.fields["row_count"], after.fields["row_count"]) == (3, 2)
    assert after.chain == before.chain


def test_deletes_have_their_key_and_nulls() -> None:
    (deletes,) = [frame for frame in frames_of_rows("records.seg") if frame.fields["flags"] & Flag.TOMBSTONES]

    assert independent_rows(deletes.body, ["int64", "string"]) == [[10], [None]]


def test_the_hexdump_of_the_worked_rows_is_the_golden_file_and_holds_all_of_them() -> None:
    first, dumped = hexdump_bytes("rows.md", "A worked example")
    frame = frames_of_rows("records.seg")[0]

    assert dumped == golden("records.seg")[first : first + len(dumped)]
    assert first == frame.at + 128
    assert dumped[: len(frame.body)] == frame.body
