"""Where a server is, as a person writes it, and what is needed to be let in.

    hw://127.0.0.1:7070                                        plain, for the same machine
    hws://log.example.com:7070?token_file=/run/secrets/token   TLS and a token
    hws://a:7070,b:7070?ca_file=ca.pem&cert_file=me.pem&key_file=me.key      two servers, a CA of one's own, mTLS

What the address does not say, HEADWATER_TOKEN_FILE, HEADWATER_CA_FILE, HEADWATER_CERT_FILE and HEADWATER_KEY_FILE do;
HEADWATER_TOKEN holds a token itself.  No secret stands in an address: it travels in plans, and is shown in messages.

PROMISE  An address is one line of text that means the same on every machine that has the files it names, so a plan
         carries it to executors.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from headwater.errors import InvalidRequest

PLAIN, TLS = "hw", "hws"
PORT = 7070
_HOST = re.compile(
    r"(?:(?P<name>[A-Za-z0-9._-]+)|\[(?P<ipv6>[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)\])(?::(?P<port>[0-9]{1,5}))?"
)
_FILES = ("token_file", "ca_file", "cert_file", "key_file")


@dataclass(frozen=True)
class Address:
    """A server, or several of which one serves at a time."""

    text: str
    tls: bool
    hosts: tuple[tuple[str, int], ...]
    token_file: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None

    def locations(self) -> list[str]:
        """As Flight writes them."""
        scheme = "grpc+tls" if self.tls else "grpc"
        return [f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}" for host, port in self.hosts]


def is_server(where: str) -> bool:
    """Is this the address of a server, rather than a folder or a bucket?"""
    return where.startswith((f"{PLAIN}://", f"{TLS}://"))


def parse_address(text: str, environment: Mapping[str, str] | None = None) -> Address:
    environment = os.environ if environment is None else environment
    if not is_server(text):
        raise InvalidRequest("a server is hw://host:port, or hws://host:port with TLS", got=text[:200])
    if not text.isprintable():
        raise InvalidRequest("an address is one line of plain text", got=ascii(text[:200]))
    try:
        parts = urlsplit(text)
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query), max_num_fields=100)
    except ValueError as error:
        raise InvalidRequest(f"an address that cannot be read: {error}", got=text[:200]) from error
    if parts.username or parts.password or "@" in parts.netloc:
        raise InvalidRequest("an address holds no secret: put the token into a file, and name it with token_file=")
    if parts.path not in ("", "/") or parts.fragment:
        raise InvalidRequest("an address of a server has no path", got=text[:200])
    given = dict(pairs)
    if len(given) < len(pairs):
        raise InvalidRequest("an address names each file once", got=text[:200])
    unknown = sorted(set(given) - set(_FILES))
    if unknown:
        raise InvalidRequest(f"an address has no {unknown[0]!r}; it may name {', '.join(_FILES)}")
    files = {name: given.get(name) or environment.get(f"HEADWATER_{name.upper()}") or None for name in _FILES}
    hosts = tuple(_host(each) for each in parts.netloc.split(","))
    return Address(text, parts.scheme == TLS, hosts, **files)


def _host(text: str) -> tuple[str, int]:
    found = _HOST.fullmatch(text)
    port = PORT if found is None or found["port"] is None else int(found["port"])
    if found is None or not 0 < port < 65_536:
        raise InvalidRequest("an address is host:port, with [brackets] around an IPv6 host", got=text[:200])
    return found["ipv6"] or found["name"], port
