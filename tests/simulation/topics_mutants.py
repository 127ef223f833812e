"""Topics with one rule broken, to show that the simulation would notice: mutants are killed, or the suite is blind.

HOW      As in mutants.py: a function of the product is replaced in memory while the mutant lives, mostly by editing
         its source; an edit that no longer fits fails loudly.
KILLED   By a seed, if its life, or its crashes, or a directed check breaks on it.
HABITAT  The steps of which the seeds that hunt a mutant live: those in which it shows, among some others.
IN CI    Each runs until three seeds have killed it; `python -m tests.simulation.topics_mutants` prints all rates.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pyarrow as pa

from headwater.errors import HeadwaterError
from headwater.frames.frame import Kind
from headwater.log.writer import FormedWrite
from headwater.metadata import checkpoint as checkpoints
from headwater.metadata import journal, shard_state, state
from headwater.metadata.checkpoint import Checkpoint, CheckpointKind
from headwater.topics import appending, compaction, engine, forming, producers, reading, shard
from headwater.topics.requests import TopicRequest
from tests.simulation.patches import Patch, patched
from tests.simulation.topics_checks import (
    cut_the_log,
    join_in_order,
    lose_a_checkpoint,
    mix_checkpoints,
    refuse_a_schema,
    take_over,
)
from tests.simulation.topics_crashes import Effort, TopicsCrashes
from tests.simulation.topics_life import SeededDraw, small_windows
from tests.simulation.topics_steps import CUTTABLE, Steps, any_step, failing_step

ANYTHING = ("append", "append_together", "time_passes", "roll", "checkpoint", "read_everything")
PRODUCING = ("open_producer", "produce", "produce", "produce", "produce_again", "produce_fenced")
GROUPS = ("join_group", "poll", "poll", "commit", "time_passes", "transaction")
KEYS = ("append_with_key", "append_with_key", "append_together", "checkpoint", "time_passes")
CLEANING = ("delete_keys", "delete_keys", "append", "clean_thoroughly", "compact")


@dataclass(frozen=True)
class TopicsMutant:
    name: str
    what: str
    apply: Callable[[Patch], None]
    habitat: tuple[str, ...] = ()
    """Steps of which half of the life consists."""
    cut_percent: int = 10
    crashes: bool = False
    """It shows in crashes, so the crash engine hunts it."""
    check: Callable[[int], None] | None = None
    """It shows where somebody puts it to the test: a check of its own, for a seed."""

    def __call__(self) -> AbstractContextManager[None]:
        return patched(self.apply)


def live(mutant: TopicsMutant, seed: int, steps: int = 40) -> None:
    """A life in which the mutant's steps come often."""
    life = Steps(seed, SeededDraw(Random(f"topics life {seed}")))
    chance = Random(f"habitat {seed}")
    for _ in range(steps):
        if mutant.habitat and chance.random() < 0.6:
            name = chance.choice(mutant.habitat)
            if name == "failing":
                failing_step(life)
            elif name in CUTTABLE and chance.random() * 100 < mutant.cut_percent:
                life.cut(getattr(life, name), chance.randrange(6))
            else:
                getattr(life, name)()
        else:
            any_step(life, mutant.cut_percent)
    life.finish()


def kills(mutant: TopicsMutant, seed: int) -> str | None:
    """What the seed notices while the mutant lives, or nothing."""
    with mutant(), small_windows():
        try:
            if mutant.check is not None:
                mutant.check(seed)
            elif mutant.crashes:
                TopicsCrashes(seed, Effort(steps=25, percent_of_calls=12, states=2)).run()
            else:
                live(mutant, seed)
        except (
            AssertionError,
            HeadwaterError,
            OSError,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            pa.ArrowException,
        ) as error:
            # A mutant may break things in any way: what matters is that somebody notices.
            return f"{type(error).__name__}: {error}"
    return None


MUTANTS: list[TopicsMutant] = []


def _mutant(name: str, what: str, **more: Any) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def add(apply: Callable[[Patch], None]) -> Callable[[Patch], None]:
        MUTANTS.append(TopicsMutant(name, what, apply, **more))
        return apply

    return add


# The state ------------------------------------------------------------------------------------------------


@_mutant("answers-one-less", "a producer's window of answers is one too short", habitat=PRODUCING)
def _(patch: Patch) -> None:
    patch.edit(
        shard_state.ShardState,
        "_fold_sequence",
        ("len(producer.answers) > ANSWERS_KEPT", "len(producer.answers) >= ANSWERS_KEPT"),
    )


