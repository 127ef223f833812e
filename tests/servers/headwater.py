"""Servers of Headwater for tests: one in this process, and one that is a process of its own and can be killed.

with serving(tmp_path) as server:            hw.connect(server.address)
with ServerProcess(tmp_path) as server:      server.kill(); server.start(); hw.connect(server.address)
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from headwater.api.opening import open_engine
from headwater.server.serving import Server
from headwater.server.settings import ServerSettings
from headwater.server.tokens import open_access
from headwater.settings import Settings
from headwater.storage.disk import DiskFiles
from headwater.storage.files import Files

START_S = 30.0


@contextmanager
def serving(
    where: str | Path | Files,
    *,
    settings: ServerSettings | None = None,
    log_settings: Settings | None = None,
    tokens_in: Files | None = None,
    **opening: Any,
) -> Iterator[Server]:
    """A server in this process over a directory, a bucket, or files of any kind, on free ports of loopback.

    `settings.listen` and `settings.http` say which host; their ports are 0, free ones.  Principals are read from
    `tokens_in`, the data directory unless said otherwise."""
    wanted = ServerSettings(listen=("127.0.0.1", 0), http=None, stop_s=5.0) if settings is None else settings
    opened = open_engine(where, settings=log_settings, **opening)
    try:
        if tokens_in is None:
            tokens_in = where if not isinstance(where, str | Path) else DiskFiles(Path(where))
        access = open_access(wanted, tokens_in)
        server = Server(opened.engine, opened.lake, opened.directory, wanted, access, store=opened.store)
        try:
            server.start()
            yield server
        finally:
            server.stop()
            access.close()
    finally:
        opened.engine.close()
        opened.lake.close()


def free_ports(count: int) -> list[int]:
    """Ports that are free now; nobody else is kept from taking them."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


class ServerProcess:
    """`python -m headwater serve`, which can be killed and started again on the same ports."""

    def __init__(
        self,
        data: str | Path,
        *options: str,
        host: str = "127.0.0.1",
        environment: Mapping[str, str] | None = None,
        ready_s: float = START_S,
        wait_ready: bool = True,
    ) -> None:
        self.data = str(data)
        self.options: Sequence[str] = options
        self.port, self.http_port = free_ports(2)
        self.host = host
        self._environment = {**os.environ, **(environment or {})}
        self._ready_s = ready_s
        self._wait_ready = wait_ready
        self._process: subprocess.Popen[bytes] | None = None
        self.log_path = Path(f"{self.data.rstrip('/').replace('://', '_')}.server-{self.port}.log")
        """Where its output goes: all of its lives, one after the other."""
        if "://" in self.data:
            self.log_path = Path(self._environment.get("TMPDIR", "/tmp")) / self.log_path.name.replace("/", "_")
        self._log: IO[bytes] | None = None

    @property
    def address(self) -> str:
        return f"hw://{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.http_port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> Self:
        """Start it; with `wait_ready`, until it answers."""
        assert self._process is None, "it runs already"
        self._log = self.log_path.open("ab")
        command = [
            sys.executable,
            *("-m", "headwater", "serve", self.data),
            *("--listen", f"{self.host}:{self.port}"),
            *("--http", f"{self.host}:{self.http_port}"),
            *self.options,
        ]
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log, env=self._environment)
        if self._wait_ready:
            self.wait_ready()
        return self

    def wait_ready(self, timeout_s: float | None = None) -> None:
        end_s = time.monotonic() + (self._ready_s if timeout_s is None else timeout_s)
        while not self.is_ready():
            assert self._process is not None
            code = self._process.poll()
            assert code is None, f"the server ended with {code}:\n{self.output()}"
            assert time.monotonic() < end_s, f"the server was not ready in time:\n{self.output()}"
            time.sleep(0.02)

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def kill(self) -> None:
        """As a power cut to the process: no handler of its own runs."""
        self.signal(signal.SIGKILL)
        self.wait()

    def stop(self, timeout_s: float = 30.0) -> int:
        """Ask it to stop, and wait for it; its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self, timeout_s: float = 30.0) -> int:
        assert self._process is not None
        code = self._process.wait(timeout_s)
        self._process = None
        if self._log is not None:
            self._log.close()
        return code

    def output(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            # Whoever did not come in goes out by nobody: a server that was started and never ready would stay.
            self.__exit__(None, None, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.kill()


def on_loopback(**changes: Any) -> ServerSettings:
    """Settings for a server of tests: free ports, and no HTTP unless it is asked for."""
    return replace(ServerSettings(listen=("127.0.0.1", 0), http=None, stop_s=5.0), **changes)
