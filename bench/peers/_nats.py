"""A NATS server of a bench's own on loopback, with JetStream, its data below the bench's directory.

    with nats_server(directory, sync=True) as server:
        nats.connect(server.address)

`sync` is `sync_interval: always`: a message is on the disk before it is acknowledged, as Headwater's rows are.  Without
it the server syncs every two minutes, which is its default.  All other settings are its defaults.  The program is built
by Go, once, into `HEADWATER_CACHE` (or ~/.cache/headwater).
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from bench._kafka import free_port

VERSION = "2.15.2"
CLIENT = "nats-py==2.16.*"
START_S_MAX = 90.0
STOP_S_MAX = 30.0


@dataclass(frozen=True)
class Nats:
    """A server that runs while its block does."""

    address: str
    pid: int


def check_installed() -> None:
    """End, and say what to install, where the client is missing."""
    if find_spec("nats") is None:
        raise SystemExit(f"this bench compares with NATS, and needs its client: pip install '{CLIENT}'")


def program() -> Path:
    # A name that no caller needs before it is asked for: it brings pytest with it.
    from tests.servers.versitygw import go_program

    return go_program("nats-server", f"github.com/nats-io/nats-server/v2@v{VERSION}")


@contextmanager
def nats_server(directory: Path, *, sync: bool) -> Iterator[Nats]:
    """A new server whose streams are below the directory; it ends with the block."""
    built = program()
    directory.mkdir(parents=True)
    port = free_port()
    settings = directory / "nats.conf"
    interval = "sync_interval: always" if sync else ""
    settings.write_text(
        f'listen: "127.0.0.1:{port}"\njetstream {{\n store_dir: "{directory / "data"}"\n {interval}\n}}\n',
        encoding="utf-8",
    )
    told = directory / "server.log"
    with told.open("wb") as output:
        process = subprocess.Popen(
            [str(built), "-c", str(settings)], stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        begun = time.monotonic()
        while not _answers(port):
            if process.poll() is not None or time.monotonic() - begun > START_S_MAX:
                raise AssertionError(f"NATS did not start: {told.read_text(errors='replace')[-4000:]}")
            time.sleep(0.01)
        yield Nats(f"nats://127.0.0.1:{port}", process.pid)
    finally:
        process.terminate()
        try:
            process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_S_MAX)


def _answers(port: int) -> bool:
    """A server says INFO to whoever connects, once it serves."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as probe:
            return probe.recv(4) == b"INFO"
    except OSError:
        return False
