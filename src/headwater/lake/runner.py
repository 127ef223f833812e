"""Where tasks run: in this process, in local ones, or (headwater.spark.run) in Spark.

PROMISE  `run` gives back one Done for each work, in any order; a work that could not be done comes back with an error
         for each of its topics, and the others go on.
         No two attempts of one runner have the same number, so that no two write a file of the same name.
LOCAL    Little work is done in the calling process: starting others takes a second.  Processes that were started stay
         until `close`, or until this process ends; they need no guard in the user's program, because they import
         nothing of it.
"""

from __future__ import annotations

import itertools
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, Pipe
from typing import Protocol

from headwater.errors import InvalidRequest
from headwater.lake.work import Done, LandWork, Work, failed, pack, unpack_done

IN_PROCESS_BYTES_MAX = 8 * 1024 * 1024
"""Below this, works are done in the calling process."""
_END_WITHIN_S = 5.0


class Runner(Protocol):
    def run(self, works: Sequence[Work]) -> Iterator[Done]: ...


class InProcess:
    """One work after the other, here."""

    def __init__(self) -> None:
        self._attempts = itertools.count(1)

    def run(self, works: Sequence[Work]) -> Iterator[Done]:
        for work in works:
            yield _done_here(work, next(self._attempts))


def _done_here(work: Work, attempt: int) -> Done:
    try:
        from headwater.lake.task import land, read_back
    except ImportError as error:
        raise InvalidRequest(f"landing needs {error.name}: pip install 'headwater[lake]'") from error
    return land(work, attempt) if isinstance(work, LandWork) else read_back(work)


class LocalProcesses:
    """Processes of this machine, as many as it has cores unless told otherwise."""

    def __init__(self, processes: int | None = None, *, in_process_bytes_max: int = IN_PROCESS_BYTES_MAX) -> None:
        self._processes = processes or os.cpu_count() or 1
        self._in_process_bytes_max = in_process_bytes_max
        self._attempts = itertools.count(1)
        self._idle: list[_Worker] = []

    def run(self, works: Sequence[Work]) -> Iterator[Done]:
        if self._processes == 1 or len(works) < 2 or sum(map(_size_bytes, works)) < self._in_process_bytes_max:
            for work in works:
                yield _done_here(work, next(self._attempts))
            return
        yield from self._run_apart(works)

    def _run_apart(self, works: Sequence[Work]) -> Iterator[Done]:
        # The largest first, so that no process is left alone with a large one at the end.
        waiting = sorted(works, key=_size_bytes)
        done: queue.SimpleQueue[Done | BaseException] = queue.SimpleQueue()
        started: list[_Worker] = []
        given_up = threading.Event()

        def work_off() -> None:
            try:
                worker: _Worker | None = None
                while not given_up.is_set():
                    try:
                        work = waiting.pop()
                    except IndexError:
                        return
                    if worker is None or not worker.still_runs():
                        worker = self._worker()
                        started.append(worker)
                    done.put(worker.perform(work, next(self._attempts)))
            except BaseException as error:  # noqa: BLE001  raised again by whoever waits for the results
                done.put(error)

        threads = [
            threading.Thread(target=work_off, name=f"headwater-land-{number}", daemon=True)
            for number in range(min(self._processes, len(works)))
        ]
        for thread in threads:
            thread.start()
        try:
            for _ in range(len(works)):
                result = done.get()
                if isinstance(result, BaseException):
                    raise result
                yield result
        except BaseException:
            # The caller has left, or a process could not be started: what is under way is worth nothing any more.
            given_up.set()
            for worker in tuple(started):
                worker.kill()
            raise
        finally:
            for thread in threads:
                thread.join()
            self._idle += [worker for worker in started if worker.still_runs()]

    def _worker(self) -> _Worker:
        """One that waits for work, or a new one."""
        while True:
            try:
                worker = self._idle.pop()
            except IndexError:
                return _Worker()
            if worker.still_runs():
                return worker

    def close(self) -> None:
        """End the processes.  Twice is nothing."""
        while self._idle:
            self._idle.pop().close()

    def __enter__(self) -> LocalProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _size_bytes(work: Work) -> int:
    if isinstance(work, LandWork):
        return sum(end - start for start, end in work.runs)
    return work.size_bytes


class _Worker:
    """A process that does one work at a time (worker.py)."""

    def __init__(self) -> None:
        ours, theirs = Pipe()
        # Its own `-c`, and not multiprocessing's: that would import the user's program again.
        program = (
            f"import sys; sys.path[:] = {sys.path!r}\nfrom headwater.lake.worker import serve; serve({theirs.fileno()})"
        )
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", program], stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
            )
        finally:
            theirs.close()
        self._connection: Connection = ours

    def perform(self, work: Work, attempt: int) -> Done:
        try:
            self._connection.send((pack(work), attempt))
            done = self._connection.recv()
        except (EOFError, OSError):
            self.kill()
            return failed(work, f"the process that did it ended with {self._process.returncode}")
        if isinstance(done, str):
            return failed(work, done)
        return unpack_done(done)

    def still_runs(self) -> bool:
        if self._process.poll() is None:
            return True
        self._connection.close()
        return False

    def kill(self) -> None:
        """At once.  Whoever waits for its answer is told that it has ended."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """It ends when it is told nothing more."""
        self._connection.close()
        try:
            self._process.wait(_END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.kill()
