"""Segments for tests: built frame by frame, and walked frame by frame, with headwater.frames.

SegmentBuilder  lays frames one after the other, chains them, and keeps the facts that it was told.
walk            goes along the chain from the segment frame and says where it ends, and why.

Neither judges: what an end means (a torn tail, damage) is recovery's to say, and has its own tests.
NOT HERE        Reading without headwater.frames: independent_decoder.py does that from the documents alone.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from crc32c import crc32c

from headwater.frames.bodies import Gap, pack_gap, unpack_gap
from headwater.frames.codecs import decode_body, encode_body
from headwater.frames.frame import (
    UNIT_BYTES,
    Codec,
    Flag,
    Header,
    Kind,
    NoFrame,
    body_crc,
    chain_value,
    check_body,
    decode_header,
    pack_chain_value,
    payload,
    salt_crc,
    seal_header,
)
from headwater.frames.segment_header import SEGMENT_FRAME_BYTES, SegmentHeader, decode_segment_frame, pack_segment_frame

HEADER_FACTS = tuple(name for name in Header._fields if name not in ("magic", "header_crc", "body_crc", "reserved"))

LOG_ID = bytes.fromhex("6865616477617465722d6c6f672d6964")
SALT = bytes.fromhex("5a17c0ffee0ddba1")
TOKEN = bytes.fromhex("746f6b656e2d6f662d616e2d6f776e65")
CREATED_US = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z


def segment_header(**changes: Any) -> SegmentHeader:
    """A segment header like any other, but for `changes`."""
    given: dict[str, Any] = {
        "log_id": LOG_ID,
        "salt": SALT,
        "first_lsn": 1,
        "prev": 0,
        "epoch": 1,
        "created_us": CREATED_US,
    }
    return SegmentHeader(**(given | changes))


def lengthen_header(header: bytes, salted: int, extension: bytes) -> bytes:
    """The header as a later version might write it: with more units than one."""
    assert len(header) == UNIT_BYTES
    assert len(extension) % UNIT_BYTES == 0
    longer = bytearray(header + extension)
    longer[12] = len(longer) // UNIT_BYTES
    longer[4:8] = crc32c(memoryview(longer)[8:], salted).to_bytes(4, "little")
    return bytes(longer)


@dataclass
class Laid:
    """A frame that a builder has laid: where, how large, its chain value, and what it was told to hold."""

    at: int
    size: int
    chain: int
    facts: dict[str, Any]


@dataclass
class SegmentBuilder:
    """Lays frames one after the other; each takes the next LSN and the chain value of the one before."""

    segment: SegmentHeader
    data: bytearray = field(default_factory=bytearray)
    laid: list[Laid] = field(default_factory=list)
    chain: int = 0
    segment_chain: int = 0
    next_lsn: int = 0
    time_us: int = 0

    def __post_init__(self) -> None:
        self.data += pack_segment_frame(self.segment)
        found = decode_segment_frame(memoryview(self.data))
        assert not isinstance(found, NoFrame)
        _, self.segment_chain = found
        self.chain = self.segment_chain
        self.salted = salt_crc(self.segment.salt)
        self.next_lsn = self.segment.first_lsn
        self.time_us = self.segment.created_us

    def add(
        self,
        kind: int,
        raw: bytes = b"",
        *,
        codec: Codec = Codec.NONE,
        replaces: int | None = None,
        extension: bytes = b"",
        lsn: int | None = None,
        **fields: int,
    ) -> Laid:
        """Lay a frame.  `replaces` is the chain value of the frame that a rewritten one stands for."""
        stored = bytes(encode_body(codec, raw))
        flags = fields.pop("flags", 0)
        if replaces is not None:
            flags |= Flag.REWRITTEN
            stored += pack_chain_value(replaces)
        if lsn is not None:
            self.next_lsn = lsn
        self.time_us += 1_000
        rows = fields.pop("row_count", 0)
        given = {
            "kind": int(kind),
            "codec": int(codec),
            "flags": int(flags),
            "body_size": len(stored),
            "lsn": self.next_lsn,
            "prev": self.chain,
            # As where each write had its own sync: all before this frame's write is durable.
            "durable_lsn": max(0, self.next_lsn - fields.get("write_index", 0) - 1),
            "epoch": self.segment.epoch,
            "write_index": 0,
            "write_count": 1,
            "topic_number": 0,
            "partition": 0,
            "base_offset": 0,
            "row_count": rows,
            "offset_count": rows,
            "schema_version": 0,
            "producer_epoch": 0,
            "producer_id": 0,
            "sequence": 0,
            "append_time_us": self.time_us,
            "time_min_us": self.time_us,
            "time_max_us": self.time_us,
        } | fields
        header, header_crc = seal_header(self.salted, body_crc=body_crc(stored), **given)
        if extension:
            header = lengthen_header(header, self.salted, extension)
            header_crc = int.from_bytes(header[4:8], "little")
        padding = bytes(-len(stored) % UNIT_BYTES)
        chain = header_crc << 32 | body_crc(stored) if replaces is None else replaces
        facts: dict[str, Any] = given | {"header_units": len(header) // UNIT_BYTES, "padding_size": len(padding)}
        facts["raw"] = raw.hex()
        return self._lay(header + stored + padding, chain, facts)

    def add_gap(self, gap: Gap) -> Laid:
        """Lay the frame that stands for frames which are gone."""
        body = pack_gap(gap)
        return self.add(Kind.GAP, body[:-8], replaces=gap.chain, lsn=gap.last_lsn)

    def copy(self, other: SegmentBuilder, frame: Laid) -> Laid:
        """Lay a frame of another segment as it is, as a rewrite does."""
        self.next_lsn = frame.facts["lsn"]
        self.time_us = frame.facts["append_time_us"]
        return self._lay(bytes(other.data[frame.at : frame.at + frame.size]), frame.chain, frame.facts)

    def _lay(self, frame: bytes, chain: int, facts: dict[str, Any]) -> Laid:
        laid = Laid(len(self.data), len(frame), chain, facts)
        self.data += frame
        self.laid.append(laid)
        self.chain = chain
        self.next_lsn += 1
        return laid


@dataclass(frozen=True)
class Met:
    """A valid frame that a walk met."""

    at: int
    header: Header
    body: memoryview

    @property
    def size(self) -> int:
        return self.header.frame_size

    @property
    def chain(self) -> int:
        return chain_value(self.header, self.body)


@dataclass(frozen=True)
class Neighbour:
    """What the frame before says of the frame after it."""

    lsn: int
    chain: int
    epoch: int
    write: tuple[int, int] = (0, 0)
    """The first and last LSN of the write that it belongs to."""
    gap_first_lsn: int = 0
    """Where it is a gap: the first LSN that it stands for."""

    @property
    def whole(self) -> bool:
        """Does a write end with it?"""
        return self.lsn >= self.write[1]

    def after(self, frame: Met) -> Neighbour:
        """What that frame, which follows this one, says of the next."""
        header = frame.header
        if header.kind == Kind.GAP:
            return Neighbour(header.lsn, frame.chain, header.epoch, self.write, self.lsn + 1)
        return Neighbour(header.lsn, frame.chain, header.epoch, write_of(header))


def write_of(header: Header) -> tuple[int, int]:
    first_lsn = header.lsn - header.write_index
    return first_lsn, first_lsn + header.write_count - 1


@dataclass(frozen=True)
class Walk:
    segment: SegmentHeader | None
    segment_chain: int
    frames: list[Met]
    end_at: int
    why: str
    last_whole_lsn: int


def frame_at(data: memoryview, at: int, salted: int) -> Met | NoFrame:
    """The valid frame at a place: header, body and padding."""
    header = decode_header(data, at, salted)
    if isinstance(header, NoFrame):
        return header
    broken = check_body(header, data, at)
    if broken is not None:
        return broken
    start = at + header.header_units * UNIT_BYTES
    return Met(at, header, data[start : start + header.body_size])


def broken_link(before: Neighbour, frame: Met) -> str | None:
    """Why a valid frame does not follow the one before it, if it does not."""
    header = frame.header
    if header.kind == Kind.SEGMENT:
        return "SEGMENT"
    if header.prev != before.chain:
        return "PREV"
    if header.epoch < before.epoch:
        return "EPOCH"
    if header.kind == Kind.GAP:
        gap = unpack_gap(frame.body)
        fits = gap is not None and gap.first_lsn == before.lsn + 1 <= gap.last_lsn == header.lsn
        return None if fits else "GAP"
    if header.lsn != before.lsn + 1:
        return "LSN"
    if header.lsn <= before.write[1]:
        return None if write_of(header) == before.write else "WRITE"
    begins = header.write_index == 0 or 0 < before.gap_first_lsn <= write_of(header)[0]
    return None if begins else "WRITE"


def walk(data: bytes | bytearray) -> Walk:
    """Along the chain from the segment frame to the first place where it ends."""
    view = memoryview(data)
    found = decode_segment_frame(view)
    if isinstance(found, NoFrame):
        return Walk(None, 0, [], 0, found.name, 0)
    segment, segment_chain = found
    salted = salt_crc(segment.salt)
    before = Neighbour(segment.first_lsn - 1, segment_chain, segment.epoch)
    at = SEGMENT_FRAME_BYTES
    frames: list[Met] = []
    whole_lsn = before.lsn
    while True:
        frame = frame_at(view, at, salted)
        if isinstance(frame, NoFrame):
            return Walk(segment, segment_chain, frames, at, frame.name, whole_lsn)
        broken = broken_link(before, frame)
        if broken is not None:
            return Walk(segment, segment_chain, frames, at, broken, whole_lsn)
        frames.append(frame)
        before = before.after(frame)
        if before.whole:
            whole_lsn = before.lsn
        at += frame.size


def valid_from(data: bytes | bytearray, at: int, salt: bytes) -> list[int]:
    """Where, from a place on and in steps of 128 bytes, a valid frame of this segment stands."""
    view = memoryview(data)
    salted = salt_crc(salt)
    places = range(at, len(data), UNIT_BYTES)
    return [place for place in places if not isinstance(frame_at(view, place, salted), NoFrame)]


def hexadecimal(value: int) -> str:
    """A number of 64 bits as the facts files write it: some readers of JSON would round it."""
    return f"0x{value:016x}"


def segment_facts(segment: SegmentHeader, chain: int) -> dict[str, Any]:
    """A segment header as the facts files write it."""
    facts = asdict(segment)
    facts |= {"log_id": segment.log_id.hex(), "salt": segment.salt.hex(), "chain": hexadecimal(chain)}
    facts |= {"prev": hexadecimal(segment.prev), "old_chain": hexadecimal(segment.old_chain)}
    return facts


def frame_facts(at: int, size: int, chain: int, facts: dict[str, Any]) -> dict[str, Any]:
    """A frame as the facts files write it."""
    return {"at": at, "size": size, "chain": hexadecimal(chain)} | facts | {"prev": hexadecimal(facts["prev"])}


def met_facts(frame: Met) -> dict[str, Any]:
    """A frame that was read, as the facts files write it."""
    values = {name: getattr(frame.header, name) for name in HEADER_FACTS}
    values["raw"] = bytes(decode_body(frame.header.codec, payload(frame.header, frame.body))).hex()
    return frame_facts(frame.at, frame.size, frame.chain, values)
