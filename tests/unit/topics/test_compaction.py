"""The latest row of each key: which rows go, what stays as it was, and what a crash or a failure leaves.

The property at the end is the one that counts: whatever was upserted, deleted and compacted, in whatever order and
with whatever time between, a reader ends up with what a plain dict holds.
"""

from __future__ import annotations

import errno
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import Closed, CorruptData, DamagedLog, Forgotten, InvalidRequest, OutcomeUnknown, Unavailable
from headwater.frames.bodies import GapReason, unpack_gap
from headwater.frames.codecs import encode_body
from headwater.frames.frame import Codec, Flag, Kind
from headwater.ids import Lsn
from headwater.log import Draft, FrameLog
from headwater.log.pins import Pin
from headwater.log.rewrite import KEEP, rewrite_segment
from headwater.metadata.operations import TopicRecord
from headwater.storage.simulated import Choice, SimulatedFiles
from headwater.topics import compaction
from headwater.topics.batches import encode_batch, encode_sparse
from headwater.topics.compaction import Compacted, CompactionPlan, LatestRows, compact_topics, compactable_segments
from tests.unit.log.small_logs import Crash, World, crashing_at_every_call, rows, simulated, spoil, stored, stored_in
from tests.unit.topics.keyed_logs import (
    DAY_S,
    KEYED,
    Stage,
    delete,
    draft,
    keyed_topic,
    latest_of,
    never_landed,
    open_stage,
    rows_of,
    stage,
    upsert,
    values_of,
)

TOPIC = keyed_topic()


def test_of_each_key_the_latest_row_stays() -> None:
    on = stage()
    upsert(on.log, TOPIC, {1: "a", 2: "b", 3: "c"})
    upsert(on.log, TOPIC, {2: "b2"})
    on.log.roll()
    upsert(on.log, TOPIC, {3: "c2"})
    on.log.roll()

    on.compact(TOPIC)

    assert values_of(on.log, TOPIC) == [(1, "a"), (2, "b2"), (3, "c2")]
    assert on.world.verify().ok


def test_within_a_frame_too_the_last_row_of_a_key_counts() -> None:
    on = stage()
    upsert(on.log, TOPIC, [(1, "a"), (2, "b"), (1, "a2"), (1, "a3"), (2, "b2")])
    on.log.roll()

    on.compact(TOPIC)

    assert values_of(on.log, TOPIC) == [(1, "a3"), (2, "b2")]


def test_rows_that_stay_keep_their_lsn_and_their_offset() -> None:
    on = stage()
    upsert(on.log, TOPIC, {1: "a", 2: "b"})
    upsert(on.log, TOPIC, {1: "a2", 3: "c", 4: "d"})
    upsert(on.log, TOPIC, {3: "c2"})
    on.log.roll()
    before = rows_of(on.log, TOPIC)

    on.compact(TOPIC)
    receipt = upsert(on.log, TOPIC, {9: "next"})

    after = rows_of(on.log, TOPIC)
    assert after[:-1] == [before[1], before[2], before[4], before[5]]
    assert [row.offset for row in after] == [1, 2, 4, 5, 6]
    assert receipt.base_offsets == (6,)


def test_a_frame_that_loses_rows_is_sparse_one_that_loses_all_a_gap_and_others_are_not_touched() -> None:
    on = stage()
    gone = upsert(on.log, TOPIC, {1: "a"})
    thinned = upsert(on.log, TOPIC, {1: "a2", 2: "b"})
    whole = upsert(on.log, TOPIC, {1: "a3", 3: "c"})
    on.log.roll()
    before = stored(on.files)

    done = on.compact(TOPIC)

    after = {frame.lsn: frame for frame in stored_in(on.files, f"log/{done.segments[0]}")}
    gap = unpack_gap(after[gone.last_lsn].body)
    assert gap is not None and gap.reason == GapReason.COMPACTED and gap.next_offsets == ((1, 0, 1),)
    sparse = after[thinned.last_lsn].header
    assert (sparse.kind, sparse.row_count, sparse.offset_count, sparse.base_offset) == (Kind.SPARSE, 1, 2, 1)
    assert after[whole.last_lsn].data == before[whole.last_lsn].data


