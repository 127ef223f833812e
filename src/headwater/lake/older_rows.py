"""Rows that the log has let go of, from the topics' tables (topics/older.py asks).

PROMISE  Opening it reads nothing and needs none of the packages of the `lake` extra; reading without them is an
         InvalidRequest that names them.
NOT HERE How a table is read in the order of the log: older_reading.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.lake.connections import Connections
from headwater.lake.extra import from_the_extra
from headwater.lake.ledger import LandingLedger
from headwater.lake.tables import Tables
from headwater.metadata.operations import TopicRecord
from headwater.topics.older import OlderRange

if TYPE_CHECKING:
    from headwater.lake.older_reading import OlderReading


class TablesOlderRows:
    """OlderRows over the tables of a catalog."""

    def __init__(
        self, connect: Callable[[], Tables], ledger: LandingLedger, *, window_bytes: int | None = None
    ) -> None:
        self._ledger = ledger
        self._connections = Connections(connect, threads=1)
        self._window_bytes = window_bytes
        self._reading: OlderReading | None = None

    def close(self) -> None:
        """Let go of the catalog; twice is nothing."""
        self._connections.close()

    def landed_lsn(self, topic: TopicRecord) -> int:
        return self._ledger.state().topic(topic.topic_id.hex()).owed_lsn

    def landed_rows(self, topic: TopicRecord, lsn: int) -> int | None:
        return self._ledger.state().topic(topic.topic_id.hex()).rows_up_to(lsn)

    def read(self, topic: TopicRecord, wanted: OlderRange) -> Iterator[pa.RecordBatch]:
        if self._reading is None:
            with from_the_extra():
                from headwater.lake.older_reading import OlderReading
            self._reading = OlderReading(self._connections, self._window_bytes)
        return self._reading.read(topic, wanted)
