"""What a log asks of its store: the one place where it is written down, for `bench objects` and docs/scale.md.

    a commit    1 PUT     its slot
    a second    1 PUT     the lease
    a roll      1 PUT     the index of the sealed segment
                1 PUT     trim
       merged   1 PUT     one object with all its slots, where they are small on average
                1 GET     the fence that the owner has claimed the log with, if it is there: all else is in its memory
                1 DELETE  a slot
    checkpoint  1 PUT, and what keeping the newest two costs: 2 LIST, 3 GET, 1 DELETE; made when a segment was sealed,
                by upkeep in its own thread and then at most once a second, with a clean-up: 2 LIST of pins
While nothing rolls there is no LIST, no GET and no DELETE.
Without upkeep (`upkeep_interval_s=0`) there is a checkpoint a roll and no clean-up: then nothing but the lease goes by
a clock, and what is counted is compared with this to the last request.

SLOTS    are sealed once they hold `segment_size_bytes_max`, or are SLOTS_MAX, or are an hour old.
NOT HERE Claiming and opening, which are once a life; landing, cleaning up and reading, which go by other clocks.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.log.object_keeping import MERGE_BELOW_BYTES
from headwater.storage.objects import StoreCounters

LEASE_PUTS_PER_S = 1.0
SEAL_PUTS = 2
CHECKPOINT_PUTS = 1
CHECKPOINT_LISTS = 2
CHECKPOINT_GETS = 3
CHECKPOINT_DELETES = 1
CLEAN_UP_LISTS = 2
VERBS = ("puts", "gets", "lists", "deletes")

Range = tuple[float, float]


@dataclass(frozen=True)
class Spell:
    """A while in which rows were appended one after the other, and what the store was asked for in it."""

    asked: StoreCounters
    commits: int
    rolls: int
    fences: int
    """Segments that were sealed in it and begin with a fence."""
    slots_gone: int
    """Slots that are not in the store any more."""
    slot_bytes: float
    """On average."""
    seconds: float


@dataclass(frozen=True)
class Expected:
    """Requests, each from the least to the most: only what goes by a clock is not exact."""

    puts: Range
    gets: Range
    lists: Range
    deletes: Range


def puts_per_roll(slot_bytes: float) -> int:
    """Without its checkpoint."""
    return SEAL_PUTS + is_merged(slot_bytes)


def is_merged(slot_bytes: float) -> bool:
    return slot_bytes < MERGE_BELOW_BYTES


def expected(spell: Spell) -> Expected:
    leases = spell.seconds * LEASE_PUTS_PER_S
    puts = spell.commits + spell.rolls * (puts_per_roll(spell.slot_bytes) + CHECKPOINT_PUTS)
    return Expected(
        puts=(puts + max(leases - 2, 0), puts + leases + 1),
        gets=_exactly(spell.rolls * CHECKPOINT_GETS + spell.fences * is_merged(spell.slot_bytes)),
        lists=_exactly(spell.rolls * CHECKPOINT_LISTS),
        deletes=_exactly(spell.slots_gone + spell.rolls * CHECKPOINT_DELETES),
    )


def unexplained(spell: Spell) -> float:
    """Requests that lie outside of what the model says."""
    model = expected(spell)
    outside = 0.0
    for verb in VERBS:
        least, most = getattr(model, verb)
        asked = getattr(spell.asked, verb)
        outside += max(least - asked, asked - most, 0)
    return outside


def _exactly(count: float) -> Range:
    return count, count