def test_compaction_says_what_it_removed_and_saved() -> None:
    on = stage()
    upsert(on.log, TOPIC, dict.fromkeys(range(50), "x" * 100))
    upsert(on.log, TOPIC, dict.fromkeys(range(40), "y" * 100))
    delete(on.log, TOPIC, 0, 1)
    upsert(on.log, TOPIC, {0: "z"})
    on.log.roll()
    [before, _] = on.log.segments()

    done = on.compact(TOPIC)

    [after, _] = on.log.segments()
    assert done == Compacted(
        topic="topic-1",
        rows_removed=40 + 2 + 1,
        frames_removed=0,
        tombstones_removed=1,
        bytes_saved=before.bytes - after.bytes,
        segments=(after.name,),
        up_to_lsn=before.last_lsn,
    )
    assert done.bytes_saved > 4000


def test_compacting_again_finds_nothing_to_do() -> None:
    on = stage()
    upsert(on.log, TOPIC, {1: "a", 2: "b"})
    upsert(on.log, TOPIC, {1: "a2"})
    on.log.roll()
    on.compact(TOPIC)
    files = on.files.list("log")

    again = on.compact(TOPIC)

    assert (again.rows_removed, again.frames_removed, again.bytes_saved, again.segments) == (0, 0, 0, ())
    assert on.files.list("log") == files


def test_a_sparse_frame_can_lose_more_rows() -> None:
    on = stage()
    upsert(on.log, TOPIC, dict.fromkeys(range(6), "a"))
    upsert(on.log, TOPIC, {0: "b"})
    on.log.roll()
    on.compact(TOPIC)
    upsert(on.log, TOPIC, {2: "c", 5: "c"})
    on.log.roll()

    on.compact(TOPIC)

    assert [(row.offset, *row.values) for row in rows_of(on.log, TOPIC)] == [
        (1, 1, "a"),
        (3, 3, "a"),
        (4, 4, "a"),
        (6, 0, "b"),
        (7, 2, "c"),
        (8, 5, "c"),
    ]
    assert on.world.verify().ok


def test_the_segment_that_is_being_written_is_left_alone_and_supersedes_nothing() -> None:
    on = stage()
    upsert(on.log, TOPIC, {1: "a"})
    on.log.roll()
    upsert(on.log, TOPIC, {1: "a2"})
    upsert(on.log, TOPIC, {1: "a3"})

    done = on.compact(TOPIC)

    assert done.rows_removed == 0
    assert values_of(on.log, TOPIC) == [(1, "a"), (1, "a2"), (1, "a3")]


def test_a_log_with_nothing_sealed_has_nothing_to_compact() -> None:
    on = stage()
    upsert(on.log, TOPIC, [(1, "a"), (1, "b")])

    assert on.compact(TOPIC) == Compacted("topic-1", 0, 0, 0, 0, (), Lsn(0))


def test_other_topics_and_other_kinds_of_frames_are_not_touched() -> None:
    on = stage()
    other = keyed_topic(2)
    on.log.append([Draft(Kind.SCHEMA, b"a schema", topic_number=1), Draft(Kind.METADATA, b"state")])
    on.log.append([draft(TOPIC, [{"id": 1}]), draft(other, [{"id": 1}]), draft(TOPIC, [{"id": 1}], partition=1)])
    on.log.append([draft(other, [{"id": 1}]), rows(3, 2)])
    upsert(on.log, TOPIC, {1: "last"})
    on.log.roll()
    before = on.bodies()

    done = on.compact(TOPIC)

    after = on.bodies()
    changed = [lsn for lsn in before if before[lsn] != after[lsn]]
    assert changed == [4, 6]
    assert done.frames_removed == done.rows_removed == 2
    assert on.world.verify().ok


def test_a_key_that_has_moved_to_another_partition_has_one_latest_row() -> None:
    on = stage()
    on.log.append([draft(TOPIC, [{"id": 1, "value": "a"}, {"id": 2, "value": "b"}], partition=0)])
    on.log.append([draft(TOPIC, [{"id": 1, "value": "a2"}], partition=3)])
    on.log.append([draft(TOPIC, [{"id": 2, "value": "b2"}], partition=0)])
    on.log.roll()

    on.compact(TOPIC)

    assert [(row.partition, row.offset, *row.values) for row in rows_of(on.log, TOPIC)] == [
        (3, 0, 1, "a2"),
        (0, 2, 2, "b2"),
    ]


