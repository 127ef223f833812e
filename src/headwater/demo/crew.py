"""The processes of a run, and what is asked of them: the log's owner, four writers, three landers.

PROMISE  Every process that was started has ended when the crew is closed, however the run was left.
         Whatever a writer was acknowledged is in `known` when its process has ended, or was killed.
         Nothing waits for ever: ChildTrouble or ChaosFailed, with the last words of whoever is silent.
NOT HERE What each process does: owner.py, writer.py, lander.py.  When which of them dies: steps.py.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from headwater.clock import Clock
from headwater.demo.acknowledged import Account, Acknowledged
from headwater.demo.children import Child, Message
from headwater.demo.owner import LOOPBACK
from headwater.demo.told import Counts, Event, Listener, Tone
from headwater.demo.writer import HOWS

ANSWER_S = 180.0
"""A process that says nothing for so long hangs."""
ROUNDS_MAX = 12
LANDERS = 3

Report = list[dict[str, Any]]
"""What a lander says of its topics: lander.py."""


class ChaosFailed(Exception):
    """Something is not as it was promised: the run ends, and says what."""


@dataclass
class LanderPlace:
    """One of the three places in which a lander lives; after each death the next one."""

    number: int
    child: Child
    lives: int = 1
    doing: str = "starts"
    is_ready: bool = False


class Crew:
    def __init__(self, directory: str, clock: Clock, listener: Listener | None = None) -> None:
        self.directory = directory
        self.clock = clock
        self.listener = listener
        self.counts = Counts()
        self.known = Acknowledged()
        self.landers: list[LanderPlace] = []
        self._begun_s = clock.monotonic_s()
        self._writers: dict[int, Child] = {}
        self._owner: Child | None = None
        self._port = _free_port()
        self._nobody = threading.Event()
        self._started: list[Child] = []

    def begin(self) -> None:
        """Start all of them; a row of every writer is acknowledged when it returns."""
        self.start_owner()
        for number in range(1, LANDERS + 1):
            self.landers.append(LanderPlace(number, self._start_lander(number)))
        for writer, how in enumerate(HOWS, start=1):
            self.known.accounts.append(Account(writer, how))
            self.start_writer(self.known.accounts[-1])
        self.tell(f"the log's owner, {len(HOWS)} writers and {LANDERS} landers: a process each")
        self.every_writer_goes_on()

    def close(self) -> None:
        """Kill whoever still runs."""
        with ExitStack() as closing:
            for child in self._started:
                if child.is_running:
                    closing.callback(child.kill)

    def _child(
        self, name: str, part: str, *arguments: str, on_message: Callable[[Message], None] | None = None
    ) -> Child:
        child = Child(name, f"headwater.demo.{part}", *arguments, on_message=on_message)
        self._started.append(child)
        return child

    # The owner ---------------------------------------------------------------------------------

    def start_owner(self) -> None:
        self._owner = self._child("the owner of the log", "owner", self.directory, str(self._port))
        self._owner.answer("ready", within_s=ANSWER_S)

    def kill_owner(self) -> None:
        assert self._owner is not None
        self._owner.kill()
        self.counts.owner_kills += 1

    def end_owner(self) -> None:
        """It closes its log, as it does when it is told to stop."""
        assert self._owner is not None
        self._owner.end()

    # Writers -----------------------------------------------------------------------------------

    def start_writer(self, account: Account) -> None:
        """Its first life, or the next one, which begins where the one before was heard last."""
        address = f"hw://{LOOPBACK}:{self._port}"
        arguments = (address, str(account.writer), account.how, str(account.next_request))
        name = f"writer {account.writer}"
        self._writers[account.writer] = self._child(name, "writer", *arguments, on_message=account.take)

    def kill_writer(self, account: Account) -> None:
        self._writers[account.writer].kill()
        self.counts.writer_kills += 1
        account.lives += 1

    def every_writer_goes_on(self) -> None:
        """Return when a further request of every writer was acknowledged."""
        before = {account.writer: len(account.acknowledged) for account in self.known.accounts}
        until_s = self.clock.monotonic_s() + ANSWER_S
        while any(len(account.acknowledged) <= before[account.writer] for account in self.known.accounts):
            silent = [child for child in self._writers.values() if not child.is_running]
            if silent or self.clock.monotonic_s() > until_s:
                words = "".join(child.last_words() for child in silent or self._writers.values())
                raise ChaosFailed(f"a writer does not go on{words}")
            self.pause(0.02)

    def stop_writers(self) -> None:
        for child in self._writers.values():
            child.send(stop=True)
        for child in self._writers.values():
            child.answer("ended", within_s=ANSWER_S)
            child.end()

    # Landers -----------------------------------------------------------------------------------

    def _start_lander(self, number: int) -> Child:
        return self._child(f"lander {number}", "lander", self.directory)

    def lander(self, *, but: Sequence[LanderPlace] = ()) -> LanderPlace:
        """One that is ready; the one whose turn it is, so that all three are used."""
        among = [each for each in self.landers if each not in but]
        place = next((each for each in among if each.is_ready), among[0])
        self.landers.remove(place)
        self.landers.append(place)
        return self.ready(place)

    @staticmethod
    def ready(place: LanderPlace) -> LanderPlace:
        if not place.is_ready:
            place.child.answer("ready", within_s=ANSWER_S)
            place.is_ready = True
        place.doing = "waits"
        return place

    def kill_lander(self, place: LanderPlace) -> None:
        """kill -9; the next one starts at once, and knows nothing."""
        place.doing = "killed"
        place.child.kill()
        self.counts.lander_kills += 1
        place.child = self._start_lander(place.number)
        place.lives += 1
        place.is_ready = False
        place.doing = "starts"

    @staticmethod
    def ask(place: LanderPlace, **more: Any) -> None:
        place.doing = "lands"
        place.child.send(land=True, **more)

    def answered(self, place: LanderPlace, *, halts: bool = False) -> Report:
        """What became of a round; a halt that nobody expects is a failure."""
        message = place.child.answer("report", "trouble", within_s=ANSWER_S)
        place.doing = "waits"
        if "trouble" in message:
            self.tell(f"lander {place.number}: {message['trouble']}", "others")
            return []
        report: Report = message["report"]
        for each in report:
            self._take(f"lander {place.number}", each, halts=halts)
        return report

    def _take(self, lander: str, told: dict[str, Any], *, halts: bool) -> None:
        topic, outcome = told["topic"], told["outcome"]
        if outcome == "landed":
            self.counts.landings += 1
            self.counts.landed_rows += told["rows"]
            self.tell(f"{lander}: {told['rows']:,} rows of {topic}, up to LSN {told['lsn_to']}")
        elif outcome == "lost":
            self.counts.races_lost += 1
            self.tell(f"{lander}: {topic}: another was faster, nothing landed twice")
        elif outcome == "failed":
            self.tell(f"{lander}: {topic}: not this time: {told['message']}", "others")
        elif outcome == "halted" and not halts:
            raise ChaosFailed(f"{topic} halted by {told['cause']}: {told['message']}")

    def land(self, **more: Any) -> Report:
        place = self.lander()
        self.ask(place, **more)
        return self.answered(place)

    def stopped(self, place: LanderPlace, point: str) -> bool:
        """Have it land and stop at this point; False where there was never anything to commit."""
        for _ in range(ROUNDS_MAX):
            self.ask(place, stop_at=point)
            message = place.child.answer("stopped", "report", "trouble", within_s=ANSWER_S)
            if "stopped" in message:
                place.doing = f"stopped {point}"
                return True
            self.pause(0.2)
        return False

    # Waiting and telling -----------------------------------------------------------------------

    def pause(self, seconds: float) -> None:
        self._nobody.wait(seconds)

    def since_s(self) -> float:
        return self.clock.monotonic_s() - self._begun_s

    def tell(self, text: str, tone: Tone = "plain") -> None:
        if self.listener is not None:
            self.listener(Event(self.since_s(), text, tone))


def _free_port() -> int:
    with socket.socket() as asked:
        asked.bind((LOOPBACK, 0))
        return int(asked.getsockname()[1])
