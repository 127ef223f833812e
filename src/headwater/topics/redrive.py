"""Rejected rows that fit after all: they are appended once each, however often it is tried.

    <topic>.rejected    a row that did not fit, at (partition, offset)
    <topic>.redriven    which of those were appended later: written in one write with the rows themselves

A rejected row is taken as it was sent, if it fits the topic's present schema, or in a corrected form that names it by
its `_hw_partition` and `_hw_offset`.

PROMISE  A rejected row is appended at most once, whatever crashes and whoever else tries at the same time: the write
         that appends it says so in `<topic>.redriven`, on condition that nothing was added there since it was read.
         No value is guessed: what was kept as text and was none (bytes, times) is read back by the column's type, and
         where the column holds text itself the row stays rejected, for what was sent is not known.
COUNTS   Rows sent = accepted + rejected - redriven, for a row that was redriven was rejected first and accepted later.
NOT HERE Whether a row fits: rows.py.  What is kept of a rejected row: rejected.py.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import InvalidRequest, OffsetMismatch, TooLarge
from headwater.log.index import partition_key
from headwater.metadata.operations import TopicRecord
from headwater.topics.names import rejected_name, whole_number
from headwater.topics.reading import Wanted
from headwater.topics.rejected import OTHER, REJECTED_SCHEMA, kept_as_text
from headwater.topics.rows import RowReader
from headwater.topics.schema import unpack_schema
from headwater.topics.topic import NewTopic
from headwater.topics.verbs import Verbs

REDRIVEN_SUFFIX = ".redriven"
REDRIVEN_SCHEMA = pa.schema(
    [
        pa.field("rejected_id", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("corrected", pa.bool_(), nullable=False),
    ]
)
WRITE_ROWS_MAX = 5_000
REASONS_MAX = 1_000
PARTITION, OFFSET = "_hw_partition", "_hw_offset"


class StillRejected(NamedTuple):
    """A rejected row that does not fit now either."""

    partition: int
    offset: int
    reason: str


class Counts(NamedTuple):
    """What became of the rows that were sent to a topic: accepted + rejected - redriven of them."""

    accepted: int
    """Appended, redriven ones too."""
    rejected: int
    """Ever put into `<topic>.rejected`."""
    redriven: int
    """Of those, appended later."""


@dataclass
class Redriven:
    """What became of the rejected rows of a topic."""

    topic: str
    dry_run: bool = False
    fitted: int = 0
    """Appended now; of a dry run, they would be."""
    still_rejected: int = 0
    already_taken: int = 0
    """Appended before."""
    left: int = 0
    """Rejected rows that have not been appended, looked at now or not."""
    writes: int = 0
    refused: list[StillRejected] = field(default_factory=list)
    """The first thousand that do not fit, and why."""


class _Given(NamedTuple):
    """A rejected row in the form in which it is to be appended."""

    partition: int
    offset: int
    row: object
    reason: str = ""
    """Why it cannot be, where that is known before its schema is asked."""


def redrive(
    engine: Verbs,
    topic: TopicRecord,
    *,
    corrected: Iterable[Mapping[str, Any]] | None = None,
    dry_run: bool = False,
) -> Redriven:
    """Append the topic's rejected rows that fit now, or these corrected ones."""
    told = Redriven(topic.name, dry_run)
    rejected = _rejected_topic(engine, topic)
    if rejected is None:
        for _ in corrected or ():
            raise InvalidRequest(f"{topic.name!r} has no rejected rows", topic=topic.name)
        return told
    redriving = _Redriving(engine, topic, rejected, told, corrected is not None)
    given = _as_sent(engine, topic, rejected) if corrected is None else _as_corrected(engine, rejected, corrected)
    while chunk := list(islice(given, WRITE_ROWS_MAX)):
        redriving.take(chunk)
    told.left = _appended(engine, rejected) - redriving.taken.count
    return told


def counts(engine: Verbs, topic: TopicRecord) -> Counts:
    """What became of the rows that were ever sent to a topic."""
    rejected = _rejected_topic(engine, topic)
    if rejected is None:
        return Counts(_appended(engine, topic), 0, 0)
    redriven = _Taken(engine, topic, rejected)
    return Counts(_appended(engine, topic), _appended(engine, rejected), redriven.count)


def _appended(engine: Verbs, topic: TopicRecord) -> int:
    return sum(engine.next_offset(topic.number, partition) for partition in range(topic.partitions))


