"""Reading the runs of a work: rows of wanted topics, each once, in their tables' columns; faults fail what they hit."""

from __future__ import annotations

import os
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headwater as hw
from headwater.frames.frame import (
    Codec,
    Flag,
    Header,
    Kind,
    NoFrame,
    body_crc,
    chain_value,
    decode_header,
    pack_chain_value,
    pack_header,
    padding_size,
    reseal_header,
)
from headwater.lake.data_files import columns_of
from headwater.lake.reading import ReadRows, read_rows
from headwater.lake.work import LandWork
from headwater.log.segment import read_opening
from headwater.metadata.operations import TopicRecord
from headwater.storage.disk import DiskFiles
from headwater.topics.batches import encode_sparse
from headwater.topics.schema import unpack_schema
from tests.unit.lake.landing_works import (
    planned_for,
    record_of,
    rows_read,
    small_segments,
    target_for,
    works_for,
)
from tests.unit.topics.small_engines import engine_of

SCHEMA = {"id": int, "name": str | None}


def targets_for(*topics: hw.Topic) -> dict[TopicRecord, bytes]:
    return {record_of(topic): target_for(record_of(topic), Path("/nowhere")) for topic in topics}


def read(work: LandWork) -> ReadRows:
    return read_rows(work, {topic.number: columns_of(topic.target) for topic in work.topics})


def read_all(works: list[LandWork], topic: hw.Topic) -> pa.Table:
    tables = []
    for work in works:
        got = read(work)
        assert not got.errors
        if topic.number in got.topics:
            tables.append(got.topics[topic.number].rows)
    return pa.concat_tables(tables).sort_by([("_hw_lsn", "ascending"), ("_hw_offset", "ascending")])


def rows(first: int, count: int = 10) -> list[dict[str, object]]:
    return [{"id": first + each, "name": None if each % 3 else f"n{each}"} for each in range(count)]


def test_works_of_any_size_hold_every_row_once(tmp_path: Path) -> None:
    with hw.open(tmp_path) as log:
        topic = log.topic("orders", schema=SCHEMA, partitions=3)
        other = log.topic("others", schema=SCHEMA)
        for number in range(60):
            topic.append(rows(number))
            other.append(rows(number, 3))
        targets = targets_for(topic, other)

        for item_bytes in (1, 3_000, 50_000, 1 << 30):
            works = works_for(log, targets, item_bytes=item_bytes)
            for each in (topic, other):
                got = read_all(works, each)
                assert got.equals(rows_read(each, got.schema))


def test_rows_begin_after_the_landed_lsn_of_each_topic_and_end_at_the_plans(tmp_path: Path) -> None:
    with hw.open(tmp_path) as log:
        one = log.topic("one", schema=SCHEMA)
        two = log.topic("two", schema=SCHEMA)
        firsts = [(one.append(rows(number)).lsn, two.append(rows(number)).lsn) for number in range(20)]
        landed = {one.number: firsts[4][0], two.number: firsts[11][1]}

        planned = planned_for(log, targets_for(one, two), landed=landed)

        for topic in (one, two):
            got = read_all(planned.works, topic)
            all_rows = rows_read(topic, got.schema)
            expected = all_rows.filter(pc.greater(all_rows.column("_hw_lsn"), landed[topic.number]))
            assert got.equals(expected)
        (work,) = planned.works
        earlier = msgspec.structs.replace(
            work, topics=tuple(msgspec.structs.replace(each, lsn_to=firsts[13][1]) for each in work.topics)
        )
        assert read(earlier).topics[one.number].max_lsn == firsts[13][0]


def test_thousands_of_small_frames_come_in_few_chunks(tmp_path: Path) -> None:
    with hw.open(tmp_path) as log:
        topic = log.topic("orders", schema=SCHEMA)
        with log.transaction() as transaction:
            for number in range(3_000):
                transaction.append("orders", rows(number, 1))
        got = read_all(works_for(log, targets_for(topic)), topic)

        assert got.num_rows == 3_000
        assert got.column("id").num_chunks == 1
        assert got.column("_hw_lsn").num_chunks == 1
        assert got.equals(rows_read(topic, got.schema))