def test_keys_of_several_columns_are_compared_whole() -> None:
    schema = pa.schema([pa.field("a", pa.string()), pa.field("b", pa.int32()), pa.field("v", pa.int64())])
    topic = keyed_topic(schemas=[schema], key=("b", "a"))
    on = stage()
    pairs = [("x", 1), ("x", 2), ("y", 1), ("x", 1), ("", 1), ("y", 1)]
    on.log.append([draft(topic, [{"a": a, "b": b, "v": v} for v, (a, b) in enumerate(pairs)])])
    on.log.roll()

    on.compact(topic)

    assert values_of(on.log, topic) == [("x", 2, 1), ("x", 1, 3), ("", 1, 4), ("y", 1, 5)]


KEYS_BY_TYPE: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, False]),
    (pa.int8(), [-1, 1]),
    (pa.uint32(), [0, 2**32 - 1]),
    (pa.int64(), [-(2**63), 2**63 - 1]),
    (pa.string(), ["", "ключ"]),
    (pa.binary(), [b"", b"\x00"]),
    (pa.binary(3), [b"\x00\x00\x00", b"abc"]),
    (pa.date32(), [date(1970, 1, 1), date(2026, 11, 15)]),
    (pa.timestamp("us", "UTC"), [datetime(1970, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)]),
    (pa.decimal128(38, 2), [Decimal("0.00"), Decimal("-1.10")]),
]


@pytest.mark.parametrize(("type_", "keys"), KEYS_BY_TYPE, ids=[str(type_) for type_, _ in KEYS_BY_TYPE])
def test_every_type_that_can_be_a_key_is_compared_by_value(type_: pa.DataType, keys: list[Any]) -> None:
    topic = keyed_topic(schemas=[pa.schema([pa.field("id", type_, nullable=False), pa.field("value", pa.int64())])])
    on = stage()
    on.log.append([draft(topic, [{"id": key, "value": 1} for key in keys])])
    on.log.append([draft(topic, [{"id": key, "value": 2} for key in (*keys, keys[0])])])
    on.log.roll()

    on.compact(topic)

    assert values_of(on.log, topic) == [(keys[1], 2), (keys[0], 2)]


def test_a_key_is_the_same_before_and_after_its_column_was_widened() -> None:
    narrow = pa.schema([pa.field("id", pa.int16(), nullable=False)])
    wide = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("value", pa.string())])
    topic = keyed_topic(schemas=[narrow, wide])
    on = stage()
    on.log.append([draft(topic, [{"id": 1}, {"id": -2}, {"id": 3}], version=1)])
    on.log.append([draft(topic, [{"id": -2, "value": "b"}], version=2)])
    on.log.append([draft(topic, [{"id": 3}], version=1)])
    on.log.roll()

    on.compact(topic)

    assert values_of(on.log, topic) == [(1,), (-2, "b"), (3,)]


def test_compressed_frames_are_compacted_too() -> None:
    on = stage()
    batch = pa.RecordBatch.from_pydict({"id": [1, 2], "value": ["a", "b"]}, schema=KEYED)
    body = encode_body(Codec.ZSTD, encode_batch(batch))
    on.log.append([Draft(Kind.DATA, body, topic_number=1, row_count=2, schema_version=1, codec=Codec.ZSTD)])
    upsert(on.log, TOPIC, {1: "a2"})
    on.log.roll()

    on.compact(TOPIC)

    assert values_of(on.log, TOPIC) == [(2, "b"), (1, "a2")]


# Deletes --------------------------------------------------------------------------------------------------


def test_a_delete_is_there_for_its_time_so_that_a_late_reader_sees_it() -> None:
    topic = keyed_topic(tombstones_s=3600.0)
    on = stage()
    upsert(on.log, topic, {1: "a", 2: "b"})
    delete(on.log, topic, 1)
    on.log.roll()

    on.world.clock.advance(3599.0)
    early = on.compact(topic)
    seen_early = values_of(on.log, topic)
    on.world.clock.advance(1.001)
    late = on.compact(topic)

    assert seen_early == [(2, "b"), (1, "deleted")]
    assert (early.rows_removed, early.tombstones_removed) == (1, 0)
    assert (late.rows_removed, late.tombstones_removed, late.frames_removed) == (1, 1, 1)
    assert values_of(on.log, topic) == [(2, "b")]


