"""The groups of a server, for consumers here: leases are asked for, and what else a poll needs comes with them.

One message asks for all of it: the leases, how many partitions there are, and how far each that is held can be read.

OFTEN    A consumer that polls without pause need not ask each time.  While rows that it was told of are on their way to
         it, what it was told stands for KNOWN_S, which is far less than a lease: so what others did, and what a cleanup
         took, it learns that much later.  After a commit it asks at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass

from headwater.client.connection import Connection
from headwater.clock import Clock
from headwater.protocol.calls import JOIN_GROUP, LEAVE_GROUP, POLL_GROUP, JoinGroup, LeaveGroup, PollGroup
from headwater.topics.answers import OffsetRange
from headwater.topics.consumer import KNOWN_S
from headwater.topics.groups import Generation, Lease


@dataclass
class Known:
    """What the last poll of a topic said."""

    partitions: int
    offsets: dict[int, OffsetRange]
    durable_lsn: int


@dataclass(frozen=True)
class _Told:
    """What a member was last told, and when."""

    at_s: float
    leases: tuple[Lease, ...]
    busy: frozenset[int]


class ClientCoordinator:
    """groups.GroupCoordinator, behind a server."""

    def __init__(
        self, connection: Connection, id_of: Callable[[int], bytes], standing: Callable[[bytes], list[tuple[int, int]]]
    ) -> None:
        """`standing` says of which partitions of a topic streams of rows are open, and at which offset each stands."""
        self._connection = connection
        self._id_of = id_of
        self._standing = standing
        self._told: dict[str, _Told] = {}
        """By member."""
        self._lock = threading.Lock()
        self.known: dict[int, Known] = {}
        """By topic number."""

    @property
    def clock(self) -> Clock:
        return self._connection.clock

    @property
    def lease_s(self) -> float:
        return self._connection.hello.lease_s

    def join(self, group: str, topic_number: int, partitions: int) -> str:
        joined = self._connection.call(JOIN_GROUP, JoinGroup(group, self._id_of(topic_number)))
        return joined.member

    def poll(
        self, group: str, topic_number: int, member: str, partitions: int, busy: Collection[int] = ()
    ) -> tuple[Lease, ...]:
        told = self._told.get(member)
        if told is not None and told.busy <= frozenset(busy) and self._stands(topic_number, told):
            return told.leases
        request = PollGroup(group, self._id_of(topic_number), member, tuple(sorted(busy)))
        polled = self._connection.call(POLL_GROUP, request)
        with self._lock:
            before = self.known.get(topic_number)
            offsets = {**before.offsets, **polled.offsets} if before is not None else dict(polled.offsets)
            self.known[topic_number] = Known(polled.partitions, offsets, polled.durable_lsn)
        leases = tuple(Lease(each.partition, Generation(each.epoch, each.counter)) for each in polled.leases)
        self._told[member] = _Told(self.clock.monotonic_s(), leases, frozenset(busy))
        return leases

    def ask_again(self) -> None:
        """Offsets were committed: what comes next is begun by what is true then."""
        self._told.clear()

    def _stands(self, topic_number: int, told: _Told) -> bool:
        """Whether what was told is new enough, and rows that it spoke of are still to come."""
        known = self.known[topic_number]
        if self.clock.monotonic_s() - told.at_s > min(KNOWN_S, self.lease_s / 20):
            return False
        held = {lease.partition for lease in told.leases}
        open_streams = self._standing(self._id_of(topic_number))
        return any(number in held and at < known.offsets[number].next for number, at in open_streams)

    def leave(self, group: str, topic_number: int, member: str) -> None:
        self._told.pop(member, None)
        self._connection.call(LEAVE_GROUP, LeaveGroup(group, self._id_of(topic_number), member))