def test_rows_of_older_schema_versions_come_in_the_newest(tmp_path: Path) -> None:
    with hw.open(tmp_path) as log:
        topic = log.topic("orders", schema=pa.schema([("id", pa.int8()), ("name", pa.string())]))
        topic.append([{"id": 1, "name": "a"}])
        topic.alter(schema=pa.schema([("id", pa.int16()), ("name", pa.string()), ("amount", pa.float32())]))
        topic.append([{"id": 300, "name": "b", "amount": 1.5}])
        topic.alter(
            schema=pa.schema([("id", pa.int64()), ("name", pa.string()), ("amount", pa.float64()), ("at", pa.date32())])
        )
        topic.append([{"id": 1 << 40, "name": None, "amount": 2.5, "at": None}])

        got = read_all(works_for(log, targets_for(topic)), topic)

        assert got.equals(rows_read(topic, got.schema))
        assert got.column("id").to_pylist() == [1, 300, 1 << 40]
        assert got.column("amount").to_pylist() == [None, 1.5, 2.5]


def test_changes_of_a_keyed_topic_say_what_they_are(tmp_path: Path) -> None:
    with hw.open(tmp_path) as log:
        topic = log.topic("customers", schema={"id": int, "name": str}, key="id", partitions=2)
        topic.upsert([{"id": each, "name": "a"} for each in range(5)])
        topic.delete([{"id": 1}, {"id": 3}])
        topic.upsert([{"id": 1, "name": "again"}])

        got = read_all(works_for(log, targets_for(topic)), topic)

        assert got.equals(rows_read(topic, got.schema))
        assert got.filter(pc.equal(got.column("_hw_op"), "D")).column("id").to_pylist() in ([1, 3], [3, 1])


def test_offsets_of_compacted_rows_are_those_they_were_appended_with(tmp_path: Path) -> None:
    with hw.open(tmp_path, settings=small_segments()) as log:
        topic = log.topic("customers", schema={"id": int, "name": str}, key="id", cleanup="compact")
        other = log.topic("others", schema=SCHEMA)
        for number in range(120):
            topic.upsert([{"id": (number * 7 + each) % 23, "name": "n" * 50} for each in range(10)])
            other.append(rows(number))
        removed = topic.compact()
        assert removed.rows_removed > 0

        targets = targets_for(topic, other)
        for item_bytes in (5_000, 1 << 30):
            works = works_for(log, targets, item_bytes=item_bytes)
            for each in (topic, other):
                got = read_all(works, each)
                assert got.equals(rows_read(each, got.schema))


def test_a_large_frame_stays_as_it_lies_between_small_ones_that_are_put_together(tmp_path: Path) -> None:
    large = pa.table({"id": range(65_536), "name": pa.repeat("n", 65_536)})
    with hw.open(tmp_path) as log:
        topic = log.topic("orders", schema=SCHEMA)
        topic.append(rows(0))
        topic.append(rows(1))
        topic.append(large)
        topic.append(rows(2))
        topic.append(rows(3))

        got = read_all(works_for(log, targets_for(topic)), topic)
        (work,) = works_for(log, targets_for(topic))
        chunks = read(work).topics[topic.number].rows.column("id").chunks

        assert got.equals(rows_read(topic, got.schema))
        assert [len(chunk) for chunk in chunks] == [20, 65_536, 20]


def test_a_frame_of_which_no_row_is_left_gives_none(tmp_path: Path) -> None:
    # Given a compaction's frame without a row in it, which the format allows, as the last one.
    with hw.open(tmp_path) as log:
        topic = log.topic("orders", schema=SCHEMA)
        kept = topic.append(rows(0)).lsn
        topic.append(rows(1))
        (work,) = works_for(log, targets_for(topic))
        schema = unpack_schema(record_of(topic).schemas[-1])
    path = tmp_path / "log" / work.segment
    data, salted = path.read_bytes(), salted_of(tmp_path, work)
    position, header = frames_in(tmp_path, work)[-1]
    empty = pa.RecordBatch.from_pylist([], schema=schema)
    body = encode_sparse(empty, pa.array([], pa.int64())) + pack_chain_value(chain_value(header, b""))
    new = reseal_header(
        header._replace(
            kind=Kind.SPARSE,
            flags=header.flags | Flag.REWRITTEN,
            codec=Codec.NONE,
            row_count=0,
            body_size=len(body),
            padding_size=padding_size(len(body)),
            body_crc=body_crc(body),
            header_units=1,
        ),
        salted,
    )
    path.write_bytes(data[:position] + pack_header(new) + body + bytes(new.padding_size))
    ((start, _),) = work.runs

    got = read(msgspec.structs.replace(work, runs=((start, position + new.frame_size),)))

    assert not got.errors
    assert got.topics[topic.number].rows.num_rows == 10 and got.topics[topic.number].max_lsn == kept


