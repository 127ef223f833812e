"""How far a query has read a topic: an LSN, and of every partition the offset that comes next.

WHY BOTH   The LSN says from which bytes on: one number, whatever becomes of partitions and segments.  The offsets say
           which rows: where a query began in the middle, and whether the log has forgotten any that were not read.
           A topic that rests while the log goes on and forgets has lost nothing, and only the offsets can tell.
NOT HERE   Where positions are found: source_log.py, and client/positions.py where the log is behind a server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from headwater.errors import HeadwaterError, InvalidRequest
from headwater.metadata.operations import TopicRecord
from headwater.spark.source_options import Where


@dataclass(frozen=True)
class Position:
    """How far a topic was read."""

    topic_id: str
    lsn: int
    """Everything at or below it was read, as far as the offsets do not say otherwise."""
    offsets: Mapping[int, int]
    """By partition, the offset that comes next; a partition that is not named begins at 0."""

    def to_json(self) -> dict[str, Any]:
        """As a stream's checkpoint holds it."""
        offsets = {str(partition): offset for partition, offset in sorted(self.offsets.items())}
        return {"topic": self.topic_id, "lsn": self.lsn, "offsets": offsets}


def position_from_json(value: Mapping[str, Any]) -> Position:
    try:
        offsets = {int(partition): int(offset) for partition, offset in value["offsets"].items()}
        return Position(str(value["topic"]), int(value["lsn"]), offsets)
    except (KeyError, ValueError, AttributeError, TypeError) as error:
        raise InvalidRequest(
            "the stream's checkpoint was not written by this source", offset=str(value)[:200]
        ) from error


class Positions(Protocol):
    """Where a topic's rows begin and end."""

    @property
    def record(self) -> TopicRecord: ...

    def position(self, where: Where, *, ending: bool) -> Position: ...

    def after(self, position: Position, bytes_max: int | None) -> Position: ...

    def forgotten(self, start: Position) -> Iterable[HeadwaterError]: ...
