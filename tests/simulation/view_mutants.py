"""Views with one rule broken, to show that their suites would notice: mutants are killed, or the suites are blind.

HOW      As in mutants.py: a function is replaced in memory while the mutant lives, mostly by editing its source; an
         edit that no longer fits fails loudly.
KILLED   By a seed, if its schedule breaks a promise: of view_schedules.py, or of view_keyed.py.  What only shows in
         real files, tokens and pins is killed by the unit tests that are named with it, run here on a lake of their
         own.
IN CI    Each runs until five seeds have killed it; a named test must fail at once.

Rules that no mutant here breaks, because another rule holds without them:
    the durable LSN is read after the tables    read before them, a table may be ahead of it: then its rows are taken by
                                                LSN, and the view is an earlier one, whole all the same
    the ledger is read before the tables        read after them, it is ahead of what they show, and the first hold keeps
                                                the log whole: the tail is there, and is found to be there
"""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import HeadwaterError
from headwater.lake import file_cache, resolving, view_plan
from tests.simulation.patches import Patch, patched
from tests.simulation.view_keyed import run_keyed_seed
from tests.simulation.view_schedules import ViewSchedule
from tests.unit.lake import (
    keyed_tables,
    scratch_tables,
    small_lakes,
    test_cut,
    test_resolving,
    test_view,
    view_states,
)

Test = Callable[..., None]


@dataclass(frozen=True)
class ViewMutant:
    name: str
    what: str
    apply: Callable[[Patch], None]
    world: str | None = None
    mood: Mapping[str, Any] = field(default_factory=dict)
    keyed: bool = False
    test: Test | None = None
    """The test that notices it; none where schedules do."""

    def __call__(self) -> AbstractContextManager[None]:
        return patched(self.apply)


def kills(mutant: ViewMutant, seed: int) -> str | None:
    """What the seed, or the test, notices while the mutant lives, or nothing."""
    with mutant():
        try:
            if mutant.test is not None:
                run_test(mutant.test)
            elif mutant.keyed:
                run_keyed_seed(seed)
            else:
                ViewSchedule(seed, world=mutant.world, mood=mutant.mood).run()
        except (AssertionError, HeadwaterError, OSError, LookupError, TypeError, ValueError) as error:
            # A mutant may break things in any way: what matters is that somebody notices.
            return f"{type(error).__name__}: {error}"
        except pytest.fail.Exception as error:
            return str(error)
    return None


def run_test(test: Test) -> None:
    """A unit test with what it asks for, made anew in a folder of its own."""
    with ExitStack() as made, tempfile.TemporaryDirectory(prefix="headwater-") as folder:
        settings = test_view.SMALL if test.__module__ == test_view.__name__ else small_lakes.SETTINGS
        fixtures: dict[str, Callable[[], Any]] = {
            "tmp_path": lambda: Path(folder),
            "lake": lambda: made.enter_context(_lake(Path(folder), settings)),
            "tables": lambda: made.enter_context(scratch_tables.connected(scratch_tables.sqlite_place(Path(folder)))),
            "customers": lambda: made.enter_context(keyed_tables.keyed(Path(folder))),
            "cache": file_cache.FileCache,
            "world": lambda: test_resolving.World(
                tables={"lake.orders": view_states.state(view_states.snapshot(1, lsn=6))}
            ),
            "monkeypatch": lambda: made.enter_context(pytest.MonkeyPatch.context()),
            "topics": lambda: test_cut.CUT.topics,
        }
        with made:
            test(**{name: fixtures[name]() for name in inspect.signature(test).parameters})


@contextmanager
def _lake(folder: Path, settings: Any) -> Iterator[small_lakes.SmallLake]:
    yield from small_lakes.lakes(folder, settings)


MUTANTS: list[ViewMutant] = []


