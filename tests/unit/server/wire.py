"""A client that knows only the protocol: what is sent, byte by byte, without retries or anything else that helps."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import flight

from headwater.errors import HeadwaterError
from headwater.metadata.operations import TopicRecord
from headwater.protocol import calls
from headwater.protocol.codec import pack, unpack
from headwater.protocol.failures import Failure, error_of
from headwater.protocol.streams import AppendStream, RowsAnswer, RowsRequest
from headwater.topics.schema import pack_schema

ORDERS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("note", pa.string())])


class Wire:
    def __init__(self, location: str, **headers: str) -> None:
        self.client = flight.connect(location)
        self._options = flight.FlightCallOptions(
            headers=[(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        )

    def call(self, call: calls.Call[Any, Any], request: Any = None) -> Any:
        body = pack(calls.Nothing() if request is None else request)
        try:
            [result] = list(self.client.do_action(flight.Action(call.name, body), self._options))
        except flight.FlightError as error:
            raise told(error) from error
        return unpack(memoryview(result.body), call.answer)

    def make(self, name: str, schema: pa.Schema = ORDERS, **more: Any) -> TopicRecord:
        wanted = calls.WireNewTopic(name, pack_schema(schema), **more)
        found: list[TopicRecord] = self.call(calls.CREATE_TOPICS, calls.CreateTopics((wanted,)))
        return found[0]

    def get(self, ticket: object) -> flight.FlightStreamReader:
        data = ticket if isinstance(ticket, bytes) else pack(ticket)
        try:
            return self.client.do_get(flight.Ticket(data), self._options)
        except flight.FlightError as error:
            raise told(error) from error

    def info(self, command: object) -> flight.FlightInfo:
        descriptor = flight.FlightDescriptor.for_command(pack(command))
        try:
            return self.client.get_flight_info(descriptor, self._options)
        except flight.FlightError as error:
            raise told(error) from error

    def put(self, topic: TopicRecord, schema: pa.Schema = ORDERS, version: int = 1) -> Put:
        descriptor = flight.FlightDescriptor.for_command(pack(AppendStream(topic.topic_id, version)))
        return Put(schema, *self.client.do_put(descriptor, schema, self._options))

    def close(self) -> None:
        self.client.close()


class Put:
    """One append stream."""

    def __init__(
        self, schema: pa.Schema, writer: flight.FlightStreamWriter, reader: flight.FlightMetadataReader
    ) -> None:
        self._schema = schema
        self.writer = writer
        self.reader = reader

    def send(self, number: int, rows: list[dict[str, Any]] | pa.RecordBatch, **request: Any) -> None:
        batch = rows if isinstance(rows, pa.RecordBatch) else pa.RecordBatch.from_pylist(rows, schema=self._schema)
        self.writer.write_with_metadata(batch, pack(RowsRequest(number, **request)))

    def answer(self) -> RowsAnswer:
        try:
            data = self.reader.read()
            if data is None:
                # The server has ended the stream; closing it says why.
                self.writer.close()
        except flight.FlightError as error:
            raise told(error) from error
        assert data is not None, "the stream ended without an answer"
        return unpack(memoryview(data), RowsAnswer)

    def end(self) -> None:
        self.writer.done_writing()
        self.writer.close()


def told(error: flight.FlightError) -> Exception:
    """The error that travelled; the flight error itself where none did."""
    return error_of(unpack(error.extra_info, Failure)) if error.extra_info else error


def read_all(reader: flight.FlightStreamReader) -> list[dict[str, Any]]:
    try:
        rows: list[dict[str, Any]] = reader.read_all().to_pylist()
        return rows
    except flight.FlightError as error:
        found = told(error)
        if isinstance(found, HeadwaterError):
            raise found from error
        raise
