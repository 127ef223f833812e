"""The task on real logs: what tasks write is what a reader of the topic gets, whatever the log went through."""

from __future__ import annotations

import random
import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, ListType, LongType, NestedField, StringType, StructType, UUIDType

import headwater as hw
from headwater.errors import CorruptData
from headwater.lake.data_files import DataFileWriter, columns_of, read_data_file, read_rewritten_file
from headwater.lake.digest import combine, digest_of
from headwater.lake.task import land, perform, read_back
from headwater.lake.work import LandDone, LandWork, ReadBackDone, ReadBackWork, WrittenFile, pack, unpack_done
from headwater.lake.write_target import data_file, decode_target
from headwater.metadata.operations import TopicRecord
from tests.unit.lake.landing_works import (
    COMMIT_ID,
    done_for,
    iceberg_schema,
    planned_for,
    record_of,
    rows_in,
    rows_read,
    small_segments,
    target_for,
    target_of,
    works_for,
)
from tests.unit.topics.small_engines import engine_of

SCHEMA = {"id": int, "name": str | None}


def rows(first: int, count: int = 10) -> list[dict[str, object]]:
    return [{"id": first + each, "name": None if each % 3 else f"n{each}"} for each in range(count)]


def land_all(works: list[LandWork]) -> list[LandDone]:
    return [land(work, attempt) for attempt, work in enumerate(works, 1)]


def check(topic: hw.Topic, target: bytes, done: list[LandDone]) -> pa.Table:
    """The files of a topic hold what a reader gets, and the digest is of just that."""
    own = done_for(done, topic.number)
    assert [each.error for each in own if each.error] == []
    got = rows_in(target, own)
    assert got.equals(rows_read(topic, got.schema))
    assert combine(each.digest for each in own) == digest_of(got)
    assert sum(file.rows for each in own for file in each.files) == got.num_rows
    assert max(each.max_lsn for each in own) == max(got.column("_hw_lsn").to_pylist())
    return got


# What is landed is what was appended ------------------------------------------------------------------------------


def live(log: hw.Log, random_: random.Random, steps: int) -> list[hw.Topic]:
    """A log that has had a life: partitions, keys, deletes, transactions, new schemas, compaction."""
    orders = log.topic("orders", schema={"id": int, "text": str | None}, partitions=4)
    customers = log.topic("customers", schema={"id": int, "name": str}, key="id", partitions=2, cleanup="compact")
    events = log.topic("events", schema={"at": datetime, "n": int | None}, time="at")
    start = datetime(2026, 1, 1, tzinfo=UTC)
    altered = False
    for step in range(steps):
        act = random_.randrange(8)
        if act <= 1:
            orders.append([{"id": step, "text": "x" * random_.randrange(200)} for _ in range(random_.randrange(1, 30))])
        elif act <= 3:
            customers.upsert([{"id": random_.randrange(40), "name": f"{step}"} for _ in range(random_.randrange(1, 9))])
        elif act == 4:
            customers.delete([{"id": each} for each in random_.sample(range(40), 3)])
        elif act == 5:
            events.append([{"at": start + timedelta(hours=step), "n": None}, {"at": start, "n": step}])
        elif act == 6:
            with log.transaction() as transaction:
                transaction.append("orders", [{"id": -step, "text": None}])
                transaction.append("events", [{"at": start, "n": step}])
        elif step > steps // 2 and not altered:
            orders.alter(schema={"id": int, "text": str | None, "amount": float | None})
            altered = True
        elif random_.random() < 0.2:
            customers.compact()
    return [orders, customers, events]


@pytest.mark.parametrize("seed", range(6))
def test_tasks_write_what_a_reader_gets_from_a_log_that_has_had_a_life(tmp_path: Path, seed: int) -> None:
    random_ = random.Random(seed)
    with hw.open(tmp_path / "data", settings=small_segments(32 * 1024)) as log:
        topics = live(log, random_, 150)
        targets = {record_of(topic): target_for(record_of(topic), tmp_path / topic.name) for topic in topics}

        item_bytes = random_.choice([4_000, 20_000, 1 << 30])
        works = works_for(log, targets, item_bytes=item_bytes)
        done = land_all(works)

        assert len(works) > 1
        for topic, target in zip(topics, targets.values(), strict=True):
            check(topic, target, done)


