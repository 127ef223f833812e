"""A transaction: rows over any topics, consumer offsets and source positions, as one write.

    open  ──append, upsert, delete, commit_offsets, set_source──▶  open
    open  ──commit (or leaving the `with`)──▶  committed
    open  ──abort, or an exception──▶  aborted: nothing of it ever reaches the log
    open  ──a commit that ends as OutcomeUnknown──▶  unknown: it is there whole, or not at all

PROMISE  All of it is durable and visible together, or none.  Rows are checked when they are added, so that a commit
         meets no bad row; conflicts, a fenced consumer or producer, are found at the commit and refuse all of it.
LIMIT    A transaction is one write: `LogSettings.write_body_bytes_max`, 64 MiB unless set otherwise.
THREADS  One at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from headwater.errors import Closed, HeadwaterError, InvalidRequest, OutcomeUnknown, Poisoned, TooLarge
from headwater.topics.answers import CommittedTransaction
from headwater.topics.appending import OnRejected, Prepared, key_hash
from headwater.topics.consumer import Consumer
from headwater.topics.groups import Generation
from headwater.topics.names import checked_name
from headwater.topics.positions import time_us_of
from headwater.topics.producers import Producer
from headwater.topics.requests import GroupOffset, Identity, PartitionRows, SourceAt, group_offsets

if TYPE_CHECKING:
    from headwater.topics.verbs import Verbs

logger = logging.getLogger("headwater.topics")

_SOURCE_BYTES_MAX = 64 * 1024
_SOURCE_LEVELS_MAX = 32
"""So that it can be read again from any depth of a program's own calls."""


class TransactionState(Enum):
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "of unknown outcome"


NEXT_STATES: dict[TransactionState, tuple[TransactionState, ...]] = {
    TransactionState.OPEN: (TransactionState.COMMITTED, TransactionState.ABORTED, TransactionState.UNKNOWN),
    TransactionState.COMMITTED: (),
    TransactionState.ABORTED: (),
    TransactionState.UNKNOWN: (),
}
assert set(NEXT_STATES) == set(TransactionState)


