"""A log of frames as the first version wrote it, before there were topics: written by the version on the path.

    python write_frames.py DIRECTORY       with that version's sources before all else on PYTHONPATH

Three segments; the last was not closed.  It says on stdout, as JSON, what was acknowledged.

NOT HERE  topics: write_directory.py.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from headwater.clock import SystemClock
from headwater.frames.frame import Kind
from headwater.log import Draft, open_log
from headwater.settings import LogSettings
from headwater.storage.disk import DiskFiles


def write(directory: Path) -> dict[str, Any]:
    files: Any = DiskFiles(directory / "data")
    log = open_log(files, "log", settings=LogSettings(reserve_bytes=0), clock=SystemClock())
    told: list[list[object]] = []
    for number in range(6):
        bodies = [f"body {number}.{part}".encode() for part in (0, 1)]
        receipt = log.append(
            [
                Draft(kind=Kind.DATA, topic_number=1, partition=0, row_count=2, body=bodies[0]),
                Draft(kind=Kind.DATA, topic_number=2, partition=number, row_count=1, body=bodies[1]),
            ]
        )
        told += [[receipt.first_lsn, bodies[0].decode()], [receipt.first_lsn + 1, bodies[1].decode()]]
        if number in {1, 3}:
            log.roll()
    return {"frames": told}


if __name__ == "__main__":
    print(json.dumps(write(Path(sys.argv[1]))), flush=True)
    os._exit(0)  # as a kill would: nothing is said to the log
