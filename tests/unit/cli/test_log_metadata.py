"""`headwater log verify` and `log dump --journal` over a directory with metadata: what is told, and what is advised."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headwater.cli.advice import ADVICE, advice
from headwater.cli.exit_codes import ExitCode
from headwater.clock import ManualClock
from headwater.frames.frame import Kind
from headwater.log import Draft
from headwater.log.verify import Finding, FindingName
from headwater.metadata.checkpoint import Checkpoint, CheckpointKind, Checkpoints, name_of
from headwater.metadata.fold_check import MetadataFinding
from headwater.metadata.journal import Journal, open_journal
from headwater.metadata.operations import SetLogStart
from headwater.metadata.shard_state import ShardState, fold_frames
from headwater.storage.disk import DiskFiles
from tests.unit.cli.logs import LAST_LSN, SETTINGS, flip_a_byte, make_log, open_at, run, segment_files
from tests.unit.metadata.small_journals import create, group


def journal_at(data: Path) -> Journal:
    clock = ManualClock()
    return open_journal(DiskFiles(data), settings=SETTINGS, clock=clock, entropy=bytes)


def make_metadata(data: Path) -> Path:
    """A journal of two topics and a group in two checkpoints, and one more group behind them; of the log one."""
    with journal_at(data) as journal:
        journal.append([create(1, "orders", partitions=8, key=("id",)), create(2)])
        journal.checkpoint()
        journal.append([group(1)])
        journal.checkpoint()
        journal.append([group(2)])
    with open_at(data) as log:
        state = fold_frames(ShardState(), log.read())
        made = Checkpoint(CheckpointKind.SHARD, state.lsn, state.chain, 4, 1_700_000_000_000_000, state.pack())
        Checkpoints(DiskFiles(data), "checkpoints", CheckpointKind.SHARD).write(made)
    return data


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_metadata(make_log(tmp_path / "data"))


def told(*args: str | Path) -> dict[str, Any]:
    content = json.loads(run(*args, "--json").stdout)
    assert isinstance(content, dict)
    return content


# Verify ---------------------------------------------------------------------------------------------------------------


def test_the_journal_and_each_checkpoint_have_their_lines(data: Path) -> None:
    result = run("log", "verify", data)

    assert result.exit_code == ExitCode.DONE
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"{data}: 3 segments, {LAST_LSN} frames")
    assert lines[1] == (
        "journal: 2 segments, 2 frames, LSN 4 to 5, durable up to 5, epoch 1; 2 operations, 1 to replay; "
        "2 topics, 2 groups, log start 1"
    )
    assert lines[2] == (
        f"journal/checkpoints/{name_of(4)}: state of LSN 4, made 2023-11-14T22:13:20.000Z with operation 4, 0.6 kB; "
        "topics 2, deleted topics 0, groups 1, next topic number 3, log start 1; equal to its fold"
    )
    assert lines[3].endswith("; not compared with its fold")
    assert lines[4].startswith(f"checkpoints/{name_of(LAST_LSN)}: state of LSN {LAST_LSN}")
    assert lines[5].startswith("PASS  0 findings, 0 notes; ")


def test_json_has_the_journal_and_the_checkpoints_beside_what_it_had(data: Path) -> None:
    content = told("log", "verify", data)

    assert (content["version"], content["ok"], content["verdict"], content["frames"]) == (1, True, "PASS", LAST_LSN)
    assert content["journal"]["operations"] == 2 and content["journal"]["last_lsn"] == 5
    assert content["journal"]["state"]["groups"] == 2
    assert [(each["kind"], each["lsn"], each["equals_fold"]) for each in content["checkpoints"]] == [
        ("journal", 4, True),
        ("journal", 3, None),
        ("shard", LAST_LSN, True),
    ]
    assert content["bytes_read"] > content["bytes"]


def test_a_log_without_metadata_says_so_to_programs(tmp_path: Path) -> None:
    content = told("log", "verify", make_log(tmp_path / "data"))

    assert (content["journal"], content["checkpoints"]) == (None, [])


def test_a_directory_with_metadata_alone_can_be_looked_at(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with journal_at(tmp_path / "data") as journal:
        journal.append([create(1)])

    verified = run("log", "verify", tmp_path / "data")
    dumped = run("log", "dump", tmp_path / "data")

    assert verified.exit_code == ExitCode.DONE
    assert verified.stdout.splitlines()[-1].startswith("PASS  0 findings, 0 notes")
    assert dumped.exit_code == ExitCode.DONE


def test_a_log_that_is_gone_although_the_journal_knows_where_it_begins_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with journal_at(tmp_path / "data") as journal:
        journal.append([SetLogStart(17, ())])

    content = told("log", "verify", tmp_path / "data")

    assert [(each["name"], each["segment"]) for each in content["findings"]] == [("LostSegment", "log")]


def test_a_damaged_checkpoint_fails_and_says_what_it_is(data: Path) -> None:
    flip_a_byte(data / "journal" / "checkpoints" / name_of(4), 80)

    result = run("log", "verify", data)

    assert result.exit_code == ExitCode.FAIL
    assert f"journal/checkpoints/{name_of(4)}: not valid: the body does not match its checksum" in result.stdout
    assert f"\n{MetadataFinding.DAMAGED_CHECKPOINT}  " in result.stdout
    assert ADVICE[MetadataFinding.DAMAGED_CHECKPOINT].text in result.stdout


def test_a_wrong_checkpoint_is_told_on_its_line(data: Path) -> None:
    path = f"checkpoints/{name_of(LAST_LSN)}"
    (data / path).unlink()
    state = ShardState()
    with open_at(data) as log:
        fold_frames(state, log.read())
    state.next_producer_id = 9
    made = Checkpoint(CheckpointKind.SHARD, state.lsn, state.chain, 4, 0, state.pack())
    Checkpoints(DiskFiles(data), "checkpoints", CheckpointKind.SHARD).write(made)

    result = run("log", "verify", data)

    assert result.exit_code == ExitCode.FAIL
    assert "; NOT equal to its fold" in result.stdout
    assert f"\n{MetadataFinding.WRONG_CHECKPOINT}  " in result.stdout


def test_a_journal_without_a_state_says_so(data: Path) -> None:
    for lsn in (3, 4):
        flip_a_byte(data / "journal" / "checkpoints" / name_of(lsn), 80)

    result = run("log", "verify", data)

    assert "; its state cannot be had" in result.stdout
    assert "headwater log rebuild" in result.stdout


@pytest.mark.parametrize(
    ("name", "path", "wanted"),
    [
        (FindingName.DAMAGED_FRAME, "00000000000000000001.0.seg", "headwater log repair d --dry-run"),
        (FindingName.DAMAGED_FRAME, "journal/00000000000000000001.0.seg", "headwater log rebuild d --to DIR"),
        (FindingName.LOST_SEGMENT, "journal", "headwater log rebuild d --to DIR"),
        (FindingName.LOST_LSNS, "checkpoints/1.ckpt", ""),
        (FindingName.WRONG_INDEX, "journal/00000000000000000001.0.idx", ""),
        (FindingName.WRONG_INDEX, "00000000000000000001.0.idx", "headwater log repair d"),
        (MetadataFinding.CHECKPOINT_LOST, "checkpoints", ""),
        (MetadataFinding.CHECKPOINT_LOST, "journal/checkpoints", "headwater log rebuild d --to DIR"),
    ],
)
def test_what_helps_the_log_is_not_advised_for_the_journal(name: str, path: str, wanted: str) -> None:
    assert advice(Finding(name, "", path), "d").command == wanted


# Dump -----------------------------------------------------------------------------------------------------------------


def test_every_operation_has_a_line(data: Path) -> None:
    with journal_at(data) as journal:
        journal.append([create(3, "clicks"), group(3)])

    result = run("log", "dump", data, "--journal")

    lines = [line for line in result.stdout.splitlines() if line.strip()[:1].isdigit()]
    assert result.exit_code == ExitCode.DONE
    assert [line.split(maxsplit=5)[5] for line in lines] == [
        "create_group group-1",
        "create_group group-2",
        "EPOCH",
        "create_topic topic 3: clicks; 1 partition; cleanup delete",
        "create_group group-3",
    ]
    assert [line.split()[:3] for line in lines[-2:]] == [["7", "2", "1/2"], ["8", "2", "2/2"]]
    assert result.stdout.splitlines()[0].split()[-1] == "OPERATION"
    assert "5 frames" in result.stderr


def test_json_of_the_journal_has_each_operation_as_it_is(data: Path) -> None:
    content = told("log", "dump", data, "--journal", "--from-lsn", "5")

    assert (content["version"], content["directory"], content["halted"]) == (1, "journal", False)
    (frame,) = content["frames"]
    assert (frame["lsn"], frame["kind"]) == (5, "METADATA")
    assert frame["operation"] == {"op": "create_group", "name": "group-2", "created_us": 2}


def test_a_range_and_a_limit_hold_for_the_journal_too(data: Path) -> None:
    content = told("log", "dump", data, "--journal", "--limit", "1")

    assert [each["lsn"] for each in content["frames"]] == [4]
    assert content["next_lsn"] == 5


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x81\xa2op\xa6future"])
def test_an_operation_that_nobody_here_can_read_is_shown_and_is_a_halt(data: Path, body: bytes) -> None:
    with journal_at(data) as journal:
        journal.log.append([Draft(Kind.METADATA, body)])

    people = run("log", "dump", data, "--journal")
    programs = told("log", "dump", data, "--journal")

    assert people.exit_code == ExitCode.HALTED
    assert "!!! " in people.stdout.splitlines()[-1]
    assert "HALTED  1 break" in people.stderr
    last = programs["frames"][-1]
    assert programs["halted"] and last["operation"] is None
    assert last["operation_error"]["name"] in ("DamagedLog", "UnknownFormat")


def test_a_frame_of_the_log_shows_no_operation(tmp_path: Path) -> None:
    data = make_log(tmp_path / "data")
    with open_at(data) as log:
        log.append([Draft(Kind.METADATA, b"\xc1")])

    content = told("log", "dump", data)

    assert content["directory"] == "log" and not content["halted"]
    assert "operation" not in content["frames"][-1]


def test_a_topic_cannot_be_chosen_in_the_journal(data: Path) -> None:
    result = run("log", "dump", data, "--journal", "--topic", "1")

    assert result.exit_code == ExitCode.USAGE
    assert "--topic" in result.stderr


def test_damage_in_the_journal_is_met_by_its_dump_and_not_by_that_of_the_log(data: Path) -> None:
    path = min((data / "journal").glob("*.seg"))
    flip_a_byte(path, 256 + 130)

    assert run("log", "dump", data, "--journal").exit_code == ExitCode.HALTED
    assert run("log", "dump", data).exit_code == ExitCode.DONE
    assert len(segment_files(data)) == 3
