"""Schedules of two and three owners of one log on an object store: whatever is lost, late or between, one history.

OWNERS   Claim whenever the seed says so, also beside an owner that lives; commit with up to W slots in flight; roll,
         absorb and delete; are paused for long and go on; die with requests on their way.  Readers walk beside them.
FAULTS   At every request: the reply is lost, it is applied later, or never, also after its sender's death.
HOLDS    After every step: O1 to O6 of docs/objects.md.  One history: whatever a reader, a claim or a merged segment
         shows is the log's; what was acknowledged is in it, once, in order; epochs never fall, and have one owner; a
         commit of which somebody was told that it is not in the log never is.
AT THE END  All that was acknowledged is read again; and, of one schedule in four, without faults some owner gets the
         log and commits.
SEED     Decides over everything: python -m tests.simulation.slot_schedules --seed N --trace
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from random import Random
from typing import Any

from headwater.errors import HeadwaterError
from headwater.log import takeover
from headwater.log.asks import Get, carry_out
from tests.simulation.slot_owner import Actor, Owner, Reader, WatchedWalk
from tests.simulation.slot_world import DIRECTORY, Faults, SlotWorld, Violation

SETTLING_STEPS_MAX = 3_000
COMMITS_AT_THE_END = 3
SETTLED_OF = 4
"""One schedule of so many is played on until somebody has the log; the others are read as they were left."""


@dataclass(frozen=True)
class Mood:
    """How a schedule plays."""

    window: int
    owners: int
    readers: int
    steps: int
    faults: Faults
    claim_share: float
    """With which chance an owner that has nothing to do claims, when it is its turn."""
    act_share: float
    """How many steps are somebody's own choice, and not a request that goes on."""
    pause_share: float
    death_share: float
    slow_share: float
    """How often somebody is slow between two requests of a walk, and others are not."""
    cut_off_share: float
    """How often somebody who hears nothing hears nothing for long."""
    late_share: float
    """How many of a dead owner's requests still arrive."""
    rolls: float
    """How many of an owner's acts are rolls, and as many that segments are absorbed."""

    @classmethod
    def drawn(cls, chance: Random) -> Mood:
        fault = chance.choice((0.0, 0.02, 0.06, 0.15))
        return cls(
            window=chance.choice((1, 2, 3, 3, 3, 8)),
            owners=chance.choice((2, 2, 3)),
            readers=chance.choice((0, 1, 1)),
            steps=chance.choice((120, 180, 300)),
            faults=Faults(fault * chance.random(), fault * chance.random(), fault * chance.random()),
            claim_share=chance.choice((0.02, 0.1, 0.4)),
            act_share=chance.choice((0.2, 0.3, 0.45)),
            pause_share=chance.choice((0.0, 0.01, 0.03)),
            slow_share=chance.choice((0.0, 0.03, 0.1)),
            death_share=chance.choice((0.0, 0.004, 0.015)),
            cut_off_share=chance.choice((0.0, 0.3)),
            late_share=chance.choice((0.3, 0.8)),
            rolls=chance.choice((0.1, 0.2, 0.3)),
        )