def edited(name: str, what: str, owner: Any, function: str, *changes: tuple[str, str], **more: Any) -> ViewMutant:
    """A mutant that is an edit of one function."""
    return ViewMutant(name, what, lambda patch: patch.edit(owner, function, *changes), **more)


def _edit(name: str, what: str, owner: Any, function: str, *changes: tuple[str, str], **more: Any) -> None:
    MUTANTS.append(edited(name, what, owner, function, *changes, **more))


ALONE = {"landers": 1, "fault_share": 0.0, "commit_fault_share": 0.0, "death_share": 0.0}
FORGETTING = {"time_share": 0.4, "act_share": 0.3, "death_share": 0.0, "fault_share": 0.0}

# Which parts there are -----------------------------------------------------------------------------------------------

_edit(
    "tail-one-too-late",
    "the log is read from one LSN behind the landed one",
    view_plan,
    "plan_rows",
    ("(min(covered, at_lsn), at_lsn)", "(min(covered + 1, at_lsn), at_lsn)"),
)
_edit(
    "tail-one-too-early",
    "the log is read from the landed LSN on",
    view_plan,
    "plan_rows",
    ("(min(covered, at_lsn), at_lsn)", "(max(min(covered, at_lsn) - 1, 0), at_lsn)"),
)
_edit(
    "cuts-snapshot-ignored",
    "a cut is read by LSN though its snapshot is there, so that what was deleted since is missing",
    view_plan,
    "plan_rows",
    ("if cut is not None and cut.snapshot is not None and", "if False and"),
    world="deletes",
)
_edit(
    "nothing-of-the-head",
    "of a cut only its snapshot and the log are read, though rows between have landed and are gone from the log",
    view_plan,
    "plan_rows",
    ("covered = _add_head(", "covered = covered if parts else _add_head("),
    mood=FORGETTING,
)
_edit(
    "cut-covers-more",
    "a cut's snapshot counts for all of the cut",
    view_plan,
    "plan_rows",
    ("covered = cut.landed_lsn", "covered = at_lsn"),
)
_edit(
    "unmarked-doubled",
    "rows of the owner are taken from each snapshot",
    view_plan,
    "_add_head",
    ("first = unmarked and not parts", "first = unmarked"),
    world="maintenance",
    mood={"act_share": 0.3},
)
_edit(
    "whole-though-not",
    "a head that is ahead of the point is read whole",
    view_plan,
    "_add_head",
    ("whole = first and table.lsn <= at_lsn", "whole = first"),
)
_edit(
    "head-beyond-the-point",
    "of the head every row is read that has landed, whatever the point",
    view_plan,
    "_add_head",
    ("upper = min(table.lsn, at_lsn)", "upper = table.lsn"),
)
_edit(
    "head-from-the-beginning",
    "of the head also the rows are read that the cut's snapshot has",
    view_plan,
    "_add_head",
    ("head.snapshot_id, covered, upper", "head.snapshot_id, 0, upper"),
)
_edit(
    "nothing-landed-nothing-read",
    "a head with nothing landed is passed by, with the rows of its owner",
    view_plan,
    "_add_head",
    ("if upper > covered or first:", "if upper > covered:"),
    world="maintenance",
    mood={"act_share": 0.3},
)
_edit(
    "state-too-new",
    "a state that is merged beyond the point is taken",
    view_plan,
    "_in_history",
    ("if state.lsn <= at_lsn:", "if True:"),
    keyed=True,
)
_edit(
    "state-one-too-new",
    "a state of the history that is merged one LSN beyond the point is taken",
    view_plan,
    "_in_history",
    ("mark.lsn_to <= at_lsn", "mark.lsn_to <= at_lsn + 4"),
    keyed=True,
)
_edit(
    "only-the-newest-state",
    "no older state is looked for",
    view_plan,
    "_in_history",
    ("while snapshot is not None:", "while False:"),
    keyed=True,
)
_edit(
    "retention-ignored",
    "changes that are gone are taken for changes that never were",
    view_plan,
    "plan_keyed",
    ("changes.forgotten_lsn if changes is not None else 0", "0"),
    keyed=True,
)
_edit(
    "changes-one-too-late",
    "changes are read from one LSN behind the state",
    view_plan,
    "plan_keyed",
    ("covered = base.lsn_to if base is not None else 0", "covered = base.lsn_to + 1 if base is not None else 1"),
    keyed=True,
)
_edit(
    "own-changes-too-far",
    "the cut's own changes count for all of the cut",
    view_plan,
    "_own_parts",
    ("upper = max(cut.landed_lsn, cut.merged_lsn)", "upper = cut.landed_lsn + 2"),
    keyed=True,
)
_edit(
    "own-state-forgotten",
    "the cut's own state is passed by where its changes are read",
    view_plan,
    "_own_parts",
    ("return base, TablePart(", "return None, TablePart("),
    keyed=True,
)