def test_a_delete_that_was_superseded_goes_at_once() -> None:
    on = stage()
    upsert(on.log, TOPIC, {1: "a"})
    delete(on.log, TOPIC, 1, 2)
    upsert(on.log, TOPIC, {1: "again"})
    on.log.roll()

    done = on.compact(TOPIC)

    assert values_of(on.log, TOPIC) == [(2, "deleted"), (1, "again")]
    assert done.tombstones_removed == 1
    [thinned] = [frame.header for frame in on.log.read_topic(1) if frame.header.kind == Kind.SPARSE]
    assert thinned.flags == Flag.TOMBSTONES | Flag.REWRITTEN


def test_while_the_clock_is_not_believed_deletes_stay() -> None:
    on = stage()
    upsert(on.log, TOPIC, {1: "a"})
    delete(on.log, TOPIC, 1)
    on.log.roll()
    on.world.clock.advance(2 * DAY_S)

    on.compact(TOPIC, may_expire_by_age=False)

    assert values_of(on.log, TOPIC) == [(1, "deleted")]


# What is left alone ---------------------------------------------------------------------------------------


def in_three_segments() -> Stage:
    """The same keys in three sealed segments."""
    on = stage()
    for value in "abc":
        upsert(on.log, TOPIC, {1: value, 2: value})
        on.log.roll()
    return on


def test_what_a_pin_needs_is_left_alone() -> None:
    on = in_three_segments()
    second = on.log.segments()[1]

    with on.pins.hold(second.last_lsn, lambda: 1):
        pinned = on.compact(TOPIC)
    names = [segment.name for segment in on.log.segments()]
    free = on.compact(TOPIC)

    assert (pinned.rows_removed, pinned.up_to_lsn) == (0, second.first_lsn - 1)
    assert names[1:3] == [second.name, on.log.segments()[2].name]
    assert free.rows_removed == 4


def test_a_pin_that_comes_while_segments_are_made_again_keeps_those_that_follow() -> None:
    on = in_three_segments()
    last = on.log.segments()[1].last_lsn
    pins: list[Pin] = []

    def pin(verb: str, name: str) -> None:
        if verb == "rename" and not pins:
            pins.append(on.pins.hold(last, lambda: 1))

    on.files.before_call = pin
    done = compact_topics(on.log, [TOPIC], pins=on.pins, now_us=0, covered_lsn=Lsn(99), verified_lsn=never_landed)
    on.files.before_call = None

    assert [row.values for row in rows_of(on.log, TOPIC)] == [(1, "b"), (2, "b"), (1, "c"), (2, "c")]
    assert done.compacted[0].rows_removed == 2
    assert done.finished == {}, "there is more to do, so it must not be taken for done"


def test_only_what_the_checkpoints_cover_is_compacted() -> None:
    on = in_three_segments()
    second = on.log.segments()[1]

    assert on.compact(TOPIC, covered_lsn=Lsn(second.last_lsn - 1)).up_to_lsn == second.first_lsn - 1
    assert on.compact(TOPIC, covered_lsn=second.last_lsn).rows_removed == 2


def test_of_a_topic_with_a_table_only_what_is_verified_as_landed_is_compacted() -> None:
    topic = keyed_topic(table="lake.t")
    on = stage()
    for value in "abcd":
        upsert(on.log, topic, {1: value})
    on.log.roll()
    [first, _] = on.log.segments()

    nothing = on.compact(topic)
    some = on.compact(topic, verified_lsn=lambda asked: first.last_lsn - 1)

    assert (nothing.rows_removed, some.rows_removed) == (0, 2)
    assert values_of(on.log, topic) == [(1, "c"), (1, "d")]


def test_a_topic_without_a_key_cannot_be_compacted() -> None:
    on = stage()

    with pytest.raises(InvalidRequest, match="without a key"):
        on.compact(keyed_topic(key=()))


def test_a_topic_whose_policy_keeps_every_row_cannot_be_compacted() -> None:
    on = stage()

    with pytest.raises(InvalidRequest, match="cleanup="):
        on.compact(keyed_topic(cleanup="delete"))


def test_a_reader_that_has_the_old_file_open_finishes_on_it() -> None:
    on = stage()
    upsert(on.log, TOPIC, {1: "a"})
    upsert(on.log, TOPIC, {1: "b"})
    on.log.roll()
    reader = on.log.read_topic(1)
    first = next(reader)

    on.compact(TOPIC)

    assert [first.lsn, *(frame.lsn for frame in reader)] == [2, 3]
    assert values_of(on.log, TOPIC) == [(1, "b")]


