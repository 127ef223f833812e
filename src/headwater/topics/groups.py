"""Who of a group reads which partition: leases with a fencing generation.

PROMISE  A partition of a topic has at most one current lease in a group.  A lease is current from the poll that
         gave it until its holder gives it up in a poll of its own, leaves, or has let it run out and somebody's
         poll has noticed.  Only the current lease's generation passes `check`.
         A generation is (log epoch, counter): for one partition of a group it only ever rises, through restarts
         too, because every owner of the log has a higher epoch than the one before.
         Partitions are spread evenly within one, and as few as possible change hands.
ORDER    A partition that is to move stays with its holder until that one has polled: it never has two readers.  A
         holder that is `busy` with rows which it has not committed may keep it through some more polls, but no
         longer than one lease, so that a member that never commits cannot keep others waiting for ever.
LATE     A lease runs out on the monotonic clock.  That alone refuses nothing: as long as nobody has noticed, nobody
         else can have begun, and a slow member may still commit.  Its next poll begins with new generations.
NOT HERE Committed offsets: they are frames of the log.  Reading: consumer.py.  Members and leases are in memory and
         die with the owner of the log.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headwater.clock import Clock
from headwater.errors import Fenced


class Generation(NamedTuple):
    """Which lease of a partition: a later one is greater."""

    epoch: int
    counter: int


@dataclass(frozen=True)
class Lease:
    """The right to read a partition for a group, and to commit its offsets."""

    partition: int
    generation: Generation


@dataclass(frozen=True)
class MemberStatus:
    """A member of a group, for people who look."""

    member: str
    partitions: tuple[int, ...]
    lease_left_s: float
    """Below zero: the lease has run out, and nobody has taken over yet."""


def plan_assignment(members: Sequence[str], partitions: Sequence[int], held: Mapping[int, str]) -> dict[int, str]:
    """Who should hold which partition: even within one, with as few moves from `held` as that allows.

    The same answer for the same sets, in whatever order they are given.
    """
    if not members:
        return {}
    names = sorted(set(members))
    numbers = sorted(set(partitions))
    holds: dict[str, list[int]] = {name: [] for name in names}
    free = []
    for number in numbers:
        holder = held.get(number)
        if holder in holds:
            holds[holder].append(number)
        else:
            free.append(number)

    # Some may have one more than the others.  Whoever holds most is among them: only there does it save a move.
    fair, more = divmod(len(numbers), len(names))
    quotas = {}
    for rank, name in enumerate(sorted(names, key=lambda name: -len(holds[name]))):
        quotas[name] = fair + 1 if rank < more else fair
        free.extend(holds[name][quotas[name] :])
        del holds[name][quotas[name] :]

    free.sort(reverse=True)
    for name in names:
        while len(holds[name]) < quotas[name]:
            holds[name].append(free.pop())
    return {number: name for name in names for number in holds[name]}


@dataclass
class _Member:
    deadline_s: float
    planned: set[int] = field(default_factory=set)
    leases: dict[int, Lease] = field(default_factory=dict)
    answer: tuple[Lease, ...] = ()
    """`leases` as poll returns them, made again only when they change."""


@dataclass
class _Circle:
    """The members of one group on one topic."""

    partitions: int
    members: dict[str, _Member] = field(default_factory=dict)
    holders: dict[int, str] = field(default_factory=dict)
    give_up_by_s: dict[int, float] = field(default_factory=dict)
    """Partitions that should move, whose holder was busy when it was first asked."""
    planned: bool = False

    def add(self, name: str, deadline_s: float) -> None:
        self.members[name] = _Member(deadline_s)
        self.planned = False

    def remove(self, name: str) -> None:
        for partition in self.members.pop(name).leases:
            del self.holders[partition]
            self.give_up_by_s.pop(partition, None)
        self.planned = False

    def plan(self) -> None:
        for member in self.members.values():
            member.planned.clear()
        for partition, name in plan_assignment(list(self.members), range(self.partitions), self.holders).items():
            self.members[name].planned.add(partition)
            if self.holders.get(partition) == name:
                self.give_up_by_s.pop(partition, None)
        self.planned = True


class GroupCoordinator:
    """The leases of every group, in the memory of the process that owns the log.  Safe to use from many threads."""

    def __init__(self, clock: Clock, lease_s: float, epoch: Callable[[], int]) -> None:
        """`epoch` gives the epoch under which this process claimed the log, without blocking."""
        self.clock = clock
        self.lease_s = lease_s
        self._epoch = epoch
        self._counter = 0
        self._circles: dict[tuple[str, int], _Circle] = {}
        self._lock = threading.Lock()  # never held across I/O

    def join(self, group: str, topic_number: int, partitions: int) -> str:
        """A new member, which holds nothing until it polls.  Its name was never given before, in no life of the log."""
        with self._lock:
            now_s = self.clock.monotonic_s()
            circle = self._circle(group, topic_number, partitions, now_s)
            # The epoch is in the name: a member of an earlier life that polls again must not be taken for this one.
            name = "member-{}-{}".format(*self._next())
            circle.add(name, now_s + self.lease_s)
            return name

    def poll(
        self, group: str, topic_number: int, member: str, partitions: int, busy: Collection[int] = ()
    ) -> tuple[Lease, ...]:
        """Renew the member's lease, and say what it holds now, in the order of the partitions.

        Here it gives up what others are to have (later, where it is `busy`: see ORDER), and takes what is free and
        meant for it.  `partitions` is how many the topic has now.  A member that is not known, or no longer, joins.
        """
        with self._lock:
            now_s = self.clock.monotonic_s()
            circle = self._circle(group, topic_number, partitions, now_s)
            if member not in circle.members:
                circle.add(member, now_s + self.lease_s)
            if not circle.planned:
                circle.plan()
            polled = circle.members[member]
            polled.deadline_s = now_s + self.lease_s
            if polled.leases.keys() != polled.planned:
                self._settle(circle, member, polled, busy, now_s)
            return polled.answer

    def leave(self, group: str, topic_number: int, member: str) -> None:
        """Give up everything, now.  A member that is not known has nothing to give up."""
        with self._lock:
            circle = self._circles.get((group, topic_number))
            if circle is None or member not in circle.members:
                return
            circle.remove(member)
            if not circle.members:
                del self._circles[group, topic_number]

    def check(self, group: str, topic_number: int, partition: int, generation: Generation) -> None:
        """Raise Fenced unless this is the generation of the partition's current lease.

        Called where a commit is formed, in one critical section with it.
        """
        with self._lock:
            circle = self._circles.get((group, topic_number))
            holder = None if circle is None else circle.holders.get(partition)
            current = None
            if circle is not None and holder is not None:
                current = circle.members[holder].leases[partition].generation
            if current == generation:
                return
        raise Fenced(
            "this lease of the partition is over: what was read under it goes to whoever holds the partition now, "
            "from the committed offset",
            group=group,
            partition=partition,
            generation=tuple(generation),
            current=None if current is None else tuple(current),
        )

    def members(self, group: str, topic_number: int) -> tuple[MemberStatus, ...]:
        """Who is in the group now.  Looking changes nothing: a lease that has run out is shown as it is."""
        with self._lock:
            now_s = self.clock.monotonic_s()
            circle = self._circles.get((group, topic_number))
            if circle is None:
                return ()
            return tuple(
                MemberStatus(name, tuple(sorted(member.leases)), member.deadline_s - now_s)
                for name, member in sorted(circle.members.items())
            )

    def _circle(self, group: str, topic_number: int, partitions: int, now_s: float) -> _Circle:
        """The group's circle as it is at this moment: without those who are late, with the partitions there are."""
        circle = self._circles.setdefault((group, topic_number), _Circle(partitions))
        for name in [name for name, member in circle.members.items() if member.deadline_s <= now_s]:
            circle.remove(name)
        if partitions > circle.partitions:  # never fewer: a topic does not shrink, and a caller may have looked early
            circle.partitions = partitions
            circle.planned = False
        return circle

    def _settle(self, circle: _Circle, name: str, member: _Member, busy: Collection[int], now_s: float) -> None:
        for partition in member.leases.keys() - member.planned:
            if partition in busy and now_s < circle.give_up_by_s.setdefault(partition, now_s + self.lease_s):
                continue
            del member.leases[partition]
            del circle.holders[partition]
            circle.give_up_by_s.pop(partition, None)
        for partition in sorted(member.planned - circle.holders.keys()):
            member.leases[partition] = Lease(partition, self._next())
            circle.holders[partition] = name
        member.answer = tuple(member.leases[partition] for partition in sorted(member.leases))

    def _next(self) -> Generation:
        self._counter += 1
        return Generation(self._epoch(), self._counter)
