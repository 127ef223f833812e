"""What schedules of owners play in: a store whose requests are applied when a seed says so, and the one true history.

REQUESTS   Each is sent, applied, and answered, in three steps that anything may come between.  It may be applied and
           not answered, answered and applied later, even after its sender's death, or never applied; never twice.
HISTORY    What the walk reaches, kept slot by slot as requests are applied: it only grows.  It is known here and to
           nobody else, and everything that an owner or a reader believes is held against it.
VIOLATED   An assertion with a sentence that names the rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from headwater.log import slots
from headwater.log.asks import Absent, Asking, Done, Get, PutIfAbsent, PutIfMatch, Refused, Reply, Unsure
from headwater.log.manifest import Manifest, unpack_manifest
from headwater.log.slots import slot_name
from headwater.storage.objects import Found
from headwater.storage.simulated_store import Request, SimulatedStore

DIRECTORY = "log"
TRIM_NAME = f"{DIRECTORY}/trim"
_UNSURE = Unsure("no reply")


class Violation(AssertionError):
    """A promise was broken."""


@dataclass(frozen=True)
class Delete:
    """What owners ask beside the protocol's own questions."""

    name: str


@dataclass(frozen=True)
class Put:
    """No part of the protocol asks so: only what is broken on purpose."""

    name: str
    data: bytes


@dataclass(frozen=True)
class Packed:
    """What a slot holds, remembered when it was packed."""

    lsn: int
    epoch: int
    content: bytes
    """Nothing: a slot that only opens a segment, with no frame."""
    is_fence: bool
    number: int


@dataclass(frozen=True)
class Entry:
    """A slot of the history."""

    slot: int
    packed: Packed


@dataclass(frozen=True)
class Faults:
    """How often a request meets each fate."""

    lost: float = 0.0
    late: float = 0.0
    failed: float = 0.0

    @property
    def any(self) -> float:
        return self.lost + self.late + self.failed


class Sending:
    """A request of somebody who waits for the reply."""

    __slots__ = ("actor", "asking", "on_end", "question", "request")

    def __init__(self, actor: Any, asking: Asking[Any], on_end: Callable[[Any], None]) -> None:
        self.actor = actor
        self.asking = asking
        self.on_end = on_end
        self.question: Any = None
        self.request: Any = None


