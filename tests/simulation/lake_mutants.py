"""Landing with one rule broken, to show that the schedules would notice: mutants are killed, or the suite is blind.

HOW      As in mutants.py: a function is replaced in memory while the mutant lives, mostly by editing its source; an
         edit that no longer fits fails loudly.
KILLED   By a seed, if its schedule breaks a promise.
WORLD    What owners do in the schedules that hunt a mutant, and how much of what else: where it shows.
ADAPTER  Those with this word break the simulated catalog's own connection, as a careless adapter of a real catalog
         would: they show that the promises rest on it.  What the real one (iceberg_tables.py, task.py) does about each
         is held by tests with real catalogs.
IN CI    Each runs until five seeds have killed it; `python -m tests.simulation.lake_mutants` prints all rates.

Rules that no mutant here breaks, because another rule holds without them:
    new files after an unknown outcome    the late request and the new one are conditional on one head: whichever wins,
                                          the files are in the table once.  New ones are there so that what upkeep
                                          knows as in flight has one outcome
    the epoch                             a courtesy: the commit is the fence
    looking for the own commit-id first   without it a landing is found by its LSN in the next round, and adopted; with
                                          a wrong answer it is `adopts-what-another-landed`
    the ledger's word of a landing        without it the landing is adopted in the next round
    asking a second time if behind        a stale cache makes a halt that the next round takes back
Rules that show so rarely that test_lake_named_failures.py holds them instead: a property behind the table is no proof;
what others landed while tasks read is not landed again; nor on a head to which somebody has come back.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from headwater.errors import HeadwaterError
from headwater.lake import (
    committing,
    connections,
    lander,
    ledger_state,
    marks,
    plan,
    stamping,
    standing,
    verification,
)
from tests.simulation import lake_world
from tests.simulation.lake_schedules import Schedule
from tests.simulation.patches import Patch, patched

TROUBLED = {"commit_fault_share": 0.6, "fault_share": 0.02}
TOGETHER = {"landers": 2, "switch_share": 0.4, "topics": 1}
PICKING = {"act_share": 0.3, "acts": ("roll_back", "cherry_pick", "cherry_pick_wrongly", "rewrite_data_files")}
ALONE = {"landers": 1, "fault_share": 0.0, "commit_fault_share": 0.0, "death_share": 0.0}


@dataclass(frozen=True)
class LakeMutant:
    name: str
    what: str
    apply: Callable[[Patch], None]
    world: str | None = None
    mood: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self) -> AbstractContextManager[None]:
        return patched(self.apply)


def kills(mutant: LakeMutant, seed: int) -> str | None:
    """What the seed notices while the mutant lives, or nothing."""
    with mutant():
        try:
            Schedule(seed, world=mutant.world, mood=mutant.mood).run()
        except (AssertionError, HeadwaterError, OSError, LookupError, TypeError, AttributeError, ValueError) as error:
            # A mutant may break things in any way: what matters is that somebody notices.
            return f"{type(error).__name__}: {error}"
    return None


MUTANTS: list[LakeMutant] = []


def _mutant(name: str, what: str, **more: Any) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def add(apply: Callable[[Patch], None]) -> Callable[[Patch], None]:
        MUTANTS.append(LakeMutant(name, what, apply, **more))
        return apply

    return add


# The commit, by an adapter that does not do what the seam says -------------------------------------------------------


@_mutant(
    "adapter-check-outside-the-commit",
    "the head is compared before the commit and not in it",
    world="calm",
    mood=TOGETHER,
)
def _(patch: Patch) -> None:
    patch.edit(lake_world.SimulatedTables, "_request", ("check_base=True", "check_base=False"))


@_mutant(
    "adapter-rebases",
    "a commit that was refused is put on the new head and sent again, as pyiceberg's own retry does",
    world="calm",
    mood=TOGETHER,
)
def _(patch: Patch) -> None:
    patch.edit(
        lake_world.SimulatedTables,
        "_commit",
        (
            '"database is locked", table=request.table)\n            catalog.apply(request)',
            '"database is locked", table=request.table)\n'
            "            try:\n"
            "                catalog.apply(request)\n"
            "            except CommitRefused:\n"
            "                now = catalog.tables[request.table]\n"
            "                below = now.head.files if now.head is not None else ()\n"
            "                moved = replace(\n"
            "                    request.snapshot,\n"
            "                    parent_id=now.branches.get(MAIN),\n"
            "                    files=below + request.snapshot.added,\n"
            "                    sequence=now.last_sequence + 1,\n"
            "                )\n"
            "                catalog.apply(replace(request, base=moved.parent_id, snapshot=moved))",
        ),
    )


@_mutant("adapter-no-property", "the landing leaves no property", world="maintenance", mood=ALONE)
def _(patch: Patch) -> None:
    patch.edit(
        lake_world.SimulatedTables,
        "_request",
        ("properties={property_name(branch): mark.property_value(snapshot.snapshot_id)}", "properties={}"),
    )


@_mutant("adapter-no-uuid", "a commit goes to whatever table has the name", world="replacements")
def _(patch: Patch) -> None:
    patch.edit(lake_world.SimulatedTables, "_request", ("uuid=version.uuid", "uuid=None"))


@_mutant("adapter-no-schema-id", "files of another schema are committed", world="shapes")
def _(patch: Patch) -> None:
    patch.edit(lake_world.SimulatedTables, "_request", ("schema_id=version.schema_id", "schema_id=None"))


@_mutant("adapter-no-spec-id", "files of another partition spec are committed", world="shapes")
def _(patch: Patch) -> None:
    patch.edit(lake_world.SimulatedTables, "_request", ("spec_id=version.spec_id", "spec_id=None"))


@_mutant("adapter-keeps-what-it-loaded", "a connection shows a table as it was when it was first loaded", mood=TOGETHER)
def _(patch: Patch) -> None:
    patch.edit(
        lake_world.SimulatedTables,
        "_load",
        (
            "version = self._seen(name)",
            "version = self._catalog.__dict__.setdefault('first', {}).setdefault(name, self._seen(name))",
        ),
    )


@_mutant("default-file-counter", "every task of a landing gives its first file the same name", world="calm")
def _(patch: Patch) -> None:
    patch.edit(
        __import__("tests.simulation.lake_log", fromlist=["x"]).SimulatedRunner,
        "_write",
        ("{topic.commit_id}-{self._catalog.number()}.parquet", "{topic.commit_id}-{start}.parquet"),
    )


# The outcome of a commit ---------------------------------------------------------------------------------------------


@_mutant(
    "landed-lsn-not-compared",
    "after a refusal the same files go onto the new head, whoever has landed meanwhile",
    world="calm",
    mood=TOGETHER,
)
def _(patch: Patch) -> None:
    patch.edit(
        committing.Committing,
        "_outcome",
        ("if reached.landed_lsn != standing.landed_lsn:", "if False:"),
        # A second rule, which would hide it.
        ("if now.properties.get(property_name()) != before.properties.get(property_name()):", "if False:"),
    )


@_mutant(
    "schema-not-compared", "after a refusal files go under a schema that they were not written for", world="shapes"
)
def _(patch: Patch) -> None:
    patch.edit(
        committing.Committing,
        "_outcome",
        ("if (now.schema_id, now.spec_id) != (before.schema_id, before.spec_id):", "if False:"),
    )


@_mutant("adopts-what-another-landed", "whoever has landed as far, it counts as ours", mood={**TROUBLED, **TOGETHER})
def _(patch: Patch) -> None:
    patch.edit(
        committing.Committing,
        "_outcome",
        (
            "if reached.mark is not None and reached.mark.commit_id == mark.commit_id:",
            "if reached.landed_lsn >= mark.lsn_to:",
        ),
    )


@_mutant("unknown-counts-as-landed", "an outcome that nobody knows counts as a landing", mood=TROUBLED)
def _(patch: Patch) -> None:
    patch.edit(
        committing.Committing,
        "commit",
        (
            "except CommitUncertain:\n            certain = False",
            "except CommitUncertain:\n            return Committed(staged.snapshot_id, state.uuid)",
        ),
    )


@_mutant("unknown-is-cleaned-up", "files are removed when nobody knows the outcome", mood=TROUBLED)
def _(patch: Patch) -> None:
    patch.edit(
        committing.Committing,
        "commit",
        (
            "except CommitUncertain:\n            certain = False",
            "except CommitUncertain:\n            certain = False\n"
            "            for file in files:\n                tables.remove(file.path)",
        ),
    )


@_mutant("refused-is-cleaned-up", "files are removed when the catalog says that it refused them", mood=TROUBLED)
def _(patch: Patch) -> None:
    patch.edit(
        committing.Committing,
        "commit",
        (
            "except CommitRefused:\n            certain = True",
            "except CommitRefused:\n            certain = True\n"
            "            for file in files:\n                tables.remove(file.path)",
        ),
    )


@_mutant("same-connection-reused", "the outcome is asked of the connection that failed", mood=TROUBLED)
def _(patch: Patch) -> None:
    patch.edit(
        connections.Connections, "lent", ("tables.close()\n        raise", "self._free.append(tables)\n        raise")
    )
    patch.edit(committing.Committing, "commit", ("self._connections.new()", "self._connections.lent()"))


# What a table says ---------------------------------------------------------------------------------------------------


@_mutant("property-first", "the property is believed before the history is looked at", world="rollbacks")
def _(patch: Patch) -> None:
    patch.edit(
        marks,
        "_walk",
        (
            "    snapshot = state.head(branch)\n",
            "    snapshot = state.head(branch)\n"
            "    if property_name(branch) in state.properties:\n"
            "        mark = mark_in_property(state.properties[property_name(branch)])\n"
            "        _check_ours(mark, state, log_id, topic_id)\n"
            "        return Standing(mark.lsn_to, mark.max_row_lsn, mark.watermark_us, mark, mark.snapshot)\n",
        ),
    )


@_mutant(
    "property-without-proof",
    "the property is believed after a rollback and an expiry",
    world="rollbacks",
    mood={"act_share": 0.3},
)
def _(patch: Patch) -> None:
    patch.edit(marks, "_by_property", ("if bound != mark.max_row_lsn:", "if False:"))


@_mutant("walk-ends-at-the-head", "only the head is asked for its mark", world="maintenance")
def _(patch: Patch) -> None:
    patch.edit(marks, "_walk", ("snapshot = state.snapshots[snapshot.parent_id]", "snapshot = None"))


@_mutant("walk-passes-one-mark", "the landing before the last one counts", world="calm", mood=ALONE)
def _(patch: Patch) -> None:
    patch.edit(
        marks,
        "_walk",
        (
            "        if found is not None:\n",
            "        if found is not None and snapshot.parent_id in state.snapshots:\n"
            "            found = _mark_or_missing(state, state.snapshots[snapshot.parent_id])[0] or found\n"
            "        if found is not None:\n",
        ),
    )


@_mutant(
    "expired-means-nothing-landed", "a history that ends in an expired snapshot has no landing", world="maintenance"
)
def _(patch: Patch) -> None:
    patch.edit(
        marks,
        "_walk",
        ("            standing = _by_property(", "            return Standing()\n            standing = _by_property("),
    )


@_mutant("cherry-pick-not-seen", "a cherry-picked landing is passed over", mood=PICKING)
def _(patch: Patch) -> None:
    patch.edit(marks, "_mark_or_missing", ("source = _source_of(snapshot)", "source = None"))


@_mutant("cherry-pick-anywhere", "a picked landing counts wherever it was put", mood=PICKING)
def _(patch: Patch) -> None:
    patch.edit(marks, "_check_follows", ("if before == mark.lsn_from:", "if True:"))


@_mutant("anybodys-mark", "the mark of an earlier topic of the name counts", world="replacements")
def _(patch: Patch) -> None:
    patch.edit(marks, "_check_ours", ("if mark.is_of(log_id, topic_id):", "if True:"))


# Table and ledger ----------------------------------------------------------------------------------------------------


@_mutant("ledger-believed", "a landing goes on where the ledger ends, not where the table does", world="rollbacks")
def _(patch: Patch) -> None:
    patch.edit(
        standing.TableReader,
        "read",
        (
            "    landed_lsn = reading.standing.landed_lsn\n",
            "    ahead = max(reading.standing.landed_lsn, known.landed_lsn)\n"
            "    reading = replace(reading, standing=replace(reading.standing, landed_lsn=ahead))\n"
            "    landed_lsn = reading.standing.landed_lsn\n",
        ),
    )


@_mutant("lands-again-unasked", "what was rolled back lands again without a word of anybody", world="rollbacks")
def _(patch: Patch) -> None:
    patch.edit(
        standing.TableReader, "_check_decided", ("if topic.name not in self._decisions.after_rollback:", "if False:")
    )


@_mutant(
    "lands-over-a-hole",
    "what the log has forgotten is left out of what lands again",
    world="rollbacks",
    mood={"person_share": 0.3, "act_share": 0.3, "time_share": 0.3},
)
def _(patch: Patch) -> None:
    patch.edit(standing, "check_log_has", ("if held != owed.rows:", "if False:"))


@_mutant("adopts-nothing", "a landing that nobody wrote down is not told to the ledger", mood={"death_share": 0.05})
def _(patch: Patch) -> None:
    patch.edit(standing.TableReader, "_adopted", ("return tuple(", "return () and tuple("))


@_mutant(
    "decision-withdraws-nothing",
    "what was verified before a person said that it is gone may still be forgotten",
    world="rollbacks",
    mood={"person_share": 0.5, "act_share": 0.3, "topics": 1, "time_share": 0.4, "acts": ("roll_back",)},
)
def _(patch: Patch) -> None:
    _edit_static(
        patch,
        ledger_state.LedgerState,
        "_apply_to_topic",
        ("topic.verified = [each for each in topic.verified if each[0] <= record.lsn]", "pass"),
    )


# What is read and written --------------------------------------------------------------------------------------------


@_mutant("lands-beyond-durable", "a landing says that it reaches one LSN further than the log is durable", world="calm")
def _(patch: Patch) -> None:
    patch.edit(lander.Lander, "_planned", ("return plan.lsn_to, works", "return plan.lsn_to + 1, works"))


@_mutant(
    "durable-asked-last",
    "how far the log is durable is asked after what it holds, and believed",
    world="calm",
    mood={"act_share": 0.3, "landers": 2},
)
def _(patch: Patch) -> None:
    patch.edit(
        lander.Lander,
        "_planned",
        ("    durable_lsn = self._source.durable_lsn()\n", "    listed = self._source.segments()\n"),
        ("        self._source.segments(),\n", "        listed,\n"),
        ("durable_lsn=durable_lsn", "durable_lsn=self._source.durable_lsn()"),
    )
    # A second rule, which would hide it.
    patch.edit(plan, "plan_landing", ("durable_lsn = min(durable_lsn, segments[-1].last_lsn)", "pass"))


@_mutant("failed-task-ignored", "a landing goes on without the rows of a task that failed", mood={"fault_share": 0.08})
def _(patch: Patch) -> None:
    patch.edit(lander.Lander, "_trouble", ("if attempt.error is not None:", "if False:"))


@_mutant("budget-not-told", "a round that was cut short says that it has landed everything", world="calm")
def _(patch: Patch) -> None:
    patch.edit(plan, "plan_landing", ("lsn_to = segment.first_lsn - 1", "lsn_to = durable_lsn"))


@_mutant(
    "farthest-topic-begins",
    "a segment is read from where the farthest topic has landed",
    world="replacements",
    mood={"topics": 2},
)
def _(patch: Patch) -> None:
    patch.edit(
        plan,
        "_range_in",
        (
            "lsn_from = max(min(wanted[number] for number in topics), before)",
            "lsn_from = max(max(wanted.values()), before)",
        ),
    )


@_mutant("newest-row-not-raised", "the property says where the newest row was before this landing", world="calm")
def _(patch: Patch) -> None:
    patch.edit(
        lander.Lander,
        "_commit",
        ("max_row_lsn=max(standing.max_row_lsn, attempt.max_lsn)", "max_row_lsn=standing.max_row_lsn"),
    )


@_mutant("stamp-drops-the-newest-row", "a stamp does not carry forward where the newest row is", world="maintenance")
def _(patch: Patch) -> None:
    patch.edit(stamping, "stamp_of", ("max_row_lsn=standing.max_row_lsn", "max_row_lsn=0"))


@_mutant("stamp-begins-anew", "a stamp says that nothing has landed", world="maintenance")
def _(patch: Patch) -> None:
    patch.edit(stamping, "stamp_of", ("lsn_to=standing.landed_lsn", "lsn_to=0"))


@_mutant(
    "begin-not-written",
    "upkeep is not told of files that are being written",
    world="maintenance",
    mood={"act_share": 0.3, "acts": ("remove_orphans",)},
)
def _(patch: Patch) -> None:
    _edit_static(
        patch,
        ledger_state.LedgerState,
        "_apply_to_topic",
        (
            "            topic.in_flight[record.commit_id] = record\n            topic.epoch",
            "            topic.epoch",
        ),
    )


@_mutant(
    "unknown-counts-as-ended",
    "upkeep is told that an attempt of unknown outcome is over",
    world="maintenance",
    mood={**TROUBLED, "act_share": 0.3, "acts": ("remove_orphans",)},
)
def _(patch: Patch) -> None:
    _edit_static(patch, ledger_state.LedgerState, "_apply_to_topic", ('if record.why != "unknown":', "if True:"))


# Verification --------------------------------------------------------------------------------------------------------


@_mutant(
    "verified-unread",
    "whatever is read back counts as what was written",
    mood={"act_share": 0.3, "acts": ("lose_a_file",)},
)
def _(patch: Patch) -> None:
    patch.edit(
        verification, "_difference", ("    landed = landing.landed\n", "    landed = landing.landed\n    return None\n")
    )


@_mutant(
    "verified-off-main",
    "a landing counts as verified though main no longer has it",
    mood={"verify_share": 0.0, "act_share": 0.3, "acts": ("roll_back", "append_of_its_own", "create_or_replace")},
)
def _(patch: Patch) -> None:
    patch.edit(verification.Verifying, "_locate", ("if standing.landed_lsn < landed.lsn_to:", "if False:"))


@_mutant("verified-too-far", "more counts as verified than was read back", world="calm")
def _(patch: Patch) -> None:
    patch.edit(verification.Verifying, "_verified", ("lsn_to=landed.lsn_to", "lsn_to=landed.lsn_to + 1"))


@_mutant(
    "hole-not-noticed",
    "a landing that was never written down does not keep what is above it from being forgotten",
    mood={
        "death_share": 0.1,
        "act_share": 0.4,
        "time_share": 0.2,
        "acts": ("stamp", "stamp", "compact_and_expire"),
        "rounds": 8,
        "topics": 1,
    },
)
def _(patch: Patch) -> None:
    patch.edit(
        ledger_state, "_land", ("if record.lsn_from > topic.landed_lsn and topic.hole_lsn is None:", "if False:")
    )


def _edit_static(patch: Patch, owner: type, name: str, *changes: tuple[str, str]) -> None:
    """As Patch.edit, for a static method."""
    plain = inspect.getattr_static(owner, name).__func__
    patch.set(owner, name, plain)
    patch.edit(owner, name, *(("@staticmethod\n", ""), *changes))
    patch.set(owner, name, staticmethod(inspect.getattr_static(owner, name)))


def main() -> int:
    """How many of so many seeds kill each mutant."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.lake_mutants", description=main.__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--only", help="one mutant, by name")
    given = parser.parse_args()
    lives = 0
    for mutant in MUTANTS:
        if given.only not in {None, mutant.name}:
            continue
        began = time.monotonic()
        try:
            with mutant():
                pass
        except AssertionError as error:
            print(f"{mutant.name:<35} {type(error).__name__}: {error}")
            continue
        noticed = [told for seed in range(given.seeds) if (told := kills(mutant, seed)) is not None]
        took = time.monotonic() - began
        example = noticed[0][:110] if noticed else ""
        print(f"{mutant.name:<35} {len(noticed):>4} of {given.seeds} in {took:.1f} s  {example}")
        lives += not noticed
    return 1 if lives else 0


if __name__ == "__main__":
    sys.exit(main())
