"""The readers of topics' rows, made once for each version of a schema: for whoever takes rows, here or for a server.

THREADS  Safe for any number of them: two that make the same reader at once make two, and one of them stays.
"""

from __future__ import annotations

import pyarrow as pa

from headwater.metadata.operations import TopicRecord
from headwater.topics.plain_rows import PlainCheck
from headwater.topics.rows import RowReader
from headwater.topics.schema import unpack_schema


class RowReaders:
    def __init__(self) -> None:
        self._readers: dict[tuple[bytes, int, bool], RowReader] = {}
        self._checks: dict[tuple[bytes, int], PlainCheck] = {}

    def reader(self, topic: TopicRecord, *, keys_only: bool = False) -> RowReader:
        """Of the topic's rows in its newest schema, or of its keys."""
        version = (topic.topic_id, len(topic.schemas), keys_only)
        found = self._readers.get(version)
        if found is None:
            schema = unpack_schema(topic.schemas[-1])
            if keys_only:
                schema = pa.schema([schema.field(name) for name in topic.key])
            found = self._readers[version] = RowReader(schema)
        return found

    def check(self, topic: TopicRecord) -> PlainCheck:
        """What tells by Python types alone whether a row will fit."""
        version = (topic.topic_id, len(topic.schemas))
        found = self._checks.get(version)
        if found is None:
            found = self._checks[version] = PlainCheck(self.reader(topic).schema)
        return found
