"""A server to attack: a real process with tokens, topics of the attackers' own and of others, and a recorded session.

    with attacked(directory) as (server, target): ...
    python -m tests.hostile.target DIRECTORY          the same, until Ctrl-C: for replays by hand; writes target.json

PROMISE  The attackers' principal has every right over topics whose names begin with `fuzz.`, and none over any other.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import headwater as hw
from headwater.server import tokens
from headwater.server.access import parse_grant
from headwater.storage.disk import DiskFiles
from tests.hostile.arrow_bytes import SCHEMA
from tests.hostile.attack import Target
from tests.hostile.attacker import save_target
from tests.servers.headwater import ServerProcess

TOPIC, KEYED, HONEST = "fuzz.rows", "fuzz.keyed", "honest.orders"
HONEST_SCHEMA = pa.schema([pa.field("number", pa.int64(), nullable=False)])


@dataclass(frozen=True)
class Attacked:
    """A server that runs, and what its clients need."""

    server: ServerProcess
    target: Target
    honest_token: str


@contextmanager
def attacked(directory: Path) -> Iterator[Attacked]:
    data = directory / "data"
    with hw.open(data) as log:
        log.topic(TOPIC, schema=SCHEMA)
        log.topic(
            KEYED, schema=pa.schema([pa.field("id", pa.int64(), nullable=False), ("note", pa.string())]), key="id"
        )
        log.topic(HONEST, schema=HONEST_SCHEMA)
        ids = {name: bytes.fromhex(log.topic(name).describe().topic_id) for name in (TOPIC, KEYED, HONEST)}
    files = DiskFiles(data)
    everything = tuple(parse_grant(f"{right}:fuzz.*") for right in ("read", "write", "admin", "land"))
    token = tokens.create(files, "attacker", everything)
    honest = tokens.create(files, "honest", (parse_grant("write:honest.*"), parse_grant("read:honest.*")))
    revoked = tokens.create(files, "revoked", everything)
    tokens.revoke(files, "revoked")
    expired = tokens.create(files, "expired", everything, expires_s=0.001)
    with ServerProcess(data, "--tokens") as server:
        target = Target(
            host="127.0.0.1",
            port=server.port,
            http_port=server.http_port,
            token=token,
            dead_tokens=(revoked, expired, "hw_" + "A" * 43, "hw_", "Bearer"),
            topic=ids[TOPIC],
            topic_name=TOPIC,
            keyed_topic=ids[KEYED],
            foreign_topic=ids[HONEST],
            foreign_name=HONEST,
            recorded=recorded_session(server, token),
        )
        yield Attacked(server, target, honest)


def recorded_session(server: ServerProcess, token: str) -> tuple[bytes, ...]:
    """What a client of ours sends that appends, reads, consumes and transacts, connection by connection."""
    recorder = Recorder(server.port)
    try:
        with hw.connect(f"hw://127.0.0.1:{recorder.port}", token=token) as log:
            topic = log.topic(TOPIC)
            for number in range(5):
                topic.append([{"id": number, "note": "recorded", "tags": [1, 2]}])
            topic.read(limit=3).to_arrow()
            with log.transaction() as tx:
                tx.append(KEYED, [{"id": 1, "note": "recorded"}])
            log.topic(KEYED).delete([{"id": 1}])
    finally:
        recorder.close()
    return tuple(bytes(each) for each in recorder.sent if each)


class Recorder:
    """A TCP proxy that keeps what clients send."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.sent: list[bytearray] = []
        threading.Thread(target=self._accept, name="recorder", daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # It was closed.
            server = socket.create_connection(("127.0.0.1", self._server_port))
            kept = bytearray()
            self.sent.append(kept)
            for source, to, keep in ((client, server, kept), (server, client, None)):
                threading.Thread(target=_pump, args=(source, to, keep), name="recorder", daemon=True).start()


def _pump(source: socket.socket, to: socket.socket, kept: bytearray | None) -> None:
    try:
        while piece := source.recv(65_536):
            if kept is not None:
                kept.extend(piece)
            to.sendall(piece)
    except OSError:
        pass  # One of the two is gone, and so is what they had to say.
    to.close()
    source.close()


def main() -> int:
    directory = Path(sys.argv[1])
    with attacked(directory) as found:
        save_target(found.target, directory / "target.json")
        print(f"pid {found.server.pid}, log {found.server.log_path}, target {directory / 'target.json'}", flush=True)
        threading.Event().wait()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
