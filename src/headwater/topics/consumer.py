"""A member of a consumer group: reads its share of a topic, and commits how far it came.

PROMISE  At least once: a row that was handed out and not committed is handed out again, here or to whoever holds its
         partition next.  Exactly once for work whose output goes to the log: output and offsets in one transaction
         (`tx.commit_offsets(consumer)`), which is refused as a whole if a partition was lost meanwhile.
         Nothing is committed unless it is asked for, with one exception: a consumer that begins at "latest" commits
         where it began, so that rows which come before its first commit are not passed over when it dies.
ORDER    Rows of a partition come in offset order.  Partitions take turns: the one served longest ago is next.
MANY     Where many partitions have a few rows each, those are gathered by one pass over the log and handed out from
         memory: in turn among themselves, and others after them.  Meanwhile what the group said stands for KNOWN_S,
         which is far less than a lease; after a commit it is asked at once.  They are in the schema of the pass.
LOST     A partition that is lost and regained is read from its committed offset again.  What was handed out of it and
         not committed stays on a list of what was lost until `commit` has named it in a Fenced, or `rewind`.
TABLE    What the log has let go of is handed out from the topic's table, if it has one, before what the log holds.
THREADS  One thread at a time, but `close` may come from any.
NOT HERE Who holds what: groups.py.  Where offsets are stored: the engine.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Protocol, Self

import pyarrow as pa

from headwater.clock import Clock
from headwater.errors import Closed, Fenced, Forgotten, InvalidRequest
from headwater.topics.ahead import Ahead
from headwater.topics.groups import Generation, Lease
from headwater.topics.reading import OlderPart

logger = logging.getLogger("headwater.topics")

BATCH_ROWS = 65_536
RENEW_S_MAX = 1.0
"""A consumer that waits for rows looks this often whether others have come, and sooner if leases are short."""

KNOWN_S = 0.1
KNOWN_TIMES = 10
"""What took long to ask for, because it is much, stands so many times as long; never more than a share of a lease."""
MANY = 8
"""From so many partitions with a few rows each on, their rows are gathered."""
FEW_ROWS = 1_024
"""A partition with more than these to read is read by itself: a long run of its own costs less than a pass."""
VERY_MANY = 64
"""Where more partitions are held, no run is long enough: through a server only so many can be kept on their way."""
ALONE_MAX = 64
"""Where a pass did not help, at most so many reads of one partition come before it is tried again."""


class Coordinator(Protocol):
    """Who of a group reads which partition: groups.GroupCoordinator, or whoever asks it for us."""

    @property
    def clock(self) -> Clock: ...

    @property
    def lease_s(self) -> float: ...

    def join(self, group: str, topic_number: int, partitions: int) -> str: ...

    def poll(
        self, group: str, topic_number: int, member: str, partitions: int, busy: Collection[int] = ()
    ) -> tuple[Lease, ...]: ...

    def leave(self, group: str, topic_number: int, member: str) -> None: ...


class GroupEngine(Protocol):
    """What a consumer needs from whoever owns the log."""

    @property
    def coordinator(self) -> Coordinator: ...

    def partitions_of(self, topic_number: int) -> int:
        """How many partitions the topic has now; UnknownTopic if it was deleted."""
        ...

    def committed(self, group: str, topic_number: int) -> Mapping[int, int]:
        """The next offset to read of each partition that has a committed one.

        It holds every commit whose generation was checked before this call began, so it waits for those in flight:
        otherwise the new holder of a partition would begin before what the old one was just in time to commit.
        """
        ...

    def commit_offsets(self, group: str, topic_number: int, offsets: Mapping[int, tuple[int, Generation]]) -> None:
        """Durable when it returns, all or nothing; Fenced if a generation is not the current lease's."""
        ...

    def first_offset(self, topic_number: int, partition: int) -> int:
        """The first offset that cleanup has left; 0 where what it took is read from the topic's table."""
        ...

    def next_offset(self, topic_number: int, partition: int) -> int:
        """The offset after the last durable row."""
        ...

    def read_rows(
        self, topic_number: int, partition: int, offset: int, rows_max: int
    ) -> tuple[pa.RecordBatch | None, int]:
        """Rows from an offset on, in the current schema (None: none now), and the offset after them.

        That offset may be higher without rows, where compaction has left none.
        """
        ...

    def gather(self, topic_number: int, offsets: Mapping[int, int]) -> Iterable[pa.RecordBatch]:
        """Rows of these partitions, each from its offset on, with `_hw_partition` and `_hw_offset`; of some perhaps
        none."""
        ...

    def older_rows(self, topic_number: int, partition: int, offset: int) -> OlderPart | None:
        """The rows from an offset on that the log has let go of and the topic's table has; None where the log has
        them."""
        ...

    def wait_for_rows(self, lsn: int, timeout_s: float) -> bool:
        """Whether something beyond this LSN is durable; waits for it at most so long."""
        ...

    def durable_lsn(self) -> int: ...


