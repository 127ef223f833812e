"""`headwater log dump`: every frame on a line, of healthy and of broken logs, for people and for programs."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from headwater.cli import log_dump
from headwater.cli.exit_codes import ExitCode
from headwater.frames.checksum import crc32c
from headwater.frames.frame import NO_SALT_CRC, Kind
from headwater.log import Draft
from headwater.log.names import SegmentName
from tests.unit.cli.logs import (
    FRAME_BYTES,
    LAST_LSN,
    append_one,
    cut_the_newest,
    damage_a_sealed_segment,
    flip_a_byte,
    make_log,
    open_at,
    run,
    segment_files,
    tear_the_tail,
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_log(tmp_path / "data")


def dumped(data: Path, *options: str) -> dict[str, Any]:
    told = json.loads(run("log", "dump", data, "--json", *options).stdout)
    assert isinstance(told, dict)
    return told


def lsns(data: Path, *options: str) -> list[int]:
    return [each["lsn"] for each in dumped(data, *options)["frames"]]


def lines_of_frames(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()[:1].isdigit()]


def test_every_frame_has_a_line(data: Path) -> None:
    result = run("log", "dump", data)

    lines = lines_of_frames(result.stdout)
    assert result.exit_code == ExitCode.DONE
    assert [int(line.split()[0]) for line in lines] == list(range(1, LAST_LSN + 1))
    assert lines[0].split() == ["1", "EPOCH", "-", "-", "-", "24", "1", "1/1", "2023-11-14T22:13:20.000Z", "1.0:256"]
    assert lines[3].split() == [
        "4",
        "DATA",
        "1/0",
        "2..3",
        "2",
        "8",
        "1",
        "1/2",
        "2023-11-14T22:13:20.000Z",
        "1.0:1024",
    ]
    assert f"{LAST_LSN} frames" in result.stderr


def test_each_segment_is_named_where_its_frames_begin(data: Path) -> None:
    result = run("log", "dump", data, "--from-lsn", "9")

    assert [line.split()[3] for line in result.stdout.splitlines() if line.startswith("--- ")] == [
        "00000000000000000008.0.seg,",
        "00000000000000000014.0.seg,",
    ]


def test_no_line_of_an_ordinary_log_is_wider_than_a_hundred_columns(data: Path) -> None:
    result = run("log", "dump", data)

    assert max(len(line) for line in result.stdout.splitlines()) <= 100


def test_json_is_one_versioned_object(data: Path) -> None:
    result = run("log", "dump", data, "--json")

    told = json.loads(result.stdout)
    assert (told["version"], told["command"], told["data"]) == (1, "log dump", str(data))
    assert (told["halted"], told["breaks"], told["error"], told["next_lsn"]) == (False, [], None, None)
    assert [each["name"] for each in told["segments"]] == [path.name for path in segment_files(data)]
    fourth = told["frames"][3]
    assert (fourth["lsn"], fourth["kind"], fourth["topic_number"], fourth["partition"]) == (4, "DATA", 1, 0)
    assert (fourth["base_offset"], fourth["row_count"], fourth["offset_count"], fourth["body_bytes"]) == (2, 2, 2, 8)
    assert (fourth["write_index"], fourth["write_count"], fourth["epoch"]) == (0, 2, 1)
    assert (fourth["segment"], fourth["position"]) == ("00000000000000000001.0.seg", 1024)
    assert fourth["append_time"] == "2023-11-14T22:13:20.000Z"
    assert result.stderr == ""


def test_a_range_of_lsns_includes_both_its_ends(data: Path) -> None:
    assert lsns(data, "--from-lsn", "6", "--to-lsn", "9") == [6, 7, 8, 9]
    assert lsns(data, "--from-lsn", "8", "--to-lsn", "8") == [8]
    assert lsns(data, "--from-lsn", str(LAST_LSN + 1)) == []


def test_a_topic_shows_its_frames_alone(data: Path) -> None:
    assert lsns(data, "--topic", "2") == list(range(3, LAST_LSN + 1, 2))
    assert lsns(data, "--topic", "0") == [1]
    assert lsns(data, "--topic", "9") == []


def test_a_limit_ends_the_dump_and_says_where_to_go_on(data: Path) -> None:
    told = dumped(data, "--topic", "1", "--limit", "2")
    people = run("log", "dump", data, "--topic", "1", "--limit", "2")

    assert [each["lsn"] for each in told["frames"]] == [2, 4]
    assert told["next_lsn"] == 6
    assert len(lines_of_frames(people.stdout)) == 2
    assert "there are more: --from-lsn 6" in people.stderr


def test_a_limit_that_is_not_reached_leaves_nothing_to_go_on_with(data: Path) -> None:
    assert dumped(data, "--limit", str(LAST_LSN))["next_lsn"] is None


def test_damage_is_shown_in_its_place_and_frames_behind_it_too(data: Path) -> None:
    damage_a_sealed_segment(data)

    people = run("log", "dump", data)
    programs = run("log", "dump", data, "--json")

    told = json.loads(programs.stdout)
    assert people.exit_code == programs.exit_code == ExitCode.HALTED
    assert [each["lsn"] for each in told["frames"]] == [1, *range(4, LAST_LSN + 1)]
    assert told["halted"]
    assert [(each["first_lsn"], each["last_lsn"], each["position"]) for each in told["breaks"]] == [(2, 3, 512)]
    lines = people.stdout.splitlines()
    broken = next(number for number, line in enumerate(lines) if line.startswith("!!! LSN 2 to 3 cannot be read"))
    assert lines[broken - 1].split()[0] == "1"
    assert lines[broken + 1].split()[0] == "4"
    assert f"headwater log verify {data}" in people.stderr


def test_damage_outside_of_the_range_is_not_met(data: Path) -> None:
    damage_a_sealed_segment(data)

    before = run("log", "dump", data, "--to-lsn", "1")
    behind = run("log", "dump", data, "--from-lsn", "4")
    within = run("log", "dump", data, "--from-lsn", "3", "--to-lsn", "3")

    assert (before.exit_code, behind.exit_code, within.exit_code) == (0, 0, 3)


def test_a_write_that_lost_one_frame_is_not_shown_in_part(data: Path) -> None:
    flip_a_byte(segment_files(data)[0], 256 + 2 * FRAME_BYTES + 130)

    told = dumped(data)

    assert [each["lsn"] for each in told["frames"]] == [1, *range(4, LAST_LSN + 1)]
    assert [(each["first_lsn"], each["last_lsn"]) for each in told["breaks"]] == [(2, 3)]


def test_a_torn_tail_is_told_and_is_no_halt(data: Path) -> None:
    tear_the_tail(data)

    people = run("log", "dump", data)
    told = dumped(data)

    assert people.exit_code == ExitCode.DONE
    assert people.stdout.splitlines()[-1].startswith("~~~ torn tail of 128 bytes, never acknowledged")
    assert [(each["torn_tail"], each["bytes"]) for each in told["breaks"]] == [(True, 128)]
    assert not told["halted"]


def test_damage_of_what_was_durable_is_a_halt_in_the_newest_segment_too(data: Path) -> None:
    flip_a_byte(segment_files(data)[-1], 256 + 130)

    told = dumped(data)

    assert [(each["first_lsn"], each["last_lsn"], each["torn_tail"]) for each in told["breaks"]] == [(14, 15, False)]
    assert [each["lsn"] for each in told["frames"]] == [*range(1, 14), *range(16, LAST_LSN + 1)]


def test_frames_of_an_unfinished_write_are_not_shown(data: Path) -> None:
    newest = segment_files(data)[-1]
    log = open_at(data)
    append_one(log)
    log.close()
    newest.write_bytes(newest.read_bytes()[:-FRAME_BYTES])
    (data / "log" / "mark").unlink()

    told = dumped(data)

    # LSN 20 is the second claim's epoch; 21 is the first frame of a write whose second is gone.
    assert told["frames"][-1]["lsn"] == LAST_LSN + 1
    assert [(each["torn_tail"], each["first_lsn"]) for each in told["breaks"]] == [(True, LAST_LSN + 2)]


def test_what_was_durable_and_is_missing_at_the_end_is_a_halt(data: Path) -> None:
    cut_the_newest(data)

    result = run("log", "dump", data)

    assert result.exit_code == ExitCode.HALTED
    assert f"!!! LSN {LAST_LSN - 1} to {LAST_LSN} cannot be read" in result.stdout


def test_a_lost_segment_is_a_halt(data: Path) -> None:
    segment_files(data)[1].unlink()

    result = run("log", "dump", data)

    assert result.exit_code == ExitCode.HALTED
    assert "!!! LSN 8 to 13 cannot be read: they are in no segment" in result.stdout
    assert len(lines_of_frames(result.stdout)) == LAST_LSN - 6


def test_a_segment_without_its_header_is_a_halt_and_the_next_one_is_shown(data: Path) -> None:
    flip_a_byte(segment_files(data)[1], 20)

    told = dumped(data)

    assert [each["lsn"] for each in told["frames"]] == [*range(1, 8), *range(14, LAST_LSN + 1)]
    assert [(each["first_lsn"], each["last_lsn"], each["torn_tail"]) for each in told["breaks"]] == [(8, 13, False)]


def test_an_unfinished_roll_is_no_halt(data: Path) -> None:
    (data / "log" / f"{LAST_LSN + 1:020}.0.seg").write_bytes(b"")

    result = run("log", "dump", data)

    assert result.exit_code == ExitCode.DONE
    assert len(lines_of_frames(result.stdout)) == LAST_LSN


def test_a_segment_that_does_not_continue_the_one_before_is_a_halt(data: Path) -> None:
    other = make_log(data.parent / "other")
    segment_files(data)[1].write_bytes(segment_files(other)[1].read_bytes())

    result = run("log", "dump", data)

    assert result.exit_code == ExitCode.HALTED
    assert "it does not continue the segment before it (00000000000000000008.0.seg:0)" in result.stdout


def test_a_log_that_lost_every_segment_is_a_halt(data: Path) -> None:
    for path in segment_files(data):
        path.unlink()

    result = run("log", "dump", data)

    assert result.exit_code == ExitCode.HALTED
    assert f"!!! LSN 1 to {LAST_LSN} cannot be read: there is no segment" in result.stdout


def test_an_unknown_format_is_a_halt_and_segments_before_it_are_shown(data: Path) -> None:
    _need_a_feature_of_tomorrow(segment_files(data)[-1])

    result = run("log", "dump", data)

    assert result.exit_code == ExitCode.HALTED
    assert f"!!! LSN 14 to {LAST_LSN} cannot be read" in result.stdout
    assert len(lines_of_frames(result.stdout)) == 13


def _need_a_feature_of_tomorrow(path: Path) -> None:
    """Set an incompatible feature in a segment's header that nobody knows, and seal it again."""
    content = bytearray(path.read_bytes())
    content[128 + 47] |= 0x80
    content[8:12] = crc32c(bytes(content[128:256])).to_bytes(4, "little")
    content[4:8] = crc32c(bytes(content[8:128]), NO_SALT_CRC).to_bytes(4, "little")
    path.write_bytes(content)


