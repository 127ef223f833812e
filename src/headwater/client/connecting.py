"""A connection from the text of an address: for `headwater.connect`, and for whoever finds an address in a plan."""

from __future__ import annotations

import os

from headwater.client.connection import Connection
from headwater.client.credentials import Credentials
from headwater.clock import Clock, Entropy, SystemClock, system_entropy
from headwater.protocol.address import parse_address
from headwater.settings import ClientSettings


def connect_to(
    where: str,
    *,
    token: str | None = None,
    settings: ClientSettings | None = None,
    clock: Clock | None = None,
    entropy: Entropy = system_entropy,
) -> Connection:
    """A connection to the server at this address.  Nothing is sent before it is used."""
    address = parse_address(where)
    clock = clock if clock is not None else SystemClock()
    credentials = Credentials(address, token, clock, os.environ)
    return Connection(
        address, settings=settings or ClientSettings(), clock=clock, entropy=entropy, credentials=credentials
    )