@pytest.mark.parametrize("seed", range(3))
def test_rounds_one_after_the_other_write_every_row_once(tmp_path: Path, seed: int) -> None:
    random_ = random.Random(seed)
    with hw.open(tmp_path / "data", settings=small_segments(16 * 1024)) as log:
        topics = live(log, random_, 120)
        targets = {record_of(topic): target_for(record_of(topic), tmp_path / topic.name) for topic in topics}
        landed = {topic.number: 0 for topic in topics}
        done: list[LandDone] = []
        rounds = 0
        while True:
            planned = planned_for(log, targets, landed=landed, budget_bytes=10_000)
            if not planned.works:
                break
            rounds += 1
            done += [land(work, rounds * 100 + number) for number, work in enumerate(planned.works)]
            landed = dict.fromkeys(landed, planned.plan.lsn_to)

        assert rounds > 2
        for topic, target in zip(topics, targets.values(), strict=True):
            check(topic, target, done)


NESTED = pa.schema(
    [
        pa.field("flag", pa.bool_()),
        pa.field("small", pa.int8()),
        pa.field("unsigned", pa.uint32()),
        pa.field("half", pa.float16()),
        pa.field("real", pa.float64()),
        pa.field("money", pa.decimal128(20, 4)),
        pa.field("text", pa.string()),
        pa.field("data", pa.binary()),
        pa.field("fixed", pa.binary(16)),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("local", pa.timestamp("us")),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("lines", pa.list_(pa.struct([("n", pa.int16()), ("notes", pa.list_(pa.string()))]))),
        pa.field("place", pa.struct([("x", pa.float32()), ("inner", pa.struct([("y", pa.int64())]))])),
        pa.field("labels", pa.map_(pa.string(), pa.string())),
        pa.field("deep", pa.map_(pa.string(), pa.struct([("v", pa.list_(pa.int8()))]))),
        pa.field("odd name-ü", pa.int32()),
        pa.field("odd", pa.struct([("in side", pa.int32())])),
    ]
)


def nested_rows() -> list[dict[str, Any]]:
    full: dict[str, Any] = {
        "flag": True,
        "small": -7,
        "unsigned": (1 << 32) - 1,
        "half": 1.5,
        "real": -0.0,
        "money": Decimal("1234567890.1234"),
        "text": "grüße",
        "data": b"\x00\xff",
        "fixed": bytes(range(16)),
        "day": datetime(2026, 2, 3).date(),  # noqa: DTZ001  a day has no zone
        "at": datetime(2026, 2, 3, 4, 5, 6, 7, tzinfo=UTC),
        "local": datetime(1969, 2, 3, 4, 5, 6, 7),  # noqa: DTZ001  and this column has none
        "tags": ["a", None],
        "lines": [{"n": 1, "notes": ["x", None]}, None, {"n": None, "notes": None}],
        "place": {"x": 0.5, "inner": {"y": 1}},
        "labels": [("k", "v"), ("l", None)],
        "deep": [("k", {"v": [1, None]}), ("l", None)],
        "odd name-ü": 3,
        "odd": {"in side": 4},
    }
    nothing: dict[str, Any] = dict.fromkeys(full)
    empty: dict[str, Any] = {
        **nothing,
        "tags": [],
        "lines": [],
        "labels": [],
        "deep": [],
        "place": {"x": None, "inner": None},
    }
    return [full, nothing, empty, full]


def test_every_type_and_every_null_is_written_as_it_was(tmp_path: Path) -> None:
    """pyiceberg's own projection makes an empty list of a null one where it holds structs."""
    with hw.open(tmp_path / "data") as log:
        topic = log.topic("all", schema=NESTED)
        for _ in range(3):
            topic.append(nested_rows())
        target = target_for(record_of(topic), tmp_path / "table")

        done = land_all(works_for(log, {record_of(topic): target}))

        got = check(topic, target, done)
        assert got.column("lines").to_pylist()[:3] == [row["lines"] for row in nested_rows()[:3]]
        assert got.column("deep").null_count == 3
        (file,) = done[0].topics[0].files
        stored = pq.read_schema(file.path.removeprefix("file://"))
        assert "odd name-ü" not in stored.names, "Avro could not spell it"
        assert not [field for field in stored if "large" in str(field.type)]


