"""Files of tables on this disk are synced with the directories above them; others are left to their stores."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headwater.lake.local_sync import local_path, sync_local


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/data/a.parquet", "/data/a.parquet"),
        ("file:///data/a.parquet", "/data/a.parquet"),
        ("file:/data/a.parquet", "/data/a.parquet"),
        ("file://localhost/data/a.parquet", "/data/a.parquet"),
        ("file:///data/day=2026-01-01/region=a%2Fb/x.parquet", "/data/day=2026-01-01/region=a%2Fb/x.parquet"),
        ("file://elsewhere/data/a.parquet", None),
        ("s3://bucket/a.parquet", None),
    ],
)
def test_a_location_on_this_machine_is_a_path(location: str, path: str | None) -> None:
    assert local_path(location) == path


def test_a_file_is_synced_before_its_directories_and_each_of_them_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "table" / "data"
    folder.mkdir(parents=True)
    files = [folder / name for name in ("a.parquet", "b.parquet")]
    for file in files:
        file.write_bytes(b"rows")
    synced: list[str] = []

    def note(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))

    monkeypatch.setattr(os, "fsync", note)

    sync_local([f"file://{files[0]}", str(files[1]), "s3://bucket/elsewhere.parquet"])

    above = [str(folder), str(folder.parent), str(tmp_path), *map(str, tmp_path.parents)]
    assert synced[:2] == [str(file) for file in files]
    assert synced[2:] == above


def test_a_file_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"gone\.parquet"):
        sync_local([f"file://{tmp_path}/gone.parquet"])


def test_nothing_on_this_disk_is_nothing_to_do() -> None:
    sync_local(["s3://bucket/a.parquet"])
    sync_local([])