@_mutant("answers-for-ever", "a producer's answers are never forgotten", habitat=PRODUCING)
def _(patch: Patch) -> None:
    patch.edit(shard_state.ShardState, "_fold_sequence", ("if len(producer.answers) > ANSWERS_KEPT:", "if False:"))


@_mutant("sequence-stays", "a request does not move its producer's number", habitat=PRODUCING)
def _(patch: Patch) -> None:
    patch.edit(
        shard_state.ShardState,
        "_fold_sequence",
        ("producer.next_sequence = sequence + 1", "producer.next_sequence = sequence"),
    )


@_mutant("producers-share-a-number", "a new producer gets the number of the one before", habitat=PRODUCING)
def _(patch: Patch) -> None:
    patch.edit(
        shard_state.ShardState,
        "fold_record",
        ("self.next_producer_id = max(self.next_producer_id, registered.producer_id + 1)", "pass"),
    )


@_mutant("epoch-not-folded", "a producer's next epoch is not folded", habitat=PRODUCING)
def _(patch: Patch) -> None:
    patch.edit(
        shard_state.ShardState, "fold_record", ("producer.epoch = registered.epoch", "producer.epoch = producer.epoch")
    )


@_mutant("young-keys-pruned", "keys are forgotten before their day is over", habitat=KEYS)
def _(patch: Patch) -> None:
    patch.edit(
        shard_state.ShardState, "prune", ("self.time_us - KEY_AGE_US_MAX", "self.time_us - KEY_AGE_US_MAX // 100_000")
    )


@_mutant("key-keeps-its-place", "a key that is used again is forgotten as early as its first use", habitat=KEYS)
def _(patch: Patch) -> None:
    patch.edit(shard_state.ShardState, "fold_record", ("self.keys.pop(entry.key, None)", "pass"))


@_mutant("one-key-less", "one key less is remembered than was promised", habitat=KEYS)
def _(patch: Patch) -> None:
    patch.edit(shard_state.ShardState, "prune", ("len(self.keys) - KEYS_MAX", "len(self.keys) - KEYS_MAX + 1"))


@_mutant("sources-not-saved", "a checkpoint leaves out the sources", habitat=("transaction", "checkpoint"))
def _(patch: Patch) -> None:
    patch.edit(shard_state.ShardState, "pack", ("sources=sorted(self.sources.items())", "sources=[]"))


@_mutant("groups-not-saved", "a checkpoint leaves out what groups have committed", habitat=(*GROUPS, "checkpoint"))
def _(patch: Patch) -> None:
    patch.edit(
        shard_state.ShardState,
        "pack",
        ("for group, offsets in sorted(self.groups.items())", "for group, offsets in ()"),
    )


@_mutant("watermark-forgotten", "a source's watermark goes when a position comes without one", habitat=("transaction",))
def _(patch: Patch) -> None:
    patch.edit(shard_state.ShardState, "fold_record", ("watermark_us = before.watermark_us", "pass"))


# The shard and its checkpoints ----------------------------------------------------------------------------


@_mutant("fold-skips-one", "the frame after the checkpoint is not folded", habitat=ANYTHING)
def _(patch: Patch) -> None:
    patch.edit(shard.Shard, "_fold_to", ("Lsn(before + 1)", "Lsn(before + 2)"))


@_mutant("checkpoint-early", "a checkpoint is written before the rows that it counts are durable", habitat=ANYTHING)
def _(patch: Patch) -> None:
    original = shard.Shard._form

    def early(self: Any, requests: Any, sequencer: Any) -> list[FormedWrite]:
        formed = original(self, requests, sequencer)
        end = self.log.device.end()
        lsn = end.next_lsn - 1 + sum(len(write.drafts) for write in formed)
        packed = self._pack()
        self._checkpoints.write(
            Checkpoint(CheckpointKind.SHARD, lsn, packed.chain, 0, self._clock.now_us(), packed.body)
        )
        return formed

    patch.set(shard.Shard, "_form", early)


@_mutant("offsets-not-in-the-checkpoint", "a checkpoint has the next offsets of the one before", habitat=ANYTHING)
def _(patch: Patch) -> None:
    patch.edit(shard.Shard, "_pack", ("state.next_offsets = dict(self.log.device.next_offsets())", "pass"))


