"""A server: it claims the log, opens its doors, and ends without losing what it was doing.

    made  ──start──▶  waiting for the log (standby)  ──claimed──▶  ready  ──stop──▶  stopped
                                                              └──the log was lost──▶  lost: it ends, to be started again

CLAIM    The log is claimed before anybody is let in: whoever is let in is served by its owner.
STOP     New calls are refused as Unavailable; what is in flight is answered, for at most `stop_s`; senders of open
         append streams are told (RowsAnswer of number 0), because a stream cannot be ended from this side.
LOST     A failed sync, or another process that took the log over: nothing can be promised here any more.  The process
         ends, and whoever watches over it starts it again.
NOT HERE Opening and closing the log: whoever makes a Server has opened it, and closes it.  Signals: cli/serve.py.
"""

from __future__ import annotations

import logging
import socket
import threading
from typing import TYPE_CHECKING

from headwater.clock import Clock, SystemClock
from headwater.errors import InvalidRequest, LogLocked, Unavailable
from headwater.lake.landing import Lake
from headwater.server.access import Access
from headwater.server.flight import FlightDoor
from headwater.server.front import Front
from headwater.server.listening import check_listening
from headwater.server.served import Served
from headwater.server.settings import ServerSettings
from headwater.server.streams import Streams
from headwater.server.tls import server_context
from headwater.topics.embedded import EmbeddedEngine
from headwater.topics.store_status import StoreWatch

if TYPE_CHECKING:
    from headwater.server.http import HttpDoor

logger = logging.getLogger("headwater.server")

STANDBY_LOOK_S = 0.5
LOST_LOOK_S = 0.25
SHUTDOWN_S = 2.0
"""gRPC's own end, once everything was answered; streams that their clients hold open do not end by it."""


class Server:
    """One log, served."""

    def __init__(
        self,
        engine: EmbeddedEngine,
        lake: Lake | None,
        directory: str,
        settings: ServerSettings,
        access: Access,
        *,
        store: StoreWatch | None = None,
        clock: Clock | None = None,
    ) -> None:
        check_listening(settings)
        self.settings = settings
        self._clock: Clock = clock if clock is not None else SystemClock()
        if settings.tls is not None:
            # What is wrong with the files is said before anything is begun.
            server_context(settings.tls, "h2")
        self.streams = Streams(settings.limits, clock=self._clock)
        self.served = Served(engine, lake, directory, settings, access, self.streams, store=store)
        self._flight: FlightDoor | None = None
        self._front: Front | None = None
        self._http: HttpDoor | None = None
        self.ended = threading.Event()
        """Set it, from any thread or a signal, to have `start` and `wait` return."""
        self.ready = False
        """The log is claimed and recovered, and calls are answered."""
        self.streams_left = False
        """After a stop: clients hold streams open, and gRPC's threads would keep the process from ending."""

    # Beginning ---------------------------------------------------------------------------------

    def start(self) -> bool:
        """Claim the log and listen; False where it was ended before that.  LogLocked names the log's owner, unless this
        is a standby, which waits until there is none."""
        host, port = self.settings.listen
        _check_free(host, port)
        self._start_http()
        if not self._claim():
            return False
        self._open_flight()
        self.ready = True
        return True

    def _open_flight(self) -> None:
        """Where strangers may come, a front stands before Flight, which would take anything from anybody."""
        settings = self.settings
        fronted = settings.tokens or settings.tls is not None
        self._flight = FlightDoor(
            self.served,
            settings.listen,
            self._clock,
            behind_a_front=fronted,
            by_certificate=settings.tls is not None and settings.tls.client_ca_file is not None,
        )
        if fronted:
            context = None if settings.tls is None else server_context(settings.tls, "h2")
            self._front = self._flight.front = Front(settings.listen, self._flight.port, settings.limits, context)
            self._front.start()

    def _start_http(self) -> None:
        """First of all, because whoever watches over the process asks it how it is."""
        if self.settings.http is None:
            return
        # Imported here: only a server that speaks HTTP needs what this brings.
        try:
            from headwater.server.http import HttpDoor
        except ImportError as error:
            if (error.name or "").partition(".")[0] == "headwater":
                raise  # that is our own mistake
            raise InvalidRequest(
                "HTTP needs further packages: pip install 'headwater[server]', or serve without it: --http none",
                missing=error.name,
            ) from error

        self._http = HttpDoor(
            lambda: self.served if self.served.engine.claimed else None,
            self.settings,
            ready=self._why_not_ready,
            alive=lambda: "",
        )
        self._http.start()

    def _why_not_ready(self) -> str:
        if self.ready:
            return ""
        if self.served.stopping.is_set():
            return "the server is being stopped"
        return "the server stands by" if self.settings.standby else "the log is being opened"

    def _claim(self) -> bool:
        waiting = False
        while not self.ended.is_set():
            try:
                self.served.engine.claim()
                return True
            except (LogLocked, Unavailable) as error:
                if not self.settings.standby:
                    raise
                if not waiting:
                    logger.info("standing by: %s", error)
                waiting = True
            self.ended.wait(STANDBY_LOOK_S)
        return False

    # While it serves ---------------------------------------------------------------------------

    @property
    def port(self) -> int:
        assert self._flight is not None, "it listens once it was started"
        found: int = self._flight.port if self._front is None else self._front.port
        return found

    @property
    def location(self) -> str:
        """Where Flight clients go, with the real port."""
        host, _ = self.settings.listen
        return f"{'grpc' if self.settings.tls is None else 'grpc+tls'}://{_shown(host)}:{self.port}"

    @property
    def address(self) -> str:
        """The same as `headwater.connect` takes it."""
        host, _ = self.settings.listen
        return f"{'hw' if self.settings.tls is None else 'hws'}://{_shown(host)}:{self.port}"

    @property
    def http_port(self) -> int:
        assert self._http is not None, "it was not told to speak HTTP, or was not started"
        return self._http.port

    def wait(self) -> BaseException | None:
        """Serve until it is ended, or until the log is lost: then why."""
        while not self.ended.is_set():
            lost = self.served.lost_by()
            if lost is not None:
                return lost
            self.ended.wait(LOST_LOOK_S)
        return None

    # Ending ------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Refuse what is new, answer what is in flight, close the doors.  Twice is nothing."""
        self.ended.set()
        self.ready = False
        self.served.stopping.set()
        http, self._http = self._http, None
        if http is not None:
            http.stop(self.settings.stop_s)
        door, self._flight = self._flight, None
        if door is not None:
            if not door.finish(self.settings.stop_s):
                logger.warning("calls were still in flight after %.0f s: they are not answered", self.settings.stop_s)
            if self._front is not None:
                self._front.stop()
            self.streams_left = not _shut_down(door)
        self.served.close()


def _shut_down(door: FlightDoor) -> bool:
    """gRPC waits for streams that only their clients can end: we do not, and say whether some are left."""
    ending = threading.Thread(target=door.shutdown, name="headwater-shutdown", daemon=True)
    ending.start()
    ending.join(SHUTDOWN_S)
    if ending.is_alive():
        logger.info("streams are left that their clients have not ended")
    return not ending.is_alive()


def _check_free(host: str, port: int) -> None:
    """gRPC lets two servers share a port, and clients would be answered by either: so it is looked at first."""
    if port == 0:
        return
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise Unavailable(f"cannot listen on {host}:{port}: {error.strerror or error}") from error


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
