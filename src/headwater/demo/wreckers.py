"""What others do to a table: its owner, another job, somebody with the right to write.  By pyiceberg, as they would.

    compact     every row into one new file, the old ones are let go of: what a rewrite of data files does
    expire      snapshots go, all but the last few
    roll_back   the table is set back to an earlier landing
    damage      one row deleted, one doubled, by hand: for the audit to find

PROMISE  compact, expire and roll_back change no row of the snapshot that they leave as the head.
         Each is one commit.  One that another commit overtakes is made again from what is there then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from headwater.lake.catalog import DEFAULT_NAME

TRIES = 5

Answer = TypeVar("Answer")


class Wreckers:
    """All that others do, on one catalog."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._properties = properties

    @contextmanager
    def table(self, name: str) -> Iterator[Table]:
        """The table as it is now, through a connection of its own."""
        uri = str(self._properties["uri"])
        catalog = SqlCatalog(
            str(self._properties.get("name", DEFAULT_NAME)),
            uri=uri if "?" in uri else f"{uri}?timeout=30",
            warehouse=str(self._properties["warehouse"]),
        )
        try:
            yield catalog.load_table(name)
        finally:
            catalog.close()

    def compact(self, name: str) -> tuple[int, int]:
        """How many data files became how many."""

        def act(table: Table) -> tuple[int, int]:
            before = _files(table)
            rows = table.scan().to_arrow()
            table.overwrite(rows)
            return before, _files(table.refresh())

        return self._tried(name, act)

    def expire(self, name: str, kept: int) -> int:
        """How many snapshots went, with so many of the newest on main kept."""

        def act(table: Table) -> int:
            keep = {each.snapshot_id for each in _line(table)[:kept]}
            gone = [each.snapshot_id for each in table.snapshots() if each.snapshot_id not in keep]
            if gone:
                table.maintenance.expire_snapshots().by_ids(gone).commit()
            return len(gone)

        return self._tried(name, act)

    def roll_back(self, name: str, landings: int) -> int:
        """How many snapshots the head was set back, at most so many; 0 where there is none before it."""

        def act(table: Table) -> int:
            line = _line(table)
            # pyiceberg overwrites in two snapshots, a deletion and an append: nobody means the one between.
            whole = [
                place
                for place, each in enumerate(line)
                if place and (each.summary is None or each.summary.operation != Operation.DELETE)
            ]
            if not whole:
                return 0
            place = whole[min(landings, len(whole)) - 1]
            table.manage_snapshots().set_current_snapshot(line[place].snapshot_id).commit()
            return place

        return self._tried(name, act)

    def newest_lsn(self, name: str) -> int:
        """`SELECT max(_hw_lsn)`: what a person asks whom a halt sends to look."""
        with self.table(name) as table:
            return max(table.scan(selected_fields=("_hw_lsn",)).to_arrow().column("_hw_lsn").to_pylist(), default=0)

    def damage(self, name: str, column: str, deleted: int, doubled: int) -> int:
        """Delete one row and double another; the snapshot that was whole."""
        with self.table(name) as table:
            head = table.current_snapshot()
            assert head is not None
            row = table.scan(row_filter=f"{column} == {doubled}").to_arrow()
            table.delete(f"{column} == {deleted}")
            table.append(row)
            return head.snapshot_id

    def set_back(self, name: str, snapshot: int) -> None:
        with self.table(name) as table:
            table.manage_snapshots().set_current_snapshot(snapshot).commit()

    def _tried(self, name: str, act: Callable[[Table], Answer]) -> Answer:
        for _ in range(TRIES - 1):
            try:
                with self.table(name) as table:
                    return act(table)
            except CommitFailedException:
                continue  # a landing came first: what is there now is looked at anew
        with self.table(name) as table:
            return act(table)


def _line(table: Table) -> list[Snapshot]:
    """The head and those before it, by parent, as far as they are there."""
    found = []
    snapshot = table.current_snapshot()
    while snapshot is not None:
        found.append(snapshot)
        parent = snapshot.parent_snapshot_id
        snapshot = table.snapshot_by_id(parent) if parent is not None else None
    return found


def _files(table: Table) -> int:
    head = table.current_snapshot()
    assert head is not None and head.summary is not None
    return int(head.summary["total-data-files"] or 0)