class SlotSchedule:
    def __init__(self, seed: int, *, mood: Mapping[str, Any] | None = None, trace: bool = False) -> None:
        self.seed = seed
        chance = Random(seed)
        drawn = Mood.drawn(chance)
        given = dict(mood or {})
        assert set(given) <= {field.name for field in fields(Mood)}
        self.mood = replace(drawn, **given)
        self.world = SlotWorld(seed, self.mood.window, self.mood.faults, trace=trace)
        self.owners = [
            Owner(self.world, chr(ord("A") + n), chance.randbytes(16), self.mood.rolls) for n in range(self.mood.owners)
        ]
        self._readers = [Reader(self.world, f"reader{n}") for n in range(self.mood.readers)]
        self._actors: list[Actor] = [*self.owners, *self._readers]
        self._step = 0

    def run(self) -> Counter[str]:
        try:
            while self._step < self.mood.steps:
                self._one()
                self._step += 1
            if self.seed % SETTLED_OF == 0:
                self._settle()
            self._check_end()
        except HeadwaterError as error:
            raise Violation(f"somebody is told of damage, and there is none: {error!r}") from error
        return self.world.counts

    # Steps -----------------------------------------------------------------------------------------------------------

    def _one(self) -> None:
        world, mood = self.world, self.mood
        chance = world.chance
        draw = chance.random()
        if draw < mood.act_share:
            self._act()
        elif world.late and draw > 0.95:
            world.late_step()
        else:
            sendings = world.sendings
            for _ in range(3):
                if not sendings:
                    return
                sending = sendings[int(chance.random() * len(sendings))]
                if sending.actor.paused_until <= self._step:
                    is_read = type(sending.question) is Get
                    if world.step_of(sending):
                        if is_read and chance.random() < mood.slow_share:
                            self._pause(sending.actor)
                    elif chance.random() < mood.cut_off_share:
                        self._pause(sending.actor)
                    return

    def _act(self) -> None:
        mood = self.mood
        chance = self.world.chance
        actor = self._actors[int(chance.random() * len(self._actors))]
        if actor.paused_until > self._step:
            return
        draw = chance.random()
        if draw < mood.pause_share:
            self._pause(actor)
        elif isinstance(actor, Reader):
            actor.act()
        elif isinstance(actor, Owner):
            if draw < mood.pause_share + mood.death_share:
                self.world.counts["deaths"] += actor.phase != "idle"
                actor.stop(late_share=mood.late_share)
            elif actor.phase != "idle" or chance.random() < mood.claim_share:
                actor.act()

    def _pause(self, actor: Actor) -> None:
        actor.paused_until = self._step + self.world.chance.randint(10, 100)
        self.world.note(actor.name, f"is paused until step {actor.paused_until}")

    # The end ---------------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Nothing fails any more: somebody owns the log, commits, and is answered."""
        world = self.world
        world.note("", "nothing fails any more")
        world.faults = Faults()
        newcomer = Owner(world, "Z", world.chance.randbytes(16), 0.0)
        self._actors.append(newcomer)
        for actor in self._actors:
            actor.paused_until = 0
        self.owners.append(newcomer)
        # A claim catches up with an owner that pauses, not with one that always has a window in flight.
        left = dict.fromkeys(self.owners, COMMITS_AT_THE_END)
        newcomer.claim()
        for _ in range(SETTLING_STEPS_MAX):
            if world.late:
                world.late_step()
            if newcomer.phase == "fenced":
                # By a fence of somebody who is dead, or has lost: it was late.
                newcomer.stop(late_share=0.0)
                left[newcomer] = COMMITS_AT_THE_END
            if newcomer.phase == "idle":
                newcomer.claim()
            for owner, commits in left.items():
                # What was fenced stays so: only the newcomer claims.
                if commits and owner.phase == "owning" and owner.window.has_room:
                    left[owner] -= 1
                    owner.commit()
            if newcomer.phase == "owning" and not left[newcomer] and not newcomer.window.in_flight:
                return
            world.step_of(world.sendings[int(world.chance.random() * len(world.sendings))])
        raise Violation("nobody gets the log and commits, though nothing fails any more")

    def _check_end(self) -> None:
        """All that was acknowledged is read again by a process that knows nothing."""
        world = self.world
        while world.late:
            world.late_step()
        found = carry_out(takeover.read_trim(DIRECTORY), world.store, _never)
        if found is None:
            assert not world.acknowledged
            return
        manifest, etag = found
        walk = WatchedWalk(manifest, etag, world, "the last reader")
        if not carry_out(takeover.walk_on(DIRECTORY, walk), world.store, _never):
            raise Violation("the last walk does not come to an end, and nobody is there")
        shown = {lsn: content for _, lsn, content in walk.contents}
        for segment in manifest.segments:
            shown.update(world.merged[segment.generation])
        if walk.end.next_lsn != world.history.next_lsn:
            raise Violation(f"the log ends at LSN {world.history.next_lsn}, and is read to {walk.end.next_lsn}")
        for lsn, content in shown.items():
            world.believes("the last reader", lsn, content)
        for content, lsn in world.acknowledged.items():
            if lsn > world.forgotten_lsn and shown.get(lsn) != content:
                raise Violation(f"O3: LSN {lsn} was acknowledged and cannot be read")
        in_log = {entry.packed.content for entry in world.history.entries}
        if world.fenced & in_log:
            raise Violation(f"somebody was told that {min(world.fenced & in_log)!r} is not in the log: it is")


def _never(_: object) -> None:
    raise AssertionError("this store fails nothing")


def run_slot_seed(seed: int) -> Counter[str]:
    try:
        return SlotSchedule(seed).run()
    except Violation:
        print(f"python -m tests.simulation.slot_schedules --seed {seed} --trace")
        raise


def main() -> int:
    """Run one schedule again, or many, and tell what happened."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.slot_schedules", description=main.__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seeds", type=int, default=1, help="how many, from --seed on")
    parser.add_argument("--trace", action="store_true", help="print every step")
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    violations = 0
    began = time.monotonic()
    for seed in range(given.seed, given.seed + given.seeds):
        schedule = SlotSchedule(seed, trace=given.trace)
        try:
            schedule.run()
        except Violation as violation:
            violations += 1
            print("\n".join(schedule.world.trace or ()))
            print(f"seed {seed}: {violation}")
        counts += schedule.world.counts
    print(f"{dict(counts)}\n{given.seeds} schedules in {time.monotonic() - began:.1f} s, {violations} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