def _rejected_topic(engine: Verbs, topic: TopicRecord) -> TopicRecord | None:
    """The topic that keeps the rejected rows; somebody's own of that name is none."""
    found = engine.topic_named(rejected_name(topic.name))
    return found if found is not None and unpack_schema(found.schemas[-1]).equals(REJECTED_SCHEMA) else None


# ----------------------------------------------------------------------------------------------- what was taken


class _Taken:
    """The rejected rows that were appended before, as `<topic>.redriven` has them."""

    def __init__(self, engine: Verbs, topic: TopicRecord, rejected: TopicRecord) -> None:
        self._engine = engine
        self._rejected_id = rejected.topic_id.hex()
        self.name = topic.name + REDRIVEN_SUFFIX
        self.known = 0
        """How many of its rows have been read."""
        self._offsets: dict[int, set[int]] = {}
        self.look()

    def look(self) -> None:
        """Read what was added."""
        kept = self._engine.topic_named(self.name)
        if kept is None:
            return
        if not unpack_schema(kept.schemas[-1]).equals(REDRIVEN_SCHEMA):
            raise InvalidRequest(f"the topic {self.name!r} is not the one of redriven rows: rename yours")
        rows = self._engine.read(kept.number, Wanted(start=self.known, partition=0)).to_arrow()
        self.known += rows.num_rows
        own = rows.filter(pc.equal(rows["rejected_id"], self._rejected_id))
        for partition in pc.unique(own["partition"]).to_pylist():
            added = own.filter(pc.equal(own["partition"], partition))["offset"].to_pylist()
            self._offsets.setdefault(partition, set()).update(added)

    @property
    def count(self) -> int:
        return sum(len(each) for each in self._offsets.values())

    def has(self, partition: int, offset: int) -> bool:
        return offset in self._offsets.get(partition, ())

    def rows(self, given: Sequence[_Given], *, corrected: bool) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [
                pa.array([self._rejected_id] * len(given), pa.string()),
                pa.array([each.partition for each in given], pa.int32()),
                pa.array([each.offset for each in given], pa.int64()),
                pa.array([corrected] * len(given), pa.bool_()),
            ],
            schema=REDRIVEN_SCHEMA,
        )


