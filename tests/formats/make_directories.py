"""Makes the golden data directories: what earlier versions of Headwater left on a disk, each packed in one file.

    python -m tests.formats.make_directories        makes those that are not there; one that is there stays as it is

Each is written by the sources of a commit of this repository, taken out of its history, through write_directory.py
(write_frames.py for the time before topics).  Beside it is a JSON file with what that version acknowledged.  `lock`
files are left out: their text is a note of who held them.

PROMISE  Never made again: a later version must open what an earlier one wrote, not what it would write today.
NOT HERE Single files, byte by byte: make_v1*.py.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DIRECTORIES = HERE / "directories"
SIZE_BYTES_MAX = 40_000


class Past(NamedTuple):
    """A state of the repository that wrote a directory."""

    name: str
    commit: str
    """Where a part was finished; the formats of that day."""
    program: str = "write_directory.py"
    state: str = "closed"


PASTS = (
    Past("frames", "32edb78", "write_frames.py"),
    Past("topics", "b325f7b"),
    Past("topics-killed", "b325f7b", state="killed"),
    Past("landing", "cb885c7"),
    Past("audit", "078b33b"),
    Past("objects", "c6c8df2"),
    Past("server", "33bf65d"),
    Past("server-killed", "33bf65d", state="killed"),
)


def make(past: Past, directory: Path) -> list[Path]:
    packed, facts = directory / f"{past.name}.tar.gz", directory / f"{past.name}.json"
    if packed.exists():
        return []
    with tempfile.TemporaryDirectory(prefix="headwater-past-") as home:
        sources, written = Path(home) / "sources", Path(home) / "written"
        for each in (sources, written):
            each.mkdir()
        archive = subprocess.run(["git", "archive", past.commit, "src"], cwd=ROOT, capture_output=True, check=True)
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as taken:
            taken.extractall(sources, filter="data")
        told = subprocess.run(
            [sys.executable, str(HERE / past.program), str(written), past.state],
            env={**os.environ, "PYTHONPATH": str(sources / "src")},
            capture_output=True,
            text=True,
            check=True,
        )
        content = pack(written)
    assert len(content) <= SIZE_BYTES_MAX, f"{past.name} has {len(content)} bytes"
    packed.write_bytes(content)
    facts.write_text(
        json.dumps({"commit": past.commit, "state": past.state, **json.loads(told.stdout)}, indent=1) + "\n"
    )
    return [packed, facts]


def pack(directory: Path) -> bytes:
    """Files by name, without owners and times."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for path in sorted(directory.rglob("*")):
            if path.is_file() and path.name != "lock":
                entry = tarfile.TarInfo(str(path.relative_to(directory)))
                entry.size = path.stat().st_size
                tar.addfile(entry, io.BytesIO(path.read_bytes()))
    return gzip.compress(plain.getvalue(), mtime=0)


def unpack(name: str, directory: Path) -> dict[str, object]:
    """The directory as it was left; what was acknowledged."""
    with tarfile.open(DIRECTORIES / f"{name}.tar.gz") as tar:
        tar.extractall(directory, filter="data")
    facts: dict[str, object] = json.loads((DIRECTORIES / f"{name}.json").read_text())
    return facts


if __name__ == "__main__":
    DIRECTORIES.mkdir(exist_ok=True)
    for each in PASTS:
        for path in make(each, DIRECTORIES):
            print(path.name, path.stat().st_size)
