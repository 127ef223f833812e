"""A server that can be started again and again in milliseconds: forked by a process that has everything imported.

USE      python tests/e2e_server/forked_server.py --nursery DESCRIPTOR     (tests/e2e/appender_process.py)
SAYS     Its process id, and `r` when it serves.

It is what `headwater serve` runs, over a log with settings of the caller's: segments of 64 KiB make a server begin,
seal and delete them while it is killed.  No door for HTTP, and no signal but SIGKILL.
"""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from tests.e2e.appender import say, serve_nursery
from tests.e2e.appender_process import AppenderProcess, Nursery
from tests.e2e.topic_writer import KIB, log_settings

START_S_MAX = 60.0


@dataclass(frozen=True)
class ServingSettings:
    port: int
    segment_kib: int

    def arguments(self) -> list[str]:
        return [str(self.port), str(self.segment_kib)]


def run(root: str, port: int, segment_kib: int) -> None:
    from headwater.api.opening import open_engine
    from headwater.server.access import OpenAccess
    from headwater.server.serving import Server
    from headwater.server.settings import ServerSettings

    faulthandler.enable()
    faulthandler.register(signal.SIGUSR2, all_threads=True)  # for a person: where it hangs, on stderr
    say(f"{os.getpid()}\n".encode())
    opened = open_engine(root, settings=log_settings(segment_kib * KIB))
    settings = ServerSettings(listen=("127.0.0.1", port), http=None)
    server = Server(opened.engine, opened.lake, opened.directory, settings, OpenAccess())
    server.start()
    say(b"r\n")
    threading.Event().wait()


def run_forked(arguments: list[str]) -> None:
    """The child's whole life: it never returns into its parent's loop."""
    try:
        run(arguments[0], int(arguments[1]), int(arguments[2]))
    except BaseException:  # noqa: BLE001  It is told, and this process ends.
        traceback.print_exc()
    finally:
        os._exit(1)


def quiet_port() -> int:
    """A free port that the kernel gives to nobody who connects: such a one could be taken while its server is dead."""
    while True:
        port = random.SystemRandom().randrange(10_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


class ForkedServer:
    """A server on one port and one directory, living again and again."""

    def __init__(self, nursery: Nursery, where: Path, segment_kib: int) -> None:
        self.where = where
        self.port = quiet_port()
        self._nursery = nursery
        self._segment_kib = segment_kib
        self._lives = ExitStack()
        self._process: AppenderProcess | None = None

    @property
    def address(self) -> str:
        return f"hw://127.0.0.1:{self.port}"

    def start(self, *, wait: bool = True) -> None:
        assert self._process is None, "it runs"
        settings = ServingSettings(self.port, self._segment_kib)
        process = self._lives.enter_context(self._nursery.running_appender(self.where, settings))
        self._process = process
        if wait and not process.listen(until=lambda: process.lines[-1:] == [b"r"], timeout_s=START_S_MAX):
            raise AssertionError("the server did not start: its stderr is this test's")

    def show_where(self) -> None:
        """For a person: where it is, on stderr."""
        if self._process is not None:
            self._process.listen_for(0.1)
            os.write(2, b"the server has said %r\n" % self._process.lines)
            if self._process.lines:
                os.kill(int(self._process.lines[0]), signal.SIGUSR2)
                self._process.listen_for(1.0)

    def kill(self) -> None:
        """SIGKILL.  Nothing if it does not run."""
        self._process = None
        self._lives.close()


@contextmanager
def server_nursery() -> Iterator[Nursery]:
    with Nursery(Path(__file__)) as nursery:
        yield nursery


@contextmanager
def forked_server(nursery: Nursery, where: Path, segment_kib: int) -> Iterator[ForkedServer]:
    server = ForkedServer(nursery, where, segment_kib)
    try:
        yield server
    finally:
        server.kill()


def main() -> None:
    # Here for the children: what is imported once is theirs, and pyarrow looks for pandas at its first array.
    import pyarrow as pa

    import headwater.api.opening
    import headwater.server.serving  # noqa: F401

    pa.array([1])
    sys.setswitchinterval(0.0005)  # as `headwater serve` does
    serve_nursery(int(sys.argv[2]), run_forked)


if __name__ == "__main__":
    main()
