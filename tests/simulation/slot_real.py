"""Schedules of real logs on one simulated store: what slot_schedules.py shows of the protocol, shown of the device.

ACTORS   Two or three processes that own the log in turn, append, roll, take segments in, close and open again, and one
         that only reads.  Each runs in a thread of its own, and exactly one holds the baton: at each request the seed
         draws who goes on, what arrives late, which fault the request meets, and whether its sender dies of it.
HOLDS    What was acknowledged is read at its LSN, once; what was refused as Fenced is not in the log; whoever reads
         sees what all others see; nobody is told of damage.
SEED     Decides over everything: python -m tests.simulation.slot_real --seed N
"""

from __future__ import annotations

import argparse
import logging
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from random import Random

from headwater.errors import Fenced, Forgotten, HeadwaterError, OutcomeUnknown, Poisoned, Unavailable
from headwater.frames.frame import Kind
from headwater.ids import Lsn
from headwater.log.frame_log import FrameLog, open_log
from headwater.log.manifest import unpack_manifest
from headwater.storage.files import Buffer
from headwater.storage.objects import Found, Listed, Objects, StoreCounters, StoreUnsure
from headwater.storage.simulated_store import Request, SimulatedStore, StoreFaults
from tests.simulation.slot_world import Faults, Violation
from tests.unit.log.store_logs import SETTINGS, bucket, device_of, rows

PATIENCE_S = 60.0


class Ended(BaseException):
    """This actor's process ends here: it was killed, or the schedule is over."""


