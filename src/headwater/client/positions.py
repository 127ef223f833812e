"""Positions of a topic that a server finds: where queries of Spark begin and end."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.client.connection import Connection
from headwater.errors import HeadwaterError
from headwater.metadata.operations import TopicRecord
from headwater.protocol.calls import TOPIC, OneTopic
from headwater.protocol.failures import error_of
from headwater.protocol.lake_calls import (
    FIND_POSITION,
    LOST_AFTER,
    POSITION_AFTER,
    FindPosition,
    LostAfter,
    PositionAfter,
    WirePosition,
)
from headwater.spark.source_options import AtTime, Where
from headwater.spark.source_position import Position


class ServedPositions:
    """Positions (spark/source_position.py) over a connection."""

    def __init__(self, connection: Connection, topic: TopicRecord) -> None:
        self._connection = connection
        self._id = topic.topic_id

    @property
    def record(self) -> TopicRecord:
        return self._connection.call(TOPIC, OneTopic(self._id))

    def position(self, where: Where, *, ending: bool) -> Position:
        if isinstance(where, AtTime):
            asked = FindPosition(self._id, time_us=where.time_us, ending=ending)
        elif isinstance(where, str):
            asked = FindPosition(self._id, word=where, ending=ending)
        else:
            asked = FindPosition(self._id, offsets=where, ending=ending)
        return self._position(self._connection.call(FIND_POSITION, asked))

    def after(self, position: Position, bytes_max: int | None) -> Position:
        asked = PositionAfter(self._id, _wire(position), bytes_max)
        return self._position(self._connection.call(POSITION_AFTER, asked))

    def forgotten(self, start: Position) -> Iterator[HeadwaterError]:
        for each in self._connection.call(LOST_AFTER, LostAfter(self._id, _wire(start))):
            yield error_of(each)

    def _position(self, wire: WirePosition) -> Position:
        return Position(self._id.hex(), wire.lsn, wire.offsets)


def _wire(position: Position) -> WirePosition:
    return WirePosition(position.lsn, dict(position.offsets))