# The order of looks --------------------------------------------------------------------------------------------------

_edit(
    "no-first-hold",
    "the log is not held while tables are looked at",
    resolving.Resolver,
    "_resolve",
    ("first = self._source.hold(None)", "first = self._source.hold(FAR_LSN)"),
    mood=FORGETTING,
)
_edit(
    "no-last-hold",
    "the log is not held while parts are read",
    resolving.Resolver,
    "_resolve",
    ("self._source.hold(*_needs(plans.values()))", "self._source.hold(FAR_LSN)"),
    mood=FORGETTING,
)
_edit(
    "changes-before-state",
    "the changes are loaded before the state, once: what is merged in between is in neither",
    resolving.Resolver,
    "_load_topic",
    (
        "state = self._table_now(tables, topic, topic.table)\n        landed =",
        "landed = self._table_now(tables, topic, landing_table(topic))\n        landed =",
    ),
    keyed=True,
)
_edit(
    "loaded-once",
    "a state and changes that do not agree are not loaded again",
    resolving.Resolver,
    "_load_topic",
    ("range(LOADS_MAX)", "range(1)"),
    keyed=True,
)
_edit(
    "tail-unchecked",
    "what a rolled back table lacks is not looked for in the log",
    resolving.Resolver,
    "_check_tail",
    ("lsn_from, lsn_to = plan.tail", "return"),
    world="rollbacks",
    mood={**FORGETTING, **ALONE, "can_tell": True, "person_share": 0.0},
)
_edit(
    "rows-of-a-cut-uncounted",
    "a cut of a topic without a table is shown with what is left",
    resolving.Resolver,
    "_holds_alone",
    ("== own.log_rows", ">= 0"),
    mood=FORGETTING,
)
_edit(
    "a-later-snapshot-in-a-cut",
    "a cut at an LSN names a snapshot that shows more",
    resolving,
    "_before",
    ("table is not None and table.lsn <= at_lsn", "table is not None"),
)
_edit(
    "a-cut-is-now",
    "a cut that is read again is a view of now",
    resolving.Resolver,
    "at",
    ("self._resolve(topics, cut.lsn, cut)", "self._resolve(topics, None, cut)"),
)
_edit(
    "first-hold-stays",
    "the first hold is not let go of",
    resolving.Resolver,
    "_resolve",
    ("first.release()", "pass"),
    test=test_resolving.test_the_log_is_held_before_anything_is_looked_at_and_its_end_is_read_last,
)
_edit(
    "any-log",
    "a cut of another log is read",
    resolving.Resolver,
    "at",
    ("if self._source.log_id and", "if False and"),
    test=test_resolving.test_a_cut_of_another_log_is_refused,
)
_edit(
    "snapshots-unnamed",
    "the pin does not name what is read",
    resolving,
    "_needs",
    ("[part.snapshot_id for plan in plans for part in plan.parts]", "[]"),
    test=test_resolving.test_where_nothing_is_read_of_the_log_the_pin_is_for_the_snapshots_alone,
)