def test_a_column_of_the_table_that_the_topic_lacks_is_left_out_and_a_struct_gets_its_fields(tmp_path: Path) -> None:
    inner = pa.struct([("a", pa.int32()), ("b", pa.string())])
    with hw.open(tmp_path / "data") as log:
        topic = log.topic("t", schema=pa.schema([("s", inner), ("l", pa.list_(inner)), ("u", pa.binary(16))]))
        key = uuid.UUID(int=7)
        topic.append([{"s": {"a": 1, "b": "x"}, "l": [{"a": 2, "b": None}, None], "u": key.bytes}, {}])
        struct = StructType(
            NestedField(20, "new", StringType(), required=False),
            NestedField(21, "b", StringType(), required=False),
            NestedField(22, "a", LongType(), required=False),
        )
        of_list = StructType(*(field.model_copy(update={"field_id": field.field_id + 10}) for field in struct.fields))
        system = iceberg_schema(pa.schema([pa.field("x", pa.int8()), *system_fields()]))
        schema = Schema(
            NestedField(1, "not ours", IntegerType(), required=False),
            NestedField(9, "u", UUIDType(), required=False),
            NestedField(2, "s", struct, required=False),
            NestedField(3, "l", ListType(40, of_list, element_required=False), required=False),
            *(field.model_copy(update={"field_id": field.field_id + 50}) for field in system.fields[1:]),
        )
        ours = ["s", "l", "u", *(field.name for field in system_fields())]
        target = target_of(schema, tmp_path / "table", columns=ours)

        done = land_all(works_for(log, {record_of(topic): target}))

    (told,) = done_for(done, topic.number)
    assert told.error is None
    got = rows_in(target, [told])
    assert got.column_names[:3] == ["s", "l", "u"], "by field id, as the digest is"
    assert got.column("s").to_pylist() == [{"new": None, "b": "x", "a": 1}, None]
    assert got.column("l").to_pylist() == [[{"new": None, "b": None, "a": 2}, None], None]
    assert got.column("u").to_pylist() == [key, None]
    assert told.digest == digest_of(got)


def system_fields() -> list[pa.Field]:
    from headwater.lake.shape import SYSTEM_COLUMNS

    return list(SYSTEM_COLUMNS)


def partition_of(file: WrittenFile) -> list[Any]:
    partition = data_file(file).partition
    return [partition[place] for place in range(len(partition))]


# Partitions of the table ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_order", [True, False])
def test_rows_go_into_the_partitions_of_any_spec(tmp_path: Path, in_order: bool) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    given = [
        {"at": start + timedelta(hours=each), "region": ("eu", "us", None)[each % 3], "n": each} for each in range(100)
    ]
    if not in_order:
        random.Random(1).shuffle(given)
    with hw.open(tmp_path / "data") as log:
        topic = log.topic("events", schema={"at": datetime, "region": str | None, "n": int})
        for first in range(0, 100, 7):
            topic.append(given[first : first + 7])
        record = record_of(topic)
        for number, spec in enumerate(
            [[("day", "at")], [("day", "at"), ("identity", "region")], [("bucket[4]", "n")], [("truncate[10]", "n")]]
        ):
            target = target_for(record, tmp_path / f"table{number}", partition_by=spec)

            done = land_all(works_for(log, {record: target}))

            check(topic, target, done)
            files = [file for each in done_for(done, topic.number) for file in each.files]
            for file in files:
                inside = pa.concat_tables(read_data_file(target, file.path))
                values = partition_of(file)
                if spec[0][0] == "day":
                    days = {(at - datetime(1970, 1, 1, tzinfo=UTC)).days for at in inside.column("at").to_pylist()}
                    assert days == {values[0]}
                if len(spec) == 2:
                    assert set(inside.column("region").to_pylist()) == {values[1]}
                if spec[0][0] == "truncate[10]":
                    assert {n - n % 10 for n in inside.column("n").to_pylist()} == {values[0]}
            expected = {"day": 5, "bucket[4]": 4, "truncate[10]": 10}[spec[0][0]] * (3 if len(spec) == 2 else 1)
            assert len(files) == expected


def test_a_table_partitioned_by_a_column_that_the_topic_lacks_gets_its_rows_under_null(tmp_path: Path) -> None:
    with hw.open(tmp_path / "data") as log:
        topic = log.topic("t", schema={"n": int})
        topic.append([{"n": 1}])
        shape = iceberg_schema(pa.schema([pa.field("n", pa.int64()), *system_fields(), pa.field("more", pa.string())]))
        names = ["n", *(field.name for field in system_fields())]
        target = target_of(shape, tmp_path / "table", columns=names, partition_by=[("identity", "more")])

        (done,) = land_all(works_for(log, {record_of(topic): target}))

    (told,) = done.topics
    assert told.error is None
    (file,) = told.files
    assert partition_of(file) == [None]


