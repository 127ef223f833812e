"""What a process holds, by the kernel's own account."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

LOOK_S = 0.1
MIB = 1 << 20


def resident_bytes(pid: int) -> int:
    return _of(pid, "VmRSS") * 1024


def threads_of(pid: int) -> int:
    return _of(pid, "Threads")


def descriptors_of(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _of(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise LookupError(name)


class Watched:
    """The largest that a process was while the block ran."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="memory", daemon=True)
        self.before_bytes = resident_bytes(pid)
        self.peak_bytes = self.before_bytes

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.is_set():
            try:
                self.peak_bytes = max(self.peak_bytes, resident_bytes(self._pid))
            except (OSError, LookupError):
                return  # It has died: whoever asks for its exit code is told.
            time.sleep(LOOK_S)
