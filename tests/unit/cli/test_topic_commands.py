"""`headwater topic create|list|describe|alter|delete|compact`."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import headwater as hw
from headwater.cli import confirmation
from headwater.cli.exit_codes import ExitCode
from headwater.cli.schema_text import schema_text
from headwater.cli.topic_show import duration_text, policy_text
from headwater.metadata.operations import Policy
from tests.unit.cli.topics import ORDERS, SETTINGS, make_topics, rows_of, run, run_json
from tests.unit.topics.small_engines import engine_of


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_topics(tmp_path / "data")


def names_in(data: Path) -> list[str]:
    return [each["name"] for each in run_json(data, "topic", "list")["topics"]]


# Create ------------------------------------------------------------------------------------------


def test_a_first_topic_makes_the_data_directory(tmp_path: Path) -> None:
    result = run(tmp_path / "new", "topic", "create", "orders", "--schema", ORDERS, "--partitions", "4")

    assert result.exit_code == ExitCode.DONE
    assert result.stdout == "orders: created; 4 partitions, 3 columns, schema version 1, cleanup kept\n"
    with hw.open(tmp_path / "new", settings=SETTINGS) as log:
        assert schema_text(log["orders"].schema) == ORDERS


def test_every_option_reaches_the_topic(tmp_path: Path) -> None:
    told = run_json(
        tmp_path, "topic", "create", "c", "--schema", "a:int64,b:string,at:timestamp?", "--key", "a, b",
        "--partitions", "3", "--time", "at", "--table", "crm.c",
        "--partition-by", "day(at)", "--partition-by", "bucket(4, a)", "--cleanup", "both", "--retention", "7d",
        "--retention-bytes", "1000000", "--tombstones", "2h", "--changes-retention", "90d",
    )  # fmt: skip

    topic = told["topic"]
    assert told["created"] is True
    assert (topic["key"], topic["partitions"], topic["time_column"]) == (["a", "b"], 3, "at")
    assert topic["table"] == "crm.c"
    assert topic["partition_by"] == ["day(at)", "bucket(4, a)"]
    assert topic["policy"] == {
        "cleanup": "both",
        "retention_s": 7 * 86_400.0,
        "retention_bytes": 1_000_000,
        "tombstones_s": 7_200.0,
        "changes_retention_s": 90 * 86_400.0,
    }


def test_a_topic_that_is_there_as_asked_is_done(data: Path) -> None:
    result = run(data, "topic", "create", "orders", "--schema", ORDERS)

    assert result.exit_code == ExitCode.DONE
    assert "it is there already, as asked" in result.stdout
    assert run_json(data, "topic", "create", "orders", "--schema", ORDERS)["created"] is False


def test_another_topic_of_this_name_is_refused(data: Path) -> None:
    result = run(data, "topic", "create", "orders", "--schema", "order_id:string")

    assert result.exit_code == ExitCode.USAGE
    assert "order_id" in result.stderr and "headwater topic alter orders" in result.stderr


def test_without_a_schema_a_topic_is_of_bytes(tmp_path: Path) -> None:
    told = run_json(tmp_path, "topic", "create", "raw")

    assert [each["name"] for each in told["topic"]["schema"]] == ["key", "value", "headers"]


def test_the_schema_of_a_parquet_file_is_taken(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"a": pa.array([1], pa.int32())}), tmp_path / "rows.parquet")
    (tmp_path / "no.parquet").write_text("no")

    told = run_json(tmp_path / "data", "topic", "create", "t", "--schema-from", tmp_path / "rows.parquet")
    not_one = run(tmp_path / "data", "topic", "create", "u", "--schema-from", tmp_path / "no.parquet")
    both = run(
        tmp_path / "data", "topic", "create", "u", "--schema-from", tmp_path / "rows.parquet", "--schema", "a:int64"
    )

    assert told["topic"]["schema"] == [{"name": "a", "type": "int32", "nullable": True}]
    assert (not_one.exit_code, both.exit_code) == (ExitCode.USAGE, ExitCode.USAGE)
    assert "is not a Parquet file" in not_one.stderr


@pytest.mark.parametrize(
    "arguments", [["a/b"], ["t", "--schema", "a:what"], ["t", "--retention", "soon"]], ids=" ".join
)
def test_a_topic_that_cannot_be_is_refused_and_no_directory_is_left(tmp_path: Path, arguments: list[str]) -> None:
    result = run(tmp_path / "new", "topic", "create", *arguments)

    assert result.exit_code == ExitCode.USAGE
    assert result.stderr.startswith("InvalidRequest: ")
    assert not (tmp_path / "new").exists()


def test_a_log_that_another_process_owns_is_named_and_tried_again(data: Path) -> None:
    with hw.open(data, settings=SETTINGS) as owner:
        owner["orders"].append([{"order_id": 4}])

        result = run(data, "topic", "create", "another")

    assert result.exit_code == ExitCode.TRY_AGAIN
    assert result.stderr.startswith("LogLocked: ")


# List, describe ----------------------------------------------------------------------------------


def test_topics_are_listed_by_name(data: Path) -> None:
    result = run(data, "topic", "list")

    lines = [line.split() for line in result.stdout.splitlines()]
    assert [line[0] for line in lines] == ["TOPIC", "customers", "orders", "raw"]
    assert lines[2][:2] == ["orders", "3"]
    assert names_in(data) == ["customers", "orders", "raw"]


def test_a_log_without_topics_says_how_to_make_one(data: Path) -> None:
    for name in ("orders", "customers", "raw"):
        run(data, "topic", "delete", name, "--yes")

    result = run(data, "topic", "list")

    assert (result.exit_code, result.stdout) == (ExitCode.DONE, "")
    assert "headwater topic create" in result.stderr


def test_a_description_can_be_given_to_create(data: Path) -> None:
    result = run(data, "topic", "describe", "orders")

    assert f'--schema "{ORDERS}"' in result.stdout
    assert "rows     3 in 2 partitions" in result.stdout
    assert result.stdout.splitlines()[-2:] == ["        0      0     2     2", "        1      0     1     1"]


def test_a_description_for_programs_has_every_partition(data: Path) -> None:
    topic = run_json(data, "topic", "describe", "orders")["topic"]

    assert topic["offsets"] == [{"partition": 0, "first": 0, "next": 2}, {"partition": 1, "first": 0, "next": 1}]
    assert topic["schema"][0] == {"name": "order_id", "type": "int64", "nullable": False}
    assert topic["created"].endswith("Z")


def test_many_partitions_are_shown_when_asked_for(data: Path) -> None:
    run(data, "topic", "alter", "orders", "--partitions", "20")

    some = run(data, "topic", "describe", "orders")
    every = run(data, "topic", "describe", "orders", "--all")

    assert some.stdout.splitlines()[-1] == "... and 4 more: --all shows them"
    assert every.stdout.splitlines()[-1].split()[0] == "19"


def test_an_unknown_topic_says_which_are_near_and_how_to_make_it(data: Path) -> None:
    result = run(data, "topic", "describe", "ordres")

    assert result.exit_code == ExitCode.USAGE
    assert "did you mean orders?" in result.stderr
    assert "headwater topic create ordres" in result.stderr


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (Policy(), "kept"),
        (Policy(retention_s=604_800.0), "delete 7d"),
        (Policy(cleanup="compact"), "compact"),
        (Policy(cleanup="both", retention_s=5_400.0, retention_bytes=2_000_000_000), "both 90min 2.0 GB"),
    ],
)
def test_a_policy_is_a_few_words(policy: Policy, text: str) -> None:
    assert policy_text(policy, None) == text
    assert policy_text(policy, "lake.t") == text.replace("kept", "landed")


@pytest.mark.parametrize(
    ("seconds", "text"), [(86_400, "1d"), (90_000, "25h"), (60, "1min"), (61, "61s"), (0.5, "0.5s"), (0, "0s")]
)
def test_a_duration_is_written_exactly(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


# Alter -------------------------------------------------------------------------------------------


def test_a_topic_gets_columns_types_partitions_and_a_policy(data: Path) -> None:
    run(data, "topic", "create", "narrow", "--schema", "a:int32")

    result = run(data, "topic", "alter", "orders", "--add", "mail:string,price:decimal(10,2)", "--partitions", "3")
    widened = run_json(data, "topic", "alter", "narrow", "--widen", "a:int64", "--retention", "3d")

    assert result.stdout == "orders: changed; 3 partitions, 5 columns, schema version 2, cleanup kept\n"
    assert rows_of(data, "orders", limit=1)[0]["mail"] is None
    assert widened["topic"]["schema"] == [{"name": "a", "type": "int64", "nullable": False}]
    assert widened["topic"]["policy"]["retention_s"] == 3 * 86_400.0


@pytest.mark.parametrize(
    "arguments",
    [[], ["--partitions", "1"], ["--widen", "order_id:int8"], ["--add", "order_id:int64"], ["--add", "x"]],
    ids=" ".join,
)
def test_a_change_that_cannot_be_is_refused(data: Path, arguments: list[str]) -> None:
    result = run(data, "topic", "alter", "orders", *arguments)

    assert result.exit_code == ExitCode.USAGE
    assert run_json(data, "topic", "describe", "orders")["topic"]["schema_version"] == 1


# Delete ------------------------------------------------------------------------------------------


@pytest.fixture
def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test runner's stdin is no terminal; the command believes that it is."""

    class Terminal:
        def isatty(self) -> bool:
            return True

    class System:
        stdin = Terminal()

    monkeypatch.setattr(confirmation, "sys", System())


