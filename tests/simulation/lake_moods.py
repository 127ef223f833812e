"""What schedules of landing are made of: the faults that calls may meet, what owners may do, and how much of each.

A schedule draws a mood: few kinds of acts, often, rather than all of them, rarely, because what breaks a promise is
mostly two or three of them close together.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

FAULTS: dict[str, tuple[str, ...]] = {
    "load": ("unavailable", "stale", "stale"),
    "create": ("unavailable", "lost reply"),
    "stage": ("unavailable",),
    "commit": ("refused", "unavailable", "late", "late", "locked", "lost reply", "sent twice", "sent again later"),
    "max_row_lsn": ("unavailable",),
    "added_files": ("unavailable",),
    "files_between": ("unavailable",),
    "make_durable": ("unavailable",),
    "run": ("fails",),
    "task": ("dies", "fails"),
    "record": ("unavailable",),
}

ACTS: dict[str, tuple[str, ...]] = {
    "calm": ("set_a_property",),
    "maintenance": (
        "rewrite_data_files",
        "rewrite_in_pieces",
        "expire_all_but_the_head",
        "expire_the_older",
        "expire_one",
        "compact_and_expire",
        "stamp",
        "append_of_its_own",
        "remove_orphans",
    ),
    "deletes": ("delete_newest_rows", "delete_newest_rows", "rewrite_data_files", "truncate", "expire_the_older"),
    "rollbacks": (
        "roll_back",
        "roll_back",
        "rewrite_data_files",
        "set_current_snapshot",
        "cherry_pick",
        "cherry_pick",
        "cherry_pick_wrongly",
        "roll_back_compact_and_expire",
        "orphans_on_no_branch",
        "expire_one",
        "stamp",
    ),
    "replacements": (
        "create_or_replace",
        "copy_into_itself",
        "drop",
        "drop_and_create",
        "new_topic",
        "roll_back",
        "append_of_its_own",
    ),
    "shapes": ("add_a_column", "change_the_spec", "evolve_topic", "rewrite_data_files", "set_a_property"),
    "strange": ("require_a_column", "unset_the_property", "lose_a_file", "expire_the_older", "rewrite_data_files"),
}


@dataclass
class Counts:
    schedules: int = 0
    calls: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    landings: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    acts: Counter[str] = field(default_factory=Counter)

    def add(self, other: Counts) -> None:
        self.schedules += other.schedules
        self.calls += other.calls
        self.kills += other.kills
        self.landings += other.landings
        self.outcomes += other.outcomes
        self.faults += other.faults
        self.acts += other.acts


@dataclass(frozen=True)
class Mood:
    """What one schedule is like."""

    landers: int
    topics: int
    rounds: int
    fault_share: float
    commit_fault_share: float
    death_share: float
    act_share: float
    switch_share: float
    person_share: float
    """How often a round is begun with --after-rollback."""
    verify_share: float
    """How often it reads back rather than looking at metadata."""
    time_share: float
    """Of what the world does, how much is time that passes, so that the log forgets."""
    acts: tuple[str, ...]
    checks_sequence: bool
    can_tell: bool
    """Whether the log knows what it has let go of."""


def draw_mood(chance: Random, world: str | None = None) -> Mood:
    chosen = world or chance.choice(list(ACTS))
    acts = list(ACTS[chosen])
    if chance.random() < 0.3:
        acts += ACTS[chance.choice(list(ACTS))]
    landers = chance.choice((1, 2, 2, 3))
    return Mood(
        landers=landers,
        topics=chance.choice((1, 1, 2)),
        rounds=chance.choice((2, 3, 4)) if landers < 3 else 2,
        fault_share=chance.choice((0.0, 0.02, 0.08)),
        commit_fault_share=chance.choice((0.0, 0.2, 0.6)),
        death_share=chance.choice((0.0, 0.01, 0.05)),
        act_share=chance.choice((0.05, 0.12, 0.3)),
        switch_share=chance.choice((0.1, 0.4)),
        person_share=chance.choice((0.0, 0.0, 0.3)),
        verify_share=chance.choice((1.0, 1.0, 0.5)),
        time_share=chance.choice((0.05, 0.2)),
        acts=tuple(acts),
        checks_sequence=chance.random() < 0.7,
        can_tell=chance.random() < 0.7,
    )
