"""`headwater query`: SQL over topics by name, in every form."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from pyarrow import parquet
from typer.testing import CliRunner, Result

import headwater as hw
from headwater.cli.as_of import parse_as_of
from headwater.cli.exit_codes import ExitCode
from headwater.cli.query import query
from headwater.clock import ManualClock
from headwater.errors import InvalidRequest
from headwater.topics.positions import Lsn
from tests.unit.cli.topics import SETTINGS, make_topics

TERMINAL = {"FORCE_COLOR": "1", "NO_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "80"}
TOTALS = "SELECT count(*) AS rows, sum(order_id) AS ids, sum(amount) AS amount FROM orders"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_topics(tmp_path / "data")


def ask(data: Path, *arguments: str | Path, **environment: str) -> Result:
    app = typer.Typer()
    app.command()(query)
    variables = {"HEADWATER_DATA": str(data), **environment}
    return CliRunner().invoke(app, [str(each) for each in arguments], env=variables)


def test_into_a_pipe_rows_are_ndjson_and_a_sum_of_integers_is_a_number(data: Path) -> None:
    result = ask(data, TOTALS)

    assert result.stdout == '{"rows":3,"ids":6,"amount":9.5}\n'
    assert result.stderr == ""
    assert result.exit_code == ExitCode.DONE


def test_an_integer_beyond_64_bits_is_a_text(data: Path) -> None:
    assert ask(data, "SELECT 2::HUGEINT ** 2 AS f, 18446744073709551616 AS h").stdout == (
        '{"f":4.0,"h":"18446744073709551616"}\n'
    )


def test_on_a_terminal_rows_are_a_table(data: Path) -> None:
    result = ask(data, "SELECT order_id, note FROM orders WHERE order_id < 3 ORDER BY 1 DESC", **TERMINAL)

    assert result.stdout.splitlines() == ["order_id  note", "       2  second", "       1  -"]
    assert result.stderr == "2 rows\n"


def test_csv_and_files_are_written(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "totals.parquet"

    text = ask(data, TOTALS, "--csv").stdout
    result = ask(data, TOTALS, "--output", file)

    assert text == '"rows","ids","amount"\n3,6,9.5\n'
    assert result.stderr == f"1 row written to {file}\n"
    assert parquet.read_table(file).num_rows == 1


def test_json_is_one_object_with_the_cut_that_gives_the_same_rows_again(data: Path) -> None:
    told = json.loads(ask(data, TOTALS, "--json").stdout)
    with hw.open(data, settings=SETTINGS) as log:
        log["orders"].append([{"order_id": 9}])

    again = json.loads(ask(data, TOTALS, "--json", "--as-of", told["cut"]).stdout)

    assert told["rows"] == [{"rows": 3, "ids": 6, "amount": 9.5}]
    assert (told["version"], told["command"], told["count"], told["error"]) == (1, "query", 1, None)
    assert again["rows"] == told["rows"]
    assert json.loads(ask(data, TOTALS, "--json").stdout)["rows"][0]["rows"] == 4


def test_a_wrong_statement_is_usage_in_duckdbs_own_words(data: Path) -> None:
    plain = ask(data, "SELECT nope FROM orders")
    told = ask(data, "DELETE FROM orders", "--json")

    assert plain.exit_code == told.exit_code == ExitCode.USAGE
    assert plain.stderr.startswith('InvalidRequest: Binder Error: Referenced column "nope" not found in FROM clause!')
    assert json.loads(told.stdout)["error"]["message"] == "a query is one SELECT: nothing else is run here"


@pytest.mark.parametrize("form", ["--json", "--csv"])
def test_what_goes_wrong_when_rows_are_out_already_ends_the_object_with_the_error_in_it(data: Path, form: str) -> None:
    late = "SELECT CASE WHEN i = 1500000 THEN error('boom') ELSE i END AS i FROM range(2000000) AS t(i)"

    result = ask(data, late, form)

    assert result.exit_code == ExitCode.USAGE
    assert "boom" in result.stderr
    if form == "--json":
        told = json.loads(result.stdout)
        assert told["count"] > 0
        assert told["error"]["name"] == "InvalidRequest"


def test_one_object_has_no_other_form(data: Path) -> None:
    assert ask(data, TOTALS, "--json", "--csv").exit_code == ExitCode.USAGE


def test_without_duckdb_the_call_says_what_to_install(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    for name in ("duckdb_view", "duckdb_query"):
        monkeypatch.delitem(sys.modules, f"headwater.lake.{name}", raising=False)

    result = ask(data, TOTALS)

    assert result.exit_code == ExitCode.USAGE
    assert "pip install 'headwater[duckdb]'" in result.stderr


def test_a_point_is_a_token_an_lsn_so_long_ago_or_a_moment() -> None:
    clock = ManualClock(1_000_000_000_000)

    def moment(text: str) -> Any:
        return parse_as_of(text, clock)

    assert parse_as_of(None, clock) is None
    assert moment("hwcut1.abc") == "hwcut1.abc"
    assert moment("lsn:7") == Lsn(7)
    assert moment("10s").timestamp() == 1_000_000 - 10
    assert moment("2026-11-15T00:00:00").isoformat() == "2026-11-15T00:00:00+00:00"
    for wrong in ("latest", "earliest", "7", "0:7", "soon"):
        with pytest.raises(InvalidRequest, match="is no point to read at"):
            moment(wrong)
