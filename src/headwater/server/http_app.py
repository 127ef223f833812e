"""What is answered over HTTP: rows in and out, health, metrics.

    POST /v1/topics/{topic}/rows     ?partition= &rejected=keep &format=debezium &source= &position=time
    GET  /v1/topics/{topic}/rows     ?start= &limit= &partition= &columns= &system_columns=
    GET  /livez  /readyz             for whoever watches over the process; nobody is asked who they are
    GET  /metrics                    for Prometheus
    GET  /  /page.css  /page.js      the web page; GET /v1/page is what it shows

PROMISE  Rows are answered when they are durable, with the acknowledgement that every append has.
         The loop never waits for the log: whatever may wait runs in threads.  Rows on their way to the disk hold none,
         but for Debezium's.
         Who is asking is known before a body is read.
NOT HERE Reading bodies: http_body.py, ingest.py.  Connections: http_connection.py.  Debezium: topics/debezium.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TypeVar

import pyarrow as pa
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from headwater.errors import HeadwaterError, InvalidRequest, NotAllowed, Unavailable
from headwater.metadata.operations import TopicRecord
from headwater.page.assets import ASSETS, HEADERS, asset
from headwater.server.access import Principal, check_all
from headwater.server.counters import RequestCounters
from headwater.server.debezium import Envelopes
from headwater.server.health import Health
from headwater.server.http_body import Bodies
from headwater.server.http_connection import CERTIFICATE
from headwater.server.http_errors import TooMany, bug_response, error_response, json_response
from headwater.server.http_reads import RowLines, wanted_rows
from headwater.server.ingest import body_format, rows_of
from headwater.server.memory import NO_MEMORY
from headwater.server.metrics_page import CONTENT_TYPE, metrics_page
from headwater.server.served import Served
from headwater.server.settings import ServerSettings
from headwater.server.web_page import WebPage, asked_of
from headwater.topics.answers import Appended
from headwater.topics.appending import OnRejected, key_hash
from headwater.topics.debezium import DebeziumAppended
from headwater.topics.json_values import to_json
from headwater.topics.reading import Rows
from headwater.topics.requests import Identity
from headwater.topics.schema import unpack_schema

logger = logging.getLogger("headwater.http")

T = TypeVar("T")

ASKING_THREADS = 4
WRITING_THREADS = 8
ENVELOPE_THREADS = 4
READING_THREADS = 4
_PARAMETERS = ("partition", "rejected", "format", "source", "position")
_CLIENT_GONE = 499
_TIME = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class RowsWanted:
    """What a request says of its rows beside them."""

    content_type: str
    partition: int | None
    rejected: OnRejected
    key: bytes | None
    debezium: bool
    source: str | None
    by_time: bool


class HttpApp:
    """The routes, and the threads behind them."""

    def __init__(self, served: Callable[[], Served | None], settings: ServerSettings, health: Health) -> None:
        self._served = served
        self._settings = settings
        self._health = health
        self._bodies = Bodies(settings.limits)
        self._envelopes = Envelopes()
        self.counters = RequestCounters()
        self._asking = ThreadPoolExecutor(ASKING_THREADS, "headwater-http-ask")
        self._writing = ThreadPoolExecutor(WRITING_THREADS, "headwater-http-write")
        self._taking_in = ThreadPoolExecutor(ENVELOPE_THREADS, "headwater-http-debezium")
        self._reading = ThreadPoolExecutor(READING_THREADS, "headwater-http-read")
        self._drawing = ThreadPoolExecutor(1, "headwater-http-draw")
        self._page = WebPage(served, health)
        self.asgi = Starlette(
            routes=[
                Route("/v1/topics/{topic}/rows", self._answering("rows", self._rows), methods=["POST"]),
                Route("/v1/topics/{topic}/rows", self._answering("read", self._read), methods=["GET"]),
                Route("/livez", self._answering("livez", self._livez), methods=["GET"]),
                Route("/readyz", self._answering("readyz", self._readyz), methods=["GET"]),
                Route("/metrics", self._answering("metrics", self._metrics), methods=["GET"]),
                Route("/v1/page", self._answering("page", self._page_document), methods=["GET"]),
                *(Route(path, self._answering("page", self._page_asset), methods=["GET"]) for path in ASSETS),
            ],
            exception_handlers={HTTPException: self._no_such_path},
        )

    def begin(self) -> None:
        """Somebody may ask from now on."""
        self._page.begin()

    def close(self) -> None:
        """Nobody asks any more: end the threads."""
        self._page.close()
        for pool in (self._asking, self._writing, self._taking_in, self._reading, self._drawing):
            pool.shutdown(wait=True)

    # Around every answer -----------------------------------------------------------------------

    def _answering(
        self, route: str, answer: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def answered(request: Request) -> Response:
            try:
                response = await answer(request)
            except HeadwaterError as error:
                response = self._refusal(error)
            except ClientDisconnect:
                # Nobody is there to be answered; what was being appended is or is not, as for any broken connection.
                response = Response(status_code=_CLIENT_GONE)
            except RecursionError:
                response = error_response(InvalidRequest("what was sent is nested too deep"))
            except MemoryError:
                response = error_response(Unavailable(NO_MEMORY))
            except Exception as error:  # noqa: BLE001 (a bug is answered without its details, and logged with them)
                response = bug_response(error, f"{request.method} {route}")
            self.counters.answered(route, str(response.status_code))
            return response

        answered.__name__ = route
        return answered

    def _refusal(self, error: HeadwaterError) -> Response:
        served = self._served()
        return error_response(_by_principal(error if served is None else served.outward(error)))

    async def _no_such_path(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        self.counters.answered("other", str(error.status_code))
        content = {"error": "InvalidRequest", "message": error.detail, "facts": {}}
        return json_response(content, error.status_code, dict(error.headers or {}))

    async def _ask(self, act: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._asking, act)

    async def _principal(self, request: Request, served: Served) -> Principal:
        given = request.headers.getlist("authorization")
        if len(given) > 1:
            raise InvalidRequest("there is more than one authorization header")
        if not given and "origin" in request.headers:
            # Any page in a browser can post to loopback, and a browser shows its user's certificate by itself: only a
            # token shows that whoever wrote the page was meant to.
            raise NotAllowed("a web page calls with a token, or not at all")
        certificate: str | None = getattr(request.state, CERTIFICATE, None)
        if not given and not certificate and not self._settings.tokens:
            _check_named_by_address(request)
        return await self._ask(lambda: served.authenticate(given[0] if given else None, certificate))

    def _now_served(self) -> Served:
        served = self._served()
        if served is None:
            raise Unavailable(f"the server is not ready: {self._health.not_ready() or 'it is starting'}")
        return served

    # Health and metrics ------------------------------------------------------------------------

    async def _livez(self, request: Request) -> Response:
        return _yes_or_no("alive", self._health.not_alive())

    async def _readyz(self, request: Request) -> Response:
        return _yes_or_no("ready", await self._ask(self._health.not_ready))

    async def _metrics(self, request: Request) -> Response:
        served = self._served()
        if served is not None and not self._settings.metrics_open:
            check_all(await self._principal(request, served), "admin", "the metrics")
        page = await self._ask(lambda: metrics_page(served, self._health, self.counters, self._bodies.taken_bytes))
        return Response(page, headers={"content-type": CONTENT_TYPE})

    # The web page ------------------------------------------------------------------------------

    async def _page_asset(self, request: Request) -> Response:
        found = asset(request.url.path)
        return Response(found.content, headers={**HEADERS, "content-type": found.content_type})

    async def _page_document(self, request: Request) -> Response:
        served = self._now_served()
        principal = await self._principal(request, served)
        question = asked_of(request)
        loop = asyncio.get_running_loop()
        content = await loop.run_in_executor(self._drawing, self._page.document, served, principal, question)
        headers = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
        return Response(content, headers=headers, media_type="application/json")

    # Rows --------------------------------------------------------------------------------------

    async def _read(self, request: Request) -> Response:
        served = self._now_served()
        principal = await self._principal(request, served)
        wanted = wanted_rows(request)
        name = request.path_params["topic"]

        def begin() -> Rows:
            topic = served.named(principal, name, "read")
            return served.engine.read(topic.number, wanted)

        rows = await self._ask(begin)
        streams = served.streams
        return RowLines(
            rows,
            self._reading,
            streams.opened(principal),
            lambda size: streams.wait_s(principal, size),
            self._refusal,
            idle_s=served.settings.limits.idle_s,
        )

    async def _rows(self, request: Request) -> Response:
        served = self._now_served()
        principal = await self._principal(request, served)
        wanted = _rows_wanted(request)
        name = request.path_params["topic"]
        topic = await self._ask(lambda: served.named(principal, name, "write"))
        with served.streams.opened(principal):
            async with self._bodies.read(request) as body:
                wait_s = served.streams.wait_s(principal, len(body))
                if wait_s > 0:
                    await asyncio.sleep(wait_s)
                loop = asyncio.get_running_loop()
                call = (served, topic, body, wanted)
                if wanted.debezium:
                    appended = await loop.run_in_executor(self._taking_in, self._take_in, *call)
                else:
                    submitted = await loop.run_in_executor(self._writing, self._append, *call)
                    appended = await asyncio.wrap_future(submitted)
        return json_response(acknowledgement(appended))

    def _append(self, served: Served, topic: TopicRecord, body: bytearray, wanted: RowsWanted) -> Future[Appended]:
        """Read the rows and hand them to the log, in a thread; the future is done when they are durable."""
        form = body_format(wanted.content_type, body)
        rows = rows_of(body, form, unpack_schema(topic.schemas[-1]), served.settings.limits)
        return served.engine.append_future(
            topic.number,
            rows,
            partition=wanted.partition,
            rejected=wanted.rejected,
            identity=None if wanted.key is None else Identity(key=key_hash(wanted.key, topic.topic_id)),
        )

    def _take_in(self, served: Served, topic: TopicRecord, body: bytearray, wanted: RowsWanted) -> Appended:
        """The same for Debezium's events, which are durable when it returns."""
        return self._envelopes.take_in(
            served.engine,
            topic,
            body,
            body_format(wanted.content_type, body),
            served.settings.limits,
            source=wanted.source,
            by_time=wanted.by_time,
            rejected=wanted.rejected,
        )


