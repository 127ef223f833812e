"""`headwater read`: rows in the order of the log, from one place to another, in every form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyarrow import parquet

from headwater.cli.exit_codes import ExitCode
from headwater.errors import Forgotten
from headwater.topics.reading import Rows
from tests.unit.cli.topics import make_topics, rows_of, run, run_json

TERMINAL = {"FORCE_COLOR": "1", "NO_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "80"}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_topics(tmp_path / "data")


def ids(data: Path, *options: str) -> list[int]:
    result = run(data, "read", "orders", *options)
    assert result.exit_code == ExitCode.DONE, result.stderr
    return [json.loads(line)["order_id"] for line in result.stdout.splitlines()]


def test_into_a_pipe_rows_are_ndjson(data: Path) -> None:
    result = run(data, "read", "orders")

    assert result.stdout.splitlines() == [
        '{"order_id":1,"amount":9.5,"note":null}',
        '{"order_id":2,"amount":null,"note":"second"}',
        '{"order_id":3,"amount":null,"note":null}',
    ]
    assert result.stderr == ""


def test_on_a_terminal_rows_are_a_table(data: Path) -> None:
    result = run(data, "read", "orders", **TERMINAL)

    assert result.stdout.splitlines() == [
        "order_id  amount  note",
        "       1     9.5  -",
        "       2       -  second",
        "       3       -  -",
    ]
    assert result.stderr == "3 rows\n"


def test_csv_is_written_and_read_again(data: Path) -> None:
    text = run(data, "read", "orders", "--format", "csv").stdout
    run(data, "append", "orders", "--format", "csv", given=text)

    assert text == '"order_id","amount","note"\n1,9.5,\n2,,"second"\n3,,\n'
    assert rows_of(data, "orders")[:3] == rows_of(data, "orders")[3:]


def test_ndjson_is_written_and_read_again(data: Path) -> None:
    text = run(data, "read", "orders").stdout
    run(data, "append", "orders", given=text)

    assert rows_of(data, "orders")[:3] == rows_of(data, "orders")[3:]


def test_files_are_written_whole_and_never_over_another(data: Path, tmp_path: Path) -> None:
    result = run(data, "read", "orders", "-o", tmp_path / "rows.parquet")
    again = run(data, "read", "orders", "--output", tmp_path / "rows.parquet")

    assert (result.exit_code, result.stdout, again.exit_code) == (ExitCode.DONE, "", ExitCode.USAGE)
    assert result.stderr == f"3 rows written to {tmp_path / 'rows.parquet'}\n"
    assert parquet.read_table(tmp_path / "rows.parquet").to_pylist() == rows_of(data, "orders")


def test_a_wrong_place_leaves_no_file_behind(data: Path, tmp_path: Path) -> None:
    result = run(data, "read", "orders", "--columns", "colour", "-o", tmp_path / "rows.csv")

    assert result.exit_code == ExitCode.USAGE
    assert not list(tmp_path.glob("rows.csv*"))


def test_programs_get_one_object(data: Path) -> None:
    told = run_json(data, "read", "orders", "--limit", "2")

    assert (told["topic"], told["count"], told["error"]) == ("orders", 2, None)
    assert [row["order_id"] for row in told["rows"]] == [1, 2]


def test_a_range_is_read(data: Path) -> None:
    lsns = [row["_hw_lsn"] for row in rows_of(data, "orders", system_columns=True)]

    assert ids(data, "--start", f"lsn:{lsns[2]}") == [3]
    assert ids(data, "--stop", f"lsn:{lsns[2]}") == [1, 2]
    assert ids(data, "--partition", "0", "--start", "1") == [2]
    assert ids(data, "--partition", "0", "--stop", "1") == [1]
    assert ids(data, "--start", "0:1,1:0") == [2, 3]
    assert ids(data, "--start", "latest") == []
    assert ids(data, "--start", "1h") == [1, 2, 3]
    assert ids(data, "--start", "2099-01-01") == []
    assert ids(data, "-n", "1") == [1]
    assert ids(data, "-n", "0") == []


def test_columns_are_chosen_and_system_columns_added(data: Path) -> None:
    chosen = run(data, "read", "orders", "--columns", "note, order_id", "-n", "1").stdout
    more = run(data, "read", "orders", "--system-columns", "-n", "1").stdout

    assert chosen == '{"note":null,"order_id":1}\n'
    assert list(json.loads(more))[-4:] == ["_hw_lsn", "_hw_partition", "_hw_offset", "_hw_time"]


def test_a_follower_reads_until_its_limit(data: Path) -> None:
    assert ids(data, "--follow", "--limit", "3") == [1, 2, 3]


def test_a_follower_that_is_interrupted_is_done(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _end_after_one_batch(monkeypatch, KeyboardInterrupt())

    follower = run(data, "read", "orders", "--follow", **TERMINAL)
    reader = run(data, "read", "orders")

    assert (follower.exit_code, reader.exit_code) == (ExitCode.DONE, ExitCode.INTERRUPTED)
    assert follower.stderr == "3 rows\n"


def _end_after_one_batch(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    batches = Rows.__iter__

    def ended(self: Rows) -> object:
        yield next(batches(self))
        raise error

    monkeypatch.setattr(Rows, "__iter__", ended)


@pytest.mark.parametrize("arguments", [["--json"], []], ids=["json", "ndjson"])
def test_an_error_half_way_ends_the_output_properly(
    data: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    _end_after_one_batch(monkeypatch, Forgotten("the log has let go of it"))

    result = run(data, "read", "orders", *arguments)

    assert result.exit_code == ExitCode.TRY_AGAIN
    assert result.stderr == "Forgotten: the log has let go of it\n"
    if arguments:
        told = json.loads(result.stdout)
        assert (told["count"], told["error"]["name"]) == (3, "Forgotten")


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["orders", "--start", "7"],
        ["orders", "--start", "soon"],
        ["orders", "--partition", "9"],
        ["orders", "--columns", "colour"],
        ["orders", "--format", "parquet"],
        ["orders", "--json", "--follow"],
        ["orders", "--json", "--format", "csv"],
    ],
    ids=" ".join,
)
def test_a_wrong_call_is_exit_code_two(data: Path, arguments: list[str]) -> None:
    result = run(data, "read", *arguments)

    assert result.exit_code == ExitCode.USAGE
    assert "Traceback" not in result.stderr


def test_rows_of_a_keyed_topic_say_what_was_done(data: Path) -> None:
    run(data, "append", "customers", given='{"id":1,"name":"Ada"}\n')

    assert run(data, "read", "customers").stdout == '{"id":1,"name":"Ada","_hw_op":"U"}\n'
