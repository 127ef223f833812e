"""`headwater serve DATA`: the log for many processes and machines, until it is told to stop.

STOP     A first Ctrl-C or SIGTERM: new calls are refused, what is in flight is answered, the log is closed with its
         checkpoints, and the exit code is 0.  A second one ends it at once, which loses nothing that was acknowledged.
LOST     3 where a sync has failed, 75 where another process has taken the log over: whoever watches over it starts it
         again, and it recovers, or stands by.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.data_directory import CatalogOption, TakeOver, configured_catalog, locate
from headwater.cli.exit_codes import ExitCode
from headwater.cli.failures import exit_codes
from headwater.cli.output import printable, remarks, results, say
from headwater.errors import Fenced, HeadwaterError, InvalidRequest
from headwater.storage.places import is_bucket

if TYPE_CHECKING:
    from headwater.api.opening import Opened
    from headwater.server.serving import Server
    from headwater.server.settings import ServerSettings

COMMAND = "serve"
SWITCH_S = 0.0005
"""How soon a thread that could go on is let to: many threads wait here for short moments of another."""

ServedData = Annotated[
    str | None,
    typer.Argument(
        metavar="[DATA]",
        envvar="HEADWATER_DATA",
        help="The data directory, or s3://bucket/prefix; it is made where it is not there. Without it: what `data` in "
        "./headwater.toml says.",
        show_default=False,
    ),
]
Listen = Annotated[str, typer.Option("--listen", metavar="HOST:PORT", help="Where clients connect (Arrow Flight).")]
Http = Annotated[
    str,
    typer.Option("--http", metavar="HOST:PORT|none", help="Where HTTP is spoken: rows in, health, metrics."),
]
TlsCert = Annotated[
    str | None, typer.Option("--tls-cert", metavar="FILE", help="The server's certificate, PEM.", show_default=False)
]
TlsKey = Annotated[str | None, typer.Option("--tls-key", metavar="FILE", help="Its key, PEM.", show_default=False)]
ClientCa = Annotated[
    str | None,
    typer.Option(
        "--client-ca",
        metavar="FILE",
        help="Whoever connects shows a certificate of this CA (mTLS), PEM.",
        show_default=False,
    ),
]
Tokens = Annotated[bool, typer.Option("--tokens", help="Whoever calls shows a token: `headwater token create`.")]
Standby = Annotated[
    bool, typer.Option("--standby", help="Wait until the log's owner gives no sign of life, then take over.")
]
LogLevel = Annotated[
    str, typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error; JSON lines on stderr.")
]
StopTime = Annotated[
    float, typer.Option("--stop-s", metavar="SECONDS", min=0, help="How long a stop waits for calls in flight.")
]

MetricsOpen = Annotated[
    bool, typer.Option("--metrics-open", help="Give /metrics to whoever asks, without a token or certificate.")
]


def serve(
    data: ServedData = None,
    listen: Listen = "127.0.0.1:7070",
    http: Http = "127.0.0.1:7071",
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    client_ca: ClientCa = None,
    tokens: Tokens = False,
    standby: Standby = False,
    catalog: CatalogOption = None,
    take_over: TakeOver = False,
    log_level: LogLevel = "info",
    stop_s: StopTime = 20.0,
    metrics_open: MetricsOpen = False,
) -> None:
    """Serve a log: clients connect with `headwater.connect("hw://HOST:PORT")`, or with `--data hw://HOST:PORT`.

    Beyond loopback it asks for TLS, and for tokens or client certificates.

    Exit code 0: it was told to stop, and has. 2: another call is needed. 3: a sync failed, or a person is needed.
    75: the log has another owner, now or by now; start it again later.
    """
    # Before anything loads Arrow: it reads this when it is loaded.
    from headwater.server.memory import bound_arrow_memory, warn_if_unbounded

    bounded = bound_arrow_memory()
    with exit_codes(as_json=False, command=COMMAND):
        from headwater.protocol.address import is_server
        from headwater.server.listening import check_listening
        from headwater.server.logs import configure_logs

        settings = _settings(listen, http, tls_cert, tls_key, client_ca, tokens, standby, stop_s, metrics_open)
        check_listening(settings)
        where = locate(data)
        if is_server(where):
            raise InvalidRequest("what is served is a directory or a bucket, and no other server", data=where)
        if take_over and not is_bucket(where):
            raise InvalidRequest(
                "--take-over is for buckets: on a disk, stop the process that has the lock", data=where
            )
        configure_logs(level=log_level)
        warn_if_unbounded(bounded)
        sys.setswitchinterval(SWITCH_S)
        code, streams_left = _opened_and_served(where, catalog, settings, take_over=take_over)
    if streams_left:
        # All is answered and closed.  Streams that clients hold open would keep the interpreter from ending, for ever.
        sys.stdout.flush()
        sys.stderr.flush()
        logging.shutdown()
        os._exit(code)
    raise typer.Exit(code)


def _opened_and_served(
    where: str, catalog: str | None, settings: ServerSettings, *, take_over: bool
) -> tuple[ExitCode, bool]:
    from headwater.api.opening import open_engine
    from headwater.log.segment import cleared_memory

    named = catalog if catalog is not None else configured_catalog()
    # Readers must not use up the memory that is bounded for what callers send (server/memory.py).
    opened = open_engine(where, catalog=named, take_over=take_over, memory=cleared_memory)
    code: ExitCode | None = None
    try:
        code, streams_left = _serve(opened, where, settings)
        return code, streams_left
    finally:
        _close(opened, was_well=code is ExitCode.DONE)


def _close(opened: Opened, *, was_well: bool) -> None:
    try:
        opened.engine.close()
    except HeadwaterError as error:
        if was_well:
            raise
        # What ended the server is told by its exit code: that a lost log cannot be closed well is no news.
        logging.getLogger("headwater.server").warning("the log was not closed well: %s", error)
    finally:
        opened.lake.close()


def _serve(opened: Opened, where: str, settings: ServerSettings) -> tuple[ExitCode, bool]:
    """Serve until the end: the exit code, and whether clients hold streams open."""
    from headwater.server.serving import Server
    from headwater.server.tokens import open_access
    from headwater.storage.places import open_files

    access = open_access(settings, open_files(where))
    server = Server(opened.engine, opened.lake, opened.directory, settings, access, store=opened.store)
    with _told_to_stop(server):
        try:
            if not server.start():
                return ExitCode.DONE, False
            say(results(), _ready_line(server, where))
            sys.stdout.flush()
            lost = server.wait()
        finally:
            server.stop()
            access.close()
    if lost is None:
        return ExitCode.DONE, server.streams_left
    logging.getLogger("headwater.server").error("the log is lost to this process, which ends: %s", lost)
    say(remarks(), f"the log is lost to this process: {printable(str(lost))}", "red")
    return ExitCode.TRY_AGAIN if isinstance(lost, Fenced) else ExitCode.HALTED, server.streams_left


def _ready_line(server: Server, where: str) -> str:
    http = f", HTTP on {server.settings.http[0]}:{server.http_port}" if server.settings.http is not None else ""
    return f"serving {printable(where)} on {server.address}{http}"


@contextmanager
def _told_to_stop(server: Server) -> Iterator[None]:
    """A first signal ends what the server does; a second one has its usual effect, at once."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before: list[Any] = []

    def received(number: int, frame: FrameType | None) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_DFL)
        server.ended.set()

    before = [signal.signal(each, received) for each in numbers]
    try:
        yield
    finally:
        for each, handler in zip(numbers, before, strict=True):
            signal.signal(each, handler)


def _settings(
    listen: str,
    http: str,
    tls_cert: str | None,
    tls_key: str | None,
    client_ca: str | None,
    tokens: bool,
    standby: bool,
    stop_s: float,
    metrics_open: bool,
) -> ServerSettings:
    from headwater.server.settings import ServerSettings, TlsFiles

    tls = None
    if tls_cert is not None and tls_key is not None:
        tls = TlsFiles(tls_cert, tls_key, client_ca)
    elif tls_cert is not None or tls_key is not None:
        raise InvalidRequest("TLS needs both: --tls-cert FILE and --tls-key FILE")
    elif client_ca is not None:
        raise InvalidRequest("--client-ca is for TLS: give --tls-cert and --tls-key too")
    return ServerSettings(
        listen=_place(listen, "--listen"),
        http=None if http == "none" else _place(http, "--http"),
        tls=tls,
        tokens=tokens,
        standby=standby,
        stop_s=stop_s,
        metrics_open=metrics_open,
    )


def _place(text: str, option: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise InvalidRequest(f"{option} is HOST:PORT, as in 127.0.0.1:7070: {text!r} is not")
    return host, int(port)
