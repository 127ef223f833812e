"""A local process that does works, one after the other, until whoever started it has gone.

It is told (work, attempt) and answers with the packed Done, or with a sentence where the work could not even be begun.
Started by runner.py.
"""

from __future__ import annotations

import signal
from multiprocessing.connection import Connection


def serve(descriptor: int) -> None:
    # An interrupt at the terminal reaches the whole group; the one who started this says when it is over.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = Connection(descriptor)
    try:
        from headwater.lake.task import perform

        while True:
            work, attempt = connection.recv()
            try:
                answer: bytes | str = perform(work, attempt)
            except Exception as error:  # noqa: BLE001  the work fails, with its reason, and the process goes on
                answer = f"{type(error).__name__}: {error}"
            connection.send(answer)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    finally:
        connection.close()
