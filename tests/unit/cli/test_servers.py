"""Every command on a server's address in place of a data directory: the same words, the same exit codes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.cli import data_directory
from headwater.cli.exit_codes import ExitCode
from tests.servers.headwater import on_loopback, serving
from tests.unit.cli.topics import SETTINGS, make_topics, run, run_json


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data = make_topics(tmp_path_factory.mktemp("served") / "data")
    with serving(data, log_settings=SETTINGS) as server:
        yield f"hw://127.0.0.1:{server.port}"


def test_topics_are_made_shown_changed_filled_read_and_deleted(address: str) -> None:
    made = run(address, "topic", "create", "events", "--schema", "id:int64,note:string?", "--key", "id")
    assert made.exit_code == ExitCode.DONE and made.stdout.startswith("events: created"), made.stderr
    assert run(address, "topic", "alter", "events", "--cleanup", "compact").exit_code == ExitCode.DONE

    filled = run(address, "append", "events", given='{"id":1,"note":"a"}\n{"id":2}\n{"id":1,"note":"b"}\n')
    assert filled.exit_code == ExitCode.DONE and "3 rows appended" in filled.stderr + filled.stdout
    read = run(address, "read", "events")
    assert read.stdout.splitlines()[-1] == '{"id":1,"note":"b","_hw_op":"U"}'
    assert run(address, "topic", "compact", "events").exit_code == ExitCode.DONE

    assert "key      id" in run(address, "topic", "describe", "events").stdout
    assert "events" in run(address, "topic", "list").stdout
    gone = run(address, "topic", "delete", "events", "--yes")
    assert gone.exit_code == ExitCode.DONE, gone.stderr
    assert "events" not in run(address, "topic", "list").stdout


def test_the_status_is_that_of_the_server(address: str) -> None:
    assert {"orders", "customers", "raw"} <= {each["name"] for each in run_json(address, "status")["topics"]}
    assert "orders" in run(address, "status").stdout


def test_rows_land_and_are_audited_and_queried_with_a_catalog_of_the_callers_own(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(address, "topic", "create", "sales", "--schema", "id:int64", "--table", "lake.sales")
    run(address, "append", "sales", given='{"id":1}\n{"id":2}\n')
    # Without a catalog of its own a client has nowhere to land.
    assert "say with catalog=" in run(address, "land").stderr
    (tmp_path / "headwater.toml").write_text(
        f'[catalog]\nname = "lake"\ntype = "sql"\nuri = "sqlite:///{tmp_path}/lake.db"\nwarehouse = "file://{tmp_path}/lake"\n'
    )

    landed = run(address, "land", "sales")
    assert landed.exit_code == ExitCode.DONE, landed.stderr
    assert run(address, "audit", "sales").stdout.startswith("PASS")
    run(address, "append", "sales", given='{"id":3}\n')
    assert '"n":3' in run(address, "query", "select count(*) as n from sales").stdout.replace(" ", "")
    assert run(address, "maintain", "sales").exit_code == ExitCode.DONE
    (found,) = [each for each in run_json(address, "status")["landing"] if each["topic"] == "sales"]
    assert found["landed_lsn"]


@pytest.mark.parametrize(
    "command",
    [("verify",), ("dump",), ("repair",), ("rebuild", "--to", "x"), ("restore", "--from-lake")],
)
def test_what_needs_the_files_themselves_says_so(address: str, command: tuple[str, ...]) -> None:
    result = run(address, "log", command[0], address, *command[1:])

    assert result.exit_code == ExitCode.USAGE
    assert "run it where they are" in " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("erase", "orders", "--where", "order_id = 1", "--reason", "asked", "--yes"), "beside the log"),
        (("append", "orders", "--take-over"), "a server has its log already"),
        (("read", "order"), "did you mean orders?"),
    ],
)
def test_what_a_server_does_not_do_is_another_call(address: str, arguments: tuple[str, ...], why: str) -> None:
    result = run(address, *arguments, given="")

    assert result.exit_code == ExitCode.USAGE and why in result.stderr


def test_a_server_that_is_not_there_is_told_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_directory, "FIRST_ANSWER_S", 0.3)
    began_s = time.monotonic()

    result = run("hw://127.0.0.1:1", "status")

    assert result.exit_code == ExitCode.TRY_AGAIN and "does not answer" in result.stderr
    assert time.monotonic() - began_s < 10


def test_a_wrong_address_is_another_call() -> None:
    assert "an address holds no secret" in run("hw://me:secret@127.0.0.1:1", "status").stderr
    assert run("hw://127.0.0.1:1/path", "status").exit_code == ExitCode.USAGE


def test_without_a_token_nothing_is_told(tmp_path: Path) -> None:
    data = make_topics(tmp_path / "data")
    with serving(data, settings=on_loopback(tokens=True), log_settings=SETTINGS) as server:
        result = run(f"hw://127.0.0.1:{server.port}", "topic", "list")

    assert result.exit_code == ExitCode.USAGE and "Unauthenticated" in result.stderr
    assert "orders" not in result.stdout + result.stderr
