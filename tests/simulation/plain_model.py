"""A log as a plain list and a few dicts, rewriting and forgetting included: what every reader must find.

KEPT     Frames that were acknowledged, or shown by an owner's recovery: there, byte for byte, at their LSN and offset.
LOOSE    Of the kept ones, those that may be drained: there as they were, or inside a gap.
OPEN     Writes whose outcome is unknown: whole or absent, until an owner's recovery has shown which.
AWAY     Bodies of writes that were refused, or absent at an owner's recovery: never seen again.

Every body is used once, so it names its frame.

NOT HERE Doing anything to a log: test_stateful.py, tests/faults.  Crash states in bulk: model.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headwater.frames.bodies import unpack_gap
from headwater.frames.frame import Kind
from headwater.log import Draft, FrameLog, Receipt
from headwater.log.device import Frame

Partition = tuple[int, int]


class Kept(NamedTuple):
    """A frame that the log must hold."""

    partition: Partition
    base_offset: int
    row_count: int
    write_index: int
    write_count: int
    body: bytes


def body_of(number: int, size: int) -> bytes:
    """A body that no other number has."""
    return f"{number:08d}".encode() + bytes((number + at) % 251 for at in range(max(size - 8, 0)))


def read_from_start(log: FrameLog) -> list[Frame]:
    """Everything that the log still has."""
    segments = log.segments()
    return list(log.read(segments[0].first_lsn)) if segments else []


class PlainLog:
    """The log as it should be."""

    def __init__(self) -> None:
        self.kept: dict[int, Kept] = {}
        self.loose: set[int] = set()
        self.open: list[Sequence[Draft]] = []
        self.away: set[bytes] = set()
        self.next_offsets: dict[Partition, int] = {}
        self.log_start = 1
        self.times: dict[int, int] = {}
        """Append times of kept frames, by LSN."""

    # What is told -----------------------------------------------------------------------------

    def acknowledge(self, drafts: Sequence[Draft], receipt: Receipt) -> None:
        """An append has returned: its offsets follow those before it, and its LSNs are new."""
        self._answer(drafts)
        assert receipt.last_lsn - receipt.first_lsn + 1 == len(drafts) == len(receipt.base_offsets)
        assert receipt.first_lsn > max(self.kept, default=0), "V3: an LSN was given out twice"
        for index, (draft, base_offset) in enumerate(zip(drafts, receipt.base_offsets, strict=True)):
            partition = (draft.topic_number, draft.partition)
            following = self.next_offsets.get(partition, 0)
            assert base_offset == following, f"V3: offset {base_offset} of {partition} where {following} follows"
            self.next_offsets[partition] = base_offset + draft.row_count
            kept = Kept(partition, base_offset, draft.row_count, index, len(drafts), bytes(draft.body))
            self.kept[receipt.first_lsn + index] = kept
            self.times[receipt.first_lsn + index] = receipt.append_time_us

    def refuse(self, drafts: Sequence[Draft]) -> None:
        self._answer(drafts)
        self.away.update(bytes(draft.body) for draft in drafts)

    def leave_open(self, drafts: Sequence[Draft]) -> None:
        """A write is asked for; until there is an answer it may be there or not."""
        self.open.append(drafts)

    def _answer(self, drafts: Sequence[Draft]) -> None:
        self.open = [each for each in self.open if each is not drafts]

    def loosen(self, topics: Iterable[int], up_to_lsn: int) -> None:
        """Rows of these topics may be drained up to here."""
        wanted = set(topics)
        self.loose.update(lsn for lsn, kept in self.kept.items() if lsn <= up_to_lsn and kept.partition[0] in wanted)

    def forget(self, log_start: int) -> None:
        """It is recorded that the log begins here; what lies before may still be there."""
        self.log_start = max(self.log_start, log_start)

    def recovered(self, frames: Sequence[Frame]) -> None:
        """An owner's recovery has shown this: what is there stays, and what is not stays away."""
        shown = self.check(frames)
        for lsn, frame in shown.items():
            partition = (frame.header.topic_number, frame.header.partition)
            header = frame.header
            self.kept[lsn] = Kept(
                partition,
                header.base_offset,
                header.row_count,
                header.write_index,
                header.write_count,
                bytes(frame.body),
            )
            self.times[lsn] = header.append_time_us
            self.next_offsets[partition] = header.base_offset + header.row_count
        bodies = {kept.body for kept in self.kept.values()}
        for drafts in self.open:
            self.away.update(bytes(draft.body) for draft in drafts if bytes(draft.body) not in bodies)
        self.open.clear()

    # What must hold ---------------------------------------------------------------------------

    def check(self, frames: Sequence[Frame]) -> dict[int, Frame]:
        """V1 to V5 and V11 for all that can be read; returns the frames of open writes that are there."""
        asked = {bytes(draft.body): (number, draft) for number, drafts in enumerate(self.open) for draft in drafts}
        shown: dict[int, Frame] = {}
        found: dict[int, list[Frame]] = {}
        offsets: dict[Partition, int] = {}
        # Where all was forgotten, the log is empty and begins where it was told to.
        following = frames[0].header.lsn if frames else self.log_start
        if frames and frames[0].header.kind == Kind.GAP:
            gap = unpack_gap(frames[0].body)
            assert gap is not None
            following = gap.first_lsn
        assert following <= self.log_start, f"V1: the log begins at {following} and not at {self.log_start}"
        time_us = 0
        for frame in frames:
            header = frame.header
            first = header.lsn
            if header.kind == Kind.GAP:
                gap = unpack_gap(frame.body)
                assert gap is not None
                first = gap.first_lsn
                lost = [lsn for lsn in range(first, header.lsn + 1) if lsn in self.kept and lsn not in self.loose]
                assert not lost, f"V1: LSNs {lost} are in a gap and were not released"
                for topic, partition, offset in gap.next_offsets:
                    offsets[topic, partition] = offset
            assert first == following, f"V3: LSN {first} stands where {following} follows"
            following = header.lsn + 1
            assert header.append_time_us >= time_us, f"V11: append time falls at {header.lsn}"
            time_us = header.append_time_us
            if header.kind == Kind.DATA:
                self._check_frame(frame, offsets, asked, shown, found)
        last = max(self.kept, default=0)
        assert following > last, f"V1: LSNs {following} to {last} were acknowledged, and are gone"
        for number, present in found.items():
            wanted = [bytes(draft.body) for draft in self.open[number]]
            assert [bytes(frame.body) for frame in present] == wanted, "V4: a write is visible, and is not whole"
        return shown

    def _check_frame(
        self,
        frame: Frame,
        offsets: dict[Partition, int],
        asked: dict[bytes, tuple[int, Draft]],
        shown: dict[int, Frame],
        found: dict[int, list[Frame]],
    ) -> None:
        header, body = frame.header, bytes(frame.body)
        partition = (header.topic_number, header.partition)
        before = offsets.get(partition, header.base_offset)
        assert header.base_offset == before, f"V3: offset {header.base_offset} at {header.lsn} where {before} follows"
        offsets[partition] = header.base_offset + header.offset_count
        assert body not in self.away, f"V5: LSN {header.lsn} was refused or absent before, and is visible"
        seen = Kept(partition, header.base_offset, header.row_count, header.write_index, header.write_count, body)
        kept = self.kept.get(header.lsn)
        if kept is not None:
            assert seen == kept, f"V1: LSN {header.lsn} is {seen} and not {kept}"
            return
        assert body in asked, f"V2: LSN {header.lsn} was never submitted"
        number, draft = asked[body]
        assert (draft.topic_number, draft.partition, draft.row_count) == (*partition, header.row_count)
        found.setdefault(number, []).append(frame)
        shown[header.lsn] = frame