@_mutant(
    "checkpoint-unsynced",
    "a checkpoint is not synced before it has its name",
    habitat=("checkpoint", "append", "cleanup", "lose_power"),
)
def _(patch: Patch) -> None:
    patch.edit(checkpoints.Checkpoints, "write", ("file.sync_all()", "pass"))


@_mutant("covered-by-one", "one checkpoint is enough for segments to go", check=lose_a_checkpoint)
def _(patch: Patch) -> None:
    patch.set(shard.Shard, "covered_lsn", property(lambda self: self.checkpoint_lsn))


@_mutant("another-log's-checkpoint", "a checkpoint's chain value is not looked at", check=mix_checkpoints)
def _(patch: Patch) -> None:
    patch.set(shard.Shard, "_check_continues", lambda self, checkpoint, first_lsn: None)


@_mutant(
    "checkpoint-beyond-the-end",
    "a log that ends before its checkpoint is opened",
    check=cut_the_log,
)
def _(patch: Patch) -> None:
    patch.edit(shard.Shard, "_load_from", ("if as_owner:", "if False:"))


# Forming --------------------------------------------------------------------------------------------------


@_mutant("expected-unchecked", "`expect_offset` is not compared", habitat=("append_expecting", "append_together"))
def _(patch: Patch) -> None:
    patch.edit(forming.Forming, "_admit", ("if following != expected:", "if False:"))


@_mutant("generation-unchecked", "offsets are committed under a lease that is over", check=take_over)
def _(patch: Patch) -> None:
    patch.edit(forming.Forming, "_admit", ("self._check_lease(each)", "pass"))


@_mutant("old-epoch-goes-on", "an old epoch of a producer is not fenced", habitat=PRODUCING)
def _(patch: Patch) -> None:
    patch.edit(forming.Forming, "_sequence_told_before", ("if identity.epoch != epoch:", "if False:"))


@_mutant("gap-in-sequence", "a producer's request is applied before the one that should precede it", habitat=PRODUCING)
def _(patch: Patch) -> None:
    patch.edit(forming.Forming, "_sequence_told_before", ("if sequence == following:", "if sequence >= following:"))


@_mutant("schemas-once", "the schema frame is left out after a roll", habitat=(*ANYTHING, "roll"))
def _(patch: Patch) -> None:
    patch.edit(forming.Forming, "_finish", ("if segment != self._segment:", "if not self._segment:"))


@_mutant("schemas-believed", "a schema counts as written though its commit failed", check=refuse_a_schema)
def _(patch: Patch) -> None:
    patch.edit(
        forming.Forming,
        "_finish",
        ("self._schemas_in_commit.update(leading)", "self._schemas_in_segment.update(leading)"),
    )


@_mutant("joined-at-the-wrong-place", "joined rows lie behind where they were told to be", habitat=("append_together",))
def _(patch: Patch) -> None:
    patch.edit(
        forming, "_end_joined", ("write.base_offsets.append(base)", "write.base_offsets.append(base + len(rows) - 1)")
    )


@_mutant(
    "joined-out-of-order",
    "rows of another schema or sense overtake joined ones",
    habitat=("append_together", "delete_keys"),
    check=join_in_order,
)
def _(patch: Patch) -> None:
    original = forming.Forming._join

    def join(write: Any, rows: Any, base: int) -> None:
        write.frame_of.clear()
        original(write, rows, base)

    patch.set(forming.Forming, "_join", staticmethod(join))


@_mutant("twice-in-one-commit", "a key that comes twice in one commit is applied twice", habitat=KEYS)
def _(patch: Patch) -> None:
    patch.edit(forming.Forming, "_told_before", ("first = pending.by_key.get(identity.key)", "first = None"))


@_mutant("transaction-split", "a transaction is two writes", crashes=True, habitat=("transaction",))
def _(patch: Patch) -> None:
    original = forming.Forming._finish
    result = TopicRequest.result
    before: dict[int, int] = {}

    def split(self: Any, writes: Any, sequencer: Any) -> list[FormedWrite]:
        found = []
        for write in original(self, writes, sequencer):
            kinds = [draft.kind for draft in write.drafts]
            if kinds.count(Kind.DATA) < 2:
                found.append(write)
                continue
            at = len(kinds) - 1
            before.update({id(request): at for request in write.requests})
            found.append(FormedWrite(write.drafts[:at], write.base_offsets[:at], ()))
            found.append(FormedWrite(write.drafts[at:], write.base_offsets[at:], write.requests))
        return found

    def whole(self: Any, receipt: Any) -> Any:
        return result(self, receipt._replace(first_lsn=receipt.first_lsn - before.pop(id(self), 0)))

    patch.set(forming.Forming, "_finish", split)
    patch.set(TopicRequest, "result", whole)


