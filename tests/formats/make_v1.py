"""Makes the golden files of format 1, once: `python -m tests.formats.make_v1 [DIRECTORY]`.

A golden file is a promise to everybody who has a log: what it holds is read for ever.  So this refuses to
write over one.  A case that is missing is added here and made; a case that is there stays as it is, also
when today's writer would write it otherwise.  The facts beside each file are what the builder was told and
what is written here by hand, not what a decoder said.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from headwater.frames.bodies import Gap, GapReason, pack_epoch
from headwater.frames.frame import Codec, Flag, Kind, body_crc, reseal_header
from headwater.frames.segment_header import SegmentHeader, pack_segment_frame
from tests.formats.segments import (
    TOKEN,
    SegmentBuilder,
    frame_facts,
    segment_facts,
    segment_header,
    walk,
)

DIRECTORY = Path(__file__).parent / "v1"

SECTOR_BYTES = 512


class Case(NamedTuple):
    """A file, and where and why a walk along it ends after `met` frames."""

    name: str
    about: str
    data: bytes
    built: SegmentBuilder
    met: int
    end_at: int
    why: str
    valid_after: tuple[int, ...] = ()
    refused: str | None = None
    last_whole_lsn: int | None = None


def smallest() -> SegmentBuilder:
    """A segment frame, an epoch's beginning, and three rows: the worked example of docs/formats."""
    built = SegmentBuilder(segment_header())
    built.add(Kind.EPOCH, pack_epoch(1, TOKEN))
    built.add(
        Kind.DATA,
        b"three rows, as bytes",
        topic_number=1,
        partition=2,
        base_offset=40,
        row_count=3,
        schema_version=1,
        producer_id=0x1122334455667788,
        producer_epoch=5,
        sequence=9,
    )
    return built


def plain() -> SegmentBuilder:
    """Everything that an appending writer writes, and what later ones may."""
    built = SegmentBuilder(segment_header(epoch=3, first_lsn=1001, prev=0xFEEDFACECAFEBEEF, previous_first_lsn=501))
    built.add(Kind.EPOCH, pack_epoch(3, TOKEN))
    built.add(Kind.SCHEMA, b"topic name, incarnation id, Arrow schema", topic_number=7, schema_version=2)
    built.add(Kind.PRODUCER, b"a producer", producer_id=77, producer_epoch=1)
    data: dict[str, Any] = {"topic_number": 7, "partition": 1, "schema_version": 2}
    built.add(Kind.DATA, bytes(range(128)), base_offset=0, row_count=2, producer_id=77, producer_epoch=1, **data)
    built.add(Kind.DATA, b"abc" * 100, codec=Codec.ZSTD, base_offset=2, row_count=100, **data)
    # One write of four frames: joined rows with their sequences, then upserts and deletes of one call.
    together: dict[str, Any] = {"write_count": 4, "flags": int(Flag.TRANSACTION)}
    built.add(Kind.SEQUENCES, b"who sent which rows", write_index=0, **together)
    built.add(Kind.DATA, b"upserts", write_index=1, base_offset=102, row_count=4, **data, **together)
    deletes = together | {"flags": int(Flag.TRANSACTION | Flag.TOMBSTONES)}
    built.add(Kind.DATA, b"deletes", write_index=2, base_offset=106, row_count=1, **data, **deletes)
    built.add(Kind.OFFSETS, b"committed offsets", write_index=3, **together)
    built.add(Kind.METADATA, b"a journal's operation")
    built.add(Kind.LEDGER, b"a ledger's record")
    # The writer ended and another one claimed the log: from here on its epoch is 4.
    built.add(Kind.EPOCH, pack_epoch(4, TOKEN[::-1]), epoch=4)
    built.add(Kind.SOURCE, b"a source's position", epoch=4)
    built.add(200, b"a kind that is not known yet and may be passed over", epoch=4)
    built.add(
        Kind.DATA, b"behind a longer header", extension=b"\xa5" * 128, row_count=1, base_offset=107, epoch=4, **data
    )
    built.add(Kind.DATA, b"", time_min_us=-(2**63), time_max_us=2**63 - 1, base_offset=108, epoch=4, **data)
    return built


