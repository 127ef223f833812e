"""`headwater log verify` and `log dump --ledger` over a directory from which rows have landed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headwater.cli.advice import ADVICE, advice
from headwater.cli.exit_codes import ExitCode
from headwater.clock import ManualClock
from headwater.frames.frame import Kind
from headwater.lake.ledger import SETTINGS, Ledger
from headwater.log import Draft, open_log
from headwater.log.verify import Finding, FindingName
from headwater.storage.disk import DiskFiles
from tests.unit.cli.logs import LAST_LSN, flip_a_byte, make_log, run
from tests.unit.lake.ledger_entries import begun, halted, landed, verified


def ledger_at(data: Path) -> Ledger:
    return Ledger(DiskFiles(data), clock=ManualClock(), entropy=Random(1).randbytes)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log, and a ledger that has seen all of it land."""
    made = make_log(tmp_path / "data")
    ledger = ledger_at(made)
    ledger.record([begun("6b5b")])
    ledger.record([landed(0, LAST_LSN, rows=27), halted("schema", "it does not fit")])
    return made


def segment(data: Path) -> Path:
    (path,) = (data / "ledger").glob("*.seg")
    return path


def told(*args: str | Path) -> dict[str, Any]:
    content = json.loads(run(*args, "--json").stdout)
    assert isinstance(content, dict)
    return content


# Verify ---------------------------------------------------------------------------------------------------------------


def test_the_ledger_has_its_line(data: Path) -> None:
    result = run("log", "verify", data)

    assert result.exit_code == ExitCode.DONE
    (line,) = (line for line in result.stdout.splitlines() if line.startswith("ledger: "))
    assert line == (
        "ledger: 1 segment, 5 frames, LSN 1 to 5, durable up to 5, epoch 2; 3 records; 1 topic, 1 halted, "
        f"landed up to {LAST_LSN}"
    )
    assert result.stdout.splitlines()[-1].startswith("PASS  0 findings, 0 notes")


def test_json_has_the_ledger_and_its_bytes(data: Path) -> None:
    content = told("log", "verify", data)

    assert (content["ledger"]["records"], content["ledger"]["landed_lsn"]) == (3, LAST_LSN)
    (topic,) = content["ledger"]["topics"].values()
    assert (topic["table"], topic["halted"]) == ("sales.orders", "schema")
    assert content["bytes_read"] >= content["bytes"] + content["ledger"]["bytes"]


def test_a_log_from_which_nothing_has_landed_says_so_to_programs(tmp_path: Path) -> None:
    content = told("log", "verify", make_log(tmp_path / "data"))

    assert content["ledger"] is None


def test_a_damaged_ledger_fails_and_is_not_to_be_repaired(data: Path) -> None:
    flip_a_byte(segment(data), 700)

    result = run("log", "verify", data)
    content = told("log", "verify", data)

    assert result.exit_code == ExitCode.FAIL
    (finding,) = content["findings"]
    assert (finding["name"], finding["segment"]) == ("DamagedFrame", f"ledger/{segment(data).name}")
    assert "`ledger/` from a backup" in finding["next"]
    assert finding["next_command"] == ""


def test_notes_of_the_ledger_are_among_the_others(data: Path) -> None:
    (data / "ledger" / "mark").unlink()

    content = told("log", "verify", data)

    assert content["ok"] is True
    assert [(each["name"], each["segment"].partition("/")[0]) for each in content["notes"]] == [("NoMark", "ledger")]


def test_a_log_that_was_put_back_before_what_has_landed_is_a_finding(data: Path) -> None:
    ledger_at(data).record([landed(LAST_LSN, LAST_LSN + 9)])

    content = told("log", "verify", data)
    only_part = told("log", "verify", data, "--to-lsn", "3")

    assert [(each["name"], each["first_lsn"], each["last_lsn"]) for each in content["findings"]] == [
        ("LostLsns", LAST_LSN + 1, LAST_LSN + 9)
    ]
    assert only_part["findings"] == []


