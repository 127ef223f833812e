"""Keyed topics: changes land, and Spark merges them into the state."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import InvalidRequest
from headwater.lake.mark import mark_in_property, mark_in_summary, property_name
from headwater.lake.merging import Merging
from headwater.lake.tables import CommitUncertain
from tests.lake_spark.keyed_lakes import CHANGES, TABLE, KeyedLake, keyed_lake
from tests.lake_spark.sessions import PYSPARK_SOCKETS

pytestmark = PYSPARK_SOCKETS


def rows(*pairs: tuple[int, str]) -> list[dict[str, Any]]:
    return [{"id": number, "name": name} for number, name in pairs]


def test_upserts_and_deletes_land_as_changes_and_are_merged_into_the_state(tmp_path: Path) -> None:
    with keyed_lake(tmp_path) as lake:
        lake.topic.upsert(rows((1, "a"), (2, "b"), (3, "c")))
        lake.land()

        first = lake.merge()

        assert (first.outcome, first.changes, first.lsn_from) == ("merged", 3, 0)
        assert lake.state() == [(1, "a"), (2, "b"), (3, "c")]

        # A key is changed twice in one frame, one goes, one goes and comes back, and one that was never there goes.
        lake.topic.upsert(rows((1, "A"), (1, "AA")))
        lake.topic.delete([{"id": 2}, {"id": 3}, {"id": 9}])
        lake.topic.upsert(rows((3, "C")))
        lake.land()

        second = lake.merge()

        assert (second.outcome, second.changes, second.lsn_from) == ("merged", 6, first.lsn_to)
        assert lake.state() == [(1, "AA"), (3, "C")]
        assert lake.merge().outcome == "nothing"


def test_the_state_says_up_to_which_lsn_it_is_merged_in_its_snapshot_and_in_its_property(tmp_path: Path) -> None:
    with keyed_lake(tmp_path) as lake:
        lake.topic.upsert(rows((1, "a")))
        lake.land()

        merged = lake.merge()

        state = lake.load()
        head = state.head()
        assert head is not None and head.snapshot_id == merged.snapshot
        mark = mark_in_summary(head.summary)
        assert mark is not None and (mark.lsn_to, mark.rows) == (merged.lsn_to, 1)
        assert mark_in_property(state.properties[property_name()]).snapshot == head.snapshot_id
        assert list(state.branches) == ["main"]
        told = lake.ledger.state().topic(lake.record.topic_id.hex()).merged
        assert told is not None and (told.lsn_to, told.snapshot) == (merged.lsn_to, head.snapshot_id)


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_the_state_is_the_latest_row_of_every_key_whatever_came(tmp_path: Path, mode: Any) -> None:
    """Upserts, deletes, landings and merges by seed, against a dict."""
    for seed in (1, 2):
        chance = random.Random(seed)
        expected: dict[int, str] = {}
        with keyed_lake(tmp_path / f"{seed}") as lake:
            for _ in range(4):
                for _ in range(chance.randrange(1, 6)):
                    keys = [chance.randrange(12) for _ in range(chance.randrange(1, 8))]
                    if chance.random() < 0.3:
                        lake.topic.delete([{"id": key} for key in keys])
                        for key in keys:
                            expected.pop(key, None)
                    else:
                        changed = [(key, f"{chance.random()}") for key in keys]
                        lake.topic.upsert(rows(*changed))
                        expected.update(changed)
                lake.land()
                if chance.random() < 0.8:
                    assert lake.merge(mode).outcome == "merged", f"seed {seed}"
            lake.merge(mode)

            assert lake.state() == sorted(expected.items()), f"seed {seed}"
            assert lake.load().properties["write.merge.mode"] == mode


def test_changes_that_leave_nothing_are_merged_too(tmp_path: Path) -> None:
    with keyed_lake(tmp_path) as lake:
        lake.topic.delete([{"id": 7}])
        lake.land()

        merged = lake.merge()

        assert merged.outcome == "merged" and lake.state() == []
        lake.topic.upsert(rows((7, "x")))
        lake.topic.delete([{"id": 7}])
        lake.land()
        assert lake.merge().lsn_from == merged.lsn_to
        assert lake.state() == []


def test_nothing_is_merged_before_anything_has_landed(tmp_path: Path) -> None:
    with keyed_lake(tmp_path) as lake:
        assert lake.merge().outcome == "nothing"
        lake.topic.upsert(rows((1, "a")))
        assert lake.merge().outcome == "nothing"


def test_only_a_keyed_topic_with_a_table_is_merged(tmp_path: Path) -> None:
    with keyed_lake(tmp_path) as lake:
        lake.topic = lake.log.topic("plain", schema={"id": int}, table="crm.plain")
        with pytest.raises(InvalidRequest, match="no state table"):
            lake.merge()


def test_a_column_that_the_topic_has_gained_is_in_the_state_after_the_next_merge(tmp_path: Path) -> None:
    with keyed_lake(tmp_path) as lake:
        lake.topic.upsert(rows((1, "a")))
        lake.land()
        lake.merge()

        lake.topic.alter(schema={"id": int, "name": str, "city": str | None})
        lake.topic.upsert([{"id": 2, "name": "b", "city": "Bonn"}])
        lake.land()

        assert lake.merge().outcome == "merged"
        assert lake.state("id, name, city") == [(1, "a", None), (2, "b", "Bonn")]


def test_a_key_of_several_columns_and_odd_names_is_merged_by_all_of_them(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            pa.field("region `x`", pa.string(), nullable=False),
            pa.field("no", pa.decimal128(12, 2), nullable=False),
            pa.field("tags", pa.list_(pa.string())),
            pa.field("at", pa.timestamp("us", "UTC")),
        ]
    )
    with keyed_lake(tmp_path, schema=schema, key=("region `x`", "no")) as lake:
        one = {"region `x`": "north", "no": 1, "tags": ["a"], "at": None}
        lake.topic.upsert([one, {**one, "no": 2}, {**one, "region `x`": "south"}])
        lake.topic.delete([{"region `x`": "north", "no": 2}])
        lake.topic.upsert([{**one, "tags": ["b", "c"]}])
        lake.land()
        lake.merge()

        found = lake.sql(f"SELECT `region ``x```, int(no), tags FROM lake.{TABLE} ORDER BY 1, 2")
        assert found == [("north", 1, ["b", "c"]), ("south", 1, ["a"])]


# Races --------------------------------------------------------------------------------------------------------------


def test_of_two_merges_that_race_one_wins_and_the_state_is_right(tmp_path: Path) -> None:
    with keyed_lake(tmp_path) as lake:
        lake.topic.upsert(rows((1, "a"), (2, "b")))
        lake.land()
        lake.merge()
        lake.topic.delete([{"id": 1}])
        lake.topic.upsert(rows((2, "B"), (3, "c")))
        lake.land()

        outcomes: list[str] = []
        racing = [threading.Thread(target=lambda: outcomes.append(lake.merge().outcome)) for _ in range(2)]
        for thread in racing:
            thread.start()
        for thread in racing:
            thread.join()

        assert sorted(outcomes) in (["lost", "merged"], ["merged", "nothing"])
        assert lake.state() == [(2, "B"), (3, "c")]
        assert list(lake.load().branches) == ["main"]


def test_a_stale_merge_does_not_bring_a_deleted_key_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with keyed_lake(tmp_path) as lake:
        lake.topic.upsert(rows((1, "a"), (2, "b")))
        lake.land()
        lake.merge()

        # Given a merge that has read the tables, and is then overtaken by a delete of the key that it is to insert.
        lake.topic.upsert(rows((3, "c")))
        lake.land()
        branched = Merging.branch
        overtaken: list[str] = []

        def overtake(self: Merging, *arguments: Any) -> None:
            branched(self, *arguments)
            if not overtaken:
                overtaken.append("")
                lake.topic.delete([{"id": 3}])
                lake.land()
                overtaken[0] = lake.merge().outcome

        monkeypatch.setattr(Merging, "branch", overtake)

        stale = lake.merge()

        # Then it has lost, and the key is not there.
        assert (overtaken, stale.outcome) == (["merged"], "lost")
        assert lake.state() == [(1, "a"), (2, "b")]


def test_a_commit_by_others_between_the_branch_and_the_move_makes_the_merge_begin_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with keyed_lake(tmp_path) as lake:
        lake.topic.upsert(rows((1, "a"), (2, "b")))
        lake.land()
        lake.merge()
        lake.topic.upsert(rows((3, "c")))
        lake.land()
        branched = Merging.branch
        deletes = [f"DELETE FROM lake.{TABLE} WHERE id = 1"]

        def interfere(self: Merging, *arguments: Any) -> None:
            branched(self, *arguments)
            if deletes:
                lake.sql(deletes.pop())

        monkeypatch.setattr(Merging, "branch", interfere)

        assert lake.merge().outcome == "merged"
        assert lake.state() == [(2, "b"), (3, "c")]


@pytest.mark.parametrize("applied", [True, False])
def test_an_unknown_outcome_of_the_move_is_settled_by_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, applied: bool
) -> None:
    from headwater.lake.iceberg_tables import IcebergTables

    with keyed_lake(tmp_path) as lake:
        lake.topic.upsert(rows((1, "a")))
        lake.land()
        lake.merge()
        lake.topic.upsert(rows((2, "b")))
        lake.land()
        commit = IcebergTables.commit
        calls = []

        def lose_the_reply(self: IcebergTables, staged: Any) -> None:
            calls.append(1)
            if len(calls) != 2:
                return commit(self, staged)
            # The second commit of a merge is the move of main.
            if applied:
                commit(self, staged)
            raise CommitUncertain("the reply was lost")

        monkeypatch.setattr(IcebergTables, "commit", lose_the_reply)

        merged = lake.merge()

        assert merged.outcome == "merged" and lake.state() == [(1, "a"), (2, "b")]
        assert list(lake.load().branches) == ["main"]
        told = lake.ledger.state().topic(lake.record.topic_id.hex()).merged
        assert told is not None and told.lsn_to == merged.lsn_to


def test_a_merge_that_spark_refuses_changes_nothing_and_leaves_no_branch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with keyed_lake(tmp_path) as lake:
        lake.topic.upsert(rows((1, "a")))
        lake.land()
        lake.merge()
        lake.topic.upsert(rows((2, "b")))
        lake.land()
        monkeypatch.setattr("headwater.spark.merge.merge_statement", lambda *_: "SELECT raise_error('no')")

        failed = lake.merge()

        assert failed.outcome == "failed" and "made no snapshot" in failed.message
        assert lake.state() == [(1, "a")]
        assert list(lake.load().branches) == ["main"]
        monkeypatch.undo()
        assert lake.merge().outcome == "merged"


def test_a_merge_that_died_before_the_ledger_knew_is_adopted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with keyed_lake(tmp_path) as lake:
        lake.topic.upsert(rows((1, "a")))
        lake.land()
        monkeypatch.setattr(Merging, "_record", lambda *_: None)
        merged = lake.merge()
        monkeypatch.undo()
        assert lake.ledger.state().topic(lake.record.topic_id.hex()).merged is None

        assert lake.merge().outcome == "nothing"

        told = lake.ledger.state().topic(lake.record.topic_id.hex()).merged
        assert told is not None and (told.lsn_to, told.snapshot) == (merged.lsn_to, merged.snapshot)


# Rollbacks ----------------------------------------------------------------------------------------------------------


def test_a_state_table_that_was_rolled_back_halts_until_a_person_says_so(tmp_path: Path) -> None:
    with keyed_lake(tmp_path) as lake:
        lake.topic.upsert(rows((1, "a")))
        lake.land()
        first = lake.merge()
        lake.topic.upsert(rows((2, "b")))
        lake.land()
        second = lake.merge()
        lake.sql(f"CALL lake.system.rollback_to_snapshot('{TABLE}', {first.snapshot})")

        halted = lake.merge()

        assert (halted.outcome, halted.cause) == ("halted", "gap")
        assert lake.state() == [(1, "a")]
        again = lake.merge(after_rollback=True)
        assert (again.outcome, again.lsn_from, again.lsn_to) == ("merged", first.lsn_to, second.lsn_to)
        assert lake.state() == [(1, "a"), (2, "b")]


def test_a_state_table_that_was_dropped_halts_and_is_made_again_from_all_changes(tmp_path: Path) -> None:
    with keyed_lake(tmp_path) as lake:
        lake.topic.upsert(rows((1, "a"), (2, "b")))
        lake.topic.delete([{"id": 2}])
        lake.land()
        lake.merge()
        lake.sql(f"DROP TABLE lake.{TABLE}")

        assert lake.merge().cause == "gap"
        assert lake.merge(after_rollback=True).outcome == "merged"
        assert lake.state() == [(1, "a")]


# Retention ----------------------------------------------------------------------------------------------------------


def test_changes_past_their_retention_go_once_they_are_merged_and_never_before(tmp_path: Path) -> None:
    with keyed_lake(tmp_path) as lake:
        lake.topic.upsert(rows((1, "a")))
        lake.land()
        lake.merge()
        lake.topic.upsert(rows((2, "b")))
        lake.land()

        # 31 days later the first file is merged and old; the second is old, and not merged yet.
        lake.clock.advance(31 * 86_400)
        upkept = lake.care()[CHANGES]

        assert upkept.forgotten_files == 1 and upkept.left == []
        assert lake.sql(f"SELECT id FROM lake.{CHANGES}") == [(2,)]
        merged = lake.merge()
        assert (merged.outcome, merged.forgotten_files) == ("merged", 1)
        assert lake.sql(f"SELECT id FROM lake.{CHANGES}") == []
        assert lake.state() == [(1, "a"), (2, "b")]

        # And the change table is landed into as before.
        lake.topic.upsert(rows((3, "c")))
        assert lake.land().rows == 1
        assert lake.merge().changes == 1
        assert lake.state() == [(1, "a"), (2, "b"), (3, "c")]


def test_a_state_behind_the_retention_of_its_changes_halts(tmp_path: Path) -> None:
    with keyed_lake(tmp_path) as lake:
        lake.topic.upsert(rows((1, "a")))
        lake.land()
        first = lake.merge()
        lake.topic.upsert(rows((2, "b")))
        lake.land()
        lake.merge()
        lake.clock.advance(31 * 86_400)
        assert lake.merge().forgotten_files == 2
        lake.sql(f"CALL lake.system.rollback_to_snapshot('{TABLE}', {first.snapshot})")

        halted = lake.merge(after_rollback=True)

        assert (halted.outcome, halted.cause) == ("halted", "gap")
        assert "past their retention" in halted.message


# Sessions -----------------------------------------------------------------------------------------------------------


def test_the_callers_session_is_left_as_it_was_and_no_connection_stays_open(tmp_path: Path) -> None:
    with keyed_lake(tmp_path) as lake:
        spark = lake.spark
        spark.sql("SHOW NAMESPACES IN lake").collect()  # it opens the caller's own connection
        before = open_databases(tmp_path)
        for number in range(3):
            lake.topic.upsert(rows((number, "a")))
            lake.land()
            merge_with(lake, spark)

        assert open_databases(tmp_path) == before
        assert not [row for row in spark.sql("SET").collect() if "snapshot-property" in row["key"]]
        spark.sql(f"INSERT INTO lake.{TABLE} SELECT * FROM lake.{TABLE} LIMIT 0").collect()
        head = lake.load().head()
        assert head is not None and mark_in_summary(head.summary) is None


def merge_with(lake: KeyedLake, spark: Any) -> None:
    from headwater.clock import system_entropy
    from headwater.spark.merge import merge_topic

    arguments = (lake.lake.name, lake.place, lake.record, lake.ledger, lake.clock, system_entropy)
    assert merge_topic(spark, *arguments).outcome == "merged"


def open_databases(folder: Path) -> int:
    """How often the JVM of this process's Spark has the catalog's database open."""
    from tests.lake_spark.sessions import local_spark

    gateway = local_spark().sparkContext._gateway
    assert gateway is not None
    descriptors = Path(f"/proc/{gateway.proc.pid}/fd")
    return sum(str(each.resolve()) == f"{folder}/catalog.db" for each in descriptors.iterdir())
