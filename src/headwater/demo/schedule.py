"""Which steps a run takes, in which order, and with what in them: all of it follows from the seed.

PROMISE  The same seed and number of steps give the same schedule, on every machine.
         Every kind of step comes, if there are as many steps as kinds; the first one lands, so that there is a table.
NOT HERE How far the writers have come when a step is taken: they are processes, and do not wait for anybody.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random  # noqa: TID251  seeded, and nothing else of it: a seed is the whole repro
from typing import Literal

from headwater.demo.rows import ACCOUNTS, ORDERS

Kind = Literal[
    "land",
    "race",
    "kill before commit",
    "kill after commit",
    "kill anywhere",
    "kill, compact, expire",
    "late commit",
    "kill in a race",
    "kill the owner",
    "kill a writer",
    "compact",
    "expire",
    "roll back",
]

KINDS: tuple[tuple[Kind, int], ...] = (
    ("land", 1),
    ("race", 3),
    ("kill before commit", 3),
    ("kill after commit", 3),
    ("kill anywhere", 3),
    ("kill, compact, expire", 1),
    ("late commit", 2),
    ("kill in a race", 2),
    ("kill the owner", 2),
    ("kill a writer", 2),
    ("compact", 2),
    ("expire", 2),
    ("roll back", 2),
)
"""Each kind of step, and how often it comes beside the others."""

STEPS = 20
SEEDS = 1_000_000
"""A seed that nobody gave is below this: short enough to be typed again."""


@dataclass(frozen=True)
class Step:
    kind: Kind
    topic: str = ORDERS
    """For what is done to one table."""
    number: int = 0
    """Which writer dies; so many landings the table is set back; so many snapshots are kept."""
    wait_s: float = 0.0
    """How long before it; for "kill anywhere", how long the lander lives."""


def draw(seed: int, steps: int = STEPS) -> tuple[Step, ...]:
    """The schedule of a seed."""
    chance = Random(seed)
    kinds = [kind for kind, _ in KINDS[1:]]
    chance.shuffle(kinds)
    often = [kind for kind, times in KINDS for _ in range(times)]
    more = [chance.choice(often) for _ in range(max(steps - 1 - len(kinds), 0))]
    # All kinds are among the steps; where they come, and which come again, is the seed's.
    between: list[Kind] = [*kinds, *more][: steps - 1]
    chance.shuffle(between)
    drawn: list[Kind] = ["land", *between]
    return tuple(_step(kind, chance) for kind in drawn)


def _step(kind: Kind, chance: Random) -> Step:
    topic = chance.choice((ORDERS, ORDERS, ACCOUNTS))
    number = chance.randrange(1, 4)
    wait_s = round(chance.uniform(0.02, 0.35), 3)
    return Step(kind, topic, number, wait_s)