class Transaction:
    """Collects what is to be written together.  Use it in a `with`: leaving it commits, an exception aborts."""

    def __init__(self, engine: Verbs, *, producer: Producer | None, idempotency_key: str | bytes | None) -> None:
        self._engine = engine
        self._producer = producer
        self._key = b"" if idempotency_key is None else key_hash(idempotency_key)
        self._state = TransactionState.OPEN
        self._rows: list[PartitionRows] = []
        self._offsets: dict[str, tuple[Consumer, Mapping[int, tuple[int, Generation]]]] = {}
        """By member: several of one group may take part."""
        self._sources: dict[str, SourceAt] = {}
        self.result: CommittedTransaction | None = None
        """What was committed; nothing until then, and nothing where there was nothing to write."""

    # What goes in ------------------------------------------------------------------------------

    def append(
        self, topic: str, rows: object, *, partition: int | None = None, rejected: OnRejected = "refuse"
    ) -> None:
        """Rows for a topic, checked now."""
        self._check_open()
        self._add(self._engine.prepare_rows(topic, rows, partition=partition, rejected=rejected))

    def upsert(self, topic: str, rows: object) -> None:
        """Rows for a keyed topic."""
        self._check_open()
        if not self._engine.topic(topic).key:
            raise InvalidRequest(f"{topic!r} has no key: use append", topic=topic)
        self._add(self._engine.prepare_rows(topic, rows))

    def delete(self, topic: str, keys: object) -> None:
        """Keys of a keyed topic."""
        self._check_open()
        self._add(self._engine.prepare_keys(topic, keys))

    def _add(self, prepared: Prepared) -> None:
        self._rows += prepared.rows

    def commit_offsets(self, consumer: Consumer) -> None:
        """What this consumer has handed out so far counts as read, if and only if the transaction commits."""
        self._check_open()
        offsets = consumer.offsets_to_commit()
        if offsets:
            self._offsets[consumer.member] = (consumer, offsets)

    def set_source(self, name: str, position: object, *, watermark: datetime | None = None) -> None:
        """How far an outside source has been taken in with these rows: any value that msgpack can hold.

        The watermark is an event time up to which the source is complete; that of the latest transaction stands, and
        a transaction without one leaves it as it was."""
        self._check_open()
        checked_name(name, "source")
        try:
            packed = msgspec.msgpack.encode(position)
            # What is kept is what a restart will be given: a copy, which the caller cannot change any more.
            position = msgspec.msgpack.decode(packed)
        except (TypeError, OverflowError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise InvalidRequest(f"the position of {name!r} cannot be stored: {error}", source=name) from error
        if _levels(position) > _SOURCE_LEVELS_MAX:
            raise TooLarge(
                f"the position of {name!r} is nested too deep: store less in it", limit_levels=_SOURCE_LEVELS_MAX
            )
        if len(packed) > _SOURCE_BYTES_MAX:
            raise TooLarge(
                f"the position of {name!r} is above the limit: store less in it",
                bytes=len(packed),
                limit_bytes=_SOURCE_BYTES_MAX,
            )
        watermark_us = None if watermark is None else time_us_of(watermark)
        self._sources[name] = SourceAt(name, position, watermark_us)

    # How it ends -------------------------------------------------------------------------------

    def commit(self) -> CommittedTransaction | None:
        """Write all of it; nothing is returned where there was nothing to write."""
        self._check_open()
        groups = tuple(
            each
            for consumer, offsets in self._offsets.values()
            for each in group_offsets(consumer.group, consumer.topic_number, offsets)
        )
        if not self._rows and not groups and not self._sources:
            self._move(TransactionState.COMMITTED)
            return None
        try:
            self._write_once(groups)
        except BaseException as error:
            refused = isinstance(error, HeadwaterError) and not isinstance(error, OutcomeUnknown)
            self._move(TransactionState.ABORTED if refused else TransactionState.UNKNOWN)
            self._rewind()
            raise
        self._move(TransactionState.COMMITTED)
        if self.result is not None and self.result.duplicate:
            # It was committed before, perhaps with other offsets: the consumers ask for what is true.
            self._rewind()
        else:
            for consumer, offsets in self._offsets.values():
                consumer.mark_committed(offsets)
        return self.result

    def _write_once(self, groups: tuple[GroupOffset, ...]) -> None:
        if self._producer is None:
            self._write(groups, Identity(key=self._key) if self._key else None)
            return
        with self._producer.turn:
            identity = self._producer.identity(None, self._key)
            if self._write(groups, identity):
                self._producer.applied(identity)

    def _write(self, groups: tuple[GroupOffset, ...], identity: Identity | None) -> bool:
        """Commit; says whether the producer's number was used."""
        self.result, number_used = self._engine.commit_transaction(
            self._rows, groups=groups, sources=tuple(self._sources.values()), identity=identity
        )
        return number_used

    def abort(self) -> None:
        """Forget all of it; nothing had been written."""
        self._check_open()
        self._move(TransactionState.ABORTED)
        self._rewind()

    def _rewind(self) -> None:
        """What its consumers had handed out was not made use of: they hand it out again."""
        for consumer, _ in self._offsets.values():
            try:
                consumer.rewind()
            except (Closed, Poisoned, OutcomeUnknown) as error:
                # The caller is being told what ended the transaction; a closed log hands out nothing any more.
                logger.info("a consumer could not be rewound: %s", error)

    def _move(self, state: TransactionState) -> None:
        assert state in NEXT_STATES[self._state]
        self._state = state

    def _check_open(self) -> None:
        if self._state is not TransactionState.OPEN:
            raise InvalidRequest(f"this transaction is {self._state.value}: begin another")

    @property
    def state(self) -> str:
        """ "open", "committed", "aborted", or what else became of it."""
        return self._state.value

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any:
        if self._state is TransactionState.OPEN:
            if error is None:
                self.commit()
            else:
                self.abort()


def _levels(value: object) -> int:
    """How deep lists and maps are nested in a value."""
    level = 0
    layer: list[object] = [value]
    while layer:
        layer = [
            inner
            for each in layer
            if isinstance(each, list | dict)
            for inner in (each if isinstance(each, list) else each.values())
        ]
        level += 1
    return level
