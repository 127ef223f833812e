"""`headwater log trace`: a row followed back, for people and for programs."""

from __future__ import annotations

from pathlib import Path

import pytest

import headwater as hw
from headwater.cli.exit_codes import ExitCode
from headwater.lake import catalog_check
from tests.unit.cli.test_land import PASSED
from tests.unit.cli.topics import SETTINGS, run, run_json


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two rows that have landed, and one that was sent by a producer and has not."""
    monkeypatch.setattr(catalog_check, "check_catalog", lambda *_: PASSED)
    folder = tmp_path / "data"
    with hw.open(folder, settings=SETTINGS) as log:
        orders = log.topic("orders", {"x": int}, table="lake.orders")
        orders.append([{"x": 1}, {"x": 2}])
        log.land()
        log.producer("etl").append("orders", [{"x": 3}])
    return folder


def place(offset: int) -> tuple[str, ...]:
    return ("orders", "--partition", "0", "--offset", str(offset))


def test_a_landed_row_is_shown_from_its_file_to_its_write(data: Path) -> None:
    result = run(data, "log", "trace", data, *place(1))

    assert result.exit_code == ExitCode.DONE
    first, *lines = result.stdout.splitlines()
    assert first == "orders partition 0 offset 1"
    assert [line[:14].strip() for line in lines] == ["data file", "landing", "segment", "frame", "write", "sender"]
    assert lines[0].endswith(".parquet, row group 0, row 1")
    assert "lake.orders snapshot " in lines[1] and " 2 rows, " in lines[1] and lines[1].endswith("(read-back)")
    assert "00000000000000000001.0.seg, position " in lines[2]
    assert "offsets 0 to 1, 2 rows, schema version 1" in lines[3]
    assert lines[5].endswith("not told: no producer, no idempotency key")


def test_a_row_that_has_not_landed_is_shown_with_its_producer(data: Path) -> None:
    lines = run(data, "log", "trace", data, *place(2)).stdout.splitlines()

    assert lines[-2].endswith("producer etl (id 1), epoch 1, sequence 0")
    assert "note" in lines[-1] and "it has not landed: the table holds rows up to lsn " in lines[-1]


def test_an_idempotency_key_is_shown_by_its_hash(data: Path) -> None:
    with hw.open(data, settings=SETTINGS) as log:
        log["orders"].append([{"x": 4}], idempotency_key="once")

    assert "idempotency key with hash " in run(data, "log", "trace", data, *place(3)).stdout


def test_a_landing_that_nobody_has_verified_is_shown_as_such(data: Path) -> None:
    from headwater.cli.log_trace import _landing
    from headwater.lake.tracing import LandingPlace

    landing = LandingPlace("", "lake.orders", 7, 0, 9, 2, 0, restored=True)

    assert _landing(landing).endswith("taken over from a lost log, LSN 1 to 9, 2 rows, 1970-01-01T00:00:00.000Z, "
                                      "not verified yet")  # fmt: skip


def test_a_program_gets_one_object(data: Path) -> None:
    told = run_json(data, "log", "trace", data, *place(0))

    assert (told["topic"], told["partition"], told["offset"]) == ("orders", 0, 0)
    assert told["file"]["lsn"] == told["log"]["lsn"] == told["lsn"]
    assert told["landing"]["snapshot"] == told["file"]["snapshot"] and isinstance(told["file"]["snapshot"], str)
    assert told["write"]["transaction"] is False and told["sender"] is None and told["notes"] == []
    waiting = run_json(data, "log", "trace", data, *place(2))
    assert waiting["file"] is None and waiting["landing"] is None
    assert waiting["sender"] == {"producer_id": 1, "producer": "etl", "epoch": 1, "sequence": 0, "key_hash": ""}


def test_a_row_that_there_is_not_is_another_call(data: Path) -> None:
    result = run(data, "log", "trace", data, *place(9))

    assert result.exit_code == ExitCode.USAGE
    assert "its next is 3" in result.stderr
