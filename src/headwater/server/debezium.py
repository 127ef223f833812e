"""Debezium's events over HTTP: one event, a list of them, or one a line.

WAITS    A write with the source's position is waited for in a thread, one at a time for each topic: whoever sends the
         changes of a table waits for the answer before it sends the next.
NOT HERE What an event means, and which are new: topics/debezium.py.
"""

from __future__ import annotations

import threading

from headwater.metadata.operations import TopicRecord
from headwater.server.http_errors import UnsupportedMediaType
from headwater.server.ingest import BodyFormat, check_rows, document_of, lines_of
from headwater.server.settings import ServerLimits
from headwater.topics.appending import OnRejected
from headwater.topics.debezium import DebeziumAppended, append_debezium
from headwater.topics.engine import Engine


class Envelopes:
    """Takes in events, those of one topic one request after the other."""

    def __init__(self) -> None:
        self._turns: dict[int, threading.Lock] = {}

    def take_in(
        self,
        engine: Engine,
        topic: TopicRecord,
        body: bytes | bytearray,
        form: BodyFormat,
        limits: ServerLimits,
        *,
        source: str | None,
        by_time: bool,
        rejected: OnRejected,
    ) -> DebeziumAppended:
        if form is BodyFormat.ARROW:
            raise UnsupportedMediaType(f"Debezium's events are JSON: {BodyFormat.JSON} or {BodyFormat.NDJSON}")
        document = lines_of(body) if form is BodyFormat.NDJSON else document_of(body)
        events = document if isinstance(document, list) else [document]
        check_rows(len(events), limits)
        with self._turns.setdefault(topic.number, threading.Lock()):
            return append_debezium(
                engine, topic, events, source=source, by_time=by_time, rejected=rejected, clock=engine.clock
            )
