"""Bodies of requests: read as they come, within limits of one and of all together.

PROMISE  A body above the limit is refused when the first byte too many has come, or before any has where its length was
         told; no more than that is ever held of it.  All bodies that are held at a time are within BODIES_TIMES limits:
         the next is refused, and may come again.
         A body takes at most `idle_s`, however it drips.  No body is unpacked: one with a content-encoding is refused.
THREADS  Of the loop alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import Request

from headwater.errors import InvalidRequest, TooLarge, Unavailable
from headwater.server.http_errors import UnsupportedMediaType
from headwater.server.settings import ServerLimits

BODIES_TIMES = 4
"""How many of the largest bodies may be held at a time."""


class Bodies:
    """The bodies that are held now."""

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._held_bytes = 0
        self.taken_bytes = 0
        """Of all bodies since the beginning."""

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytearray]:
        """The whole body, held while the block runs."""
        self._check_head(request)
        body = bytearray()
        try:
            try:
                async with asyncio.timeout(self._limits.idle_s):
                    async for chunk in request.stream():
                        self._take(len(body), len(chunk))
                        body += chunk
            except TimeoutError:
                raise InvalidRequest(
                    "the body did not come in time", seconds=self._limits.idle_s, bytes=len(body)
                ) from None
            yield body
        finally:
            self._held_bytes -= len(body)

    def _check_head(self, request: Request) -> None:
        encoding = request.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):
            raise UnsupportedMediaType("a body is sent as it is, without a content-encoding", got=encoding[:40])
        length = request.headers.get("content-length", "0")
        # h11 has refused what is no number.
        if int(length) > self._limits.http_body_bytes_max:
            raise self._too_large(int(length))

    def _take(self, held: int, more: int) -> None:
        if held + more > self._limits.http_body_bytes_max:
            raise self._too_large(held + more)
        if self._held_bytes + more > BODIES_TIMES * self._limits.http_body_bytes_max:
            raise Unavailable("the server holds as many bytes of requests as it may; nothing was appended: try again")
        self._held_bytes += more
        self.taken_bytes += more

    def _too_large(self, size: int) -> TooLarge:
        return TooLarge(
            "the body is above the limit: send the rows in several requests",
            bytes=size,
            limit_bytes=self._limits.http_body_bytes_max,
        )
