"""Change events of Debezium into a keyed topic: upserts and deletes in their order, each once.

    events  →  changes (debezium_events.py)  →  without those taken in before  →  one write: rows and positions

A source is a table of a connector, for one topic; its position is stored as every source's (`set_source`), by the write
that brings its rows.

WHAT IS NEW  of a table, by its stored position:
    after it            it is taken in
    at it               it is, unless its digest is among those that were: one WAL record, one statement, may be several
                        events (COPY, a change of the key)
    before it           it was taken in before, and is passed over
    a row of a snapshot has the position of its snapshot, as all of them have.  Of a snapshot that is being taken in, a
                        row is passed over if its digest is among the last SEEN_MAX; of one that changes have followed
                        already, always; of another one than before, never.
PROMISE  Rows and position are one write: no crash and no repeat brings a change twice or loses one, as long as the
         events of a table come in their order, which Debezium keeps.  Two senders of one table cannot both bring a
         change: a write is made on condition that nobody has written to the topic since the position was read, and
         whoever finds that somebody has looks again.
LIMIT    A request is a write.  A transaction of the source is not: its events may come in several requests, and those
         of several tables go to several topics.
         A snapshot row that is sent again after more than SEEN_MAX others is upserted again, to the same state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Protocol

from headwater.clock import Clock, SystemClock
from headwater.errors import Conflict, InvalidRequest, OffsetMismatch, RefusedRow, RowsRefused, UnknownTopic
from headwater.log.index import partition_key
from headwater.metadata.operations import TopicRecord
from headwater.topics.answers import Appended, CommittedTransaction, OffsetRange, SourcePosition
from headwater.topics.appending import OnRejected, Prepared
from headwater.topics.debezium_events import DIGEST_BYTES, Change, Position, Unreadable, read_change
from headwater.topics.json_values import from_json, plain
from headwater.topics.names import OTHER_NAME_BYTES_MAX
from headwater.topics.positions import time_of
from headwater.topics.requests import GroupOffset, Identity, PartitionRows, SourceAt
from headwater.topics.schema import unpack_schema

SEEN_MAX = 4_096
"""Digests that are kept with a position."""
ATTEMPTS_MAX = 64
"""How often somebody else may be quicker."""
_VERSION = 1


class TakesChanges(Protocol):
    """What is asked of an engine: the owner's own, or a client's."""

    def prepare_rows(
        self, name: str, rows: object, *, partition: int | None = None, rejected: OnRejected = "refuse"
    ) -> Prepared: ...

    def prepare_keys(self, name: str, keys: object) -> Prepared: ...

    def commit_transaction(
        self,
        rows: list[PartitionRows],
        *,
        groups: Sequence[GroupOffset],
        sources: Sequence[SourceAt],
        identity: Identity | None,
        expected: dict[int, int] | None = None,
    ) -> tuple[CommittedTransaction, bool]: ...

    def source_position(self, name: str) -> SourcePosition | None: ...

    def offsets(self, number: int) -> dict[int, OffsetRange]: ...

    def durable_lsn(self) -> int: ...


@dataclass(frozen=True)
class DebeziumAppended(Appended):
    """Changes that are durable; `rows` counts upserts and deletes."""

    duplicates: int = 0
    """Events that had been taken in before."""
    tombstones: int = 0


@dataclass
class SourceState:
    """How far a table's changes were taken in."""

    at: Position | None = None
    """Of the last change that was no row of a snapshot."""
    origin: str = ""
    snapshot_at: Position | None = None
    snapshot: bool = False
    """The last event was a row of a snapshot."""
    seen: dict[bytes, None] = field(default_factory=dict)
    """Digests of events at this position, the oldest first."""
    changed: bool = False

    def takes(self, change: Change) -> bool:
        """Whether this change is new; it counts as taken in from now on."""
        if change.snapshot:
            return self._takes_snapshot_row(change)
        if self.at is not None and not self.snapshot:
            if change.origin != self.origin:
                raise Conflict(
                    "the source is another server than before, and positions of the two cannot be compared: once its "
                    "rows are known to follow, go on with another source=",
                    source=change.table,
                    was=self.origin,
                    now=change.origin,
                )
            if change.at < self.at or (change.at == self.at and change.digest in self.seen):
                return False
        if change.at != self.at or self.snapshot:
            self.seen.clear()
        self.at, self.origin, self.snapshot = change.at, change.origin, False
        self._see(change)
        return True

    def _takes_snapshot_row(self, change: Change) -> bool:
        if change.at == self.snapshot_at and (not self.snapshot or change.digest in self.seen):
            return False
        if change.at != self.snapshot_at or not self.snapshot:
            self.seen.clear()
        self.snapshot_at, self.snapshot = change.at, True
        self._see(change)
        return True

    def _see(self, change: Change) -> None:
        self.changed = True
        self.seen[change.digest] = None
        while len(self.seen) > SEEN_MAX:
            del self.seen[next(iter(self.seen))]

    def stored(self) -> dict[str, Any]:
        return {
            "debezium": _VERSION,
            "at": None if self.at is None else list(self.at),
            "origin": self.origin,
            "snapshot_at": None if self.snapshot_at is None else list(self.snapshot_at),
            "snapshot": self.snapshot,
            "seen": b"".join(self.seen),
        }


