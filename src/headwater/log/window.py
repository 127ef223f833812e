"""The slots that an owner has in flight: at most W, counted from the lowest that is not confirmed.

PROMISE  Slots are given out in order and acknowledged in order, whatever order the store answers in.
         Once one of them turned out to hold somebody else's bytes, it and all after it are nobody's: none of them is
         acknowledged, and none is given out any more.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from headwater.log.asks import Asking, Done, Get, PutIfAbsent, Refused
from headwater.storage.objects import Found

T = TypeVar("T")


def write_slot(name: str, data: bytes) -> Asking[bool]:
    """Write a slot: True once it holds these bytes, False where it holds others.  It is asked again, with the same
    bytes, for as long as nobody knows: that the name is taken is believed only once it has been read back."""
    while True:
        reply = yield PutIfAbsent(name, data)
        if isinstance(reply, Done):
            return True
        if isinstance(reply, Refused):
            held = yield Get(name)
            if isinstance(held, Found):
                return held.data == data


class Window(Generic[T]):
    """What is in flight, by slot."""

    def __init__(self, first_slot: int, size: int) -> None:
        self._size = size
        self._next = first_slot
        self._lowest = first_slot
        self._waiting: dict[int, T] = {}
        self._confirmed: set[int] = set()
        self.foreign: int | None = None
        """The lowest slot that was found to hold somebody else's bytes."""

    @property
    def next_slot(self) -> int:
        return self._next

    @property
    def lowest_unconfirmed(self) -> int:
        return self._lowest

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    @property
    def has_room(self) -> bool:
        return self.foreign is None and self._next < self._lowest + self._size

    def issue(self, what: T) -> int:
        """The slot for this commit."""
        assert self.has_room
        slot = self._next
        self._next += 1
        self._waiting[slot] = what
        return slot

    def settle(self, slot: int, ours: bool) -> list[T]:
        """A slot is known to hold our bytes, or others'; returns what is acknowledged by it, in order."""
        if not ours:
            self.foreign = slot if self.foreign is None else min(self.foreign, slot)
            return []
        self._confirmed.add(slot)
        acknowledged = []
        while self._lowest in self._confirmed and (self.foreign is None or self._lowest < self.foreign):
            self._confirmed.remove(self._lowest)
            acknowledged.append(self._waiting.pop(self._lowest))
            self._lowest += 1
        return acknowledged

    def give_up(self) -> list[T]:
        """What is not acknowledged and never will be, in order."""
        left = [self._waiting[slot] for slot in sorted(self._waiting)]
        self._waiting.clear()
        return left
