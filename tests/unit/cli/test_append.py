"""`headwater append`: what becomes of rows, of those that do not fit, and of those who have to go on afterwards."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import headwater as hw
from headwater.cli import append as command
from headwater.cli.append import Loading
from headwater.cli.exit_codes import ExitCode
from headwater.cli.input_source import Source
from headwater.cli.interrupts import Interrupts
from headwater.cli.row_chunk import Chunk
from headwater.errors import Unavailable
from headwater.topics.answers import Appended
from tests.unit.cli.topics import SETTINGS, make_topics, rows_of, run, run_json


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_topics(tmp_path / "data")


def ids(data: Path, topic: str = "orders") -> list[int]:
    """The orders behind the three that are there from the beginning."""
    return [row["order_id"] for row in rows_of(data, topic)][3:]


def lines(*numbers: int) -> str:
    return "".join(json.dumps({"order_id": number}) + "\n" for number in numbers)


def test_rows_of_a_pipe_are_appended_and_counted(data: Path) -> None:
    result = run(data, "append", "orders", given=lines(10, 11, 12))

    assert result.exit_code == ExitCode.DONE
    assert result.stdout.startswith("orders: 3 rows appended in ")
    assert " s, LSN " in result.stdout
    assert result.stderr == ""
    assert ids(data) == [10, 11, 12]


def test_a_rate_is_told_of_many_rows(data: Path) -> None:
    result = run(data, "append", "orders", given=lines(*range(1_000)))

    assert "rows/s), LSN " in result.stdout


def test_a_dash_is_the_pipe_too(data: Path) -> None:
    assert run(data, "append", "orders", "-", given=lines(10)).exit_code == ExitCode.DONE
    assert ids(data) == [10]


def test_files_of_every_format_are_appended(data: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(lines(10))
    (tmp_path / "rows.csv").write_text("note,order_id\nx,11\n")
    parquet.write_table(pa.table({"order_id": [12, 13]}), tmp_path / "rows.parquet")
    (tmp_path / "rows.txt").write_text("14,,\n")

    codes = [
        run(data, "append", "orders", tmp_path / "rows.jsonl").exit_code,
        run(data, "append", "orders", tmp_path / "rows.csv").exit_code,
        run(data, "append", "orders", tmp_path / "rows.parquet").exit_code,
        run(data, "append", "orders", tmp_path / "rows.txt", "--format", "csv", "--no-header").exit_code,
    ]

    assert codes == [0, 0, 0, 0]
    assert ids(data) == [10, 11, 12, 13, 14]


def test_programs_are_told_one_object(data: Path) -> None:
    told = run_json(data, "append", "orders", given=lines(10, 11))

    assert (told["topic"], told["rows"], told["rejected"], told["writes"]) == ("orders", 2, 0, 1)
    assert 0 < told["first_lsn"] <= told["lsn"]
    assert (told["next_row"], told["refused"], told["error"]) == (2, [], None)


def test_rows_go_to_the_partition_that_was_given(data: Path) -> None:
    run(data, "append", "orders", "--partition", "1", given=lines(10, 11))

    assert [row["order_id"] for row in rows_of(data, "orders", partition=1)] == [3, 10, 11]


def test_bytes_are_text_or_base64(data: Path) -> None:
    run(data, "append", "raw", given='{"value":"é"}\n{"key":{"$base64":"/w=="},"headers":{"a":"b"}}\n')

    assert rows_of(data, "raw") == [
        {"key": None, "value": "é".encode(), "headers": None},
        {"key": b"\xff", "value": None, "headers": [("a", b"b")]},
    ]


# Rows that do not fit ----------------------------------------------------------------------------


def test_a_row_that_does_not_fit_is_refused_by_line_and_reason(data: Path) -> None:
    result = run(data, "append", "orders", given=lines(10) + '\n{"order_id":"x"}\nnonsense\n{"order_id":1,"z":1}\n')

    assert result.exit_code == ExitCode.USAGE
    told = result.stderr.splitlines()
    assert told[0] == "3 rows refused by the schema of orders:"
    assert told[1].startswith("  line 3: order_id: 'x'")
    assert told[2] == "  line 4: this is not one JSON object: 'nonsense'"
    assert told[3].startswith("  line 5: z: no such column")
    assert "--rejected keep" in told[4] and "--skip-rows" not in told[4]
    assert result.stdout.startswith("orders: 0 rows appended")
    assert ids(data) == []


def test_null_where_none_may_be_is_refused_by_its_line_in_the_fast_way_too(data: Path) -> None:
    result = run(data, "append", "orders", given=lines(10) + "\n{}\n")

    assert result.exit_code == ExitCode.USAGE
    assert "  line 3: order_id: " in result.stderr


def test_a_row_of_parquet_is_refused_by_its_number(data: Path, tmp_path: Path) -> None:
    parquet.write_table(pa.table({"order_id": [10, None]}), tmp_path / "rows.parquet")

    result = run(data, "append", "orders", tmp_path / "rows.parquet")

    assert result.exit_code == ExitCode.USAGE
    assert "  row 2: order_id: " in result.stderr


def test_a_csv_row_with_too_many_cells_is_refused_by_its_line(data: Path) -> None:
    result = run(data, "append", "orders", "--format", "csv", given="order_id,note\n10,x\n11,y,z\n")

    assert "  line 3: this is not a row of 2 cells: '11,y,z'" in result.stderr


def test_writes_before_the_refused_row_stay_and_the_message_says_how_to_go_on(data: Path) -> None:
    rows = lines(10, 11, 12) + '{"order_id":"x"}\n' + lines(14)

    result = run(data, "append", "orders", "--batch-rows", "2", given=rows)
    after = ids(data)
    mended = rows.replace('"x"', "13")
    goes_on = run(data, "append", "orders", "--batch-rows", "2", "--skip-rows", "2", given=mended)

    assert result.exit_code == ExitCode.USAGE
    assert "go on with --skip-rows 2" in result.stderr
    assert after == [10, 11]
    assert goes_on.exit_code == ExitCode.DONE
    assert ids(data) == [10, 11, 12, 13, 14]


def test_programs_are_told_which_rows_were_refused(data: Path) -> None:
    told = run_json(data, "append", "orders", "--batch-rows", "1", given=lines(10) + '{"order_id":"x"}\n')

    assert (told["rows"], told["next_row"]) == (1, 1)
    assert [each["place"] for each in told["refused"]] == ["line 2"]
    assert (told["error"]["name"], told["error"]["exit_code"]) == ("RowsRefused", 2)


def test_rows_that_do_not_fit_can_be_kept(data: Path) -> None:
    result = run(data, "append", "orders", "--rejected", "keep", given=lines(10) + '{"order_id":"x"}\nnonsense\n')

    assert result.exit_code == ExitCode.DONE
    assert result.stdout.rstrip().endswith("; 2 rows rejected, kept in orders.rejected")
    assert ids(data) == [10]
    assert [row["row"] for row in rows_of(data, "orders.rejected")] == ['{"order_id": "x"}', '"nonsense"']


def test_many_refused_rows_are_not_all_listed(data: Path) -> None:
    result = run(data, "append", "orders", given="{}\n" * 50)

    assert "... and 40 more" in result.stderr


# Keyed topics ------------------------------------------------------------------------------------


def test_rows_of_a_keyed_topic_are_upserted_and_keys_deleted(data: Path) -> None:
    run(data, "append", "customers", "--format", "csv", given="id,name\n1,Ada\n2,Bob\n")

    result = run(data, "append", "customers", "--delete", given='{"id":1}\n')

    assert result.stdout.startswith("customers: 1 row deleted in ")
    assert [(row["id"], row["_hw_op"]) for row in rows_of(data, "customers")] == [(1, "U"), (2, "U"), (1, "D")]


@pytest.mark.parametrize(
    "arguments",
    [
        ["orders", "--delete"],
        ["customers", "--delete", "--partition", "0"],
        ["customers", "--delete", "--rejected", "keep"],
    ],
    ids=" ".join,
)
def test_only_keys_of_keyed_topics_are_deleted(data: Path, arguments: list[str]) -> None:
    assert run(data, "append", *arguments, given='{"id":1}\n').exit_code == ExitCode.USAGE


# What the world does -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [["nothing"], ["orders", "missing.csv"], ["orders", "--partition", "9"], ["orders", "--format", "parquet"]],
    ids=" ".join,
)
def test_a_wrong_call_is_exit_code_two(data: Path, arguments: list[str]) -> None:
    result = run(data, "append", *arguments, given=lines(10))

    assert result.exit_code == ExitCode.USAGE
    assert ids(data) == []


def test_nothing_is_nothing(data: Path) -> None:
    result = run(data, "append", "orders", given="")

    assert result.exit_code == ExitCode.DONE
    assert result.stdout.startswith("orders: 0 rows appended in ")


def chunks_of(*numbers: int) -> list[Chunk]:
    return [Chunk([{"order_id": number}], place, None) for place, number in enumerate(numbers)]


def test_an_error_between_two_writes_counts_the_first(data: Path) -> None:
    with hw.open(data, settings=SETTINGS) as log:
        topic = log["orders"]

        def send(chunk: Chunk) -> object:
            if chunk.first_row == 1:
                raise Unavailable("no room in flight")
            return topic.append_future(chunk.rows)

        loading = Loading(topic, send)  # type: ignore[arg-type]
        code = loading.run(iter(chunks_of(10, 11)), lambda rows: None)

    assert (code, loading.rows, loading.next_row) == (ExitCode.TRY_AGAIN, 1, 1)
    assert ids(data) == [10]


@pytest.mark.parametrize(("ahead", "counted"), [(True, [0, 1]), (False, [1, 2])])
def test_rows_of_a_pipe_are_counted_before_the_next_are_waited_for(data: Path, ahead: bool, counted: list[int]) -> None:
    seen: list[int] = []

    with hw.open(data, settings=SETTINGS) as log:
        topic = log["orders"]
        loading = Loading(topic, lambda chunk: topic.append_future(chunk.rows), ahead)

        def found() -> Iterator[Chunk]:
            for chunk in chunks_of(10, 11):
                yield chunk
                seen.append(loading.rows)

        loading.run(found(), lambda rows: None)

    assert seen == counted
    assert loading.rows == 2


def test_an_interrupt_waits_for_the_write_on_its_way_and_counts_it(data: Path) -> None:
    def interrupted() -> object:
        yield from chunks_of(10, 11)
        raise KeyboardInterrupt

    with hw.open(data, settings=SETTINGS) as log:
        topic = log["orders"]
        loading = Loading(topic, lambda chunk: topic.append_future(chunk.rows))
        code = loading.run(interrupted(), lambda rows: None)  # type: ignore[arg-type]

    assert (code, loading.rows, loading.next_row) == (ExitCode.INTERRUPTED, 2, 2)
    assert ids(data) == [10, 11]


def test_an_interrupt_while_a_write_is_on_its_way_counts_it(data: Path) -> None:
    with hw.open(data, settings=SETTINGS) as log:
        topic = log["orders"]

        def send(chunk: Chunk) -> Future[Appended]:
            future = topic.append_future(chunk.rows)
            signal.raise_signal(signal.SIGINT)
            return future

        loading = Loading(topic, send)
        code = loading.run(iter(chunks_of(10, 11)), lambda rows: None)

    assert (code, loading.rows, loading.next_row) == (ExitCode.INTERRUPTED, 1, 1)
    assert ids(data) == [10]


def test_a_second_interrupt_does_not_wait() -> None:
    reached: list[str] = []

    def hold(interrupts: Interrupts) -> None:
        with interrupts.held():
            signal.raise_signal(signal.SIGINT)
            reached.append("behind the first")
            signal.raise_signal(signal.SIGINT)
            reached.append("behind the second")

    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt):
        hold(interrupts)

    assert reached == ["behind the first"]


def test_outside_of_what_is_held_an_interrupt_comes_at_once_and_afterwards_as_before() -> None:
    before = signal.getsignal(signal.SIGINT)

    with Interrupts(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)

    assert signal.getsignal(signal.SIGINT) is before


def test_a_bar_is_shown_on_a_terminal_alone(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.ndjson").write_text(lines(10))
    with (tmp_path / "rows.ndjson").open("rb") as file:
        source = Source(file)
        with command._bar(source) as told:
            told(1)
        piped = capsys.readouterr()

        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm-256color")
        with command._bar(source) as told:
            told(1_234)
        shown = capsys.readouterr()

    assert (piped.out, piped.err, shown.out) == ("", "", "")
    assert "1,234 rows" in shown.err
