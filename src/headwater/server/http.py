"""The door over HTTP: uvicorn's protocol and our app, in a thread with a loop of its own.

    door.start()         binds, and answers from then on
    door.port            the port that it has
    door.stop(seconds)   no new connection; requests in flight are answered, and cut off after so long

PROMISE  It takes no signal: whoever runs the server does.  Its certificate and key are the other door's, and where a
         client CA is named there is no connection without a certificate of it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
from collections.abc import Callable

from uvicorn.config import Config
from uvicorn.server import ServerState

from headwater.errors import Unavailable
from headwater.server.health import Health, Why
from headwater.server.http_app import HttpApp
from headwater.server.http_connection import HEAD_BYTES_MAX, TimedConnection
from headwater.server.served import Served
from headwater.server.settings import ServerSettings
from headwater.server.tls import server_context

logger = logging.getLogger("headwater.http")

KEEP_ALIVE_S = 75
"""An idle connection is kept so long between two requests."""
BACKLOG = 512
_LOOK_S = 0.02


class HttpDoor:
    def __init__(
        self,
        served: Callable[[], Served | None],
        settings: ServerSettings,
        *,
        ready: Why = lambda: "",
        alive: Why = lambda: "",
    ) -> None:
        assert settings.http is not None
        self._settings = settings
        self._app = HttpApp(served, settings, Health(served, ready=ready, alive=alive))
        self._state = ServerState()
        self._socket: socket.socket | None = None
        self._tls: ssl.SSLContext | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._stop_s = 0.0
        self._begun: threading.Event = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="headwater-http", daemon=True)

    @property
    def port(self) -> int:
        assert self._socket is not None
        port: int = self._socket.getsockname()[1]
        return port

    def start(self) -> None:
        """Return when it listens; Unavailable where the address cannot be had."""
        assert self._settings.http is not None
        host, port = self._settings.http
        tls = self._settings.tls
        self._tls = None if tls is None else server_context(tls, "http/1.1")
        try:
            self._socket = socket.create_server((host, port), family=_family(host), backlog=BACKLOG)
        except OSError as error:
            raise Unavailable(f"cannot listen on {host}:{port} for HTTP: {error.strerror}") from error
        # Connections inherit it.  Without it an answer, head and body, waits 40 ms for the client's delayed ACK.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._thread.start()
        self._begun.wait()
        if self._failed is not None:
            raise self._failed
        self._app.begin()

    def stop(self, timeout_s: float = 20.0) -> None:
        """Answer what is in flight, then end; twice is nothing."""
        if self._loop is None or not self._thread.is_alive():
            return
        self._stop_s = timeout_s
        assert self._stopping is not None
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._app.close()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # whoever waits for the door to open must be told, whatever it is
            self._failed = error
            if self._begun.is_set():
                logger.exception("the door over HTTP ended")
        finally:
            self._begun.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        limits = self._settings.limits
        config = Config(
            self._app.asgi,
            http=TimedConnection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        )
        config.load()
        loop = self._loop

        def connection() -> TimedConnection:
            return TimedConnection(
                config,
                self._state,
                {},
                loop,
                head_s=limits.authentication_s,
                connections_max=limits.streams_max,
            )

        assert self._socket is not None
        server = await loop.create_server(
            connection,
            sock=self._socket,
            ssl=self._tls,
            backlog=BACKLOG,
            ssl_handshake_timeout=None if self._tls is None else limits.authentication_s,
        )
        self._begun.set()
        await self._stopping.wait()
        server.close()
        await self._end_connections()

    async def _end_connections(self) -> None:
        for each in list(self._state.connections):
            each.shutdown()
        try:
            async with asyncio.timeout(self._stop_s):
                while self._state.tasks:
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            logger.warning("%d requests over HTTP were cut off", len(self._state.tasks))
            for task in list(self._state.tasks):
                task.cancel()
        for each in list(self._state.connections):
            each.transport.abort()
        # Their ends are told by the loop.
        await asyncio.sleep(0)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
