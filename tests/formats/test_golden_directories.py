"""Data directories of earlier versions, opened by this one: what was acknowledged then is there, and it goes on.

Each directory was written by the sources of its day (make_directories.py) and is never made again.  The clock of the
tests is years later, as it would be.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.clock import ManualClock
from headwater.errors import MetadataBehindLog
from headwater.log import open_log
from headwater.log.verify import verify_log
from headwater.settings import LogSettings
from headwater.storage.disk import DiskFiles
from tests.formats.make_directories import DIRECTORIES, PASTS, SIZE_BYTES_MAX, unpack
from tests.formats.write_directory import CATALOG, CUSTOMERS_TABLE, DATA, ORDERS_TABLE
from tests.unit.cli.logs import run

OF_TOPICS = [past.name for past in PASTS if past.program == "write_directory.py"]
LATER_US = int(datetime(2031, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
NEW_ROW = {"order_id": 10, "amount": 10.0, "note": "by this version"}


@pytest.fixture
def told(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The working directory holds the data directory of this name; what its writer was told."""
    monkeypatch.chdir(tmp_path)
    return unpack(request.param, tmp_path)


def opened() -> hw.Log:
    return hw.open(DATA, catalog=CATALOG, clock=ManualClock(now_us=LATER_US))


def digest_of(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_every_golden_directory_is_small_and_has_its_facts() -> None:
    names = {path.name for path in DIRECTORIES.iterdir()}

    assert names == {f"{past.name}.{ending}" for past in PASTS for ending in ("json", "tar.gz")}
    for past in PASTS:
        assert (DIRECTORIES / f"{past.name}.tar.gz").stat().st_size <= SIZE_BYTES_MAX
        assert json.loads((DIRECTORIES / f"{past.name}.json").read_text())["commit"] == past.commit


@pytest.mark.parametrize("told", OF_TOPICS, indirect=True)
def test_a_directory_of_an_earlier_version_reads_as_it_was_acknowledged(told: dict[str, Any], tmp_path: Path) -> None:
    before = digest_of(tmp_path)

    with opened() as log:
        assert log["orders"].read().to_pylist() == told["orders"]
        assert log["customers"].read().to_pylist() == told["customers"]
        assert [row["value"].hex() for row in log["events"].read().to_pylist()] == told["events"]
        assert log["orders.rejected"].read().to_arrow().num_rows == told["rejected"]
        position = log.source_position("pg")
        assert position is not None and position.position == told["source"]
        assert [group.group for group in log.groups()] == ["billing"]
    # What was not closed is recovered by whoever opens it first; what was is left as it is.
    assert told["state"] == "killed" or digest_of(tmp_path) == before


@pytest.mark.parametrize("told", OF_TOPICS, indirect=True)
def test_a_directory_of_an_earlier_version_is_verified(told: dict[str, Any]) -> None:
    found = run("log", "verify", DATA)

    assert found.exit_code == 0, found.stdout


@pytest.mark.parametrize("told", OF_TOPICS, indirect=True)
def test_a_directory_of_an_earlier_version_goes_on(told: dict[str, Any]) -> None:
    with opened() as log:
        with log.transaction() as tx:
            tx.append("orders", [NEW_ROW])
            tx.append("customers", [{"id": 4, "name": "Cy"}])
        with log.consumer("orders", group="billing") as consumer:
            polled = []
            while (some := consumer.poll()) is not None:
                polled += some.batch.to_pylist()
            consumer.commit()
        log["customers"].alter(cleanup="both")
        log["customers"].compact()
        log.checkpoint()
    assert sorted(row["order_id"] for row in polled) == [9, 10]  # what was committed then is not given again

    with opened() as log:
        assert log["orders"].read().to_pylist() == [*told["orders"], NEW_ROW]
        latest = {row["id"]: (row["name"], row["_hw_op"]) for row in log["customers"].read().to_pylist()}
        assert latest == {1: ("Ada L.", "U"), 2: (None, "D"), 3: (None, "U"), 4: ("Cy", "U")}


@pytest.mark.parametrize("told", OF_TOPICS, indirect=True)
def test_a_directory_of_an_earlier_version_lands_and_is_audited(told: dict[str, Any]) -> None:
    with opened() as log:
        if not told["lands"]:
            log["orders"].alter(table=ORDERS_TABLE)
            log["customers"].alter(table=CUSTOMERS_TABLE)
        log["orders"].append([NEW_ROW])
        landed = log.land()
        assert not landed.halted and not landed.failed

        assert landed.rows + told["landed"] == len(told["orders"]) + 1 + len(told["customers"])
        log.audit(full=True).raise_for_status()
        rows = log["orders"].scan(columns=["order_id", "amount", "note"]).to_arrow().to_pylist()
    assert sorted(rows, key=lambda row: row["order_id"]) == [*told["orders"], NEW_ROW]


@pytest.mark.parametrize("told", ["frames"], indirect=True)
def test_a_log_of_frames_from_before_there_were_topics_is_read_and_goes_on(told: dict[str, Any]) -> None:
    files = DiskFiles(Path(DATA))
    assert verify_log(files, "log").ok
    with open_log(files, "log", settings=LogSettings(reserve_bytes=0), clock=ManualClock()) as log:
        log.claim()
        bodies = {frame.lsn: bytes(frame.body).decode() for frame in log.read() if frame.header.topic_number}
    assert bodies == dict(told["frames"])


@pytest.mark.parametrize("told", ["frames"], indirect=True)
def test_topics_are_not_guessed_from_a_log_that_has_none(told: dict[str, Any]) -> None:
    with pytest.raises(MetadataBehindLog, match="headwater"), opened() as log:
        log.topic("orders", schema={"order_id": int}).append([{"order_id": 1}])
