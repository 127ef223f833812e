"""From callers' rows to a request: partitions, keys, what is joined and what is encoded, limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import InvalidRequest, RowsRefused, TooLarge, UnknownPartition
from headwater.frames.frame import Flag
from headwater.metadata.operations import TopicRecord
from headwater.settings import KIB, Settings
from headwater.topics import appending
from headwater.topics.appending import Preparation, expected_offset, key_hash
from headwater.topics.partitioning import partition_ids
from headwater.topics.requests import Identity, SourceAt
from headwater.topics.schema import check_topic_schema, pack_schema
from tests.unit.topics.small_engines import QUIET, with_log

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.string())])


def topic(
    number: int = 1, *, key: tuple[str, ...] = (), partitions: int = 1, schema: pa.Schema = SCHEMA
) -> TopicRecord:
    return TopicRecord(
        number=number,
        name=f"topic-{number}",
        topic_id=bytes(16),
        created_us=0,
        schemas=(pack_schema(check_topic_schema(schema, key, None)),),
        partitions=partitions,
        key=key,
    )


def rejected_topic(of: TopicRecord) -> TopicRecord:
    schema = pa.schema([("row", pa.string()), ("reason", pa.string()), ("number", pa.int64())])
    return topic(of.number + 100, schema=schema)


def preparation(settings: Settings = QUIET) -> Preparation:
    return Preparation(settings, rejected_topic)


def rows(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [{"id": number, "v": "x"} for number in range(first, first + count)]


# Partitions ---------------------------------------------------------------------------------------


def test_rows_of_a_topic_with_one_partition_are_in_it() -> None:
    prepared = preparation().rows(topic(), rows(3))

    assert [(each.partition, each.batch.num_rows) for each in prepared.rows] == [(0, 3)]
    assert (prepared.accepted, prepared.rejected) == (3, 0)


def test_rows_of_a_keyed_topic_go_by_their_keys_and_keep_their_order() -> None:
    keyed = topic(key=("id",), partitions=4)

    prepared = preparation().rows(keyed, rows(50))

    whole = pa.Table.from_pylist(rows(50), schema=SCHEMA).to_batches()[0]
    wanted = partition_ids(whole, ("id",), 4).to_pylist()
    for part in prepared.rows:
        ids = part.batch.column("id").to_pylist()
        assert ids == [number for number in range(50) if wanted[number] == part.partition]
    assert sum(part.batch.num_rows for part in prepared.rows) == 50


def test_a_partition_can_be_said_where_there_is_no_key() -> None:
    made = preparation()

    assert made.rows(topic(partitions=3), rows(2), partition=2).rows[0].partition == 2
    for partition in (-1, 3):
        with pytest.raises(UnknownPartition):
            made.rows(topic(partitions=3), rows(1), partition=partition)
    with pytest.raises(InvalidRequest, match="go by their key"):
        made.rows(topic(key=("id",), partitions=3), rows(1), partition=0)


@pytest.mark.parametrize("partition", [0.0, "0", None.__class__])
def test_a_partition_that_is_no_whole_number_is_refused_at_the_door(partition: Any) -> None:
    with pytest.raises((InvalidRequest, TypeError)):
        preparation().rows(topic(), rows(1), partition=partition)


def test_without_a_key_rows_stay_with_a_partition_for_a_while_and_then_move_on() -> None:
    made, spread = preparation(), topic(partitions=3)

    partitions = [made.rows(spread, rows(400)).rows[0].partition for _ in range(10)]

    assert partitions == [0, 0, 0, 1, 1, 1, 2, 2, 2, 0]
    assert made.rows(topic(2, partitions=3), rows(1)).rows[0].partition == 0, "each topic by itself"


def test_no_rows_are_no_rows_of_a_partition() -> None:
    assert preparation().rows(topic(), []).rows == []


# Rows that do not fit -----------------------------------------------------------------------------


def test_rows_that_do_not_fit_are_refused_by_number_unless_they_are_to_be_kept() -> None:
    made = preparation()
    mixed = [*rows(2), {"id": "no", "v": "x"}]

    with pytest.raises(RowsRefused) as refused:
        made.rows(topic(), mixed)
    kept = made.rows(topic(), mixed, rejected="keep")

    assert [row.number for row in refused.value.refused] == [2]
    assert [(each.topic.number, each.batch.num_rows) for each in kept.rows] == [(1, 2), (101, 1)]
    assert (kept.accepted, kept.rejected) == (2, 1)
    with pytest.raises(InvalidRequest, match="'refuse' or 'keep'"):
        made.rows(topic(), mixed, rejected="drop")  # type: ignore[arg-type]


# Keys to delete -----------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [7, [7], (7,), {"id": 7}, [{"id": 7}], pa.table({"id": [7]})])
def test_keys_to_delete_may_be_given_bare_or_as_rows(keys: Any) -> None:
    (part,) = preparation().keys(topic(key=("id",)), keys).rows

    assert part.tombstones
    assert part.batch.to_pylist() == [{"id": 7, "v": None}]


def test_a_key_of_several_columns_is_given_by_their_names() -> None:
    made, keyed = preparation(), topic(key=("id", "v"))

    (part,) = made.keys(keyed, [{"id": 1, "v": "a"}]).rows

    assert part.batch.to_pylist() == [{"id": 1, "v": "a"}]
    with pytest.raises(InvalidRequest):
        made.keys(keyed, [1])


def test_a_delete_goes_to_the_partition_of_its_key() -> None:
    made, keyed = preparation(), topic(key=("id",), partitions=5)

    for number in range(20):
        assert made.keys(keyed, number).rows[0].partition == made.rows(keyed, rows(1, number)).rows[0].partition


def test_keys_that_do_not_fit_are_refused_and_a_topic_without_a_key_has_none() -> None:
    made = preparation()
    with pytest.raises(RowsRefused):
        made.keys(topic(key=("id",)), [{"id": None}])
    with pytest.raises(InvalidRequest, match="no key"):
        made.keys(topic(), 7)


# Requests -----------------------------------------------------------------------------------------


def test_a_small_request_keeps_its_rows_and_a_large_one_is_encoded_at_once() -> None:
    made = preparation()
    small = made.request(made.rows(topic(), rows(3)).rows)
    large = made.request(made.rows(topic(), rows(10_000)).rows)

    assert small.joins and not small.drafts
    assert not large.joins and [draft.row_count for draft in large.drafts] == [10_000]
    assert large.frame_bytes == sum(draft.frame_size for draft in large.drafts)


def test_a_transaction_is_encoded_whatever_its_size_and_its_frames_say_so() -> None:
    made = preparation()

    request = made.request(made.rows(topic(), rows(1)).rows, transaction=True, identity=Identity(3, 1, 7))

    assert not request.joins
    assert [draft.flags for draft in request.drafts] == [Flag.TRANSACTION]
    assert (request.drafts[0].producer_id, request.drafts[0].sequence) == (3, 7)


def test_a_transaction_of_nothing_but_records_is_alone() -> None:
    request = preparation().request([], transaction=True, sources=[SourceAt("pg", 1, None)])

    assert not request.joins


def test_large_requests_are_split_by_the_limit_of_a_frame_and_refused_by_that_of_a_write() -> None:
    settings = replace(with_log(write_body_bytes_max=32 * KIB), join_bytes_max=KIB, frame_bytes_max=8 * KIB)
    made = preparation(settings)

    request = made.request(made.rows(topic(), rows(1_000)).rows)

    assert len(request.drafts) > 1
    assert all(draft.body_size <= 8 * KIB for draft in request.drafts)
    with pytest.raises(TooLarge, match="several writes"):
        made.request(made.rows(topic(), rows(10_000)).rows)


def test_rows_that_a_transaction_has_in_pieces_are_joined_as_far_as_their_order_allows() -> None:
    made = preparation()
    keyed = topic(key=("id",))
    upserts = [made.rows(keyed, rows(1, number)).rows[0] for number in range(3)]
    deletes = [made.keys(keyed, number).rows[0] for number in range(2)]
    other = made.rows(topic(2), rows(5)).rows[0]

    request = made.request([upserts[0], other, upserts[1], deletes[0], deletes[1], upserts[2]], transaction=True)

    found = [(draft.topic_number, draft.row_count, bool(draft.flags & Flag.TOMBSTONES)) for draft in request.drafts]
    assert found == [(1, 2, False), (2, 5, False), (1, 2, True), (1, 1, False)]


def test_a_transaction_leaves_room_for_the_frames_that_come_with_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Schemas and sequences are frames of the same write."""
    monkeypatch.setattr(appending, "WRITE_FRAMES_MAX", 6)
    made = preparation()
    spread = topic(partitions=10)
    parts = [made.rows(spread, rows(1), partition=number).rows[0] for number in range(6)]
    sources = [SourceAt("pg", 1, None)]

    assert len(made.request(parts[:3], transaction=True, sources=sources).drafts) == 4
    for wanted, with_sources in ((parts[:5], []), (parts[:4], sources)):
        with pytest.raises(TooLarge, match="too many frames"):
            made.request(wanted, transaction=True, sources=with_sources)