# Failures -------------------------------------------------------------------------------------------------


def unreadable(topic: TopicRecord, **more: Any) -> Draft:
    return Draft(Kind.DATA, b"no rows", topic_number=topic.number, row_count=1, **{"schema_version": 1, **more})


def test_what_fails_in_one_topic_is_reported_and_the_others_go_on() -> None:
    on = stage()
    bad, worse, good, keyless = keyed_topic(1), keyed_topic(2), keyed_topic(3), keyed_topic(4, key=())
    on.log.append([unreadable(bad), unreadable(worse, schema_version=7), draft(good, [{"id": 1}, {"id": 1}])])
    on.log.roll()

    report = compact_topics(
        on.log, [bad, worse, keyless, good], pins=on.pins, now_us=0, covered_lsn=Lsn(99), verified_lsn=never_landed
    )

    assert [failure.topic for failure in report.failures] == ["topic-1", "topic-2", "topic-4"]
    assert [type(failure.error) for failure in report.failures] == [CorruptData, CorruptData, InvalidRequest]
    assert str(report.failures[1]).startswith("topic-2: a frame of a schema version that its topic does not have")
    assert [(done.topic, done.rows_removed) for done in report.compacted] == [("topic-3", 1)]
    assert report.finished.keys() == {3}


def test_a_topic_that_fails_while_a_segment_is_made_again_is_left_out_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    on = stage()
    bad, good = keyed_topic(1), keyed_topic(2)
    for topic in (bad, good):
        on.log.append([draft(topic, [{"id": 1}, {"id": 2}, {"id": 1}])])
    on.log.roll()
    refused: list[int] = []

    def refuse_the_first(batch: pa.RecordBatch, offsets: pa.Array) -> bytes:
        if not refused:
            refused.append(1)
            raise pa.ArrowInvalid("no room for offsets")
        return encode_sparse(batch, offsets)

    monkeypatch.setattr(compaction, "encode_sparse", refuse_the_first)
    report = compact_topics(on.log, [bad, good], pins=on.pins, now_us=0, covered_lsn=Lsn(99), verified_lsn=never_landed)

    assert [str(failure) for failure in report.failures] == ["topic-1: no room for offsets"]
    assert [(done.topic, done.rows_removed) for done in report.compacted] == [("topic-2", 1)]
    assert len(rows_of(on.log, bad)) == 3 and len(rows_of(on.log, good)) == 2
    assert report.finished.keys() == {2}


def test_a_compaction_on_demand_raises_what_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    on = stage()
    upsert(on.log, TOPIC, [(1, "a"), (2, "b"), (1, "c")])
    on.log.roll()

    def refuse(batch: pa.RecordBatch, offsets: pa.Array) -> bytes:
        raise pa.ArrowInvalid("no room for offsets")

    monkeypatch.setattr(compaction, "encode_sparse", refuse)
    with pytest.raises(pa.ArrowInvalid, match="no room"):
        on.compact(TOPIC)

    assert len(rows_of(on.log, TOPIC)) == 3
    assert not [name for name in on.files.list("log") if "tmp" in name]


def test_a_segment_that_is_replaced_while_it_is_read_is_not_compacted(monkeypatch: pytest.MonkeyPatch) -> None:
    on = stage()
    upsert(on.log, TOPIC, [(1, "a"), (1, "b")])
    on.log.roll()
    plan = compaction.plan_compaction

    def drained_meanwhile(log: FrameLog, *more: Any) -> CompactionPlan:
        rewrite_segment(log, log.segments()[0].name, lambda header, body: KEEP, reason=GapReason.DRAINED)
        return plan(log, *more)

    monkeypatch.setattr(compaction, "plan_compaction", drained_meanwhile)
    with pytest.raises(Forgotten, match="try again"):
        on.compact(TOPIC)

    assert len(rows_of(on.log, TOPIC)) == 2


def test_while_pins_cannot_be_read_nothing_is_compacted() -> None:
    on = in_three_segments()
    on.files.make_directory("pins")
    on.files.fail(1, errno.EIO, verbs=["list"])

    with pytest.raises(Unavailable, match="stays as it is"):
        on.compact(TOPIC)

    assert len(rows_of(on.log, TOPIC)) == 6


