"""Rows out of the body of a request: JSON, NDJSON and Arrow, as the topic's door takes them.

content type                            body
application/json                        one row as an object, or a list of them
application/x-ndjson                    one row as an object a line; empty lines are skipped
application/vnd.apache.arrow.stream     an Arrow IPC stream with exactly the topic's schema
none, or what `curl -d` sends           as application/json, if it begins as JSON does

How a value of a column is written in JSON: topics/json_values.py.

PROMISE  The same check as every append's: what does not fit is refused by number and reason.  Nothing is appended
         unless the whole body could be read.  An object that has a name twice is no row.
         JSON of few bytes that would become many in memory is refused before it is read, and so is what is nested
         deeper than any row: LEVELS_MAX.
NOT HERE The response, and who may: http_app.py.
"""

from __future__ import annotations

import json
from decimal import Decimal
from enum import StrEnum

import pyarrow as pa

from headwater.errors import InvalidRequest, TooLarge
from headwater.server.http_errors import UnsupportedMediaType
from headwater.server.settings import ServerLimits
from headwater.server.untrusted import read_ipc
from headwater.topics.json_values import from_json, plain

LEVELS_MAX = 64
JSON_VALUE_BYTES = 120
"""About what a value of a JSON document takes in memory, and a comma in it costs one."""
JSON_MEMORY_BYTES_MAX = 1 << 30
_SHOWN = 200


class BodyFormat(StrEnum):
    JSON = "application/json"
    NDJSON = "application/x-ndjson"
    ARROW = "application/vnd.apache.arrow.stream"


_NDJSON_TOO = {"application/ndjson", "application/jsonl", "application/x-jsonlines", "application/json-seq"}
_UNSAID = {"", "application/x-www-form-urlencoded", "text/plain", "application/octet-stream"}
"""What senders say that were not told what they send."""


def body_format(content_type: str, body: bytes | bytearray) -> BodyFormat:
    """What the body is, by its type; by its first byte where that says nothing."""
    said = content_type.partition(";")[0].strip().lower()
    if said in list(BodyFormat):
        return BodyFormat(said)
    if said in _NDJSON_TOO:
        return BodyFormat.NDJSON
    if said in _UNSAID and body.lstrip()[:1] in (b"{", b"["):
        return BodyFormat.JSON
    raise UnsupportedMediaType(
        f"rows are sent as {BodyFormat.JSON}, {BodyFormat.NDJSON} or {BodyFormat.ARROW}", got=said[:_SHOWN]
    )


def rows_of(body: bytes | bytearray, form: BodyFormat, schema: pa.Schema, limits: ServerLimits) -> object:
    """The rows, as the topic's door takes them; of JSON, one object is one row."""
    if form is BodyFormat.ARROW:
        return _arrow_rows(body, schema, limits)
    types = {field.name: field.type for field in schema}
    document = lines_of(body) if form is BodyFormat.NDJSON else document_of(body)
    if isinstance(document, dict):
        return row_of(document, types)
    if not isinstance(document, list):
        raise InvalidRequest("a body holds one row as an object, or a list of rows")
    check_rows(len(document), limits)
    return [row_of(each, types) for each in document]


def row_of(row: object, types: dict[str, pa.DataType]) -> object:
    """A row with each value as its column takes it; what is no row stays as it is, for the door to refuse."""
    if not isinstance(row, dict):
        return row
    return {name: from_json(value, types[name]) if name in types else plain(value) for name, value in row.items()}


def check_rows(rows: int, limits: ServerLimits) -> None:
    if rows > limits.rows_max:
        raise TooLarge("so many rows take several requests", rows=rows, limit_rows=limits.rows_max)


# ------------------------------------------------------------------------------------------------------- JSON


def document_of(body: bytes | bytearray) -> object:
    """A JSON document, whose numbers with a point are Decimals; InvalidRequest where it is none."""
    _check_memory(body)
    return _document(body)


def _document(body: bytes | bytearray) -> object:
    try:
        document: object = _DECODER.decode(body.decode())
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        # JSONDecodeError and UnicodeDecodeError are kinds of it, and so is what the hooks raise.
        hint = f"; for one object a line say {BodyFormat.NDJSON}" if "Extra data" in str(error) else ""
        raise InvalidRequest(f"the body is no JSON: {str(error)[:_SHOWN]}{hint}") from error
    check_levels(document)
    return document


def lines_of(body: bytes | bytearray) -> list[object]:
    """The document of each line; a line that is none comes as its text, for the door to refuse by its number."""
    _check_memory(body)
    found: list[object] = []
    for line in body.split(b"\n"):
        if line.strip():
            try:
                found.append(_document(line))
            except InvalidRequest:
                found.append(bytes(line[:_SHOWN]).decode(errors="replace"))
    return found


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError("a name stands twice in an object")
    return row


def _no_constant(name: str) -> object:
    raise ValueError(f'{name} is no JSON: a column of floats takes it as the text "{name}"')


_DECODER = json.JSONDecoder(parse_float=Decimal, object_pairs_hook=_object, parse_constant=_no_constant)


def _check_memory(body: bytes | bytearray) -> None:
    values = body.count(b",") + body.count(b"[") + body.count(b"{")
    if values * JSON_VALUE_BYTES + 2 * len(body) > JSON_MEMORY_BYTES_MAX:
        raise TooLarge(f"so many values take several requests, or {BodyFormat.ARROW}", values=values, bytes=len(body))


def check_levels(document: object) -> None:
    """InvalidRequest where lists and objects are nested deeper than any row has reason to be."""
    layer: list[dict[str, object] | list[object]] = [document] if isinstance(document, dict | list) else []
    for _ in range(LEVELS_MAX):
        if not layer:
            return
        layer = [
            inner
            for each in layer
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, dict | list)
        ]
    if layer:
        raise _too_deep()


def _too_deep() -> InvalidRequest:
    return InvalidRequest("the JSON is nested too deep", limit_levels=LEVELS_MAX)


# ------------------------------------------------------------------------------------------------------ Arrow


def _arrow_rows(body: bytes | bytearray, schema: pa.Schema, limits: ServerLimits) -> pa.RecordBatch:
    batches = read_ipc(memoryview(body), schema, limits)
    table = pa.Table.from_batches(batches, schema)
    found = table.combine_chunks().to_batches()
    if len(found) > 1:
        raise TooLarge("a column of the rows is above 2 GiB: send them in parts", rows=table.num_rows)
    return found[0] if found else pa.RecordBatch.from_pylist([], schema=schema)
