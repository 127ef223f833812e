"""A producer whose requests are applied once, however often they are sent.

A producer is known by its name.  Opening it begins its next epoch, and whoever held an earlier one is Fenced.  Its
requests are numbered; the numbers go on over epochs, so that a program that was killed can send its last request again,
with the same number, and is given the first answer if that was applied.

ORDER    A producer's requests are applied in the order of their numbers, one at a time.
         A request that is refused uses no number.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from headwater.errors import InvalidRequest
from headwater.topics.answers import Appended
from headwater.topics.names import checked_name, whole_number
from headwater.topics.requests import Identity

if TYPE_CHECKING:
    from headwater.topics.verbs import Verbs


class Producer:
    """One epoch of a producer; safe for threads, which take turns."""

    def __init__(self, engine: Verbs, name: str) -> None:
        self._engine = engine
        self.name = checked_name(name, "producer")
        registered = engine.register_producer(name)
        self.producer_id = registered.producer_id
        self.epoch = registered.epoch
        self.next_sequence = registered.next_sequence
        """The number of the next request."""
        self.turn = threading.Lock()
        """Held while a request is on its way: numbers are given out in the order in which requests are applied."""

    def identity(self, sequence: int | None, key: bytes = b"") -> Identity:
        """What a request is remembered by: this producer, and the sequence number, or the next one."""
        number = self.next_sequence if sequence is None else whole_number(sequence, "a sequence number")
        if not 0 <= number < 1 << 63:
            raise InvalidRequest("a sequence number is at least 0, and below 2^63", sequence=number)
        return Identity(self.producer_id, self.epoch, number, key)

    def applied(self, identity: Identity) -> None:
        """A request with this number was applied, now or before."""
        self.next_sequence = max(self.next_sequence, identity.sequence + 1)

    def append(
        self, topic: str, rows: object, *, partition: int | None = None, sequence: int | None = None
    ) -> Appended:
        """Append rows once: a repeat of a number gets its first answer."""
        number = self._engine.topic(topic).number
        with self.turn:
            identity = self.identity(sequence)
            appended = self._engine.append(number, rows, partition=partition, identity=identity)
            if appended.rows or appended.rejected:
                self.applied(identity)
            return appended

    def delete(self, topic: str, keys: object, *, sequence: int | None = None) -> Appended:
        """Delete keys of a keyed topic, once."""
        number = self._engine.topic(topic).number
        with self.turn:
            identity = self.identity(sequence)
            appended = self._engine.delete_keys(number, keys, identity=identity)
            if appended.rows:
                self.applied(identity)
            return appended

    def __repr__(self) -> str:
        return f"Producer({self.name!r}, epoch {self.epoch}, next sequence {self.next_sequence})"
