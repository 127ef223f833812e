"""The state of a keyed topic against its changes: each row is the latest of its key, and no deleted key is back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headwater.lake.audit_report import StateAudit, TopicAudit
from headwater.lake.mark import FORGOTTEN
from tests.unit.lake.audited_lakes import ranges, twice, with_value, without
from tests.unit.lake.keyed_tables import CHANGES, STATE, Keyed, keyed


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Keyed]:
    """Keys 1, 2 and 3; then 1 is changed and 2 is deleted: offsets 0, 1, 2, 3 and 4."""
    with keyed(tmp_path) as lake:
        lake.land((1, "a"), (2, "b"), (3, "c"))
        lake.merge()
        lake.land((1, "aa"))
        lake.topic.delete([{"id": 2}])
        assert lake.log.land().rows == 1
        lake.merge()
        settle(lake)
        yield lake


def settle(lake: Keyed) -> None:
    """The state as a MERGE would have left it."""
    changes = lake.pyiceberg(CHANGES).scan().to_arrow().sort_by("_hw_lsn").to_pylist()
    latest = {row["id"]: row for row in changes}
    rows = [row for row in latest.values() if row.pop("_hw_op") == "U"]
    change(lake, lambda _: pa.Table.from_pylist(rows))


def change(lake: Keyed, made: Callable[[pa.Table], pa.Table]) -> None:
    """Write the state anew, with something changed."""
    table = lake.pyiceberg()
    rows = made(table.scan().to_arrow().sort_by("_hw_offset"))
    table.overwrite(rows.select(table.schema().column_names).cast(table.schema().as_arrow()))


def audit(lake: Keyed, **options: Any) -> tuple[TopicAudit, StateAudit]:
    told = lake.log.audit(full=True, **options)["customers"]
    assert told.state is not None
    return told, told.state


def named(state: StateAudit) -> dict[str, dict[int, tuple[tuple[int, int], ...]]]:
    kinds = ("missing", "extra", "doubled", "altered")
    found = {kind: {each.partition: getattr(each, kind) for each in state.partitions} for kind in kinds}
    return {kind: shown for kind, each in found.items() if (shown := {k: v for k, v in ranges(each).items() if v})}


def test_a_state_that_is_the_latest_of_its_changes_passes(lake: Keyed) -> None:
    told, state = audit(lake)

    assert told.passed and state.passed and (state.rows, state.table) == (2, STATE) and lake.ids() == [1, 3]
    assert told.table == CHANGES and told.rows == 5


def test_a_key_that_is_gone_is_missing_by_the_change_that_made_it(lake: Keyed) -> None:
    change(lake, without(1))

    told, state = audit(lake)

    assert not told.passed and named(state) == {"missing": {0: ((3, 3),)}}
    assert f"{STATE}: partition 0: missing: offset 3" in str(lake.log.audit(full=True))
    assert told.differences == 1


def test_a_deleted_key_that_a_bad_compaction_brought_back_is_extra(lake: Keyed) -> None:
    changes = lake.pyiceberg(CHANGES).scan().to_arrow()
    deleted = changes.filter(pc.equal(changes["_hw_offset"], 1)).drop_columns(["_hw_op"])
    change(lake, lambda rows: pa.concat_tables([rows, deleted.select(rows.column_names).cast(rows.schema)]))

    _, state = audit(lake)

    assert lake.ids() == [1, 2, 3] and named(state) == {"extra": {0: ((1, 1),)}}


def test_an_older_row_of_a_key_is_extra_and_the_latest_is_missing(lake: Keyed) -> None:
    changes = lake.pyiceberg(CHANGES).scan().to_arrow()
    older = changes.filter(pc.equal(changes["_hw_offset"], 0)).drop_columns(["_hw_op"])
    change(lake, lambda rows: pa.concat_tables([rows.slice(0, 1), older.select(rows.column_names).cast(rows.schema)]))

    _, state = audit(lake)

    assert named(state) == {"missing": {0: ((3, 3),)}, "extra": {0: ((0, 0),)}}


def test_a_key_twice_is_doubled_and_a_changed_value_is_altered(lake: Keyed) -> None:
    change(lake, twice(0))
    assert named(audit(lake)[1]) == {"doubled": {0: ((2, 2),)}}

    change(lake, lambda rows: with_value("name", 1, "x")(rows.slice(1)))
    assert named(audit(lake)[1]) == {"altered": {0: ((3, 3),)}}


def test_a_row_that_is_not_merged_yet_is_told(lake: Keyed) -> None:
    change(lake, with_value("_hw_lsn", 1, 99))

    _, state = audit(lake)

    assert state.findings == ("1 rows have an LSN that is not merged yet, or none of the log's",)
    assert named(state) == {"missing": {0: ((3, 3),)}}


def test_changes_that_are_not_merged_yet_are_not_asked_for(lake: Keyed) -> None:
    lake.land((4, "d"))

    told, state = audit(lake)

    assert told.passed and told.lsn_to > state.merged_lsn and state.rows == 2


def test_a_state_that_was_never_merged_owes_nothing(tmp_path: Path) -> None:
    with keyed(tmp_path) as lake:
        lake.land((1, "a"))
        assert lake.log.audit()["customers"].state is None
        lake.begin()

        told, state = audit(lake)

        assert told.passed and (state.merged_lsn, state.rows) == (0, 0)


def test_a_lost_file_of_the_state_is_told(lake: Keyed) -> None:
    [task] = lake.pyiceberg().scan().plan_files()
    Path(task.file.file_path.removeprefix("file://")).unlink()

    _, state = audit(lake)

    assert state.findings == (f"lost: {task.file.file_path}",) and named(state) == {"missing": {0: ((2, 3),)}}


def test_past_the_retention_of_changes_only_later_ones_are_compared(lake: Keyed) -> None:
    """The changes of the first landing are gone, as upkeep lets them go: what is left says nothing of key 3."""
    first = lake.pyiceberg(CHANGES).scan().to_arrow()["_hw_lsn"].to_pylist()
    forgotten = min(first)
    with lake.pyiceberg(CHANGES).transaction() as transaction:
        transaction.set_properties({FORGOTTEN: str(forgotten)})

    _, state = audit(lake)
    assert state.passed and state.since_lsn == forgotten

    change(lake, with_value("name", 0, "x"))
    assert audit(lake)[1].passed, "nobody can say what it was"

    changes = lake.pyiceberg(CHANGES).scan().to_arrow()
    older = changes.filter(pc.less_equal(changes["_hw_offset"], 1)).drop_columns(["_hw_op"])
    change(lake, lambda rows: pa.concat_tables([rows, older.select(rows.column_names).cast(rows.schema)]))
    [stale] = audit(lake)[1].findings
    assert stale == (
        "2 rows were replaced or deleted since, and are still there: partition 0 offset 0, partition 0 offset 1"
    )
