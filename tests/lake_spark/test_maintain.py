"""Upkeep with Spark: compaction, and what it must never do to a landing or a merge that goes on beside it."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from headwater.clock import system_entropy
from headwater.lake.care import TableUpkeep
from headwater.lake.maintenance import MaintenanceReport
from headwater.lake.mark import mark_in_summary
from headwater.lake.upkeep import UpkeepSettings
from headwater.spark.maintain import maintain
from tests.lake_spark.keyed_lakes import CHANGES, TABLE, KeyedLake, keyed_lake
from tests.lake_spark.sessions import PYSPARK_SOCKETS

pytestmark = PYSPARK_SOCKETS

ORDERS = "sales.orders"
EAGER: dict[str, Any] = {"small_files_min": 3, "snapshots_kept": 4}


def orders_of(lake: KeyedLake) -> Any:
    return lake.log.topic("orders", schema={"id": int}, table=ORDERS)


def land_orders(lake: KeyedLake, *numbers: int) -> None:
    for number in numbers:
        orders_of(lake).append([{"id": number}])
        assert lake.log.land(["orders"]).rows == 1


def ids(lake: KeyedLake) -> list[int]:
    return [row[0] for row in lake.sql(f"SELECT id FROM lake.{ORDERS} ORDER BY id")]


def upkeep(lake: KeyedLake, name: str = "orders", **settings: Any) -> MaintenanceReport:
    return maintain(
        lake.spark,
        lake.lake.name,
        lake.place,
        [lake.log._engine.topic(name)],
        lake.ledger,
        lake.clock,
        system_entropy,
        UpkeepSettings(**{**EAGER, **settings}),
    )


def files(lake: KeyedLake, table: str = ORDERS) -> int:
    found: int = lake.sql(f"SELECT count(*) FROM lake.{table}.files WHERE content = 0")[0][0]
    return found


def test_small_files_become_one_and_the_head_is_stamped_before_snapshots_expire(tmp_path: Path) -> None:
    with keyed_lake(tmp_path) as lake:
        land_orders(lake, 1, 2, 3, 4, 5)
        lake.clock.advance(7200)

        told = upkeep(lake)[ORDERS]

        assert (told.compacted_files, told.made_files, told.stamped) == (5, 1, True)
        assert told.left == [] and told.others == ()
        state = lake.load(ORDERS)
        head = state.head()
        assert head is not None and mark_in_summary(head.summary) is not None
        assert len(state.snapshots) == 4 and files(lake) == 1
        assert ids(lake) == [1, 2, 3, 4, 5]

        # And upkeep has nothing more to do, and knows its own compaction from others'.
        again = upkeep(lake)
        assert repr(again) == "Maintained(nothing to do)" and again[ORDERS].others == ()
        land_orders(lake, 6)
        assert ids(lake) == [1, 2, 3, 4, 5, 6]


def test_few_small_files_are_left_and_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    with keyed_lake(tmp_path) as lake:
        land_orders(lake, 1, 2)
        assert upkeep(lake)[ORDERS].compacted_files == 0

        land_orders(lake, 3, 4, 5)
        before = lake.load(ORDERS)
        told = upkeep(lake, dry_run=True)[ORDERS]

        assert told.left == ["small files would be compacted"] and told.expired_snapshots == 1
        assert lake.load(ORDERS) == before


def test_a_compaction_that_fails_is_told_and_the_rest_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with keyed_lake(tmp_path) as lake:
        land_orders(lake, 1, 2, 3, 4, 5)
        monkeypatch.setattr("headwater.spark.maintain.rewrite_statement", lambda *_: "SELECT raise_error('no')")

        told = upkeep(lake)[ORDERS]

        assert told.left[0].startswith("small files stay for now") and told.expired_snapshots == 1
        assert ids(lake) == [1, 2, 3, 4, 5]


def test_without_a_session_compaction_is_named_as_left(tmp_path: Path) -> None:
    with keyed_lake(tmp_path) as lake:
        land_orders(lake, 1, 2, 3)
        topics = [lake.log._engine.topic("orders")]
        settings = UpkeepSettings(**EAGER)

        report = maintain(None, "lake", lake.place, topics, lake.ledger, lake.clock, system_entropy, settings)

        assert report.left == (f"{ORDERS}: small files stay as they are: compaction needs Spark",)


def test_what_others_do_is_recognised_and_told(tmp_path: Path) -> None:
    with keyed_lake(tmp_path) as lake:
        land_orders(lake, 1, 2, 3)
        lake.sql(f"CALL lake.system.rewrite_data_files(table => '{ORDERS}', options => map('min-input-files', '2'))")
        lake.sql(f"DELETE FROM lake.{ORDERS} WHERE id = 1")
        lake.sql(f"UPDATE lake.{ORDERS} SET id = 20 WHERE id = 2")
        lake.sql(f"INSERT INTO lake.{ORDERS} SELECT 9, 0, 0, 0, 0, current_timestamp()")
        before_rollback = lake.load(ORDERS).branches["main"]
        lake.sql(f"INSERT OVERWRITE lake.{ORDERS} SELECT * FROM lake.{ORDERS} WHERE id = 3")
        lake.sql(f"CALL lake.system.rollback_to_snapshot('{ORDERS}', {before_rollback})")

        told = upkeep(lake, small_files_min=99)[ORDERS]

        found = [each.what for each in told.others]
        assert found == ["compaction", "overwrite", "overwrite", "append", "rollback"]
        assert told.others[1].detail == "3 rows went, 2 came"

        # A table that was replaced keeps its id: it is told by its history, and left alone.
        lake.sql(f"CREATE OR REPLACE TABLE lake.{ORDERS} AS SELECT * FROM lake.{ORDERS} WHERE id = 9")
        told = upkeep(lake, small_files_min=99)[ORDERS]
        assert (told.others[-1].what, told.cause) == ("replacement", "gap")


def test_deletes_beside_the_data_are_compacted_away(tmp_path: Path) -> None:
    with keyed_lake(tmp_path) as lake:
        for number in range(5):
            lake.topic.upsert([{"id": 1, "name": f"{number}"}, {"id": 10 + number, "name": "x"}])
            lake.land()
            assert lake.merge("merge-on-read").outcome == "merged"
        assert lake.sql(f"SELECT count(*) > 2 FROM lake.{TABLE}.delete_files") == [(True,)]

        told = upkeep(lake, "customers")[TABLE]

        assert told.compacted_files > 0
        assert lake.sql(f"SELECT count(*) FROM lake.{TABLE}.delete_files") == [(0,)]
        assert lake.state() == [(1, "4"), *((10 + number, "x") for number in range(5))]
        lake.topic.delete([{"id": 1}])
        lake.land()
        assert lake.merge("merge-on-read").outcome == "merged"
        assert lake.state()[0] == (10, "x")


# Beside others ------------------------------------------------------------------------------------------------------


def beside(act: Any, until: Any) -> list[Any]:
    """Do one thing again and again in a thread while the other is done here."""
    ended = threading.Event()
    found: list[Any] = []

    def again() -> None:
        while not ended.is_set():
            found.append(act())

    thread = threading.Thread(target=again)
    thread.start()
    try:
        until()
    finally:
        ended.set()
        thread.join()
    return found


def test_every_row_is_in_the_table_once_while_upkeep_compacts_and_expires_beside_the_landings(tmp_path: Path) -> None:
    with keyed_lake(tmp_path) as lake:
        land_orders(lake, 0)
        spark_is_up = ids(lake)
        settings: dict[str, Any] = {"snapshots_kept": 2, "readers_s": 0.0, "orphan_age_s": 3600.0, "attempts_max": 20}

        reports = beside(lambda: upkeep(lake, **settings)[ORDERS], lambda: land_orders(lake, *range(1, 30)))

        assert spark_is_up == [0]
        assert ids(lake) == list(range(30))
        settled: TableUpkeep = upkeep(lake, **settings)[ORDERS]
        # Beside landings every compaction may have been refused, for a landing is never held up; in peace none is.
        assert sum(each.compacted_files for each in [*reports, settled]) > 0
        assert sum(each.expired_snapshots for each in [*reports, settled]) > 0
        assert not [each for each in [*reports, settled] if each.cause]
        land_orders(lake, 30)
        assert ids(lake) == list(range(31))


def test_merges_and_upkeep_of_the_same_tables_beside_each_other_lose_nothing(tmp_path: Path) -> None:
    with keyed_lake(tmp_path) as lake:
        expected: dict[int, str] = {}
        lake.topic.upsert([{"id": 0, "name": "first"}])
        expected[0] = "first"
        lake.land()
        lake.merge()
        outcomes: Counter[str] = Counter()

        def change() -> None:
            for number in range(6):
                lake.topic.upsert([{"id": number % 4, "name": f"{number}"}, {"id": 100 + number, "name": "x"}])
                lake.topic.delete([{"id": 100 + number - 1}])
                expected.update({number % 4: f"{number}", 100 + number: "x"})
                expected.pop(100 + number - 1, None)
                lake.land()
                outcomes[lake.merge().outcome] += 1

        settings: dict[str, Any] = {"snapshots_kept": 8, "orphan_age_s": 3600.0, "attempts_max": 20}
        reports = beside(lambda: upkeep(lake, "customers", **settings), change)
        lake.merge()

        assert lake.state() == sorted(expected.items())
        assert set(outcomes) <= {"merged", "lost"}, outcomes
        assert not [told for report in reports for told in report.halted]
        assert lake.sql(f"SELECT count(*), count(DISTINCT _hw_lsn, _hw_offset) FROM lake.{CHANGES}") == [(19, 19)]
