"""A life of a log with topics in a bucket: all the steps of topics_steps.py, on a simulated store that loses replies,
applies late, fails and throttles, with other processes that take the log over.

KILL     A process ends before one of its calls; what it had sent may still arrive when another owns the log.
TAKEOVER Another process takes the log over, after a wait or at once, between two steps or in the middle of one.  What
         the one before is told then is true: what it was acknowledged lies before its successor's fence.
FENCED   Those that were taken over from go on trying.  They are told Fenced, each time, and nothing of theirs appears.
SILENT   The store does not answer for a while: what was asked meanwhile is refused, or nobody knows.
SEED     One thread, a clock that is moved by hand, and no chance but the seed's.

python -m tests.simulation.topics_on_store --seed N      runs one seed again
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar, cast

import headwater as hw
from headwater.api import Log
from headwater.errors import (
    CheckpointFailed,
    Closed,
    Conflict,
    Fenced,
    HeadwaterError,
    InvalidRequest,
    LogLocked,
    OutcomeUnknown,
    Poisoned,
    Unavailable,
)
from headwater.log.object_device import ObjectDevice
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.objects import StoreUnsure
from headwater.storage.simulated import SimulatedFiles
from headwater.storage.simulated_store import Request, SimulatedStore, StoreFaults
from headwater.topics.answers import CommittedTransaction
from tests.simulation.model import Violation
from tests.simulation.store_process import StoreProcess
from tests.simulation.topics_life import Cut, Draw, SeededDraw, small_windows
from tests.simulation.topics_model import Stage
from tests.simulation.topics_observed import Observed, check_folds, observe
from tests.simulation.topics_steps import CUTTABLE, FAILING, STEPS, Steps
from tests.unit.topics.small_engines import engine_of

T = TypeVar("T")

CALLS_MAX = 16
STALE_S = 4.0
FAULTS = (
    None,
    StoreFaults.some(0.01),
    StoreFaults.some(0.03),
    StoreFaults(lost=0.12, stale_lists=0.5),
    StoreFaults(late=0.12, stale_lists=0.5),
    StoreFaults(failed=0.05, conflict=0.05, throttled=0.05),
)
"""So seldom that whoever asks eleven times gets an answer; that it gets none is a step of its own."""


@dataclass
class Process:
    """A process that has the log open."""

    store: StoreProcess
    files: BucketFiles
    log: Log


@dataclass
class StoreCounts:
    """What a run has met."""

    steps: int = 0
    kills: int = 0
    kills_in_steps: int = 0
    takeovers: int = 0
    takeovers_in_steps: int = 0
    refused: int = 0
    fenced: int = 0
    ghosts: int = 0
    requests: int = 0

    def add(self, other: StoreCounts) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


class StoreSteps(Steps):
    """A life in a bucket."""

    def __init__(self, seed: int, draw: Draw) -> None:
        self.counts = StoreCounts()
        self.store = SimulatedStore(seed, faults=FAULTS[seed % len(FAULTS)], remember_calls=False)
        self.fenced: list[Process] = []
        """Those that were taken over from, and do not know it, or do."""
        self.ghosts: list[Request] = []
        self._takeover: list[tuple[int, bool]] = []
        """Where the log was taken over in the middle of this step: the fence's LSN, and whether the rival found what
        the step was about."""
        self._stages: list[Stage] = []
        self._epochs: Sequence[int] = (0, 0)
        """Of the journal and of the log, the last owner's."""
        self._next: Callable[[StoreProcess], None] | None = None
        self._refusing = False
        self._take_over = False
        self.owner: Process | None = None
        super().__init__(seed, draw)

    # Processes --------------------------------------------------------------------------------

    def start(self, *, take_over: bool = False) -> Process:
        """A new process opens the log, and claims nothing."""
        store = StoreProcess(self.store, self.chance)
        files = BucketFiles(store, clock=self.clock, entropy=self.chance.randbytes, threads=False)
        files.take_over = take_over
        log = hw.open(files, settings=self.settings, clock=self.clock, entropy=self.chance.randbytes)
        return Process(store, files, log)

    def open_on(self, files: SimulatedFiles) -> Log:
        """Another process, that reads."""
        return self.start().log

    def open(self) -> None:
        """A new process opens the log and owns it; what it then shows is what the model knows."""
        self.holders = {}
        self.producers.clear()
        self.members.clear()
        self.reader = None
        self.owner = self._claimed()
        self.log = self.owner.log
        self._check_epochs()
        self.look()
        check_folds(self.log, self.owner.files, older_may_stay=True)

    def _check_epochs(self) -> None:
        """O2: every claim has an epoch of its own, above those before it."""
        engine = engine_of(self.log)
        epochs = [each.log.device.claim().epoch for each in (engine.journal, engine.shard)]
        if not all(now > before for now, before in zip(epochs, self._epochs, strict=True)):
            raise Violation(f"O2: the owner has the epochs {epochs}, and the one before it had {self._epochs}")
        self._epochs = epochs

    def _claimed(self) -> Process:
        """Whoever owned it has closed it, or gives no sign of life for long enough, or is not asked."""
        by_force = self._take_over and self.often(50)
        # Where the store may not hear that the lease is given up, whoever comes next waits.
        closed_well = not self._take_over and self.store.faults is None
        self._take_over = False
        process = self.start(take_over=by_force)
        try:
            engine_of(process.log).claim()
        except LogLocked:
            if closed_well or by_force:
                raise
            self.clock.advance(STALE_S)
            engine_of(process.log).claim()
        return process

    def _own_store(self) -> StoreProcess:
        assert self.owner is not None
        return self.owner.store

    # Ending -----------------------------------------------------------------------------------

    def close(self) -> None:
        self.note("close")
        self._perform([], self.log.close)
        self.open()

    def kill(self) -> None:
        self.note("kill")
        self.counts.kills += 1
        self._own_store().kill()
        self._after_a_kill()

    def lose_power(self) -> None:
        """Nothing of a bucket is in a machine."""
        self.kill()

    def _after_a_kill(self) -> None:
        self.ghosts += self._own_store().ghosts
        self._take_over = True
        self.open()

    def ghosts_arrive(self) -> None:
        """What a dead process had sent reaches the store."""
        if self.ghosts:
            ghost = self.ghosts.pop(self.draw.below(len(self.ghosts)))
            self.note(f"{ghost.verb} {ghost.name} of a dead process arrives")
            self.counts.ghosts += 1
            ghost.apply()

    def be_taken_over(self) -> None:
        """Between two steps."""
        self.note("another process takes the log over")
        self.counts.takeovers += 1
        self._leave()
        self.open()

    def _leave(self) -> None:
        """This process is one of those that were taken over from."""
        assert self.owner is not None
        self.fenced.append(self.owner)
        self._take_over = True

    def fenced_tries(self) -> None:
        """Whoever was taken over from writes: it is told so, by name, and nothing appears."""
        if not self.fenced or not self.model.topics:
            return
        process = self.pick(self.fenced)
        topic = self._a_topic("plain", "keyed", "bytes")
        if topic is None:
            return
        request = self.request(topic, 2)
        what = self.draw.below(5)
        self.note(f"a fenced process tries to write ({what})")
        acts: list[Callable[[], object]] = [
            lambda: process.log[topic.name].append(request.given, partition=request.partition),
            lambda: process.log.producer("one"),
            lambda: process.log.topic(f"of-the-fenced-{self.number}", {"n": "int64"}),
            process.log.checkpoint,
            engine_of(process.log).shard.log.roll,
        ]
        try:
            acts[what]()
        except InvalidRequest:
            # It knows another topic of this name, or none; or it was taken over from while it closed.
            return
        except (Fenced, OutcomeUnknown, CheckpointFailed):
            # Where its successor has moved on, a first try cannot tell; but it knows that it was taken over from.
            self._refused(Fenced, acts[what])
            self.counts.fenced += 1
        else:
            # A checkpoint of what is there already, and a roll of nothing, are nothing.
            if what < 3:
                raise Violation(f"O4: a process that was taken over from has written ({what})")
        if self.often(30):
            self.fenced.remove(process)
            self.note("... and closes")
            process.log.close()

    def keep(self) -> None:
        """What an owner's background thread does: a sign of life, and what was sealed goes below the walk."""
        self.note("the keeper works")
        self._perform([], lambda: _keep(self.log))

    def fenced_keeps(self) -> None:
        """The keeper of one that was taken over from: it finds that out, or there was nothing to do."""
        if self.fenced:
            self.note("the keeper of a fenced process works")
            try:
                _keep(self.pick(self.fenced).log)
            except (Fenced, Closed):
                self.counts.fenced += 1

    def rival_is_refused(self) -> None:
        """Another process writes beside the owner: LogLocked, at once, and the owner does not notice."""
        self.note("another process tries to write")
        rival = self.start()
        self._refused(LogLocked, engine_of(rival.log).claim)

    def check_fold(self) -> None:
        assert self.owner is not None
        check_folds(self.log, self.owner.files, older_may_stay=True)

    # Steps that do not end as they should -----------------------------------------------------

    def cut(self, step: Callable[[], None], calls: int) -> None:
        """The process is killed in the middle of a step."""
        self.note(f"to be killed before call {calls}:")
        self._meanwhile(step, lambda store: store.die_before(calls))

    def take_over_in(self, step: Callable[[], None], calls: int) -> None:
        """The log is taken over in the middle of a step."""
        self.note(f"to be taken over from before call {calls}:")
        self._meanwhile(step, lambda store: store.act_before(calls, self._rival_takes_over))

    def silence_in(self, step: Callable[[], None], calls: int) -> None:
        """The store is silent from the middle of a step on."""
        self.note(f"with silence from call {calls} on:")
        self._refusing = True
        self._meanwhile(step, lambda store: store.go_silent_before(calls))

    def _meanwhile(self, step: Callable[[], None], plan: Callable[[StoreProcess], None]) -> None:
        self._next = plan
        try:
            step()
        except Cut:
            self.note("... and so it was")
        finally:
            self._next = None
            self._refusing = False

    def _perform(self, stages: list[Stage], act: Callable[[], T], refused: list[Stage] | None = None) -> T:
        """Do what the step is about; where something else came of it, the model is brought up to date, and Cut."""
        if self._next is None:
            return act()
        plan, self._next = self._next, None
        owner = self.owner
        assert owner is not None
        self._stages = stages
        self._takeover.clear()
        plan(owner.store)
        result: T | None = None
        error: BaseException | None = None
        try:
            result = act()
        except BaseException as raised:  # noqa: BLE001  Killed may come out as whatever it was made into on the way
            error = raised
        owner.store.heal()
        if owner.store.dead:
            self.counts.kills_in_steps += 1
            self.model.open = stages
            self._after_a_kill()
            raise Cut
        if self._takeover:
            self._judge_taken_over(result, error)
            raise Cut
        if error is None and not self._is_poisoned():
            return cast(T, result)
        if error is None or isinstance(error, OutcomeUnknown | Poisoned):
            self.model.open = stages
        elif isinstance(error, Unavailable) and self._refusing:
            self.model.open = refused or []
        else:
            raise error
        self.counts.refused += 1
        if self._is_poisoned():
            self._own_store().kill()
            self._after_a_kill()
        else:
            self.look()
        raise Cut

    def _is_poisoned(self) -> bool:
        engine = engine_of(self.log)
        try:
            engine.journal.log.device.claim()
            engine.shard.log.device.claim()
        except Poisoned:
            return True
        except Closed:
            return False
        return False

    def _rival_takes_over(self) -> None:
        """In the middle of a step of the owner: the rival sees its request whole, or nothing of it."""
        self.counts.takeovers_in_steps += 1
        self._leave()
        self.model.open = self._stages
        variants = self.model.variants()
        mine = self.log
        self.open()
        observed = observe(self.log)
        reached = not self._stages or any(each.difference(observed) is None for each in variants[1:])
        self._takeover.append((self._fence_lsn, reached))
        # The step goes on where it began.
        self.log = mine

    _fence_lsn = 0
    """The last LSN that the present owner found when it claimed the log."""

    def look(self) -> Observed:
        observed = super().look()
        self._fence_lsn = observed.durable_lsn
        return observed

    def _judge_taken_over(self, result: Any, error: BaseException | None) -> None:
        """What the one that was taken over from was told in the end."""
        assert self.owner is not None
        self.log = self.owner.log
        [(fence_lsn, reached)] = self._takeover
        if error is None:
            for told in _answers(result):
                if told.lsn > fence_lsn:
                    raise Violation(f"O4: LSN {told.lsn} was acknowledged by one that was fenced at {fence_lsn}")
            if not reached and not isinstance(result, list) and not getattr(result, "duplicate", False):
                raise Violation(f"V1: {result} was acknowledged, and its successor does not find it")
        elif not isinstance(error, Conflict | OutcomeUnknown | Poisoned):
            raise error

    def finish(self) -> None:
        """The store is well again: the log opens, shows what it must, takes a row (V14), and shows the same again."""
        self.store.faults = None
        self.ghosts += self._own_store().ghosts
        while self.ghosts:
            self.ghosts_arrive()
        self.store.deliver_late()
        self.kill()
        self.append()
        first = self.look()
        self.kill()
        if observe(self.log).lasting()[:4] != first.lasting()[:4]:
            raise Violation("V8: opened again, the log shows something else")
        self.counts.requests = sum(getattr(self.store.counters, kind) for kind in ("puts", "gets", "lists", "deletes"))
        self.log.close()