def test_a_ledger_that_is_closed_is_raised() -> None:
    on = in_three_segments()

    def closed(topic: TopicRecord) -> int:
        raise Closed("this ledger is closed")

    with pytest.raises(Closed):
        on.compact(keyed_topic(table="lake.t"), verified_lsn=closed)


def test_a_failure_leaves_the_deletes_that_hide_what_is_still_there() -> None:
    on = stage()
    upsert(on.log, TOPIC, {1: "a"})
    on.log.roll()
    delete(on.log, TOPIC, 1)
    on.log.roll()
    on.world.clock.advance(2 * DAY_S)
    on.files.fail(1, errno.ENOSPC, verbs=["create"])  # the first segment cannot be made again, the second could be

    with pytest.raises(Unavailable):
        on.compact(TOPIC)
    after_failure = latest_of(rows_of(on.log, TOPIC))
    done = on.compact(TOPIC)

    assert after_failure == {}
    assert done.rows_removed == 2 and rows_of(on.log, TOPIC) == []


def test_the_segments_done_before_a_failure_are_reported_beside_it() -> None:
    on = in_three_segments()
    upsert(on.log, TOPIC, {1: "d", 2: "d"})
    on.log.roll()
    on.files.fail(2, errno.ENOSPC, verbs=["sync_all"])

    report = compact_topics(on.log, [TOPIC], pins=on.pins, now_us=0, covered_lsn=Lsn(99), verified_lsn=never_landed)

    assert [done.rows_removed for done in report.compacted] == [2]
    assert [type(failure.error) for failure in report.failures] == [Unavailable]
    assert report.finished == {}


def test_damage_is_raised_and_not_compacted_away() -> None:
    on = stage()
    upsert(on.log, TOPIC, {1: "a", 2: "b"})
    other = on.log.append([rows(9, 1)])
    upsert(on.log, TOPIC, {1: "a2"})
    on.log.roll()
    [name, _] = (segment.name for segment in on.log.segments())
    spoil(on.files, f"log/{name}", stored(on.files)[other.first_lsn], body=True)

    with pytest.raises(DamagedLog):
        on.compact(TOPIC)

    assert name in on.files.list("log")


def test_a_log_that_loses_its_footing_is_raised() -> None:
    on = in_three_segments()
    on.files.fail(3, errno.EIO, verbs=["sync_directory"])  # the unlink of the old file is not durable for certain

    with pytest.raises(OutcomeUnknown):
        on.compact(TOPIC)


def test_a_closed_log_is_raised_and_not_reported_for_each_topic() -> None:
    on = in_three_segments()
    on.log.close()

    with pytest.raises(Closed):
        compact_topics(on.log, [TOPIC], pins=on.pins, now_us=0, covered_lsn=Lsn(99), verified_lsn=never_landed)


def test_topics_that_share_a_segment_are_compacted_in_one_go_and_share_what_was_saved() -> None:
    on = stage()
    small, large, idle = keyed_topic(1), keyed_topic(2), keyed_topic(3)
    for value in ("x", "y"):
        upsert(on.log, small, {1: value * 100})
        upsert(on.log, large, {1: value * 10_000})
    upsert(on.log, idle, {1: "z"})
    on.log.roll()
    [before, _] = on.log.segments()

    report = compact_topics(
        on.log, [small, large, idle], pins=on.pins, now_us=0, covered_lsn=Lsn(99), verified_lsn=never_landed
    )

    [after, _] = on.log.segments()
    assert after.generation == 1 and len(report.segments) == 1
    saved = [done.bytes_saved for done in report.compacted]
    assert sum(saved) == before.bytes - after.bytes
    assert 0 < saved[0] < saved[1] and saved[2] == 0
    assert report.finished.keys() == {1, 2, 3}


def test_a_compaction_that_makes_frames_larger_says_so() -> None:
    on = stage()
    narrow = keyed_topic(schemas=[pa.schema([pa.field("id", pa.int8(), nullable=False)])])
    on.log.append([draft(narrow, [{"id": key % 100} for key in range(101)])])
    on.log.roll()

    done = on.compact(narrow)

    assert done.rows_removed == 1 and done.bytes_saved < 0


