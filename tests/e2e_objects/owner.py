"""A process that owns a log on an object store, or stands by until it can, and says on stdout what was acknowledged.

USE      python tests/e2e_objects/owner.py URL name=value ...      (`OwnerSettings` has the names)
LIFE     It opens the log and tries a write until nobody else owns it; then it works from several threads, as
         tests/e2e/topic_writer.py does, until it is fenced or the log promises nothing any more; then all anew.
         SIGUSR1 makes it take the log over at once, whoever owns it.
SAYS     One os.write a line: `r` when it can be signalled; `w error` when it has to wait; `o epoch taken_over` when it
         has become the owner, and then the lines of topic_writer.py, all of this epoch; `e KIND error message` when a
         thread met an error; `c` when it has let go of the log.
CAREFUL  What nobody knows the outcome of is sent again where a sequence or a key makes that safe, and otherwise never.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, get_type_hints

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from tests.e2e.appender import say
from tests.e2e.topic_writer import COPIED, KIB, REQUEST, WriterSettings, Writing, log_settings, request

if TYPE_CHECKING:
    from collections.abc import Callable

    import headwater as hw

KEYS_SENT_AGAIN = 3
TRY_AGAIN_S = 0.1
ANOTHER_THREAD = 100
"""A thread that met an unknown outcome goes on as another one, so that what it sent stays a prefix."""


@dataclass(frozen=True)
class OwnerSettings:
    appenders: int = 2
    transactions: int = 1
    upkeep: int = 1
    reopen: int = 0
    """Whether whoever stands by opens the log anew for each try, rather than once."""
    pause_s: float = 0.0
    """After each acknowledgement."""
    segment_size_bytes_max: int = 256 * KIB

    def arguments(self) -> list[str]:
        return [f"{name}={value}" for name, value in vars(self).items()]

    @classmethod
    def from_arguments(cls, arguments: list[str]) -> OwnerSettings:
        types = get_type_hints(cls)
        given = dict(argument.split("=", 1) for argument in arguments)
        unknown = set(given) - {one.name for one in fields(cls)}
        if unknown:
            raise SystemExit(f"no such settings: {', '.join(sorted(unknown))}")
        return cls(**{name: types[name](value) for name, value in given.items()})


def tell_error(kind: str, error: BaseException) -> None:
    message = str(error).replace("\n", " ")
    say(f"e {kind} {type(error).__name__} {message}\n".encode())


class Owning(Writing):
    """The work while this process owns the log."""

    def __init__(self, log: hw.Log, settings: OwnerSettings, epoch: int) -> None:
        self._next_key = self._first_key(log)
        super().__init__(log, WriterSettings(life=epoch, pause_s=settings.pause_s))
        self.over = threading.Event()

    @staticmethod
    def _first_key(log: hw.Log) -> int:
        """As a client that has lost its memory would find it: from what is there, and a little before."""
        numbers = log["keyed"].read().to_arrow().column("number").to_pylist()
        return max(max(numbers, default=-1) + 1 - KEYS_SENT_AGAIN, 0)

    def append_keyed(self, thread: int) -> None:
        keyed = self._log["keyed"]
        while True:
            number = self._next_key
            appended = keyed.append(request(0, 0, number), idempotency_key=f"request-{number}")
            first, after = appended.offsets[0]
            self._acknowledged("keyed", number, int(appended.duplicate), first, after)
            self._next_key += 1

    def run(self, work: Callable[[int], None], thread: int) -> None:
        """A thread's work, until the log is another's or promises nothing any more."""
        from headwater.errors import HeadwaterError, OutcomeUnknown, Unavailable

        while not self.over.is_set():
            try:
                work(thread)
            except (Unavailable, OutcomeUnknown) as error:
                tell_error(work.__name__, error)
                if work.__name__ == "keep_up":
                    # What it made and deleted cannot be told from what it would make and delete again.
                    return
                thread += ANOTHER_THREAD
                self.over.wait(TRY_AGAIN_S)
            except HeadwaterError as error:
                tell_error(work.__name__, error)
                self.over.set()


class Standby:
    """A process that owns the log, or would like to."""

    def __init__(self, url: str, settings: OwnerSettings) -> None:
        self._url = url
        self._settings = settings
        self._take_over = False
        signal.signal(signal.SIGUSR1, self._asked_to_take_over)
        faulthandler.register(signal.SIGUSR2, all_threads=True)  # for a person: where it hangs, on stderr
        say(b"r\n")

    def _asked_to_take_over(self, number: int, frame: object) -> None:
        self._take_over = True

    def live(self) -> None:
        while True:
            self._work(self._owned_log())

    def _open(self) -> hw.Log:
        import headwater as hw

        take_over, self._take_over = self._take_over, False
        return hw.open(self._url, settings=log_settings(self._settings.segment_size_bytes_max), take_over=take_over)

    def _owned_log(self) -> hw.Log:
        """An open log that has taken a write."""
        from headwater.errors import Fenced, LogLocked, OutcomeUnknown, Poisoned, Unavailable

        log: hw.Log | None = None
        while True:
            taken_over = self._take_over
            try:
                if log is None:
                    log = self._open()
                self._first_write(log)
            except (LogLocked, Unavailable) as error:
                say(f"w {type(error).__name__}\n".encode())
                if log is not None and (self._settings.reopen or self._take_over):
                    self._close(log)
                    log = None
                time.sleep(TRY_AGAIN_S)
            except (Fenced, OutcomeUnknown, Poisoned) as error:
                tell_error("claim", error)
                if log is not None:
                    self._close(log)
                    log = None
                time.sleep(TRY_AGAIN_S)
            else:
                say(f"o {log.status().epoch} {int(taken_over)}\n".encode())
                return log

    @staticmethod
    def _first_write(log: hw.Log) -> None:
        import headwater as hw

        log.create_topics(
            [
                hw.NewTopic("events", REQUEST, partitions=3),
                hw.NewTopic("left", REQUEST, partitions=2),
                hw.NewTopic("right", REQUEST),
                hw.NewTopic("sent", REQUEST),
                hw.NewTopic("keyed", REQUEST),
                hw.NewTopic("copied", COPIED),
                hw.NewTopic("short", REQUEST, retention_bytes=16 * KIB),
            ]
        )
        log["short"].append(request(0, 0, 0))

    def _work(self, log: hw.Log) -> None:
        settings = self._settings
        owning = Owning(log, settings, log.status().epoch)
        works: list[Callable[[int], None]] = [owning.append] * settings.appenders
        if settings.appenders > 1:
            works[-1] = owning.append_futures
        works += [owning.commit] * settings.transactions + [owning.send, owning.append_keyed, owning.copy]
        works += [owning.keep_up] * settings.upkeep
        threads = [
            threading.Thread(target=owning.run, args=(work, number), daemon=True) for number, work in enumerate(works)
        ]
        for thread in threads:
            thread.start()
        owning.over.wait()
        # Whoever waits for rows that will not come is woken by that.
        self._close(log)
        for thread in threads:
            thread.join()

    @staticmethod
    def _close(log: hw.Log) -> None:
        from headwater.errors import HeadwaterError

        try:
            log.close()
        except HeadwaterError as error:
            tell_error("close", error)
        say(b"c\n")


def main() -> None:
    Standby(sys.argv[1], OwnerSettings.from_arguments(sys.argv[2:])).live()


if __name__ == "__main__":
    main()
