"""Erasure of keys: changes, state, old snapshots and the log.  What stands for Spark's MERGE: erasable_lakes.py."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from headwater.errors import InvalidRequest, LandingHalted, Unavailable
from headwater.lake.merging import Merging
from headwater.lake.stamping import own_standing
from tests.unit.lake.erasable_lakes import IN_CLEAR, Erasable, people

STATE, CHANGES = "crm.people", "crm.people_changes"
MARKED = "marked-7f3a9c"


def in_clear(lake: Erasable) -> None:
    with lake.native(STATE).transaction() as change:
        change.set_properties(IN_CLEAR)


def test_a_key_goes_from_changes_state_and_log_with_every_change_of_it(tmp_path: Path) -> None:
    with people(tmp_path, key="id") as lake:
        lake.merge()
        in_clear(lake)
        lake.land(MARKED + "-1", "ann", ids=[7, 8])
        lake.merge()
        lake.land(MARKED + "-2", ids=[7])
        lake.log["people"].delete([{"id": 7}])
        lake.append(MARKED + "-3", "bob", ids=[7, 9])
        assert any(path.startswith("lake/crm/people/") for path in lake.files_with(MARKED))

        report = lake.erase("id = 7")

        assert (report.outcome, report.rows) == ("complete", 4)
        assert lake.files_with(MARKED) == []
        assert lake.names(STATE) == ["ann", "first"]
        assert lake.names(CHANGES) == lake.logged() == ["ann", "bob", "first"]
        [receipt] = lake.receipts()
        assert receipt.done == ("changes", "state", "snapshots", "log")
        assert sum(part.digest.rows for part in receipt.parts) == 4
        lake.merge()
        assert lake.names(STATE) == ["ann", "bob", "first"]
        rows = lake.log["people"].scan(columns=["name"]).to_arrow()["name"].to_pylist()
        assert sorted(rows) == ["ann", "bob", "first"]
        assert lake.log.audit("people", full=True).passed


def test_the_states_merged_lsn_does_not_move(tmp_path: Path) -> None:
    with people(tmp_path, key="id") as lake:
        lake.land(MARKED, ids=[7])
        lake.merge()
        topic_id = lake.record.topic_id.hex()
        with closing(lake.lake.place.connect()) as tables:
            merged_lsn = own_standing(tables, lake.state(STATE), topic_id).landed_lsn

        lake.erase("id = 7")

        with closing(lake.lake.place.connect()) as tables:
            assert own_standing(tables, lake.state(STATE), topic_id).landed_lsn == merged_lsn > 0


def test_a_merge_that_is_under_way_cannot_bring_an_erased_key_back(tmp_path: Path) -> None:
    with people(tmp_path, key="id") as lake:
        lake.merge()
        in_clear(lake)
        lake.land(MARKED, "ann", ids=[7, 8])
        beside = lake.lake
        merging = Merging(beside.place.connect, beside.ledger, clock=beside.clock, entropy=beside.entropy)
        just_begun = lake.begun_merge(merging)
        plan = lake.begun_merge(merging)
        mark = lake.merged(plan)

        report = lake.erase("id = 7")

        assert report.outcome == "complete"
        assert just_begun.branch not in lake.state(STATE).branches
        with pytest.raises(Unavailable, match="made no snapshot of its own"):
            merging.finish(plan, mark)
        assert lake.files_with(MARKED) == []
        lake.merge()
        assert lake.names(STATE) == ["ann", "first"]


def test_the_state_of_a_key_whose_changes_are_past_their_retention_goes_too(tmp_path: Path) -> None:
    with people(tmp_path, key="id") as lake:
        lake.merge()
        in_clear(lake)
        lake.land(MARKED, "ann", ids=[7, 8])
        lake.merge()
        lake.native(CHANGES).delete("id >= 0")

        report = lake.erase("id = 7")

        assert report.outcome == "complete" and lake.names(STATE) == ["ann", "first"]
        assert lake.files_with(MARKED) == []


def test_a_keyed_topic_whose_state_was_never_merged_is_erased_as_well(tmp_path: Path) -> None:
    with people(tmp_path, key="id") as lake:
        lake.land(MARKED, "ann", ids=[7, 8])

        report = lake.erase("id = 7")

        assert report.outcome == "complete" and lake.names(CHANGES) == ["ann", "first"]
        assert lake.log.audit("people", full=True).passed


def test_rows_of_a_keyed_topic_are_erased_by_their_key_alone(tmp_path: Path) -> None:
    refused = pytest.raises(
        InvalidRequest, match=r"by their key \(id\), every change of it: .* leave _hw_lsn, name out"
    )
    with people(tmp_path, key="id", table=None) as lake, refused:
        lake.erase("name = 'x' and id = 7 and _hw_lsn > 3")


def test_a_state_table_that_was_rolled_back_stops_the_erasure(tmp_path: Path) -> None:
    with people(tmp_path, key="id") as lake:
        lake.land(MARKED, ids=[7])
        lake.merge()
        lake.native(STATE).catalog.drop_table(STATE)

        with pytest.raises(LandingHalted, match=r"'crm\.people' is gone or holds less"):
            lake.erase("id = 7")
