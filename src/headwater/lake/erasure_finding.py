"""Which rows an erasure takes out, and what goes with them of the digests of the landings that brought them.

Rows are looked for in the table that the topic lands in, those too that its owner has hidden by a delete file; in the
state of a keyed topic; and in the log.  Each is counted once, wherever it is found first.

PROMISE  What landed, less the parts, is what the table must hold afterwards.  A row that its owner had taken out of the
         table is in the parts as well if it is found: its erasure says that this was meant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import CorruptData, InvalidRequest, LandingHalted
from headwater.lake.data_files import columns_of, read_rewritten_file
from headwater.lake.digest import BLOCK_BITS, combine, digest_of
from headwater.lake.erasures import Era
from headwater.lake.file_cache import FileCache
from headwater.lake.ledger_records import ErasedPart
from headwater.lake.log_erasing import log_matches, log_rows
from headwater.lake.mark import MAIN
from headwater.lake.offset_runs import OFFSET, PARTITION, OffsetRuns
from headwater.lake.retyping import as_type
from headwater.lake.table_erasing import LSN, matches
from headwater.lake.tables import Tables, TableState
from headwater.lake.where import Condition
from headwater.lake.work import Block, Digest
from headwater.metadata.operations import TopicRecord
from headwater.topics.engine import Engine


@dataclass(frozen=True)
class Asked:
    """What is looked for."""

    topic: TopicRecord
    columns: pa.Schema
    """All that a condition may look at, in the types of a table."""
    where: Condition
    lsn_to: int


@dataclass
class Found:
    rows: OffsetRuns = field(default_factory=OffsetRuns)
    parts: list[ErasedPart] = field(default_factory=list)
    strangers: int = 0
    """Rows that match and that no landing brought."""

    def fresh(self, places: pa.Table) -> pa.Table:
        """Those of these rows that are not among the found ones; from now on they are."""
        fresh = places.filter(pa.array(~self.rows.holds(places)))
        self.rows |= OffsetRuns.of_rows(fresh)
        return fresh


def find_in_table(
    tables: Tables, state: TableState, asked: Asked, eras: Sequence[Era], cache: FileCache, found: Found
) -> None:
    """Rows of main's head, with the parts of the landings' digests; `eras` are none of a state table."""
    files = list(matches(state, asked.columns, asked.where, asked.lsn_to, cache))
    # The rows that show come first: of a row that was written anew, what is hidden is not what counts.
    for places, path in [(each.live, each.file.path) for each in files] + [
        (each.hidden, each.file.path) for each in files
    ]:
        nobodys = places.column(OFFSET).is_null()
        found.strangers += pc.sum(nobodys).as_py() or 0
        rows = found.fresh(places.filter(pc.invert(nobodys)))

        def read(target: bytes, era: Era, path: str = path) -> list[pa.Table]:
            return list(read_rewritten_file(target, path, (era.lsn_from, era.lsn_to)))

        found.parts.extend(_parts(tables, state, rows, eras, read))


def find_in_log(
    tables: Tables | None, state: TableState | None, engine: Engine, asked: Asked, eras: Sequence[Era], found: Found
) -> None:
    """Rows of the log that are nowhere else: the topic has no table, or they were taken out of it."""
    rows = found.fresh(log_matches(engine, asked.topic, asked.columns, asked.where, asked.lsn_to))
    if tables is None or state is None:
        return

    def read(target: bytes, era: Era) -> list[pa.Table]:
        return [log_rows(engine, asked.topic, columns_of(target), era.lsn_from, era.lsn_to)]

    found.parts.extend(_parts(tables, state, rows, eras, read))


def _parts(
    tables: Tables,
    state: TableState,
    rows: pa.Table,
    eras: Sequence[Era],
    read: Callable[[bytes, Era], list[pa.Table]],
) -> list[ErasedPart]:
    """What of the landings' digests goes with these rows.  Of landings that overlap the later one counts."""
    parts = []
    for era in reversed(eras):
        lsns = rows.column(LSN)
        of_era = pc.and_(pc.greater(lsns, era.lsn_from), pc.less_equal(lsns, era.lsn_to))
        own = rows.filter(of_era)
        if own.num_rows:
            parts.append(ErasedPart(columns=era.columns, digest=_digest(tables, state, own, era, read)))
            rows = rows.filter(pc.invert(of_era))
    return parts


def _digest(
    tables: Tables, state: TableState, rows: pa.Table, era: Era, read: Callable[[bytes, Era], list[pa.Table]]
) -> Digest:
    places = OffsetRuns.of_rows(rows)
    try:
        target = tables.read_back_target(state, era.snapshot, era.columns)
        columns = columns_of(target)
        # In the types of now until its own rows are told apart: those of a later landing may not fit narrower ones.
        pieces = read(_target_now(tables, state, era, target), era)
        return combine(digest_of(_cast(piece.filter(pa.array(places.holds(piece))), columns)) for piece in pieces)
    except (LandingHalted, CorruptData, InvalidRequest, pa.ArrowInvalid):
        # The table's owner has dropped or renamed a column of this landing: its rows can only be counted.
        return _counted(rows)


def _target_now(tables: Tables, state: TableState, era: Era, otherwise: bytes) -> bytes:
    try:
        return tables.read_back_target(state, state.branches[MAIN], era.columns)
    except LandingHalted:
        return otherwise  # a column of it is no longer in the table, and may still be in its files


def _cast(rows: pa.Table, columns: pa.Schema) -> pa.Table:
    """By their order, which is that of field ids."""
    return pa.table(
        [as_type(column, field.type) for column, field in zip(rows.columns, columns, strict=True)], schema=columns
    )


def _counted(rows: pa.Table) -> Digest:
    """How many rows there are of each block, without their words."""
    blocks = pa.table(
        [rows.column(PARTITION), pc.shift_right(rows.column(OFFSET), BLOCK_BITS)], names=["partition", "block"]
    )
    counted = blocks.group_by(["partition", "block"]).aggregate([([], "count_all")])
    found = zip(
        counted["partition"].to_pylist(), counted["block"].to_pylist(), counted["count_all"].to_pylist(), strict=True
    )
    return Digest(tuple(Block(partition, block, count, 0) for partition, block, count in sorted(found)))