def test_without_a_terminal_nothing_is_deleted_unasked(data: Path) -> None:
    result = run(data, "topic", "delete", "orders")

    assert result.exit_code == ExitCode.USAGE
    assert "--yes" in result.stderr
    assert "orders" in names_in(data)


def test_yes_deletes_without_asking(data: Path) -> None:
    result = run(data, "topic", "delete", "orders", "--yes")

    assert (result.exit_code, result.stdout) == (ExitCode.DONE, "orders: deleted, with 3 rows.\n")
    assert "orders" not in names_in(data)


def test_a_dry_run_says_it_and_changes_nothing(data: Path) -> None:
    result = run(data, "topic", "delete", "orders", "--dry-run", "--yes")

    assert result.exit_code == ExitCode.DONE
    assert result.stdout == "orders: 3 rows in 2 partitions would be deleted; nothing was changed.\n"
    assert "orders" in names_in(data)


@pytest.mark.usefixtures("on_a_terminal")
@pytest.mark.parametrize(("answer", "code"), [("y\n", ExitCode.DONE), ("n\n", ExitCode.HALTED), ("", ExitCode.HALTED)])
def test_on_a_terminal_it_asks(data: Path, answer: str, code: ExitCode) -> None:
    result = run(data, "topic", "delete", "orders", given=answer)

    assert result.exit_code == code
    assert ("orders" in names_in(data)) == (code is ExitCode.HALTED)


