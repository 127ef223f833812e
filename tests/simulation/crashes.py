"""The crash engine: at every call of a workload, what a power loss may leave is recovered and judged.

STATES   Before each call that changes or syncs something: nothing of what is unsynced kept, all of it, single
         sectors and names kept or lost, random mixes (SimulatedFiles.crash_states), and the kill that loses nothing.
         How many of each, the seed draws; a few calls of each run are looked at closely.
AGAIN    The recovery of some states is itself cut short before each of its calls, and recovered again.
COUNT    A state counts once it has been recovered and judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from headwater.errors import HeadwaterError
from headwater.frames.frame import Kind
from headwater.log import Draft, FrameLog
from headwater.storage.simulated import Choice, SimulatedFiles
from tests.simulation.invariants import (
    check_indexes,
    check_lookups,
    check_mark,
    check_reader,
    examine,
    examine_again,
    ghosts_only,
    quiet,
    read_all,
)
from tests.simulation.model import Seen, Violation
from tests.simulation.workload import Workload


@dataclass
class Counts:
    states: int = 0
    states_in_recovery: int = 0
    calls: int = 0
    acknowledged: int = 0
    lives: int = 0
    frames: int = 0

    def add(self, other: Counts) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass(frozen=True)
class Effort:
    """How closely one seed is looked at."""

    states: int = 400
    """Crash states of one seed, at least."""
    states_in_recovery: int = 0
    """Crash states in the recovery of such states, at least."""
    calls: int = 0
    """Calls of the workload, at least."""
    share_of_calls: float = 1.0
    """How many of the calls are looked at; all of them, unless a longer life is worth more."""
    share_of_syncs: float = 1.0
    """The same for syncs of segments, before which most is at stake."""
    fault_share: float | None = None
    """How many of the steps meet a fault; None: as the seed draws."""
    only_full_disks: bool = False
    """Every fault is a full disk."""


EVERYDAY = Effort()


class CrashEngine:
    """Runs one seed."""

    def __init__(self, seed: int, effort: Effort = EVERYDAY) -> None:
        self.effort = effort
        self.counts = Counts()
        self._chance = Random(f"crashes of {seed}")
        self.workload = Workload(
            seed, on_call=self._on_call, fault_share=effort.fault_share, only_full_disks=effort.only_full_disks
        )
        self._violation: Violation | None = None
        self._at_stake = False

    def run(self) -> Counts:
        """Live and crash until the effort is made; a Violation ends it."""
        counts = self.counts
        with quiet():
            while not self._done():
                self.workload.run(1)
                counts.lives += 1
                if self._violation is not None:
                    raise self._violation
            self._finish()
        counts.acknowledged = self.workload.acknowledged
        counts.frames = len(self.workload.model.settled)
        return counts

    def _done(self) -> bool:
        counts, effort = self.counts, self.effort
        return (
            counts.states >= effort.states
            and counts.states_in_recovery >= effort.states_in_recovery
            and counts.calls >= effort.calls
        )

    def _finish(self) -> None:
        """However it ended: a last recovery, looked at from every side."""
        workload = self.workload
        files = workload.files.restart()
        log, observed = examine(workload.world, files, workload.model)
        check_lookups(workload.world, log, observed)
        # Nothing fails any more, so appends succeed again (V14).
        log.append([Draft(Kind.DATA, b"at last", topic_number=1, row_count=1)])
        log.roll()
        log.append([Draft(Kind.DATA, b"and again", topic_number=1, row_count=1)])
        observed = read_all(log)
        log.close()
        check_indexes(workload.world, files)
        reader = workload.world.open(files)
        check_lookups(workload.world, reader, observed)

    def _on_call(self, files: SimulatedFiles, verb: str, name: str) -> None:
        self.counts.calls += 1
        self._at_stake = verb in ("sync_data", "sync_all") and name.endswith(".seg")
        share = self.effort.share_of_syncs if self._at_stake else self.effort.share_of_calls
        if self._done() or (share < 1 and self._chance.random() > share):
            return
        try:
            self._look_at(files)
        except Violation as violation:
            violation.add_note(f"before call {self.counts.calls}, {verb} {name}")
            # The log has its own ways with exceptions; this one is raised again when it has had them.
            self._violation = self._violation or violation
            raise

    def _look_at(self, files: SimulatedFiles) -> None:
        world = self.workload.world
        chance = self._chance
        visible_lsn = check_mark(files)
        if self.workload.log is not None:
            visible_lsn = max(visible_lsn, self.workload.log.device.durable())
        if chance.random() < 0.5:
            visible_lsn = max(visible_lsn, check_reader(world, files.restart()))
        in_recovery = self.effort.states_in_recovery
        for state in self._states(files):
            again = chance.random()
            if in_recovery and again < 0.3 and self.counts.states_in_recovery < in_recovery:
                self._crash_in_recovery(state, visible_lsn)
            log, observed = examine(
                world, state, self.workload.model, visible_lsn=visible_lsn, as_reader_first=again > 0.75
            )
            self.counts.states += 1
            if again < 0.08:
                examine_again(world, state, observed)
            elif again < 0.12:
                self._close_and_check(state, log, observed)

    def _close_and_check(self, state: SimulatedFiles, log: FrameLog, observed: list[Seen]) -> None:
        check_lookups(self.workload.world, log, observed)
        try:
            log.close()
        except HeadwaterError as error:
            raise Violation(f"a recovered log could not be closed: {error}") from error
        check_indexes(self.workload.world, state)

    def _states(self, files: SimulatedFiles) -> Iterator[SimulatedFiles]:
        chance = self._chance
        if not self.workload.model.settled and not self.workload.model.pending:
            # Every seed begins with the same claim of an empty directory.
            yield files.crash(chance)
            return
        if chance.random() < 0.06:
            yield from files.crash_states(chance, 48)
            return
        draw = chance.random()
        if self._at_stake and draw < 0.5:
            yield ghosts_only(files, chance)
        elif draw < 0.5:
            yield files.crash(chance, choice=Choice.NOTHING)
        elif draw < 0.8:
            yield files.crash(chance, choice=Choice.EVERYTHING)
        else:
            yield files.restart()
        for _ in range(chance.randint(1, 4)):
            yield files.crash(chance)

    def _crash_in_recovery(self, state: SimulatedFiles, visible_lsn: int) -> None:
        """Recover a copy of the state, and cut the recovery short before each of its calls."""
        world = self.workload.world
        chance = self._chance
        copy = state.restart()

        def on_call(verb: str, name: str) -> None:
            for _ in range(2):
                kept = chance.random()
                if kept < 0.2:
                    again = copy.crash(chance, choice=Choice.NOTHING)
                elif kept < 0.3:
                    again = copy.restart()
                else:
                    again = copy.crash(chance)
                try:
                    examine(world, again, self.workload.model, visible_lsn=visible_lsn, as_reader_first=False)
                except Violation as violation:
                    violation.add_note(f"crashed in the recovery, before {verb} {name}")
                    raise
                self.counts.states_in_recovery += 1

        copy.before_call = on_call
        examine(world, copy, self.workload.model, visible_lsn=visible_lsn)


def run_seed(seed: int, effort: Effort = EVERYDAY) -> Counts:
    """Run one seed; a Violation says how to see it again."""
    engine = CrashEngine(seed, effort)
    try:
        return engine.run()
    except Violation as violation:
        violation.add_note(f"replay with: {replay_command(seed, effort)}")
        raise


def replay_command(seed: int, effort: Effort) -> str:
    return (
        f"python -m tests.simulation.replay --seed {seed} --states {effort.states} "
        f"--states-in-recovery {effort.states_in_recovery}"
    )
