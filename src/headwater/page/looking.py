"""One look at a log for everybody who asks within a second, and the history of looks.

PROMISE  However many ask, a log is looked at once a second at most, and for at most a twentieth of the time: a log of
         very many topics, at which a look takes long, is looked at less often.
RATES    Rows a second since a look that was about ten seconds ago, else since the first one there was.
THREADS  Safe for any number of them; a look is taken by whoever asks first, in its own thread.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from headwater.clock import Clock
from headwater.lake.ledger_records import Audited
from headwater.page.history import EVERY_S, History, Point, Shown
from headwater.page.ledger_tail import RecentLanding
from headwater.storage.disk import Space
from headwater.topics.answers import Status

LOOK_S = 1.0
RATE_OVER_S = 10.0
SHARE_MAX = 20
"""So many times as long as a look took nobody looks again."""


@dataclass(frozen=True)
class Seen:
    """What there is to see at a moment."""

    status: Status
    landings: list[RecentLanding] = field(default_factory=list)
    audits: list[Audited] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    """Topics by their ids: of these the landings and audits are shown."""
    space: Space | None = None
    """Of the disk under the log, if it is on one of this machine."""
    not_ready: str = ""
    """Why a server takes no rows now."""


@dataclass(frozen=True)
class Look:
    """What was seen, and when."""

    number: int
    at_us: int
    seen: Seen
    rates: dict[str, float]
    """Rows a second by topic; a topic that is new has none yet."""


class Looking:
    def __init__(self, see: Callable[[], Seen], clock: Clock) -> None:
        self._see = see
        self._clock = clock
        self._lock = threading.Lock()
        self._look: Look | None = None
        self._look_again_s = 0.0
        self._sample_again_s = 0.0
        self._before: deque[tuple[float, dict[str, int]]] = deque()
        self._history = History()

    def now(self) -> Look:
        """As it is, or was up to a second ago."""
        with self._lock:
            began_s = self._clock.monotonic_s()
            if self._look is not None and began_s < self._look_again_s:
                return self._look
            seen = self._see()
            now_s = self._clock.monotonic_s()
            appended = {each.name: each.appended for each in seen.status.topics}
            number = 1 if self._look is None else self._look.number + 1
            self._look = Look(number, self._clock.now_us(), seen, self._rates(appended, now_s))
            self._before.append((now_s, appended))
            took_s = now_s - began_s
            self._look_again_s = now_s + max(LOOK_S, SHARE_MAX * took_s)
            if now_s >= self._sample_again_s:
                self._history.add(seen.status, self._look.at_us, now_s)
                # A look that comes a little early is a sample too: else every other one would be left out.
                self._sample_again_s = now_s + EVERY_S * 0.9
            return self._look

    def points(self, shown: Shown | None, looks: Shown) -> list[Point]:
        """The history of all topics, or of those of these names; the lag of those that may be looked at."""
        with self._lock:
            return self._history.of_all() if shown is None else self._history.of_some(shown, looks)

    def _rates(self, appended: dict[str, int], now_s: float) -> dict[str, float]:
        while len(self._before) > 1 and self._before[1][0] <= now_s - RATE_OVER_S:
            self._before.popleft()
        if not self._before:
            return {}
        then_s, then = self._before[0]
        if now_s <= then_s:
            return {}
        return {name: max(rows - then[name], 0) / (now_s - then_s) for name, rows in appended.items() if name in then}