def test_a_watermark_is_that_of_the_declared_time_column(tmp_path: Path) -> None:
    def at(second: int) -> datetime:
        return datetime.fromtimestamp(second, UTC)

    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    with hw.open(tmp_path) as log:
        timed = log.topic("timed", schema=schema, time="at")
        plain = log.topic("plain", schema=schema)
        for topic in (timed, plain):
            topic.append([{"id": 1, "at": at(5)}, {"id": 2, "at": at(9)}])
            topic.append([{"id": 3, "at": at(7)}])
        (work,) = works_for(log, targets_for(timed, plain))

        got = read(work)

        assert got.topics[timed.number].time_max_us == 9_000_000
        assert got.topics[plain.number].time_max_us is None


def test_bodies_of_other_topics_are_not_looked_at_and_bytes_are_read_about_once(tmp_path: Path) -> None:
    with hw.open(tmp_path) as log:
        topic = log.topic("orders", schema=SCHEMA)
        other = log.topic("others", schema=SCHEMA)
        topic.append(rows(0, 400))
        at = other.append(rows(0, 2_000)).lsn
        topic.append(rows(1, 400))
        (work,) = works_for(log, targets_for(topic))
        place = engine_of(log).shard.log.device.find_lsn(at)
        assert place is not None
    damage(tmp_path / "log" / work.segment, place.position + 1_000)

    got = read(work)

    assert not got.errors
    assert got.topics[topic.number].rows.num_rows == 800
    (run,) = work.runs
    assert got.bytes_read <= run[1] - run[0] + 256


def test_a_round_of_a_thousand_topics_reads_no_byte_twice_over(tmp_path: Path) -> None:
    with hw.open(tmp_path, settings=small_segments(1024 * 1024)) as log:
        new = [hw.NewTopic(f"t{number}", schema=SCHEMA) for number in range(1_000)]
        topics = log.create_topics(new)
        for _ in range(2):
            with log.transaction() as transaction:
                for topic in topics:
                    transaction.append(topic.name, rows(0, 3))
        halved = {topic.number: log._engine.durable_lsn() if topic.number % 2 else 0 for topic in topics}
        topics[1].append(rows(0, 3))
        target = target_for(record_of(topics[0]), Path("/nowhere"))
        targets = {record_of(topic): target for topic in topics}
        size = sum(path.stat().st_size for path in (tmp_path / "log").glob("*.seg"))

        everything = [read(work) for work in works_for(log, targets, item_bytes=256 * 1024)]
        half = [read(work) for work in works_for(log, targets, landed=halved, item_bytes=256 * 1024)]

    assert not any(got.errors for got in (*everything, *half))
    assert sum(each.rows.num_rows for got in everything for each in got.topics.values()) == 6_003
    assert sum(each.rows.num_rows for got in half for each in got.topics.values()) == 3_003
    assert len(everything) > 2
    assert sum(got.bytes_read for got in everything) <= 2 * size
    assert sum(got.bytes_read for got in half) <= 2 * size


# Faults -----------------------------------------------------------------------------------------------------------


def damage(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)
        file.seek(position)
        file.write(bytes([byte[0] ^ 0x40]))


def salted_of(folder: Path, work: LandWork) -> int:
    with closing(DiskFiles(folder).open(f"log/{work.segment}")) as file:
        opening = read_opening(file)
    assert not isinstance(opening, NoFrame)
    return opening.salted


def frames_in(folder: Path, work: LandWork) -> list[tuple[int, Header]]:
    """The headers of the frames that a work reads, and where they lie."""
    data, salted = memoryview((folder / "log" / work.segment).read_bytes()), salted_of(folder, work)
    found = []
    for start, end in work.runs:
        position = start
        while position < end:
            header = decode_header(data, position, salted)
            assert not isinstance(header, NoFrame)
            found.append((position, header))
            position += header.frame_size
    return found


def two_topics(folder: Path) -> tuple[LandWork, int, int, int]:
    """A work of two topics, their numbers, and the position of a frame of the first."""
    with hw.open(folder) as log:
        one = log.topic("one", schema=SCHEMA)
        two = log.topic("two", schema=SCHEMA)
        one.append(rows(0))
        two.append(rows(0))
        lsn = one.append(rows(1)).lsn
        two.append(rows(1))
        (work,) = works_for(log, targets_for(one, two))
        place = engine_of(log).shard.log.device.find_lsn(lsn)
        assert place is not None
        return work, one.number, two.number, place.position


def test_a_frame_with_a_wrong_body_fails_its_own_topic_alone(tmp_path: Path) -> None:
    work, one, two, position = two_topics(tmp_path)
    damage(tmp_path / "log" / work.segment, position + 128 + 40)

    got = read(work)

    assert set(got.errors) == {one}
    assert "checksum" in got.errors[one]
    assert got.topics[two].rows.num_rows == 20


