"""A catalog far away: pyiceberg's own SQL catalog, whose commits take a while longer.

    {"py-catalog-impl": "bench.peers._slow_catalog.SlowCatalog", "uri": ..., "warehouse": ...}

PROMISE  Whoever commits through it waits as long: Headwater and pyiceberg are given the same class by the same name.
         Commits that are under way at once wait at once, as they do over a network.
"""

from __future__ import annotations

import time
from typing import Any, ClassVar

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate

NAME = f"{__name__}.SlowCatalog"


class SlowCatalog(SqlCatalog):
    delay_s: ClassVar[float] = 0.0
    """Of all that are open in this process; commits are made in it, whoever writes the files."""

    def __init__(self, name: str, **properties: Any) -> None:
        super().__init__(name, **properties)
        with self.engine.connect() as connection:
            # As Headwater opens SQLite by itself: for a class of one's own it leaves that to the class.
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        time.sleep(self.delay_s)
        return super().commit_table(table, requirements, updates)
