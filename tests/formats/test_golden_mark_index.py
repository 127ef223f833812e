"""The golden files of the mark and the index are read, by two readers, as the facts beside them say.

The second reader stands here: it takes its tables from docs/formats/mark.md and index.md and uses nothing of Headwater
to read.  A golden file is never made again; tests/formats/make_v1_mark_index.py made them.
"""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from headwater.log.index import (
    FOOTER_BYTES,
    ActiveIndex,
    Footer,
    load_active,
    open_sealed,
    partition_key,
    read_footer,
    read_next_offsets,
)
from headwater.log.mark import Mark, read_mark, unpack_slot
from headwater.storage.files import File
from headwater.storage.simulated import SimulatedFiles
from tests.formats import make_v1_mark_index
from tests.formats.independent_decoder import FORMATS, cells, crc32c, fields_of, hexdump_bytes, table
from tests.formats.make_v1 import DIRECTORY as GOLDEN
from tests.formats.segments import walk

MARKS = sorted(path.name for path in GOLDEN.glob("*.mark"))
INDEXES = sorted(path.name for path in GOLDEN.glob("*.idx"))

SLOT = table("mark.md", "The slot")
FOOTER = table("segment-index.md", "The footer")
COLUMNS = [tuple(row) for row in cells("segment-index.md", "The sections", 5)]


def golden(name: str) -> bytes:
    return (GOLDEN / name).read_bytes()


