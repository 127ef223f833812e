"""A round of upkeep without Spark: what it says of each table, and what it leaves to Spark."""

from __future__ import annotations

from pathlib import Path

from headwater.clock import system_entropy
from headwater.lake.maintenance import MaintenanceReport, is_worth_compacting, maintain_without_spark
from headwater.lake.upkeep import UpkeepSettings
from tests.unit.lake.delete_files import add_delete_file
from tests.unit.lake.kept_tables import TABLE, Kept, kept
from tests.unit.topics.small_engines import engine_of


def maintain(lake: Kept, small_files_min: int = 12) -> MaintenanceReport:
    topics = engine_of(lake.log).metadata().topics.values()
    settings = UpkeepSettings(small_files_min=small_files_min)
    return maintain_without_spark(lake.place, topics, lake.ledger, lake.clock, system_entropy, settings)


def test_a_table_of_few_small_files_leaves_nothing_to_spark(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.log.topic("loose", schema={"id": int})
        lake.land(1, 2)

        report = maintain(lake)

        # A topic without a table has nothing to keep.
        assert [each.table for each in report] == [TABLE]
        assert report.left == () and report.seconds >= 0
        assert repr(report) == "Maintained(nothing to do)" and str(report[TABLE]) == f"{TABLE}: nothing to do"


def test_a_table_that_is_not_there_yet_is_not_worth_compacting(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        assert maintain(lake, small_files_min=2).left == (f"{TABLE}: there is no table yet",)


def test_files_that_say_which_rows_are_gone_are_worth_compacting_however_large_the_others_are(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(1)
        settings = UpkeepSettings(small_files_min=2, small_file_bytes=1)
        told = maintain(lake)[TABLE]
        for place in range(2):
            assert not is_worth_compacting(lake.place, told, settings)
            add_delete_file(lake.pyiceberg(), place)

        assert is_worth_compacting(lake.place, told, settings)


def test_a_table_whose_files_cannot_be_looked_at_says_so_and_is_not_worth_compacting(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(1)
        told = maintain(lake)[TABLE]
        for manifest_list in (tmp_path / "lake" / "sales" / "orders" / "metadata").glob("snap-*.avro"):
            manifest_list.unlink()

        assert not is_worth_compacting(lake.place, told, UpkeepSettings(small_files_min=2))
        assert [text for text in told.left if "cannot be looked at" in text] == told.left != []