def test_a_frame_that_has_no_room_for_offsets_stays_and_so_do_the_deletes_that_hide_its_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on = stage()
    upsert(on.log, TOPIC, {9: "hidden"})
    delete(on.log, TOPIC, 9)
    upsert(on.log, TOPIC, dict.fromkeys(range(50), "a"))
    upsert(on.log, TOPIC, {1: "gone", 2: "b"})
    delete(on.log, TOPIC, 1)
    on.log.roll()
    on.world.clock.advance(2 * DAY_S)
    monkeypatch.setattr(compaction, "BODY_SIZE_BYTES_MAX", 1000)

    done = on.compact(TOPIC)

    after = rows_of(on.log, TOPIC)
    assert latest_of(after) == {key: "b" if key == 2 else "a" for key in range(50) if key != 1}
    assert done.rows_removed == 1 + 1 + 1 and done.tombstones_removed == 1
    assert [row.values[0] for row in after if row.deleted] == [1]


# Crashes --------------------------------------------------------------------------------------------------


def before_the_compaction(seed: int = 3) -> tuple[SimulatedFiles, World]:
    """Three sealed segments: rows, more rows, and deletes whose time is over; the log is closed."""
    files, world = simulated(seed)
    on = open_stage(files, world)
    upsert(on.log, TOPIC, {1: "a", 2: "b", 3: "c"})
    on.log.roll()
    upsert(on.log, TOPIC, {2: "b2", 3: "c2"})
    upsert(on.log, keyed_topic(2), {1: "other"})
    on.log.roll()
    delete(on.log, TOPIC, 1, 3)
    on.log.roll()
    on.log.close()
    world.clock.advance(2 * DAY_S)
    return files, world


@pytest.mark.parametrize("choice", list(Choice), ids=lambda choice: choice.name.lower())
def test_a_crash_at_any_moment_leaves_old_or_new_rows_and_the_same_latest_ones(choice: Choice) -> None:
    files, world = before_the_compaction()
    old = rows_of(world.open(files), TOPIC)
    on = open_stage(files, world)
    on.compact(TOPIC)
    new = rows_of(on.log, TOPIC)
    assert [row.values for row in new] == [(2, "b2")]

    seen = set()
    for number, crashed in crashing_at_every_call(
        lambda: before_the_compaction()[0],
        lambda files: open_stage(files, before_the_compaction()[1]).compact(TOPIC),
    ):
        for left in (crashed.crash(Random(number), choice=choice), crashed.restart()):
            again = open_stage(left, before_the_compaction()[1])
            found = rows_of(again.log, TOPIC)
            seen.add(len(found))
            assert all(row in old for row in found) and all(row in found for row in new), number
            assert found == sorted(found, key=lambda row: row.lsn)
            assert latest_of(found) == {2: "b2"}, number
            assert again.world.verify(left).ok

            again.compact(TOPIC)

            assert rows_of(again.log, TOPIC) == new, number
            assert [row.values for row in rows_of(again.log, keyed_topic(2))] == [(1, "other")]
    assert {len(old), len(new)} <= seen


# Properties -----------------------------------------------------------------------------------------------


@given(
    batches=st.lists(st.lists(st.tuples(st.integers(0, 5), st.sampled_from("ab")), max_size=6), max_size=12),
    waiting=st.integers(1, 4),
    fresh=st.integers(1, 6),
)
def test_the_latest_ordinals_are_those_of_a_dict_however_they_are_folded(
    batches: list[list[tuple[int, str]]], waiting: int, fresh: int
) -> None:
    schema = pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.string())])
    plain = {}
    patch = pytest.MonkeyPatch()
    with patch.context() as patched:
        patched.setattr(compaction, "_WAITING_BATCHES_MAX", waiting)
        patched.setattr(compaction, "_FRESH_ROWS_MIN", fresh)
        latest = LatestRows(["b", "a"], schema)
        ordinal = 0
        for batch in batches:
            latest.add(pa.RecordBatch.from_pylist([{"a": a, "b": b} for a, b in batch], schema=schema), 1)
            for key in batch:
                plain[key] = ordinal
                ordinal += 1

        assert list(latest.ordinals()) == sorted(plain.values())
    assert latest.rows == ordinal


def test_frames_are_let_go_of_by_their_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_WAITING_BYTES_MAX", 1000)
    latest = LatestRows(["id"], KEYED)

    for number in range(10):
        latest.add(pa.RecordBatch.from_pydict({"id": [number % 3], "value": [None]}, schema=KEYED), 600)
        assert len(latest._waiting) <= 1

    assert list(latest.ordinals()) == [7, 8, 9]