class _Redriving:
    """One run."""

    def __init__(
        self, engine: Verbs, topic: TopicRecord, rejected: TopicRecord, told: Redriven, corrected: bool
    ) -> None:
        self._engine = engine
        self._topic = topic
        self._told = told
        self._corrected = corrected
        self._reader = RowReader(unpack_schema(topic.schemas[-1]))
        self.taken = _Taken(engine, topic, rejected)

    def take(self, chunk: Sequence[_Given]) -> None:
        """Append those of these rows that fit and were not taken before, as one write, or as two where that is more
        than a write holds."""
        while True:
            given = [each for each in chunk if not self.taken.has(each.partition, each.offset)]
            fitting, batch, refused = self._fitting(given)
            try:
                if fitting and not self._told.dry_run:
                    self._write(fitting, batch)
                break
            except OffsetMismatch:
                # Somebody else has redriven rows since they were read: perhaps these.
                self.taken.look()
            except TooLarge:
                if len(given) == 1:
                    raise
                self.take(chunk[: len(chunk) // 2])
                self.take(chunk[len(chunk) // 2 :])
                return
        self._told.already_taken += len(chunk) - len(given)
        self._told.fitted += len(fitting)
        self._told.still_rejected += len(refused)
        self._told.refused += refused[: REASONS_MAX - len(self._told.refused)]

    def _fitting(self, given: Sequence[_Given]) -> tuple[list[_Given], pa.RecordBatch, list[StillRejected]]:
        """Those that fit, their rows, and those that do not."""
        refused = [StillRejected(each.partition, each.offset, each.reason) for each in given if each.reason]
        asked = [each for each in given if not each.reason]
        accepted = self._reader.read([each.row for each in asked], keep_rejected=True)
        if accepted.rejected is None:
            return asked, accepted.batch, refused
        reasons = dict(
            zip(accepted.rejected["number"].to_pylist(), accepted.rejected["reason"].to_pylist(), strict=True)
        )
        refused += [StillRejected(asked[at].partition, asked[at].offset, reason) for at, reason in reasons.items()]
        return [each for at, each in enumerate(asked) if at not in reasons], accepted.batch, refused

    def _write(self, fitting: Sequence[_Given], batch: pa.RecordBatch) -> None:
        engine = self._engine
        kept = engine.create_topics([NewTopic(self.taken.name, REDRIVEN_SCHEMA, partitions=1)])[0]
        taken = self.taken.rows(fitting, corrected=self._corrected)
        rows = [
            *engine.prepare_rows(self._topic.name, batch).rows,
            *engine.prepare_rows(kept.name, taken, partition=0).rows,
        ]
        engine.commit_transaction(
            rows, groups=(), sources=(), identity=None, expected={partition_key(kept.number, 0): self.taken.known}
        )
        self._told.writes += 1
        self.taken.look()


# ------------------------------------------------------------------------------------------------- what is given


def _as_sent(engine: Verbs, topic: TopicRecord, rejected: TopicRecord) -> Iterator[_Given]:
    """All rejected rows, as far as their JSON says what they were."""
    types = {each.name: each.type for each in unpack_schema(topic.schemas[-1])}
    for batch in engine.read(rejected.number, Wanted(batch_rows=WRITE_ROWS_MAX, system_columns=True)):
        columns = (batch.column(name).to_pylist() for name in (PARTITION, OFFSET, "row", "reason"))
        for partition, offset, text, reason in zip(*columns, strict=True):
            row = json.loads(text)
            yield _Given(partition, offset, row, _restore(row, kept_as_text(reason), types))


def _restore(row: object, kinds: Mapping[str, frozenset[str]], types: Mapping[str, pa.DataType]) -> str:
    """Read back what of a row was kept as text; says what cannot be."""
    if isinstance(row, dict):
        for name in kinds:
            if name in row and name in types:
                try:
                    row[name] = _read_back(row[name], types[name], kinds[name])
                except _NotKnown:
                    what = ", ".join(sorted(kinds[name]))
                    return f"{name}: what was sent ({what}) is not known from the text that was kept of it: correct it"
    return ""


def _as_corrected(engine: Verbs, rejected: TopicRecord, corrected: Iterable[Mapping[str, Any]]) -> Iterator[_Given]:
    seen: set[tuple[int, int]] = set()
    for number, row in enumerate(corrected):
        values = dict(row)
        try:
            partition = whole_number(values.pop(PARTITION, None), PARTITION)
            offset = whole_number(values.pop(OFFSET, None), OFFSET)
        except InvalidRequest as error:
            raise InvalidRequest(
                f"row {number}: {error.message}: a corrected row names the rejected one by {PARTITION} and {OFFSET}"
            ) from error
        if not (0 <= partition < rejected.partitions and 0 <= offset < engine.next_offset(rejected.number, partition)):
            raise InvalidRequest(
                f"row {number}: {rejected.name!r} has no row at this place", partition=partition, offset=offset
            )
        if (partition, offset) in seen:
            raise InvalidRequest(f"row {number}: this place is named twice", partition=partition, offset=offset)
        seen.add((partition, offset))
        yield _Given(partition, offset, values)


class _NotKnown(Exception):
    """What was sent cannot be told from what was kept."""


def _read_back(value: object, type_: pa.DataType, kinds: frozenset[str]) -> object:
    """A value in which something of these kinds was kept as text, as the column takes it."""
    types = pa.types
    if OTHER in kinds:
        raise _NotKnown
    if types.is_list(type_) and isinstance(value, list):
        return [_read_back(each, type_.value_type, kinds) for each in value]
    if types.is_struct(type_) and isinstance(value, dict):
        known = {type_.field(place).name: type_.field(place).type for place in range(type_.num_fields)}
        return {name: _read_back(each, known[name], kinds) if name in known else each for name, each in value.items()}
    if not isinstance(value, str):
        if types.is_nested(type_):
            raise _NotKnown
        return value
    # A text of its own beside one that was made cannot be told from it, so there must be one kind, and the column's.
    if kinds == {"bytes"} and (types.is_binary(type_) or types.is_fixed_size_binary(type_)):
        return base64.b64decode(value)
    if kinds == {"uuid"} and (types.is_fixed_size_binary(type_) or types.is_string(type_)):
        return uuid.UUID(value)
    if kinds == {"float"} and types.is_floating(type_):
        return float(value)
    if any(kinds == {kind} and is_it(type_) for kind, is_it in _READ_BY_THE_DOOR.items()):
        return value
    raise _NotKnown


_READ_BY_THE_DOOR = {"datetime": pa.types.is_timestamp, "date": pa.types.is_date, "decimal": pa.types.is_decimal}
"""The topic takes these as text, too."""
