"""What a client shows to be let in: a token, a certificate, and the CA that it believes.

PROMISE  A token file is read again when it has changed, so that a token can be replaced under a running program.
         Nothing of it is in a repr, an error or a log line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.clock import Clock
from headwater.errors import InvalidRequest
from headwater.protocol.address import Address
from headwater.protocol.credential_files import read_credential

_LOOK_AGAIN_S = 5.0


class Credentials:
    def __init__(self, address: Address, token: str | None, clock: Clock, environment: Mapping[str, str]) -> None:
        self._address = address
        self._clock = clock
        self._given = token if token is not None else environment.get("HEADWATER_TOKEN") or None
        if address.token_file is not None and token is None:
            self._given = None
        self._read: bytes | None = None
        self._read_at_s = 0.0
        if (address.cert_file is None) != (address.key_file is None):
            raise InvalidRequest("a client's certificate and its key go together: cert_file= and key_file=")
        if address.cert_file is not None and not address.tls:
            raise InvalidRequest("a certificate is shown over TLS alone: write hws:// for hw://")

    def token(self) -> bytes | None:
        """What goes into the authorization header; nothing where no token is known."""
        if self._given is not None:
            return _checked(self._given.encode())
        if self._address.token_file is None:
            return None
        now_s = self._clock.monotonic_s()
        if self._read is None or now_s - self._read_at_s > _LOOK_AGAIN_S:
            self._read = _checked(read_credential(self._address.token_file, "token_file").strip())
            self._read_at_s = now_s
        return self._read

    def for_channel(self) -> dict[str, Any]:
        """How Flight's client is made."""
        if not self._address.tls:
            return {}
        found: dict[str, Any] = {}
        if self._address.ca_file is not None:
            found["tls_root_certs"] = read_credential(self._address.ca_file, "ca_file")
        if self._address.cert_file is not None and self._address.key_file is not None:
            found["cert_chain"] = read_credential(self._address.cert_file, "cert_file")
            found["private_key"] = read_credential(self._address.key_file, "key_file")
        return found

    def __repr__(self) -> str:
        return "Credentials(...)"


def _checked(token: bytes) -> bytes:
    if not token or not all(33 <= byte <= 126 for byte in token):
        raise InvalidRequest("a token is one word of printable characters: the token file holds something else")
    return token
