"""A small lake that is audited, and the damage that is put into its tables by hand.

    lake = AuditedLake(tmp_path)
    lake.orders(); lake.fill(5); lake.round()
    lake.change(lambda rows: rows.slice(1))          the table without its first row, as a bad compaction leaves it
    assert lake.audit().missing[0].ranges == ((0, 0),)

SEED     Rows are counted up; nothing is drawn.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.lake.audit import Audit
from headwater.lake.audit_report import AuditReport, TopicAudit
from headwater.lake.plan import SegmentContent
from headwater.lake.view_source import EngineViewSource
from tests.unit.lake.small_lakes import SmallLake
from tests.unit.topics.small_engines import engine_of

ORDERS = pa.schema(
    [
        pa.field("x", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("ratio", pa.float32()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("tags", pa.list_(pa.string())),
    ]
)
DAY = datetime.datetime(2026, 11, 15, tzinfo=datetime.UTC)


class NoLog(EngineViewSource):
    """A log that has let go of everything."""

    def segments(self) -> list[SegmentContent]:
        return []


class AuditedLake(SmallLake):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._x = 0
        self.forgetful = False

    def orders(self, **options: Any) -> None:
        self.topic("orders", ORDERS, **options)

    def fill(self, count: int, *, partition: int = 0) -> None:
        """Rows with every kind of value that a digest could trip over."""
        numbers = range(self._x, self._x + count)
        self._x += count
        self.log["orders"].append(
            [
                {
                    "x": number,
                    "name": None if number % 5 == 4 else f"row {number}",
                    "price": Decimal(number) / 4,
                    "ratio": float("nan") if number % 3 == 2 else -0.0,
                    "at": DAY,
                    "tags": [] if number % 2 else ["a", "b"],
                }
                for number in numbers
            ],
            partition=partition,
        )

    def land(self, *counts: int, partition: int = 0) -> None:
        """A landing of so many rows, one after the other."""
        for count in counts:
            self.fill(count, partition=partition)
            assert self.round()["orders"].outcome == "landed"

    # Audits --------------------------------------------------------------------------------------

    def auditor(self, **parts: Any) -> Audit:
        source = (NoLog if self.forgetful else EngineViewSource)(engine_of(self.log), str(self.folder))
        given = {"source": source, "connect": self.connect, "ledger": self.ledger, **parts}
        return Audit(**given, clock=self.clock)

    def report(self, *names: str, full: bool = False, **parts: Any) -> AuditReport:
        return self.auditor(**parts).run([self.record(name) for name in names or ("orders",)], full=full)

    def audit(self, *, full: bool = True, **parts: Any) -> TopicAudit:
        return self.report(full=full, **parts)["orders"]

    # Damage --------------------------------------------------------------------------------------

    def rows(self, name: str = "orders") -> pa.Table:
        """What the table holds, in the order of the log."""
        with self.native(name) as table:
            return table.scan().to_arrow().sort_by([("_hw_lsn", "ascending"), ("_hw_offset", "ascending")])

    def change(self, change: Callable[[pa.Table], pa.Table], name: str = "orders") -> None:
        """Write the table anew, with something changed: as a compaction that makes mistakes."""
        rows = self.rows(name)
        with self.native(name) as table:
            table.overwrite(change(rows))

    def compact(self, name: str = "orders") -> None:
        self.change(lambda rows: rows, name)


def with_value(column: str, place: int, value: object) -> Callable[[pa.Table], pa.Table]:
    """The same rows with another value in one of them."""

    def change(rows: pa.Table) -> pa.Table:
        values = rows[column].to_pylist()
        values[place] = value
        at = rows.schema.get_field_index(column)
        return rows.set_column(at, rows.schema.field(at), pa.array(values, rows.schema.field(at).type))

    return change


def without(*places: int) -> Callable[[pa.Table], pa.Table]:
    def change(rows: pa.Table) -> pa.Table:
        return rows.filter(pa.array([place not in places for place in range(rows.num_rows)]))

    return change


def twice(place: int) -> Callable[[pa.Table], pa.Table]:
    return lambda rows: pa.concat_tables([rows, rows.slice(place, 1)])


def of_lsn(lsns: Sequence[int]) -> Callable[[pa.Table], pa.Table]:
    """Rows of these LSNs alone."""
    return lambda rows: rows.filter(pc.is_in(rows["_hw_lsn"], pa.array(lsns, pa.int64())))


def ranges(offsets: dict[int, Any]) -> dict[int, tuple[tuple[int, int], ...]]:
    return {partition: found.ranges for partition, found in offsets.items()}


def audited_lakes(folder: Path) -> Iterator[AuditedLake]:
    """For a fixture: closed when the test is over."""
    lake = AuditedLake(folder)
    yield lake
    lake.close()
