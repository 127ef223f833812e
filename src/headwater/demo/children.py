"""Processes of the demo: started, spoken with in lines of JSON, killed with SIGKILL, and always ended.

    child = Child("lander 1", "headwater.demo.lander", directory)
    child.send(land=True); answer = child.answer("report", within_s=30)
    child.kill()                       kill -9; what it had said before is still heard

PROMISE  Whatever a child wrote before its death has been taken in when `kill` or `end` returns.
         A child whose standard input ends, because whoever started it is gone, ends itself (`until_input_ends`).
         Nothing here waits for ever.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

Message = dict[str, Any]

END_WITHIN_S = 15.0
WORDS_KEPT = 40


class ChildTrouble(Exception):
    """A process of the demo ended, or said nothing, where it should have answered."""


class Child:
    """One process, `python -m MODULE ARGUMENTS`."""

    def __init__(
        self, name: str, module: str, *arguments: str, on_message: Callable[[Message], None] | None = None
    ) -> None:
        self.name = name
        self._messages: queue.Queue[Message | None] = queue.Queue()
        self._words: deque[str] = deque(maxlen=WORDS_KEPT)
        self._on_message = on_message
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Ctrl-C is for whoever started it, who then ends its children one by one.
            start_new_session=True,
        )
        self._readers = [threading.Thread(target=each, daemon=True) for each in (self._read, self._read_words)]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def send(self, **message: Any) -> None:
        assert self.process.stdin is not None
        if self.process.stdin.closed:
            return  # it was ended here: whoever waits for its answer is told so
        with suppress(BrokenPipeError):  # it has ended by itself: likewise
            self.process.stdin.write(json.dumps(message) + "\n")
            self.process.stdin.flush()

    def answer(self, *names: str, within_s: float) -> Message:
        """Its next message that has one of these members.  ChildTrouble where it ended, or said none in time."""
        while True:
            try:
                message = self._messages.get(timeout=within_s)
            except queue.Empty:
                raise ChildTrouble(f"{self.name} said nothing for {within_s:.0f} s{self.last_words()}") from None
            if message is None:
                self._messages.put(None)
                raise ChildTrouble(f"{self.name} ended by itself{self.last_words()}")
            if any(name in message for name in names):
                return message

    def kill(self) -> None:
        """kill -9; then all that it had said is taken in."""
        self.process.kill()
        self._wait()

    def end(self) -> None:
        """Let it end by itself: its input is over.  One that does not is killed."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._wait()

    def last_words(self) -> str:
        return ": " + " | ".join(list(self._words)[-6:]) if self._words else ""

    def _wait(self) -> None:
        self.process.wait()
        for reader in self._readers:
            reader.join(END_WITHIN_S)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.endswith("\n"):
                break  # it was killed while it wrote: half a line says nothing
            if not line.startswith("{"):
                self._words.append(line.strip())  # a library's own words
                continue
            message = json.loads(line)
            if self._on_message is not None:
                self._on_message(message)
            self._messages.put(message)
        self._messages.put(None)

    def _read_words(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._words.append(line.strip())


# In the child ---------------------------------------------------------------------------------------------------


def tell(**message: Any) -> None:
    """One line to whoever started this process."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def until_input_ends(on_message: Callable[[Message], None], at_end: Callable[[], None] | None = None) -> None:
    """Take messages in a thread of their own; when there are no more, end this process."""

    def listen() -> None:
        for line in sys.stdin:
            on_message(json.loads(line))
        if at_end is not None:
            at_end()
        else:
            os._exit(0)

    threading.Thread(target=listen, daemon=True, name="input").start()
