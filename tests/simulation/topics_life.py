"""A life of a log with topics: everything that a user may do, each as a step, with the plain model beside it.

DRAWS    What a step does is drawn: by Hypothesis (test_topics_stateful.py) or by a seed (topics_crashes.py).
CUT      Any step may be cut short before one of its calls: the power fails there, nobody hears what became of the
         request, and the model holds all that it may have come to (`_perform`).
WATCH    Whoever watches is told before each call that changes or syncs something, with what may be true then.
HANDLES  Producers and consumers die with the process that made them, as they do in life.
SMALL    Segments of a few kilobytes, and the windows of the state a few entries: short lives come to every limit.

NOT HERE The other half of the steps, groups, transactions, reading: topics_steps.py.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, Protocol, TypeVar

import headwater as hw
from headwater.api import Log
from headwater.clock import ManualClock
from headwater.errors import (
    HeadwaterError,
    OutcomeUnknown,
    Poisoned,
    Unavailable,
)
from headwater.metadata import shard_state
from headwater.settings import LogSettings, Settings
from headwater.storage.simulated import Choice, SimulatedFiles
from tests.simulation.invariants import quiet as quiet_log
from tests.simulation.model import Violation
from tests.simulation.topics_model import (
    ANSWERS_KEPT,
    KEYS_MAX,
    PlainTopics,
    Stage,
)
from tests.simulation.topics_observed import Observed, check_folds, observe
from tests.unit.topics.small_engines import engine_of

T = TypeVar("T")


class Draw(Protocol):
    """Where a life's choices come from."""

    def below(self, limit: int) -> int: ...


class SeededDraw:
    def __init__(self, chance: Random) -> None:
        self._chance = chance

    def below(self, limit: int) -> int:
        return int(self._chance.random() * limit)


class Cut(Exception):
    """The step was cut short: the log has been opened again, and the model knows what became of it."""


Watch = Callable[[SimulatedFiles, str, str, Callable[[], list[PlainTopics]]], None]


@contextmanager
def small_windows() -> Iterator[None]:
    """The state's limits are so low that short lives meet them; and nothing is said about what is cut."""
    logger = logging.getLogger("headwater.topics")
    before = shard_state.ANSWERS_KEPT, shard_state.KEYS_MAX, logger.disabled
    logger.disabled = True
    shard_state.ANSWERS_KEPT, shard_state.KEYS_MAX = ANSWERS_KEPT, KEYS_MAX
    try:
        with quiet_log():
            yield
    finally:
        shard_state.ANSWERS_KEPT, shard_state.KEYS_MAX, logger.disabled = before


def small_settings(segment_bytes: int, checkpoint_bytes: int) -> Settings:
    log = LogSettings(
        segment_size_bytes_max=segment_bytes,
        write_body_bytes_max=segment_bytes,
        mark_sync_idle_s=0.0,
        reserve_bytes=0,
        deletion_grace_s=0.0,
        scan_chunk_bytes=8192,
    )
    return Settings(
        log=log,
        journal=log,
        join_bytes_max=1024,
        frame_bytes_max=2048,
        shard_checkpoint_bytes=checkpoint_bytes,
        upkeep_interval_s=0,
    )


