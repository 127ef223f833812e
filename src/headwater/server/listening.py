"""Where a server may listen: on loopback for anybody, beyond it only with TLS and with callers who say who they are.

PROMISE  A server that everybody may use is never reachable from another machine.  Each address that a name stands for
         counts: one that is not loopback is enough.
"""

from __future__ import annotations

import ipaddress
import socket

from headwater.errors import InvalidRequest
from headwater.server.settings import ServerSettings


def check_listening(settings: ServerSettings) -> None:
    """InvalidRequest, saying what to give, where these settings would let strangers in."""
    for option, place in (("--listen", settings.listen), ("--http", settings.http)):
        if place is None or is_loopback(place[0]):
            continue
        missing = []
        if settings.tls is None:
            missing.append("TLS (--tls-cert FILE --tls-key FILE)")
        if not settings.tokens and (settings.tls is None or settings.tls.client_ca_file is None):
            missing.append("a way to tell who calls (--tokens, or --client-ca FILE)")
        if missing:
            raise InvalidRequest(
                f"{option} {place[0]}:{place[1]} can be reached from other machines, and that needs "
                f"{' and '.join(missing)}; without, listen on 127.0.0.1"
            )


def is_loopback(host: str) -> bool:
    """Whether every address of this host is this machine's own loopback; InvalidRequest where it has none."""
    try:
        found = socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise InvalidRequest(f"no address of {host!r} can be found to listen on: {error}") from error
    return all(_own(str(address[0])) for *_, address in found)


def _own(address: str) -> bool:
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(parsed, "ipv4_mapped", None)
    return bool((mapped or parsed).is_loopback)
