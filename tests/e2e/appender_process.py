"""Starting, listening to and killing an appender, from the side that survives.

PROMISE  Every line that the appender has written is seen, also those that lay in the pipe when it was killed.
         No appender outlives the block that started it.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tests.e2e.appender import AppenderSettings

APPENDER = Path(__file__).with_name("appender.py")
REPOSITORY = APPENDER.parents[2]


class ChildSettings(Protocol):
    """What a child is told when it starts."""

    def arguments(self) -> list[str]: ...


class AppenderProcess:
    """One running appender, and the lines that it has written so far."""

    def __init__(self, stdout: int, kill: Callable[[], None], wait: Callable[[], int]) -> None:
        self.lines: list[bytes] = []
        self.acknowledged_count = 0
        self._stdout = stdout
        self._kill = kill
        self._wait = wait
        self._rest = b""
        self._ended = False
        self._exit_code: int | None = None

    def listen(self, *, until: Callable[[], bool], timeout_s: float) -> bool:
        """Take in lines until this is true, the appender has closed its stdout, or the time is over."""
        deadline_s = time.monotonic() + timeout_s
        while not until():
            remaining_s = deadline_s - time.monotonic()
            if remaining_s <= 0 or self._ended:
                return False
            ready, _, _ = select.select([self._stdout], [], [], remaining_s)
            if ready:
                received = os.read(self._stdout, 65_536)
                self._ended = not received
                *lines, self._rest = (self._rest + received).split(b"\n")
                self.lines.extend(lines)
                self.acknowledged_count += sum(line.startswith(b"a ") for line in lines)
        return True

    def wait_for_acknowledgements(self, count: int, timeout_s: float = 30.0) -> None:
        if not self.listen(until=lambda: self.acknowledged_count >= count, timeout_s=timeout_s):
            raise AssertionError(
                f"the appender acknowledged {self.acknowledged_count} writes, not {count}, in {timeout_s} s; "
                f"its last lines: {self.lines[-5:]}"
            )

    def listen_for(self, seconds: float) -> None:
        self.listen(until=lambda: False, timeout_s=seconds)

    def kill(self) -> None:
        """SIGKILL, to it and to whatever it runs under, and all lines to the last.  Nothing if it has ended."""
        if self._exit_code is None:
            self._kill()
            self._exit_code = self._wait()
            self.listen_for(30.0)

    def wait(self, timeout_s: float = 60.0) -> int:
        """All lines until it ends by itself, and its exit code."""
        self.listen_for(timeout_s)
        if not self._ended:
            raise AssertionError(f"the appender still runs after {timeout_s} s; its last lines: {self.lines[-5:]}")
        self._exit_code = self._wait()
        return self._exit_code


def appender_environment() -> dict[str, str]:
    """As ours, without what would make each start slower or write where we look."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    environment["PYTHONPATH"] = os.pathsep.join([str(REPOSITORY / "src"), environment.get("PYTHONPATH", "")])
    return environment


@contextmanager
def running_appender(root: Path, settings: AppenderSettings, *, under: Sequence[str] = ()) -> Iterator[AppenderProcess]:
    """A new interpreter that appends to this directory, perhaps under another program; killed at the end, if it
    still runs."""
    process = subprocess.Popen(
        [*under, sys.executable, str(APPENDER), str(root), *settings.arguments()],
        stdout=subprocess.PIPE,
        env=appender_environment(),
        start_new_session=True,  # A process group of its own, so that a kill meets it and nobody else.
    )
    assert process.stdout is not None
    with process.stdout as stdout:
        appender = AppenderProcess(
            stdout.fileno(),
            kill=lambda: os.killpg(process.pid, signal.SIGKILL),
            wait=lambda: process.wait(timeout=30),
        )
        try:
            yield appender
        finally:
            appender.kill()


class Nursery:
    """A process that has everything imported and forks appenders, or what another script runs, from there."""

    def __init__(self, script: Path = APPENDER) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(60)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(script), "--nursery", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=appender_environment(),
            )

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(timeout=10)

    @contextmanager
    def running_appender(self, root: Path, settings: ChildSettings) -> Iterator[AppenderProcess]:
        """As above, from the nursery."""
        reading, writing = os.pipe()
        try:
            message = "\0".join(["start", str(root), *settings.arguments()])
            socket.send_fds(self._socket, [message.encode()], [writing])
            pid = int(self._socket.recv(64))
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        appender = AppenderProcess(reading, lambda: os.kill(pid, signal.SIGKILL), lambda: self._exit_code(pid))
        try:
            yield appender
        finally:
            appender.kill()
            os.close(reading)

    def _exit_code(self, pid: int) -> int:
        self._socket.send(f"wait\0{pid}".encode())
        return int(self._socket.recv(64))
