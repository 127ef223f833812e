"""The golden files of the metadata journal are read, by two readers, as the facts beside them say.

The second reader stands here: it takes its tables from docs/formats/checkpoint.md and journal.md, and reads msgpack
with a few lines of its own.  A golden file is never made again; tests/formats/make_v1_journal.py made them.
"""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from headwater.metadata.checkpoint import Checkpoint, CheckpointKind, pack_checkpoint, unpack_checkpoint
from headwater.metadata.operations import Operation, decode_operation
from headwater.metadata.state import MetadataState
from tests.formats import make_v1_journal
from tests.formats.independent_decoder import KINDS, cells, crc32c, fields_of, hexdump_bytes, read_segment, table
from tests.formats.make_v1_journal import DIRECTORY as GOLDEN
from tests.formats.make_v1_journal import readable

NAMES = ["operations.ckpt", "operations.journal"]
HEADER = table("checkpoint.md", "The header")


def golden(name: str) -> bytes:
    return (GOLDEN / name).read_bytes()


def facts_of(name: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    return facts


# The second reader ----------------------------------------------------------------------------------------------------


def unpack_msgpack(data: bytes) -> Any:
    """One msgpack value, by the words of its specification; only what stands in a journal or a ledger."""
    value, end = _value(data, 0)
    assert end == len(data)
    return value


def _value(data: bytes, at: int) -> tuple[Any, int]:
    first = data[at]
    if first < 0x80:
        return first, at + 1
    if first < 0x90:
        return _map(data, at + 1, first & 0x0F)
    if first < 0xA0:
        return _list(data, at + 1, first & 0x0F)
    if first < 0xC0:
        return _text(data, at + 1, first & 0x1F)
    if first == 0xC0:
        return None, at + 1
    if first in (0xC2, 0xC3):
        return first == 0xC3, at + 1
    if first == 0xDE:
        return _map(data, at + 3, int.from_bytes(data[at + 1 : at + 3], "big"))
    if first == 0xC4:
        return data[at + 2 : at + 2 + data[at + 1]], at + 2 + data[at + 1]
    if first == 0xD9:
        return _text(data, at + 2, data[at + 1])
    kinds = {0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q"}
    (number,) = struct.unpack_from(kinds[first], data, at + 1)
    return number, at + 1 + struct.calcsize(kinds[first])


def _text(data: bytes, at: int, size: int) -> tuple[str, int]:
    return data[at : at + size].decode(), at + size


def _list(data: bytes, at: int, count: int) -> tuple[list[Any], int]:
    values = []
    for _ in range(count):
        value, at = _value(data, at)
        values.append(value)
    return values, at


def _map(data: bytes, at: int, count: int) -> tuple[dict[str, Any], int]:
    values, at = _list(data, at, 2 * count)
    return dict(zip(values[::2], values[1::2], strict=True)), at


def independent_checkpoint(data: bytes) -> tuple[dict[str, Any], Any]:
    """A checkpoint by the words of checkpoint.md alone."""
    header = fields_of(HEADER, data)
    assert header["magic"] == bytes.fromhex("C8485743")
    assert header["header_crc"] == crc32c(data[8:64])
    assert header["version"] == 1
    assert header["reserved"] == 0
    assert len(data) == 64 + header["body_size"]
    assert header["body_crc"] == crc32c(data[64:])
    return header, unpack_msgpack(data[64:])


# The files ------------------------------------------------------------------------------------------------------------


def test_the_golden_files_of_the_journal_are_all_there() -> None:
    made = {file.name for file in make_v1_journal.golden_files()}

    assert {path.name for path in GOLDEN.iterdir()} == made | {f"{name}.json" for name in made}
    assert made == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_golden_file_has_not_changed(name: str) -> None:
    data, facts = golden(name), facts_of(name)

    assert (len(data), hashlib.sha256(data).hexdigest()) == (facts["size_bytes"], facts["sha256"])


def test_a_golden_file_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    (tmp_path / NAMES[0]).write_bytes(b"as it was")

    made = make_v1_journal.main(tmp_path)

    assert (tmp_path / NAMES[0]).read_bytes() == b"as it was"
    assert len(made) == 3


# Operations -----------------------------------------------------------------------------------------------------------


def test_headwater_reads_every_golden_operation_and_they_make_the_golden_state() -> None:
    segment = read_segment(golden("operations.journal"))
    state = MetadataState()

    operations: list[Operation] = []
    for frame in segment.frames:
        if frame.fields["kind"] == KINDS["METADATA"]:
            operations.append(decode_operation(frame.body, frame.fields["lsn"]))
            state.apply(frame.fields["lsn"], operations[-1])

    found = unpack_checkpoint(golden("operations.ckpt"), CheckpointKind.JOURNAL)
    assert isinstance(found, Checkpoint)
    assert MetadataState.unpack(found.body) == state
    assert len(operations) == len(facts_of("operations.journal")["operations"])
    assert {type(operation) for operation in operations} == set(Operation.__args__)


def test_a_reader_written_from_the_documents_reads_every_golden_operation_as_its_facts_say() -> None:
    segment = read_segment(golden("operations.journal"))

    frames = [frame for frame in segment.frames if frame.fields["kind"] == KINDS["METADATA"]]

    assert segment.why == "END"
    found = [
        {"lsn": frame.fields["lsn"], "at": frame.at, "body": readable(unpack_msgpack(frame.body))} for frame in frames
    ]
    assert found == facts_of("operations.journal")["operations"]


def test_the_document_names_every_operation_and_its_fields() -> None:
    told = {name.strip("`"): fields for name, fields, _ in cells("journal.md", "The operations", 3)}

    for operation in Operation.__args__:
        fields = told.pop(operation.__struct_config__.tag)
        assert [field.strip(" `") for field in fields.split(",")] == list(operation.__struct_fields__)
    assert told == {}


# The checkpoint -------------------------------------------------------------------------------------------------------


def test_headwater_reads_the_golden_checkpoint_as_its_facts_say_and_writes_it_again() -> None:
    data, facts = golden("operations.ckpt"), facts_of("operations.ckpt")

    found = unpack_checkpoint(data, CheckpointKind.JOURNAL)

    assert isinstance(found, Checkpoint)
    for field in ("kind", "lsn", "journal_lsn", "created_us"):
        assert getattr(found, field) == facts[field]
    assert f"{found.chain:016x}" == facts["chain"]
    assert MetadataState.unpack(found.body).pack() == found.body
    assert pack_checkpoint(found) == data


def test_a_reader_written_from_the_document_reads_the_golden_checkpoint_as_its_facts_say() -> None:
    facts = facts_of("operations.ckpt")

    header, state = independent_checkpoint(golden("operations.ckpt"))

    for field in ("kind", "lsn", "journal_lsn", "created_us"):
        assert header[field] == facts[field]
    assert f"{header['chain']:016x}" == facts["chain"]
    assert readable(state) == facts["state"]


def test_the_golden_checkpoint_continues_the_golden_journal() -> None:
    segment = read_segment(golden("operations.journal"))

    header, _ = independent_checkpoint(golden("operations.ckpt"))

    assert header["lsn"] == segment.last_whole_lsn
    assert header["chain"] == segment.frames[-1].chain


def test_the_byte_table_of_the_checkpoint_has_no_hole_and_no_overlap() -> None:
    ends = [at + size for at, size, _, _ in HEADER]

    assert [at for at, _, _, _ in HEADER] == [0, *ends[:-1]]
    assert ends[-1] == 64


@pytest.mark.parametrize(
    ("document", "name"), [("checkpoint.md", "operations.ckpt"), ("journal.md", "operations.journal")]
)
def test_the_hexdump_of_a_worked_example_is_the_golden_file(document: str, name: str) -> None:
    first, dumped = hexdump_bytes(document, "A worked example")

    assert dumped == golden(name)[first : first + len(dumped)]
    assert len(dumped) >= 64


def test_the_fields_of_the_worked_checkpoint_are_those_of_the_byte_table() -> None:
    data = golden("operations.ckpt")[:64]
    values = fields_of(HEADER, data)

    told = cells("checkpoint.md", "A worked example", 4)

    assert [field for _, _, field, _ in told] == [field for _, _, _, field in HEADER]
    for (at, written, field, value), (wanted_at, size, kind, _) in zip(told, HEADER, strict=True):
        assert int(at, 16) == wanted_at
        assert bytes.fromhex(written) == data[wanted_at : wanted_at + size]
        assert (bytes.fromhex(value.strip("`")) if kind == "bytes" else int(value, 0)) == values[field]
