"""Upkeep of a keyed topic's two tables without Spark: changes that are merged and old, and the state's snapshots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.lake.iceberg_tables import IcebergTables
from headwater.lake.mark import FORGOTTEN
from headwater.lake.tables import CommitRefused
from headwater.lake.verification import Verdict, Verifying
from tests.unit.lake.keyed_tables import CHANGES, STATE, keyed

MONTH_S = 31 * 86_400


def test_changes_past_their_retention_go_once_they_are_merged_and_never_before(tmp_path: Path) -> None:
    with keyed(tmp_path) as lake:
        lake.land((1, "a"))
        lake.merge()
        lake.land((2, "b"))
        assert lake.care()[CHANGES].forgotten_files == 0

        # 31 days later the first file is merged and old; the second is old, and not merged yet.
        lake.clock.advance(MONTH_S)
        listed = lake.care(dry_run=True)[CHANGES]
        assert (listed.forgotten_files, listed.forgotten_lsn) == (1, 0) and lake.ids(CHANGES) == [1, 2]
        told = lake.care()[CHANGES]

        assert told.forgotten_files == 1 and told.left == [] and lake.ids(CHANGES) == [2]
        assert "1 files of changes let go" in str(told) and told.did_something
        assert lake.load(CHANGES).properties[FORGOTTEN] == str(told.forgotten_lsn)
        noted = [each.detail for each in lake.ledger.state().kept[CHANGES] if each.what == "retention"]
        assert noted == [f"1 files of changes up to LSN {told.forgotten_lsn}"]

        # And the merge goes on from there.
        lake.merge()
        assert lake.ids() == [1, 2]


def test_without_a_state_table_no_change_goes(tmp_path: Path) -> None:
    with keyed(tmp_path) as lake:
        lake.land((1, "a"))
        lake.clock.advance(MONTH_S)

        told = lake.care()

        assert told[CHANGES].forgotten_files == 0 and lake.ids(CHANGES) == [1]
        assert told[STATE].left == ["there is no table yet"]


def test_changes_in_one_file_with_a_row_that_nothing_is_known_about_stay(tmp_path: Path) -> None:
    with keyed(tmp_path) as lake:
        lake.land((1, "a"))
        lake.merge()
        # Given somebody's rewrite of the change table that has put a row of no log into the same file.
        table = lake.pyiceberg(CHANGES)
        rows = table.scan().to_arrow()
        table.overwrite(pa.concat_tables([rows, pa.Table.from_pylist([{"id": 99}], schema=rows.schema)]))
        lake.clock.advance(MONTH_S)

        told = lake.care()[CHANGES]

        assert (told.forgotten_files, told.forgotten_lsn) == (0, 0)
        assert lake.ids(CHANGES) == [1, 99] and FORGOTTEN not in lake.load(CHANGES).properties


def test_changes_stay_where_other_commits_come_first_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with keyed(tmp_path) as lake:
        lake.land((1, "a"))
        lake.merge()
        lake.clock.advance(MONTH_S)

        def refuse(*_: Any) -> None:
            raise CommitRefused("another came first")

        monkeypatch.setattr(IcebergTables, "commit", refuse)

        told = lake.care(attempts_max=2)[CHANGES]

        assert "changes past their retention stay: other commits came first each time" in told.left
        assert told.forgotten_lsn == 0 and lake.ids(CHANGES) == [1]


def test_the_snapshots_of_a_state_table_expire_and_merges_go_on(tmp_path: Path) -> None:
    with keyed(tmp_path) as lake:
        for number in range(3):
            lake.land((number, "a"))
            lake.merge()

        told = lake.care(snapshots_kept=1)[STATE]

        # Those of the merges before the last one, and the one that the first began at.
        assert told.expired_snapshots == 3 and told.cause == "" and len(lake.load().snapshots) == 1
        lake.land((3, "b"))
        lake.merge()
        assert lake.ids() == [0, 1, 2, 3]


def test_snapshots_of_merges_expire_though_nobody_has_read_their_changes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with keyed(tmp_path) as lake:
        monkeypatch.setattr(Verifying, "verify", lambda _, topics, mode: {each.number: Verdict() for each in topics})
        for number in range(2):
            lake.land((number, "a"))
            lake.merge()

        told = lake.care(snapshots_kept=1)

        # It is the landings that are read back, so it is their snapshots that stay.
        assert (told[STATE].expired_snapshots, told[CHANGES].expired_snapshots) == (2, 0)


def test_a_state_table_behind_the_merges_that_the_ledger_knows_is_left_alone(tmp_path: Path) -> None:
    with keyed(tmp_path) as lake:
        lake.land((1, "a"))
        first = lake.merge()
        lake.land((2, "b"))
        lake.merge()
        lake.roll_back(first)
        before = lake.load().snapshots

        told = lake.care(snapshots_kept=1)

        assert (told[STATE].cause, told[CHANGES].cause) == ("gap", "")
        assert lake.load().snapshots == before


def test_a_state_table_that_nothing_was_merged_into_yet_is_left_alone(tmp_path: Path) -> None:
    with keyed(tmp_path) as lake:
        lake.land((1, "a"))
        assert lake.begin() is not None

        assert lake.care()[STATE].left == ["nothing has come into it yet"]