# The engine -----------------------------------------------------------------------------------------------


@_mutant("rejected-apart", "rejected rows are a write of their own", crashes=True, habitat=("append_kept",))
def _(patch: Patch) -> None:
    original = engine.Engine._append

    def apart(self: Any, topic: Any, prepared: Any, expect_offset: Any, identity: Any) -> Any:
        beside = [rows for rows in prepared.rows if rows.topic.number != topic.number]
        if not beside or len(beside) == len(prepared.rows):
            return original(self, topic, prepared, expect_offset, identity)
        first = original(self, topic, appending.Prepared(beside, 0, len(beside)), None, None)
        mine = [rows for rows in prepared.rows if rows.topic.number == topic.number]
        second = original(self, topic, appending.Prepared(mine, prepared.accepted, 0), expect_offset, identity)
        return replace(second, first_lsn=first.first_lsn, rejected=first.rejected, time=second.time)

    patch.set(engine.Engine, "_append", apart)


@_mutant(
    "number-used-again",
    "a topic gets the number of one that was deleted, and its rows",
    habitat=("create", "append", "delete_topic"),
)
def _(patch: Patch) -> None:
    patch.edit(
        state.MetadataState,
        "apply",
        (
            "self.deleted[number] = DeletedTopic(number, topic.name, topic.topic_id, deleted_us)",
            "self.next_topic_number -= number == self.next_topic_number - 1",
        ),
    )


@_mutant(
    "reader-stands-still",
    "a process that owns nothing never looks at the journal again",
    habitat=("read_elsewhere", "create", "alter", "delete_topic"),
)
def _(patch: Patch) -> None:
    patch.set(engine.Engine, "_metadata", lambda self: self.journal.state)


@_mutant(
    "topics-before-durable",
    "a topic is there before its journal write is durable",
    habitat=("failing", "failing", "create", "delete_topic", "alter"),
)
def _(patch: Patch) -> None:
    patch.edit(
        journal.Journal,
        "append",
        ("receipt = self._log.append(drafts)", "self.state = state; receipt = self._log.append(drafts)"),
    )


@_mutant("producer-counts-refused", "a request that was refused uses up a number", habitat=(*PRODUCING, "failing"))
def _(patch: Patch) -> None:
    patch.edit(
        producers.Producer,
        "append",
        ("identity = self.identity(sequence)", "identity = self.identity(sequence); self.applied(identity)"),
    )


@_mutant("deletes-expire-at-once", "compaction takes the latest delete of a key before its time", habitat=CLEANING)
def _(patch: Patch) -> None:
    patch.edit(
        compaction.CompactionPlan,
        "_kept",
        ("_NO_TOMBSTONE < written_us <= self._expired_us", "_NO_TOMBSTONE < written_us"),
    )


@_mutant("oldest-stays", "compaction keeps the first row of a key, and not the latest", habitat=CLEANING)
def _(patch: Patch) -> None:
    patch.edit(compaction.LatestRows, "_fold", ('(_ORDINAL, "max")', '(_ORDINAL, "min")'))


@_mutant("stop-included", "a read gives the row at its stop", habitat=("read", "read", "append"))
def _(patch: Patch) -> None:
    patch.edit(
        reading._Reading,
        "_rows_of",
        ("high = min(high, self._until[partition])", "high = min(high, self._until[partition] + 1)"),
    )


def main() -> int:
    """Print how many of the seeds kill each mutant."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.topics_mutants", description=main.__doc__)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    survivors = 0
    for mutant in MUTANTS:
        if given.names and mutant.name not in given.names:
            continue
        begun = time.process_time()
        notices = [notice for notice in (kills(mutant, seed) for seed in range(given.seeds)) if notice is not None]
        survivors += not notices
        took = time.process_time() - begun
        rate = f"{len(notices):3} of {given.seeds}, {took / given.seeds:.2f} s a seed"
        print(f"{mutant.name:30} {rate}  {(notices or ['-'])[0][:90]}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
