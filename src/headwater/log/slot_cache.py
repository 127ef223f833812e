"""The slots that were walked or written last, kept in memory.

WHY      Whoever reads what a walk has just fetched, whoever follows the log in its owner's process, and the merging of
         small slots ask the store for none.
PROMISE  Only slots that are in the log are in it.  The oldest go first once there are more than `bytes_max`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from headwater.storage.objects import Objects


class SlotCache:
    """Reads of slots, from memory where they are there."""

    def __init__(self, objects: Objects, bytes_max: int) -> None:
        self._objects = objects
        self._bytes_max = bytes_max
        self._bytes = 0
        self._slots: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, name: str, data: bytes) -> None:
        with self._lock:
            self._bytes += len(data) - len(self._slots.get(name, b""))
            self._slots[name] = data
            while self._bytes > self._bytes_max:
                _, gone = self._slots.popitem(last=False)
                self._bytes -= len(gone)

    def get_range(self, name: str, start: int, size: int) -> bytes:
        data = self._slots.get(name)
        return data[start : start + size] if data is not None else self._objects.get_range(name, start, size)
