"""Makes the golden files of the mark and the index, once: `python -m tests.formats.make_v1_mark_index [DIRECTORY]`.

They belong to golden segments: the mark and the index that a log has beside them.  As in make_v1.py a file that is
there is never made again, and the facts beside it are worked out here from what the segments were told to hold, not
taken from a decoder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headwater.frames.frame import Kind
from headwater.frames.segment_header import SEGMENT_FRAME_BYTES
from headwater.log.chain import ChainEnd
from headwater.log.index import ActiveIndex, partition_key
from headwater.log.mark import SLOT_POSITIONS, Mark, pack_slot
from tests.formats.golden_files import GoldenFile, make_missing, run_maker
from tests.formats.make_v1 import DIRECTORY
from tests.formats.segments import LOG_ID, walk

BEFORE = {"smallest": {(1, 2): 40}, "rewritten": {(3, 0): 12, (7, 1): 0}}
"""The next offset of each (topic, partition) before the golden segment."""


def clean_close() -> GoldenFile:
    """The mark of a log that was closed cleanly right after `smallest.seg` was written."""
    before = Mark(counter=5, log_id=LOG_ID, durable_lsn=2, segment=1, position=768, epoch=1)
    closed = before._replace(counter=6, clean=True)
    data = bytearray(SLOT_POSITIONS[1] + 64)
    data[:64] = pack_slot(closed)
    data[SLOT_POSITIONS[1] :] = pack_slot(before)
    facts = {
        "about": clean_close.__doc__,
        "newest_slot_at": 0,
        "slots": [{"at": at} | slot_facts(mark) for at, mark in zip(SLOT_POSITIONS, (closed, before), strict=True)],
    }
    return GoldenFile("clean-close.mark", bytes(data), facts)


def slot_facts(mark: Mark) -> dict[str, Any]:
    return mark._asdict() | {"log_id": mark.log_id.hex()}


def index_of(segment: str) -> GoldenFile:
    """The index of a golden segment."""
    data = (DIRECTORY / f"{segment}.seg").read_bytes()
    told = json.loads((DIRECTORY / f"{segment}.json").read_text(encoding="utf-8"))
    first_lsn, last = told["segment"]["first_lsn"], told["frames"][-1]
    before = BEFORE[segment]
    index = ActiveIndex(first_lsn, {partition_key(*key): following for key, following in before.items()})
    for met in walk(data).frames:
        index.add(met.header, met.at, met.body)
    times = [frame["append_time_us"] for frame in told["frames"]]
    end = ChainEnd(last["lsn"] + 1, int(last["chain"], 16), last["epoch"], max(times))
    packed = index.pack(data[:SEGMENT_FRAME_BYTES], end, len(data), told["segment"]["created_us"])
    facts: dict[str, Any] = {
        "about": f"The index of {segment}.seg.",
        "segment": f"{segment}.seg",
        "first_lsn": first_lsn,
        "last_lsn": last["lsn"],
        "chain": last["chain"],
        "segment_bytes": len(data),
        "append_time_us": max(times),
        "epoch": last["epoch"],
        "created_us": told["segment"]["created_us"],
        **sections(told["frames"], dict(before)),
    }
    return GoldenFile(f"{segment}.idx", packed, facts)


def sections(frames: list[dict[str, Any]], nexts: dict[tuple[int, int], int]) -> dict[str, Any]:
    """What the four sections hold, from the facts of the frames."""
    entries: dict[tuple[int, int], list[dict[str, int]]] = {}
    shares: dict[int, dict[str, int]] = {}
    for ordinal, frame in enumerate(frames):
        key = frame["topic_number"], frame["partition"]
        if frame["kind"] in (Kind.DATA, Kind.SPARSE):
            entry = {"base_offset": frame["base_offset"], "offset_count": frame["offset_count"], "ordinal": ordinal}
            entries.setdefault(key, []).append(entry)
            nexts[key] = frame["base_offset"] + frame["offset_count"]
        if frame["kind"] == Kind.GAP:
            continue
        share = shares.setdefault(key[0], {"topic": key[0], "frames": 0, "bytes": 0, "rows": 0, "last_lsn": 0})
        share["frames"] += 1
        share["bytes"] += frame["size"]
        share["rows"] += frame["row_count"]
        share["last_lsn"] = frame["lsn"]
    running = [max(each["append_time_us"] for each in frames[: number + 1]) for number in range(len(frames))]
    return {
        "frames": [
            {"lsn": frame["lsn"], "position": frame["at"], "append_time_us": time_us}
            for frame, time_us in zip(frames, running, strict=True)
        ],
        "entries": [entry for key in sorted(nexts) for entry in entries.get(key, [])],
        "partitions": [
            {"topic": topic, "partition": partition, "next_offset": nexts[topic, partition],
             "entries": len(entries.get((topic, partition), []))}
            for topic, partition in sorted(nexts)
        ],
        "topics": [shares[topic] for topic in sorted(shares)],
    }  # fmt: skip


def golden_files() -> Iterator[GoldenFile]:
    yield clean_close()
    for segment in BEFORE:
        yield index_of(segment)


def main(directory: Path = DIRECTORY) -> list[Path]:
    return make_missing(golden_files(), directory)


if __name__ == "__main__":
    run_maker(main)