def read_state(name: str, found: SourcePosition | None) -> SourceState:
    if found is None:
        return SourceState()
    position = found.position
    if not isinstance(position, Mapping) or position.get("debezium") != _VERSION:
        raise Conflict(f"the source {name!r} was set by somebody else: go on with another source=", source=name)
    seen = position["seen"]
    return SourceState(
        at=None if position["at"] is None else tuple(position["at"]),
        origin=position["origin"],
        snapshot_at=None if position["snapshot_at"] is None else tuple(position["snapshot_at"]),
        snapshot=position["snapshot"],
        seen=dict.fromkeys(seen[at : at + DIGEST_BYTES] for at in range(0, len(seen), DIGEST_BYTES)),
    )


def append_debezium(
    engine: TakesChanges,
    topic: TopicRecord,
    events: Sequence[object],
    *,
    source: str | None = None,
    by_time: bool = False,
    rejected: OnRejected = "refuse",
    clock: Clock | None = None,
) -> DebeziumAppended:
    """Take in these events; durable when it returns.  `source` stands in place of the connector's and table's names."""
    if not topic.key:
        raise InvalidRequest(f"{topic.name!r} has no key, so changes cannot be applied to it", topic=topic.name)
    changes = _read(topic, events, by_time)
    tombstones = len(events) - len(changes)
    names = {change.table: source_name(topic, change.table if source is None else source) for change in changes}
    for _ in range(ATTEMPTS_MAX):
        # Before the position: what is written in between is then noticed.
        expected = {partition_key(topic.number, each): at.next for each, at in engine.offsets(topic.number).items()}
        found = {name: engine.source_position(name) for name in sorted(set(names.values()))}
        states = {name: read_state(name, position) for name, position in found.items()}
        fresh = [change for change in changes if states[names[change.table]].takes(change)]
        duplicates = len(changes) - len(fresh)
        if not fresh:
            return _nothing(engine, topic, found, duplicates, tombstones, clock or SystemClock())
        prepared = _prepare(engine, topic, fresh, len(events), rejected)
        sources = [SourceAt(name, state.stored(), None) for name, state in states.items() if state.changed]
        try:
            committed, _ = engine.commit_transaction(
                prepared.rows, groups=(), sources=sources, identity=None, expected=expected
            )
        except OffsetMismatch:
            continue
        return DebeziumAppended(
            topic=topic.name,
            rows=prepared.accepted,
            first_lsn=committed.first_lsn,
            lsn=committed.lsn,
            offsets=committed.offsets.get(topic.name, {}),
            time=committed.time,
            rejected=prepared.rejected,
            duplicates=duplicates,
            tombstones=tombstones,
        )
    raise Conflict("others write to this topic all the time: leave it to one sender of changes", topic=topic.name)


def source_name(topic: TopicRecord, source: str) -> str:
    """Of this incarnation of the topic: one that is made again begins again."""
    name = f"debezium:{topic.topic_id.hex()[:12]}:{source}"
    if len(name.encode(errors="replace")) <= OTHER_NAME_BYTES_MAX:
        return name
    digest = blake2b(source.encode(errors="replace"), digest_size=16).hexdigest()
    return f"debezium:{topic.topic_id.hex()[:12]}:{digest}"


def _read(topic: TopicRecord, events: Sequence[object], by_time: bool) -> list[Change]:
    found: list[Change] = []
    refused: list[RefusedRow] = []
    for number, event in enumerate(events):
        try:
            change = read_change(event, number, topic.key, by_time=by_time)
        except Unreadable as why:
            refused.append(RefusedRow(number, str(why)))
            continue
        if change is not None:
            found.append(change)
    if refused:
        raise RowsRefused(topic.name, refused, len(events))
    return found


def _prepare(
    engine: TakesChanges, topic: TopicRecord, changes: Sequence[Change], events: int, rejected: OnRejected
) -> Prepared:
    """The rows, in the order of the changes: runs of upserts and of deletes by turns."""
    types = {each.name: each.type for each in unpack_schema(topic.schemas[-1])}
    runs: list[tuple[bool, list[dict[str, object]], list[int]]] = []
    for change in changes:
        for deletes, row in ((True, change.delete), (False, change.upsert)):
            if row is None:
                continue
            if not runs or runs[-1][0] != deletes:
                runs.append((deletes, [], []))
            read = {name: from_json(each, types[name]) if name in types else plain(each) for name, each in row.items()}
            runs[-1][1].append(read)
            runs[-1][2].append(change.number)
    rows: list[PartitionRows] = []
    accepted = kept = 0
    for deletes, run, numbers in runs:
        try:
            prepared = (
                engine.prepare_keys(topic.name, run)
                if deletes
                else engine.prepare_rows(topic.name, run, rejected=rejected)
            )
        except RowsRefused as error:
            refused = [RefusedRow(numbers[each.number], each.reason) for each in error.refused]
            raise RowsRefused(topic.name, refused, events, error.refused_count) from error
        if any(each.topic.name == topic.name and each.topic.topic_id != topic.topic_id for each in prepared.rows):
            raise UnknownTopic("the topic was deleted", topic=topic.name)
        rows += prepared.rows
        accepted += prepared.accepted
        kept += prepared.rejected
    return Prepared(rows, accepted, kept)


def _nothing(
    engine: TakesChanges,
    topic: TopicRecord,
    found: Mapping[str, SourcePosition | None],
    duplicates: int,
    tombstones: int,
    clock: Clock,
) -> DebeziumAppended:
    """All of it had been taken in: where that was."""
    known = [position for position in found.values() if position is not None]
    lsn = max((position.lsn for position in known), default=engine.durable_lsn())
    time = max((position.time for position in known), default=time_of(clock.now_us()))
    return DebeziumAppended(
        topic.name,
        rows=0,
        first_lsn=lsn + 1,
        lsn=lsn,
        offsets={},
        time=time,
        duplicate=duplicates > 0,
        duplicates=duplicates,
        tombstones=tombstones,
    )
