"""Rows that go out (DoGet), and how reads are planned (GetFlightInfo).

PROMISE  Only what is durable goes out.  A follower is given rows as soon as they are.
         A reader that takes nothing holds one piece of at most PIECE_BYTES and the frame that it is of, and nothing
         else: no lock, no pin, no queue.
END      A read ends when it has given what was asked for; one that follows, when its reader has gone.  Whether it has
         is looked up every GONE_LOOK_S while there is nothing to give.
NOT HERE Frames as they lie in the log: frames.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import msgspec
import pyarrow as pa

from headwater.metadata.operations import TopicRecord
from headwater.protocol.codec import pack
from headwater.protocol.places import AtLsn, AtOffset, AtOffsets, AtWord, place_of
from headwater.protocol.streams import ReadPartition, ReadPartitions, ReadPlan, ReadRows, ReadTo
from headwater.server.access import Principal
from headwater.server.served import Served
from headwater.topics.batches import OFFSET_COLUMN
from headwater.topics.reading import Wanted

PIECE_BYTES = 4 * 1024 * 1024
GONE_LOOK_S = 0.5
LOOKS_MAX = 20
"""So often a partition's next rows are taken to be on their way; then it is asked for good whether they are there."""

Gone = Callable[[], bool]
"""Whether the reader has gone."""


class Outgoing(NamedTuple):
    """What a reader is sent: batches of this schema, each with its metadata, if it has any."""

    schema: pa.Schema
    batches: Iterator[tuple[pa.RecordBatch, bytes | None]]


class Plan(NamedTuple):
    """How rows are read: each ticket is good for a reader of its own."""

    schema: pa.Schema
    tickets: list[ReadRows]


# Rows -----------------------------------------------------------------------------------------------------------------


def read_rows(served: Served, principal: Principal, ticket: ReadRows, gone: Gone) -> Outgoing:
    topic = served.by_id(principal, ticket.topic, "read")
    wanted = replace(wanted_of(ticket), gone=gone, wait=served.arrivals.wait)
    rows = served.engine.read(topic.number, wanted)
    return Outgoing(rows.schema, _given(served, principal, rows))


def read_partitions(served: Served, principal: Principal, ticket: ReadPartitions) -> Outgoing:
    topic = served.by_id(principal, ticket.topic, "read")
    found = served.engine.gather(topic.number, ticket.offsets)
    return Outgoing(found.schema, _given(served, principal, found))


def _given(
    served: Served, principal: Principal, rows: Iterable[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch, bytes | None]]:
    with served.streams.opened(principal):
        for batch in rows:
            for piece in pieces(batch):
                served.streams.moved(principal, piece.nbytes)
                yield piece, None


def wanted_of(ticket: ReadRows) -> Wanted:
    return Wanted(
        start=place_of(ticket.start),
        stop=None if ticket.stop is None else place_of(ticket.stop),
        limit=ticket.limit,
        batch_rows=ticket.batch_rows,
        follow=ticket.follow,
        timeout_s=ticket.timeout_s,
        columns=ticket.columns,
        partition=ticket.partition,
        system_columns=ticket.system_columns,
        up_to_lsn=ticket.up_to_lsn,
    )


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch, or slices of it, each small enough to be sent at once."""
    size = batch.nbytes
    if size <= PIECE_BYTES:
        yield batch
        return
    rows = max(1, batch.num_rows * PIECE_BYTES // size)
    for at in range(0, batch.num_rows, rows):
        yield batch.slice(at, rows)


# A partition, for a consumer ------------------------------------------------------------------------------------------


def read_partition(served: Served, principal: Principal, ticket: ReadPartition, gone: Gone) -> Outgoing:
    topic = served.by_id(principal, ticket.topic, "read")
    wanted = _following(ticket, ticket.offset)
    # Made once here, so that a partition that is not there is refused before anything is sent.
    rows = served.engine.read(topic.number, wanted)
    return Outgoing(rows.schema, _followed(served, principal, topic, ticket, rows.schema, gone))


def _followed(
    served: Served, principal: Principal, topic: TopicRecord, ticket: ReadPartition, schema: pa.Schema, gone: Gone
) -> Iterator[tuple[pa.RecordBatch, bytes | None]]:
    """It ends where the topic's schema is another one than that with which it began: the reader begins again."""
    engine, number, partition = served.engine, topic.number, ticket.partition
    offset = ticket.offset
    looks = 0
    with served.streams.opened(principal):
        while not gone():
            # Looked up before, so that rows which come meanwhile end the wait.
            lsn = engine.durable_lsn()
            if engine.next_offset(number, partition) <= offset:
                # Nothing of this partition; of the topic's others perhaps, so they are waited for together.
                while not gone() and not served.arrivals.wait(number, lsn, GONE_LOOK_S):
                    pass
                continue
            begun = offset
            for batch in engine.read(number, _following(ticket, offset)):
                if not batch.schema.equals(schema):
                    return
                for piece in pieces(batch):
                    following: int = piece.column(OFFSET_COLUMN)[-1].as_py() + 1
                    served.streams.moved(principal, piece.nbytes)
                    yield piece, pack(ReadTo(offset, following))
                    offset = following
            if offset > begun:
                looks = 0
                continue
            looks += 1
            if looks < LOOKS_MAX and served.arrivals.wait(number, lsn, GONE_LOOK_S):
                # The next offset moves before its rows can be read: most often they are on their way.
                continue
            looks = 0
            found, following = engine.read_rows(number, partition, offset, 1)
            if found is None and following > offset:
                # What was there is gone by compaction.
                yield pa.RecordBatch.from_pylist([], schema=schema), pack(ReadTo(offset, following))
                offset = following


