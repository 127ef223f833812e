"""The door before Flight: it lets in what gRPC may safely read, and holds back who has not said who they are.

    client ══TLS══▶ front ──plain, loopback──▶ pyarrow's Flight server

WHY      gRPC reads a call's message whole, and unpacks it if it is compressed, before any of our code runs, and
         pyarrow has no limit for either: a stranger's 8 MB would become 24 GB.  So bytes are looked at before gRPC
         sees them (front_frames.py).
STRANGER A connection on which nobody has been authenticated is passed UNKNOWN_BYTES_MAX of messages and no more, and is
         closed after `authentication_s`.  So the first call of a connection is a small one, or a stream.
         Of such connections UNKNOWN_MAX are kept: the oldest goes when one more comes.
IDLE     A connection on which no byte moved for `idle_s`, in either direction, is closed: its client is gone without a
         word, or holds a stream that only it can end.  A client of ours comes again.
WHO      Behind the front every caller seems to be on this machine: `identity_of` says whose certificate was shown,
         `knows` whether a call came through here at all.
PROMISE  Bytes are passed on as they came, in both directions, and what one side does not take is not read from the
         other: a connection holds a few hundred kilobytes.
         What must not get in ends its connection, and is written to the log by its reason.
THREADS  One, with a loop; the methods are called from any.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
from concurrent.futures import Future
from typing import cast

from headwater.errors import HeadwaterError, Unavailable
from headwater.server.front_frames import FrameWatch
from headwater.server.settings import ServerLimits
from headwater.server.tls import certificate_identity

UNKNOWN_BYTES_MAX = 1 << 20
UNKNOWN_MAX = 256
BACKLOG = 1_024
HELD_BYTES = 256 * 1024
"""What a connection may hold of what the other side does not take yet."""
STOP_S = 5.0

logger = logging.getLogger("headwater.server")


class Front:
    """Listens for the Flight server behind it."""

    def __init__(
        self, listen: tuple[str, int], inner_port: int, limits: ServerLimits, context: ssl.SSLContext | None
    ) -> None:
        self.limits = limits
        self.inner_port = inner_port
        self.loop: asyncio.AbstractEventLoop
        self._listen = listen
        self._context = context
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._stopped: asyncio.Event
        self._outsides: dict[_Outside, None] = {}
        """All connections, the oldest first."""
        self._unknown: dict[_Outside, None] = {}
        self._by_port: dict[int, _Outside] = {}
        """By the local port of the connection to the Flight server; asked from any thread."""
        self.refused: dict[str, int] = {}
        """Connections that were ended, by reason."""

    # From any thread ---------------------------------------------------------------------------

    @property
    def port(self) -> int:
        assert self._socket is not None, "it listens once it was started"
        return int(self._socket.getsockname()[1])

    def start(self) -> None:
        """Listen; Unavailable where that cannot be."""
        self._socket = _listening(*self._listen)
        self.loop = asyncio.new_event_loop()
        begun: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(begun,), name="headwater-front", daemon=True)
        self._thread.start()
        begun.result()

    def stop(self) -> None:
        """Take nobody any more, and end every connection."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self.loop.call_soon_threadsafe(self._stopped.set)
            thread.join(STOP_S)

    def knows(self, peer: str) -> bool:
        """Whether a call of this peer, as gRPC names it, came through here."""
        return self._behind(peer) is not None

    def identity_of(self, peer: str) -> str | None:
        """Whose certificate was shown; None where there was none."""
        outside = self._behind(peer)
        return None if outside is None else outside.identity

    def authenticated(self, peer: str) -> None:
        """Somebody on this connection has said who they are."""
        outside = self._behind(peer)
        if outside is not None and not outside.known:
            outside.known = True
            self.loop.call_soon_threadsafe(outside.became_known)

    def _behind(self, peer: str) -> _Outside | None:
        host, _, port = peer.rpartition(":")
        return self._by_port.get(int(port)) if host == "ipv4:127.0.0.1" and port.isdecimal() else None

    # In the loop -------------------------------------------------------------------------------

    def _run(self, begun: Future[None]) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self._until_stopped(begun))
        finally:
            self.loop.close()

    async def _until_stopped(self, begun: Future[None]) -> None:
        try:
            server = await self._serve()
        except (OSError, ValueError) as error:
            # Whoever starts it is told.
            begun.set_exception(error)
            return
        self._stopped = asyncio.Event()
        begun.set_result(None)
        await self._stopped.wait()
        assert self._socket is not None
        self.loop.remove_reader(self._socket)
        # Those who are being accepted, or reached, at this very moment first: asyncio loses track of them otherwise.
        for _ in range(2):
            await asyncio.gather(*(each for each in asyncio.all_tasks() if each is not asyncio.current_task()))
            for each in list(self._outsides):
                each.end()
            await asyncio.sleep(0)
        server.close()
        await asyncio.sleep(0)

    async def _serve(self) -> asyncio.Server:
        assert self._socket is not None
        timeout_s = self.limits.authentication_s if self._context is not None else None
        return await self.loop.create_server(
            lambda: _Outside(self),
            sock=self._socket,
            ssl=self._context,
            ssl_handshake_timeout=timeout_s,
            ssl_shutdown_timeout=None if timeout_s is None else 1.0,
            backlog=BACKLOG,
        )

    def came(self, outside: _Outside) -> None:
        self._outsides[outside] = None
        self._unknown[outside] = None
        # Twice the streams: a client has one connection, and most have one stream.
        if len(self._outsides) > 2 * self.limits.streams_max:
            outside.refuse("too many connections")
        elif len(self._unknown) > UNKNOWN_MAX:
            next(iter(self._unknown)).refuse("too many connections of nobody known")

    def reached(self, outside: _Outside, port: int) -> None:
        self._by_port[port] = outside

    def left(self, port: int) -> None:
        """Before the port is free again: whoever gets it next is somebody else."""
        self._by_port.pop(port, None)

    def is_known(self, outside: _Outside) -> None:
        self._unknown.pop(outside, None)

    def gone(self, outside: _Outside) -> None:
        self._outsides.pop(outside, None)
        self._unknown.pop(outside, None)

    def count_refused(self, reason: str, outside: str) -> None:
        self.refused[reason] = self.refused.get(reason, 0) + 1
        logger.info("a connection from %s was ended: %s", outside, reason)