def acknowledgement(appended: Appended) -> dict[str, object]:
    """What every append is told, as JSON."""
    more: dict[str, object] = {}
    if isinstance(appended, DebeziumAppended):
        more = {"duplicates": appended.duplicates, "tombstones": appended.tombstones}
    return {
        "topic": appended.topic,
        "rows": appended.rows,
        "first_lsn": appended.first_lsn,
        "lsn": appended.lsn,
        "offsets": {
            str(partition): {"first": each.first, "next": each.next} for partition, each in appended.offsets.items()
        },
        "time": to_json(appended.time, _TIME),
        "duplicate": appended.duplicate,
        "rejected": appended.rejected,
        **more,
    }


def _check_named_by_address(request: Request) -> None:
    """A server that asks nobody who they are is on loopback.  A web page can have its own name lead there, and is then
    of one origin with this server as its browser sees it: so here a name other than localhost is none of ours."""
    given = request.headers.get("host", "")
    host = given[: given.find("]") + 1] if given.startswith("[") else given.partition(":")[0]
    if host == "localhost":
        return
    try:
        ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        raise NotAllowed(
            "a server without tokens is asked by its address, as 127.0.0.1, or as localhost, and by no other name",
            host=host[:100],
        ) from None


def _rows_wanted(request: Request) -> RowsWanted:
    parameters = request.query_params.multi_items()
    for name, _ in parameters:
        if name not in _PARAMETERS:
            raise InvalidRequest(f"there is no parameter {name[:60]!r}: there are {', '.join(_PARAMETERS)}")
    given = dict(parameters)
    if len(given) < len(parameters):
        raise InvalidRequest("a parameter stands twice in the query")
    partition = given.get("partition")
    if partition is not None and not (partition.isascii() and partition.isdecimal() and len(partition) < 10):
        raise InvalidRequest("a partition is a whole number", got=partition[:60])
    rejected = given.get("rejected", "refuse")
    if rejected not in ("refuse", "keep"):
        raise InvalidRequest("rejected is 'refuse' or 'keep'", got=rejected[:60])
    form = given.get("format")
    if form not in (None, "debezium"):
        raise InvalidRequest("a format is 'debezium', or left out", got=str(form)[:60])
    position = given.get("position")
    if position not in (None, "time") or ((position or "source" in given) and form is None):
        raise InvalidRequest("source= and position=time are for format=debezium")
    keys = [value for name, value in request.scope["headers"] if name == b"idempotency-key"]
    if len(keys) > 1:
        raise InvalidRequest("there is more than one Idempotency-Key")
    if form is not None and (keys or partition is not None):
        raise InvalidRequest("with format=debezium rows go by their key, and repeats are known by their position")
    return RowsWanted(
        content_type=request.headers.get("content-type", ""),
        partition=None if partition is None else int(partition),
        rejected="keep" if rejected == "keep" else "refuse",
        key=keys[0] if keys else None,
        debezium=form is not None,
        source=given.get("source"),
        by_time=position == "time",
    )


def _by_principal(error: HeadwaterError) -> HeadwaterError:
    """What this principal alone has too much of is its own affair, and has a status of its own."""
    if isinstance(error, Unavailable) and {"streams_per_principal_max", "bytes_per_s"} & set(error.facts):
        return TooMany(error.message, **error.facts)
    return error


def _yes_or_no(what: str, why_not: str) -> Response:
    return json_response({what: not why_not, "why_not": why_not}, 503 if why_not else 200)