def rewritten(old: SegmentBuilder) -> SegmentBuilder:
    """`plain` after a drain: two runs of frames are gaps, one data frame is sparse, all others as they were."""
    last = old.laid[-1].facts["lsn"]
    segment = old.segment
    built = SegmentBuilder(
        SegmentHeader(
            log_id=segment.log_id,
            salt=segment.salt,
            first_lsn=segment.first_lsn,
            prev=segment.prev,
            epoch=segment.epoch,
            created_us=segment.created_us + 60_000_000,
            previous_first_lsn=segment.previous_first_lsn,
            generation=1,
            last_lsn=last,
            old_chain=old.segment_chain,
        )
    )
    for number, frame in enumerate(old.laid):
        facts = frame.facts
        if number == 3:
            continue
        if number == 4:
            built.add_gap(Gap(facts["lsn"] - 1, facts["lsn"], 2, GapReason.DRAINED, frame.chain))
        elif number == 6:
            built.add(
                Kind.SPARSE,
                b"what is left of the upserts",
                replaces=frame.chain,
                lsn=facts["lsn"],
                row_count=2,
                offset_count=4,
                **{name: facts[name] for name in _OF_THE_ROWS},
            )
        elif number == 7:
            built.add_gap(Gap(facts["lsn"], facts["lsn"], 1, GapReason.COMPACTED, frame.chain))
        else:
            built.copy(old, frame)
    return built


_OF_THE_ROWS = ("topic_number", "partition", "schema_version", "base_offset", "write_index", "write_count", "flags")


def flipped(data: bytes | bytearray, at: int, bit: int = 0) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1 << bit
    return bytes(changed)


