"""Starting, listening to and stopping clients, from the side that judges.

PROMISE  Every line that a client has written is seen, with the time at which it came.
         No client outlives the block that started it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.appender_process import appender_environment
from tests.e2e_server.checks import Told
from tests.e2e_server.client_process import ClientSettings

CLIENT = Path(__file__).with_name("client_process.py")


class ClientProcess:
    """One running client, and the lines that it has written so far."""

    def __init__(self, process: subprocess.Popen[bytes], settings: ClientSettings, stderr: Path) -> None:
        self.client = settings.client
        self.lines: list[str] = []
        self.acknowledged = 0
        self.last_acknowledged_s = 0.0
        self._process = process
        self._stderr = stderr
        self._listener = threading.Thread(target=self._listen, name=f"client {self.client}", daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            text = line.decode().rstrip("\n")
            self.lines.append(text)
            if text.startswith("a "):
                self.acknowledged += 1
                self.last_acknowledged_s = time.monotonic()

    @property
    def errors(self) -> list[str]:
        return [line for line in self.lines if line.startswith("e ")]

    def stop(self, timeout_s: float) -> None:
        """Let it end by itself, with all that it has begun."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGUSR2)
            time.sleep(1.0)
            raise AssertionError(f"client {self.client} did not end in {timeout_s} s: {self.where()}") from None
        self._listener.join(30)
        assert code == 0 and self.lines[-1:] == ["z"], f"client {self.client} ended with {code}: {self.where()}"

    def kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(30)
        self._listener.join(30)

    def where(self) -> str:
        """For a person: what it said last, and what it wrote about itself."""
        told = self._stderr.read_text(errors="replace")[-8_000:]
        return "\n".join([f"client {self.client}", *self.lines[-5:], told])


@contextmanager
def client_process(address: str, settings: ClientSettings, home: Path) -> Iterator[ClientProcess]:
    """A new interpreter that uses the server at this address."""
    home.mkdir(parents=True, exist_ok=True)
    stderr = home / f"client-{settings.client}.stderr"
    with stderr.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, str(CLIENT), address, *settings.arguments()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=home,
            env=appender_environment(),
            start_new_session=True,  # A process group of its own, so that a signal meets it and nobody else.
        )
    client = ClientProcess(process, settings, stderr)
    try:
        yield client
    finally:
        client.kill()
        assert process.stdout is not None and process.stdin is not None
        process.stdout.close()
        process.stdin.close()


def told_by(clients: list[ClientProcess]) -> Told:
    told = Told()
    for client in clients:
        told.add_lines(client.client, list(client.lines))
    return told


def wait_for_progress(clients: list[ClientProcess], since_s: float, timeout_s: float) -> float:
    """Somebody was acknowledged something after this time; when."""
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        newest_s = max(client.last_acknowledged_s for client in clients)
        if newest_s > since_s:
            return newest_s
        time.sleep(0.005)
    raise AssertionError("\n\n".join([f"nobody went on in {timeout_s} s", *(client.where() for client in clients)]))
