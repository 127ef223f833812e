"""Rows out over HTTP: NDJSON, one row a line, in the order of the log.

    GET /v1/topics/{topic}/rows     ?start= &limit= &partition= &columns=a,b &system_columns=true

`start` is "earliest", "latest", a time with its zone, `lsn:N`, or with `partition=` an offset.  It ends with the log's
end as it was when the reading began; it does not follow.

PROMISE  At most a batch of rows is held for a reader, however slow it is, and no thread; a reader that takes nothing
         for `idle_s` is cut off.  What goes wrong on the way ends the connection before the body's end: a body that is
         whole is all that was asked for.
NOT HERE Following, groups, plans: those are Flight's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import AbstractContextManager

import msgspec
import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headwater.errors import HeadwaterError, InvalidRequest
from headwater.server.http_connection import ABORT
from headwater.topics.json_values import to_json
from headwater.topics.positions import Lsn
from headwater.topics.reading import Rows, Wanted

logger = logging.getLogger("headwater.http")

LIMIT = 1_000
"""Rows, unless more are asked for."""
BATCH_ROWS = 1_000
_PARAMETERS = ("start", "limit", "partition", "columns", "system_columns")


def wanted_rows(request: Request) -> Wanted:
    """What a request asks for; InvalidRequest where that cannot be understood."""
    parameters = request.query_params.multi_items()
    given = dict(parameters)
    for name in given:
        if name not in _PARAMETERS:
            raise InvalidRequest(f"there is no parameter {name[:60]!r}: there are {', '.join(_PARAMETERS)}")
    if len(given) < len(parameters):
        raise InvalidRequest("a parameter stands twice in the query")
    if given.get("system_columns", "false") not in ("true", "false"):
        raise InvalidRequest("system_columns is 'true' or 'false'")
    start = given.get("start", "earliest")
    columns = None if "columns" not in given else given["columns"].split(",")
    if columns is not None and len(set(columns)) < len(columns):
        raise InvalidRequest("a column is named twice in columns=")
    return Wanted(
        start=Lsn(_whole(start[4:], "start"))
        if start.startswith("lsn:")
        else int(start)
        if _is_whole(start)
        else start,
        limit=_whole(given.get("limit", str(LIMIT)), "limit"),
        batch_rows=BATCH_ROWS,
        partition=_whole(given["partition"], "partition") if "partition" in given else None,
        columns=columns,
        system_columns=given.get("system_columns") == "true",
    )


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19


def _whole(text: str, name: str) -> int:
    if not _is_whole(text):
        raise InvalidRequest(f"{name} is a whole number", got=text[:60])
    return int(text)


def lines_of_batch(batch: pa.RecordBatch) -> bytes:
    """One row a line, as the command line writes them."""
    names = batch.schema.names
    columns = [_values(field, column) for field, column in zip(batch.schema, batch.columns, strict=True)]
    encode = msgspec.json.encode
    lines = [encode(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]
    return b"\n".join(lines) + b"\n" if lines else b""


def _values(field: pa.Field, column: pa.Array) -> list[object]:
    try:
        return [to_json(value, field.type) for value in column.to_pylist()]
    except (OverflowError, ValueError) as error:
        # Arrow holds moments that Python cannot say, far before the year 1 and behind 9999.
        raise InvalidRequest(
            "a column holds a value that cannot be written as JSON: leave it out (columns=), or read it over Flight",
            column=field.name,
        ) from error


class RowLines(Response):
    """An answer that reads as it is sent."""

    media_type = "application/x-ndjson"

    def __init__(
        self,
        rows: Rows,
        pool: Executor,
        stream: AbstractContextManager[None],
        wait_s: Callable[[int], float],
        refusal: Callable[[HeadwaterError], Response],
        *,
        idle_s: float,
    ) -> None:
        super().__init__()
        # Its length is not known.
        self.raw_headers = [each for each in self.raw_headers if each[0] != b"content-length"]
        self._batches: Iterator[pa.RecordBatch] = iter(rows)
        self._pool = pool
        self._stream = stream
        self._wait_s = wait_s
        self._refusal = refusal
        self._idle_s = idle_s
        self._begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._stream:
                await self._send_all(send)
        except HeadwaterError as error:
            if not self._begun:
                await self._refusal(error)(scope, receive, send)
                return
            logger.warning("a reading over HTTP ended half-way: %s", error)
            await _abort(scope, receive)
        except TimeoutError:
            logger.info("a reader over HTTP took nothing for %s s", self._idle_s)
            await _abort(scope, receive)

    async def _send_all(self, send: Send) -> None:
        body = await self._next()
        self._begun = True
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        while body is not None:
            await asyncio.sleep(self._wait_s(len(body)))
            async with asyncio.timeout(self._idle_s):
                await send({"type": "http.response.body", "body": body, "more_body": True})
            body = await self._next()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _next(self) -> bytes | None:
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read)

    def _read(self) -> bytes | None:
        batch = next(self._batches, None)
        return None if batch is None else lines_of_batch(batch)


async def _abort(scope: Scope, receive: Receive) -> None:
    """End the connection, and return when that is known."""
    scope["state"][ABORT]()
    while (await receive())["type"] != "http.disconnect":
        pass