def cases() -> Iterator[Case]:
    small = smallest()
    size = len(small.data)
    epoch_at, data_at = (frame.at for frame in small.laid)
    yield Case("smallest", "a segment frame, an epoch and three rows", bytes(small.data), small, 2, size, "END")

    following = SegmentBuilder(
        segment_header(first_lsn=small.next_lsn, prev=small.chain, previous_first_lsn=1, salt=b"\x01another")
    )
    following.add(Kind.DATA, b"the first frame after a roll", topic_number=1, base_offset=43, row_count=1)
    yield Case("next", "the segment after `smallest`", bytes(following.data), following, 1, len(following.data), "END")

    full = plain()
    yield Case(
        "plain",
        "every kind that an appending writer writes, and what may be passed over",
        bytes(full.data),
        full,
        len(full.laid),
        len(full.data),
        "END",
    )
    again = rewritten(full)
    yield Case(
        "rewritten",
        "`plain` after a rewrite: every kind, with gaps, a sparse frame and a second generation",
        bytes(again.data),
        again,
        len(again.laid),
        len(again.data),
        "END",
    )

    yield Case(
        "zero-tail",
        "zeroes after the last frame, as in a file whose size came before its data",
        bytes(small.data) + bytes(300),
        small,
        2,
        size,
        "END",
    )
    torn = SegmentBuilder(segment_header())
    torn.add(Kind.DATA, b"whole", topic_number=1, row_count=1)
    torn.add(Kind.DATA, b"first of three", topic_number=1, base_offset=1, row_count=1, write_index=0, write_count=3)
    torn.add(Kind.DATA, b"second of three", topic_number=1, base_offset=2, row_count=1, write_index=1, write_count=3)
    yield Case(
        "torn-write",
        "valid frames of a write whose third frame never came",
        bytes(torn.data),
        torn,
        3,
        len(torn.data),
        "END",
        last_whole_lsn=1,
    )

    yield Case(
        "flipped-header",
        "one bit of the epoch frame's durable LSN",
        flipped(small.data, epoch_at + 40),
        small,
        0,
        epoch_at,
        "HEADER_CRC",
        (data_at,),
    )
    yield Case(
        "flipped-magic",
        "one bit of the epoch frame's magic",
        flipped(small.data, epoch_at + 2, 7),
        small,
        0,
        epoch_at,
        "MAGIC",
        (data_at,),
    )
    yield Case(
        "flipped-body",
        "one bit of the epoch frame's body",
        flipped(small.data, epoch_at + 128 + 20, 3),
        small,
        0,
        epoch_at,
        "BODY_CRC",
        (data_at,),
    )
    yield Case(
        "flipped-padding",
        "one bit of the zeroes after the epoch frame's body",
        flipped(small.data, data_at - 1, 5),
        small,
        0,
        epoch_at,
        "PADDING",
        (data_at,),
    )
    yield Case(
        "flipped-salt",
        "one bit of the salt in the segment frame's body",
        flipped(small.data, 128 + 16, 1),
        small,
        0,
        0,
        "BODY_CRC",
    )
    other = pack_segment_frame(segment_header(salt=b"notsalt!"))
    yield Case(
        "foreign-salt",
        "a valid segment frame with another salt than its frames were sealed with",
        other + bytes(small.data[256:]),
        SegmentBuilder(segment_header(salt=b"notsalt!")),
        0,
        256,
        "HEADER_CRC",
    )
    zeroed = bytearray(full.data)
    zeroed[2 * SECTOR_BYTES : 3 * SECTOR_BYTES] = bytes(SECTOR_BYTES)
    lost = [frame for frame in full.laid if frame.at < 3 * SECTOR_BYTES and frame.at + frame.size > 2 * SECTOR_BYTES]
    after = tuple(frame.at for frame in full.laid if frame.at > lost[-1].at)
    yield Case(
        "zeroed-sector",
        "the third sector of `plain` is zero",
        bytes(zeroed),
        full,
        full.laid.index(lost[0]),
        lost[0].at,
        "END",
        after,
    )
    yield Case(
        "truncated-header",
        "the file ends inside the last frame's header",
        bytes(small.data[: data_at + 100]),
        small,
        1,
        data_at,
        "SHORT",
    )
    yield Case(
        "truncated-body",
        "the file ends inside the last frame's body",
        bytes(small.data[: data_at + 140]),
        small,
        1,
        data_at,
        "SHORT",
    )
    yield Case(
        "truncated-padding",
        "the file ends one byte before the last frame does",
        bytes(small.data[:-1]),
        small,
        1,
        data_at,
        "SHORT",
    )

    unknown = SegmentBuilder(segment_header())
    unknown.add(Kind.EPOCH, pack_epoch(1, TOKEN))
    unknown.add(77, b"a kind that must not be passed over")
    yield Case("unknown-kind", "a valid frame of kind 77", bytes(unknown.data), unknown, 1, unknown.laid[1].at, "KIND")
    codec = SegmentBuilder(segment_header())
    codec.add(Kind.DATA, b"a codec of another day")
    met = walk(codec.data).frames[0]
    sealed = reseal_header(met.header._replace(codec=2), codec.salted)
    codec.data[met.at + 4 : met.at + 8] = sealed.header_crc.to_bytes(4, "little")
    codec.data[met.at + 14] = 2
    yield Case("unknown-codec", "a whole frame of codec 2", bytes(codec.data), codec, 0, met.at, "RULE")

    feature = SegmentBuilder(segment_header())
    feature.add(Kind.EPOCH, pack_epoch(1, TOKEN))
    marked = segment_header(incompatible_features=1 << 63, writer_version="headwater 9.9")
    yield Case(
        "unknown-feature",
        "an incompatible feature that nobody knows",
        pack_segment_frame(marked) + bytes(feature.data[256:]),
        feature,
        0,
        0,
        "REFUSED",
        refused="headwater 9.9",
    )
    newer = segment_header(format=2, writer_version="headwater 9.9")
    yield Case(
        "unknown-format",
        "a segment of format 2",
        pack_segment_frame(newer) + bytes(feature.data[256:]),
        feature,
        0,
        0,
        "REFUSED",
        refused="headwater 9.9",
    )
    passed = SegmentBuilder(segment_header(compatible_features=1 << 63))
    passed.add(Kind.EPOCH, pack_epoch(1, TOKEN))
    yield Case(
        "compatible-feature",
        "a compatible feature that nobody knows: passed over",
        bytes(passed.data),
        passed,
        1,
        len(passed.data),
        "END",
    )

    # A file system handed out blocks that an older file of this log, or the same file before a truncation, had used.
    older = SegmentBuilder(segment_header(salt=b"old salt", first_lsn=small.next_lsn))
    older.chain = small.chain
    older.add(Kind.DATA, b"stale: of the right LSN and chain, and of another salt", topic_number=1)
    yield Case(
        "stale-salt",
        "after the end a frame of an older file: LSN and chain fit, the salt does not",
        bytes(small.data) + bytes(older.data[256:]),
        small,
        2,
        size,
        "HEADER_CRC",
    )
    before = SegmentBuilder(segment_header())
    before.add(Kind.EPOCH, pack_epoch(1, b"another owner..."))
    stale = before.add(Kind.DATA, b"stale: of the right LSN and salt, and after another frame", topic_number=1)
    yield Case(
        "stale-chain",
        "after the epoch frame a frame that once followed another one there",
        bytes(small.data[:data_at]) + bytes(before.data[stale.at :]),
        small,
        1,
        data_at,
        "PREV",
        (data_at,),
    )
    skipped = SegmentBuilder(segment_header())
    skipped.add(Kind.DATA, b"LSN 1", topic_number=1)
    jumped = skipped.add(Kind.DATA, b"LSN 3 where 2 belongs", topic_number=1, lsn=3)
    yield Case(
        "skipped-lsn",
        "the chain fits and an LSN is missing",
        bytes(skipped.data),
        skipped,
        1,
        jumped.at,
        "LSN",
        (jumped.at,),
    )
    mixed = SegmentBuilder(segment_header())
    mixed.add(Kind.DATA, b"first of two", topic_number=1, write_index=0, write_count=2)
    other_write = mixed.add(Kind.DATA, b"of a write of its own", topic_number=1, write_index=0, write_count=1)
    yield Case(
        "broken-write",
        "the chain fits and the second frame of a write is of another",
        bytes(mixed.data),
        mixed,
        1,
        other_write.at,
        "WRITE",
        (other_write.at,),
        last_whole_lsn=0,
    )
    begun = SegmentBuilder(segment_header())
    late = begun.add(Kind.DATA, b"second of two", topic_number=1, write_index=1, write_count=2)
    yield Case(
        "headless-write",
        "the chain fits and the first frame of a write is nowhere",
        bytes(begun.data),
        begun,
        0,
        late.at,
        "WRITE",
        (late.at,),
    )
    fallen = SegmentBuilder(segment_header(epoch=2))
    fell = fallen.add(Kind.DATA, b"of epoch 1", topic_number=1, epoch=1)
    yield Case(
        "fallen-epoch",
        "the chain fits and the epoch falls",
        bytes(fallen.data),
        fallen,
        0,
        fell.at,
        "EPOCH",
        (fell.at,),
    )

    drained = SegmentBuilder(
        SegmentHeader(
            log_id=bytes(range(16)),
            salt=b"drained!",
            first_lsn=100,
            prev=0x1122334455667788,
            epoch=2,
            created_us=1_700_000_000_000_000,
            previous_first_lsn=50,
            generation=1,
            last_lsn=104,
            old_chain=0x8877665544332211,
        )
    )
    drained.add_gap(Gap(100, 103, 4, GapReason.DRAINED, 0x0102030405060708, ((1, 0, 12), (1, 3, 7), (9, 0, 1))))
    drained.add(Kind.DATA, b"the one row that is left", topic_number=2, row_count=1, offset_count=1)
    yield Case(
        "drained",
        "a gap that remembers the next offsets of three partitions, then a frame",
        bytes(drained.data),
        drained,
        2,
        len(drained.data),
        "END",
    )


