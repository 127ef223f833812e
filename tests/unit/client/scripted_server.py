"""A Flight server that keeps rows by the rules of a log, and misbehaves as a seed says: for the client's own tests.

RULES    A producer's numbers are dense; a repeat gets its first answer; a gap is OutOfSequence; a refused request uses
         no number.  Rows are kept in `rows`, in the order in which they were applied.
FATES    What becomes of each message is drawn: see Fate.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import pyarrow as pa
from pyarrow import flight

from headwater.errors import (
    HeadwaterError,
    InvalidRequest,
    OutcomeUnknown,
    OutOfSequence,
    TooLarge,
    Unavailable,
    UnknownProducer,
)
from headwater.metadata.operations import TopicRecord
from headwater.protocol.calls import FIND_TOPIC, HELLO, REGISTER, TOPIC, Hello, Limits, Register, WireRegistered
from headwater.protocol.codec import VERSION, pack, unpack
from headwater.protocol.failures import failure_of
from headwater.protocol.streams import RowsAnswer, RowsRequest
from headwater.protocol.trailers import trailer_of
from headwater.topics.answers import Appended, OffsetRange
from headwater.topics.schema import pack_schema

TOPIC_ID = bytes(range(16))
SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False)])
RECORD = TopicRecord(1, "rows", TOPIC_ID, 0, (pack_schema(SCHEMA),), 1)


class Fate(Enum):
    ANSWERED = "applied, and answered"
    LOST_ANSWER = "applied, and the stream breaks before the answer"
    LOST = "the stream breaks before it is applied"
    REFUSED = "refused for good"
    UNAVAILABLE = "refused, to be tried again"
    UNKNOWN = "not applied, and the server cannot tell"
    UNKNOWN_APPLIED = "applied, and the server cannot tell"
    FORGOTTEN = "the producer is not known any more"
    STOPPING = "the server says that it takes no more from this stream"
    SILENT = "nothing is ever answered"


class ScriptedServer(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow ships no types
    def __init__(self, fate: Callable[[int], Fate]) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._fate = fate
        self._lock = threading.Lock()
        self._producers: dict[str, WireRegistered] = {}
        self._next: dict[int, int] = {}
        self._answers: dict[tuple[int, int], Appended] = {}
        self.rows: list[int] = []
        self.refused: list[int] = []
        self.messages = 0
        self.over = threading.Event()

    @property
    def address(self) -> str:
        return f"hw://127.0.0.1:{self.port}"

    def do_action(self, context: Any, action: flight.Action) -> Iterator[flight.Result]:
        body = memoryview(action.body)
        answer: object
        if action.type == HELLO.name:
            answer = Hello((VERSION,), "scripted", "00", 0, 1, 10.0, Limits(1 << 26, 1 << 20, 64), "everybody")
        elif action.type == REGISTER.name:
            answer = self._register(unpack(body, Register).producer)
        elif action.type in (FIND_TOPIC.name, TOPIC.name):
            answer = RECORD
        else:
            raise _raised(InvalidRequest(f"not in this script: {action.type}"))
        yield flight.Result(pack(answer))

    def _register(self, name: str) -> WireRegistered:
        with self._lock:
            before = self._producers.get(name)
            number = before.producer_id if before is not None else len(self._producers) + 1
            epoch = before.epoch + 1 if before is not None else 1
            self._producers[name] = WireRegistered(number, epoch, self._next.setdefault(number, 0))
            return self._producers[name]

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        while True:
            try:
                chunk = reader.read_chunk()
            except StopIteration:
                return
            request = unpack(memoryview(chunk.app_metadata), RowsRequest)
            numbers = chunk.data.column(0).to_pylist()
            with self._lock:
                fate = self._fate(self.messages)
                self.messages += 1
                answer = self._told(fate, request, numbers)
            if fate is Fate.SILENT:
                self.over.wait(20)
                return
            if answer is None:
                raise _raised(Unavailable("the connection breaks here"))
            writer.write(pack(answer))
            if fate is Fate.STOPPING:
                self.over.wait(20)
                return

    def _told(self, fate: Fate, request: RowsRequest, numbers: list[int]) -> RowsAnswer | None:
        if fate in (Fate.LOST, Fate.SILENT):
            return None
        if fate is Fate.STOPPING:
            return RowsAnswer(0, failure=failure_of(Unavailable("this server stops")))
        try:
            appended = self._apply(fate, request, numbers)
        except HeadwaterError as error:
            return RowsAnswer(request.number, failure=failure_of(error))
        if fate is Fate.UNKNOWN_APPLIED:
            return RowsAnswer(request.number, failure=failure_of(OutcomeUnknown("nobody knows")))
        return None if fate is Fate.LOST_ANSWER else RowsAnswer(request.number, appended)

    def _apply(self, fate: Fate, request: RowsRequest, numbers: list[int]) -> Appended:
        identity = request.identity
        assert identity is not None
        known = {each.producer_id: each.epoch for each in self._producers.values()}
        if fate is Fate.UNAVAILABLE:
            raise Unavailable("not now")
        if fate is Fate.UNKNOWN:
            raise OutcomeUnknown("nobody knows")
        before = self._answers.get((identity.producer_id, identity.sequence))
        if before is not None:
            return before
        if fate is Fate.FORGOTTEN or identity.producer_id not in known:
            self._producers = {
                name: each for name, each in self._producers.items() if each.producer_id != identity.producer_id
            }
            raise UnknownProducer("not known any more")
        if identity.sequence != self._next[identity.producer_id]:
            raise OutOfSequence("a request before this one is missing")
        if fate is Fate.REFUSED:
            self.refused += numbers
            raise TooLarge("refused for good")
        self._next[identity.producer_id] += 1
        first = len(self.rows)
        self.rows += numbers
        appended = Appended(
            "rows", len(numbers), 1, 1, {0: OffsetRange(first, first + len(numbers))}, datetime(2026, 1, 1, tzinfo=UTC)
        )
        self._answers[identity.producer_id, identity.sequence] = appended
        return appended


def _raised(error: HeadwaterError) -> flight.FlightServerError:
    return flight.FlightServerError(error.message, extra_info=trailer_of(error))