def _following(ticket: ReadPartition, offset: int) -> Wanted:
    """With the column of the offset: a reader that takes a part of a batch knows where it is."""
    return Wanted(
        start=offset, partition=ticket.partition, batch_rows=ticket.batch_rows, system_columns=[OFFSET_COLUMN]
    )


# Plans ----------------------------------------------------------------------------------------------------------------


def plan_rows(served: Served, principal: Principal, ticket: ReadRows) -> Plan:
    """A read as it would be now: the ticket says which rows, so that it gives the same at every use."""
    topic = served.by_id(principal, ticket.topic, "read")
    durable = served.engine.durable_lsn()
    rows = served.engine.read(topic.number, wanted_of(ticket))
    if ticket.start == AtWord("latest"):
        ticket = msgspec.structs.replace(ticket, start=AtLsn(durable + 1))
    if not ticket.follow and ticket.up_to_lsn is None:
        ticket = msgspec.structs.replace(ticket, up_to_lsn=durable)
    return Plan(rows.schema, [ticket])


def plan_parts(served: Served, principal: Principal, plan: ReadPlan) -> Plan:
    """The same for several readers side by side: the rows of each ticket lie in the log before those of the next."""
    whole = ReadRows(plan.topic, plan.start, plan.stop, columns=plan.columns, system_columns=plan.system_columns)
    found = plan_rows(served, principal, whole)
    ticket = found.tickets[0]
    by_offset = isinstance(ticket.start, AtOffset | AtOffsets) or isinstance(ticket.stop, AtOffset | AtOffsets)
    if by_offset:
        # Offsets of several partitions are no place in the log: one reader takes all of it.
        return found
    assert ticket.up_to_lsn is not None
    first = ticket.start.lsn if isinstance(ticket.start, AtLsn) else 1
    last = ticket.up_to_lsn
    if isinstance(ticket.stop, AtLsn):
        last = min(last, ticket.stop.lsn - 1)
    begins = [each.first_lsn for each in served.engine.shard.log.segments() if first < each.first_lsn <= last]
    tickets = []
    for begin, end in ranges(first, last, begins, plan.endpoints_min):
        start = ticket.start if begin == first else AtLsn(begin)
        tickets.append(msgspec.structs.replace(ticket, start=start, up_to_lsn=end))
    return Plan(found.schema, tickets or found.tickets)


def ranges(first: int, last: int, begins: Sequence[int], at_least: int) -> list[tuple[int, int]]:
    """LSNs from `first` to `last` in ranges that begin at `begins`, or in `at_least` even ones where that is more."""
    count = max(last - first + 1, 0)
    if len(begins) + 1 < at_least and count > 1:
        parts = min(at_least, count)
        begins = [first + count * each // parts for each in range(1, parts)]
    edges = [first, *begins, last + 1]
    return [(begin, end - 1) for begin, end in pairwise(edges) if end > begin]
