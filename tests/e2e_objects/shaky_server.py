"""A real S3 server that stops, dies and comes back at the same address, over the same folder."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.versitygw import (
    ACCESS_KEY,
    BUCKET,
    SECRET_KEY,
    START_S_MAX,
    S3Server,
    answers,
    free_port,
    versitygw_program,
)


class ShakyServer:
    """versitygw, at the mercy of a test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._address = f"127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None
        (folder / BUCKET).mkdir(parents=True, exist_ok=True)
        self.server = S3Server(f"http://{self._address}", folder=folder)

    def start(self) -> None:
        """Return when it takes connections."""
        self._process = subprocess.Popen(
            [str(versitygw_program()), "--quiet", "--port", self._address, "posix", str(self._folder)],
            env={**os.environ, "ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        begun_s = time.monotonic()
        while not answers(f"http://{self._address}"):
            assert self._process.poll() is None and time.monotonic() - begun_s < START_S_MAX, "it did not start"
            time.sleep(0.02)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=30)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """It takes connections, and answers nothing until it goes on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)


@contextmanager
def shaky_server(folder: Path) -> Iterator[ShakyServer]:
    shaky = ShakyServer(folder)
    shaky.start()
    try:
        with shaky.server.in_environment():
            yield shaky
    finally:
        shaky.kill()