def test_frames_behind_the_mark_say_so(tmp_path: Path) -> None:
    data = tmp_path / "data"
    log = open_at(data)
    append_one(log)
    mark = (data / "log" / "mark").read_bytes()
    append_one(log)
    log.close()
    (data / "log" / "mark").write_bytes(mark)

    told = dumped(data)
    people = run("log", "dump", data)

    assert [each["lsn"] for each in told["frames"] if "beyond-mark" in each["flags"]] == [4, 5]
    assert people.exit_code == ExitCode.DONE
    assert lines_of_frames(people.stdout)[3].endswith(" 1.0:1024 beyond-mark")


def test_a_gap_shows_its_range_and_its_reason(data: Path) -> None:
    damage_a_sealed_segment(data)
    assert run("log", "repair", data, "--yes").exit_code == ExitCode.DONE

    people = run("log", "dump", data, "--to-lsn", "4")
    told = dumped(data, "--from-lsn", "2", "--to-lsn", "2")

    assert people.exit_code == ExitCode.DONE
    assert lines_of_frames(people.stdout)[1].split("LSN ")[1].split(" frames damaged")[0] == "2 to 3: 2"
    (gap,) = [each["gap"] for each in told["frames"]]
    assert (gap["first_lsn"], gap["last_lsn"], gap["frames"], gap["reason"]) == (2, 3, 2, "damaged")