def test_a_topic_whose_table_lacks_rows_is_deleted_by_force_alone(data: Path) -> None:
    run(data, "topic", "alter", "orders", "--table", "sales.orders")

    refused = run(data, "topic", "delete", "orders", "--yes")
    forced = run_json(data, "topic", "delete", "orders", "--yes", "--force")

    assert refused.exit_code == ExitCode.TRY_AGAIN
    assert refused.stderr.startswith("RowsUnlanded: ")
    assert (forced["deleted"], forced["topic"]["rows"]) == (True, 3)


def test_a_program_without_yes_is_told_so(data: Path) -> None:
    told = run_json(data, "topic", "delete", "orders")

    assert (told["deleted"], told["dry_run"]) == (False, False)
    assert "orders" in names_in(data)


# Compact -----------------------------------------------------------------------------------------


def make_compactable(data: Path) -> None:
    """A hundred rows of one key in a sealed segment that two checkpoints cover."""
    with hw.open(data, settings=SETTINGS) as log:
        customers = log["customers"]
        for number in range(100):
            customers.upsert([{"id": 7, "name": f"name {number}"}])
        engine_of(log).shard.log.roll()
        log.checkpoint()
        customers.upsert([{"id": 8}])
        log.checkpoint()


def test_compacting_says_what_was_saved(data: Path) -> None:
    make_compactable(data)

    result = run(data, "topic", "compact", "customers")
    again = run(data, "topic", "compact", "customers")

    assert result.exit_code == again.exit_code == ExitCode.DONE
    assert result.stdout.startswith("customers: 99 rows removed, ")
    assert again.stdout.startswith("customers: nothing to compact")
    assert [row["name"] for row in rows_of(data, "customers")] == ["name 99", None]


def test_compacting_tells_programs_the_same(data: Path) -> None:
    make_compactable(data)

    told = run_json(data, "topic", "compact", "customers")

    assert told["rows_removed"] == 99
    assert told["bytes_saved"] > 0
    assert len(told["segments"]) == 1


def test_a_topic_without_a_key_is_not_compacted(data: Path) -> None:
    assert run(data, "topic", "compact", "orders").exit_code == ExitCode.USAGE