class _Outside(asyncio.Protocol):
    """A client's connection."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._watch = FrameWatch(front.limits.message_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._inside: _Inside | None = None
        self._held: list[bytes] = []
        """What came while nobody was reached, or known."""
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False
        self._stalled = False
        """The Flight server takes no more at the moment."""
        self.identity: str | None = None
        self.known = False
        self._moved_s = front.loop.time()
        """When bytes came or went last."""

    # What the loop tells -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(HELD_BYTES)
        _keep_alive(transport.get_extra_info("socket"))
        found = transport.get_extra_info("ssl_object")
        certificate = None if found is None else found.getpeercert()
        self.identity = certificate_identity(certificate) if certificate else None
        self._transport.pause_reading()
        self._timer = self._front.loop.call_later(
            self._front.limits.authentication_s, self.refuse, "nobody was authenticated in time"
        )
        self._front.came(self)
        if not self._ended:
            self._reaching = self._front.loop.create_task(self._reach())

    async def _reach(self) -> None:
        try:
            await self._front.loop.create_connection(
                lambda: _Inside(self, self._front), "127.0.0.1", self._front.inner_port
            )
        except OSError:
            self.refuse("the Flight server cannot be reached")

    def reached(self, inside: _Inside) -> None:
        self._inside = inside
        if self._ended:
            inside.end()
        else:
            self._go_on()

    def data_received(self, data: bytes) -> None:
        if self._ended:
            return
        self._moved_s = self._front.loop.time()
        try:
            self._watch.feed(data)
        except HeadwaterError as error:
            self.refuse(error.message)
            return
        if self._must_wait():
            self._held.append(data)
            self._go_on()
        else:
            assert self._inside is not None
            self._inside.write(data)

    def eof_received(self) -> None:
        """A client of gRPC that sends no more is gone."""
        self.end()

    def connection_lost(self, error: Exception | None) -> None:
        self.end()

    def pause_writing(self) -> None:
        if self._inside is not None:
            self._inside.pause()

    def resume_writing(self) -> None:
        if self._inside is not None:
            self._inside.resume()

    # What the others tell ----------------------------------------------------------------------

    def became_known(self) -> None:
        self._front.is_known(self)
        if self._ended:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._look_at_idle()
        self._go_on()

    def _look_at_idle(self) -> None:
        left_s = self._moved_s + self._front.limits.idle_s - self._front.loop.time()
        if left_s <= 0:
            self.refuse("nothing moved for too long")
        else:
            self._timer = self._front.loop.call_later(left_s + 0.01, self._look_at_idle)

    def stalled(self, stalled: bool) -> None:
        self._stalled = stalled
        self._go_on()

    def write(self, data: bytes) -> None:
        if not self._ended and self._transport is not None:
            self._moved_s = self._front.loop.time()
            self._transport.write(data)

    def refuse(self, reason: str) -> None:
        if not self._ended and self._transport is not None:
            self._front.count_refused(reason, str(self._transport.get_extra_info("peername")))
            self._transport.abort()
        self.end()

    def end(self) -> None:
        """Both halves; what was written to the client is still sent."""
        if self._ended:
            return
        self._ended = True
        self._held.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._front.gone(self)
        if self._inside is not None:
            self._inside.end()
        if self._transport is not None:
            self._transport.close()

    def _must_wait(self) -> bool:
        return self._inside is None or (not self.known and self._watch.message_bytes > UNKNOWN_BYTES_MAX)

    def _go_on(self) -> None:
        """Pass on what was held and read further, or do not read."""
        if self._ended or self._transport is None:
            return
        waits = self._must_wait()
        if not waits and self._inside is not None:
            held, self._held = self._held, []
            for each in held:
                self._inside.write(each)
        if waits or self._stalled:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()


class _Inside(asyncio.Protocol):
    """The connection to the Flight server."""

    def __init__(self, outside: _Outside, front: Front) -> None:
        self._outside = outside
        self._front = front
        self._transport: asyncio.Transport | None = None
        self._port = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(HELD_BYTES)
        self._port = int(transport.get_extra_info("sockname")[1])
        self._front.reached(self._outside, self._port)
        self._outside.reached(self)

    def data_received(self, data: bytes) -> None:
        self._outside.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._front.left(self._port)
        self._outside.end()

    def pause_writing(self) -> None:
        self._outside.stalled(True)

    def resume_writing(self) -> None:
        self._outside.stalled(False)

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def pause(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def end(self) -> None:
        if self._transport is not None:
            self._front.left(self._port)
            self._transport.abort()


def _keep_alive(found: socket.socket) -> None:
    """Have the kernel ask whether a silent client's machine is still there."""
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family, kind, protocol)
    except OSError as error:
        raise Unavailable(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(BACKLOG)
    except OSError as error:
        found.close()
        raise Unavailable(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    return found
