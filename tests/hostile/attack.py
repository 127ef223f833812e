"""What an attack is: a number, made into something to send, sent, and how it ended.

PROMISE  The same seed and number make the same bytes, so a finding replays alone.
OUTCOME  An attack returns how it was answered in a few words, which are counted; it raises Finding where the server did
         what it must never do: no answer in time, success without a token, an error of its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.hostile.http2 import Http2

ANSWER_S = 10.0
"""In this time every input is answered, or its connection closed.  Inputs need milliseconds; the rest is for a machine
that does other things too."""
OWN_ERROR = "an error of its own"
"""What a caller is told of a bug."""


class Finding(Exception):
    """The server did what it must never do."""


@dataclass
class Target:
    """Where the server is, and what an attacker knows of it."""

    host: str
    port: int
    http_port: int
    token: str
    """Of a principal that may do everything with topics whose names begin with `fuzz.`, and nothing else."""
    dead_tokens: tuple[str, ...]
    """Revoked, expired, and never made."""
    topic: bytes
    """The id of `fuzz.rows`."""
    topic_name: str
    foreign_topic: bytes
    """The id of a topic that the attacker may not know of."""
    foreign_name: str
    keyed_topic: bytes
    """The id of `fuzz.keyed`."""
    recorded: tuple[bytes, ...] = ()
    """What an honest client sent in a session, connection by connection."""


@dataclass
class Attacker:
    """One thread's connection, which is opened again where the server has closed it."""

    target: Target
    patience_s: float = ANSWER_S
    _connection: Http2 | None = field(default=None, repr=False)
    _used: int = 0

    def connection(self) -> Http2:
        # A new one now and then: what an earlier input has left in a connection must not be needed to replay.
        if self._connection is None or self._connection.closed or self._used >= 200:
            self.forget()
            self._connection = Http2(self.target.host, self.target.port, within_s=self.patience_s)
            self._used = 0
        self._used += 1
        return self._connection

    def forget(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


Attack = Callable[[random.Random, Attacker], str]