def test_a_table_may_be_partitioned_by_a_field_of_a_struct(tmp_path: Path) -> None:
    place = pa.struct([("inner", pa.struct([("country", pa.string())]))])
    given = [{"place": {"inner": {"country": country}}} for country in ("de", "us", None, "de")]
    with hw.open(tmp_path / "data") as log:
        topic = log.topic("t", schema=pa.schema([("place", place)]))
        topic.append([*given, {"place": None}])
        spec = [("identity", "place.inner.country")]
        target = target_for(record_of(topic), tmp_path / "table", partition_by=spec)

        done = land_all(works_for(log, {record_of(topic): target}))

        check(topic, target, done)
    (told,) = done_for(done, topic.number)
    assert sorted((str(partition_of(file)[0]), file.rows) for file in told.files) == [("None", 2), ("de", 2), ("us", 1)]


def test_files_are_cut_where_the_table_says(tmp_path: Path) -> None:
    with hw.open(tmp_path / "data") as log:
        topic = log.topic("t", schema=SCHEMA)
        topic.append(rows(0, 5_000))
        properties = {"write.target-file-size-bytes": "100000"}
        target = target_for(record_of(topic), tmp_path / "table", properties=properties)

        done = land_all(works_for(log, {record_of(topic): target}))

        check(topic, target, done)
        assert len(done[0].topics[0].files) > 2


@pytest.mark.parametrize("spec", [[], [("day", "day")], [("year", "at")], [("identity", "day"), ("identity", "at")]])
def test_days_that_python_cannot_spell_are_landed_too(tmp_path: Path, spec: list[tuple[str, str]]) -> None:
    """Arrow, Iceberg and Spark have years above 9999; pyiceberg reads bounds and paths as Python's dates."""
    schema = pa.schema([("day", pa.date32()), ("at", pa.timestamp("us")), ("zoned", pa.timestamp("us", "UTC"))])
    numbers = [0, None, 2**31 - 1, -(2**31)], [0, None, 2**63 - 1, 2**63 - 1], [0, 1, 2, 3]
    arrays = [
        pa.array(each, pa.int32() if field.type == pa.date32() else pa.int64()).cast(field.type)
        for each, field in zip(numbers, schema, strict=True)
    ]
    with hw.open(tmp_path / "data") as log:
        topic = log.topic("t", schema=schema)
        topic.append(pa.record_batch(arrays, schema=schema))
        target = target_for(record_of(topic), tmp_path / "table", partition_by=spec)

        done = land_all(works_for(log, {record_of(topic): target}))

        check(topic, target, done)
    stats = [data_file(file) for each in done_for(done, topic.number) for file in each.files]
    assert all(3 in file.lower_bounds for file in stats), "other columns keep their bounds"
    if not spec:
        assert [1 in file.lower_bounds or 2 in file.lower_bounds for file in stats] == [False]


# Names, attempts and failures -------------------------------------------------------------------------------------


def one_work(folder: Path) -> tuple[LandWork, bytes]:
    with hw.open(folder / "data") as log:
        topic = log.topic("t", schema=SCHEMA)
        topic.append(rows(0, 100))
        target = target_for(record_of(topic), folder / "table")
        (work,) = works_for(log, {record_of(topic): target})
        return work, target


def test_two_attempts_at_one_work_write_files_of_different_names(tmp_path: Path) -> None:
    work, _ = one_work(tmp_path)

    first, second = land(work, 7), land(work, 8)

    (a,), (b,) = first.topics[0].files, second.topics[0].files
    assert a.path != b.path
    assert COMMIT_ID in a.path and "-7000000-" in a.path
    assert first.topics[0].digest == second.topics[0].digest


def test_a_work_and_its_answer_travel_as_bytes(tmp_path: Path) -> None:
    work, target = one_work(tmp_path)

    done = unpack_done(perform(pack(work), 1))

    assert isinstance(done, LandDone)
    again = perform(pack(ReadBackWork(target, (done.topics[0].files[0].path,), 5)), 2)
    assert unpack_done(again) == ReadBackDone(5, done.topics[0].digest)
    assert set(done.cpu_s) == {"read", "digest", "write"}
    assert done.bytes_read >= work.runs[0][1] - work.runs[0][0]


