"""A second reader of segments, written from docs/formats alone: nothing of Headwater is used here.

The byte tables, the kinds and the flags are taken from the documents when this runs, so a document that is
wrong or leaves something out fails the golden tests as a wrong decoder would.  Plain and slow, on purpose.

NOT HERE Unpacking zstd: the standard library has none.  The raw size and zstd's own magic are looked at.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[2] / "docs" / "formats"

FORMATS = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i64": "q"}


def section(document: str, title: str) -> list[str]:
    """The lines of a document from a heading to the next one."""
    lines = (DOCS / document).read_text(encoding="utf-8").splitlines()
    start = lines.index(f"## {title}") + 1
    ends = (number for number in range(start, len(lines)) if lines[number].startswith("## "))
    return lines[start : next(ends, len(lines))]


def cells(document: str, title: str, columns: int) -> list[list[str]]:
    """The rows of a section's tables that have this many columns, without their heads."""
    rows = [line.strip().strip("|").split("|") for line in section(document, title) if line.startswith("|")]
    found = [[cell.strip() for cell in row] for row in rows if len(row) == columns]
    rule = [number for number, row in enumerate(found) if set(row[0]) == {"-"}]
    heads = {number for line in rule for number in (line, line - 1)}
    return [row for number, row in enumerate(found) if number not in heads]


def table(document: str, title: str) -> list[tuple[int, int, str, str]]:
    """A byte table: at, size, type, field."""
    return [(int(at), int(size), kind, field) for at, size, kind, field, _ in cells(document, title, 5)]


HEADER = table("frame.md", "The header")
SEGMENT_BODY = table("segment.md", "The SEGMENT frame")
EPOCH_BODY = table("frame.md", "The EPOCH body")
GAP_BODY = table("frame.md", "The GAP body")
GAP_PARTITION = table("frame.md", "The partitions of a GAP")
KINDS = {name: int(number) for number, name, _ in cells("frame.md", "Kinds", 3)}
FLAGS = {name: int(number) for number, name, _ in cells("frame.md", "Flags", 3)}


def fields_of(rows: list[tuple[int, int, str, str]], data: bytes) -> dict[str, Any]:
    """The fields of a byte table, read from these bytes."""
    values: dict[str, Any] = {}
    for at, size, kind, field in rows:
        if kind == "bytes":
            values[field] = data[at : at + size]
        else:
            (values[field],) = struct.unpack_from("<" + FORMATS[kind], data, at)
    return values


def _crc_table() -> list[int]:
    values = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        values.append(value)
    return values


