"""One connection over HTTP: how long it may take to say what it wants, and how many there may be.

    connected ──first byte …── the head is whole ──▶ a request is answered ──▶ idle, or the next head
              └── authentication_s at most ──┘                              └── keep-alive at most

PROMISE  A connection that does not show a whole head in time is closed, however slowly it drips bytes: the timer begins
         with the connection, and with the first byte of each later request, and no byte resets it.
         One connection above the limit is answered 503 and closed before anything of it is read.
         A body that stops coming is the affair of whoever reads it (http_body.py); what still comes of one that was
         answered already is passed over, and the connection closed where it takes longer than a head may.
NOT HERE Parsing: h11, through uvicorn.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from headwater.server.tls import certificate_identity

HEAD_BYTES_MAX = 16 * 1024
"""Of a request's line and headers together."""
TOO_MANY = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\n"
    b"content-length: 72\r\n\r\n"
    b'{"error":"Unavailable","message":"too many connections","facts":{}}     '
)
CERTIFICATE = "headwater.certificate"
"""Under this name an app finds the identity of the client's certificate, or None, in a request's state."""

ABORT = "headwater.abort"
"""... and what ends the connection at once, whatever is still to be sent."""


class TimedConnection(H11Protocol):
    """H11Protocol, with a time for the head and a limit on connections."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        head_s: float,
        connections_max: int,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._head_s = head_s
        self._connections_max = connections_max
        self._head_timer: asyncio.TimerHandle | None = None
        self._refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= self._connections_max:
            self._refused = True
            transport.write(TOO_MANY)
            transport.close()
            return
        super().connection_made(transport)
        self.app_state = {CERTIFICATE: _identity(transport), ABORT: transport.abort}
        self._begin_head()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if self._head_timer is None and not self._answering:
            self._begin_head()
        super().data_received(data)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._end_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and self._head_timer is None:
            # It was answered before its body had come: the rest is passed over, for as long as a head may take.
            self._begin_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        if not self._refused:
            super().connection_lost(exc)

    def eof_received(self) -> None:
        """A client that sends no more and gets no answer is gone: nothing is kept open for it."""
        if not self._answering:
            self.transport.close()

    def pause_writing(self) -> None:
        if not self._refused:
            super().pause_writing()

    def resume_writing(self) -> None:
        if not self._refused:
            super().resume_writing()

    @property
    def _answering(self) -> bool:
        """A request is here whose answer is not complete."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _begin_head(self) -> None:
        self._head_timer = self.loop.call_later(self._head_s, self._too_slow)

    def _end_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_slow(self) -> None:
        self._head_timer = None
        self.transport.abort()


def _identity(transport: asyncio.Transport) -> str | None:
    """Who the client's certificate says that it is, if it showed one."""
    found = transport.get_extra_info("ssl_object")
    certificate = found.getpeercert() if isinstance(found, ssl.SSLObject) else None
    return certificate_identity(certificate) if certificate else None
