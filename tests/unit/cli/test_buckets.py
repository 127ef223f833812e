"""Every command that takes a data directory takes a bucket as well, or says by name what does instead."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

import headwater as hw
from headwater.cli.exit_codes import ExitCode
from headwater.errors import Fenced
from headwater.log.slots import slot_name
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.objects import StoreUnsure
from headwater.storage.simulated_store import SimulatedStore
from tests.unit.cli.buckets import URL, fill, run, simulate, slots_of


@pytest.fixture
def empty(monkeypatch: pytest.MonkeyPatch) -> SimulatedStore:
    return simulate(monkeypatch)


@pytest.fixture
def store(empty: SimulatedStore) -> SimulatedStore:
    return fill(empty)


def test_a_topic_is_made_filled_and_read_in_a_bucket(empty: SimulatedStore) -> None:
    created = run("topic", "create", "orders", "--schema", "id:int64,note:string?")
    appended = run("append", "orders", given='{"id": 1}\n{"id": 2, "note": "two"}\n')
    read = run("read", "orders")

    assert (created.exit_code, appended.exit_code, read.exit_code) == (0, 0, 0), appended.stderr
    assert [json.loads(line) for line in read.stdout.splitlines()] == [
        {"id": 1, "note": None},
        {"id": 2, "note": "two"},
    ]
    assert "log/trim" in empty.names()


def test_where_it_is_may_stand_in_the_file(
    store: SimulatedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "headwater.toml").write_text(f'data = "{URL}"\n')

    assert "customers" in run("topic", "list", HEADWATER_DATA="").stdout


def test_topics_are_changed_compacted_and_deleted(store: SimulatedStore) -> None:
    for arguments in (
        ["topic", "alter", "orders", "--add", "more:string"],
        ["topic", "compact", "customers"],
        ["topic", "delete", "raw", "--yes"],
        ["topic", "describe", "orders"],
        ["log", "trace", URL, "orders", "--partition", "0", "--offset", "0"],
    ):
        result = run(*arguments)
        assert result.exit_code == ExitCode.DONE, (arguments, result.stderr)


def test_a_prefix_without_a_log_says_what_begins_one(empty: SimulatedStore) -> None:
    looked, verified = run("status"), run("log", "verify", URL)

    assert looked.exit_code == verified.exit_code == ExitCode.USAGE
    assert f"headwater topic create NAME --data {URL}" in looked.stderr
    assert "holds no log" in verified.stderr
    assert empty.names() == []


def test_the_log_itself_in_place_of_the_prefix_is_explained(store: SimulatedStore) -> None:
    for name in list(store.names()):
        if name.startswith("log/"):
            store.put(name.removeprefix("log/"), store.contents(name))
        store.delete(name)

    result = run("log", "verify", f"{URL}/log")

    assert result.exit_code == ExitCode.USAGE
    assert f"is the log itself; give the directory above it: {URL}" in result.stderr


# Who owns it ---------------------------------------------------------------------------------------


def test_a_live_owner_is_named_and_may_be_taken_over(store: SimulatedStore) -> None:
    owner = hw.open(BucketFiles(store, host="elsewhere"))
    owner["orders"].append([{"order_id": 8}], partition=0)

    refused = run("append", "orders", "--partition", "0", given='{"order_id": 9}\n')
    taken = run("append", "orders", "--partition", "0", "--take-over", given='{"order_id": 9}\n')

    assert refused.exit_code == ExitCode.TRY_AGAIN
    assert "on elsewhere" in refused.stderr and "--take-over" in refused.stderr
    assert taken.exit_code == ExitCode.DONE, taken.stderr
    with pytest.raises(Fenced, match="taken the log over"):
        owner["orders"].append([{"order_id": 10}], partition=0)
    with pytest.raises(Fenced, match="taken the log over"):
        owner.topic("more", schema={"id": int})
    owner.close()
    assert [json.loads(line)["order_id"] for line in run("read", "orders").stdout.splitlines()] == [1, 2, 3, 8, 9]


def test_a_lock_of_this_machine_cannot_be_taken_over(tmp_path: Path) -> None:
    result = run("topic", "create", "orders", "--take-over", "--data", str(tmp_path / "data"))

    assert result.exit_code == ExitCode.USAGE
    assert "--take-over is for buckets" in result.stderr


def test_status_tells_of_the_owner_and_of_what_lies_in_the_store(store: SimulatedStore) -> None:
    nobody = run("status")
    with hw.open(BucketFiles(store, host="elsewhere")) as owner:
        owner["orders"].append([{"order_id": 8}], partition=0)
        somebody, told = run("status"), json.loads(run("status", "--json").stdout)

    assert "owner       nobody" in nobody.stdout
    assert "on elsewhere" in somebody.stdout and "alive" in somebody.stdout
    assert told["store"]["url"] == URL and told["store"]["owner"]["alive"] is True
    assert told["store"]["slots"] == len(slots_of(store)) and told["store"]["window"] == 8
    assert told["store"]["requests"]["gets"] > 0


# The log itself ------------------------------------------------------------------------------------


def test_a_healthy_bucket_passes(store: SimulatedStore) -> None:
    result = run("log", "verify", URL)

    assert result.exit_code == ExitCode.DONE, result.stdout
    assert "PASS  0 findings, 0 notes" in result.stdout


@pytest.mark.parametrize("directory", ["log", "journal"])
@pytest.mark.parametrize(
    ("damage", "name"),
    [
        ("a flipped bit", "DamagedSlot"),
        ("a slot gone", "LostSlot"),
        ("no trim", "LostTrim"),
        ("a flipped bit in trim", "DamagedTrim"),
    ],
)
def test_each_damage_has_its_name_and_what_to_do(store: SimulatedStore, directory: str, damage: str, name: str) -> None:
    slots = slots_of(store, directory)
    if damage == "a flipped bit":
        store.flip_bit(slots[-1], 8 * 300)
    elif damage == "a slot gone":
        store.delete(slots[1])
    elif damage == "no trim":
        store.delete(f"{directory}/trim")
    else:
        store.flip_bit(f"{directory}/trim", 8 * 30)

    people, told = run("log", "verify", URL), json.loads(run("log", "verify", URL, "--json").stdout)

    assert people.exit_code == ExitCode.FAIL
    assert name in {each["name"] for each in told["findings"]}
    assert "put the object back" in people.stdout
    assert "log repair" not in people.stdout


def test_nothing_is_found_beside_an_owner_that_rolls_merges_and_deletes(store: SimulatedStore) -> None:
    small = hw.LogSettings(segment_size_bytes_max=16_384, write_body_bytes_max=8_192, deletion_grace_s=0)
    done = Event()

    def work() -> None:
        with hw.open(BucketFiles(store), settings=hw.Settings(log=small, upkeep_interval_s=0)) as owner:
            rows = owner.topic("rows", schema={"text": str}, retention="1ms")
            while not done.is_set():
                for _ in range(10):
                    rows.append({"text": "x" * 1_000})
                owner.cleanup()

    with ThreadPoolExecutor(1) as beside:
        owner = beside.submit(work)
        try:
            told = [run("log", "verify", URL) for _ in range(8)]
        finally:
            done.set()
        owner.result()

    codes = {each.exit_code for each in told}
    assert codes <= {ExitCode.DONE, ExitCode.TRY_AGAIN}, [each.output for each in told]
    assert ExitCode.DONE in codes
    final = run("log", "verify", URL)
    assert final.exit_code == ExitCode.DONE, final.stdout


def test_what_is_not_ours_is_noted(store: SimulatedStore) -> None:
    store.put("log/notes.txt", b"mine")

    result = run("log", "verify", URL)

    assert result.exit_code == ExitCode.DONE
    assert "ForeignFile" in result.stdout and "notes.txt" in result.stdout


def test_a_dump_shows_slots_and_fences(store: SimulatedStore) -> None:
    text = run("log", "dump", URL).stdout
    told = json.loads(run("log", "dump", URL, "--json").stdout)
    journal = run("log", "dump", URL, "--journal").stdout

    assert "[slot 1, fence]" in text and "[slot 1, fence]" in journal
    assert told["frames"][0]["slot"] == 1
    assert {slot_name(each["slot"]) for each in told["frames"]} <= {name[-20:] for name in slots_of(store)}


def test_what_works_on_files_alone_is_refused_by_name(store: SimulatedStore, tmp_path: Path) -> None:
    repaired = run("log", "repair", URL)
    rebuilt = run("log", "rebuild", URL, "--to", "s3://bucket/new")

    assert repaired.exit_code == rebuilt.exit_code == ExitCode.USAGE
    assert "the store's versions" in repaired.stderr
    assert "give a directory" in rebuilt.stderr


def test_a_lost_journal_can_be_looked_at_as_the_log_tells_it(store: SimulatedStore, tmp_path: Path) -> None:
    result = run("log", "rebuild", URL, "--to", str(tmp_path / "new"))

    assert result.exit_code == ExitCode.DONE, result.stderr
    assert "orders" in result.stdout and "the store's versions" in result.stdout


# A store that does not do what it should -----------------------------------------------------------


@pytest.mark.parametrize("arguments", [["status"], ["log", "verify", URL], ["append", "orders"]], ids=" ".join)
def test_a_store_that_does_not_answer_is_told_soon(store: SimulatedStore, arguments: list[str]) -> None:
    store.calls.clear()

    def silent(verb: str, name: str) -> None:
        raise StoreUnsure(5, "Error performing list request - connection refused")

    store.before_call = silent
    result = run(*arguments, given="", AWS_ENDPOINT_URL="http://localhost:1")

    assert result.exit_code == ExitCode.TRY_AGAIN
    assert "does not answer: connection refused; look at AWS_ENDPOINT_URL (http://localhost:1)" in result.stderr


def test_a_store_that_refuses_says_what_to_do_by_itself(store: SimulatedStore) -> None:
    def refuse(verb: str, name: str) -> None:
        raise PermissionError(13, "the store refuses: look at your keys", URL)

    store.before_call = refuse
    result = run("status")

    assert result.exit_code == ExitCode.USAGE
    assert result.stderr == f"PermissionError: {URL}: the store refuses: look at your keys\n"


def test_an_address_of_another_kind_of_store_is_refused() -> None:
    result = run("status", "--data", "gs://bucket/data")

    assert result.exit_code == ExitCode.USAGE
    assert "s3://bucket/prefix" in result.stderr