def test_one_topic_that_cannot_be_written_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "a-file").write_text("no directory")
    with hw.open(tmp_path / "data") as log:
        topics = [log.topic(name, schema=SCHEMA) for name in ("good", "nowhere", "garbled")]
        for topic in topics:
            topic.append(rows(0))
        good, nowhere, garbled = map(record_of, topics)
        targets: dict[TopicRecord, bytes] = {
            good: target_for(good, tmp_path / "table"),
            nowhere: target_for(nowhere, tmp_path / "a-file" / "table"),
            garbled: b"no target",
        }
        (work,) = works_for(log, targets)

        done = land(work, 1)

    told = {each.number: each for each in done.topics}
    assert told[good.number].error is None and told[good.number].digest.rows == 10
    assert told[nowhere.number].error is not None and told[nowhere.number].files == ()
    assert told[garbled.number].error is not None


def test_a_topic_whose_rows_cannot_be_read_says_why_and_the_others_are_landed(tmp_path: Path) -> None:
    with hw.open(tmp_path / "data") as log:
        topics = [log.topic(name, schema=SCHEMA) for name in ("good", "broken")]
        lsns = [topic.append(rows(0)).lsn for topic in topics]
        targets = {record_of(topic): target_for(record_of(topic), tmp_path / topic.name) for topic in topics}
        (work,) = works_for(log, targets)
        place = engine_of(log).shard.log.device.find_lsn(lsns[1])
        assert place is not None
    segment = tmp_path / "data" / "log" / work.segment
    data = bytearray(segment.read_bytes())
    data[place.position + 200] ^= 1
    segment.write_bytes(data)

    good, broken = land(work, 1).topics

    assert good.error is None and good.digest.rows == 10
    assert broken.files == () and broken.error is not None and "checksum" in broken.error


def test_a_null_in_a_required_column_of_the_table_is_an_error_and_no_row_is_lost(tmp_path: Path) -> None:
    with hw.open(tmp_path / "data") as log:
        topic = log.topic("t", schema=SCHEMA)
        topic.append(rows(0))
        required = pa.schema(
            [pa.field("id", pa.int64()), pa.field("name", pa.string(), nullable=False), *system_fields()]
        )
        target = target_of(iceberg_schema(required), tmp_path / "table")
        (work,) = works_for(log, {record_of(topic): target})

        done = land(work, 1)

    assert done.topics[0].error is not None and "name" in done.topics[0].error


def test_a_topic_without_rows_in_a_work_writes_no_file(tmp_path: Path) -> None:
    work, _ = one_work(tmp_path)
    past = msgspec.structs.replace(
        work, topics=tuple(msgspec.structs.replace(each, lsn_from=each.lsn_to) for each in work.topics)
    )

    done = land(past, 1)

    assert done.topics[0].files == () and done.topics[0].digest.rows == 0 and done.topics[0].error is None
    assert not (tmp_path / "table").exists()


# Reading back -----------------------------------------------------------------------------------------------------


def test_a_file_that_was_changed_is_noticed(tmp_path: Path) -> None:
    work, target = one_work(tmp_path)
    (file,) = land(work, 1).topics[0].files
    path = file.path.removeprefix("file://")
    table = pq.read_table(path)
    pq.write_table(table.slice(1), path)
    shorter = read_back(ReadBackWork(target, (file.path,)))
    pq.write_table(table.drop_columns(["name"]), path)
    narrower = read_back(ReadBackWork(target, (file.path,)))

    assert shorter.error is None
    assert shorter.digest.rows == 99
    assert narrower.error is not None and "other columns" in narrower.error


@pytest.mark.parametrize("harm", ["missing", "cut"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, harm: str) -> None:
    work, target = one_work(tmp_path)
    (file,) = land(work, 1).topics[0].files
    path = Path(file.path.removeprefix("file://"))
    if harm == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-20])

    back = read_back(ReadBackWork(target, (file.path,), 3))

    assert back.number == 3
    assert back.error is not None and file.path in back.error


def test_a_file_that_nobody_could_look_at_is_told_apart_from_one_that_is_wrong(tmp_path: Path) -> None:
    _, target = one_work(tmp_path)
    folder = f"file://{tmp_path}"

    back = read_back(ReadBackWork(target, (folder,), 3, item=5))

    assert back.error is None and back.unread is not None and folder in back.unread
    assert (back.number, back.item, back.digest.rows) == (3, 5, 0)


NAMED = pa.schema([("n", pa.int64()), ("tags", pa.list_(pa.struct([("t", pa.string())])))])