STEPS = st.one_of(
    st.tuples(st.just("upsert"), st.lists(st.integers(0, 4), min_size=1, max_size=4)),
    st.tuples(st.just("delete"), st.lists(st.integers(0, 4), min_size=1, max_size=2)),
    st.tuples(st.just("other"), st.just([])),
    st.tuples(st.just("roll"), st.just([])),
    st.tuples(st.just("wait"), st.lists(st.sampled_from([600, 3600]), min_size=1, max_size=1)),
    st.tuples(st.just("compact"), st.just([])),
    st.tuples(st.just("reopen"), st.just([])),
    st.tuples(st.just("crash"), st.lists(st.integers(1, 20), min_size=1, max_size=1)),
)


def compact_and_crash(on: Stage, topic: TopicRecord, calls: int) -> Stage:
    """Lose power before the call of this number that changes something, if the compaction gets there."""
    left = calls

    def stop(verb: str, name: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Crash(f"{verb} {name}")

    on.files.before_call = stop
    try:
        on.compact(topic)
    except Crash:
        return open_stage(on.files.crash(Random(calls)), on.world)
    finally:
        on.files.before_call = None
    return on


@settings(max_examples=400)
@given(steps=st.lists(STEPS, max_size=30), seed=st.integers(0, 9))
def test_a_reader_ends_up_with_what_a_dict_holds(steps: list[tuple[str, list[int]]], seed: int) -> None:
    topic, other = keyed_topic(1, tombstones_s=3600.0), keyed_topic(2)
    on = stage(seed)
    plain: dict[int, str] = {}
    appended: dict[int, tuple[int, bool, int, str | None]] = {}
    deleted_at: dict[int, int] = {}
    others = 0

    for number, (step, drawn) in enumerate([*steps, ("roll", []), ("compact", [])]):
        clock = on.world.clock
        if step == "upsert":
            receipt = upsert(on.log, topic, [(key, f"{number}-{place}") for place, key in enumerate(drawn)])
            for place, key in enumerate(drawn):
                plain[key] = f"{number}-{place}"
                appended[receipt.base_offsets[0] + place] = (receipt.last_lsn, False, key, plain[key])
                deleted_at.pop(key, None)
        elif step == "delete":
            receipt = delete(on.log, topic, *drawn)
            for place, key in enumerate(drawn):
                plain.pop(key, None)
                appended[receipt.base_offsets[0] + place] = (receipt.last_lsn, True, key, None)
                deleted_at[key] = clock.now_us()
        elif step == "other":
            upsert(on.log, other, {1: "o"})
            others += 1
        elif step == "roll":
            on.log.roll()
        elif step == "wait":
            clock.advance(drawn[0])
        elif step == "reopen":
            on.log.close()
            on = open_stage(on.files, on.world)
        elif step == "crash":
            on = compact_and_crash(on, topic, drawn[0])
        else:
            done = on.compact(topic)
            again = on.compact(topic)
            assert (again.rows_removed, again.bytes_saved, again.segments) == (0, 0, ())
            keys = [row.values[0] for row in rows_of(on.log, topic) if row.lsn <= done.up_to_lsn]
            assert len(keys) == len(set(keys)), "one row a key in what was compacted"

        found = rows_of(on.log, topic)
        assert latest_of(found) == plain
        assert [row.offset for row in found] == sorted(row.offset for row in found)
        for row in found:
            assert appended[row.offset] == (row.lsn, row.deleted, *row.values)
        there = {row.values[0] for row in found if row.deleted}
        for key, at_us in deleted_at.items():
            assert key in there or clock.now_us() - at_us >= 3600 * 1_000_000, "a late reader sees the delete"
    assert len(rows_of(on.log, other)) == others
    assert on.world.verify().ok


def test_segments_that_may_be_compacted_are_a_prefix_of_sealed_ones() -> None:
    on = in_three_segments()
    first, second, third, _ = on.log.segments()

    def names(covered: int) -> list[str]:
        return [segment.name for segment in compactable_segments(on.log, on.pins, Lsn(covered))]

    assert names(99) == [first.name, second.name, third.name]
    assert names(second.last_lsn) == [first.name, second.name]
    with on.pins.hold(third.first_lsn, lambda: 1):
        assert names(99) == [first.name, second.name]
