"""Mutated inputs of every sort against a real server with tokens, while honest clients go on with their work.

HEADWATER_HOSTILE_INPUTS says how many, HEADWATER_HOSTILE_SEED which.  A finding prints its number; to see it alone:

    python -m tests.hostile.target DIRECTORY
    python -m tests.hostile.attacker DIRECTORY/target.json --seed SEED --first NUMBER --count 1
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from tests.hostile.attacker import save_target
from tests.hostile.honest import Honest
from tests.hostile.memory import MIB, Watched, descriptors_of, resident_bytes, threads_of
from tests.hostile.target import HONEST, Attacked, attacked

INPUTS = int(os.environ.get("HEADWATER_HOSTILE_INPUTS", "20000"))
SEED = int(os.environ.get("HEADWATER_HOSTILE_SEED", "0"))
ATTACKERS = 2
GROWN_BYTES_MAX = 768 * MIB
"""What the server may hold more than before at any moment: eight inputs at a time, each of which becomes up to 24 MiB
in several copies, and what its allocators keep of that."""
LEFT_BYTES_MAX = 512 * MIB
"""What it may hold more than before when all is over."""
APPEND_P99_S = 1.0


@pytest.mark.timeout(INPUTS / 20 + 300)
def test_hostile_inputs_harm_nobody(tmp_path: Path) -> None:
    with attacked(tmp_path) as found:
        target_file = tmp_path / "target.json"
        save_target(found.target, target_file)
        pid = found.server.pid
        threads, descriptors = threads_of(pid), descriptors_of(pid)
        with Honest(found.server.address, found.honest_token, HONEST) as honest, Watched(pid) as memory:
            reports = attack(target_file)

        told(reports, honest, memory, found)
        findings = [each for report in reports for each in report["findings"]]
        assert not findings, "\n".join([*findings, found.server.output()[-2_000:]])
        assert sum(report["inputs"] for report in reports) == INPUTS
        assert found.server.is_ready() and found.server.pid == pid
        check_honest(honest)
        assert memory.peak_bytes - memory.before_bytes < GROWN_BYTES_MAX
        assert resident_bytes(pid) - memory.before_bytes < LEFT_BYTES_MAX
        assert threads_of(pid) < threads + 100 and descriptors_of(pid) < descriptors + 100
        assert_no_secrets(found)
        assert found.server.stop() == 0

    with hw.open(tmp_path / "data") as log:
        assert log.topic(HONEST).read().to_arrow().column("number").to_pylist() == honest.acknowledged
    verified = subprocess.run(
        [sys.executable, "-m", "headwater", "log", "verify", str(tmp_path / "data")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr


def attack(target_file: Path) -> list[dict[str, Any]]:
    """The attackers, each a process with its share of the numbers; what each has to say at its end."""
    share = INPUTS // ATTACKERS
    running = []
    for number in range(ATTACKERS):
        count = share if number else INPUTS - share * (ATTACKERS - 1)
        first = 0 if not number else INPUTS - share * (ATTACKERS - number)
        command = [sys.executable, "-m", "tests.hostile.attacker", str(target_file)]
        command += ["--seed", str(SEED), "--first", str(first), "--count", str(count)]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    return [json.loads(each.communicate()[0].splitlines()[-1]) for each in running]


def check_honest(honest: Honest) -> None:
    assert not honest.errors, honest.errors
    assert len(honest.acknowledged) > 50
    assert honest.seen == honest.acknowledged
    assert honest.p99_s() < APPEND_P99_S


def assert_no_secrets(found: Attacked) -> None:
    output = found.server.output()
    for token in (found.target.token, found.honest_token, *found.target.dead_tokens[:2]):
        assert token not in output, "a token is in the server's log"
    assert "Traceback" not in output, output[output.index("Traceback") - 500 :][:3_000]


def told(reports: list[dict[str, Any]], honest: Honest, memory: Watched, found: Attacked) -> None:
    outcomes: Counter[str] = Counter()
    for report in reports:
        outcomes.update(report["outcomes"])
    slowest = max(reports, key=lambda report: report["slowest_s"])
    inputs, seconds = sum(report["inputs"] for report in reports), max(report["seconds"] for report in reports)
    print(
        f"\n{inputs} inputs in {seconds:.0f} s; "
        f"the slowest {slowest['slowest_s']:.1f} s (number {slowest['slowest']}); "
        f"memory {memory.before_bytes // MIB} MiB before, {memory.peak_bytes // MIB} at most, "
        f"{resident_bytes(found.server.pid) // MIB} after; "
        f"{len(honest.acknowledged)} honest rows, append p99 {honest.p99_s() * 1e3:.0f} ms"
    )
    for name, count in sorted(outcomes.items()):
        print(f"  {name:<40} {count:>8}")