def facts_of(name: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    return facts


def file_of(data: bytes) -> File:
    files = SimulatedFiles()
    files.put("f", data)
    return files.open("f")


# The second reader ----------------------------------------------------------------------------------------------------


def independent_slot(data: bytes) -> dict[str, Any] | None:
    """A slot by the words of mark.md alone."""
    values = fields_of(SLOT, data)
    if values["magic"] != bytes.fromhex("C848574D") or values["crc"] != crc32c(data[8:64]):
        return None
    return values


def independent_index(data: bytes) -> tuple[dict[str, Any], dict[str, list[dict[str, int]]]]:
    """The footer and the rows of each section, by the words of index.md alone."""
    raw = data[-512:]
    footer = fields_of(FOOTER, raw)
    assert footer["magic"] == bytes.fromhex("C8485749")
    assert footer["footer_crc"] == crc32c(raw[8:])
    assert footer["version"] == 1
    assert footer["sections_crc"] == crc32c(data[:-512])
    assert footer["reserved"] == 0 and footer["zeroes"] == bytes(164)
    counts = {"n": footer["frames"], "m": footer["entries"], "p": footer["partitions"], "t": footer["topics"]}
    sections: dict[str, list[dict[str, int]]] = {}
    begins: dict[str, int] = {}
    at = 0
    for section, count, column, kind, _ in COLUMNS:
        size = counts[count]
        begins.setdefault(section, at)
        values = struct.unpack_from(f"<{size}{FORMATS[kind]}", data, at)
        at += struct.calcsize(f"<{size}{FORMATS[kind]}")
        rows = sections.setdefault(section, [{} for _ in range(size)])
        for row, value in zip(rows, values, strict=True):
            row[column] = value
    assert at + 512 == len(data) == 16 * counts["n"] + 16 * counts["m"] + 24 * counts["p"] + 32 * counts["t"] + 512
    assert footer["partitions_crc"] == crc32c(data[begins["partitions"] : begins["topics"]])
    return footer, sections


# The files ------------------------------------------------------------------------------------------------------------


def test_the_golden_files_of_mark_and_index_are_all_there() -> None:
    made = {file.name for file in make_v1_mark_index.golden_files()}

    assert set(MARKS + INDEXES) == made
    assert MARKS and INDEXES


@pytest.mark.parametrize("name", MARKS + INDEXES)
def test_a_golden_file_has_not_changed(name: str) -> None:
    facts = facts_of(name)

    data = golden(name)

    assert (len(data), hashlib.sha256(data).hexdigest()) == (facts["size_bytes"], facts["sha256"])


def test_a_golden_file_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    (tmp_path / MARKS[0]).write_bytes(b"as it was")

    made = make_v1_mark_index.main(tmp_path)

    assert (tmp_path / MARKS[0]).read_bytes() == b"as it was"
    assert len(made) == 2 * len(MARKS + INDEXES) - 1


# Marks ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MARKS)
def test_headwater_reads_a_golden_mark_as_its_facts_say(name: str) -> None:
    data, facts = golden(name), facts_of(name)

    slots = {slot["at"]: unpack_slot(data[slot["at"] : slot["at"] + 64]) for slot in facts["slots"]}
    mark = read_mark(file_of(data))

    for slot in facts["slots"]:
        wanted = {field: slot[field] for field in Mark._fields} | {"log_id": bytes.fromhex(slot["log_id"])}
        assert slots[slot["at"]] == Mark(**wanted)
    assert mark == slots[facts["newest_slot_at"]]


@pytest.mark.parametrize("name", MARKS)
def test_a_reader_written_from_the_document_reads_a_golden_mark_as_its_facts_say(name: str) -> None:
    data, facts = golden(name), facts_of(name)

    found = {at: independent_slot(data[at : at + 64]) for at in (0, 4096)}

    for slot in facts["slots"]:
        values = found[slot["at"]]
        assert values is not None
        assert values["log_id"].hex() == slot["log_id"]
        assert values["flags"] == int(slot["clean"])
        for field in ("counter", "durable_lsn", "segment", "position", "epoch"):
            assert values[field] == slot[field]
    newest = max((at for at in found if found[at] is not None), key=lambda at: (found[at] or {})["counter"])
    assert newest == facts["newest_slot_at"]


def test_the_golden_mark_is_that_of_its_golden_segment() -> None:
    segment = walk((GOLDEN / "smallest.seg").read_bytes())

    mark = read_mark(file_of(golden("clean-close.mark")))

    assert mark is not None and segment.segment is not None
    assert (mark.log_id, mark.segment, mark.epoch) == (segment.segment.log_id, segment.segment.first_lsn, 1)
    assert (mark.durable_lsn, mark.position) == (segment.last_whole_lsn, segment.end_at)


# Indexes --------------------------------------------------------------------------------------------------------------


def footer_of(data: bytes) -> Footer:
    footer = read_footer(file_of(data))
    assert footer is not None
    return footer


@pytest.mark.parametrize("name", INDEXES)
def test_headwater_reads_a_golden_index_as_its_facts_say(name: str) -> None:
    data, facts = golden(name), facts_of(name)
    segment = (GOLDEN / facts["segment"]).read_bytes()

    footer = footer_of(data)
    sealed = open_sealed(file_of(data), footer, chunk_bytes=100)
    grown = load_active(file_of(data), footer)

    for field in ("first_lsn", "last_lsn", "segment_bytes", "append_time_us", "epoch", "created_us"):
        assert getattr(footer, field) == facts[field]
    assert footer.chain == int(facts["chain"], 16)
    assert footer.opening == segment[:256]
    nexts = {partition_key(each["topic"], each["partition"]): each["next_offset"] for each in facts["partitions"]}
    assert read_next_offsets(file_of(data), footer) == nexts
    for index in (sealed, grown):
        assert index is not None
        for frame in facts["frames"]:
            place = index.place_of(frame["lsn"])
            assert place is not None and (place.lsn, place.position) == (frame["lsn"], frame["position"])
            by_time = index.place_at_time(frame["append_time_us"])
            assert by_time is not None and by_time.lsn <= frame["lsn"]
        assert index.place_of(facts["last_lsn"] + 1) is None
        assert index.place_at_time(facts["append_time_us"] + 1) is None
        assert index.next_offsets() == nexts
        shares = {topic: (s.frames, s.bytes, s.rows, s.last_lsn) for topic, s in index.topics().items()}
        assert shares == {t["topic"]: (t["frames"], t["bytes"], t["rows"], t["last_lsn"]) for t in facts["topics"]}
        left = list(facts["entries"])
        for partition in facts["partitions"]:
            own, left = left[: partition["entries"]], left[partition["entries"] :]
            key = partition_key(partition["topic"], partition["partition"])
            for entry in own:
                ahead = own[own.index(entry) :] if entry["offset_count"] else []
                found = [place.lsn for place in index.places(key, entry["base_offset"])]
                assert found[: len(ahead)] == [facts["frames"][each["ordinal"]]["lsn"] for each in ahead]
        assert not left


@pytest.mark.parametrize("name", INDEXES)
def test_a_reader_written_from_the_document_reads_a_golden_index_as_its_facts_say(name: str) -> None:
    data, facts = golden(name), facts_of(name)

    footer, sections = independent_index(data)

    for field in ("first_lsn", "last_lsn", "segment_bytes", "append_time_us", "epoch", "created_us"):
        assert footer[field] == facts[field]
    assert footer["chain"] == int(facts["chain"], 16)
    assert footer["opening"] == (GOLDEN / facts["segment"]).read_bytes()[:256]
    assert facts["frames"] == [
        {"lsn": footer["first_lsn"] + row["lsn_difference"], "position": 128 * row["position_units"],
         "append_time_us": row["append_time_us"]}
        for row in sections["frames"]
    ]  # fmt: skip
    assert facts["entries"] == sections["entries"]
    first = 0
    for fact, row in zip(facts["partitions"], sections["partitions"], strict=True):
        assert row == {
            "topic": fact["topic"], "partition": fact["partition"], "next_offset": fact["next_offset"],
            "first_entry": first, "entry_count": fact["entries"],
        }  # fmt: skip
        first += fact["entries"]
    assert [
        {"topic": row["topic"], "frames": row["frame_count"], "bytes": row["bytes"], "rows": row["rows"],
         "last_lsn": row["last_lsn"]}
        for row in sections["topics"]
    ] == facts["topics"]  # fmt: skip


@pytest.mark.parametrize("name", INDEXES)
def test_an_index_made_again_from_its_golden_segment_is_the_golden_index(name: str) -> None:
    facts = facts_of(name)
    segment = (GOLDEN / facts["segment"]).read_bytes()
    footer = footer_of(golden(name))
    before = make_v1_mark_index.BEFORE[facts["segment"].removesuffix(".seg")]

    index = ActiveIndex(footer.first_lsn, {partition_key(*key): following for key, following in before.items()})
    for met in walk(segment).frames:
        index.add(met.header, met.at, met.body)

    assert index.pack(segment[:256], footer.end, len(segment), footer.created_us) == golden(name)


# The documents --------------------------------------------------------------------------------------------------------


def test_the_byte_tables_of_the_documents_have_no_hole_and_no_overlap() -> None:
    for rows, size in ((SLOT, 64), (FOOTER, FOOTER_BYTES)):
        ends = [at + length for at, length, _, _ in rows]

        assert [at for at, _, _, _ in rows] == [0, *ends[:-1]]
        assert ends[-1] == size


@pytest.mark.parametrize(("document", "name"), [("mark.md", "clean-close.mark"), ("segment-index.md", "smallest.idx")])
def test_the_hexdump_of_a_worked_example_is_the_golden_file(document: str, name: str) -> None:
    first, dumped = hexdump_bytes(document, "A worked example")

    assert first == 0
    assert dumped == golden(name)[: len(dumped)]
    assert len(dumped) >= 64


def test_the_fields_of_the_worked_mark_are_those_of_the_byte_table() -> None:
    data = golden("clean-close.mark")[:64]
    values = fields_of(SLOT, data)

    told = cells("mark.md", "A worked example", 4)

    assert [field for _, _, field, _ in told] == [field for _, _, _, field in SLOT]
    for (at, written, field, value), (wanted_at, size, kind, _) in zip(told, SLOT, strict=True):
        assert int(at, 16) == wanted_at
        assert bytes.fromhex(written) == data[wanted_at : wanted_at + size]
        if kind == "bytes":
            assert bytes.fromhex(value.strip("`")) == values[field]
        else:
            assert int(value, 0) == values[field]


def test_the_columns_of_the_worked_index_are_those_of_its_sections() -> None:
    data = golden("smallest.idx")
    footer, sections = independent_index(data)
    counts = {"n": footer["frames"], "m": footer["entries"], "p": footer["partitions"], "t": footer["topics"]}

    told = cells("segment-index.md", "A worked example", 4)

    at = 0
    for (place, section, column, values), (wanted_section, count, wanted_column, kind, _) in zip(
        told, COLUMNS, strict=True
    ):
        assert (int(place, 16), section, column) == (at, wanted_section, wanted_column)
        assert [int(value) for value in values.split(",")] == [row[column] for row in sections[section]]
        at += counts[count] * struct.calcsize(FORMATS[kind])
    text = (GOLDEN.parents[2] / "docs" / "formats" / "segment-index.md").read_text(encoding="utf-8")
    assert f"The footer begins at 0x{at:x}:" in text
    for field in ("footer_crc", "sections_crc", "partitions_crc"):
        assert f"{field} 0x{footer[field]:08x}" in text
    assert f"chain 0x{footer['chain']:016x}" in text
    for field in ("version", "first_lsn", "last_lsn", "segment_bytes", "append_time_us", "epoch", "created_us"):
        assert f"{field} {footer[field]}" in text
