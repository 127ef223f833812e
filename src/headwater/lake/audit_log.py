"""The log as a witness: the rows of landings that it still holds, in the columns and types in which they landed.

PROMISE  It is asked only about landings of which it holds every row that is owed: what a cleanup, a compaction or an
         erasure has left of a landing says nothing against the table.
NOT HERE What it is compared with: audit.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from headwater.lake.audit_measure import OFFSET, PARTITION, BlockRows, arrow_columns, block_rows, joined
from headwater.lake.audit_plan import OffsetRun, Owed, Place, Range
from headwater.lake.digest import BLOCK_BITS, combine, digest_of
from headwater.lake.log_rows import log_rows
from headwater.lake.shape import OPERATION_COLUMN, SYSTEM_COLUMNS
from headwater.lake.source import RowSource
from headwater.lake.work import Column, Digest
from headwater.metadata.operations import TopicRecord
from headwater.topics.schema import unpack_schema

_NAMES = (Column(1, PARTITION, "int"), Column(2, OFFSET, "long"))


class LogWitness:
    """What the log says of one topic."""

    def __init__(self, source: RowSource, topic: TopicRecord) -> None:
        self._source = source
        self._topic = topic
        self.names = frozenset((*unpack_schema(topic.schemas[-1]).names, *SYSTEM_COLUMNS.names, OPERATION_COLUMN.name))
        """The columns that its rows have."""

    @cached_property
    def _first_lsn(self) -> int:
        """Where the log begins; it is held while it is asked."""
        segments = self._source.segments()
        return segments[0].first_lsn if segments else 1 << 62

    def holds(self, landing: Owed) -> bool:
        """Whether it has every row of a landing that is owed."""
        if self._first_lsn > landing.lsn_to:
            return False
        held = self._source.rows_between(self._topic.number, landing.lsn_from, landing.lsn_to)
        return held == landing.rows - landing.erased

    def offsets(self, landing: Owed) -> tuple[OffsetRun, ...]:
        """(partition, first, last) of a landing's rows."""
        found: dict[int, tuple[int, int]] = {}
        for rows in self._rows(_NAMES, [landing.range]):
            least = rows.group_by(PARTITION).aggregate([(OFFSET, "min"), (OFFSET, "max")])
            for each in least.to_pylist():
                first, last = each[f"{OFFSET}_min"], each[f"{OFFSET}_max"]
                known = found.get(each[PARTITION], (first, last))
                found[each[PARTITION]] = min(known[0], first), max(known[1], last)
        return tuple((partition, *found[partition]) for partition in sorted(found))

    def digest(self, columns: Sequence[Column], ranges: Sequence[Range]) -> Digest:
        return combine(digest_of(rows) for rows in self._rows(columns, ranges))

    def block(self, place: Place, columns: Sequence[Column], ranges: Sequence[Range]) -> BlockRows:
        """The rows of one block, with their words."""
        partition, number = place
        found = []
        for rows in self._rows(columns, ranges):
            of_block = pc.equal(pc.shift_right(rows[OFFSET], BLOCK_BITS), number)
            kept = rows.filter(pc.and_(pc.equal(rows[PARTITION], partition), of_block))
            found.append(block_rows(kept, words=True))
        return joined(found)

    def _rows(self, columns: Sequence[Column], ranges: Sequence[Range]) -> Iterator[pa.Table]:
        schema = arrow_columns(columns)
        for lsn_from, lsn_to in ranges:
            yield from log_rows(self._source, self._topic, schema, lsn_from, lsn_to)
