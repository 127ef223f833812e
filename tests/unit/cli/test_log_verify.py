"""`headwater log verify`: its verdict, its exit code, and what people and programs are told."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.cli.advice import ADVICE
from headwater.cli.exit_codes import ExitCode
from headwater.log.object_verify import ObjectFinding, ObjectNote
from headwater.log.verify import FindingName, NoteName
from headwater.metadata.fold_check import MetadataFinding
from tests.unit.cli.logs import (
    LAST_LSN,
    cut_the_newest,
    damage_a_sealed_segment,
    flip_a_byte,
    make_log,
    run,
    segment_files,
    tear_the_tail,
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_log(tmp_path / "data")


def test_a_healthy_log_passes(data: Path) -> None:
    result = run("log", "verify", data)

    assert result.exit_code == ExitCode.DONE
    assert f"3 segments, {LAST_LSN} frames, LSN 1 to {LAST_LSN}" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("PASS  0 findings, 0 notes; ")
    assert "MB/s" in result.stdout.splitlines()[-1]
    assert result.stderr == ""


def _lose_a_segment(data: Path) -> None:
    segment_files(data)[1].unlink()


def _flip_a_segment_header(data: Path) -> None:
    flip_a_byte(segment_files(data)[1], 20)


def _flip_an_index(data: Path) -> None:
    flip_a_byte(segment_files(data)[0].with_suffix(".idx"), 100)


def _bring_a_segment_of_another_log(data: Path) -> None:
    other = make_log(data.parent / "other")
    shutil.copy(segment_files(other)[1], segment_files(data)[1])


def _copy_a_segment_under_another_name(data: Path) -> None:
    shutil.copy(segment_files(data)[0], data / "log" / "00000000000000000011.0.seg")


@pytest.mark.parametrize(
    ("damage", "name", "lsns"),
    [
        (damage_a_sealed_segment, FindingName.DAMAGED_FRAME, (2, 3)),
        (cut_the_newest, FindingName.LOST_LSNS, (LAST_LSN - 1, LAST_LSN)),
        (_lose_a_segment, FindingName.LOST_SEGMENT, (8, 13)),
        (_flip_a_segment_header, FindingName.HEADLESS_SEGMENT, (0, 0)),
        (_flip_an_index, FindingName.WRONG_INDEX, (0, 0)),
        (_bring_a_segment_of_another_log, FindingName.FOREIGN_LOG, (0, 0)),
        (_copy_a_segment_under_another_name, FindingName.MISNAMED_SEGMENT, (0, 0)),
    ],
)
def test_damage_fails_by_its_name(
    data: Path, damage: Callable[[Path], object], name: FindingName, lsns: tuple[int, int]
) -> None:
    damage(data)

    people = run("log", "verify", data)
    programs = run("log", "verify", data, "--json")

    assert people.exit_code == programs.exit_code == ExitCode.FAIL
    assert people.stdout.splitlines()[-1].startswith("FAIL  ")
    assert f"\n{name}  " in people.stdout
    assert ADVICE[name].text in people.stdout
    found = [each for each in json.loads(programs.stdout)["findings"] if each["name"] == name]
    assert [(each["first_lsn"], each["last_lsn"]) for each in found] == [lsns]


def _leave_a_foreign_file(data: Path) -> None:
    (data / "log" / "notes.txt").write_text("mine")


def _leave_a_temporary(data: Path) -> None:
    (data / "log" / "00000000000000000014.0.idx.tmp").write_text("half")


def _remove_an_index(data: Path) -> None:
    segment_files(data)[0].with_suffix(".idx").unlink()


def _remove_the_mark(data: Path) -> None:
    (data / "log" / "mark").unlink()


def _forget_the_first_segment(data: Path) -> None:
    first = segment_files(data)[0]
    first.with_suffix(".idx").unlink()
    first.unlink()


def _begin_a_roll(data: Path) -> None:
    (data / "log" / f"{LAST_LSN + 1:020}.0.seg").write_bytes(b"")


@pytest.mark.parametrize(
    ("leave", "name"),
    [
        (tear_the_tail, NoteName.TORN_TAIL),
        (_leave_a_foreign_file, NoteName.FOREIGN_FILE),
        (_leave_a_temporary, NoteName.LEFT_OVER),
        (_remove_an_index, NoteName.NO_INDEX),
        (_remove_the_mark, NoteName.NO_MARK),
        (_forget_the_first_segment, NoteName.BEGINS_LATER),
        (_begin_a_roll, NoteName.STILLBORN_ROLL),
    ],
)
def test_what_a_crash_or_a_person_leaves_is_a_note_and_passes(
    data: Path, leave: Callable[[Path], object], name: NoteName
) -> None:
    leave(data)

    people = run("log", "verify", data)
    programs = run("log", "verify", data, "--json")

    assert people.exit_code == programs.exit_code == ExitCode.DONE
    assert people.stdout.splitlines()[-1].startswith("PASS  0 findings, 1 note; ")
    assert f"\n{name}  " in people.stdout
    assert [each["name"] for each in json.loads(programs.stdout)["notes"]] == [name]


def test_json_is_one_versioned_object_and_nothing_else_is_on_stdout(data: Path) -> None:
    damage_a_sealed_segment(data)

    result = run("log", "verify", data, "--json")

    told = json.loads(result.stdout)
    assert told["version"] == 1
    assert told["command"] == "log verify"
    assert (told["verdict"], told["ok"]) == ("FAIL", False)
    assert (told["segments"], told["first_lsn"], told["last_lsn"], told["durable_lsn"]) == (3, 1, LAST_LSN, LAST_LSN)
    assert told["bytes"] == sum(path.stat().st_size for path in segment_files(data))
    assert told["findings"][0]["segment"] == segment_files(data)[0].name
    assert told["findings"][0]["next_command"] == f"headwater log repair {data} --dry-run"
    assert result.stderr == ""


def test_a_log_start_makes_a_missing_beginning_a_finding(data: Path) -> None:
    _forget_the_first_segment(data)

    without = run("log", "verify", data)
    with_start = run("log", "verify", data, "--log-start", "1")

    assert without.exit_code == ExitCode.DONE
    assert with_start.exit_code == ExitCode.FAIL
    assert "LSNs 1 to 7 are in no segment" in with_start.stdout


@pytest.mark.parametrize("to_lsn", [5, 7, 10, LAST_LSN])
def test_the_beginning_of_a_healthy_log_passes_too(data: Path, to_lsn: int) -> None:
    result = run("log", "verify", data, "--to-lsn", str(to_lsn))

    assert result.exit_code == ExitCode.DONE, result.stdout


def test_damage_behind_the_last_lsn_that_was_asked_for_is_not_looked_at(data: Path) -> None:
    cut_the_newest(data)

    result = run("log", "verify", data, "--to-lsn", "7")

    assert result.exit_code == ExitCode.DONE, result.stdout


def test_a_limit_shortens_the_table_and_not_the_verdict(data: Path) -> None:
    for name in ("a", "b", "c"):
        (data / "log" / name).write_text("mine")

    limited = run("log", "verify", data, "--limit", "1")
    unlimited = run("log", "verify", data, "--limit", "0")

    assert limited.stdout.count("ForeignFile  ") == 1
    assert "... and 2 more" in limited.stdout
    assert "3 notes" in limited.stdout.splitlines()[-1]
    assert unlimited.stdout.count("ForeignFile  ") == 3


def test_a_directory_that_does_not_exist_is_a_wrong_call(tmp_path: Path) -> None:
    result = run("log", "verify", tmp_path / "nowhere")

    assert result.exit_code == ExitCode.USAGE
    assert "does not exist" in result.stderr


def test_a_directory_without_a_log_is_a_wrong_call(tmp_path: Path) -> None:
    people = run("log", "verify", tmp_path)
    programs = run("log", "verify", tmp_path, "--json")

    assert people.exit_code == programs.exit_code == ExitCode.USAGE
    assert "holds no log" in people.stderr
    told = json.loads(programs.stdout)
    assert told["version"] == 1
    assert (told["error"]["name"], told["error"]["exit_code"]) == ("InvalidRequest", 2)


def test_the_log_itself_in_place_of_the_data_directory_is_explained(data: Path) -> None:
    result = run("log", "verify", data / "log")

    assert result.exit_code == ExitCode.USAGE
    assert f"give the directory above it: {data}" in result.stderr


def test_a_name_with_escapes_in_it_cannot_write_on_the_terminal(data: Path) -> None:
    (data / "log" / "evil\x1b[31m\n").write_text("mine")
    Path(os.fsdecode(os.fsencode(data / "log") + b"/bad\xff")).write_text("mine")

    people = run("log", "verify", data)
    programs = run("log", "verify", data, "--json")

    assert people.exit_code == programs.exit_code == ExitCode.DONE
    assert "\x1b" not in people.stdout
    assert "evil\\x1b[31m\\n" in people.stdout
    assert "bad\\udcff" in people.stdout
    assert {each["segment"] for each in json.loads(programs.stdout)["notes"]} == {"evil\x1b[31m\n", "bad\udcff"}


def test_every_finding_and_note_has_its_advice() -> None:
    of_buckets = set(ObjectFinding) | set(ObjectNote)
    assert set(ADVICE) == set(FindingName) | set(MetadataFinding) | set(NoteName) | of_buckets
