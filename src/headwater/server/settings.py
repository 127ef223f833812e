"""How a server behaves: where it listens, and what it takes from anybody."""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater.settings import MIB


@dataclass(frozen=True)
class TlsFiles:
    """PEM files.  With `client_ca_file` whoever connects shows a certificate of that CA."""

    cert_file: str
    key_file: str
    client_ca_file: str | None = None


@dataclass(frozen=True)
class ServerLimits:
    """What one caller, and all of them together, may ask for."""

    message_bytes_max: int = 80 * MIB
    """One message: a batch of rows, a transaction, a body over HTTP."""
    rows_max: int = 1 << 20
    """Rows of one message."""
    in_flight_max: int = 64
    """Requests of an append stream that wait for their answers."""
    streams_max: int = 1_000
    """Streams that are open at a time; the next is refused at once."""
    streams_per_principal_max: int = 1_000
    idle_s: float = 300.0
    """A stream on which nothing came for so long is ended.  A follower that waits for rows is not idle."""
    authentication_s: float = 5.0
    """From the first byte of a connection over HTTP to a whole request head."""
    expansion_max: int = 100
    """How many times larger than the bytes that were sent rows may become."""
    bytes_per_s_per_principal: int | None = None
    """Bytes in and out that a principal may move in a second; None: as many as the machine can."""
    http_body_bytes_max: int = 64 * MIB


@dataclass(frozen=True)
class ServerSettings:
    listen: tuple[str, int] = ("127.0.0.1", 7070)
    http: tuple[str, int] | None = ("127.0.0.1", 7071)
    """None: no HTTP.  A port of 0 is a free one."""
    tls: TlsFiles | None = None
    tokens: bool = False
    """Whoever calls shows a token (`headwater token create`); without it, on loopback, everybody may do everything."""
    limits: ServerLimits = field(default_factory=ServerLimits)
    metrics_open: bool = False
    """Anybody who reaches the HTTP port may read /metrics; else whoever has admin over every topic."""
    standby: bool = False
    """Wait until the log's owner gives no sign of life, then take over (bucket)."""
    stop_s: float = 20.0
    """How long calls in flight may go on once the server is asked to stop."""
