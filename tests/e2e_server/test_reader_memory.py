"""What readers hold is not of the memory that is bounded for what callers send (server/memory.py)."""

from __future__ import annotations

from pathlib import Path

import headwater as hw
from tests.servers.headwater import ServerProcess

MB = 1_000_000
READERS = 24


def test_readers_that_wait_with_large_frames_use_up_nothing_of_what_arrow_may_take(tmp_path: Path) -> None:
    # Enough for a frame to be taken in, and far less than the readers' frames together.
    bounded = {"MIMALLOC_RESERVE_OS_MEMORY": "131072KiB"}
    with ServerProcess(tmp_path / "data", environment=bounded) as server, hw.connect(server.address) as log:
        topic = log.topic("large", schema={"number": int, "text": str})
        for first in range(0, 60, 30):
            topic.append([{"number": number, "text": "x" * MB} for number in range(first, first + 30)])

        readers = [iter(topic.read()) for _ in range(READERS)]
        found = [next(each).column("number").to_pylist() for each in readers]
        topic.append({"number": 60, "text": "late"})
        for numbers, reader in zip(found, readers, strict=True):
            for batch in reader:
                numbers.extend(batch.column("number").to_pylist())

        assert found == [list(range(60))] * READERS
