"""The audit with one rule broken, to show that damage would go unseen, or honest tables be blamed: mutants are killed.

HOW      As in mutants.py: a function is replaced in memory while the mutant lives, by editing its source; an edit that
         no longer fits fails loudly.
KILLED   By a scene: a small lake in which the audit that obeys the rule says one thing, and the mutant another.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.errors import HeadwaterError
from headwater.lake import (
    audit_compare,
    audit_history,
    audit_landed,
    audit_log,
    audit_measure,
    audit_plan,
    audit_state,
    latest,
)
from headwater.lake.ledger_records import Landed
from tests.simulation.patches import Patch, patched
from tests.unit.lake.audited_lakes import AuditedLake, with_value, without
from tests.unit.lake.delete_files import add_delete_file
from tests.unit.lake.keyed_tables import keyed
from tests.unit.lake.small_lakes import of_kind
from tests.unit.lake.test_audit import forget_blocks
from tests.unit.lake.test_audit_damage import erase, named
from tests.unit.lake.test_audit_state import change as change_state

Scene = Callable[[AuditedLake], None]


@dataclass(frozen=True)
class AuditMutant:
    name: str
    what: str
    scene: Scene
    apply: Callable[[Patch], None]

    def __call__(self) -> AbstractContextManager[None]:
        return patched(self.apply)


def kills(mutant: AuditMutant, folder: Path) -> str | None:
    """What the scene notices while the mutant lives, or nothing."""
    with mutant():
        return noticed(mutant.scene, folder)


def noticed(scene: Scene, folder: Path) -> str | None:
    lake = AuditedLake(folder)
    try:
        lake.orders(partitions=2)
        scene(lake)
    except (AssertionError, HeadwaterError, LookupError, TypeError, ValueError) as error:
        # A mutant may break things in any way: what matters is that somebody notices.
        return f"{type(error).__name__}: {error}"
    finally:
        lake.close()
    return None


# Scenes --------------------------------------------------------------------------------------------------------------


def widened(lake: AuditedLake) -> None:
    """Honest: columns come and widen, and a compaction writes all files anew."""
    lake.land(5)
    lake.log["orders"].alter(widen={"price": pa.decimal128(38, 2)})
    lake.land(3)
    lake.log["orders"].alter(add={"note": pa.string()})
    lake.land(2)
    lake.compact()
    for forgetful in (False, True):
        lake.forgetful = forgetful
        assert lake.audit().passed


def changed_since(lake: AuditedLake) -> None:
    """Damage between two audits, in the file of one landing, that keeps the count."""
    lake.land(5, 3)
    assert lake.audit().passed
    lake.forgetful = True
    lake.change(with_value("x", 2, 99))
    assert not lake.audit(full=False).passed


def deleted_by_position(lake: AuditedLake) -> None:
    lake.land(5, 3)
    assert lake.audit().passed
    with lake.native() as table:
        add_delete_file(table)
    assert list(lake.audit(full=False).missing) == [0]


def rolled_back(lake: AuditedLake) -> None:
    """Landed again after a rollback: what was set back is owed once."""
    lake.land(5)
    first = of_kind(lake, Landed)[0].snapshot
    lake.land(3)
    lake.rollback(first)
    assert not lake.audit().passed
    lake.fill(2)
    lake.round(after_rollback=["orders"])
    told = lake.audit()
    assert told.passed and told.owed == 10


def erased_rows(lake: AuditedLake) -> None:
    lake.land(5, 3)
    rows = lake.rows()
    lake.change(without(2))
    erase(lake, rows, 2)
    lake.forgetful = True
    assert lake.audit().passed
    lake.land(2)
    assert lake.audit(full=False).passed
    lake.change(lambda now: pa.concat_tables([now, rows.slice(2, 1)]))
    assert named(lake.audit()) == {"extra": {0: ((2, 2),)}}


def foreign_rows(lake: AuditedLake) -> None:
    lake.land(5)
    lake.change(lambda rows: pa.concat_tables([rows, with_value("_hw_lsn", 0, 0)(rows.slice(0, 1))]))
    assert named(lake.audit()) == {"extra": {0: ((0, 0),)}}


def found_landing(lake: AuditedLake) -> None:
    """A landing of which only the total is known is altered, and its offsets are its neighbours' to tell."""
    lake.land(3, 4, 2)
    forget_blocks(lake, 1)
    lake.forgetful = True
    assert lake.audit().passed
    lake.change(without(5))
    assert named(lake.audit()) == {"missing": {0: ((5, 5),)}}