@pytest.mark.parametrize("name", [FindingName.DAMAGED_FRAME, FindingName.LOST_SEGMENT])
def test_nothing_in_the_ledger_is_advised_to_be_repaired(name: FindingName) -> None:
    found = advice(Finding(name, "", "ledger/x.seg"), "data")

    assert found.command == ""
    assert "the tables say how far they have come" in found.text
    assert advice(Finding(name, "", "x.seg"), "data").text == ADVICE[name].text


def test_an_index_of_the_ledger_is_rebuilt_by_opening() -> None:
    found = advice(Finding(FindingName.WRONG_INDEX, "", "ledger/x.idx"), "data")

    assert "opening rebuilds it" in found.text


def test_the_ledger_can_be_looked_at_without_the_packages_of_the_lake(data: Path) -> None:
    program = (
        "import sys\n"
        "for name in ('pyiceberg', 'numpy', 'polars_hash', 'pyspark', 'sqlalchemy'):\n"
        "    sys.modules[name] = None\n"
        "from headwater.cli.main import app\n"
        "app(sys.argv[1:])\n"
    )

    ran = [
        subprocess.run([sys.executable, "-c", program, "log", *args, str(data)], capture_output=True, timeout=60)
        for args in (["verify"], ["dump", "--ledger"])
    ]

    assert [each.returncode for each in ran] == [ExitCode.DONE] * 2, [each.stderr.decode() for each in ran]


# Dump -----------------------------------------------------------------------------------------------------------------


def test_a_dump_shows_the_records(data: Path) -> None:
    result = run("log", "dump", data, "--ledger")

    assert result.exit_code == ExitCode.DONE
    lines = [line for line in result.stdout.splitlines() if not line.startswith("---")]
    assert lines[0].endswith("RECORD")
    assert [line[57:].strip() for line in lines[1:]] == [
        "EPOCH",
        "begun sales.orders: epoch 1, commit 6b5b",
        "EPOCH",
        f"landed sales.orders: LSN 1 to {LAST_LSN}, 27 rows, digest {'0' * 16}, snapshot {LAST_LSN}",
        "halted sales.orders: schema: it does not fit",
    ]


def test_a_dump_for_programs_has_the_records_as_values(data: Path) -> None:
    ledger_at(data).record([verified(LAST_LSN)])

    content = told("log", "dump", data, "--ledger")

    assert content["directory"] == "ledger"
    records = [frame["record"] for frame in content["frames"] if "record" in frame]
    assert [each["is"] for each in records] == ["begun", "landed", "halted", "verified"]
    assert records[3]["lsn_to"] == LAST_LSN


def test_a_record_that_cannot_be_read_halts_the_dump_and_does_not_end_it(data: Path) -> None:
    with open_log(DiskFiles(data), "ledger", settings=SETTINGS, clock=ManualClock()) as log:
        log.append([Draft(Kind.LEDGER, b"\xc1"), Draft(Kind.LEDGER, b"\xc1")])

    result = run("log", "dump", data, "--ledger")
    content = told("log", "dump", data, "--ledger")

    assert result.exit_code == ExitCode.HALTED
    assert result.stdout.count("!!! a record of the ledger that cannot be read") == 2
    assert content["halted"] is True
    assert [frame["record"] for frame in content["frames"][-2:]] == [None, None]
    assert "record_error" in content["frames"][-1]


def test_a_directory_without_a_ledger_has_nothing_to_show(tmp_path: Path) -> None:
    result = run("log", "dump", make_log(tmp_path / "data"), "--ledger")

    assert (result.exit_code, result.stdout) == (ExitCode.DONE, "")


@pytest.mark.parametrize(
    ("options", "says"), [(["--journal", "--ledger"], "one at a time"), (["--ledger", "--topic", "1"], "--ledger")]
)
def test_a_dump_is_of_one_thing(data: Path, options: list[str], says: str) -> None:
    result = run("log", "dump", data, *options)

    assert result.exit_code == ExitCode.USAGE
    assert says in result.stderr
