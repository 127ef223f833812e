"""A log that is lost while it is being written, restored from its lake by the command line, and written on.

Every step is a process of its own: a writer that is killed, `headwater land`, the loss, `headwater log restore`, a
writer and a lander again, `headwater audit`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import headwater as hw
from headwater.lake.catalog import catalog_place
from tests.e2e_lake.same_rows import check_history
from tests.e2e_lake.test_land_command import ended, headwater, stop, told, writer

PARTS = ("log", "journal", "checkpoints", "ledger")


def test_a_log_that_was_lost_while_it_was_written_goes_on_from_its_lake(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with writer(data, "orders", "payments"):
        assert told(data, "land")["exit_code"] == 0
        assert told(data, "land")["exit_code"] == 0
        # It is killed with rows that were acknowledged and have not landed.
    with hw.open(data) as log:
        before = {name: rows_of(log, name) for name in ("orders", "payments")}
        reached = {each.topic: each.landed_lsn for each in log.status().landing}
    for part in PARTS:
        shutil.rmtree(data / part, ignore_errors=True)

    assert told(data, "log", "restore", str(data), "--from-lake", "--dry-run")["dry_run"]
    report = told(data, "log", "restore", str(data), "--from-lake", "--group", "billing")

    assert report["exit_code"] == 0
    assert {topic["name"]: topic["landed_lsn"] for topic in report["topics"]} == reached
    served = {}
    with hw.open(data) as log:
        for topic in report["topics"]:
            rows = served[topic["name"]] = rows_of(log, topic["name"])
            assert len(rows) == topic["rows"] > 0
            assert rows.items() <= before[topic["name"]].items()

    with writer(data, "orders", "payments") as process:
        assert told(data, "land")["exit_code"] == 0
        written = stop(process)
    assert told(data, "land")["exit_code"] == 0
    assert told(data, "log", "verify", str(data))["exit_code"] == 0

    code, out, err = ended(headwater(data, "audit", "--full"))
    assert code == 0, out + err
    with hw.open(data) as log:
        for name, rows in served.items():
            now = rows_of(log, name)
            assert len(now) == len(rows) + written and rows.items() < now.items()
            assert log[name].read(start="earliest").to_arrow().num_rows == len(now)
            tables = catalog_place(None, directory=str(data)).connect()
            check_history(tables.catalog.load_table(f"lake.{name}"))
            tables.close()
        with log.consumer("orders", group="billing", timeout_s=0.1) as consumer:
            assert sum(batch.num_rows for batch in consumer) == written


def rows_of(log: hw.Log, name: str) -> dict[tuple[int, int], tuple[int, str]]:
    """The topic's rows by partition and offset; none is there twice."""
    found = log[name].scan(columns=["x", "note", "_hw_partition", "_hw_offset"]).to_pylist()
    rows = {(row["_hw_partition"], row["_hw_offset"]): (row["x"], row["note"]) for row in found}
    assert len(rows) == len(found)
    return rows
