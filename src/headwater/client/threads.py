"""Threads of a client: they wait in gRPC, and must be out of it before the interpreter ends.

WHY      A thread that comes back from gRPC while Python is going away is ended in the middle of C++, and takes the
         process with it (SIGABRT).  So whoever closes waits for its threads, and at the interpreter's end all that are
         left are called back, and waited for, a moment.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable

JOIN_S = 2.0

_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
_closers: weakref.WeakSet[Closes] = weakref.WeakSet()
_lock = threading.Lock()


class Closes:
    """Who holds streams, and can end them from any thread."""

    def end_streams(self) -> None:
        """Have every thread of it come back; nothing is waited for."""
        raise NotImplementedError


def started(target: Callable[[], object], name: str) -> threading.Thread:
    """A thread that does not keep the process from ending."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    with _lock:
        _threads.add(thread)
    thread.start()
    return thread


def ends_at_exit(closer: Closes) -> None:
    with _lock:
        _closers.add(closer)


def join(thread: threading.Thread | None) -> None:
    """Wait for a thread, a moment; one that hangs on a dead network is left."""
    if thread is not None and thread is not threading.current_thread():
        thread.join(JOIN_S)


@atexit.register
def _end_all() -> None:
    with _lock:
        closers = list(_closers)
    for closer in closers:
        closer.end_streams()
    with _lock:
        threads = list(_threads)
    for thread in threads:
        join(thread)
