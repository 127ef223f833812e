"""Who waits for rows of a topic is woken when there are some, and by nothing else.

WHY      A commit wakes whoever waits for the log to go on.  Where hundreds of streams follow, each of them would look
         for rows of its topic after every commit of any topic, and the writers would wait for all of them.  So one
         thread looks, once a commit, and wakes those who have something to read.
PROMISE  Whoever has read a topic up to an LSN, and waits, is woken soon after a row of it beyond that LSN is durable.
         Being woken promises nothing: the row that woke it may be on its way still; then it waits again.
"""

from __future__ import annotations

import threading

from headwater.topics.engine import Engine

LOOK_S = 0.5
"""How long the looking thread waits for the log at a time: it ends with the server no later than this."""


class Arrivals:
    """Those who wait for rows, by topic.  Its thread runs only while somebody waits."""

    def __init__(self, engine: Engine, stopping: threading.Event) -> None:
        self._engine = engine
        self._stopping = stopping
        self._guard = threading.Lock()
        self._waiting: dict[int, dict[threading.Event, int]] = {}
        """By topic those who wait, each with the LSN up to which it has read."""
        self._looking = False

    def wait(self, topic_number: int, lsn: int, timeout_s: float) -> bool:
        """Whether rows of this topic beyond this LSN may be there; waits for them at most so long."""
        if self._has_more(topic_number, lsn):
            return True
        event = threading.Event()
        with self._guard:
            self._waiting.setdefault(topic_number, {})[event] = lsn
            if not self._looking:
                self._looking = True
                threading.Thread(target=self._look, name="headwater-arrivals", daemon=True).start()
        try:
            # Once more: it may have come before anybody knew that it is waited for.
            return self._has_more(topic_number, lsn) or event.wait(timeout_s)
        finally:
            with self._guard:
                left = self._waiting.get(topic_number)
                if left is not None:
                    left.pop(event, None)
                    if not left:
                        del self._waiting[topic_number]

    def _has_more(self, topic_number: int, lsn: int) -> bool:
        durable = self._engine.durable_lsn()
        # The index holds a frame before it is durable, so what is durable by now is in it.
        return durable > lsn and self._last_lsn(topic_number, lsn) > lsn

    def _last_lsn(self, topic_number: int, lsn: int) -> int:
        """The LSN of a topic's last frame in the newest segment; one beyond `lsn` where that begins after it, because
        what came between is nobody's to look up here."""
        newest = self._engine.shard.log.device.view.segments[-1]
        if newest.first_lsn > lsn + 1:
            return lsn + 1
        index = newest.loaded_index
        if index is None:
            # It was sealed at this moment: whoever waits looks for itself.
            return lsn + 1
        share = index.share_of(topic_number)
        return 0 if share is None else share.last_lsn

    def _look(self) -> None:
        durable = 0
        while True:
            with self._guard:
                if not self._waiting:
                    self._looking = False
                    return
            if not self._engine.wait_for_rows(durable, LOOK_S):
                if self._stopping.is_set():
                    with self._guard:
                        self._looking = False
                    return
                continue
            durable = self._engine.durable_lsn()
            with self._guard:
                waiting = [(number, list(each.items())) for number, each in self._waiting.items()]
            for number, each in waiting:
                lowest = min(lsn for _, lsn in each)
                if durable <= lowest:
                    continue
                last = self._last_lsn(number, lowest)
                for event, lsn in each:
                    if last > lsn and durable > lsn:
                        event.set()
