"""What the log must hold, kept beside it in plain lists: the judge of every simulated crash.

SETTLED  Frames that were acknowledged, or that an owner's recovery has shown: they stay for ever, byte for byte.
PENDING  Writes that were submitted and have no answer yet: the next recovery shows the first few of them, whole
         and in order, and none behind the first that is missing.
PROMISED Of these, writes that were acknowledged and have not been read back yet: they must be there.
REFUSED  Writes that were answered Unavailable: never seen again (V5).
GONE     Writes without an answer that an owner's recovery has shown to be absent: never seen again (V2).

Every frame has a number of its own, in `sequence`, so that one which should not be there is known by name.

NOT HERE Reading a log: invariants.py.  What is done to it: workload.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headwater.frames.frame import Header, Kind
from headwater.log import Draft

Seen = tuple[Header, bytes]
"""A frame as it was read: every field of its header, and its body."""

PRODUCER = 7
"""The producer of every frame that a workload submits; the log's own frames have none."""


class Violation(AssertionError):
    """A promise of the log is broken."""


class Expected(NamedTuple):
    """A frame that was submitted."""

    kind: int
    topic_number: int
    partition: int
    row_count: int
    base_offset: int
    write_index: int
    write_count: int
    producer_id: int
    sequence: int
    epoch: int
    body: bytes | None
    """None: the log makes it itself, and it is not compared."""

    def fits(self, seen: Seen) -> bool:
        header, body = seen
        return (
            header.kind == self.kind
            and header.topic_number == self.topic_number
            and header.partition == self.partition
            and header.row_count == self.row_count == header.offset_count
            and header.base_offset == self.base_offset
            and header.write_index == self.write_index
            and header.write_count == self.write_count
            and header.producer_id == self.producer_id
            and header.sequence == self.sequence
            and header.epoch == self.epoch
            and (self.body is None or self.body == body)
        )


class Model:
    """The log as it should be."""

    def __init__(self) -> None:
        self.settled: list[Seen] = []
        self.pending: list[list[Expected]] = []
        self.promised = 0
        """So many of the pending writes were acknowledged."""
        self.refused: set[int] = set()
        self.gone: set[int] = set()
        self.epoch = 0
        """The highest epoch that a returned claim has had."""
        self.next_offsets: dict[tuple[int, int], int] = {}
        self._pending_offsets: dict[tuple[int, int], int] = {}

    # What the workload tells ------------------------------------------------------------------

    def submit(self, writes: Sequence[Sequence[Draft]], *, epoch_frame: bool) -> None:
        """These writes are about to be committed together, in this order."""
        assert len(self.pending) == self.promised, "a log with pending writes is recovered first"
        self._pending_offsets = dict(self.next_offsets)
        if epoch_frame:
            self.pending.append([Expected(int(Kind.EPOCH), 0, 0, 0, 0, 0, 1, 0, 0, self.epoch, None)])
        for drafts in writes:
            self.pending.append(
                [self._expect(draft, index, len(drafts)) for index, draft in enumerate(drafts)],
            )

    def _expect(self, draft: Draft, index: int, count: int) -> Expected:
        base = 0
        if draft.kind == Kind.DATA:
            key = (draft.topic_number, draft.partition)
            base = self._pending_offsets.get(key, 0)
            self._pending_offsets[key] = base + draft.row_count
        return Expected(
            int(draft.kind),
            draft.topic_number,
            draft.partition,
            draft.row_count,
            base,
            index,
            count,
            draft.producer_id,
            draft.sequence,
            self.epoch,
            bytes(draft.body),
        )

    def refuse(self) -> None:
        """The commit was answered Unavailable."""
        for write in self.pending[self.promised :]:
            self.refused.update(frame.sequence for frame in write if frame.producer_id)
        del self.pending[self.promised :]

    def promise(self) -> None:
        """The commit was acknowledged."""
        self.promised = len(self.pending)
        self.next_offsets = self._pending_offsets

    def acknowledge(self, observed: list[Seen]) -> None:
        """The commit was acknowledged, and the whole log now reads as this."""
        self.promise()
        self.check(observed)
        self._settle(observed)

    def recovered(self, observed: list[Seen], epoch: int) -> None:
        """An owner's recovery has shown this log: what is absent now stays absent."""
        present = self.check(observed)
        self.claimed(epoch)
        for write in self.pending[present:]:
            self.gone.update(frame.sequence for frame in write if frame.producer_id)
        self._settle(observed)

    def claimed(self, epoch: int) -> None:
        """A claim has returned."""
        if epoch <= self.epoch:
            raise Violation(f"epoch {epoch} was claimed again: {self.epoch} had been claimed before")
        self.epoch = epoch

    def _settle(self, observed: list[Seen]) -> None:
        self.settled = observed
        self.pending.clear()
        self.promised = 0
        self.next_offsets = {}
        for header, _ in observed:
            if header.kind == Kind.DATA:
                self.next_offsets[header.topic_number, header.partition] = header.base_offset + header.offset_count

    # What must hold ---------------------------------------------------------------------------

    def check(self, observed: list[Seen]) -> int:
        """V1 to V5 for the log as it was read from LSN 1 on; returns how many pending writes are there."""
        settled = self.settled
        count = len(settled)
        if observed[:count] != settled:
            self._explain_loss(observed)
        rest = observed[count:]
        at = 0
        present = 0
        for write in self.pending:
            frames = rest[at : at + len(write)]
            if len(frames) < len(write) or not all(map(Expected.fits, write, frames)):
                break
            at += len(write)
            present += 1
        if present < self.promised:
            raise Violation(f"V1: {self.promised - present} of {self.promised} writes were acknowledged and are gone")
        if at < len(rest):
            self._explain_surplus(rest[at:])
        for lsn, (header, _) in enumerate(rest, count + 1):
            if header.lsn != lsn:
                raise Violation(f"V3: LSN {header.lsn} stands where {lsn} should")
        before = settled[-1][0].append_time_us if settled else 0
        for header, _ in rest:
            if header.append_time_us < before:
                raise Violation(f"V11: append time falls at LSN {header.lsn}")
            before = header.append_time_us
        return present

    def _explain_loss(self, observed: list[Seen]) -> None:
        for number, frame in enumerate(self.settled):
            if number >= len(observed):
                raise Violation(
                    f"V1: LSN {number + 1} to {len(self.settled)} were acknowledged or recovered, and are gone"
                )
            if observed[number] != frame:
                other = observed[number]
                raise Violation(f"V1: LSN {number + 1} is not what was acknowledged: {other!r} for {frame!r}")

    def _explain_surplus(self, surplus: list[Seen]) -> None:
        header, body = surplus[0]
        name = f"LSN {header.lsn} (epoch {header.epoch}, frame {header.sequence}, {len(body)} bytes)"
        if header.producer_id and header.sequence in self.refused:
            raise Violation(f"V5: {name} was refused, and is visible")
        if header.producer_id and header.sequence in self.gone:
            raise Violation(f"V2: {name} was absent at an earlier recovery, and has come back")
        for write in self.pending:
            for frame in write:
                if frame.fits(surplus[0]):
                    raise Violation(f"V4: {name} is visible, and its write is not whole")
                if frame.producer_id == header.producer_id and frame.sequence == header.sequence:
                    raise Violation(f"V2/V3: {name} is not what was submitted, or not where: {header} for {frame}")
        raise Violation(f"V2: {name} was never submitted")
