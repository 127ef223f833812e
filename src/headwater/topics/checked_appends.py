"""Appends of rows that came over a wire: as Arrow batches, with those that did not fit beside them.

Whoever sent them has read them already, and put aside what does not fit; here they are read once more, by the same
reader as everybody's rows, because nobody's word is taken for it.

PROMISE  Rows and rejected rows are one write.  A repeat of a producer's number gets its first answer, or is a Conflict
         where that number was used for another topic.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.errors import HeadwaterError, InvalidRequest
from headwater.metadata.operations import TopicRecord
from headwater.topics.answers import Appended
from headwater.topics.appending import Prepared, expected_offset
from headwater.topics.requests import Identity, Told
from headwater.topics.told import appended

if TYPE_CHECKING:
    from headwater.topics.engine import Engine


def prepare_checked(
    engine: Engine,
    topic: TopicRecord,
    batch: pa.RecordBatch,
    *,
    rejected: pa.RecordBatch | None = None,
    partition: int | None = None,
    deletes: bool = False,
) -> Prepared:
    """Rows for a write; of a delete the key columns are taken, and the others are nobody's business."""
    if deletes:
        if rejected is not None or partition is not None:
            raise InvalidRequest("keys to delete go by themselves, to the partitions that they belong to")
        return engine.preparation.keys(topic, batch.select(list(topic.key)) if topic.key else batch)
    prepared = engine.preparation.rows(topic, batch, partition=partition)
    if rejected is None or not rejected.num_rows:
        return prepared
    kept = engine.preparation.rows(engine.rejected_topic(topic), rejected)
    return Prepared([*prepared.rows, *kept.rows], prepared.accepted, kept.accepted)


def append_checked_future(
    engine: Engine,
    topic: TopicRecord,
    batch: pa.RecordBatch,
    *,
    rejected: pa.RecordBatch | None = None,
    partition: int | None = None,
    expect_offset: int | None = None,
    identity: Identity | None = None,
    deletes: bool = False,
) -> Future[Appended]:
    """Append them; the future is done when they are durable.  Its callbacks run in the middle of the writer's work."""
    prepared = prepare_checked(engine, topic, batch, rejected=rejected, partition=partition, deletes=deletes)
    told: Future[Appended] = Future()
    told.set_running_or_notify_cancel()
    if not prepared.rows:
        told.set_result(engine.nothing_appended(topic))
        return told
    expected = None if expect_offset is None else expected_offset(topic, prepared.rows, expect_offset)
    answer: Future[Told] = Future()
    answer.set_running_or_notify_cancel()
    answer.add_done_callback(lambda done: _tell(engine, topic, identity, done, told))
    request = engine.preparation.request(prepared.rows, identity=identity, expected=expected, future=answer)
    engine.submit_future(request)
    return told


def _tell(
    engine: Engine, topic: TopicRecord, identity: Identity | None, done: Future[Told], told: Future[Appended]
) -> None:
    error = done.exception()
    if error is not None:
        told.set_exception(error)
        return
    answer = done.result()
    try:
        if answer.duplicate and identity is not None and identity.producer_id:
            engine.check_was_for(topic, answer)
        told.set_result(appended(topic, answer))
    except HeadwaterError as refused:
        told.set_exception(refused)
