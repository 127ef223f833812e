"""`headwater demo chaos` as a shell starts it: a short schedule, an interruption, and calls that need another."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SEED = 150
"""Its five steps: land, kill after commit, kill the owner, a race, a rollback."""
HEADWATER = [sys.executable, "-m", "headwater", "demo", "chaos"]


def _processes_of(directory: Path) -> list[str]:
    """The processes whose arguments name this directory."""
    found = subprocess.run(["ps", "-ewwo", "pid,args"], capture_output=True, text=True, check=True).stdout
    return [line for line in found.splitlines() if str(directory) in line and "headwater.demo" in line]


@pytest.mark.timeout(280)
def test_a_short_run_passes_and_leaves_no_process(tmp_path: Path) -> None:
    data = tmp_path / "data"

    done = subprocess.run(
        [*HEADWATER, "--seed", str(SEED), "--steps", "5", "--data", str(data), "--json"],
        capture_output=True,
        text=True,
        timeout=270,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["command"] == "demo chaos" and told["passed"] and told["seed"] == SEED and not told["findings"]
    assert told["acknowledged"] > 1_000 and told["in_tables"] >= told["acknowledged"]
    assert told["lost"] == told["doubled"] == told["altered"] == told["never_sent"] == 0
    counts = told["counts"]
    assert counts["lander_kills"] == counts["owner_kills"] == counts["races"] == counts["rollbacks"] == 1
    assert counts["halts"] == 1 and counts["landings"] >= 4
    assert told["damage_found"]
    assert not _processes_of(data)
    audited = subprocess.run(
        [sys.executable, "-m", "headwater", "audit", "--data", str(data)], capture_output=True, text=True, timeout=120
    )
    assert audited.returncode == 0, audited.stdout


@pytest.mark.timeout(200)
def test_ctrl_c_ends_it_with_130_and_leaves_neither_processes_nor_files(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    child = subprocess.Popen(
        [*HEADWATER, "--seed", str(SEED)], env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stderr is not None
        until = time.monotonic() + 120
        for line in child.stderr:
            assert time.monotonic() < until
            if "a process each" in line:
                break
        assert len(_processes_of(tmp_path)) >= 4

        child.send_signal(signal.SIGINT)
        said = child.communicate(timeout=60)[1]
    finally:
        child.kill()

    assert child.returncode == 130, said
    assert "its processes have ended" in said
    assert not _processes_of(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_directory_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "something").touch()

    done = subprocess.run([*HEADWATER, "--data", str(tmp_path)], capture_output=True, text=True, timeout=60)

    assert done.returncode == 2
    assert "is not empty" in done.stderr


@pytest.mark.parametrize(("missing", "named"), [("pyspark", "headwater[spark]"), ("java", "Java 17")])
def test_what_the_other_side_needs_is_named_before_anything_is_begun(missing: str, named: str, tmp_path: Path) -> None:
    # An import of a module that is None in sys.modules fails as one that is not installed does.
    hide = "import sys, importlib.util as u; found = u.find_spec; "
    hide += "u.find_spec = lambda name, *more: None if name == 'pyspark' else found(name, *more); "
    run = "from headwater.cli.main import app; sys.argv[0] = 'headwater'; app()"
    program = (hide if missing == "pyspark" else "import sys; ") + run
    environment = {**os.environ, "TMPDIR": str(tmp_path), **({"PATH": ""} if missing == "java" else {})}

    done = subprocess.run(
        [sys.executable, "-c", program, "demo", "chaos", "--beside-spark"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 2, done.stderr
    assert named in done.stderr
    assert not list(tmp_path.iterdir())
