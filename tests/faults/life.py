"""A fixed life of a small log, each step answered by name, with a plain model beside it: what the faults are put into.

STEPS    Claim, appends of one and of many frames, a roll by size and one that is asked for, a drain, a deletion, a
         reader in another process, the mark's sync, a clean close, and a second life.
ANSWERS  A step that was refused is over.  After an unknown outcome the log is closed, and the next step opens it again.
NOT HERE Which call fails: the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from headwater.clock import ManualClock
from headwater.errors import HeadwaterError, OutcomeUnknown, Poisoned, Unavailable
from headwater.frames.frame import Kind
from headwater.ids import Lsn
from headwater.log import Draft, FrameLog, open_log
from headwater.log.deletion import Deletion, DeletionIntent, Release, drain
from headwater.log.pins import Pins
from headwater.log.verify import verify_log
from headwater.settings import LogSettings
from headwater.storage.simulated import Choice, SimulatedFiles
from tests.simulation.plain_model import PlainLog, body_of, read_from_start

SETTINGS = LogSettings(
    segment_size_bytes_max=2048,
    write_body_bytes_max=2048,
    mark_sync_idle_s=0.0,
    reserve_bytes=1024,
    deletion_grace_s=0.0,
    scan_chunk_bytes=4096,
)
PARTITIONS = ((1, 0), (1, 1), (2, 0))


class Life:
    """One log and its model; `run` goes through the steps, whatever fails in them."""

    def __init__(self, files: SimulatedFiles, *, settings: LogSettings = SETTINGS) -> None:
        self.files = files
        self.settings = settings
        self.clock = ManualClock()
        self.chance = Random(files.seed)
        self.model = PlainLog()
        self.log: FrameLog | None = None
        self.after_step: Callable[[], None] = lambda: None
        self.refusals: list[str] = []
        self._number = 0

    # Steps ------------------------------------------------------------------------------------

    def run(self) -> None:
        for step in (
            self.claim,
            lambda: self.append((1, 0)),
            lambda: self.append((2, 0), (2, 0), (1, 1)),
            lambda: self.append((1, 0), size=900),
            lambda: self.append((2, 0), size=700),
            self.roll,
            lambda: self.append((1, 1)),
            self.drain,
            self.look,
            self.sync_mark,
            lambda: self.append((1, 0), (2, 0)),
            self.delete,
            self.drain,
            lambda: self.append((2, 0)),
            self.close,
            self.look,
            lambda: self.append((1, 0), (1, 1)),
            self.roll,
            self.close,
        ):
            step()
            self.after_step()

    def claim(self) -> None:
        self._act(lambda log: log.claim())

    def append(self, *partitions: tuple[int, int], size: int = 60) -> None:
        drafts = []
        for topic, partition in partitions:
            self._number += 1
            body = body_of(self._number, size)
            drafts.append(
                Draft(Kind.DATA, body, topic_number=topic, partition=partition, row_count=self._number % 3 + 1)
            )
        self.clock.advance(1)
        log = self._opened()
        if log is None:
            return
        self.model.leave_open(drafts)
        try:
            receipt = log.append(drafts)
        except (Unavailable, Poisoned) as error:
            self.model.refuse(drafts)
            if isinstance(error, Poisoned):
                self._broken(log, error)
            else:
                self._refused(error)
        except OutcomeUnknown as error:
            self._broken(log, error)
        else:
            self.model.acknowledge(drafts, receipt)

    def roll(self) -> None:
        self._act(lambda log: log.roll())

    def sync_mark(self) -> None:
        self._act(lambda log: log.exclusively(log.device.sync_mark))

    def drain(self) -> None:
        """Topic 2 goes out of the first segment."""

        def act(log: FrameLog) -> None:
            first = log.segments()[0]
            if first.sealed:
                self.model.loosen([2], first.last_lsn)
                released = {2: Release(first.last_lsn, 0)}
                drain(log, first.name, released=released, covered_lsn=Lsn(0))

        self._act(act, reads=True)

    def delete(self) -> None:
        """What lies wholly before the newest two segments goes."""

        def act(log: FrameLog) -> None:
            segments = log.segments()
            if len(segments) < 3:
                return
            last = segments[-3].last_lsn
            deletion = Deletion(
                log, pins=Pins(self.files), record_intent=self._record, clock=self.clock, settings=self.settings
            )
            released = {topic: Release(last, 0) for topic in (1, 2)}
            self.model.loosen([1, 2], last)
            deletion.run(log_start=Lsn(self.model.log_start), covered_lsn=last, released=released)

        self._act(act, reads=True)

    def look(self) -> None:
        """A reader in another process."""
        try:
            reader = self.open()
            frames = read_from_start(reader)
            self.model.check(frames)
            for frame in frames:
                reader.find_time(frame.header.append_time_us)
            reader.close()
        except OSError as error:
            self._refused(error)

    def close(self) -> None:
        log, self.log = self.log, None
        if log is not None:
            self._close(log)

    # Inside them ------------------------------------------------------------------------------

    def open(self) -> FrameLog:
        return open_log(
            self.files,
            settings=self.settings,
            clock=self.clock,
            entropy=self.chance.randbytes,
            log_start=lambda: self.model.log_start,
        )

    def _opened(self) -> FrameLog | None:
        """The log, with the model settled if an owner's recovery had to come first."""
        if self.log is not None:
            return self.log
        try:
            log = self.open()
        except OSError as error:
            # Opening only reads.
            self._refused(error)
            return None
        try:
            log.claim()
            frames = read_from_start(log)
        except (Unavailable, OutcomeUnknown, Poisoned) as error:
            self._refused(error)
            self._close(log)
            return None
        except OSError as error:
            self._refused(error)
            self._close(log)
            return None
        self.model.recovered(frames)
        self.log = log
        return log

    def _act(self, act: Callable[[FrameLog], object], *, reads: bool = False) -> None:
        log = self._opened()
        if log is None:
            return
        try:
            act(log)
        except Unavailable as error:
            self._refused(error)
        except (OutcomeUnknown, Poisoned) as error:
            self._broken(log, error)
        except OSError as error:
            if not reads:
                raise
            self._refused(error)

    def _broken(self, log: FrameLog, error: HeadwaterError) -> None:
        self._refused(error)
        self.log = None
        self._close(log)

    def _close(self, log: FrameLog) -> None:
        try:
            log.close()
        except (OutcomeUnknown, Poisoned) as error:
            self._refused(error)

    def _refused(self, error: Exception) -> None:
        self.refusals.append(f"{type(error).__name__}: {error}")

    def _record(self, intent: DeletionIntent) -> None:
        self.model.forget(intent.log_start)

    # Afterwards -------------------------------------------------------------------------------

    def states(self) -> list[SimulatedFiles]:
        """What a kill now and power losses now leave."""
        return [
            self.files.restart(),
            self.files.crash(self.chance, choice=Choice.NOTHING),
            self.files.crash(self.chance),
            self.files.crash(self.chance),
        ]

    def check(self, state: SimulatedFiles) -> None:
        """Open what is left: all promises hold, and the log goes on."""
        with open_log(
            state,
            settings=self.settings,
            clock=self.clock,
            entropy=self.chance.randbytes,
            log_start=lambda: self.model.log_start,
        ) as log:
            log.claim()
            frames = read_from_start(log)
            shown = self.model.check(frames)
            offsets = dict(self.model.next_offsets)
            for frame in shown.values():
                header = frame.header
                offsets[header.topic_number, header.partition] = header.base_offset + header.row_count
            for topic, partition in PARTITIONS:
                draft = Draft(Kind.DATA, b"afterwards", topic_number=topic, partition=partition, row_count=1)
                receipt = log.append([draft])
                wanted = offsets.get((topic, partition), 0)
                assert receipt.base_offsets[0] == wanted, f"V3: {receipt.base_offsets[0]} where {wanted} follows"
                found = log.find(topic, partition, wanted)
                assert found is not None and found.lsn == receipt.first_lsn
            read = [(frame.lsn, bytes(frame.body)) for frame in read_from_start(log)]
            assert read[: len(frames)] == [(frame.lsn, bytes(frame.body)) for frame in frames]
            assert [body for _, body in read].count(b"afterwards") == len(PARTITIONS)
        report = verify_log(state, settings=self.settings, log_start=Lsn(self.model.log_start))
        assert report.ok, report.findings
