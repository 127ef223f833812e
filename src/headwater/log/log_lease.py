"""`lease`: a sign of life of a log's owner on an object store.

It only says when a standby may try: whoever takes the log over is fenced in or out by slots and `trim`, whatever a
lease says.  So it may be stale, lost or overwritten, and no row depends on it.

    owner      writes it once a second, on the etag that it wrote last; once it finds another's there, it stops
    standby    tries once the lease has not changed for STALE_S of its own clock, or was released.  It writes the lease
               before it walks: an owner that is alive and busy would else always be a few slots ahead of the walk
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

RENEW_S = 1.0
STALE_S = 3.0
POLL_S = 0.25


@dataclass(frozen=True)
class Lease:
    token: str
    """The owner's, in hex."""
    host: str
    pid: int
    since_us: int
    counter: int = 0
    released: bool = False

    @property
    def holder(self) -> str:
        return f"pid {self.pid} on {self.host}"

    def renewed(self) -> Lease:
        return replace(self, counter=self.counter + 1)

    def given_up(self) -> Lease:
        return replace(self, counter=self.counter + 1, released=True)


def pack_lease(lease: Lease) -> bytes:
    return json.dumps(
        {
            "token": lease.token,
            "host": lease.host,
            "pid": lease.pid,
            "since_us": lease.since_us,
            "counter": lease.counter,
            "released": lease.released,
        },
        sort_keys=True,
    ).encode()


def read_lease(data: bytes) -> Lease | None:
    """What a lease says; nothing where these bytes are not one, which is as good as none."""
    try:
        content = json.loads(data)
        return Lease(
            token=str(content["token"]),
            host=str(content["host"]),
            pid=int(content["pid"]),
            since_us=int(content["since_us"]),
            counter=int(content["counter"]),
            released=bool(content["released"]),
        )
    except (ValueError, KeyError, TypeError):
        return None