class Life:
    """One log on simulated files, and the model of it."""

    def __init__(self, seed: int, draw: Draw, *, watch: Watch | None = None) -> None:
        self.seed = seed
        self.draw = draw
        self.chance = Random(seed)
        self.files = SimulatedFiles(seed)
        self.clock = ManualClock()
        self.model = PlainTopics()
        self.settings = small_settings((8192, 12288, 16384)[seed % 3], (2048, 6144, 1 << 20)[seed // 3 % 3])
        self.watch = watch
        self.steps: list[str] = []
        """What was done, for people who replay a seed."""
        self.number = 0
        self.producers: list[tuple[str, Any]] = []
        self.members: list[Any] = []
        self.reader: Log | None = None
        self._cut: int | None = None
        self._fault: tuple[int, int, str] | None = None
        self.open()

    # Drawing ----------------------------------------------------------------------------------

    def pick(self, choices: Sequence[T]) -> T:
        return choices[self.draw.below(len(choices))]

    def often(self, percent: int) -> bool:
        return self.draw.below(100) < percent

    def note(self, what: str) -> None:
        self.steps.append(what)

    # Opening and ending -----------------------------------------------------------------------

    def open_on(self, files: SimulatedFiles) -> Log:
        return hw.open(files, settings=self.settings, clock=self.clock, entropy=self.chance.randbytes)

    def open(self) -> None:
        """Open and claim; what the log then shows is what the model knows, and the folds are folds."""
        self.producers.clear()
        self.members.clear()
        if self.watch is not None:
            self._watched(self.model.variants)
        try:
            self.log = self.open_on(self.files)
            engine_of(self.log).claim()
        finally:
            self.files.before_call = None
        self.look()
        check_folds(self.log, self.files)

    def look(self) -> Observed:
        """Everything is as the model says; what was open is decided."""
        observed = observe(self.log)
        self.model = self.model.match(observed)
        self.model.settle(observed)
        return observed

    def _watched(self, variants: Callable[[], list[PlainTopics]]) -> None:
        watch = self.watch
        assert watch is not None
        files = self.files
        files.before_call = lambda verb, name: watch(files, verb, name, variants)

    def _move_to(self, files: SimulatedFiles) -> None:
        self.files = files
        self.reader = None
        self.open()

    def close(self) -> None:
        self.note("close")
        self._perform([], self.log.close)
        self.reader = None
        self.open()

    def kill(self) -> None:
        self.note("kill")
        self._move_to(self.files.restart())

    def lose_power(self) -> None:
        choice = self.pick(list(Choice))
        self.note(f"power loss that keeps {choice.value}")
        self._move_to(self.files.crash(self.chance, choice=choice))

    def cut(self, step: Callable[[], None], calls: int) -> None:
        """Do a step, and lose power before its n-th call if it gets there."""
        self.note(f"to be cut before call {calls}:")
        self._cut = calls
        try:
            step()
        except Cut:
            self.note("... and it was")
        finally:
            self._cut = None

    def fail(self, step: Callable[[], None], nth: int, error: int, verb: str) -> None:
        """Do a step, and let one of its calls fail if it gets there."""
        self.note(f"with call {nth} of {verb} failing, {errno.errorcode[error]}:")
        self._fault = (nth, error, verb)
        try:
            step()
        except Cut:
            self.note("... and it was refused, or nobody knows")
        finally:
            self._fault = None

    def _perform_failing(self, stages: list[Stage], refused: list[Stage], act: Callable[[], T]) -> T:
        """Unavailable means that nothing of it appears; after anything worse the log is opened again, and shows."""
        assert self._fault is not None
        (nth, error, verb), self._fault = self._fault, None
        self.files.fail(nth, error, verbs=[verb], short=True)
        try:
            result = act()
            if not self._is_poisoned():
                return result
            # It is durable; what failed came after it.
            self.model.open = stages
        except Unavailable:
            self.model.open = refused
        except (OutcomeUnknown, Poisoned):
            self.model.open = stages
        finally:
            self.files.heal()
        if self._is_poisoned():
            self._move_to(self.files.restart())
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
        return False

    def _perform(self, stages: list[Stage], act: Callable[[], T], refused: list[Stage] | None = None) -> T:
        """Do what the step is about.  Cut there means: it has come to one of the stages, or to none.  `refused` is what
        it may have come to where it is refused: nothing, unless it is more than one write."""
        if self._fault is not None:
            return self._perform_failing(stages, refused or [], act)
        if self._cut is None:
            if self.watch is None:
                return act()
            self.model.open = stages
            made: list[PlainTopics] = []

            def variants() -> list[PlainTopics]:
                # Made once for all calls of the step, and only if anybody looks.
                if not made:
                    made.extend(self.model.variants())
                return made

            self._watched(variants)
            try:
                return act()
            finally:
                self.files.before_call = None
                self.model.open = []
        left, self._cut = self._cut, None
        states: list[SimulatedFiles] = []

        def before_call(verb: str, name: str) -> None:
            nonlocal left
            left -= 1
            if left < 0 and not states:
                states.append(self.files.crash(self.chance))

        self.files.before_call = before_call
        try:
            result = act()
            if not states:
                return result
        except HeadwaterError:
            if not states:
                raise
        finally:
            self.files.before_call = None
        self.model.open = stages
        self._move_to(states[0])
        raise Cut

    def finish(self) -> None:
        """However it ended: the log opens and shows what it must, and again after a power loss (V8)."""
        self._move_to(self.files.restart())
        first = observe(self.log)
        self._move_to(self.files.crash(self.chance, choice=Choice.NOTHING))
        if observe(self.log).lasting() != first.lasting():
            raise Violation("V8: opened again, the log shows something else")
        self.log.close()

    def _refused(self, error: type[HeadwaterError], act: Callable[[], object]) -> None:
        try:
            act()
        except error:
            return
        raise Violation(f"{error.__name__} was to be raised, and was not")
