"""A topic as of a cut, an LSN or a time, as a table of its own; then audited.

    report = restore_table(views, topic, as_of="2026-11-14T10:41:07Z", to="sales.orders_1041")

The rows are those of a scan at that point, with all their `_hw_*` columns; of a keyed topic its state, one row a key.
The table is made with its rows by one commit, and says in the property `headwater.restored` what it was made from.

PROMISE  A table that is there is never written to.  The report passes only if what the new table shows, read back, has
         the digest of the rows that the scan gave, partition by partition and block by block.
         The topic's own tables, and those of other topics, are not taken for a restore, whether or not they are there.
SEAM     Copying: who moves the rows.  Here in this process; with Spark, headwater.spark.restore.
NOT HERE A lost log: from_lake.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import Halted, InvalidRequest
from headwater.lake.baseline import Places, columns_now
from headwater.lake.digest import combine, digest_of
from headwater.lake.file_cache import FileCache
from headwater.lake.mark import PREFIX
from headwater.lake.new_table import NewTable
from headwater.lake.scan import Scan
from headwater.lake.shape import CHANGES_SUFFIX, SYSTEM_COLUMNS, TABLE_PROPERTIES, table_shape
from headwater.lake.stamping import new_commit_id
from headwater.lake.state_table import state_shape
from headwater.lake.table_rows import read_part
from headwater.lake.tables import TableShape, TableState
from headwater.lake.view import AsOf, Views
from headwater.lake.view_plan import TablePart
from headwater.lake.work import Digest
from headwater.metadata.operations import TopicRecord
from headwater.topics.schema import unpack_schema

RESTORED = f"{PREFIX}restored"
"""A property of a table that was restored: from which topic, of which log, at which LSN."""
_NOWHERE = -1
"""Stands for the partition and the offset of rows that no landing brought."""


@dataclass(frozen=True)
class Contents:
    """Rows, as far as two sets of them are compared."""

    digest: Digest
    """Of all columns in the order of the shape, `_hw_*` included; a row without a partition counts as of -1."""
    offsets: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """First and last offset of each partition."""

    @property
    def rows(self) -> int:
        return self.digest.rows


class Copying(Protocol):
    """Moves rows into a new table."""

    def copy(self, scan: Scan, to: str, shape: TableShape) -> Contents:
        """Make the table, which is not there, of this shape with every row of the scan, in one commit.  What the scan
        gave; InvalidRequest where the table is there after all."""
        ...

    def contents(self, state: TableState) -> Contents:
        """What the new table holds, read back."""
        ...


@dataclass(frozen=True)
class RestoreReport:
    topic: str
    table: str
    lsn: int
    """The topic as of this LSN."""
    cut: str
    """The same as a token."""
    source: Contents
    restored: Contents
    snapshot: int
    seconds: float = 0.0

    @property
    def rows(self) -> int:
        return self.restored.rows

    @property
    def passed(self) -> bool:
        return self.source == self.restored

    def differences(self) -> list[str]:
        """What the new table holds otherwise, by partition and block of offsets."""
        ours = {(each.partition, each.block): each for each in self.source.digest.blocks}
        theirs = {(each.partition, each.block): each for each in self.restored.digest.blocks}
        found = []
        for place in sorted({*ours, *theirs}):
            given, got = ours.get(place), theirs.get(place)
            if given != got:
                rows = tuple(each.rows if each is not None else 0 for each in (given, got))
                what = (
                    f"{rows[0]} rows were given and {rows[1]} are there" if rows[0] != rows[1] else "rows are altered"
                )
                first = place[1] << 16
                found.append(f"partition {place[0]}, offsets {first} to {first + 65_535}: {what}")
        return found

    def __str__(self) -> str:
        told = f"{self.topic} as of lsn {self.lsn}: {self.rows} row{'' if self.rows == 1 else 's'} in {self.table}"
        return "\n".join([f"{'PASS' if self.passed else 'FAIL'} {told}", *(f"  {each}" for each in self.differences())])

    def raise_for_status(self) -> None:
        """Halted where the new table does not hold what was to be restored."""
        if not self.passed:
            raise Halted(
                f"{self.table!r} is not what {self.topic!r} was at lsn {self.lsn}: {'; '.join(self.differences())}; "
                "drop it, and restore again under another name",
                table=self.table,
            )


class _Provenance(msgspec.Struct, frozen=True, rename="kebab"):
    topic: str
    topic_id: str
    log_id: str
    lsn: int
    cut: str
    at_us: int


def restore_table(
    views: Views, topic: TopicRecord, *, as_of: AsOf, to: str, copying: Copying | None = None
) -> RestoreReport:
    """Make a new table with the topic as of a point, and compare the two."""
    _check_free(views, to)
    clock = views.lake.clock
    begun_s = clock.monotonic_s()
    copying = copying if copying is not None else LocalCopying(views)
    scan: Scan = views.scan(topic, columns=all_columns(topic), as_of=as_of)
    with closing(scan):
        provenance = _Provenance(
            topic.name, topic.topic_id.hex(), scan.cut.log_id, scan.cut.lsn, str(scan.cut), clock.now_us()
        )
        source = copying.copy(scan, to, restored_shape(topic, msgspec.json.encode(provenance).decode()))
        cut = scan.cut
    with closing(views.lake.place.connect()) as tables:
        state = tables.load(to)
    head = state.head() if state is not None else None
    if state is None or head is None:
        raise Halted(
            f"the table {to!r} was made and is gone again: somebody else is at work on it; restore to another name",
            table=to,
        )
    return RestoreReport(
        topic=topic.name,
        table=to,
        lsn=cut.lsn,
        cut=str(cut),
        source=source,
        restored=copying.contents(state),
        snapshot=head.snapshot_id,
        seconds=clock.monotonic_s() - begun_s,
    )


def _check_free(views: Views, to: str) -> None:
    """A restore into the table of a topic would be landed into, and its rows would be there twice."""
    for topic in views.source.topics():
        if topic.table is not None and to in {topic.table, topic.table + CHANGES_SUFFIX}:
            raise InvalidRequest(f"{to!r} is the table of the topic {topic.name!r}: give another name", table=to)


def all_columns(topic: TopicRecord) -> list[str]:
    return [*unpack_schema(topic.schemas[-1]).names, *SYSTEM_COLUMNS.names]


def restored_shape(topic: TopicRecord, provenance: str) -> TableShape:
    """The new table: columns and partitioning as the topic's own, but no table that is landed in."""
    shape = state_shape(topic) if topic.key else table_shape(topic)
    # Rows that were in the table before the topic have no LSN.
    columns = [each.with_nullable(True) if each.name in SYSTEM_COLUMNS.names else each for each in shape.schema]
    return TableShape(
        pa.schema(columns), shape.key, shape.partition_by, properties={**TABLE_PROPERTIES, RESTORED: provenance}
    )


