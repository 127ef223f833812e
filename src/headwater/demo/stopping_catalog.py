"""A catalog that can stop whoever commits to it, before the commit or right behind it: that is where kills come.

It is pyiceberg's own SQLite catalog, given to the product by pyiceberg's own setting (`py-catalog-impl`).  So a lander
that dies in the demo runs the product as it is; only its catalog takes its time at a named point.

    before commit   data files are written and the intent is in the ledger; the table knows nothing of them
    after commit    the table has the rows; the lander does not know it, and the ledger has no line of it
"""

from __future__ import annotations

import inspect
import threading
from typing import Any, ClassVar

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate

from headwater.demo.children import tell

BEFORE, AFTER = "before commit", "after commit"
STOPPED_S_MAX = 60.0


class StoppingCatalog(SqlCatalog):
    """One process has one stop at a time, whatever number of connections it has."""

    stop_at: ClassVar[str | None] = None
    go_on: ClassVar[threading.Event] = threading.Event()

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        stop_at = StoppingCatalog.stop_at
        if stop_at == BEFORE:
            _stop(table, stop_at)
        # Without pyiceberg's own retries, as the product sends it.
        send: Any = inspect.unwrap(SqlCatalog.commit_table)
        response: CommitTableResponse = send(self, table, requirements, updates)
        if stop_at == AFTER:
            _stop(table, stop_at)
        return response


def _stop(table: Table, point: str) -> None:
    tell(stopped=point, table=".".join(table.name()))
    StoppingCatalog.go_on.wait(STOPPED_S_MAX)


def catalog_properties(properties: Any) -> dict[str, Any]:
    """The same catalog, with stops."""
    uri = str(properties["uri"])
    return {
        "uri": uri if "?" in uri else f"{uri}?timeout=30",
        "warehouse": properties["warehouse"],
        "py-catalog-impl": f"{__name__}.{StoppingCatalog.__name__}",
    }