def facts_of(case: Case) -> dict[str, Any]:
    """What a reader must find in the file."""
    facts: dict[str, Any] = {
        "about": case.about,
        "size_bytes": len(case.data),
        "sha256": hashlib.sha256(case.data).hexdigest(),
        "crc32c": f"0x{body_crc(case.data):08x}",
        "ends": {"at": case.end_at, "why": case.why},
        "valid_from_there": list(case.valid_after),
    }
    if case.refused is not None:
        return facts | {"refused": case.refused}
    if case.end_at == 0:
        return facts | {"segment": None, "frames": [], "last_whole_lsn": 0}
    built = case.built
    met = built.laid[: case.met]
    whole = case.last_whole_lsn
    if whole is None:
        whole = met[-1].facts["lsn"] if met else built.segment.first_lsn - 1
    return facts | {
        "segment": segment_facts(built.segment, built.segment_chain),
        "frames": [frame_facts(frame.at, frame.size, frame.chain, frame.facts) for frame in met],
        "last_whole_lsn": whole,
    }


def main(directory: Path = DIRECTORY, *, only_missing: bool = False) -> list[Path]:
    """Make the golden files; nothing is written if one of them is there, unless only the missing are wanted."""
    wanted = {directory / f"{case.name}{ending}": case for case in cases() for ending in (".seg", ".json")}
    there = sorted(path.name for path in wanted if path.exists())
    if there and not only_missing:
        raise FileExistsError(f"golden files are never made again, and these are there: {', '.join(there)}")
    made = []
    for path, case in wanted.items():
        if path.exists():
            continue
        content = case.data if path.suffix == ".seg" else (json.dumps(facts_of(case), indent=1) + "\n").encode()
        with path.open("xb") as file:
            file.write(content)
        made.append(path)
    return made


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "--only-missing"]
    for made_path in main(*(Path(argument) for argument in arguments), only_missing="--only-missing" in sys.argv):
        print(made_path.name)
