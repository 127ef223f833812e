"""Files of no snapshot that hold erased rows: what goes at once, and what is named."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.lake.erased_orphans import _holds, remove_orphans
from headwater.lake.erased_snapshots import SnapshotsGone
from headwater.lake.file_cache import FileCache
from headwater.lake.offset_runs import OffsetRuns
from headwater.lake.tables import CommitRefused
from tests.unit.lake.erasable_lakes import Erasable, people

MARKED = "marked-7f3a9c"
PLACE = "lake/crm/people"


def refused_landing(lake: Erasable) -> None:
    """A landing that is refused once: its manifests are of no snapshot, its data files come with the next try."""

    def refuse() -> None:
        raise CommitRefused("another came first")

    lake.hooks["before commit"] = refuse
    lake.land("ann", MARKED)


def test_manifests_of_a_commit_that_was_refused_are_named_until_upkeep_has_removed_them(tmp_path: Path) -> None:
    with people(tmp_path) as lake:
        refused_landing(lake)

        report = lake.erase(f"name = '{MARKED}'")

        assert report.outcome == "incomplete" and lake.names() == ["ann", "first"]
        [left] = report.left
        assert "-m0.avro: no snapshot references it, and it holds such rows" in left
        [orphan] = lake.files_with(MARKED)
        (lake.folder / orphan).unlink()
        assert lake.erase("name = 'nobody'").outcome == "complete"


def test_a_data_file_of_a_landing_that_came_to_nothing_goes(tmp_path: Path) -> None:
    with people(tmp_path) as lake:
        lake.land("ann", MARKED)
        [landed] = [path for path in lake.files_with(MARKED) if path.endswith(".parquet")]
        lost = lake.folder / landed.replace("00000-", "00000-77")
        lost.write_bytes((lake.folder / landed).read_bytes())

        report = lake.erase(f"name = '{MARKED}'")

        assert report.outcome == "complete" and not lost.exists()
        assert lake.files_with(MARKED) == []


def test_files_of_others_stay_and_are_named(tmp_path: Path) -> None:
    with people(tmp_path) as lake:
        lake.land("ann", MARKED)
        [landed] = [path for path in lake.files_with(MARKED) if path.endswith(".parquet")]
        somebodys = lake.folder / PLACE / "data" / "part-0.parquet"
        somebodys.write_bytes((lake.folder / landed).read_bytes())
        torn = lake.folder / PLACE / "data" / "part-1.parquet"
        torn.write_bytes((lake.folder / landed).read_bytes()[:100])
        plain = lake.folder / PLACE / "data" / "part-2.parquet"
        pq.write_table(pa.table({"pos": [1]}), plain)
        (lake.folder / PLACE / "data" / "note.txt").write_text("a file of somebody's")

        report = lake.erase(f"name = '{MARKED}'")

        assert report.outcome == "incomplete"
        assert sorted(left.partition(":")[0].rpartition("/")[2] for left in map(_path, report.left)) == [
            "part-0.parquet",
            "part-1.parquet",
        ]
        assert somebodys.exists() and torn.exists() and plain.exists()


def _path(left: str) -> str:
    return left.removeprefix("file://")


def test_a_file_that_has_gone_meanwhile_holds_nothing(tmp_path: Path) -> None:
    with people(tmp_path) as lake:
        gone = OffsetRuns(((0, 0, 9),))

        assert not _holds(lake.state(), f"{lake.folder}/{PLACE}/data/x.parquet", gone, FileCache())


def test_where_files_cannot_be_listed_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.lake.erased_orphans.place_of", lambda _: None)
    with people(tmp_path) as lake:
        told = SnapshotsGone()
        with closing(lake.lake.place.connect()) as tables:
            remove_orphans(tables, lake.state(), OffsetRuns(((0, 0, 9),)), (), FileCache(), told)

    assert told.left == ["crm.people: its files cannot be listed from here, so those of no snapshot may hold rows"]