class Stage:
    """Who acts, on which store, and what was said."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        stale = self.chance.choice((0.0, 0.3))
        self.store = SimulatedStore(seed, faults=StoreFaults(stale_lists=stale), remember_calls=False)
        share = self.chance.choice((0.0, 0.01, 0.04))
        self.faults = Faults(share, share, share)
        self.death_share = self.chance.choice((0.0, 0.002, 0.006))
        self.slow_share = self.chance.choice((0.0, 0.05))
        self.late: list[Request] = []
        self.counts: Counter[str] = Counter()
        self.acknowledged: dict[bytes, int] = {}
        self.fenced: set[bytes] = set()
        self.shown: dict[int, bytes] = {}
        """What anybody has seen at an LSN."""
        self.log_start = 1
        """What the journal would say: all below may be forgotten."""
        self.violation: BaseException | None = None
        self.requests = 0
        self._numbers = 0
        writers = self.chance.choice((2, 2, 3))
        self.actors = [Actor(self, f"owner{n}", owns=True) for n in range(writers)] + [
            Actor(self, "reader", owns=False)
        ]
        self._over = threading.Event()

    def run(self) -> Counter[str]:
        for actor in self.actors:
            actor.thread.start()
        self.actors[0].baton.release()
        if not self._over.wait(PATIENCE_S):
            raise Violation("the schedule does not come to its end")
        for actor in self.actors:
            actor.thread.join(PATIENCE_S)
        if self.violation is not None:
            raise Violation(f"{type(self.violation).__name__}: {self.violation}") from self.violation
        self._check_end()
        return self.counts

    def hand_over(self, actor: Actor | None) -> None:
        """Whoever is drawn goes on; returns when that is this actor again.  None: one has ended."""
        going = [each for each in self.actors if not each.ended]
        if not going:
            self._over.set()
            return
        awake = [each for each in going if each.slow_until <= self.requests] or going
        chosen = awake[int(self.chance.random() * len(awake))]
        if chosen is actor:
            return
        chosen.baton.release()
        if actor is not None:
            actor.baton.acquire()

    def fail(self, error: BaseException) -> None:
        self.violation = self.violation or error

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    def arrive_late(self) -> None:
        if self.late and self.chance.random() < 0.05:
            request = self.late.pop(int(self.chance.random() * len(self.late)))
            if self.chance.random() < 0.8:
                request.apply()

    def open(self, store: Objects, seed: int) -> FrameLog:
        files = bucket(store, take_over=True, seed=seed)
        entropy = Random(seed).randbytes
        return open_log(
            files, "log", settings=SETTINGS, clock=files.clock, entropy=entropy, log_start=lambda: self.log_start
        )

    def see(self, who: str, lsn: int, body: bytes) -> None:
        if self.shown.setdefault(lsn, body) != body:
            raise Violation(f"two histories: {who} sees {body!r} at LSN {lsn}, others {self.shown[lsn]!r}")

    def _check_end(self) -> None:
        """A process that knows nothing opens the log and reads all of it."""
        for request in self.late:
            request.apply()
        self.store.faults = None
        log = self.open(self.store, 99)
        held = read_all(log)
        for lsn, body in held.items():
            self.see("the last reader", lsn, body)
        gone = [lsn for lsn in self.shown.keys() - held.keys() if lsn >= self.log_start]
        if gone:
            raise Violation(f"LSN {min(gone)} was seen, and is gone")
        if len(set(held.values())) != len(held):
            raise Violation(f"doubled: {Counter(held.values()).most_common(1)}")
        for body, lsn in self.acknowledged.items():
            if held.get(lsn) != body and lsn >= self.log_start:
                raise Violation(f"{body!r} was acknowledged at LSN {lsn}, where the log has {held.get(lsn)!r}")
        if self.fenced & set(held.values()):
            raise Violation(f"{min(self.fenced & set(held.values()))!r} is in the log, and Fenced was said of it")
        log.append([rows(body=b"the last")])
        log.close()


def read_all(log: FrameLog) -> dict[int, bytes]:
    """Every row that a log shows, by LSN."""
    segments = log.segments()
    if not segments:
        return {}
    return {
        frame.header.lsn: bytes(frame.body)
        for frame in log.read(segments[0].first_lsn)
        if frame.header.kind == Kind.DATA
    }


class Actor:
    """A process, again and again: when it ends, another is begun in its place."""

    def __init__(self, stage: Stage, name: str, *, owns: bool) -> None:
        self.stage = stage
        self.name = name
        self.owns = owns
        self.baton = threading.Semaphore(0)
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.ended = False
        self.slow_until = 0
        self._lives = 0

    def _run(self) -> None:
        self.baton.acquire()
        try:
            for _ in range(3 if self.owns else 6):
                self._live()
        except Ended:
            pass
        except BaseException as error:  # noqa: BLE001 (whatever it was, the schedule says so, with its seed)
            self.stage.fail(error)
        self.ended = True
        self.stage.hand_over(None)

    def _live(self) -> None:
        stage = self.stage
        self._lives += 1
        seed = stage.number()
        seam = Seam(self)
        try:
            log = stage.open(seam, seed)
            if self.owns:
                self._own(log)
            else:
                for _ in range(3):
                    log.durable_lsn()
                    self._look(log)
        except Ended:
            if stage.violation is not None:
                raise
            stage.counts["deaths"] += 1
        except (Fenced, Unavailable, Poisoned, Forgotten, OutcomeUnknown) as error:
            stage.counts[type(error).__name__] += 1

    def _own(self, log: FrameLog) -> None:
        stage = self.stage
        for _ in range(stage.chance.randint(2, 12)):
            draw = stage.chance.random()
            if draw < 0.65:
                self._append(log)
            elif draw < 0.75:
                log.roll()
            elif draw < 0.88:
                self._keep(log)
            elif draw < 0.92:
                self._forget(log)
            else:
                self._look(log)
        if stage.chance.random() < 0.7:
            log.close()

    def _keep(self, log: FrameLog) -> None:
        """What the keeper's threads do once a second; they try again after a store that said nothing."""
        device = device_of(log)
        if device.claimed:
            with suppress(StoreUnsure):
                device.keep()

    def _forget(self, log: FrameLog) -> None:
        """Let go of the first segment, as retention does: what the journal says comes first."""
        stage = self.stage
        segments = log.segments()
        if device_of(log).claimed and len(segments) > 2:
            stage.log_start = max(stage.log_start, segments[1].first_lsn)
            gone = log.exclusively(lambda: device_of(log).forget(Lsn(stage.log_start)))
            stage.counts["forgotten"] += len(gone)

    def _append(self, log: FrameLog) -> None:
        stage = self.stage
        body = f"{self.name} {stage.number()} ".encode() * stage.chance.choice((1, 1, 40))
        try:
            receipt = log.append([rows(body=body)])
        except Fenced:
            stage.fenced.add(body)
            raise
        stage.acknowledged[body] = receipt.last_lsn
        stage.counts["acknowledged"] += 1
        stage.see(self.name, receipt.last_lsn, body)

    def _look(self, log: FrameLog) -> None:
        try:
            seen = read_all(log)
        except FileNotFoundError:
            # Its successor has let go of it; an owner does not look at trim before it reads.
            if not self._is_fenced(log):
                raise
            self.stage.counts["gone"] += 1
            return
        for lsn, body in seen.items():
            self.stage.see(self.name, lsn, body)
        self.stage.counts["looks"] += 1

    def _is_fenced(self, log: FrameLog) -> bool:
        device = device_of(log)
        trim = unpack_manifest(self.stage.store.contents("log/trim"))
        return device.claimed and trim.epoch > device.claim().epoch


