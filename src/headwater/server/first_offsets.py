"""The first offset of partitions, remembered: every poll of every consumer asks for it, and it seldom changes.

PROMISE  What is remembered is what the engine would say: it is forgotten whenever the log has other segments than
         before, which is how rows go.  A partition without rows is not remembered, because its first one moves it.
"""

from __future__ import annotations

from headwater.topics.engine import Engine


class FirstOffsets:
    """Safe for threads: at worst the engine is asked twice."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: tuple[object, dict[tuple[int, int], int]] = ((), {})
        """The log's segments as they were, and what was found in them."""

    def of(self, topic_number: int, partition: int) -> int:
        # Looked at before: what is found later may be newer than that, and is then forgotten one look too early.
        segments = self._engine.shard.log.device.view.segments
        before, known = self._known
        if before is not segments:
            known = {}
            self._known = (segments, known)
        found = known.get((topic_number, partition))
        if found is None:
            found = self._engine.first_offset(topic_number, partition)
            if found < self._engine.next_offset(topic_number, partition):
                known[topic_number, partition] = found
        return found
