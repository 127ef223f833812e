"""What a process holds in memory, and what lies in a directory: read from /proc and from the disk.

NOT HERE  Starting or ending processes: whoever measures one does.
"""

from __future__ import annotations

import re
from importlib.metadata import distribution, requires
from pathlib import Path

import headwater


def resident_mb(pid: int) -> float:
    """Of a process and of all that it started, in megabytes; what they share is counted once for each."""
    total = 0.0
    for each in [pid, *_children(pid)]:
        status = Path(f"/proc/{each}/status").read_text()
        kib = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")]
        total += sum(kib) * 1024 / 1e6
    return total


def _children(pid: int) -> list[int]:
    found = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, listed.read_text().split()):
            found += [child, *_children(child)]
    return found


def on_disk_mb(path: Path) -> float:
    """What a file, or all files below a directory, take of the disk, in megabytes: blocks, not lengths."""
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return sum(each.stat().st_blocks * 512 for each in files) / 1e6


def installed_mb(name: str) -> float:
    """A package of ours and all that it cannot do without, its extras left out, as they lie on the disk."""
    total = on_disk_mb(Path(headwater.__file__).parent)
    for each in _needed(name, set()) - {name}:
        files = distribution(each).files or ()
        total += sum(on_disk_mb(path) for file in files if (path := Path(str(file.locate()))).is_file())
    return total


def _needed(name: str, known: set[str]) -> set[str]:
    known.add(name)
    for line in requires(name) or ():
        needed = re.match(r"[A-Za-z0-9._-]+", line)
        if ";" not in line and needed is not None and needed[0].lower() not in known:
            _needed(needed[0].lower(), known)
    return known
