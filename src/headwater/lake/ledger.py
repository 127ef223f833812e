"""The ledger: a log of its own, on the same frames, that landers write in turn.

    ledger.record([Landed(...)])      durable when it returns
    ledger.state()                    what it says now
    ledger.records()                  all of them, from the first
    ledger.page(lsn, bytes_max)       some of them, as they are stored, for whoever is elsewhere

PROMISE  Landers in any number of processes write it in turn, and need nothing from the owner of the topics' log.
         A record is applied to the state only once it is durable, in the order of the ledger.
TURNS    On a disk the lock is held only while records are written.  In a bucket a claim is two requests, and costs
         whoever wrote before a third: there the ledger stays claimed until another lander takes it over, which is
         Fenced here, with nothing written, and then it is claimed again.
THREADS  Safe for any number of them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from headwater.clock import Clock, Entropy
from headwater.errors import Fenced, HeadwaterError, LogLocked, Unavailable
from headwater.frames.frame import Kind
from headwater.ids import Lsn
from headwater.lake.ledger_records import LedgerRecord, pack_ledger_record, unpack_ledger_record
from headwater.lake.ledger_state import LedgerState
from headwater.log.drafts import Draft
from headwater.log.frame_log import FrameLog, open_log
from headwater.log.object_device import ObjectDevice
from headwater.settings import MIB, LogSettings
from headwater.storage.files import Files

DIRECTORY = "ledger"
SETTINGS = LogSettings(
    # An index is saved at every close, and a ledger is closed after every record: small segments keep that small.
    segment_size_bytes_max=4 * MIB,
    write_body_bytes_max=4 * MIB,
    segment_age_s_max=float("inf"),
    reserve_bytes=0,
)
LOCK_TIMEOUT_S = 30.0
_LOCK_POLL_S = 0.01

logger = logging.getLogger("headwater.lake")


class LedgerPage(NamedTuple):
    lsn: int
    """The ledger's own, of the last that was looked at."""
    records: list[bytes]
    more: bool


class LandingLedger(Protocol):
    """What landings need of a ledger; the simulator has one that can be stopped between any two records."""

    def record(self, records: Sequence[LedgerRecord]) -> None: ...

    def state(self) -> LedgerState: ...


class LakeLedger(LandingLedger, Protocol):
    """All that is asked of a ledger: of this data directory, or behind a server (client/ledger.py)."""

    def records(self) -> Iterator[LedgerRecord]: ...

    def close(self) -> None: ...


class Ledger:
    def __init__(self, files: Files, *, clock: Clock, entropy: Entropy, directory: str = DIRECTORY) -> None:
        self._files = files
        self._clock = clock
        self._entropy = entropy
        self._directory = directory
        self._reading = threading.RLock()
        self._writing = threading.Lock()
        self._waiting = threading.Event()
        self._reader: FrameLog | None = None
        self._writer: FrameLog | None = None
        """In a bucket: what this lander has claimed."""
        self._state = LedgerState()

    def record(self, records: Sequence[LedgerRecord]) -> None:
        """Write these records as one write: all of them are durable when it returns, or none is."""
        if not records:
            return
        drafts = [Draft(Kind.LEDGER, pack_ledger_record(record)) for record in records]
        deadline_s = self._clock.monotonic_s() + LOCK_TIMEOUT_S
        with self._writing:
            while True:
                try:
                    self._append(drafts)
                    return
                except (LogLocked, Fenced) as error:
                    if self._clock.monotonic_s() >= deadline_s:
                        raise Unavailable("the ledger stays locked by another lander", **error.facts) from error
                    self._waiting.wait(_LOCK_POLL_S)

    def _append(self, drafts: Sequence[Draft]) -> None:
        if self._writer is None:
            self._writer = self._open()
        device = self._writer.device
        keeps = False
        try:
            self._writer.append(drafts)
            keeps = isinstance(device, ObjectDevice) and _kept_in_order(device)
        finally:
            if not keeps:
                self._close_writer()

    def _close_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def state(self) -> LedgerState:
        """What the ledger says now.  It is the ledger's own: look at it, and do not change it."""
        with self._reading:
            if self._reader is None:
                self._reader = self._open()
            for frame in self._reader.read(Lsn(self._state.lsn + 1)):
                if frame.header.kind == Kind.LEDGER:
                    self._state.apply(unpack_ledger_record(frame.body))
                self._state.lsn = frame.lsn
            return self._state

    def records(self) -> Iterator[LedgerRecord]:
        """Every record, from the first: an audit asks what the state no longer holds."""
        with self._open() as log:
            for frame in log.read():
                if frame.header.kind == Kind.LEDGER:
                    yield unpack_ledger_record(frame.body)

    def page(self, lsn: int, bytes_max: int) -> LedgerPage:
        """The records after an LSN of the ledger's own, about so many bytes of them."""
        found: list[bytes] = []
        size = 0
        with self._reading:
            if self._reader is None:
                self._reader = self._open()
            for frame in self._reader.read(Lsn(lsn + 1)):
                if size >= bytes_max:
                    return LedgerPage(lsn, found, more=True)
                if frame.header.kind == Kind.LEDGER:
                    found.append(bytes(frame.body))
                    size += len(frame.body)
                lsn = frame.lsn
        return LedgerPage(lsn, found, more=False)

    def close(self) -> None:
        with self._reading:
            if self._reader is not None:
                self._reader.close()
                self._reader = None
        with self._writing:
            self._close_writer()

    def _open(self) -> FrameLog:
        return open_log(self._files, self._directory, settings=SETTINGS, clock=self._clock, entropy=self._entropy)


def _kept_in_order(device: ObjectDevice) -> bool:
    """Take what is sealed into trim: a ledger in a bucket has nobody else who does.  Says whether to go on with it."""
    try:
        device.keep()
        return True
    except (HeadwaterError, OSError) as error:
        # The records are durable, and whoever claims the ledger next takes in what is sealed.
        logger.info("the ledger is opened again for the next record: %s", error)
        return False