def test_the_sources_of_a_transaction_count_against_the_limit_of_a_write() -> None:
    made = preparation(with_log(write_body_bytes_max=64 * KIB, segment_size_bytes_max=64 * KIB))
    sources = [SourceAt(f"s{number}", "x" * 10_000, None) for number in range(10)]

    with pytest.raises(TooLarge):
        made.request([], transaction=True, sources=sources)


# Small things -------------------------------------------------------------------------------------


def test_an_idempotency_key_is_128_bits_of_its_bytes() -> None:
    assert len(key_hash("k")) == 16
    assert key_hash("k") == key_hash(b"k") != key_hash("l")
    assert key_hash("x" * 255)
    for wrong in ("", "x" * 256, "é" * 128):
        with pytest.raises(InvalidRequest, match="1 to 255 bytes"):
            key_hash(wrong)


def test_an_idempotency_key_is_text_or_bytes() -> None:
    with pytest.raises(InvalidRequest, match="text or bytes"):
        key_hash(5)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="UTF-8"):
        key_hash("\udcff")


def test_an_idempotency_key_is_the_topics_own() -> None:
    assert len({key_hash("k"), key_hash("k", b"1" * 16), key_hash("k", b"2" * 16)}) == 3


def test_a_row_above_the_limit_has_the_number_that_it_has_in_the_request() -> None:
    made = preparation(replace(QUIET, join_bytes_max=KIB, frame_bytes_max=2 * KIB))
    keyed = topic(key=("id",), partitions=4)
    given = [*rows(17), {"id": 17, "v": "x" * 5_000}, *rows(10, 18)]

    with pytest.raises(TooLarge) as refused:
        made.request(made.rows(keyed, given).rows)

    assert refused.value.facts["row"] == 17


def test_an_expected_offset_means_one_partition() -> None:
    made = preparation()
    spread = topic(key=("id",), partitions=4)
    one = made.rows(topic(partitions=2), rows(1), partition=1).rows

    assert expected_offset(topic(partitions=2), one, 5) == {1 << 32 | 1: 5}
    with pytest.raises(InvalidRequest, match="means one partition"):
        expected_offset(spread, made.rows(spread, rows(50)).rows, 5)