def rewritten(folder: Path, fields: dict[str, pa.DataType], lsns: list[int]) -> tuple[bytes, str, pa.Schema]:
    """A target, and a file of these LSNs in which another writer has given some columns other types."""
    target = target_of(iceberg_schema(pa.schema([*NAMED, *system_fields()])), folder / "table")
    columns = columns_of(target)
    ids = {column.name: column.field_id for column in decode_target(target).columns}
    arrays, schema = [], []
    for field in columns:
        if field.name == "tags":
            values = pa.array([[{"t": f"t{lsn}"}] for lsn in lsns], field.type)
        else:
            values = pa.array(lsns, pa.int64()).cast(field.type)
        type_ = fields.get(field.name, field.type)
        arrays.append(pa.array(values.to_pylist(), type_) if field.name != "tags" else renamed(values, type_))
        schema.append(pa.field(field.name, type_, metadata={"PARQUET:field_id": str(ids[field.name])}))
    path = folder / "rewritten.parquet"
    pq.write_table(pa.table(arrays, schema=pa.schema(schema)), path)
    return target, f"file://{path}", columns


def renamed(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """The same lists under other names inside."""
    if values.type == type_:
        return values
    name = type_.value_type.field(0).name
    return pa.array([[{name: each["t"]} for each in row] for row in values.to_pylist()], type_)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"n": pa.int32()},
        {"tags": pa.list_(pa.field("array", pa.struct([("_t", pa.string())])))},
        {"_hw_time": pa.timestamp("ms", "UTC"), "_hw_partition": pa.int64()},
    ],
    ids=str,
)
def test_rows_of_a_file_that_another_has_written_are_the_same_in_the_tables_columns(
    tmp_path: Path, fields: dict[str, pa.DataType]
) -> None:
    expected_target, expected_path, columns = rewritten(tmp_path, {}, [1000, 2000, 3000, 4000])
    expected = pa.concat_tables(read_rewritten_file(expected_target, expected_path, (0, 9000)))
    target, path, _ = rewritten(tmp_path, fields, [1000, 2000, 3000, 4000])

    read = pa.concat_tables(read_rewritten_file(target, path, (1000, 3000)))

    assert read.schema.equals(columns) and read.column("_hw_lsn").to_pylist() == [2000, 3000]
    assert read.column("tags").to_pylist() == [[{"t": "t2000"}], [{"t": "t3000"}]]
    assert read.equals(expected.slice(1, 2))


def test_rows_of_a_later_wider_landing_beside_them_do_not_keep_rows_from_being_read(tmp_path: Path) -> None:
    target = target_of(iceberg_schema(pa.schema([("n", pa.int32()), *system_fields()])), tmp_path / "table")
    ids = {column.name: column.field_id for column in decode_target(target).columns}
    wide = {"n": pa.array([5, 1 << 40], pa.int64()), "_hw_lsn": pa.array([1, 2], pa.int64())}
    arrays = [wide.get(field.name, pa.array([0, 0], pa.int64()).cast(field.type)) for field in columns_of(target)]
    schema = [
        pa.field(field.name, array.type, metadata={"PARQUET:field_id": str(ids[field.name])})
        for field, array in zip(columns_of(target), arrays, strict=True)
    ]
    pq.write_table(pa.table(arrays, schema=pa.schema(schema)), tmp_path / "compacted.parquet")

    read = pa.concat_tables(read_rewritten_file(target, f"file://{tmp_path / 'compacted.parquet'}", (0, 1)))

    assert read.column("n").to_pylist() == [5] and read.schema.field("n").type == pa.int32()


def test_a_file_that_another_has_written_without_a_column_that_was_landed_is_noticed(tmp_path: Path) -> None:
    target, path, _ = rewritten(tmp_path, {}, [1, 2])
    plain = path.removeprefix("file://")
    pq.write_table(pq.read_table(plain).drop_columns(["n"]), plain)

    with pytest.raises(CorruptData, match="lacks columns that were landed"):
        list(read_rewritten_file(target, path, (0, 9)))


def test_a_writer_gives_what_it_was_given_in_the_tables_columns(tmp_path: Path) -> None:
    work, target = one_work(tmp_path)
    columns = columns_of(target)
    empty = columns.empty_table()

    assert DataFileWriter(target, COMMIT_ID, 1).write(empty) == []
    assert columns.names == ["id", "name", "_hw_shard", "_hw_lsn", "_hw_partition", "_hw_offset", "_hw_time"]
    assert work.topics[0].target == target