def _keep(log: Log) -> None:
    for device in (engine_of(log).journal.log.device, engine_of(log).shard.log.device):
        assert isinstance(device, ObjectDevice)
        try:
            device.keep()
        except (StoreUnsure, Unavailable):
            # As the thread does: another time.
            continue


def _answers(result: Any) -> list[Any]:
    """The answers of appends and transactions, among what a step was told."""
    results = result if isinstance(result, list) else [result]
    answers = [each.result(0) if isinstance(each, Future) and each.exception(0) is None else each for each in results]
    return [each for each in answers if isinstance(each, hw.Appended | CommittedTransaction)]


MORE = (
    ("be_taken_over", 2),
    ("fenced_tries", 5),
    ("rival_is_refused", 1),
    ("ghosts_arrive", 4),
    ("keep", 6),
    ("fenced_keeps", 2),
)
_WEIGHTED = (
    *(step.name for step in STEPS for _ in range(step.weight)),
    *(name for name, weight in MORE for _ in range(weight)),
)
_CUTTABLE = tuple(name for name in _WEIGHTED if name in (*CUTTABLE, "keep"))


def any_step(life: StoreSteps) -> None:
    """One step, drawn."""
    life.counts.steps += 1
    draw = life.draw.below(100)
    if draw >= 30:
        getattr(life, life.pick(_WEIGHTED))()
        return
    calls = life.draw.below(CALLS_MAX) if life.often(30) else life.draw.below(4)
    if draw < 12:
        life.cut(getattr(life, life.pick(_CUTTABLE)), calls)
    elif draw < 24:
        life.take_over_in(getattr(life, life.pick(_CUTTABLE)), calls)
    else:
        life.silence_in(getattr(life, life.pick(FAILING)), calls)


def run_seed(seed: int, steps: int = 50) -> StoreCounts:
    """Run one seed; what it finds says how to see it again."""
    with small_windows():
        life = StoreSteps(seed, SeededDraw(Random(f"{seed} steps")))
        try:
            for _ in range(steps):
                any_step(life)
            life.finish()
        except (AssertionError, HeadwaterError) as error:
            error.add_note("\n".join(["what was done:", *life.steps[-40:]]))
            error.add_note(f"replay with: python -m tests.simulation.topics_on_store --seed {seed} --steps {steps}")
            raise
    return life.counts


def main() -> int:
    """Run one seed again, or many, and tell what happened."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.topics_on_store", description=main.__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seeds", type=int, default=1, help="how many, from --seed on")
    parser.add_argument("--steps", type=int, default=50)
    given = parser.parse_args()
    total = StoreCounts()
    for seed in range(given.seed, given.seed + given.seeds):
        try:
            total.add(run_seed(seed, given.steps))
        except BaseException:  # noqa: BLE001  Whatever it was, a person wants to see it
            print(f"seed {seed}:")
            traceback.print_exc()
            return 1
    print(f"every promise was kept; {total}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
