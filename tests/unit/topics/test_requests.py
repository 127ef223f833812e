"""Requests: how rows are split into frames, what a frame's header says of them, and what a request is told."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import TooLarge
from headwater.frames.frame import Flag, Header, Kind
from headwater.log.drafts import Draft, Receipt
from headwater.metadata.operations import TopicRecord
from headwater.metadata.records import Part
from headwater.metadata.shard_state import Answer
from headwater.settings import KIB
from headwater.topics.batches import decode_rows
from headwater.topics.groups import Generation
from headwater.topics.requests import (
    GroupOffset,
    Identity,
    PartitionRows,
    Told,
    TopicRequest,
    drafts_of,
    group_offsets,
    joined_draft,
    size_of,
)
from headwater.topics.schema import pack_schema

TIMED = pa.schema([pa.field("x", pa.string()), pa.field("at", pa.timestamp("us", "UTC"))])
FIRST, LAST = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)


def topic(**fields: Any) -> TopicRecord:
    given = {"number": 3, "name": "t", "topic_id": bytes(16), "created_us": 0, "schemas": (pack_schema(TIMED),)}
    return TopicRecord(**{"partitions": 4, **given, **fields})


def rows(*texts: str, times: list[datetime | None] | None = None, **fields: Any) -> PartitionRows:
    moments = times if times is not None else [None] * len(texts)
    batch = pa.record_batch([pa.array(texts, pa.string()), pa.array(moments, TIMED.field("at").type)], schema=TIMED)
    tombstones = bool(fields.pop("tombstones", False))
    return PartitionRows(topic(**fields), 2, batch, tombstones)


def texts_of(draft: Draft) -> list[str]:
    body = memoryview(draft.body)
    header = Header(
        b"", 0, 0, 1, Kind.DATA, 0, 0, len(body), 0, 0, 1, 0, 0, 1, 0, 1, 3, 2, 0, draft.row_count, draft.row_count,
        1, 0, 0, 0, 0, 0, 0,
    )  # fmt: skip
    texts: list[str] = decode_rows(header, body, TIMED).batch.column("x").to_pylist()
    return texts


def test_rows_that_fit_are_one_frame_that_says_whose_they_are() -> None:
    (draft,) = drafts_of(rows("a", "b"), frame_bytes_max=KIB, flags=Flag.TRANSACTION, identity=Identity(7, 2, 9, b"k"))

    assert (draft.kind, draft.topic_number, draft.partition) == (Kind.DATA, 3, 2)
    assert (draft.row_count, draft.schema_version, draft.flags) == (2, 1, Flag.TRANSACTION)
    assert (draft.producer_id, draft.producer_epoch, draft.sequence) == (7, 2, 9)
    assert texts_of(draft) == ["a", "b"]


def test_rows_that_do_not_fit_are_split_and_keep_their_order() -> None:
    texts = [str(number) * 100 for number in range(50)]

    drafts = drafts_of(rows(*texts), frame_bytes_max=2 * KIB)

    assert len(drafts) > 3
    assert all(draft.body_size <= 2 * KIB for draft in drafts)
    assert [text for draft in drafts for text in texts_of(draft)] == texts


def test_a_row_above_the_limit_is_refused_by_number() -> None:
    with pytest.raises(TooLarge) as refused:
        drafts_of(rows("a", "b", "c" * 5_000, "d"), frame_bytes_max=2 * KIB)

    assert refused.value.facts["row"] == 2
    assert refused.value.facts["limit_bytes"] == 2 * KIB


def test_deletes_are_flagged() -> None:
    assert drafts_of(rows("a", tombstones=True), frame_bytes_max=KIB)[0].flags == Flag.TOMBSTONES
    assert joined_draft([rows("a", tombstones=True)]).flags == Flag.TOMBSTONES
    assert joined_draft([rows("a")]).flags == 0


def test_rows_that_are_joined_are_one_frame_without_a_producer() -> None:
    draft = joined_draft([rows("a"), rows("b", "c"), rows("d")])

    assert texts_of(draft) == ["a", "b", "c", "d"]
    assert (draft.row_count, draft.producer_id, draft.sequence) == (4, 0, 0)


def test_a_frame_says_the_range_of_its_topics_time_column() -> None:
    timed = rows("a", "b", "c", times=[LAST, None, FIRST], time_column="at")

    draft = joined_draft([timed])

    assert draft.time_min_us == int(FIRST.timestamp() * 1e6)
    assert draft.time_max_us == int(LAST.timestamp() * 1e6)


def test_without_a_time_column_or_a_value_in_it_a_frame_says_nothing_of_times() -> None:
    for untimed in (rows("a", times=[FIRST]), rows("a", times=[None], time_column="at")):
        draft = joined_draft([untimed])
        assert (draft.time_min_us, draft.time_max_us) == (None, None)


def test_rows_join_where_partition_version_and_sense_are_the_same() -> None:
    one = rows("a")

    assert one.joins_with == rows("b").joins_with
    assert one.joins_with != rows("a", tombstones=True).joins_with
    assert one.joins_with != rows("a", schemas=(b"1", b"2")).joins_with
    assert one.joins_with != PartitionRows(one.topic, 1, one.batch).joins_with
    assert one.key == 3 << 32 | 2


def test_a_small_slice_of_a_large_batch_counts_by_what_it_shows() -> None:
    large = pa.record_batch([pa.array(range(100_000))], names=["x"])

    few = size_of([PartitionRows(topic(), 0, large.slice(5, 10))])
    many = size_of([PartitionRows(topic(), 0, large.slice(5, 1_000))])

    assert few < 2 * KIB
    assert many > 500 * KIB, "the exact size is asked for only where it is quickly known"


def test_a_request_is_told_where_its_rows_are_in_the_form_that_its_caller_wants() -> None:
    receipt = Receipt(4, 6, (), 99)  # type: ignore[arg-type]
    plain = TopicRequest([rows("a")], frame_bytes=1)
    plain.placed = (Part(3, 2, 7, 1),)
    formed = TopicRequest([rows("a")], frame_bytes=1, told_as=lambda told: told.answer.first_lsn)

    assert plain.result(receipt) == Told(Answer(4, 6, 99, (Part(3, 2, 7, 1),)), duplicate=False)
    assert formed.result(receipt) == 4


def test_a_request_that_was_applied_before_is_told_the_same_answer() -> None:
    request = TopicRequest([rows("a")], frame_bytes=1)
    before = Answer(4, 6, 99, (Part(3, 2, 7, 1),))

    request.tell_again(before)

    assert request.done and request.receipt is not None
    told = request.result(request.receipt)
    assert (told.answer, told.duplicate) == (before, True)


def test_only_what_has_no_frames_yet_and_is_not_alone_joins() -> None:
    assert TopicRequest([rows("a")], frame_bytes=1).joins
    assert not TopicRequest([rows("a")], frame_bytes=1, alone=True).joins
    assert not TopicRequest([rows("a")], drafts=[joined_draft([rows("a")])], frame_bytes=1).joins


def test_group_offsets_are_in_the_order_of_their_partitions() -> None:
    found = group_offsets("g", 3, {2: (20, Generation(1, 5)), 0: (10, Generation(1, 4))})

    assert found == (GroupOffset("g", 3, 0, 10, 1, 4), GroupOffset("g", 3, 2, 20, 1, 5))