class History:
    """The slots that the walk reaches, in order; and what became of those below trim."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.entries: list[Entry] = []
        self.by_lsn: dict[int, Entry] = {}
        self.slots: dict[int, Packed] = {}
        self.next_slot = 1
        self.next_lsn = 1
        self.fence_slots: set[int] = set()
        self.epochs: dict[int, bytes] = {}
        self.epoch = 0

    def grow(self, packed: Packed) -> None:
        slot = self.next_slot
        if packed.lsn != self.next_lsn:
            raise Violation(f"LSNs are not dense: slot {slot} begins at {packed.lsn}, not {self.next_lsn}")
        if packed.epoch < self.epoch:
            raise Violation(f"O2: the epoch falls from {self.epoch} to {packed.epoch} at slot {slot}")
        if packed.is_fence:
            if packed.epoch in self.epochs:
                raise Violation(f"O2: two owners of epoch {packed.epoch}")
            self.epochs[packed.epoch] = packed.content
            self.fence_slots.add(slot)
        entry = Entry(slot, packed)
        self.entries.append(entry)
        self.slots[slot] = packed
        if packed.content:
            self.by_lsn[packed.lsn] = entry
            self.next_lsn += 1
        self.epoch = packed.epoch
        # By the product's own rule, so that where that is broken, what follows from it is seen.
        self.next_slot = slots.follows(packed, self.window)  # type: ignore[arg-type]


class SlotWorld:
    """A store, those who ask it, and what is true."""

    def __init__(self, seed: int, window: int, faults: Faults, *, trace: bool = False) -> None:
        self.chance = Random(seed)
        self.store = SimulatedStore(seed, remember_calls=False)
        self.faults = faults
        self.window = window
        self.history = History(window)
        self.packed: dict[bytes, Packed] = {}
        self.merged: dict[int, list[tuple[int, bytes]]] = {}
        """What a merged segment holds, by its generation, which is another for each merge: (LSN, content)."""
        self.sendings: list[Sending] = []
        self.late: list[Request] = []
        self.trims: list[Manifest] = []
        self.deleted_to = 0
        self.forgotten_lsn = 0
        """The last LSN that an owner let go of, by a trim that took effect."""
        self.fenced: set[bytes] = set()
        """Commits that somebody was told are not in the log."""
        self.acknowledged: dict[bytes, int] = {}
        self.counts: Counter[str] = Counter()
        self.trace: list[str] | None = [] if trace else None
        self._numbers = 0

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    def note(self, who: str, what: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{who:>8}  {what}")

    # Requests --------------------------------------------------------------------------------------------------------

    def start(self, actor: Any, asking: Asking[Any], on_end: Callable[[Any], None]) -> None:
        """Somebody begins to ask."""
        sending = Sending(actor, asking, on_end)
        self._go_on(sending, None)

    def step_of(self, sending: Sending) -> bool:
        """One request comes one step further; False where its sender hears nothing."""
        request = sending.request
        if request.applied:
            self._answer(sending)
            return True
        draw = self.chance.random()
        faults = self.faults
        if draw < faults.any:
            if draw < faults.lost:
                self.apply(request)
                self.note(sending.actor.name, "hears nothing")
            elif draw < faults.lost + faults.late and not isinstance(sending.question, Get):
                self.late.append(request)
                self.note(sending.actor.name, "hears nothing: it is on its way")
            else:
                self.note(sending.actor.name, f"fails: {request.verb} {request.name[4:]}")
            self._go_on(sending, _UNSURE)
            return False
        self.apply(request)
        if draw <= 0.75:
            # Else the reply is on its way, and others act before it arrives.
            self._answer(sending)
        return True

    def late_step(self) -> None:
        """Something that nobody waits for any more arrives, or never will."""
        index = int(self.chance.random() * len(self.late))
        request = self.late.pop(index)
        if self.chance.random() < 0.8:
            self.note("late", f"{request.verb} {request.name[4:]}")
            self.apply(request)

    def drop(self, actor: Any, *, late_share: float, only: Asking[Any] | None = None) -> None:
        """An actor stops waiting, for all or for one: what it had sent may still arrive."""
        kept = []
        for sending in self.sendings:
            if sending.actor is not actor or (only is not None and sending.asking is not only):
                kept.append(sending)
                continue
            sending.asking.close()
            request = sending.request
            if not request.applied and not isinstance(sending.question, Get) and self.chance.random() < late_share:
                self.late.append(request)
        self.sendings = kept

    def apply(self, request: Request) -> None:
        request.apply()
        self.note("store", f"{request.verb} {request.name[4:]}: {request._error or 'done'}")
        verb = request.verb
        if verb == "get" or request._error is not None:
            return
        if verb == "delete":
            self._deleted(int(request.name[len(DIRECTORY) + 1 :]))
            return
        if request.name == TRIM_NAME:
            self.trim_is(unpack_manifest(request.data))
        else:
            while True:
                held = self.store._held.get(f"{DIRECTORY}/{slot_name(self.history.next_slot)}")
                if held is None:
                    return
                self.history.grow(self.packed[held[0].data])

    def _answer(self, sending: Sending) -> None:
        request = sending.request
        error = request._error
        reply: Reply
        if error is None:
            found: Found = request._found
            reply = found if request.verb == "get" else Done(found.etag)
        elif isinstance(error, FileNotFoundError):
            reply = Absent()
        else:
            reply = Refused()
        self._go_on(sending, reply)

    def _go_on(self, sending: Sending, reply: Reply | None) -> None:
        if reply is not None:
            self.sendings.remove(sending)
        question: Any
        try:
            question = sending.asking.send(reply)  # type: ignore[arg-type]
        except StopIteration as end:
            sending.on_end(end.value)
            return
        sending.question = question
        begin = self.store.begin
        if isinstance(question, Get):
            sending.request = begin("get", question.name)
        elif isinstance(question, PutIfAbsent):
            sending.request = begin("put_if_absent", question.name, question.data)
        elif isinstance(question, PutIfMatch):
            sending.request = begin("put_if_match", question.name, question.data, question.etag)
        elif isinstance(question, Put):
            sending.request = begin("put", question.name, question.data)
        else:
            assert isinstance(question, Delete)
            sending.request = begin("delete", question.name)
        self.sendings.append(sending)

    # What must hold --------------------------------------------------------------------------------------------------

    def _deleted(self, slot: int) -> None:
        if slot >= self.trims[-1].next:
            raise Violation(f"O1: slot {slot} is deleted, and the walk begins at {self.trims[-1].next}")
        self.deleted_to = max(self.deleted_to, slot)

    def trim_is(self, trim: Manifest) -> None:
        """`trim` has just become this."""
        history = self.history
        before = self.trims[-1] if self.trims else Manifest(trim.log_id, trim.window)
        self.trims.append(trim)
        if trim.epoch < before.epoch:
            raise Violation(f"O2: trim's epoch falls from {before.epoch} to {trim.epoch}")
        if trim.next < before.next and self.deleted_to >= trim.next:
            # An owner may put another trim over its own of an earlier try, after which it has deleted nothing.
            raise Violation(f"O1: trim falls from slot {before.next} to {trim.next}, and what lies between is deleted")
        if trim.epoch == before.epoch and trim.token != before.token:
            raise Violation(f"O2: two owners of epoch {trim.epoch} have written trim")
        if trim.epoch and history.epochs.get(trim.epoch) != trim.token:
            raise Violation(f"O6: a claim of epoch {trim.epoch} counts, and its fence is not in the history")
        if trim.end.next_lsn > history.next_lsn:
            raise Violation(f"O3: trim says that LSN {trim.end.next_lsn - 1} is committed: it is not")
        first = history.slots.get(trim.next)
        if (first is None or first.lsn != trim.end.next_lsn) and trim.next > 1:
            raise Violation(f"O3: trim begins at slot {trim.next} with LSN {trim.end.next_lsn}, which is elsewhere")
        lsn = trim.segments[0].first_lsn if trim.segments else trim.end.next_lsn
        self.forgotten_lsn = max(self.forgotten_lsn, lsn - 1)
        for segment in trim.segments:
            if segment.first_lsn != lsn:
                raise Violation(f"O3: trim names no segment for LSN {lsn}")
            for at, content in self.merged[segment.generation]:
                self.believes("a merged segment", at, content)
                lsn = at + 1
            if segment.end.next_lsn != lsn:
                raise Violation(f"O3: a segment ends at {lsn}, and trim says {segment.end.next_lsn}")
        if lsn != trim.end.next_lsn:
            raise Violation(f"O3: trim names no segment for LSN {lsn}")

    def fenced_by(self, who: str, epoch: int) -> None:
        """Somebody is told that another has taken the log over."""
        if self.history.epoch <= epoch and self.trims[-1].epoch <= epoch:
            raise Violation(f"{who} is told that it was fenced, and nobody has claimed the log after epoch {epoch}")

    def believes(self, who: str, lsn: int, content: bytes) -> None:
        """Somebody takes this for the log's content."""
        entry = self.history.by_lsn.get(lsn)
        if entry is None or entry.packed.content != content:
            raise Violation(f"two histories: {who} sees {content!r} at LSN {lsn}, where the log has {entry}")

    def acknowledge(self, who: str, lsn: int, content: bytes) -> None:
        self.note(who, f"acknowledges LSN {lsn}")
        self.counts["acknowledged"] += 1
        if content in self.acknowledged:
            raise Violation(f"{who} acknowledges {content!r} twice")
        self.acknowledged[content] = lsn
        entry = self.history.by_lsn.get(lsn)
        if entry is None or entry.packed.content != content:
            raise Violation(f"O3: {who} acknowledges {content!r} at LSN {lsn}, where the log has {entry}")