def test_a_gap_with_a_wrong_body_fails_every_topic_of_the_work_because_nobody_knows_what_it_stands_for(
    tmp_path: Path,
) -> None:
    with hw.open(tmp_path, settings=small_segments()) as log:
        topic = log.topic("customers", schema={"id": int, "name": str}, key="id", cleanup="compact")
        other = log.topic("others", schema=SCHEMA)
        for number in range(120):
            topic.upsert([{"id": each, "name": "n" * 50} for each in range(10)])
            other.append(rows(number))
        assert topic.compact().rows_removed > 0
        works = works_for(log, targets_for(topic, other))
    work, position = next(
        (work, position)
        for work in works
        for position, header in frames_in(tmp_path, work)
        if header.kind == Kind.GAP and {topic.number, other.number} == {each.number for each in work.topics}
    )
    damage(tmp_path / "log" / work.segment, position + 128)

    got = read(work)

    assert set(got.errors) == {topic.number, other.number} and got.topics == {}
    assert "checksum" in got.errors[other.number]


def test_a_frame_with_a_wrong_header_fails_every_topic_of_the_work(tmp_path: Path) -> None:
    work, one, two, position = two_topics(tmp_path)
    damage(tmp_path / "log" / work.segment, position + 60)

    got = read(work)

    assert set(got.errors) == {one, two}
    assert got.topics == {}
    assert "headwater log verify" in got.errors[two]


def test_a_segment_that_was_rewritten_meanwhile_fails_every_topic_and_says_which_file(tmp_path: Path) -> None:
    work, one, two, _ = two_topics(tmp_path)
    (tmp_path / "log" / work.segment).rename(tmp_path / "log" / "elsewhere")

    got = read(work)

    assert set(got.errors) == {one, two}
    assert work.segment in got.errors[one]


def test_a_segment_without_a_header_fails_every_topic(tmp_path: Path) -> None:
    work, one, two, _ = two_topics(tmp_path)
    os.truncate(tmp_path / "log" / work.segment, 100)

    got = read(work)

    assert set(got.errors) == {one, two}


def test_a_file_that_ends_inside_a_run_fails_every_topic(tmp_path: Path) -> None:
    work, one, two, position = two_topics(tmp_path)
    os.truncate(tmp_path / "log" / work.segment, position + 128 + 40)

    got = read(work)

    assert set(got.errors) == {one, two}


def test_a_schema_version_that_the_landing_does_not_know_fails_its_topic(tmp_path: Path) -> None:
    with hw.open(tmp_path) as log:
        topic = log.topic("orders", schema={"id": int})
        other = log.topic("others", schema={"id": int})
        topic.append([{"id": 1}])
        other.append([{"id": 1}])
        targets = targets_for(topic, other)
        topic.alter(schema={"id": int, "name": str | None})
        topic.append([{"id": 2, "name": "x"}])
        topic.append([{"id": 3, "name": "y"}])
        (work,) = works_for(log, targets)

    got = read(work)

    assert set(got.errors) == {topic.number}
    assert "land again" in got.errors[topic.number]
    assert got.topics[other.number].rows.num_rows == 1


@pytest.mark.parametrize("harm", ["two are swapped", "one is there twice", "one is of another history"])
def test_frames_that_do_not_follow_each_other_are_refused(tmp_path: Path, harm: str) -> None:
    with hw.open(tmp_path) as log:
        topic = log.topic("orders", schema=SCHEMA)
        places = [engine_of(log).shard.log.device.find_lsn(topic.append(rows(0)).lsn) for _ in range(4)]
        (work,) = works_for(log, targets_for(topic))
        salted = engine_of(log).shard.log.device.view.segments[0].opening.salted
    positions = [place.position for place in places if place is not None]
    size = positions[1] - positions[0]
    one, two = (slice(position, position + size) for position in positions[1:3])
    path = tmp_path / "log" / work.segment
    data = bytearray(path.read_bytes())
    match harm:
        case "two are swapped":
            data[one], data[two] = data[two], data[one]
        case "one is there twice":
            # As a mirror that is behind would give it back.
            data[two] = data[one]
        case _:
            header = decode_header(memoryview(bytes(data)), positions[1], salted)
            assert not isinstance(header, NoFrame)
            other = reseal_header(header._replace(append_time_us=header.append_time_us + 1), salted)
            data[positions[1] : positions[1] + 128] = pack_header(other)
    path.write_bytes(data)

    got = read(work)

    assert "two histories" in got.errors[topic.number]