def altered_in_place(lake: AuditedLake) -> None:
    lake.land(5)
    lake.change(with_value("name", 2, "another"))
    assert named(lake.audit()) == {"altered": {0: ((2, 2),)}}


def twice_over(lake: AuditedLake) -> None:
    """One row doubled and another removed: the count is right."""
    lake.land(5)
    lake.change(lambda rows: pa.concat_tables([without(1)(rows), rows.slice(3, 1)]))
    assert named(lake.audit()) == {"missing": {0: ((1, 1),)}, "doubled": {0: ((3, 3),)}}


def half_forgotten(lake: AuditedLake) -> None:
    """The log has let go of a landing: what it lacks says nothing against the table."""
    lake.land(5)
    source = lake.auditor()._source
    rows_between = source.rows_between
    source.rows_between = lambda *given: rows_between(*given) - 1  # type: ignore[method-assign]
    source.runs = lambda *_: []  # type: ignore[method-assign]
    assert lake.audit(source=source).passed


def lost_file(lake: AuditedLake) -> None:
    lake.land(5, 3)
    assert lake.audit().passed
    lake.files()[0].unlink()
    assert lake.audit(full=False).lost_files


def wrong_history(lake: AuditedLake) -> None:
    lake.land(5)
    head = lake.state().head()
    assert head is not None
    mark = {key: each for key, each in head.summary.items() if key.startswith("headwater.")}
    skipping = {"headwater.rows": "0", "headwater.lsn-from": "50", "headwater.lsn-to": "60", "headwater.commit-id": "c"}
    with lake.native() as table:
        table.append(lake.rows().slice(0, 0), snapshot_properties={**mark, **skipping})
    assert any(each.startswith("history:") for each in lake.audit().findings)


def deleted_key_is_back(lake: AuditedLake) -> None:
    with keyed(lake.folder.parent / "keyed") as own:
        own.land((1, "a"), (2, "b"))
        own.merge()
        own.topic.delete([{"id": 2}])
        own.log.land()
        own.merge()
        change_state(own, lambda rows: rows.slice(0, 1))
        told = own.log.audit(full=True)["customers"]
        assert told.passed, str(list(told.told()))
        changes = own.pyiceberg("crm.customers_changes").scan().to_arrow().sort_by("_hw_offset").slice(1, 1)
        change_state(own, lambda rows: pa.concat_tables([rows, changes.select(rows.column_names).cast(rows.schema)]))
        assert not own.log.audit(full=True)["customers"].passed


# Mutants -------------------------------------------------------------------------------------------------------------

MUTANTS: list[AuditMutant] = []


def _mutant(name: str, what: str, scene: Scene, owner: Any, function: str, *edits: tuple[str, str]) -> None:
    def apply(patch: Patch) -> None:
        plain = inspect.getattr_static(owner, function)
        assert not isinstance(plain, staticmethod), "edit a function or a method"
        patch.edit(owner, function, *edits)

    MUTANTS.append(AuditMutant(name, what, scene, apply))


