"""`spark.readStream.format("headwater")`: every row once, over restarts, growth and compaction."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

import headwater as hw
from headwater.clock import ManualClock
from headwater.errors import Conflict, Forgotten, Halted, InvalidRequest
from headwater.spark.source_log import OpenTopic
from headwater.spark.source_options import parse_options
from headwater.spark.source_position import position_from_json
from headwater.spark.source_reader import topic_columns
from headwater.spark.source_rows import spark_schema
from headwater.spark.source_stream import TopicStreamReader
from tests.lake_spark.sessions import PYSPARK_SOCKETS, session_on
from tests.lake_spark.test_source import DAY_S, ORDER, SMALL_SEGMENTS, orders

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = PYSPARK_SOCKETS
ENDED_WITHIN_S = 90


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return session_on()


def start(spark: SparkSession, data: Path, work: Path, *, now: bool = True, **options: str) -> StreamingQuery:
    """A stream of the topic into Parquet files; with `now` it ends when it has read what there is."""
    reader = spark.readStream.format("headwater").option("uri", str(data)).option("topic", "orders")
    for name, value in {"systemColumns": "true", **options}.items():
        reader = reader.option(name, value)
    writer = reader.load().writeStream.format("parquet").option("checkpointLocation", str(work / "checkpoint"))
    writer = writer.trigger(availableNow=True) if now else writer.trigger(processingTime="0 seconds")
    return writer.start(str(work / "rows"))


def run(spark: SparkSession, data: Path, work: Path, **options: str) -> None:
    query = start(spark, data, work, now=True, **options)
    assert query.awaitTermination(ENDED_WITHIN_S), "the stream does not end"


def read_back(spark: SparkSession, work: Path) -> list[dict[str, Any]]:
    rows = spark.read.parquet(str(work / "rows")).orderBy("_hw_lsn", "_hw_offset").collect()
    return [row.asDict() for row in rows]


def ends(work: Path) -> list[dict[str, Any]]:
    """Where each batch ended, by the stream's own checkpoint."""
    files = sorted((work / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    return [json.loads(file.read_text().splitlines()[2]) for file in files]


# In Spark ---------------------------------------------------------------------------------------------------------


def test_a_stream_that_is_stopped_and_started_again_reads_every_row_once(spark: SparkSession, tmp_path: Path) -> None:
    data, work = tmp_path / "data", tmp_path / "work"
    with hw.open(data, settings=SMALL_SEGMENTS) as log:
        topic = log.topic("orders", schema=ORDER, partitions=2)
        log.topic("other", schema=ORDER)
        for round_ in range(3):
            for at in range(0, 100, 10):
                first = round_ * 100 + at
                topic.append(orders(range(first, first + 10)), partition=at // 10 % 2)
            if round_ == 2:
                topic.alter(partitions=3)
                topic.append(orders(range(300, 310)), partition=2)

            run(spark, data, work)

        run(spark, data, work)
        expected = topic.read(system_columns=True).to_pylist()

    found = read_back(spark, work)
    assert [(row["order_id"], row["_hw_partition"], row["_hw_offset"]) for row in found] == [
        (row["order_id"], row["_hw_partition"], row["_hw_offset"]) for row in expected
    ]
    assert [end["offsets"] for end in ends(work)] == [
        {"0": 50, "1": 50},
        {"0": 100, "1": 100},
        {"0": 150, "1": 150, "2": 10},
    ], "where nothing was new there was no batch"


def test_a_batch_takes_no_more_than_was_said_and_never_half_a_write(spark: SparkSession, tmp_path: Path) -> None:
    data, work = tmp_path / "data", tmp_path / "work"
    with hw.open(data) as log:
        topic = log.topic("orders", schema=ORDER, partitions=2)

        def fill(numbers: range) -> None:
            for each in numbers:
                with log.transaction() as transaction:
                    transaction.append("orders", orders(range(each, each + 1), padding=4000), partition=0)
                    transaction.append("orders", orders(range(each, each + 1), padding=4000), partition=1)

        fill(range(20))
        query = start(spark, data, work, now=False, maxBytesPerTrigger="40k")
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        before = len(ends(work))
        fill(range(20, 40))
        query = start(spark, data, work, now=False, maxBytesPerTrigger="40k")
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        assert len(topic.read().to_pylist()) == 80

    found = read_back(spark, work)
    assert [row["order_id"] for row in found] == [each for each in range(40) for _ in range(2)]
    lsns = [end["lsn"] for end in ends(work)]
    assert lsns == sorted(set(lsns))
    batch_of = {row["_hw_lsn"]: sum(row["_hw_lsn"] > lsn for lsn in lsns) for row in found}
    sizes = [sum(batch == each for batch in batch_of.values()) for each in range(len(lsns))]
    assert max(sizes) <= 10, "a frame has more than 4,000 bytes"
    assert before >= 4 and len(sizes) - before >= 4, "after the restart too"
    by_order: dict[int, set[int]] = {}
    for row in found:
        by_order.setdefault(row["order_id"], set()).add(batch_of[row["_hw_lsn"]])
    assert all(len(batches) == 1 for batches in by_order.values())


def test_a_stream_whose_rows_were_forgotten_fails_by_name_unless_it_may_go_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    data, work = tmp_path / "data", tmp_path / "work"
    clock = ManualClock()
    with hw.open(data, settings=SMALL_SEGMENTS, clock=clock) as log:
        topic = log.topic("orders", schema=ORDER, retention="1d")
        topic.append(orders(range(5)))
        run(spark, data, work)
        for each in range(5, 35):
            topic.append(orders(range(each, each + 1), padding=1000))
        clock.advance(2 * DAY_S)
        topic.append(orders(range(35, 60)))
        assert log.cleanup().rows_removed > 10
        left = [row["order_id"] for row in topic.read().to_pylist()]

        with pytest.raises(Exception, match=r"Forgotten.*read them from the table"):
            run(spark, data, work)
        run(spark, data, work, failOnDataLoss="false")

    assert [row["order_id"] for row in read_back(spark, work)] == [*range(5), *left]


# The reader by itself: what Spark calls, in Spark's order -----------------------------------------------------------


class Stream:
    """A query on the reader, as Spark 4.1 runs it: its state is the last offset, and nothing else."""

    def __init__(self, data: Path, **options: str) -> None:
        self._data = data
        self._options = {"uri": str(data), "topic": "orders", **options}
        self._reader = self._new()
        self.offset: dict[str, Any] = self._reader.initialOffset()

    def _new(self) -> TopicStreamReader:
        options = parse_options(self._options)
        with OpenTopic(options.directory, options.topic) as topic:
            self._schema: StructType = spark_schema(topic_columns(topic.record, options))
        return TopicStreamReader(options, self._schema)

    def batch(self) -> list[dict[str, Any]]:
        end = json.loads(json.dumps(self._reader.latestOffset()))
        partitions = self._reader.partitions(self.offset, end)
        worker = pickle.loads(pickle.dumps(self._reader))
        batches = [batch for each in partitions for batch in worker.read(pickle.loads(pickle.dumps(each)))]
        self.offset = end
        return [row for batch in batches for row in batch.to_pylist()]

    def numbers(self) -> list[int]:
        return [row["order_id"] for row in self.batch()]

    def restart(self) -> None:
        self.close()
        self._reader = self._new()
        self._reader.partitions(self.offset, self.offset)  # how Spark tells where it is

    def close(self) -> None:
        self._reader.stop()


def test_a_stream_begins_at_the_earliest_row_or_where_it_is_told(tmp_path: Path) -> None:
    clock = ManualClock()
    with hw.open(tmp_path, clock=clock) as log:
        topic = log.topic("orders", schema=ORDER, partitions=2)
        topic.append(orders(range(10)), partition=0)
        clock.advance(10)
        moment_ms = clock.now_us() // 1000
        topic.append(orders(range(10, 20)), partition=1)
        streams = {
            "earliest": Stream(tmp_path),
            "latest": Stream(tmp_path, startingOffsets="latest"),
            "offsets": Stream(tmp_path, startingOffsets='{"0": 7, "1": -1}'),
            "time": Stream(tmp_path, startingTimestamp=str(moment_ms)),
        }
        topic.append(orders(range(20, 22)), partition=0)

        found = {name: stream.numbers() for name, stream in streams.items()}

        assert found == {
            "earliest": list(range(22)),
            "latest": [20, 21],
            "offsets": [7, 8, 9, 20, 21],
            "time": [*range(10, 20), 20, 21],
        }
        for stream in streams.values():
            assert stream.numbers() == []
            stream.close()


def test_a_stream_goes_on_over_restarts_new_partitions_and_compaction(tmp_path: Path) -> None:
    with hw.open(tmp_path, settings=SMALL_SEGMENTS) as log:
        topic = log.topic("orders", schema=ORDER, key="order_id", cleanup="compact", partitions=2)
        for each in range(40):
            topic.upsert(orders(range(each % 5, each % 5 + 1), padding=500))
        stream = Stream(tmp_path, systemColumns="true")
        first = stream.batch()
        for each in range(40):
            topic.upsert(orders(range(each % 5, each % 5 + 1), padding=500))
        topic.alter(partitions=4)
        topic.upsert(orders(range(100, 140)))
        log.compact("orders")
        stream.restart()

        second = stream.batch()

        left = topic.read(system_columns=True).to_pylist()
        seen = {(row["_hw_partition"], row["_hw_offset"]) for row in first}
        assert len(first) == 40
        assert [(row["_hw_partition"], row["_hw_offset"]) for row in second] == [
            key for row in left if (key := (row["_hw_partition"], row["_hw_offset"])) not in seen
        ]
        assert {row["_hw_partition"] for row in second} > {row["_hw_partition"] for row in first}
        assert stream.batch() == []
        stream.close()


def test_a_capped_stream_goes_on_in_steps_after_a_restart_and_never_back(tmp_path: Path) -> None:
    with hw.open(tmp_path) as log:
        topic = log.topic("orders", schema=ORDER)
        for each in range(20):
            topic.append(orders(range(each, each + 1), padding=4000))
        stream = Stream(tmp_path, maxBytesPerTrigger="20k")
        begun = stream.offset
        found = [stream.numbers(), stream.numbers()]
        stream.restart()
        while found[-1]:
            found.append(stream.numbers())

        assert [number for batch in found for number in batch] == list(range(20))
        assert len(found) >= 6 and {len(batch) for batch in found[:-2]} <= {3, 4}
        fresh = TopicStreamReader(parse_options({"uri": str(tmp_path), "topic": "orders"}), stream._schema)
        with pytest.raises(Halted, match="ends before it begins"):
            fresh.partitions(stream.offset, begun)
        stream.close()


def test_offsets_before_what_a_keyed_topic_still_has_are_forgotten(tmp_path: Path) -> None:
    clock = ManualClock()
    with hw.open(tmp_path, settings=SMALL_SEGMENTS, clock=clock) as log:
        topic = log.topic("orders", schema=ORDER, key="order_id", cleanup="both", retention="1d")
        for each in range(30):
            topic.upsert(orders(range(each, each + 1), padding=1000))
        clock.advance(2 * DAY_S)
        topic.upsert(orders(range(30, 40)))
        assert log.cleanup().deleted
        stream = Stream(tmp_path, startingOffsets='{"0": 3}')

        with pytest.raises(Forgotten, match="read them from the table"):
            stream.batch()
        stream.close()


def test_a_topic_that_rests_while_the_log_forgets_others_has_lost_nothing(tmp_path: Path) -> None:
    clock = ManualClock()
    with hw.open(tmp_path, settings=SMALL_SEGMENTS, clock=clock) as log:
        topic = log.topic("orders", schema=ORDER, retention="1d")
        other = log.topic("other", schema=ORDER, retention="1d")
        topic.append(orders(range(5)))
        stream = Stream(tmp_path)
        assert stream.numbers() == list(range(5))
        offset = stream.offset
        for each in range(40):
            other.append(orders(range(each, each + 1), padding=1000))
        assert stream.batch() == []
        assert stream.offset == offset, "Spark starts no batch where nothing is new"
        clock.advance(2 * DAY_S)
        other.append(orders(range(1), padding=1000))
        assert log.cleanup().deleted
        stream.restart()

        topic.append(orders(range(5, 7)))

        assert stream.numbers() == [5, 6]
        stream.close()


def test_rows_that_were_drained_from_a_segment_are_forgotten_too(tmp_path: Path) -> None:
    clock = ManualClock()
    for key in (None, "order_id"):
        data = tmp_path / str(key)
        with hw.open(data, settings=SMALL_SEGMENTS, clock=clock) as log:
            kept = log.topic("kept", schema=ORDER)
            topic = log.topic("orders", schema=ORDER, retention="1d", key=key, cleanup="both" if key else None)
            kept.append(orders(range(1)))
            stream = Stream(data)
            for each in range(40):
                topic.append(orders(range(each, each + 1), padding=1000))
                kept.append(orders(range(each, each + 1)))
            clock.advance(2 * DAY_S)
            topic.append(orders(range(40, 41)))
            report = log.cleanup()
            assert report.drained and report.rows_removed > 10

            with pytest.raises(Forgotten, match="read them from the table"):
                stream.batch()
            stream.close()


def test_a_topic_that_was_created_again_is_another_one(tmp_path: Path) -> None:
    with hw.open(tmp_path) as log:
        log.topic("orders", schema=ORDER).append(orders(range(5)))
        stream = Stream(tmp_path)
        assert stream.numbers() == list(range(5))
        log.delete_topic("orders", force=True)
        log.topic("orders", schema=ORDER).append(orders(range(50)))

        stream.restart()
        with pytest.raises(Conflict, match="created again"):
            stream.batch()
        stream.close()


def test_a_stream_holds_to_its_columns_until_it_is_started_again(tmp_path: Path) -> None:
    with hw.open(tmp_path) as log:
        topic = log.topic("orders", schema=pa.schema([("order_id", pa.int32())]))
        topic.append([{"order_id": 1}])
        stream = Stream(tmp_path)
        assert stream.batch() == [{"order_id": 1}]
        topic.alter(add={"note": str}, widen={"order_id": pa.int64()})
        topic.append([{"order_id": 2, "note": "two"}])
        assert stream.batch() == [{"order_id": 2}]
        topic.append([{"order_id": 2**40, "note": "large"}])

        at = stream.offset
        with pytest.raises(InvalidRequest, match="begin the query again"):
            stream.batch()
        stream.offset = at
        stream.restart()

        assert stream.batch() == [{"order_id": 2**40, "note": "large"}]
        stream.close()


def test_a_batch_that_is_planned_again_reads_the_same_rows(tmp_path: Path) -> None:
    with hw.open(tmp_path) as log:
        topic = log.topic("orders", schema=ORDER, partitions=2)
        topic.append(orders(range(10)), partition=0)
        stream = Stream(tmp_path)
        at = stream.offset
        once = stream.batch()
        end = stream.offset
        topic.append(orders(range(10, 20)), partition=1)

        again = TopicStreamReader(parse_options({"uri": str(tmp_path), "topic": "orders"}), stream._schema)
        rows = [row for part in again.partitions(at, end) for batch in again.read(part) for row in batch.to_pylist()]

        assert rows == once
        again.stop()
        stream.close()


def test_what_cannot_be_of_a_stream_is_refused_by_name(tmp_path: Path) -> None:
    with hw.open(tmp_path) as log:
        log.topic("orders", schema=ORDER).append(orders(range(1)))

    with pytest.raises(InvalidRequest, match="endingOffsets"):
        Stream(tmp_path, endingOffsets='{"0": 1}')
    with pytest.raises(InvalidRequest, match="checkpoint"):
        position_from_json({"0": 12})