@dataclass(frozen=True)
class Polled:
    """Rows of one partition: those that there are at offsets from `offset` to before `next_offset`."""

    partition: int
    offset: int
    next_offset: int
    batch: pa.RecordBatch


@dataclass
class _Reading:
    """Where this consumer is in a partition that it holds."""

    generation: Generation
    position: int
    """The next offset to hand out: what a commit would commit."""
    committed: int
    """Where it would be read from again: the committed offset, or where it began."""
    first_ever: bool = False
    """It is to begin at the first row, wherever that is: what a table had before it was not missed."""
    older: OlderPart | None = None
    """The table's rows that come next."""


class Consumer:
    """Reads the partitions of a topic that its group gives it.  See docs/consumer-groups.md."""

    def __init__(
        self,
        engine: GroupEngine,
        topic: str,
        topic_number: int,
        group: str,
        *,
        start: Literal["earliest", "latest"] = "earliest",
        batch_rows: int = BATCH_ROWS,
        timeout_s: float | None = None,
    ) -> None:
        """`start` is for partitions without a committed offset.  Iteration ends after `timeout_s` without a row."""
        if start not in ("earliest", "latest"):
            raise InvalidRequest('a consumer starts at "earliest" or at "latest"', start=start)
        self.topic = topic
        self.topic_number = topic_number
        self.group = group
        self.skipped: dict[int, int] = {}
        """By partition: offsets that cleanup removed before they were read here."""
        self._engine = engine
        self._coordinator = engine.coordinator
        self._start = start
        self._batch_rows = _checked_rows(batch_rows)
        self._timeout_s = math.inf if timeout_s is None else timeout_s
        self._renew_s = min(RENEW_S_MAX, self._coordinator.lease_s / 3)
        self._held: dict[int, _Reading] = {}  # the partition served longest ago is first
        self._leases: tuple[Lease, ...] = ()
        self._known_until_s = -math.inf
        self._ahead = Ahead()
        self._alone = self._alone_next = 0
        """Reads of one partition before the next pass: those left, and how many after one that does not help."""
        self._lost: dict[int, tuple[int, Generation]] = {}
        self._asked: dict[int, tuple[int, Generation]] = {}
        self._closed = False
        self._pid = os.getpid()
        self._lock = threading.Lock()  # between a renewal and a close, so that no renewal joins again after it
        self._partitions_at_start = engine.partitions_of(topic_number)
        self.member = self._coordinator.join(group, topic_number, self._partitions_at_start)

    # --------------------------------------------------------------------------------------------------- reading

    def poll(self, max_rows: int | None = None, timeout_s: float = 0.0) -> Polled | None:
        """The next rows of some partition, or None if none came in this time.  It renews the lease.

        Rows count as handed out once this returns: the next `commit` commits them.
        """
        rows_max = self._batch_rows if max_rows is None else _checked_rows(max_rows)
        clock = self._coordinator.clock
        deadline_s = clock.monotonic_s() + timeout_s
        while True:
            lsn = self._engine.durable_lsn()  # read before looking, so that rows which come meanwhile end the wait
            if not self._ahead or clock.monotonic_s() >= self._known_until_s:
                self.heartbeat()
            self._check_open()
            polled = self._next_gathered(rows_max) or self._next_rows(rows_max)
            if polled is not None:
                return polled
            left_s = deadline_s - clock.monotonic_s()
            if left_s <= 0:
                return None
            self._engine.wait_for_rows(lsn, min(left_s, self._renew_s))

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Batches as they come, until the consumer is closed or `timeout_s` has passed without a row."""
        while True:
            try:
                polled = self.poll(timeout_s=self._timeout_s)
            except Closed:
                if self._closed:  # in the loop, or by another thread while this one waited: the end that was asked for
                    return
                raise
            if polled is None:
                return
            yield polled.batch

    def heartbeat(self) -> None:
        """Renew the lease, and take or give up partitions.  `poll` does this; call it where work on rows takes long."""
        clock = self._coordinator.clock
        begun_s = clock.monotonic_s()
        partitions = self._engine.partitions_of(self.topic_number)
        busy = {number for number, reading in self._held.items() if reading.position != reading.committed}
        with self._lock:
            self._check_open()
            leases = self._coordinator.poll(self.group, self.topic_number, self.member, partitions, busy)
        now_s = clock.monotonic_s()
        known_s = max(KNOWN_S, KNOWN_TIMES * (now_s - begun_s))
        self._known_until_s = now_s + min(known_s, self._coordinator.lease_s / 20)
        if leases == self._leases:
            return
        current = {lease.partition: lease.generation for lease in leases}
        for number, reading in list(self._held.items()):
            if current.get(number) == reading.generation:
                continue
            del self._held[number]
            if number in busy:
                self._lost[number] = (reading.position, reading.generation)
        taken = [lease for lease in leases if lease.partition not in self._held]
        # Only if every lease was begun: otherwise the next heartbeat looks again.
        self._leases = leases if self._begin(taken) else ()

    def _begin(self, taken: list[Lease]) -> bool:
        """Find out where to read partitions that were not held before; False if leases were over before that."""
        if not taken:
            return True
        committed = self._engine.committed(self.group, self.topic_number)
        begun: dict[int, _Reading] = {}
        at_the_end: dict[int, tuple[int, Generation]] = {}
        for lease in taken:
            number = lease.partition
            offset = committed.get(number)
            first_ever = False
            # A partition that was added while this consumer ran has no rows from before it: they are all wanted.
            if offset is None and self._start == "latest" and number < self._partitions_at_start:
                offset = self._engine.next_offset(self.topic_number, number)
                at_the_end[number] = (offset, lease.generation)
            elif offset is None:
                offset = self._engine.first_offset(self.topic_number, number)
                first_ever = True
            begun[number] = _Reading(lease.generation, offset, offset, first_ever)
        if at_the_end:
            try:
                self._engine.commit_offsets(self.group, self.topic_number, at_the_end)
            except Fenced:
                # The leases ran out since the heartbeat above.  Nothing was read under them.
                return False
        self._held.update(begun)
        return True

    def _next_gathered(self, rows_max: int) -> Polled | None:
        while (taken := self._ahead.take(rows_max)) is not None:
            number, offset, after, batch = taken
            reading = self._held.get(number)
            if reading is None or reading.position != offset:
                self._ahead.drop(number)  # it was lost since then, or is to be read from elsewhere
                continue
            reading.position = after
            reading.first_ever = False
            self._held[number] = self._held.pop(number)
            return Polled(number, offset, after, batch)
        return None

    def _gather(self, first: int) -> bool:
        """Whether this partition's rows are at hand now, with those of many others."""
        if len(self._held) < MANY or not self._is_for_a_pass(first):
            return False
        if self._alone:
            self._alone -= 1
            return False
        asked = {number: self._held[number].position for number in self._held if self._is_for_a_pass(number)}
        # Before the pass, so that one which fails does not keep this from reading partitions one by one.
        self._alone = self._alone_next = min(2 * self._alone_next + 1, ALONE_MAX)
        if len(asked) < MANY:
            return False
        found = self._ahead.put(asked, self._engine.gather(self.topic_number, asked))
        if len(found) >= MANY:
            self._alone = self._alone_next = 0
        return first in found

    def _is_for_a_pass(self, number: int) -> bool:
        reading = self._held[number]
        unread = self._engine.next_offset(self.topic_number, number) - reading.position
        return reading.older is None and unread > 0 and (unread <= FEW_ROWS or len(self._held) > VERY_MANY)

    def _next_rows(self, rows_max: int) -> Polled | None:
        for number, reading in self._held.items():
            while reading.position < self._engine.next_offset(self.topic_number, number):
                if self._gather(number):
                    return self._next_gathered(rows_max)
                self._skip_what_is_gone(number, reading)
                offset = reading.position
                try:
                    batch, after = self._read(number, reading, rows_max)
                except Forgotten as error:
                    # Cleanup came between the two calls; or the table has let go of it, too, and says where it begins.
                    of_table = int(str(error.facts.get("first_offset", 0)))
                    first = max(of_table, self._engine.first_offset(self.topic_number, number))
                    if first <= offset:
                        raise
                    self._skip_to(number, reading, first, missed=not (reading.first_ever and of_table))
                    continue
                reading.position = after
                reading.first_ever = False
                if batch is not None and batch.num_rows > 0:
                    self._held[number] = self._held.pop(number)  # its turn is over; and so is the loop over them
                    return Polled(number, offset, after, batch)
                if after == offset:
                    break
        return None

    def _read(self, number: int, reading: _Reading, rows_max: int) -> tuple[pa.RecordBatch | None, int]:
        """The next rows: of the table as long as it has what the log has let go of, then of the log."""
        if reading.older is None or reading.older.offset != reading.position:
            reading.older = self._engine.older_rows(self.topic_number, number, reading.position)
        if reading.older is not None:
            taken = reading.older.take(rows_max)
            if taken is not None:
                return taken
            reading.older = None
        return self._engine.read_rows(self.topic_number, number, reading.position, rows_max)

    def _skip_what_is_gone(self, number: int, reading: _Reading) -> None:
        first = self._engine.first_offset(self.topic_number, number)
        if first > reading.position:
            self._skip_to(number, reading, first)

    def _skip_to(self, number: int, reading: _Reading, first: int, *, missed: bool = True) -> None:
        if missed:
            self.skipped[number] = self.skipped.get(number, 0) + first - reading.position
            logger.warning(
                "group %s, topic %s, partition %d: cleanup removed offsets %d to %d before they were read; going on at "
                "%d",
                self.group, self.topic, number, reading.position, first - 1, first,
            )  # fmt: skip
        reading.position = first
        reading.older = None

    def seek(self, partition: int, offset: int) -> None:
        """Read a partition that is held from another offset.  The next `commit` commits that place, too."""
        self._check_open()
        reading = self._held.get(partition)
        if reading is None:
            raise InvalidRequest("this consumer does not hold the partition now", partition=partition)
        end = self._engine.next_offset(self.topic_number, partition)
        if not 0 <= offset <= end:
            raise InvalidRequest("an offset is from 0 to the partition's next", offset=offset, next_offset=end)
        reading.position = offset

    def rewind(self) -> None:
        """Go back to what is committed, in every partition: after a transaction that was not committed."""
        self._check_open()
        # Asked for again, because a transaction whose outcome was not known may have been committed.
        committed = self._engine.committed(self.group, self.topic_number)
        self._lost.clear()
        for number, reading in self._held.items():
            reading.committed = committed.get(number, reading.committed)
            reading.position = reading.committed

    # ------------------------------------------------------------------------------------------------ committing

    def commit(self) -> dict[int, int]:
        """Commit all that was handed out, durably; returns the offset committed of each partition that moved.

        Fenced if a partition was lost with rows handed out and not committed: they will be handed out again by its
        new holder.  The partitions that are still held are committed all the same, or with the next call.
        """
        self._check_open()
        offsets = self._uncommitted()
        refused: Fenced | None = None
        if offsets:
            try:
                self._engine.commit_offsets(self.group, self.topic_number, offsets)
            except Fenced as error:
                refused = error
                self.heartbeat()  # to learn which leases are over
            else:
                self.mark_committed(offsets)
        if self._lost:
            lost, self._lost = self._lost, {}
            raise Fenced(
                "partitions went to other members, or their leases ran out, before what was handed out of them was "
                "committed: it will be handed out again; go on polling",
                group=self.group,
                topic=self.topic,
                partitions=sorted(lost),
            ) from refused
        if refused is not None:
            raise refused
        return {number: offset for number, (offset, _) in offsets.items()}

    def offsets_to_commit(self) -> dict[int, tuple[int, Generation]]:
        """What a transaction commits for this consumer; `mark_committed` follows once it is durable, or `rewind`.

        What was lost is in it with the generation that is over, so that a transaction with output made of rows that
        another member will read again is refused.
        """
        self._check_open()
        self._asked = {**self._uncommitted(), **self._lost}
        return dict(self._asked)

    def mark_committed(self, offsets: Mapping[int, tuple[int, Generation]] | None = None) -> None:
        """These became durable; without an argument, those that `offsets_to_commit` gave last."""
        if offsets is None:
            offsets = self._asked
        for number, (offset, generation) in offsets.items():
            reading = self._held.get(number)
            if reading is not None and reading.generation == generation:
                reading.committed = offset
        self._known_until_s = -math.inf

    def _uncommitted(self) -> dict[int, tuple[int, Generation]]:
        return {
            number: (reading.position, reading.generation)
            for number, reading in sorted(self._held.items())
            if reading.position != reading.committed
        }

    # --------------------------------------------------------------------------------------------------- looking

    @property
    def assignment(self) -> tuple[int, ...]:
        """The partitions that this consumer holds, as of its last poll."""
        return tuple(sorted(self._held))

    def position(self, partition: int) -> int | None:
        """The offset that is handed out next; None if the partition is not held."""
        reading = self._held.get(partition)
        return None if reading is None else reading.position

    def lag(self) -> dict[int, int]:
        """Offsets of each partition held that are durable and not committed by this group.  It renews the lease."""
        self.heartbeat()
        lags = {}
        for number, reading in sorted(self._held.items()):
            begin = max(reading.committed, self._engine.first_offset(self.topic_number, number))
            lags[number] = self._engine.next_offset(self.topic_number, number) - begin
        return lags

    def total_lag(self) -> int:
        """How many rows this member has not read yet, over its partitions."""
        return sum(self.lag().values())

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"partitions {list(self.assignment)}"
        return f"<Consumer of {self.topic!r} in group {self.group!r}: {state}>"

    # --------------------------------------------------------------------------------------------------- closing

    def close(self) -> None:
        """Leave the group; what was not committed goes to the others.  Twice is nothing."""
        if os.getpid() != self._pid:
            return  # a forked child: the member is its parent's
        with self._lock:
            if not self._closed:
                self._closed = True
                self._coordinator.leave(self.group, self.topic_number, self.member)

    def _check_open(self) -> None:
        if self._closed or os.getpid() != self._pid:
            raise Closed("this consumer is closed: make another", group=self.group, topic=self.topic)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _checked_rows(rows: int) -> int:
    if rows < 1:
        raise InvalidRequest("a batch has at least one row", rows=rows)
    return rows
