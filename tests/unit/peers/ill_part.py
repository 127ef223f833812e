"""A part of the bench of peers that measures one of two figures, leaves a process behind, and then does as it is told.

ILL_PART says what: end, fail, hang, or die.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time

from bench.peers._part import Book, Figure, Part, Size


def measure(size: Size, book: Book) -> None:
    left = subprocess.Popen(["sleep", "600"])
    book.set(left=left.pid)
    book.add("first_s", 1.0, 3.0, 2.0)
    match os.environ["ILL_PART"]:
        case "end":
            book.add("second_ms", 5.0)
        case "fail":
            raise RuntimeError("no such luck")
        case "hang":
            time.sleep(600)
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)


PART = Part(
    name="ill",
    title="Ill",
    question="Does it end?",
    method="It is told how.",
    figures=(Figure("first_s", "What was measured."), Figure("second_ms", "What may not be.")),
    measure=measure,
)
