"""A fixed life of a log, in which any one call fails, once or for ever; and the judgement of what is left.

SCRIPT   Opens a new log, appends, rolls, closes; opens it again, appends; loses an index, is killed, recovers a torn
         tail; reads.  Whoever runs it goes on after an error as a careful caller would: a refused append is given up,
         a poisoned log is closed and opened again, and after three failures in a row the process ends.
ERRORS   Appends, rolls and claims fail with an error of Headwater's own, never with a bare OSError: what became of a
         write must be told by name.  Opening for reading, reading and closing may show the OSError itself.
AFTER    The fault is mended, and the log must hold what it promised: after a kill, after a power loss that keeps
         nothing, everything, or some of what was not synced.  And it must take appends again (V14).
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from headwater.errors import Closed, CorruptData, HeadwaterError, OutcomeUnknown, Poisoned, Unavailable
from headwater.frames.frame import Kind
from headwater.log import Draft, FrameLog
from headwater.settings import LogSettings
from headwater.storage.simulated import Choice, SimulatedFiles

from tests.simulation.invariants import DIRECTORY, check_mark, examine, quiet, read_all
from tests.simulation.model import PRODUCER, Seen, Violation
from tests.simulation.workload import Workload, commit_together

ERRORS = (errno.EIO, errno.ENOSPC, errno.EINTR)


@dataclass(frozen=True)
class Fault:
    """What fails: the n-th call of these verbs (None: of all), how, and whether everything after it fails too."""

    nth_call: int
    error: int
    for_ever: bool = False
    short: bool = False
    verbs: tuple[str, ...] | None = None

    def __str__(self) -> str:
        verbs = "/".join(self.verbs) if self.verbs is not None else "any"
        how = f"{errno.errorcode[self.error]}{' after a part' if self.short else ''}"
        return f"call {self.nth_call} of {verbs} fails with {how}{' for ever' if self.for_ever else ''}"


class _GivesUp(Exception):
    """Too much has failed: the process ends."""


class Life:
    """Runs the script over files of which one fails."""

    def __init__(self, fault: Fault | None) -> None:
        self.workload = Workload(1)
        self.workload.world.settings = LogSettings(
            segment_size_bytes_max=2048,
            write_body_bytes_max=2048,
            mark_sync_idle_s=0.0,
            reserve_bytes=1024,
            scan_chunk_bytes=4096,
        )
        self.model = self.workload.model
        self.files = self.workload.files
        self.log: FrameLog | None = None
        self.answers: list[str] = []
        self._failures = 0
        self._sequence = 0
        self._fault = fault
        self.calls: list[tuple[str, str]] = []

    def run(self) -> None:
        with quiet():
            if self._fault is not None:
                fault = self._fault
                self.files.fail(
                    fault.nth_call, fault.error, for_ever=fault.for_ever, verbs=fault.verbs, short=fault.short
                )
            try:
                self._play()
            except _GivesUp:
                self.answers.append("gave up")
            self.calls.extend(self.files.calls)
            self.files.heal()
            self._judge()

    # The script -------------------------------------------------------------------------------

    def _play(self) -> None:
        self._append(1)
        self._append(3, 1)
        self._roll()
        self._append(2)
        self._close()
        self._append(1)
        self._lose_an_index()
        self._read()
        self._append(5)
        self._tear()
        self._append(1)
        self._close()
        self._read()

    def _append(self, *frames: int) -> None:
        self._until_done(lambda: self._commit(frames))

    def _commit(self, frames: Sequence[int]) -> None:
        log = self._owned()
        model = self.model
        writes = [[self._draft() for _ in range(count)] for count in frames]
        model.epoch = log.device.claim().epoch
        model.submit(writes, epoch_frame=log._writer._epoch_begun < model.epoch)
        errors = [future.exception(0) for future in commit_together(log, writes)]
        if not any(errors):
            model.acknowledge(self._read_apart())
        elif all(isinstance(error, Unavailable) for error in errors):
            model.refuse()
            raise errors[0] or AssertionError
        elif all(isinstance(error, OutcomeUnknown | Poisoned) for error in errors):
            raise errors[0] or AssertionError
        else:
            raise Violation(f"an append is answered with {errors}")

    def _draft(self) -> Draft:
        self._sequence += 1
        number = self._sequence
        return Draft(
            Kind.DATA,
            bytes([number]) * (37 * number % 700),
            topic_number=1 + number % 2,
            row_count=1 + number % 3,
            producer_id=PRODUCER,
            sequence=number,
        )

    def _owned(self) -> FrameLog:
        if self.log is None:
            try:
                self.log = self.workload.world.open(self.files)
                self.log.claim()
            except (HeadwaterError, OSError):
                self._let_go()
                raise
            self.model.recovered(self._read_apart(), self.log.recovery_report.epoch)
        return self.log

    def _read_apart(self) -> list[Seen]:
        """What another process reads, to which nothing fails."""
        return read_all(self.workload.world.open(self.files.restart()))

    def _roll(self) -> None:
        self._until_done(lambda: self._owned().roll())

    def _read(self) -> None:
        def read() -> None:
            log = self.workload.world.open(self.files)
            observed = read_all(log)
            if observed != self.model.settled[: len(observed)]:
                raise Violation("a reader sees other rows than were acknowledged")

        self._until_done(read)

    def _close(self) -> None:
        log, self.log = self.log, None
        if log is not None:
            try:
                log.close()
                self.answers.append("closed")
            except (HeadwaterError, OSError) as error:
                self._failed(error)
                # The process that could not close it ends.
                self._restart()

    def _lose_an_index(self) -> None:
        for name in [name for name in self.files._names if name.endswith(".idx")][:1]:
            del self.files._names[name], self.files._disk_names[name]
        self.log = None
        self._restart()

    def _kill(self) -> None:
        self.log = None
        self._restart()

    def _restart(self) -> None:
        """The process ends, and the fault lives on in the next one."""
        self.calls.extend(self.files.calls)
        after = self.files.restart()
        after._faults = self.files._faults
        after._short_sizes = self.files._short_sizes
        self.files = after

    def _tear(self) -> None:
        """A power loss left half a frame behind the last."""
        self._kill()
        segments = sorted(name for name in self.files._names if name.endswith(".seg"))
        if segments:
            self.files.put(segments[-1], self.files.contents(segments[-1]) + b"\xc8HWF" + bytes(range(256)))

    # After an error ---------------------------------------------------------------------------

    def _until_done(self, act: Callable[[], object]) -> None:
        while True:
            try:
                act()
            except (Unavailable, OutcomeUnknown, Poisoned, OSError) as error:
                self._failed(error)
                if isinstance(error, OutcomeUnknown | Poisoned):
                    self._let_go()
                if isinstance(error, OutcomeUnknown | Poisoned | Unavailable):
                    # It was told by name; the caller goes on with something else.
                    return
            else:
                self._failures = 0
                return

    def _failed(self, error: Exception) -> None:
        self.answers.append(type(error).__name__)
        self._failures += 1
        if self._failures == 3:
            raise _GivesUp

    def _let_go(self) -> None:
        log, self.log = self.log, None
        if log is not None:
            try:
                log.close()
            except (HeadwaterError, OSError) as error:
                self.answers.append(f"close: {type(error).__name__}")
                self._restart()

    # The judgement ----------------------------------------------------------------------------

    def _judge(self) -> None:
        world, model = self.workload.world, self.model
        visible_lsn = check_mark(self.files)
        chance = Random(7)
        states = [
            self.files.restart(),
            self.files.crash(chance, choice=Choice.NOTHING),
            self.files.crash(chance, choice=Choice.EVERYTHING),
            self.files.crash(chance),
            self.files.crash(chance),
        ]
        for state in states:
            log, observed = examine(world, state, model, visible_lsn=visible_lsn)
            try:
                log.append([Draft(Kind.DATA, b"again", topic_number=1, row_count=1)])
                log.close()
            except (HeadwaterError, OSError) as error:
                raise Violation(f"V14: nothing fails any more, and an append is answered with {error!r}") from error
            _, again = examine(world, state.crash(chance, choice=Choice.NOTHING), _Nothing())
            if again[: len(observed)] != observed or again[-1][1] != b"again":
                raise Violation("V1: what was appended after the fault is gone")


class _Nothing:
    """A model that expects nothing."""

    epoch = 0

    def check(self, observed: object) -> int:
        return 0


def check_every_call(verbs: Sequence[str] | None, errors: Sequence[int] = ERRORS, *, short: bool = False) -> int:
    """Let each call of the script fail in turn, in each way; returns how many lives were lived."""
    healthy = Life(None)
    healthy.run()
    assert healthy.answers == ["closed", "closed"], healthy.answers
    chosen = None if verbs is None else tuple(verbs)
    count = sum(1 for verb, _ in healthy.calls if chosen is None or verb in chosen)
    assert count, f"the script never calls {chosen}"
    lives = 0
    for nth_call in range(1, count + 1):
        for error in errors:
            for for_ever in (False, True):
                fault = Fault(nth_call, error, for_ever, short, chosen)
                try:
                    Life(fault).run()
                except (Violation, OSError, CorruptData, Closed) as violation:
                    violation.add_note(f"fault: {fault}; replay with: python -m tests.faults.replay {_arguments(fault)}")
                    raise
                lives += 1
    return lives


def _arguments(fault: Fault) -> str:
    parts = [f"--call {fault.nth_call}", f"--error {errno.errorcode[fault.error]}"]
    if fault.for_ever:
        parts.append("--for-ever")
    if fault.short:
        parts.append("--short")
    if fault.verbs is not None:
        parts.append(f"--verbs {','.join(fault.verbs)}")
    return " ".join(parts)
