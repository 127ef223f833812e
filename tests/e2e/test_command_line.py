"""The command as a process: what a shell, a script and a pipe see of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.cli.logs import LAST_LSN, append_one, damage_a_sealed_segment, make_log, open_at

HEADWATER = [sys.executable, "-W", "error", "-m", "headwater"]


def headwater(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HEADWATER, *map(str, arguments)], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
    )


def test_verify_passes_and_fails_as_a_process(tmp_path: Path) -> None:
    data = make_log(tmp_path / "data")
    healthy = headwater("log", "verify", data)
    damage_a_sealed_segment(data)

    damaged = headwater("log", "verify", data)

    assert (healthy.returncode, damaged.returncode) == (0, 1)
    assert healthy.stdout.splitlines()[-1].startswith("PASS")
    assert damaged.stdout.splitlines()[-1].startswith("FAIL")
    assert (healthy.stderr, damaged.stderr) == ("", "")


def test_a_damaged_log_is_dumped_refused_without_yes_then_mended(tmp_path: Path) -> None:
    data = damage_a_sealed_segment(make_log(tmp_path / "data"))

    codes = [
        headwater("log", "dump", data).returncode,
        headwater("log", "repair", data).returncode,
        headwater("log", "repair", data, "--dry-run").returncode,
        headwater("log", "repair", data, "--yes").returncode,
        headwater("log", "verify", data).returncode,
    ]

    assert codes == [3, 2, 0, 0, 0]


def test_a_repair_beside_an_owner_in_another_process_names_it(tmp_path: Path) -> None:
    data = make_log(tmp_path / "data")
    with open_at(data) as owner:
        append_one(owner)
        damage_a_sealed_segment(data)

        done = headwater("log", "repair", data, "--yes")

    assert done.returncode == 75
    assert f"pid {os.getpid()}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_pipe_that_is_closed_early_ends_a_dump_without_a_word(tmp_path: Path) -> None:
    data = make_log(tmp_path / "data")
    with open_at(data) as log:
        for _ in range(2_000):
            append_one(log)

    process = subprocess.Popen([*HEADWATER, "log", "dump", str(data)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    complaint = process.stderr.read()
    process.stderr.close()

    assert process.wait(timeout=60) == 75
    assert complaint == b""


@pytest.mark.parametrize("arguments", [["verify"], ["verify", "--json"], ["dump"], ["dump", "--json"]], ids=" ".join)
def test_output_that_nobody_reads_is_no_success_and_no_traceback(tmp_path: Path, arguments: list[str]) -> None:
    data = make_log(tmp_path / "data")
    # Buffered, as it is for most people: what is written last meets the closed pipe last.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    reader, writer = os.pipe()
    os.close(reader)

    done = subprocess.run(
        [*HEADWATER, "log", *arguments, str(data)], stdout=writer, stderr=subprocess.PIPE, env=environment, timeout=60
    )
    os.close(writer)

    assert done.returncode == 75
    assert done.stderr == b""


def test_the_same_log_is_dumped_as_one_json_object(tmp_path: Path) -> None:
    data = make_log(tmp_path / "data")

    done = headwater("log", "dump", data, "--json")

    told = json.loads(done.stdout)
    assert (done.returncode, told["version"], len(told["frames"])) == (0, 1, LAST_LSN)
    assert done.stderr == ""