CRC_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    value = 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ CRC_TABLE[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


@dataclass(frozen=True)
class Frame:
    at: int
    size: int
    fields: dict[str, Any]
    body: bytes

    @property
    def chain(self) -> int:
        if self.fields["flags"] & FLAGS["REWRITTEN"]:
            return int.from_bytes(self.body[-8:], "little")
        chain: int = self.fields["header_crc"] << 32 | self.fields["body_crc"]
        return chain

    @property
    def payload(self) -> bytes:
        return self.body[:-8] if self.fields["flags"] & FLAGS["REWRITTEN"] else self.body

    @property
    def raw_size(self) -> int:
        """How large the body is when it is unpacked."""
        if self.fields["codec"] == 0:
            return len(self.payload)
        raw_size: int = struct.unpack_from("<I", self.payload)[0]
        assert self.payload[4:8] == bytes.fromhex("28b52ffd"), "not a zstd frame"
        return raw_size


def frame_at(data: bytes, at: int, salt: bytes) -> Frame | str:
    """The valid frame at a place, or the report of the first rule that is broken."""
    rest = data[at:]
    if not any(rest[:128]):
        return "END"
    if len(rest) < 128:
        return "SHORT"
    if rest[:4] != bytes.fromhex("c8485746"):
        return "MAGIC"
    fields = fields_of(HEADER, rest)
    header_size = fields["header_units"] * 128
    if header_size == 0:
        return "HEADER_CRC"
    if len(rest) < header_size:
        return "SHORT"
    kind, body_size = fields["kind"], fields["body_size"]
    if crc32c((bytes(8) if kind == KINDS["SEGMENT"] else salt) + rest[8:header_size]) != fields["header_crc"]:
        return "HEADER_CRC"
    if max(KINDS.values()) < kind < 128:
        return "KIND"
    rewritten = fields["flags"] & FLAGS["REWRITTEN"]
    whole_body = body_size + fields["padding_size"]
    rules = [
        kind != 0,
        fields["codec"] in (0, 1),
        fields["flags"] & ~sum(FLAGS.values()) == 0,
        body_size <= 67108864,
        whole_body % 128 == 0 and fields["padding_size"] < 128,
        fields["reserved"] == 0,
        fields["lsn"] != 0,
        fields["write_index"] < fields["write_count"],
        fields["row_count"] == fields["offset_count"]
        or (kind == KINDS["SPARSE"] and fields["row_count"] < fields["offset_count"]),
        not rewritten or body_size >= 8,
        kind not in (KINDS["SPARSE"], KINDS["GAP"]) or rewritten,
    ]
    if not all(rules):
        return "RULE"
    if len(rest) < header_size + whole_body:
        return "SHORT"
    body = rest[header_size : header_size + body_size]
    if crc32c(body) != fields["body_crc"]:
        return "BODY_CRC"
    if any(rest[header_size + body_size : header_size + whole_body]):
        return "PADDING"
    return Frame(at, header_size + whole_body, fields, body)


@dataclass(frozen=True)
class Read:
    """What a segment holds, up to where it ends, and why it ends there."""

    segment: dict[str, Any] | None
    segment_chain: int
    frames: list[Frame]
    end_at: int
    why: str
    last_whole_lsn: int


def follows(frame: Frame, frames: list[Frame], chain: int, lsn: int, epoch: int) -> str | None:
    """Why a frame does not follow these, of which the last has this chain value, LSN and epoch."""
    if frame.fields["kind"] == KINDS["SEGMENT"]:
        return "SEGMENT"
    if frame.fields["prev"] != chain:
        return "PREV"
    if frame.fields["epoch"] < epoch:
        return "EPOCH"
    if frame.fields["kind"] == KINDS["GAP"]:
        gap = fields_of(GAP_BODY, frame.body)
        fits = gap["first_lsn"] == lsn + 1 and gap["first_lsn"] <= gap["last_lsn"] == frame.fields["lsn"]
        return None if fits else "GAP"
    if frame.fields["lsn"] != lsn + 1:
        return "LSN"
    return None if continues_its_write(frame, frames) else "WRITE"


def continues_its_write(frame: Frame, frames: list[Frame]) -> bool:
    """Are the LSNs of its write before it all of that write, or gone, and does no other write reach into it?"""
    mine = write_of(frame)
    reached: set[int] = set()
    for other in frames:
        if other.fields["kind"] == KINDS["GAP"]:
            gap = fields_of(GAP_BODY, other.body)
            reached.update(range(gap["first_lsn"], gap["last_lsn"] + 1))
        elif write_of(other) == mine:
            reached.add(other.fields["lsn"])
        elif frame.fields["lsn"] in write_of(other):
            return False
    return reached.issuperset(range(mine.start, frame.fields["lsn"]))


def write_of(frame: Frame) -> range:
    """The LSNs of the write that a frame belongs to."""
    first = frame.fields["lsn"] - frame.fields["write_index"]
    return range(first, first + frame.fields["write_count"])


def read_segment(data: bytes) -> Read:
    """All of a segment that a reader may believe."""
    head = frame_at(data, 0, bytes(8))
    if isinstance(head, str):
        return Read(None, 0, [], 0, head, 0)
    if head.fields["kind"] != KINDS["SEGMENT"] or head.size != 256 or len(head.body) != 128:
        return Read(None, 0, [], 0, "RULE", 0)
    segment = fields_of(SEGMENT_BODY, head.body)
    segment |= {name: head.fields[name] for name in ("lsn", "prev", "epoch")}
    if segment["format"] != 1 or segment["incompatible_features"]:
        return Read(segment, 0, [], 0, "REFUSED", 0)
    chain, lsn, epoch, at = head.chain, head.fields["lsn"] - 1, head.fields["epoch"], head.size
    frames: list[Frame] = []
    covered = {lsn}
    while True:
        frame = frame_at(data, at, segment["salt"])
        why = frame if isinstance(frame, str) else follows(frame, frames, chain, lsn, epoch)
        if isinstance(frame, str) or why is not None:
            assert why is not None
            return Read(segment, head.chain, frames, at, why, last_whole_lsn(frames, covered))
        frames.append(frame)
        covered.update(range(lsn + 1, frame.fields["lsn"] + 1))
        chain, lsn, epoch, at = frame.chain, frame.fields["lsn"], frame.fields["epoch"], at + frame.size


def last_whole_lsn(frames: list[Frame], covered: set[int]) -> int:
    """The last LSN before the first write of which something is missing."""
    for frame in frames:
        if frame.fields["kind"] == KINDS["GAP"]:
            continue
        if not covered.issuperset(write_of(frame)):
            return write_of(frame).start - 1
    return max(covered)


def hexdump_bytes(document: str, title: str) -> tuple[int, bytes]:
    """The bytes of a section's hexdump, and where they begin."""
    lines = section(document, title)
    start = lines.index("```hexdump") + 1
    dump = lines[start : lines.index("```", start)]
    rows = [(int(line[:8], 16), bytes.fromhex(line[8:60])) for line in dump]
    first = rows[0][0]
    assert [at for at, _ in rows] == [first + 16 * number for number in range(len(rows))], "rows are missing"
    return first, b"".join(row for _, row in rows)
