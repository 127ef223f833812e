"""Runs a part in a process of its own, with a limit of time, and takes what it wrote.

The process (`bench.peers._measuring`) leads a group: servers that it starts are of the group, and whatever is left of
the group when the part ends is killed, so that neither a JVM nor a leak touches the next part.  Its data lies in a
directory that is removed then.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench._place import GIB, place
from bench.peers._part import Part, Size
from bench.peers._record import Taken

DRAIN_S = 5.0


def tell(what: str) -> None:
    """Progress, on stderr: stdout is for the report."""
    print(f"{time.strftime('%H:%M:%S', time.gmtime())} {what}", file=sys.stderr, flush=True)


def run_part(part: Part, size: Size, limit_s: float) -> Taken:
    """What the part measured; it has failed if it ended otherwise than well, or not in time."""
    if limit_s <= 0:
        return Taken(part, {}, {}, 0.0, "not begun: the time of the whole run was over")
    begun = time.monotonic()
    with place(1 * GIB) as directory:
        file = directory / "written.json"
        why = _in_a_process(part, size, limit_s, file)
        written: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    seconds = time.monotonic() - begun
    failed = written.get("failed") or why
    tell(f"part {part.name}: {failed or 'done'}, {seconds:,.0f} s")
    return Taken(part, written.get("values", {}), written.get("settings", {}), seconds, failed)


def _in_a_process(part: Part, size: Size, limit_s: float, file: Path) -> str:
    """Why the process did not end well, or nothing."""
    command = [sys.executable, "-m", "bench.peers._measuring", part.module, size.name, str(file)]
    data = file.parent / "data"
    data.mkdir()
    process = subprocess.Popen(
        command,
        env={**os.environ, "HEADWATER_BENCH_DIRECTORY": str(data)},
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        start_new_session=True,
    )
    try:
        code = process.wait(limit_s)
        return "" if code == 0 else f"its process ended with {code}"
    except subprocess.TimeoutExpired:
        return f"it was not done in {limit_s:,.0f} s"
    finally:
        _kill_group(process)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """The part's process and all that it started; they are gone when this returns, or were asked as hard as can be."""
    end_s = time.monotonic() + DRAIN_S
    while time.monotonic() < end_s:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            break
        process.poll()
        time.sleep(0.05)
    process.wait()
