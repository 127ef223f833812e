"""A process that appends from several threads and says on stdout what was acknowledged.

USE      python tests/e2e/appender.py ROOT name=value ...    (`AppenderSettings` has the names)
         python tests/e2e/appender.py --nursery DESCRIPTOR   forks such a process for each order on a socket, so that
         a thousand kills do not wait for a thousand interpreters to start
SAYS     One os.write a line, so that no line is lost in a buffer when the process is killed:
         `r` when it is about to open the log; `a thread counter first_lsn last_lsn checksum` after each append that
         returned; `e thread counter error message` after each that raised; `d` when all threads have ended.
BREAKS   `disabled=fdatasync` (or fsync, or both with a comma) makes that call do nothing in this process: so the suites
         can show that they would notice a log that does not sync.

The start of this process is part of every kill: keep the imports few.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, get_type_hints

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from tests.e2e.workload import FUTURES_IN_FLIGHT, Acknowledgement, Failure, WriteName, checksum_of, make_write

if TYPE_CHECKING:
    from headwater.log import Draft, FrameLog, Receipt


@dataclass(frozen=True)
class AppenderSettings:
    seed: int = 0
    round: int = 0
    threads: int = 3
    """The last of several threads appends by futures, a few in flight; the others block."""
    writes_max: int = 0
    """Of each thread; 0 means until somebody ends the process."""
    failures_max: int = 1
    """A thread ends after this many failures."""
    pause_s: float = 0.0
    """Between two writes of a thread, so that whoever reads along can keep up."""
    segment_size_bytes_max: int = 256 * 1024
    reserve_bytes: int = 0
    close: int = 1
    """Whether the log is closed at the end; otherwise the process just ends."""
    disabled: str = ""

    def arguments(self) -> list[str]:
        return [f"{name}={value}" for name, value in vars(self).items()]

    @classmethod
    def from_arguments(cls, arguments: list[str]) -> AppenderSettings:
        types = get_type_hints(cls)
        given = dict(argument.split("=", 1) for argument in arguments)
        unknown = set(given) - {one.name for one in fields(cls)}
        if unknown:
            raise SystemExit(f"no such settings: {', '.join(sorted(unknown))}")
        return cls(**{name: types[name](value) for name, value in given.items()})


def say(line: bytes) -> None:
    os.write(1, line)


def drafts_of(name: WriteName) -> tuple[list[Draft], int]:
    from headwater.frames.frame import Kind
    from headwater.log import Draft

    frames = make_write(name)
    drafts = [
        Draft(
            kind=Kind.DATA,
            topic_number=frame.topic_number,
            partition=frame.partition,
            row_count=frame.row_count,
            body=frame.body,
        )
        for frame in frames
    ]
    return drafts, checksum_of(frames)


class Appending:
    """One thread's work."""

    def __init__(self, log: FrameLog, settings: AppenderSettings, thread: int) -> None:
        self._log = log
        self._settings = settings
        self._thread = thread
        self._failures = 0

    def run_blocking(self) -> None:
        from headwater.errors import HeadwaterError

        counter = 0
        while self._goes_on(counter):
            drafts, checksum = self._next(counter)
            try:
                receipt = self._log.append(drafts)
            except HeadwaterError as error:
                self._say_failed(counter, error)
            else:
                self._say_acknowledged(counter, receipt, checksum)
            counter += 1

    def run_with_futures(self) -> None:
        from headwater.errors import HeadwaterError

        waiting: deque[tuple[int, Future[Receipt], int]] = deque()
        counter = 0
        while waiting or self._goes_on(counter):
            if self._goes_on(counter) and len(waiting) < FUTURES_IN_FLIGHT:
                drafts, checksum = self._next(counter)
                waiting.append((counter, self._log.append_future(drafts), checksum))
                counter += 1
                continue
            oldest, future, checksum = waiting.popleft()
            try:
                receipt = future.result()
            except HeadwaterError as error:
                self._say_failed(oldest, error)
            else:
                self._say_acknowledged(oldest, receipt, checksum)

    def _goes_on(self, counter: int) -> bool:
        settings = self._settings
        return self._failures < settings.failures_max and not 0 < settings.writes_max <= counter

    def _next(self, counter: int) -> tuple[list[Draft], int]:
        if self._settings.pause_s:
            time.sleep(self._settings.pause_s)
        return drafts_of(WriteName(self._settings.seed, self._settings.round, self._thread, counter))

    def _say_acknowledged(self, counter: int, receipt: Receipt, checksum: int) -> None:
        say(Acknowledgement(self._thread, counter, receipt.first_lsn, receipt.last_lsn, checksum).line())

    def _say_failed(self, counter: int, error: Exception) -> None:
        self._failures += 1
        say(Failure(self._thread, counter, type(error).__name__, str(error)).line())


def disable(call: str) -> None:
    """Make a sync do nothing; done before the disk's code is imported, so that nobody holds the real one."""

    def nothing(descriptor: int) -> None:
        os.fstat(descriptor)

    setattr(os, call, nothing)


def run(root: str, settings: AppenderSettings) -> None:
    from headwater.log import open_log
    from headwater.settings import LogSettings
    from headwater.storage.disk import DiskFiles

    say(b"r\n")
    log = open_log(
        DiskFiles(root),
        "log",
        settings=LogSettings(
            segment_size_bytes_max=settings.segment_size_bytes_max,
            write_body_bytes_max=settings.segment_size_bytes_max,
            reserve_bytes=settings.reserve_bytes,
        ),
    )
    threads = []
    for thread in range(settings.threads):
        appending = Appending(log, settings, thread)
        by_futures = settings.threads > 1 and thread == settings.threads - 1
        target = appending.run_with_futures if by_futures else appending.run_blocking
        threads.append(threading.Thread(target=target, daemon=True))
    for started in threads:
        started.start()
    for started in threads:
        started.join()
    if settings.close:
        log.close()
    say(b"d\n")


def serve_nursery(descriptor: int, run_child: Callable[[list[str]], None]) -> None:
    """Fork a child for each `start` and wait for the end of one at each `wait`, until nobody asks any more."""
    import socket

    import headwater.log
    import headwater.storage.disk  # noqa: F401  Both are here for the children: what is imported once is theirs.

    with socket.socket(fileno=descriptor) as connection:
        while True:
            message, descriptors, _, _ = socket.recv_fds(connection, 65_536, 1)
            if not message:
                return
            verb, *arguments = message.decode().split("\0")
            if verb == "wait":
                _, status = os.waitpid(int(arguments[0]), 0)
                connection.send(str(os.waitstatus_to_exitcode(status)).encode())
                continue
            pid = os.fork()
            if pid == 0:
                connection.close()
                os.dup2(descriptors[0], 1)
                os.close(descriptors[0])
                run_child(arguments)
            os.close(descriptors[0])
            connection.send(str(pid).encode())


def run_forked(arguments: list[str]) -> None:
    """The child's whole life: it never returns into its parent's loop."""
    exit_code = 1
    try:
        run(arguments[0], AppenderSettings.from_arguments(arguments[1:]))
        exit_code = 0
    finally:
        os._exit(exit_code)


def main() -> None:
    if sys.argv[1] == "--nursery":
        serve_nursery(int(sys.argv[2]), run_forked)
        return
    settings = AppenderSettings.from_arguments(sys.argv[2:])
    for call in filter(None, settings.disabled.split(",")):
        disable(call)
    run(sys.argv[1], settings)


if __name__ == "__main__":
    main()
