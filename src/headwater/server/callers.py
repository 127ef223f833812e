"""Who calls, by the headers of a call: its token or certificate, and the log that it means to talk to.

    authorization: Bearer TOKEN     who
    hw-version                      which protocol it speaks
    hw-shard, hw-epoch              which log it means, and the latest owner of it that it has heard of

PROMISE  A call for another shard, or from somebody who knows of a later owner of this one, is refused before anything
         is done: it would be answered by the wrong log.
         Whoever holds a stream open is asked again who it is: a token that was revoked ends within ASK_AGAIN_S.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyarrow import flight

from headwater.clock import Clock
from headwater.errors import Conflict, InvalidRequest, Unauthenticated, Unavailable
from headwater.protocol.codec import VERSION
from headwater.server.access import Principal
from headwater.server.flight_errors import told

ASK_AGAIN_S = 5.0
SHARD = 0
CALLER = "caller"

Authenticate = Callable[[str | None, str | None], Principal]


class Caller(flight.ServerMiddleware):  # type: ignore[misc]  # pyarrow has no types
    """The headers of one call."""

    def __init__(self, headers: Mapping[str, Sequence[str | bytes]]) -> None:
        self.authorization = _header(headers, "authorization")
        self._version = _header(headers, "hw-version")
        self._shard = _header(headers, "hw-shard")
        self._epoch = _header(headers, "hw-epoch")

    def check_meant(self, epoch: int) -> None:
        """Raise unless the caller means this log, of which we are the owner of this epoch."""
        version = _number(self._version, "hw-version")
        if version is not None and version != VERSION:
            raise InvalidRequest(
                "this server speaks another version of the protocol: use a client of its own version",
                version=VERSION,
                asked=version,
            )
        shard = _number(self._shard, "hw-shard")
        if shard is not None and shard != SHARD:
            raise Conflict(
                "this server has another shard of the log: connect to the one that has it", shard=SHARD, asked=shard
            )
        known = _number(self._epoch, "hw-epoch")
        if known is not None and known > epoch:
            # Not Fenced: that is for producers and groups.  Who comes here should look for the later owner.
            raise Unavailable("a later owner of this log has been heard of", epoch=epoch, asked=known)


class CallerFactory(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    """Knows callers before anything of what they send is read: of a stream that is refused here nothing ever is."""

    def __init__(self, authenticate: Authenticate, *, by_certificate: bool) -> None:
        super().__init__()
        self._authenticate = authenticate
        self._by_certificate = by_certificate
        """Whoever has no token may have a certificate, which is known only later."""

    def start_call(self, info: flight.CallInfo, headers: Mapping[str, Sequence[str | bytes]]) -> Caller:
        with told(lambda error: error):
            caller = Caller(headers)
            if caller.authorization is not None or not self._by_certificate:
                self._authenticate(caller.authorization, None)
            return caller


class Asked:
    """Who calls: known when the call begins, and asked for again while it lasts."""

    def __init__(self, authenticate: Authenticate, caller: Caller, certificate: str | None, clock: Clock) -> None:
        self._authenticate = authenticate
        self._authorization = caller.authorization
        self._certificate = certificate
        self._clock = clock
        self._principal = authenticate(self._authorization, certificate)
        self._asked_s = clock.monotonic_s()

    def __call__(self) -> Principal:
        now_s = self._clock.monotonic_s()
        if now_s - self._asked_s >= ASK_AGAIN_S:
            self._principal = self._authenticate(self._authorization, self._certificate)
            self._asked_s = now_s
        return self._principal


def _header(headers: Mapping[str, Sequence[str | bytes]], name: str) -> str | None:
    values = [value for key, found in headers.items() if key.lower() == name for value in found]
    if len(values) > 1:
        # Which of them counts would be a guess.
        raise Unauthenticated(f"the header {name} was sent more than once: send one")
    if not values:
        return None
    value = values[0]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _number(text: str | None, name: str) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 19:
        raise InvalidRequest(f"the header {name} is a number")
    return int(text)