def test_a_gap_at_the_end_says_which_offsets_were_given_out(data: Path) -> None:
    cut_the_newest(data)
    assert run("log", "repair", data, "--yes").exit_code == ExitCode.DONE

    told = dumped(data, "--from-lsn", str(LAST_LSN))

    assert told["frames"][0]["gap"]["next_offsets"] == [
        {"topic_number": 1, "partition": 0, "next_offset": 18},
        {"topic_number": 2, "partition": 7, "next_offset": 9},
    ]


def test_a_kind_that_is_skipped_is_shown_by_its_number(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with open_at(data) as log:
        log.append([Draft(kind=200, body=b"of a later version"), Draft(kind=Kind.METADATA, body=b"")])

    told = dumped(data)

    assert [each["kind"] for each in told["frames"]] == ["EPOCH", "KIND200", "METADATA"]


def test_a_log_that_its_owner_has_open_can_be_dumped(data: Path) -> None:
    with open_at(data) as log:
        append_one(log)

        result = run("log", "dump", data, "--from-lsn", str(LAST_LSN + 1))

        assert result.exit_code == ExitCode.DONE
        assert len(lines_of_frames(result.stdout)) == 3


def test_an_error_of_the_disk_half_way_ends_the_object_properly(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> object:
        yield from ()
        raise OSError(errno.EIO, "Input/output error", "data/log/x.seg")

    monkeypatch.setattr(log_dump, "walk_log", fail)

    result = run("log", "dump", data, "--json")

    assert result.exit_code == ExitCode.HALTED
    assert json.loads(result.stdout)["error"]["name"] == "OSError"
    assert "Input/output error" in result.stderr


def test_a_short_name_is_first_lsn_and_generation() -> None:
    assert log_dump.short_name(SegmentName(8, 2)) == "8.2"
