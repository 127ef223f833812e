"""Is every acknowledged row in the table, once, as it was sent, and nothing else?  Asked of plain pyiceberg.

PROMISE  Nothing of the product is asked: rows are read by pyiceberg's own scan of the table's head, and compared with
         the demo's own account of what was acknowledged.  A column that the landing adds is not looked at.
         Missing, doubled, altered and never sent rows are counted, and the first of each are named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from headwater.demo.acknowledged import Acknowledged
from headwater.demo.rows import account_columns, order_columns

NAMED = 3


@dataclass
class Found:
    """What differs in one table."""

    table: str
    rows: int = 0
    """That the table holds."""
    expected: int = 0
    """That were acknowledged."""
    missing: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    altered: list[str] = field(default_factory=list)
    never_sent: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not (self.missing or self.doubled or self.altered or self.never_sent)

    def told(self) -> list[str]:
        kinds = (
            ("lost", self.missing),
            ("doubled", self.doubled),
            ("altered", self.altered),
            ("never sent", self.never_sent),
        )
        return [
            f"{self.table}: {len(rows):,} {kind}: {', '.join(rows[:NAMED])}{' ...' if len(rows) > NAMED else ''}"
            for kind, rows in kinds
            if rows
        ]


def judge_orders(name: str, table: pa.Table, known: Acknowledged) -> Found:
    """The append-only table."""
    found = Found(name, rows=table.num_rows)
    _judge_numbers(found, table, "id", order_columns, known, keyed=False)
    return found


def judge_changes(name: str, table: pa.Table, known: Acknowledged) -> Found:
    """The table of a keyed topic's changes: upserts by their numbers, deletions by how many there are of each key."""
    found = Found(name, rows=table.num_rows)
    operations = table.column("_hw_op").to_pylist()
    upserts = table.filter(pa.array([each == "U" for each in operations]))
    _judge_numbers(found, upserts, "change", account_columns, known, keyed=True)
    keys = table.column("account").to_pylist()
    held = Counter(key for key, operation in zip(keys, operations, strict=True) if operation == "D")
    owed, sent = known.deletions(), known.deletions(sent=True)
    found.expected += owed.total()
    found.missing += [f"a deletion of {key}" for key in (owed - held).elements()]
    found.doubled += [f"a deletion of {key}" for key in (held - sent).elements()]
    return found


def _judge_numbers(
    found: Found,
    table: pa.Table,
    column: str,
    columns_of: Callable[[Iterable[int]], dict[str, list[object]]],
    known: Acknowledged,
    *,
    keyed: bool,
) -> None:
    numbers: list[int] = table.column(column).to_pylist()
    held = Counter(numbers)
    owed = set(known.numbers(keyed=keyed))
    sent = set(known.numbers(keyed=keyed, sent=True))
    found.expected += len(owed)
    found.missing += [f"{each:,}" for each in sorted(owed - held.keys())]
    found.doubled += [f"{each:,}" for each, times in sorted(held.items()) if times > 1]
    found.never_sent += [f"{each:,}" for each in sorted(held.keys() - sent)]
    should_be = columns_of(numbers)
    altered: set[int] = set()
    for name, values in should_be.items():
        is_there: list[object] = table.column(name).to_pylist()
        if is_there != values:
            rows = zip(numbers, is_there, values, strict=True)
            altered.update(number for number, there, value in rows if there != value)
    found.altered += [f"{each:,}" for each in sorted(altered & sent)]