class LocalCopying:
    """In this process, by pyiceberg."""

    def __init__(self, views: Views) -> None:
        self._views = views

    def copy(self, scan: Scan, to: str, shape: TableShape) -> Contents:
        lake = self._views.lake
        with closing(NewTable(lake.place.connect, to, shape, new_commit_id(lake.entropy))) as table:
            given = contents_of(table.write(pa.Table.from_batches([batch])) for batch in scan.batches())
            table.commit()
        return given

    def contents(self, state: TableState) -> Contents:
        head = state.head()
        assert head is not None, "a table that was made with its rows"
        whole = TablePart(state, head.snapshot_id, 0, 0, whole=True)
        return contents_of(read_part(whole, columns_now(state), None, FileCache()))


def contents_of(parts: Iterable[pa.Table]) -> Contents:
    """What these rows are, part by part, so that no more than one is in memory."""
    places = Places()
    digests = []
    for rows in map(_placed, parts):
        digests.append(digest_of(rows))
        places.take(rows)
    return Contents(combine(digests), places.offsets)


def _placed(rows: pa.Table) -> pa.Table:
    """Every row in a partition and at an offset, so that it is counted."""
    for name in ("_hw_partition", "_hw_offset"):
        place = rows.column_names.index(name)
        if rows.column(place).null_count:
            filled = pc.fill_null(rows.column(place), pa.scalar(_NOWHERE, rows.column(place).type))
            rows = rows.set_column(place, name, filled)
    return rows
