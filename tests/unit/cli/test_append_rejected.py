"""`headwater append --from-rejected`: rejected rows once more, as they were or corrected, once each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import headwater as hw
from headwater.cli.exit_codes import ExitCode
from tests.unit.cli.topics import SETTINGS, make_topics, rows_of, run, run_json


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two rejected rows: one has a column that there is not, the other a text for a number."""
    data = make_topics(tmp_path / "data")
    lines = [{"order_id": 10, "colour": "red"}, {"order_id": "eleven"}]
    given = "".join(json.dumps(line) + "\n" for line in lines)
    assert run(data, "append", "orders", "--rejected", "keep", given=given).exit_code == ExitCode.DONE
    return data


def ids(data: Path) -> list[int]:
    return [row["order_id"] for row in rows_of(data, "orders")][3:]


def test_rows_that_fit_after_an_alteration_are_appended_once(data: Path) -> None:
    with hw.open(data, settings=SETTINGS) as log:
        log["orders"].alter(add={"colour": str})

    dry = run(data, "append", "orders", "--from-rejected", "--dry-run")
    first = run(data, "append", "orders", "--from-rejected")
    second = run(data, "append", "orders", "--from-rejected")

    summary = "orders: {} row{} of orders.rejected {}, 1 still rejected, {} taken before; {} left\n"
    assert dry.stdout == summary.format(1, "", "would be appended", 0, 2)
    assert first.stdout == summary.format(1, "", "appended", 0, 1)
    assert second.stdout == summary.format(0, "s", "appended", 1, 1)
    assert [each.exit_code for each in (dry, first, second)] == [ExitCode.DONE] * 3
    assert "orders.rejected partition 0 offset 1: order_id: 'eleven' is not an int64" in first.stderr
    assert ids(data) == [10]


def test_corrected_rows_are_read_from_a_file_and_appended_once(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "corrected.ndjson"
    file.write_text(json.dumps({"_hw_partition": 0, "_hw_offset": 1, "order_id": 11}) + "\n")

    told = run_json(data, "append", "orders", "--from-rejected", "--corrected", file)
    again = run_json(data, "append", "orders", "--from-rejected", "--corrected", file)

    assert (told["fitted"], told["still_rejected"], told["already_taken"], told["left"]) == (1, 0, 0, 1)
    assert (again["fitted"], again["already_taken"], again["refused"]) == (0, 1, [])
    assert ids(data) == [11]


def test_a_corrected_row_that_still_does_not_fit_asks_for_another_call(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "corrected.ndjson"
    file.write_text(json.dumps({"_hw_partition": 0, "_hw_offset": 1, "order_id": [1], "amount": 1e400}) + "\n")

    result = run(data, "append", "orders", "--from-rejected", "--corrected", file)

    assert result.exit_code == ExitCode.USAGE
    assert "offset 1: order_id: [1] is not an int64" in result.stderr
    assert ids(data) == []


def test_a_line_that_is_no_row_is_named(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "corrected.ndjson"
    file.write_text("what\n")

    result = run(data, "append", "orders", "--from-rejected", "--corrected", file)

    assert result.exit_code == ExitCode.USAGE
    assert "line 1: this is not one JSON object: 'what'" in result.stderr


def test_many_that_do_not_fit_are_shown_in_part(data: Path) -> None:
    given = '{"order_id": "x"}\n' * 12
    run(data, "append", "orders", "--rejected", "keep", given=given)

    result = run(data, "append", "orders", "--from-rejected")

    assert result.stderr.count(" is not an int64") == 9
    assert "... and 4 more: --json has the first thousand" in result.stderr


@pytest.mark.parametrize("option", [["--dry-run"], ["--corrected", "-"]])
def test_options_of_rejected_rows_alone_are_refused(data: Path, option: list[str]) -> None:
    result = run(data, "append", "orders", *option, given="")

    assert result.exit_code == ExitCode.USAGE
    assert "go with --from-rejected" in result.stderr
