"""Protocols on an object store as generators: each yields what it asks of the store and is sent the reply.

So one piece of code is carried out against a real store by whoever waits for it, and by a scheduler that loses
replies, applies requests late and lets other owners act between any two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeVar

from headwater.storage.objects import Changed, Exists, Found, Objects, StoreUnsure
from headwater.storage.store_patience import FIRST_PAUSE_S, PAUSE_S_MAX, TRIES

T = TypeVar("T")


@dataclass(frozen=True)
class Get:
    name: str


@dataclass(frozen=True)
class PutIfAbsent:
    name: str
    data: bytes


@dataclass(frozen=True)
class PutIfMatch:
    name: str
    data: bytes
    etag: str


@dataclass(frozen=True)
class Done:
    """The put was done; what the name holds now has this etag."""

    etag: str


@dataclass(frozen=True)
class Absent:
    """The name holds nothing."""


@dataclass(frozen=True)
class Refused:
    """The condition of the put did not hold."""


@dataclass(frozen=True)
class Unsure:
    """The store did not say what became of it."""

    why: str = ""


Ask = Get | PutIfAbsent | PutIfMatch
Reply = Found | Done | Absent | Refused | Unsure
Asking = Generator[Ask, Reply, T]


class Waits:
    """For one thing that is asked again and again: waits a little longer each time, and in the end no more."""

    def __init__(self, pause: Callable[[float], object], *, tries: int = TRIES) -> None:
        self._pause = pause
        self._left = tries
        self._wait_s = FIRST_PAUSE_S

    def unsure(self, why: object) -> None:
        """The store said nothing once more; StoreUnsure where that is enough."""
        self._left -= 1
        if self._left <= 0:
            raise StoreUnsure(f"asked again and again: {why}")
        self._pause(self._wait_s)
        self._wait_s = min(self._wait_s * 2, PAUSE_S_MAX)


def ask(objects: Objects, question: Ask) -> Reply:
    """Ask once."""
    try:
        if isinstance(question, Get):
            return objects.get(question.name)
        if isinstance(question, PutIfAbsent):
            return Done(objects.put_if_absent(question.name, question.data))
        return Done(objects.put_if_match(question.name, question.data, question.etag))
    except FileNotFoundError:
        return Absent()
    except (Exists, Changed):
        return Refused()
    except StoreUnsure as error:
        return Unsure(str(error))


def carry_out(asking: Asking[T], objects: Objects, unsure: Callable[[object], None]) -> T:
    """Ask the store until it has come to an end.  `unsure` is told of each reply that says nothing: it waits a little,
    or raises where it has waited long enough."""
    try:
        question = next(asking)
        while True:
            reply = ask(objects, question)
            if isinstance(reply, Unsure):
                unsure(reply.why)
            question = asking.send(reply)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        asking.close()
