"""The crash engine of topics: at the calls of a seeded life, what a power loss may leave is opened and judged.

STATES   Before a call that changes or syncs something: single sectors, sizes and names kept or lost
         (SimulatedFiles.crash_states), the extremes, and the kill that loses nothing.
JUDGED   A state is opened, claimed and read out whole.  It shows what is true, or that with the step under way at one
         of its stages; its folds are folds (V10).  A share of the states is opened twice (V8), and by somebody who only
         reads.
SEED     Decides over the life, and over the states that are looked at.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from headwater.errors import HeadwaterError
from headwater.storage.simulated import Choice, SimulatedFiles
from tests.simulation.model import Violation
from tests.simulation.topics_life import SeededDraw, small_windows
from tests.simulation.topics_model import PlainTopics
from tests.simulation.topics_observed import Observed, check_folds, observe
from tests.simulation.topics_steps import Steps, any_step
from tests.unit.topics.small_engines import engine_of


@dataclass(frozen=True)
class Effort:
    """How closely one seed is looked at."""

    steps: int = 30
    percent_of_calls: int = 8
    """Of the calls, how many are looked at."""
    states: int = 3
    """States of one such call, at most."""
    cut_percent: int = 8
    """Of the steps, how many are cut short for good."""


@dataclass
class Counts:
    states: int = 0
    calls: int = 0
    steps: int = 0

    def add(self, other: Counts) -> None:
        self.states += other.states
        self.calls += other.calls
        self.steps += other.steps


EVERYDAY = Effort()


class TopicsCrashes:
    """Runs one seed."""

    def __init__(self, seed: int, effort: Effort = EVERYDAY) -> None:
        self.seed = seed
        self.effort = effort
        self.counts = Counts()
        self.life: Steps | None = None
        self._chance = Random(f"topics crashes {seed}")
        self._violation: Violation | None = None

    def run(self) -> Counts:
        """Live and crash; a Violation ends it."""
        self.life = life = Steps(self.seed, SeededDraw(Random(f"topics life {self.seed}")))
        life.watch = self._before_call
        for _ in range(self.effort.steps):
            any_step(life, self.effort.cut_percent)
            self.counts.steps += 1
            if self._violation is not None:
                raise self._violation
        life.watch = None
        life.finish()
        return self.counts

    def _before_call(
        self, files: SimulatedFiles, verb: str, name: str, variants: Callable[[], list[PlainTopics]]
    ) -> None:
        self.counts.calls += 1
        if self._chance.randrange(100) >= self.effort.percent_of_calls or self._violation is not None:
            return
        try:
            for state in self._states(files):
                self._judge(state, variants())
        except (Violation, HeadwaterError) as error:
            # The product has its own ways with exceptions: this one is raised when it has had them.
            violation = Violation(f"before {verb} {name}: {type(error).__name__}: {error}")
            violation.__cause__ = error
            self._violation = violation

    def _states(self, files: SimulatedFiles) -> Iterator[SimulatedFiles]:
        chance = self._chance
        if chance.random() < 0.1:
            yield from files.crash_states(chance, 4 * self.effort.states)
            return
        yield files.crash(chance, choice=Choice.NOTHING) if chance.random() < 0.7 else files.restart()
        for _ in range(self.effort.states - 1):
            yield files.crash(chance)

    def _judge(self, files: SimulatedFiles, variants: list[PlainTopics]) -> None:
        assert self.life is not None
        self.counts.states += 1
        draw = self._chance.random()
        shown: Observed | None = None
        if draw < 0.25:
            # Nobody owns it now: whoever comes first must see what was acknowledged, also to read only.
            shown = observe(self.life.open_on(files))
        log = self.life.open_on(files)
        engine_of(log).claim()
        observed = observe(log)
        self.life.model.match(observed, variants)
        check_folds(log, files)
        if shown is not None and (shown.rows, shown.topics) != (observed.rows, observed.topics):
            raise Violation(
                f"a reader sees something else than the owner after it: {_first_difference(shown, observed)}"
            )
        if draw < 0.4:
            again = files.crash(self._chance, choice=Choice.NOTHING) if draw < 0.3 else files.restart()
            second = self.life.open_on(again)
            engine_of(second).claim()
            seen = observe(second)
            self.life.model.match(seen, variants)
            if seen.lasting() != observed.lasting():
                raise Violation("V8: opened again, the log shows something else")


def _first_difference(shown: Observed, observed: Observed) -> str:
    for name in shown.topics.keys() | observed.topics.keys():
        if shown.topics.get(name) != observed.topics.get(name):
            return f"{shown.topics.get(name)} and not {observed.topics.get(name)}"
        if shown.rows[name] != observed.rows[name]:
            return f"rows {sorted(shown.rows[name])} of {name!r} and not {sorted(observed.rows[name])}"
    return "nothing"


def run_seed(seed: int, effort: Effort = EVERYDAY) -> Counts:
    """Run one seed; what it finds says how to see it again."""
    engine = TopicsCrashes(seed, effort)
    try:
        with small_windows():
            return engine.run()
    except (AssertionError, HeadwaterError) as error:
        error.add_note(f"replay with: {replay_command(seed, effort)}")
        raise


def replay_command(seed: int, effort: Effort) -> str:
    return (
        f"python -m tests.simulation.topics_crashes --seed {seed} --steps {effort.steps} "
        f"--percent-of-calls {effort.percent_of_calls} --states {effort.states} --cut-percent {effort.cut_percent}"
    )


def main() -> int:
    """Run one seed again, or many, and tell what happened."""
    usual = Effort()
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.topics_crashes", description=main.__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seeds", type=int, default=1, help="how many, from --seed on")
    parser.add_argument("--steps", type=int, default=usual.steps)
    parser.add_argument("--percent-of-calls", type=int, default=usual.percent_of_calls)
    parser.add_argument("--states", type=int, default=usual.states)
    parser.add_argument("--cut-percent", type=int, default=usual.cut_percent)
    given = parser.parse_args()
    effort = Effort(given.steps, given.percent_of_calls, given.states, given.cut_percent)
    total = Counts()
    for seed in range(given.seed, given.seed + given.seeds):
        engine = TopicsCrashes(seed, effort)
        try:
            with small_windows():
                total.add(engine.run())
        except BaseException:  # noqa: BLE001  Whatever it was, the steps that led to it are what a person wants to see
            print(f"seed {seed}:")
            print("\n".join(engine.life.steps if engine.life is not None else []))
            traceback.print_exc()
            return 1
    print(f"every promise was kept; {total}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
