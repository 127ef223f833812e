"""Makes the golden files of a log on an object store, once: `python -m tests.formats.make_v1_objects [DIRECTORY]`.

fence.slot     slot 1: a claim of a new log; it opens the log's first segment, with one EPOCH frame
commit.slot    slot 9: a commit behind it, since a fence makes 7 slots void; it goes on with the segment, with a write
               of two DATA frames
opening.slot   slot 10: a segment is opened, with no frame yet
trim           after the first segment was taken in as slots, the walk begins at slot 10
lease          the owner's third sign of life

As in make_v1.py a file that is there is never made again, and the facts beside it are what is written here by hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from headwater.frames.bodies import pack_epoch
from headwater.frames.frame import Kind, salt_crc
from headwater.frames.segment_header import SegmentHeader, pack_segment_frame
from headwater.log.chain import ChainEnd, seal_writes
from headwater.log.drafts import Draft
from headwater.log.log_lease import Lease, pack_lease
from headwater.log.manifest import KeptSegment, Manifest, pack_manifest
from headwater.log.segment import opening_of
from headwater.log.slots import CONTINUES, FENCE, pack_slot
from tests.formats.golden_files import GoldenFile, make_missing, run_maker
from tests.formats.segments import CREATED_US, LOG_ID, SALT, TOKEN

DIRECTORY = Path(__file__).parent / "v1_objects"
WINDOW = 8
FIRST, SECOND = b"rows of a partition", b"rows of another, of which there are more than fit into one unit " * 3


def _slot(
    number: int, flags: int, end: ChainEnd, drafts: Sequence[Draft], salt: bytes = SALT
) -> tuple[bytes, ChainEnd]:
    """A slot that goes on at `end`, and where it ends."""
    header = SegmentHeader(
        LOG_ID,
        salt,
        end.next_lsn,
        end.chain,
        1,
        CREATED_US + number,
        previous_first_lsn=0 if number == 1 else 1,
        slot=number,
        flags=flags,
    )
    if not flags & CONTINUES:
        end = ChainEnd(end.next_lsn, opening_of(pack_segment_frame(header)).chain, 1, end.append_time_us)
    writes = [(drafts, tuple(5 * place for place in range(len(drafts))))] if drafts else []
    sealed = seal_writes(
        writes, end, salt_crc(salt), durable_lsn=end.next_lsn - 1, epoch=1, append_time_us=CREATED_US + number
    )
    return pack_slot(header, sealed.buffers), sealed.end


def golden_files() -> Iterator[GoldenFile]:
    fence, fenced = _slot(1, FENCE, ChainEnd(1, 0, 0, 0), [Draft(Kind.EPOCH, pack_epoch(1, TOKEN))])
    commit, committed = _slot(
        9,
        CONTINUES,
        fenced,
        [
            Draft(Kind.DATA, FIRST, topic_number=1, row_count=5),
            Draft(Kind.DATA, SECOND, topic_number=1, partition=1, row_count=7),
        ],
    )
    opening, _ = _slot(10, 0, committed, [], b"another!")
    size = len(fence) + len(commit) - 256
    kept = KeptSegment(
        first_lsn=1,
        generation=0,
        size=size,
        created_us=CREATED_US + 1,
        end=committed,
        opening=fence[:256],
        slots=((1, len(fence)), (9, len(commit))),
        fences=(1,),
    )
    trim = Manifest(LOG_ID, WINDOW, 10, 1, TOKEN, (kept,), None, committed)
    lease = Lease(TOKEN.hex(), "worker-3", 18560, CREATED_US, counter=2)
    yield GoldenFile("fence.slot", fence, {"slot": 1, "flags": FENCE, "first_lsn": 1, "lsns": [1], "epoch": 1})
    yield GoldenFile("commit.slot", commit, {"slot": 9, "flags": CONTINUES, "first_lsn": 2, "lsns": [2, 3], "epoch": 1})
    yield GoldenFile("opening.slot", opening, {"slot": 10, "flags": 0, "first_lsn": 4, "lsns": [], "epoch": 1})
    yield GoldenFile(
        "trim",
        pack_manifest(trim),
        {"next": 10, "epoch": 1, "window": WINDOW, "segments": [1], "segment_bytes": size, "next_lsn": 4},
    )
    yield GoldenFile(
        "lease",
        pack_lease(lease),
        {"token": TOKEN.hex(), "host": "worker-3", "pid": 18560, "since_us": CREATED_US, "counter": 2},
    )


def main(directory: Path = DIRECTORY) -> list[Path]:
    return make_missing(golden_files(), directory)


if __name__ == "__main__":
    run_maker(main)
