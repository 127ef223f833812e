"""Reading a topic as a stream.

    a checkpoint holds     {"topic": "<id>", "lsn": 120, "offsets": {"0": 12, "1": 7}}

PROMISE  Every row that was durable when a batch was planned is in that batch or in one before it, once.  A batch ends
         at the end of a write.  A batch that is tried again, after a restart too, reads the same rows.
         New partitions are read from their first row on.  Compaction takes what it takes; nothing is read twice for it.
         Rows that the log has forgotten before they were read stop the stream with Forgotten, unless failOnDataLoss is
         false; a topic that was deleted and created again stops it with Conflict.
LIMITS   Spark 4.1 has no admission control for Python data sources: `latestOffset` caps itself, by
         `maxBytesPerTrigger`.  So `trigger(availableNow=True)` with that option ends after one batch of it.
NOT HERE The choice of LSN and offsets: source_log.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from headwater.errors import Halted
from headwater.spark.source_log import OpenTopic
from headwater.spark.source_options import SourceOptions
from headwater.spark.source_position import Position, position_from_json
from headwater.spark.source_reader import TopicPartition, read_partition, shape_of


class TopicStreamReader(DataSourceStreamReader):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        options.check_for_stream()
        self._options = options
        self._schema = schema
        self._log: OpenTopic | None = None
        self._position: Position | None = None
        """Where the last planned batch ended; Spark 4.1 does not say it when it asks for the latest offset."""

    def __getstate__(self) -> dict[str, Any]:
        # Workers are given the reader, and read by what their partitions say.
        return {**self.__dict__, "_log": None, "_position": None}

    def _topic(self) -> OpenTopic:
        if self._log is None:
            self._log = OpenTopic(self._options.directory, self._options.topic)
        return self._log

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        self._position = self._topic().start(self._options.start)
        return self._position.to_json()

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        topic = self._topic()
        if self._position is None:
            # Only before a query's first batch: after a restart Spark plans from its checkpoint's offset first.
            self.initialOffset()
        assert self._position is not None
        return topic.after(self._position, self._options.bytes_per_trigger_max).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, last = position_from_json(start), position_from_json(end)
        if last.lsn < first.lsn:
            # A latest offset that was asked for before Spark said where the stream is: going back reads rows twice.
            raise Halted("a batch that ends before it begins: nothing was read", start_lsn=first.lsn, end_lsn=last.lsn)
        self._position = last
        if first == last:
            return []
        options, topic = self._options, self._topic()
        topic.check(last)
        topic.check_not_forgotten(first, fail=options.fail_on_data_loss)
        shape = shape_of(topic.record, options, self._schema)
        pieces = topic.pieces(first, last, partitions_min=options.min_partitions)
        return [TopicPartition(each, shape) for each in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._options.topic)

    def stop(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None
