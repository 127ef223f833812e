"""Metadata from a log alone: what comes back, under which number, and which numbers are never given out again."""

from __future__ import annotations

from headwater.frames.frame import Flag, Header, Kind, pack_chain_value
from headwater.log.index import partition_key
from headwater.metadata.operations import Operation
from headwater.metadata.rebuild import Rebuilding
from headwater.metadata.records import CommittedOffset, OffsetsRecord, SchemaRecord, pack_record
from headwater.metadata.shard_state import Committed, ShardState
from headwater.metadata.state import MetadataState


def header(kind: Kind, lsn: int = 1, **fields: int) -> Header:
    numbers = {**dict.fromkeys(Header._fields[1:], 0), "kind": int(kind), "lsn": lsn, **fields}
    return Header(magic=b"", **numbers)


def schema(number: int, name: str, version: int = 1, **fields: object) -> tuple[Header, bytes]:
    record = SchemaRecord(
        **{
            "name": name,
            "topic_id": bytes([number]) * 16,
            "version": version,
            "schema": f"{name} {version}".encode(),
            "partitions": 1,
            "created_us": 1_000 + number,
            **fields,
        }  # type: ignore[arg-type]
    )
    return header(Kind.SCHEMA, topic_number=number, schema_version=version), pack_record(record)


def rows(number: int, partition: int = 0, count: int = 1) -> tuple[Header, None]:
    return header(Kind.DATA, topic_number=number, partition=partition, row_count=count, offset_count=count), None


def offsets(group: str, number: int) -> tuple[Header, bytes]:
    record = OffsetsRecord(group=group, topic_number=number, offsets=(CommittedOffset(0, 1, 1, 1),))
    return header(Kind.OFFSETS, append_time_us=77), pack_record(record)


def rebuilding(*frames: tuple[Header, bytes | None]) -> Rebuilding:
    found = Rebuilding()
    for each, body in frames:
        found.take(each, body)
    return found


def applied(operations: list[Operation]) -> MetadataState:
    """The state that a journal of these operations has; none of them may be refused."""
    state = MetadataState()
    for lsn, operation in enumerate(operations, 1):
        state.apply(lsn, operation)
    return state


def test_a_topic_comes_back_as_its_schema_frames_say() -> None:
    found = rebuilding(
        schema(1, "orders", key=("id",), time_column="at", partitions=3),
        rows(1, count=5),
        rows(1, partition=1, count=2),
    ).result()

    state = applied(found.operations)
    topic = state.topics[1]
    assert list(state.topics.values()) == found.topics
    assert (topic.name, topic.topic_id, topic.created_us) == ("orders", b"\x01" * 16, 1_001)
    assert (topic.schemas, topic.partitions, topic.key, topic.time_column) == ((b"orders 1",), 3, ("id",), "at")
    assert found.rows == {1: 7}


def test_every_version_of_a_schema_comes_back_under_its_number() -> None:
    found = rebuilding(schema(1, "a"), rows(1), schema(1, "a", 2), rows(1)).result()

    assert applied(found.operations).topics[1].schemas == (b"a 1", b"a 2")


def test_a_version_of_which_nothing_is_left_is_taken_to_be_the_next() -> None:
    found = rebuilding(schema(1, "a", 2), schema(1, "a", 4)).result()

    assert applied(found.operations).topics[1].schemas == (b"a 2", b"a 2", b"a 4", b"a 4")


def test_partitions_are_the_most_that_anything_shows() -> None:
    found = rebuilding(schema(1, "a", partitions=2), schema(1, "a", partitions=4), rows(1, partition=6)).result()

    assert applied(found.operations).topics[1].partitions == 7


def test_a_number_without_a_schema_is_passed_over_for_good() -> None:
    found = rebuilding(schema(3, "c"), rows(5)).result()

    state = applied(found.operations)
    assert found.unnamed == [1, 2, 4, 5]
    assert list(state.topics) == [3]
    assert (state.deleted, state.next_topic_number) == ({}, 6)


def test_of_two_topics_with_one_name_the_later_has_it() -> None:
    found = rebuilding(schema(1, "a"), schema(2, "b"), schema(3, "a")).result()

    state = applied(found.operations)
    assert state.numbers == {"b": 2, "a": 3}
    assert [each.number for each in found.replaced] == [1]
    assert (list(state.deleted), state.deleted[1].deleted_us) == ([1], 1_003)


def test_groups_come_back_from_what_they_committed() -> None:
    found = rebuilding(schema(1, "a"), offsets("billing", 1), offsets("billing", 1), offsets("audit", 1)).result()

    state = applied(found.operations)
    assert found.groups == sorted(state.groups) == ["audit", "billing"]
    assert state.groups["billing"].created_us == 77


def test_a_log_that_begins_later_keeps_its_start() -> None:
    later = Rebuilding()
    later.take(header(Kind.EPOCH, lsn=40), None)
    gap = Rebuilding()
    gap.take(header(Kind.GAP, lsn=40), None, first_lsn=31)
    gap.take(header(Kind.EPOCH, lsn=41), None)

    assert applied(later.result().operations).log_start == later.result().log_start == 40
    assert applied(gap.result().operations).log_start == 31
    assert applied(Rebuilding().result().operations).log_start == 1


def test_a_checkpoint_remembers_numbers_and_groups_that_the_log_has_forgotten() -> None:
    state = ShardState()
    state.next_offsets[partition_key(4, 0)] = 9
    state.groups["old", 6] = {0: Committed(1, 1, 1, 1)}
    found = rebuilding(schema(1, "a"))

    found.know(state, 30)
    found.know(ShardState(), 20)

    assert applied(found.result().operations).next_topic_number == 7
    assert found.result().groups == ["old"]
    assert found.result().journal_lsn == 30


def test_the_filler_changes_nothing_wherever_the_log_begins() -> None:
    found = Rebuilding()
    found.take(header(Kind.EPOCH, lsn=40), None)
    result = found.result()

    before, after = applied(result.operations), applied([*result.operations, result.filler])

    assert after.log_start == before.log_start == 40


def test_a_frame_that_was_rewritten_is_read_without_its_chain_value() -> None:
    each, body = schema(1, "a")
    found = Rebuilding()

    found.take(each._replace(flags=int(Flag.REWRITTEN)), body + pack_chain_value(7))

    assert [topic.name for topic in found.result().topics] == ["a"]
