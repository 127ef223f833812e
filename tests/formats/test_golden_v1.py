"""The golden files of format 1 are read, by two readers, as the facts beside them say.

A golden file is never made again: a test here that fails says that a log which somebody has can no longer be
read as it was.  tests/formats/make_v1.py made them; tests/formats/independent_decoder.py is the second reader.
"""

from __future__ import annotations

import ast
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import UnknownFormat
from headwater.frames.bodies import unpack_epoch, unpack_gap
from headwater.frames.frame import Flag, Header, Kind, payload
from headwater.frames.segment_header import WRITER_VERSION, SegmentHeader, decode_segment_frame
from tests.formats import independent_decoder, make_v1
from tests.formats.segments import HEADER_FACTS, frame_facts, hexadecimal, met_facts, segment_facts, valid_from, walk

GOLDEN = make_v1.DIRECTORY
FILES = sorted(path.stem for path in GOLDEN.glob("*.seg"))
SIZE_BYTES_MAX = 100 * 1024


def golden(name: str) -> bytes:
    return (GOLDEN / f"{name}.seg").read_bytes()


def facts_of(name: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    return facts


def without_about(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name not in ("about", "size_bytes", "sha256", "crc32c")}


def test_the_golden_files_are_all_there_each_with_its_facts_and_small() -> None:
    wanted = {case.name for case in make_v1.cases()}

    files = list(GOLDEN.iterdir())

    # Those of the mark and the index have a test of their own: test_golden_mark_index.py.
    ours = {path.name for path in files if not {".mark", ".idx"} & set(path.suffixes)}
    assert ours == {f"{name}{ending}" for name in wanted for ending in (".seg", ".json")}
    assert sum(path.stat().st_size for path in files) < SIZE_BYTES_MAX


@pytest.mark.parametrize("name", FILES)
def test_a_golden_file_has_not_changed(name: str) -> None:
    facts = facts_of(name)

    data = golden(name)

    assert len(data) == facts["size_bytes"]
    assert hashlib.sha256(data).hexdigest() == facts["sha256"]
    assert f"0x{independent_decoder.crc32c(data):08x}" == facts["crc32c"]


@pytest.mark.parametrize("name", [name for name in FILES if "refused" not in facts_of(name)])
def test_headwater_reads_a_golden_file_as_its_facts_say(name: str) -> None:
    data = golden(name)

    found = walk(data)

    after = valid_from(data, found.end_at, found.segment.salt) if found.segment else []
    assert without_about(facts_of(name)) == {
        "ends": {"at": found.end_at, "why": found.why},
        "valid_from_there": after,
        "segment": segment_facts(found.segment, found.segment_chain) if found.segment else None,
        "frames": [met_facts(frame) for frame in found.frames],
        "last_whole_lsn": found.last_whole_lsn,
    }


@pytest.mark.parametrize("name", [name for name in FILES if "refused" in facts_of(name)])
def test_headwater_refuses_a_golden_file_of_a_later_version_naming_both_versions(name: str) -> None:
    data = golden(name)

    with pytest.raises(UnknownFormat) as refusal:
        decode_segment_frame(memoryview(data))

    assert facts_of(name)["refused"] in str(refusal.value)
    assert WRITER_VERSION in str(refusal.value)


@pytest.mark.parametrize("name", FILES)
def test_a_reader_written_from_the_documents_reads_a_golden_file_as_its_facts_say(name: str) -> None:
    data, facts = golden(name), facts_of(name)

    read = independent_decoder.read_segment(data)

    assert {"at": read.end_at, "why": read.why} == facts["ends"]
    if "refused" in facts:
        assert read.segment is not None
        assert read.segment["writer_version"].rstrip(b"\0").decode() == facts["refused"]
        return
    assert read.last_whole_lsn == facts["last_whole_lsn"]
    if facts["segment"] is None:
        assert read.segment is None
        return
    assert read.segment is not None
    assert independent_segment_facts(read.segment, read.segment_chain) == facts["segment"]
    assert [independent_frame_facts(frame) for frame in read.frames] == [
        known_to_both(each) for each in facts["frames"]
    ]
    places = range(read.end_at, len(data), 128)
    valid = [at for at in places if not isinstance(independent_decoder.frame_at(data, at, read.segment["salt"]), str)]
    assert valid == facts["valid_from_there"]


def independent_segment_facts(segment: dict[str, Any], chain: int) -> dict[str, Any]:
    plain = {name: value for name, value in segment.items() if name not in ("alignment", "reserved", "lsn")}
    text = segment["writer_version"].rstrip(b"\0").decode()
    header = SegmentHeader(**(plain | {"first_lsn": segment["lsn"], "writer_version": text}))
    return segment_facts(header, chain)


def independent_frame_facts(frame: independent_decoder.Frame) -> dict[str, Any]:
    values = {name: frame.fields[name] for name in HEADER_FACTS}
    values["raw"] = frame.payload.hex() if frame.fields["codec"] == 0 else frame.raw_size
    return frame_facts(frame.at, frame.size, frame.chain, values)


def known_to_both(facts: dict[str, Any]) -> dict[str, Any]:
    """The facts of a frame that a reader without zstd can know."""
    return facts if facts["codec"] == 0 else facts | {"raw": len(facts["raw"]) // 2}


def test_the_second_reader_uses_nothing_of_headwater() -> None:
    source = Path(independent_decoder.__file__).read_text(encoding="utf-8")

    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]

    names = {alias.name for node in imports for alias in node.names if isinstance(node, ast.Import)}
    modules = {node.module for node in imports if isinstance(node, ast.ImportFrom)}
    assert names | modules == {"struct", "__future__", "dataclasses", "pathlib", "typing"}


def test_between_them_the_golden_files_hold_every_kind_flag_codec_and_a_longer_header() -> None:
    frames = [frame for name in FILES if "refused" not in facts_of(name) for frame in walk(golden(name)).frames]

    headers = [frame.header for frame in frames]

    assert {header.kind for header in headers} | {Kind.SEGMENT} >= set(Kind)
    assert max(header.kind for header in headers) >= 128
    assert {flag for header in headers for flag in Flag if header.flags & flag} == set(Flag)
    assert {header.codec for header in headers} == {0, 1}
    assert {header.header_units for header in headers} == {1, 2}
    assert max(header.write_count for header in headers) > 1


def test_the_rewritten_golden_file_alone_holds_every_kind() -> None:
    found = walk(golden("rewritten"))

    kinds = {frame.header.kind for frame in found.frames} | {Kind.SEGMENT}

    assert kinds >= set(Kind)


def test_a_rewritten_segment_hands_on_the_chain_of_the_one_it_replaces() -> None:
    plain, rewritten = walk(golden("plain")), walk(golden("rewritten"))

    kept = [frame for frame in rewritten.frames if not frame.header.rewritten]

    assert rewritten.segment_chain == plain.segment_chain
    assert rewritten.frames[-1].chain == plain.frames[-1].chain
    assert rewritten.last_whole_lsn == plain.last_whole_lsn
    before = {frame.header.lsn: frame for frame in plain.frames}
    assert all(before[frame.header.lsn].header == frame.header for frame in kept)
    assert all(bytes(before[frame.header.lsn].body) == bytes(frame.body) for frame in kept)


def test_the_segment_after_another_continues_its_chain() -> None:
    first, second = walk(golden("smallest")), walk(golden("next"))

    segment = second.segment

    assert first.segment is not None
    assert segment is not None
    assert segment.prev == first.frames[-1].chain
    assert segment.first_lsn == first.frames[-1].header.lsn + 1
    assert segment.previous_first_lsn == first.segment.first_lsn


def test_gap_and_epoch_bodies_read_as_the_tables_of_the_documents_say() -> None:
    frames = walk(golden("rewritten")).frames + walk(golden("drained")).frames

    gaps = [frame for frame in frames if frame.header.kind == Kind.GAP]
    epochs = [frame for frame in frames if frame.header.kind == Kind.EPOCH]

    assert gaps
    for frame in gaps:
        wanted = independent_decoder.fields_of(independent_decoder.GAP_BODY, bytes(frame.body))
        gap = unpack_gap(frame.body)
        assert gap is not None
        entries = [bytes(frame.body)[at : at + 16] for at in range(32, len(frame.body) - 8, 16)]
        assert wanted.pop("partitions") == len(entries)
        assert {name: vars(gap)[name] for name in wanted} == wanted
        assert [independent_decoder.fields_of(independent_decoder.GAP_PARTITION, entry) for entry in entries] == [
            {"topic_number": topic, "partition": partition, "next_offset": offset}
            for topic, partition, offset in gap.next_offsets
        ]
        assert gap.chain == frame.chain == int.from_bytes(frame.body[-8:], "little")
    assert any(len(frame.body) > 40 for frame in gaps)
    assert epochs
    for frame in epochs:
        wanted = independent_decoder.fields_of(independent_decoder.EPOCH_BODY, bytes(frame.body))
        assert unpack_epoch(frame.body) == (wanted["epoch"], wanted["token"])
        assert wanted["epoch"] == frame.header.epoch


def test_making_the_golden_files_again_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "smallest.seg").write_bytes(b"as it was")

    with pytest.raises(FileExistsError, match=r"smallest\.seg"):
        make_v1.main(tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["smallest.seg"]
    assert (tmp_path / "smallest.seg").read_bytes() == b"as it was"


def test_a_golden_file_that_is_missing_can_be_made_and_the_others_stay(tmp_path: Path) -> None:
    (tmp_path / "smallest.seg").write_bytes(b"as it was")

    made = make_v1.main(tmp_path, only_missing=True)

    assert (tmp_path / "smallest.seg").read_bytes() == b"as it was"
    assert len(made) == 2 * len(FILES) - 1


# The documents -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("document", "at", "size"), [("frame.md", 512, 256), ("segment.md", 0, 256)])
def test_the_hexdump_of_a_worked_example_is_the_golden_file(document: str, at: int, size: int) -> None:
    data = golden("smallest")

    first, dumped = independent_decoder.hexdump_bytes(document, "A worked example")

    assert first == at
    assert dumped == data[at : at + size]


@pytest.mark.parametrize(
    ("document", "base", "title"), [("frame.md", 512, "The header"), ("segment.md", 128, "The SEGMENT frame")]
)
def test_the_fields_of_a_worked_example_are_those_of_the_byte_table(document: str, base: int, title: str) -> None:
    rows = independent_decoder.table(document, title)
    data = golden("smallest")[base:]
    values = independent_decoder.fields_of(rows, data)

    told = independent_decoder.cells(document, "A worked example", 4)

    named = {field: (int(at, 16), bytes.fromhex(written), value) for at, written, field, value in told}
    named.pop("body", None)
    assert list(named) == [field for _, _, _, field in rows]
    for at, size, kind, field in rows:
        assert named[field][:2] == (base + at, data[at : at + size])
        if kind != "bytes":
            assert int(named[field][2], 0) == values[field]


def test_the_chain_values_that_the_documents_work_out_are_right() -> None:
    found = walk(golden("smallest"))

    texts = {
        name: " ".join(independent_decoder.section(name, "A worked example")) for name in ("frame.md", "segment.md")
    }

    assert hexadecimal(found.frames[-1].chain) in texts["frame.md"]
    assert hexadecimal(found.segment_chain) in texts["segment.md"]
    assert bytes(payload(found.frames[-1].header, found.frames[-1].body)).decode() in texts["frame.md"]


def test_the_byte_tables_of_the_documents_cover_every_byte_once() -> None:
    tables = {
        128: [independent_decoder.HEADER, independent_decoder.SEGMENT_BODY],
        24: [independent_decoder.EPOCH_BODY],
        32: [independent_decoder.GAP_BODY],
        16: [independent_decoder.GAP_PARTITION],
    }

    for size, of_this_size in tables.items():
        for rows in of_this_size:
            ends = [at + length for at, length, _, _ in rows]

            assert [at for at, _, _, _ in rows] == [0, *ends[:-1]]
            assert ends[-1] == size


def test_the_documents_name_the_fields_kinds_and_flags_of_the_code() -> None:
    fields = tuple(field for _, _, _, field in independent_decoder.HEADER)

    assert fields == Header._fields
    assert {kind.name: int(kind) for kind in Kind} == independent_decoder.KINDS
    assert {flag.name: int(flag) for flag in Flag} == independent_decoder.FLAGS


def test_the_second_reader_s_checksum_is_the_castagnoli_one() -> None:
    assert independent_decoder.crc32c(b"123456789") == 0xE3069283
    assert independent_decoder.crc32c(b"") == 0
