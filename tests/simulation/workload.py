"""A seeded life of a log: appends, rolls, closes, kills, power losses and faults, with the model beside it.

SEED     Decides over everything: the settings, what is appended, which call fails, where it is killed.
LIVES    Each begins by opening and claiming the log and ends by a clean close, a kill or a power loss, between two
         calls or in the middle of one.
HOOK     `on_call` hears of every call that changes or syncs something, before it happens: there the crash engine
         takes its states.  It may raise Killed to end the life right there.
NOT HERE Taking and judging crash states: crashes.py.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from concurrent.futures import Future
from random import Random

from headwater.clock import ManualClock
from headwater.errors import HeadwaterError, OutcomeUnknown, Poisoned, Unavailable
from headwater.frames.frame import NO_SALT_CRC, Kind, body_crc, salt_crc, seal_header
from headwater.log import Draft, FrameLog, Receipt
from headwater.settings import LogSettings
from headwater.storage.simulated import Choice, SimulatedFiles
from tests.simulation.invariants import DIRECTORY, World, read_all, recover, without_sizes
from tests.simulation.model import PRODUCER, Model, Violation

TOPICS = 3
PARTITIONS = 2


class Killed(BaseException):
    """The process ends here, in the middle of a call."""


OnCall = Callable[[SimulatedFiles, str, str], None]


def _hear_nothing(files: SimulatedFiles, verb: str, name: str) -> None:
    return


def commit_together(log: FrameLog, writes: list[list[Draft]]) -> list[Future[Receipt]]:
    """As the background thread would, but in this thread: whoever has the baton commits all that is queued."""
    writer = log._writer
    assert writer._baton.acquire(blocking=False)
    futures = [log.append_future(drafts) for drafts in writes]
    writer._lead()
    return futures


class Workload:
    """One log, its model, and a seed that drives both."""

    def __init__(
        self,
        seed: int,
        *,
        on_call: OnCall = _hear_nothing,
        fault_share: float | None = None,
        only_full_disks: bool = False,
    ) -> None:
        self.seed = seed
        self.chance = Random(seed)
        segment_bytes = 8192 if only_full_disks else self.chance.choice([1536, 2048, 4096, 8192])
        settings = LogSettings(
            segment_size_bytes_max=segment_bytes,
            write_body_bytes_max=segment_bytes,
            mark_sync_idle_s=0.0,
            reserve_bytes=self.chance.choice([0, 0, 1024]),
            scan_chunk_bytes=self.chance.choice([1024, 16384]),
        )
        self.world = World(settings, ManualClock(), Random(self.chance.random()))
        self._steps_max = self.chance.choice([2, 4, 9])
        drawn_share = self.chance.choice([0.08, 0.2, 0.4])
        self._fault_share = drawn_share if fault_share is None else fault_share
        # Frames that fill whole sectors: what an earlier file or write left in a sector is then whole as well.
        self._whole_sectors = self.chance.random() < 0.4 or only_full_disks
        self._only_full_disks = only_full_disks
        self.model = Model()
        self.files = SimulatedFiles(seed)
        self.log: FrameLog | None = None
        self.on_call = on_call
        self._calls_left: int | None = None
        self._dies_at = ("", 0)
        """The call on a segment at which this life ends: its verb, and how many of them come before."""
        self._last_sequence = 0
        self.acknowledged = 0
        self.steps: list[str] = []
        """What was done, for people who replay a seed."""
        self._use(self.files)

    # Lives ------------------------------------------------------------------------------------

    def run(self, calls: int) -> None:
        """Live until the files have been called about this often."""
        done = 0
        while done < calls:
            self._live()
            done += len(self.files.calls)
            self._end_life()

    def _use(self, files: SimulatedFiles) -> None:
        self.files = files
        files.before_call = self._before_call

    def _before_call(self, verb: str, name: str) -> None:
        self.on_call(self.files, verb, name)
        if self._dies_at[0] == verb and name.endswith(".seg"):
            self._dies_at = (verb, self._dies_at[1] - 1)
            if self._dies_at[1] < 0:
                self._dies_at = ("", 0)
                raise Killed
        if self._calls_left is not None:
            self._calls_left -= 1
            if self._calls_left < 0:
                self._calls_left = None
                raise Killed

    def _live(self) -> None:
        if self.chance.random() < 0.25:
            # This life ends in the middle of a call; early ones end in the recovery.
            self._calls_left = self.chance.randrange(40) if self.chance.random() < 0.7 else self.chance.randrange(12)
        try:
            self._open()
            for _ in range(self.chance.randint(1, self._steps_max)):
                if self.log is None:
                    self._open()
                self._step()
            if self.log is not None and self.chance.random() < 0.4:
                self._die_at_a_sync(self.log)
        except Killed:
            self._note("killed in the middle of a call")
            self.log = None
        self._calls_left = None
        self._dies_at = ("", 0)
        self.files.heal()
        self.files.capacity_bytes = None

    def _die_at_a_sync(self, log: FrameLog) -> None:
        """End the life where most is at stake: bytes are written, and not synced."""
        if self.chance.random() < 0.75:
            self._dies_at = ("sync_data", 0)
            self.commit(self.some_writes())
        else:
            # The first sync of a roll is the old segment's, which has nothing to lose.
            self._dies_at = self.chance.choice([("append", 0), ("sync_all", 1), ("sync_all", 1)])
            self._try(log, log.roll)

    def _open(self) -> None:
        self._note("open")
        fault = self.chance.random() < 0.08
        if fault:
            verb = self.chance.choice(["write_at", "sync_all", "sync_data", "sync_directory", "truncate", "create"])
            self._note(f"a failing {verb} in recovery")
            self.files.fail(1, errno.EIO, verbs=[verb])
            try:
                log = self.world.open(self.files)
                log.claim()
            except (Unavailable, OutcomeUnknown, Poisoned) as error:
                self._note(f"recovery failed: {error}")
                self.files.heal()
                if self.chance.random() < 0.5:
                    self._note("kill")
                    self._use(self.files.restart())
            else:
                self.files.heal()
                self._close(log)
        log, observed = recover(self.world, self.files)
        self.model.recovered(observed, log.recovery_report.epoch)
        self._note(f"epoch {self.model.epoch}, {len(observed)} frames: {log.recovery_report.verdict}")
        self.log = log

    def _end_life(self) -> None:
        draw = self.chance.random()
        if self.log is not None and draw < 0.45:
            self._note("close")
            self._close(self.log)
        elif draw < 0.25:
            self._note("kill")
            self._use(self.files.restart())
        elif draw < 0.5:
            self._note("power loss that keeps the data and no size")
            self._use(without_sizes(self.files, self.chance))
        elif draw < 0.65:
            choice = self.chance.choice([Choice.NOTHING, Choice.EVERYTHING])
            self._note(f"power loss that keeps {choice.value}")
            self._use(self.files.crash(self.chance, choice=choice))
        else:
            self._note("power loss")
            self._use(self.files.crash(self.chance))
        self.log = None
        if self.chance.random() < 0.1:
            self._lose_index()

    def _close(self, log: FrameLog) -> None:
        try:
            log.close()
        except (HeadwaterError, OSError) as error:
            self._note(f"close failed: {error}")
            self.files.heal()
            self._use(self.files.restart())

    def _lose_index(self) -> None:
        names = [name for name in self.files.list(DIRECTORY) if name.endswith(".idx")]
        if names:
            name = self.chance.choice(names)
            self._note(f"lost {name}")
            self.files.before_call = None
            self.files.unlink(f"{DIRECTORY}/{name}")
            self.files.sync_directory(DIRECTORY)
            self._use(self.files)

    def _note(self, what: str) -> None:
        self.steps.append(what)

    # Steps ------------------------------------------------------------------------------------

    def _step(self) -> None:
        log = self.log
        assert log is not None
        self._move_clock()
        draw = self.chance.random()
        if draw < self._fault_share:
            self._step_with_fault(log)
        elif draw < self._fault_share + 0.08:
            self._note("roll")
            self._try(log, log.roll)
        elif draw < self._fault_share + 0.12:
            self._note("sync the mark")
            self._try(log, log.device.sync_mark)
        else:
            self.commit(self.some_writes())

    def _step_with_fault(self, log: FrameLog) -> None:
        # Of a range of faults the one in the middle is the full disk.
        draw = 0.6 if self._only_full_disks else self.chance.random()
        files = self.files
        if draw < 0.35:
            error = self.chance.choice([errno.EIO, errno.ENOSPC])
            short = self.chance.random() < 0.8
            self._note(f"a failing append: {errno.errorcode[error]}{', short' if short else ''}")
            files.fail(1, error, verbs=["append"], short=short)
            if self.chance.random() < 0.2:
                verb = self.chance.choice(["truncate", "sync_all"])
                self._note(f"... and then a failing {verb}")
                files.fail(1, errno.EIO, verbs=[verb])
            self.commit(self.some_writes())
        elif draw < 0.5:
            verb = self.chance.choice(["sync_data", "sync_data", "write_at"])
            self._note(f"a failing {verb}")
            files.fail(1, errno.EIO, verbs=[verb])
            self.commit(self.some_writes())
        elif draw < 0.7:
            writes = self.some_writes()
            # Often so much that the first of several writes fits, or nearly all of them do.
            sizes = [sum(draft.frame_size for draft in drafts) for drafts in writes]
            first = sizes[0] + (0 if log._writer._epoch_begun == log.device.claim().epoch else 256)
            room = self.chance.choice([self.chance.randrange(4000), first, first, sum(sizes) - 128])
            self._note(f"a disk with {room} bytes left")
            files.capacity_bytes = files._used_bytes() + room
            self.commit(writes)
            files.capacity_bytes = None
        else:
            verbs = ["create", "append", "sync_data", "sync_all", "sync_directory", "rename", "write_at"]
            verb = self.chance.choice(verbs)
            self._note(f"a roll with a failing {verb}")
            # The index comes first in a roll, and then the new segment.
            nth = self.chance.choice([1, 2, 2] if verb in ("create", "append") else [1, 1, 2])
            files.fail(nth, errno.EIO, verbs=[verb], short=self.chance.random() < 0.5)
            self._try(log, log.roll)
            files.heal()
            if self.log is not None:
                self._roll_again(log)
        files.heal()

    def _roll_again(self, log: FrameLog) -> None:
        """Nothing fails any more, so a roll that could not be made can be made now (V14)."""
        try:
            log.roll()
        except HeadwaterError as error:
            raise Violation(f"V14: a roll fails although nothing fails any more: {error}") from error

    def _try(self, log: FrameLog, act: Callable[[], object]) -> None:
        """Do something that is no append; a poisoned log is closed, and opened again by the next step."""
        try:
            act()
        except Unavailable as error:
            self._note(f"unavailable: {error}")
        except (OutcomeUnknown, Poisoned) as error:
            self._note(f"poisoned: {error}")
            self._reopen(log)

    def _reopen(self, log: FrameLog) -> None:
        self.files.heal()
        self.files.capacity_bytes = None
        self._close(log)
        self.log = None

    def commit(self, writes: list[list[Draft]]) -> None:
        """Submit writes that are committed together, and tell the model what became of them."""
        log = self.log
        assert log is not None
        writer = log._writer
        # A refused commit is followed by a new epoch in the same life.
        self.model.epoch = log.device.claim().epoch
        self.model.submit(writes, epoch_frame=writer._epoch_begun < self.model.epoch)
        numbers = [draft.sequence for drafts in writes for draft in drafts]
        self._note(f"append {len(writes)} writes, frames {numbers[0]} to {numbers[-1]}")
        futures = commit_together(log, writes)
        errors = [future.exception(0) for future in futures]
        if not any(errors):
            self.acknowledged += len(writes)
            self.model.acknowledge(read_all(log))
            self._check_receipts(writes, [future.result(0) for future in futures])
            return
        if not all(type(error) is type(errors[0]) for error in errors):
            raise Violation(f"requests of one commit were answered differently: {errors}")
        self._note(f"answered {errors[0]!r}")
        if isinstance(errors[0], Unavailable):
            self.model.refuse()
            if self.model.check(read_all(log)):
                raise Violation("V5: a refused write can be read")
        elif isinstance(errors[0], OutcomeUnknown | Poisoned):
            self._reopen(log)
        else:
            raise Violation(f"an append was answered with {errors[0]!r}")

    def _check_receipts(self, writes: list[list[Draft]], receipts: list[Receipt]) -> None:
        by_lsn = {header.lsn: header for header, _ in self.model.settled[-sum(map(len, writes)) :]}
        for drafts, receipt in zip(writes, receipts, strict=True):
            headers = [by_lsn[lsn] for lsn in range(receipt.first_lsn, receipt.last_lsn + 1)]
            if [header.sequence for header in headers] != [draft.sequence for draft in drafts]:
                raise Violation(f"a receipt names other frames than were appended: {receipt}")
            if tuple(header.base_offset for header in headers) != receipt.base_offsets:
                raise Violation(f"V3: a receipt names other offsets than were given: {receipt}")

    def _move_clock(self) -> None:
        draw = self.chance.random()
        clock = self.world.clock
        if draw < 0.5:
            clock.advance(self.chance.random() * 10)
        elif draw < 0.6:
            clock.set_wall_clock(clock.now_us() - self.chance.randrange(10_000_000))
        elif draw < 0.63:
            clock.advance(4000)

    # What is appended -------------------------------------------------------------------------

    def some_writes(self) -> list[list[Draft]]:
        limit = self.world.settings.write_body_bytes_max
        writes = []
        for _ in range(self.chance.choice([1, 1, 1, 2, 3])):
            drafts: list[Draft] = []
            room = limit
            for _ in range(self.chance.choice([1, 1, 2, 3, 5])):
                draft = self._draft(room)
                room -= draft.body_size
                drafts.append(draft)
            writes.append(drafts)
        return writes

    def _draft(self, room: int) -> Draft:
        chance = self.chance
        self._last_sequence += 1
        if self._whole_sectors:
            size = chance.choice([384, 384, 896])
        else:
            size = chance.choice([0, 1, 100, 127, 128, 129, 384, chance.randrange(1500)])
        body = chance.randbytes(min(room, size))
        if chance.random() < 0.12:
            body = self._forged_body()
            body = (body.ljust(size, b"\0")[:size] if self._whole_sectors else body)[:room]
        if chance.random() < 0.85:
            kind, topic, rows = int(Kind.DATA), chance.randint(1, TOPICS), chance.randint(0, 5)
        else:
            kind, topic, rows = int(chance.choice([Kind.SCHEMA, Kind.OFFSETS, Kind.METADATA])), 0, 0
        return Draft(
            kind=kind,
            body=body,
            topic_number=topic,
            partition=chance.randrange(PARTITIONS) if topic else 0,
            row_count=rows,
            producer_id=PRODUCER,
            sequence=self._last_sequence,
        )

    def _forged_body(self) -> bytes:
        """Bytes that look like frames, where frames could begin: a body is aligned as a frame is."""
        chance = self.chance
        names = [name for name in self.files._names if name.endswith(".seg")]
        contents = [data for data in map(self.files.contents, names) if len(data) >= 256]
        if contents and chance.random() < 0.3:
            # A piece of the log itself, as somebody has who stores a segment in a topic.
            data = chance.choice(contents)
            start = chance.randrange(len(data)) // 128 * 128
            return data[start : start + 512]
        kind = chance.choice([Kind.DATA, Kind.SEGMENT, Kind.EPOCH])
        salted = NO_SALT_CRC
        if len(contents) > 1 and chance.random() < 0.5:
            salted = salt_crc(chance.choice(contents[:-1])[144:152])
        body = chance.randbytes(128)
        last = self.model.settled[-1][0] if self.model.settled else None
        header, _ = seal_header(
            salted,
            body_crc=body_crc(body),
            kind=int(kind),
            codec=0,
            flags=0,
            body_size=len(body),
            lsn=(last.lsn if last is not None else 0) + chance.randint(1, 4),
            prev=last.header_crc << 32 | last.body_crc if last is not None else 0,
            durable_lsn=chance.choice([1 << 40, (last.lsn if last is not None else 0) + 1]),
            epoch=self.model.epoch + chance.choice([0, 1, 1000]),
            write_index=0,
            write_count=1,
            topic_number=1,
            partition=0,
            base_offset=0,
            row_count=1,
            offset_count=1,
            schema_version=0,
            producer_epoch=0,
            producer_id=PRODUCER,
            sequence=1 << 40,
            append_time_us=self.world.clock.now_us(),
            time_min_us=0,
            time_max_us=0,
        )
        return (header + body) * chance.choice([1, 2, 4])