_mutant(
    "types-of-now",
    "columns are compared in the types that the table has now",
    widened,
    audit_plan,
    "_kind",
    ("(column.field_id, column.type)", "(column.field_id, '')"),
)
_mutant(
    "only-what-is-new",
    "an incremental audit looks at new landings alone, whatever files have changed",
    changed_since,
    audit_plan,
    "selected",
    (" or any(each.lsn_from < last and each.lsn_to > first for first, last in apart)", ""),
)
_mutant(
    "files-by-path-alone",
    "a delete file that came since is not seen",
    deleted_by_position,
    audit_landed,
    "_identity",
    ("return live.path, *sorted(delete.file_path for delete in live.deletes)", "return (live.path,)"),
)
_mutant(
    "set-back-is-still-owed",
    "landings that a person has let go of are owed all the same",
    rolled_back,
    audit_plan,
    "expectation_of",
    ("if place in held}", "if place in held or True}"),
)
_mutant(
    "erased-rows-are-owed",
    "a receipt takes nothing from what is owed",
    erased_rows,
    audit_plan,
    "eras_of",
    ("blocks[place] = rows - block.rows, (total - block.total) % _MODULUS", "pass"),
)
_mutant(
    "erased-rows-may-come-back",
    "an offset that was erased counts as owed when it is there",
    erased_rows,
    audit_compare,
    "compare_block",
    ("expected &= ~_mask(owed.place, owed.erased)", "pass"),
)
_mutant(
    "an-erased-block-is-cut",
    "landings that share a block with an erasure are looked at apart",
    erased_rows,
    audit_plan,
    "selected",
    ("shared = expectation.erased_places", "shared = set()"),
)
_mutant(
    "strays-are-not-counted",
    "rows of no landing are not looked for",
    foreign_rows,
    audit_landed.LandedAudit,
    "_strays",
    ("if self._head is None:", "if True:"),
)
_mutant(
    "totals-are-not-compared",
    "of a landing that was found only the rows are counted, and not those either",
    found_landing,
    audit_landed.LandedAudit,
    "_measured_alone",
    ("if rows == landing.rows - landing.erased and", "if True or"),
)
_mutant(
    "neighbours-tell-nothing",
    "the offsets of a landing that was found stay unknown",
    found_landing,
    audit_plan,
    "with_offsets",
    ("if count_of(runs) == landing.rows:", "if False:"),
)
_mutant(
    "counts-alone",
    "blocks of as many rows as are owed pass, whatever is in them",
    changed_since,
    audit_landed,
    "_differences",
    (
        "owed.get(place, (0, 0)) != found.get(place, (0, 0))",
        "owed.get(place, (0, 0))[0] != found.get(place, (0, 0))[0]",
    ),
)
_mutant(
    "the-log-names-nothing",
    "rows are not compared with the log's by offset",
    altered_in_place,
    audit_compare,
    "_altered",
    ("found[places] = words[places] != said.words", "pass"),
)
_mutant(
    "doubles-count-once",
    "a row that is there twice is there",
    twice_over,
    audit_compare,
    "compare_block",
    ("_offsets(counts - stray > 1, base)", "_offsets(counts - stray > 2, base)"),
)
_mutant(
    "a-log-with-holes-is-believed",
    "the log speaks for landings of which it lacks rows",
    half_forgotten,
    audit_log.LogWitness,
    "holds",
    ("return held == landing.rows - landing.erased", "return True"),
)
_mutant(
    "files-are-not-looked-for",
    "that a file is there is taken from the manifest",
    lost_file,
    audit_measure.SnapshotLook,
    "_missing",
    ("if not self.table.io.new_input(path).exists()", "if False"),
)
_mutant(
    "history-is-not-walked",
    "a landing may follow any other",
    wrong_history,
    audit_history,
    "history_of",
    ("if before is not None and mark.lsn_from != before.lsn_to and", "if False and"),
)
_mutant(
    "deletes-are-passed-over",
    "a key whose last change is a delete is expected with the one before",
    deleted_key_is_back,
    latest,
    "latest_of",
    (
        "keys = _keys(changes, key)",
        "changes = changes.filter(pc.equal(changes['_hw_op'], 'U'))\n    keys = _keys(changes, key)",
    ),
)
_mutant(
    "the-state-is-its-own-witness",
    "the state is compared with itself",
    deleted_key_is_back,
    audit_state,
    "audit_state",
    (
        "Asked(changes, changes_head.snapshot_id, columns, (between,), topic.key)",
        "Asked(state, head.snapshot_id, columns, (between,))",
    ),
)