class Seam:
    """The store as one life of an actor has it."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self.url = actor.stage.store.url
        self.counters = StoreCounters()

    def put(self, name: str, data: Buffer) -> str:
        return self._ask("put", name, data).etag

    def put_if_absent(self, name: str, data: Buffer) -> str:
        return self._ask("put_if_absent", name, data).etag

    def put_if_match(self, name: str, data: Buffer, etag: str) -> str:
        return self._ask("put_if_match", name, data, etag).etag

    def get(self, name: str) -> Found:
        return self._ask("get", name)

    def get_range(self, name: str, start: int, size: int) -> bytes:
        return self._ask("get", name).data[start : start + size]

    def size(self, name: str) -> int:
        return len(self._ask("get", name).data)

    def delete(self, name: str) -> None:
        self._ask("delete", name)

    def list_after(self, prefix: str, after: str = "", *, limit: int = 1000) -> list[Listed]:
        self._ask("list_after", prefix)
        return self._actor.stage.store.list_after(prefix, after, limit=limit)

    def _ask(self, verb: str, name: str, data: Buffer = b"", etag: str = "") -> Found:
        actor = self._actor
        stage = actor.stage
        chance = stage.chance
        request = stage.store.begin(verb, name, data, etag)
        self._turn()
        draw = chance.random()
        if draw < stage.death_share:
            if chance.random() < 0.5 and verb.startswith(("put", "delete")):
                stage.late.append(request)
            raise Ended
        draw = chance.random()
        if draw < stage.faults.any:
            if draw < stage.faults.lost:
                request.apply()
            elif draw < stage.faults.lost + stage.faults.late and verb.startswith(("put", "delete")):
                stage.late.append(request)
            raise StoreUnsure(f"{verb} {name}: no reply")
        request.apply()
        if chance.random() < 0.3:
            self._turn()
        return request.reply()

    def _turn(self) -> None:
        actor = self._actor
        stage = actor.stage
        stage.requests += 1
        stage.arrive_late()
        if stage.chance.random() < stage.slow_share:
            actor.slow_until = stage.requests + stage.chance.randint(10, 120)
        stage.hand_over(actor)
        if stage.violation is not None:
            raise Ended


def run_real_seed(seed: int) -> Counter[str]:
    logger = logging.getLogger("headwater")
    # Each of thousands of processes that is fenced would say so.
    level, logger.level = logger.level, logging.CRITICAL
    try:
        return Stage(seed).run()
    except BaseException:
        print(f"python -m tests.simulation.slot_real --seed {seed}")
        raise
    finally:
        logger.setLevel(level)


def main() -> int:
    """Run one schedule again, or many, and tell what happened."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.slot_real", description=main.__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seeds", type=int, default=1, help="how many, from --seed on")
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    violations = 0
    began = time.monotonic()
    for seed in range(given.seed, given.seed + given.seeds):
        try:
            counts += run_real_seed(seed)
        except (Violation, HeadwaterError, OSError) as violation:
            violations += 1
            print(f"seed {seed}: {violation!r}")
            if given.seeds == 1:
                raise
    print(f"{dict(counts)}\n{given.seeds} schedules in {time.monotonic() - began:.1f} s, {violations} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
