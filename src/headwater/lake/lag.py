"""How far a table is behind its topic, and when it is time to land.

    due    the oldest row that is not in the table is older than the freshness that was asked for, or so many bytes
           wait that they make a file of the size that was asked for, or something landed and was not read back yet

ABOUT    Rows and bytes are counted by segments.  Of the one in which the landed LSN lies few frames are counted one by
         one, and many by their share.
PURE     `due` decides from numbers alone; `waiting_behind` looks at the log and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headwater.ids import Lsn
from headwater.log.frame_log import FrameLog
from headwater.metadata.operations import TopicRecord

COUNTED_FRAMES = 64


class Waiting(NamedTuple):
    """What of a topic lies behind an LSN."""

    rows: int = 0
    bytes: int = 0
    oldest_us: int | None = None
    """When the oldest of these rows was appended; None: there are none."""


@dataclass(frozen=True)
class Lag:
    """What a topic has in the log that its table has not."""

    topic: TopicRecord
    landed_lsn: int
    rows: int = 0
    bytes: int = 0
    oldest_us: int | None = None
    """When the oldest of these rows was appended; None: there are none."""
    unverified: bool = False
    """A landing of it has not been read back yet."""

    def seconds(self, now_us: int) -> float:
        """How old that row is."""
        return 0.0 if self.oldest_us is None else max(now_us - self.oldest_us, 0) / 1_000_000


def due(lags: Sequence[Lag], *, now_us: int, freshness_s: float, target_bytes: int) -> list[TopicRecord]:
    """The topics that should be landed now."""
    return [
        lag.topic
        for lag in lags
        if lag.unverified
        or (lag.oldest_us is not None and (lag.seconds(now_us) >= freshness_s or lag.bytes >= target_bytes))
    ]


def waiting_behind(log: FrameLog, topic_number: int, landed_lsn: int) -> Waiting:
    """What of this topic lies behind its landed LSN."""
    rows = size = 0
    device = log.device
    for segment in log.segments():
        share = device.topics_in(segment).get(topic_number)
        if share is None or not share.rows or share.last_lsn <= landed_lsn:
            continue
        if segment.first_lsn > landed_lsn:
            rows, size = rows + share.rows, size + share.bytes
            continue
        index = device.placed(Lsn(segment.first_lsn)).index
        behind = sum(1 for _ in index.places_of_topic(topic_number, landed_lsn + 1))
        if behind <= COUNTED_FRAMES:
            frames = list(log.read_topic(topic_number, Lsn(landed_lsn + 1), Lsn(segment.last_lsn)))
            rows += sum(frame.header.row_count for frame in frames)
            size += sum(frame.header.frame_size for frame in frames)
        else:
            part = behind / sum(1 for _ in index.places_of_topic(topic_number, segment.first_lsn))
            rows, size = rows + max(round(share.rows * part), 1), size + round(share.bytes * part)
    if not rows:
        return Waiting()
    first = next(log.read_topic(topic_number, Lsn(landed_lsn + 1)), None)
    return Waiting(rows, size, first.header.append_time_us if first is not None else None)
