"""What a snapshot of a table holds, measured: digests by block, live rows, and the rows of one block by offset.

    Measure        the seam: one digest of rows of a snapshot, over columns and LSNs; Spark has one of its own
    LocalMeasure   the same here, file by file
    SnapshotLook   what the files of a snapshot say of themselves, and the rows of one block for who wants names

PROMISE  Columns are found by field id and are compared in the types in which they landed, so a column that was renamed,
         widened or moved since has the digest that it had.
         Every row that a query of the snapshot shows is counted, and no other: delete files are applied.
NOT HERE What is expected: audit_plan.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from headwater.errors import Unavailable
from headwater.lake.audit_plan import Place, Range
from headwater.lake.data_files import arrow_type
from headwater.lake.digest import BLOCK_BITS, combine, digest_of
from headwater.lake.digest_words import row_words
from headwater.lake.file_cache import FileCache, LiveFile
from headwater.lake.fitting import field_of, spelled
from headwater.lake.latest import latest_of
from headwater.lake.retyping import as_type
from headwater.lake.table_rows import PartReading
from headwater.lake.tables import TableState
from headwater.lake.view_plan import TablePart
from headwater.lake.work import Column, Digest

LSN, PARTITION, OFFSET, OPERATION = "_hw_lsn", "_hw_partition", "_hw_offset", "_hw_op"
NAMING = (LSN, PARTITION, OFFSET)
"""Without these columns no row of a table can be named."""
_PLAIN = pa.schema([pa.field(LSN, pa.int64()), pa.field(PARTITION, pa.int32()), pa.field(OFFSET, pa.int64())])
FILES_AT_ONCE = 4
EXISTENCE_AT_ONCE = 16

Integers = npt.NDArray[np.int64]
Given = TypeVar("Given")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Asked:
    """Which rows are to be digested, over which columns."""

    state: TableState
    snapshot_id: int
    columns: tuple[Column, ...]
    """By field id: names as the table has them now, types as they were landed."""
    ranges: tuple[Range, ...]
    """Rows with an LSN after the first and up to the second of any of these."""
    latest_of: tuple[str, ...] = ()
    """A key: of these rows only the last change of each key, by LSN and offset, and no deletes."""


class Measure(Protocol):
    def digest(self, asked: Asked) -> Digest:
        """The digest by block.  Unavailable where it cannot be had."""
        ...


@dataclass(frozen=True)
class BlockRows:
    """Rows of one block, in no order."""

    lsns: Integers
    offsets: Integers
    words: npt.NDArray[np.uint64] | None
    """Over the columns that were asked for."""


@dataclass(frozen=True)
class Strays:
    """Rows whose LSN is that of no landing."""

    partitions: Integers
    offsets: Integers
    lsns: Integers
    unmarked: int = 0
    """So many have no LSN at all."""

    @classmethod
    def none(cls) -> Strays:
        return cls(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))

    @property
    def places(self) -> set[Place]:
        return set(zip(self.partitions.tolist(), (self.offsets >> BLOCK_BITS).tolist(), strict=True))


class SnapshotLook:
    """The files of one snapshot; those that are gone are told by name and then passed over."""

    def __init__(
        self, state: TableState, snapshot_id: int | None, cache: FileCache, *, look_for_files: bool = True
    ) -> None:
        self.state = state
        self.snapshot_id = snapshot_id
        found = cache.files(state, snapshot_id).data if snapshot_id is not None else ()
        gone = _several(self._missing, found, EXISTENCE_AT_ONCE) if look_for_files else [None] * len(found)
        self.files = tuple(live for live, missing in zip(found, gone, strict=True) if missing is None)
        self.lost = tuple((live, missing) for live, missing in zip(found, gone, strict=True) if missing is not None)
        """Data files of which they, or a delete file of theirs, are not there; and the path of what is not."""

    @cached_property
    def table(self) -> Table:
        assert isinstance(self.state.native, Table), "a table of pyiceberg"
        return self.state.native

    def _missing(self, live: LiveFile) -> str | None:
        paths = (live.path, *(delete.file_path for delete in live.deletes))
        try:
            return next((path for path in paths if not self.table.io.new_input(path).exists()), None)
        except OSError as error:
            raise Unavailable(f"the files of {self.state.name!r} cannot be looked at", cause=str(error)) from error

    # Columns -----------------------------------------------------------------------------------

    @cached_property
    def _fields(self) -> dict[int, str]:
        return {field.field_id: field.name for field in self.table.schema().fields}

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(self._fields.values())

    def now(self, columns: Sequence[Column]) -> tuple[tuple[Column, ...], tuple[str, ...]]:
        """These columns under the names that the table has for them now; and the names of those that it dropped."""
        there = [column for column in columns if column.field_id in self._fields]
        renamed = tuple(Column(each.field_id, self._fields[each.field_id], each.type) for each in there)
        gone = [column.name or f"field {column.field_id}" for column in columns if column.field_id not in self._fields]
        return tuple(sorted(renamed, key=lambda column: column.field_id)), tuple(gone)

    def naming_columns(self) -> tuple[Column, ...]:
        """The columns by which rows are named: enough to count them."""
        fields = [field for field in self.table.schema().fields if field.name in NAMING]
        return tuple(Column(field.field_id, field.name, spelled(field.field_type)) for field in fields)

    def typed(
        self, columns: Sequence[Column], snapshot_id: int, topic_names: frozenset[str]
    ) -> list[tuple[Column, ...]]:
        """Columns of which only the field ids are known, in every type that the table has had for them: the one of
        their own snapshot, if it is still there.  Of all names that they have had, those that the topic knows."""
        ever = {field.field_id: field.name for schema in self.table.metadata.schemas for field in schema.fields}
        for schema in self.table.metadata.schemas:
            ever.update({field.field_id: field.name for field in schema.fields if field.name in topic_names})
        schemas = {schema.schema_id: schema for schema in self.table.metadata.schemas}
        snapshot = self.table.metadata.snapshot_by_id(snapshot_id)
        own = snapshot.schema_id if snapshot is not None else None
        order = [own] if own in schemas else sorted(schemas, reverse=True)
        found: dict[tuple[str, ...], tuple[Column, ...]] = {}
        for schema_id in order:
            assert schema_id is not None
            fields = {field.field_id: field for field in schemas[schema_id].fields}
            if all(column.field_id in fields for column in columns):
                typed = tuple(
                    Column(each.field_id, ever[each.field_id], spelled(fields[each.field_id].field_type))
                    for each in columns
                )
                found.setdefault(tuple(each.type for each in typed), typed)
        return list(found.values())

    # Rows --------------------------------------------------------------------------------------

    def field_id(self, name: str) -> int:
        return next((field_id for field_id, own in self._fields.items() if own == name), -1)

    def live_rows(self) -> int:
        """How many rows the files show."""
        plain = sum(int(live.file.record_count) for live in self.files if not live.deletes)
        with_deletes = [live for live in self.files if live.deletes]
        return plain + sum(self.rows(with_deletes, _PLAIN, lambda rows: int(rows.num_rows)))

    def lsns_in(self, live: LiveFile) -> Range:
        """The LSNs that a file may hold; all where it does not say."""
        bounds = live.bounds(self.field_id(LSN))
        return (bounds[0] - 1, bounds[1]) if bounds is not None else (-1, 1 << 62)

    def rows(self, files: Sequence[LiveFile], columns: pa.Schema, act: Callable[[pa.Table], Answer]) -> list[Answer]:
        """What becomes of the rows of these files, table by table."""
        if self.snapshot_id is None:
            return []
        whole = TablePart(self.state, self.snapshot_id, 0, 0, whole=True)
        reading = PartReading(whole, columns, None)
        found = _several(lambda live: [act(rows) for rows in reading.read(live)], files, FILES_AT_ONCE)
        return [answer for answers in found for answer in answers]

    def outside(self, ranges: Sequence[Range]) -> Strays:
        """The rows that have an LSN in none of these ranges, and how many have none."""

        def act(rows: pa.Table) -> pa.Table:
            return rows.filter(pa.array(~within(_lsns(rows), ranges)))

        found = pa.concat_tables([_PLAIN.empty_table(), *self.rows(self.files, _PLAIN, act)])
        marked = found.filter(pc.is_valid(found[LSN]))
        return Strays(
            marked[PARTITION].fill_null(-1).to_numpy(),
            marked[OFFSET].fill_null(-1).to_numpy(),
            marked[LSN].to_numpy(),
            found.num_rows - marked.num_rows,
        )

    def schema_now(self, columns: Sequence[Column]) -> pa.Schema:
        """These columns in the types that the table has for them now: every row of it can be read so."""
        fields = {field.name: field.field_type for field in self.table.schema().fields}
        return pa.schema([pa.field(column.name, arrow_type(fields[column.name])) for column in columns])

    def block(self, place: Place, columns: Sequence[Column] | None, offsets: Integers | None = None) -> BlockRows:
        """The rows of a block, whatever their LSNs, with their words over these columns; only those of some offsets,
        where they are given: others may hold values that the types of these columns do not."""
        partition, number = place
        first, last = number << BLOCK_BITS, ((number + 1) << BLOCK_BITS) - 1
        files = [live for live in self.files if self._may_hold(live, first, last)]
        wanted = _PLAIN if columns is None else self.schema_now(columns)

        def act(rows: pa.Table) -> BlockRows:
            of_block = pc.and_(pc.greater_equal(rows[OFFSET], first), pc.less_equal(rows[OFFSET], last))
            if offsets is not None:
                of_block = pc.and_(of_block, pc.is_in(rows[OFFSET], pa.array(offsets)))
            kept = rows.filter(pc.and_(pc.equal(rows[PARTITION], partition), of_block))
            if columns is None:
                return block_rows(kept, words=False)
            return block_rows(as_landed(kept, columns), words=True)

        return joined(self.rows(files, wanted, act))

    def _may_hold(self, live: LiveFile, first: int, last: int) -> bool:
        bounds = live.bounds(self.field_id(OFFSET))
        return bounds is None or (bounds[0] <= last and bounds[1] >= first)


class Looks:
    """Looks at snapshots, each taken once in an audit."""

    def __init__(self) -> None:
        self.cache = FileCache()
        self._taken: dict[tuple[str, int | None], SnapshotLook] = {}

    def at(self, state: TableState, snapshot_id: int | None) -> SnapshotLook:
        key = state.uuid, snapshot_id
        if key not in self._taken:
            self._taken[key] = SnapshotLook(state, snapshot_id, self.cache)
        return self._taken[key]


class LocalMeasure:
    """Digests of what a look shows."""

    def __init__(self, look: Callable[[TableState, int], SnapshotLook]) -> None:
        self._look = look

    def digest(self, asked: Asked) -> Digest:
        look = self._look(asked.state, asked.snapshot_id)
        files = [live for live in look.files if meets(look.lsns_in(live), asked.ranges)]
        if asked.latest_of:
            return self._latest(look, files, asked)

        def act(rows: pa.Table) -> Digest:
            # Cut before it is cast: later rows may hold what the types of these did not.
            return digest_of(as_landed(_inside(rows, asked.ranges), asked.columns))

        return combine(look.rows(files, look.schema_now(asked.columns), act))

    @staticmethod
    def _latest(look: SnapshotLook, files: Sequence[LiveFile], asked: Asked) -> Digest:
        latest = latest_changes(look, files, asked.columns, asked.ranges, asked.latest_of)
        return digest_of(latest.filter(pc.equal(latest[OPERATION], "U")).drop_columns([OPERATION]))


def latest_changes(
    look: SnapshotLook,
    files: Sequence[LiveFile],
    columns: Sequence[Column],
    ranges: Sequence[Range],
    key: Sequence[str],
) -> pa.Table:
    """Of changes the last of each key, in these columns and `_hw_op`."""
    with_operation = (*columns, Column(-1, OPERATION, "string"))
    changes = look.rows(
        files, look.schema_now(with_operation), lambda rows: as_landed(_inside(rows, ranges), with_operation)
    )
    none = arrow_columns(with_operation).empty_table()
    return latest_of(pa.concat_tables([none, *changes], promote_options="permissive"), key)


def arrow_columns(columns: Sequence[Column]) -> pa.Schema:
    """These columns, in their order, as rows are read."""
    return pa.schema([pa.field(column.name, arrow_type(field_of(column).field_type)) for column in columns])


def as_landed(rows: pa.Table, columns: Sequence[Column]) -> pa.Table:
    """The rows in the types in which they landed.  Whole numbers and floats have the same words in every width; a value
    that does not fit a narrower decimal was never landed, and keeps the type by which that shows."""
    for place, column in enumerate(columns):
        now, landed = rows.schema.field(place).type, arrow_type(field_of(column).field_type)
        if now.equals(landed) or (_is_number(now) and _is_number(landed)):
            continue
        try:
            rows = rows.set_column(place, column.name, as_type(rows.column(place), landed))
        except pa.ArrowInvalid:
            continue
    return rows


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_))


def block_rows(rows: pa.Table, *, words: bool) -> BlockRows:
    """LSNs, offsets and words of rows."""
    batches = [batch for batch in rows.to_batches() if batch.num_rows] if words else []
    return BlockRows(
        _lsns(rows),
        rows[OFFSET].to_numpy(),
        (np.concatenate([row_words(batch) for batch in batches]) if batches else np.empty(0, np.uint64))
        if words
        else None,
    )


def joined(parts: Sequence[BlockRows]) -> BlockRows:
    """All of these rows."""
    if not parts:
        return BlockRows(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint64))
    words = [part.words for part in parts if part.words is not None]
    return BlockRows(
        np.concatenate([part.lsns for part in parts]),
        np.concatenate([part.offsets for part in parts]),
        np.concatenate(words) if words else None,
    )


def _inside(rows: pa.Table, ranges: Sequence[Range]) -> pa.Table:
    inside = within(_lsns(rows), ranges)
    return rows if inside.all() else rows.filter(pa.array(inside))


def _lsns(rows: pa.Table) -> Integers:
    lsns: Integers = rows[LSN].fill_null(-1).to_numpy()
    return lsns


def within(lsns: Integers, ranges: Sequence[Range]) -> npt.NDArray[np.bool_]:
    """Which of these LSNs are in one of the ranges, which are in order and apart."""
    firsts = np.array([first for first, _ in ranges], np.int64)
    lasts = np.array([last for _, last in ranges], np.int64)
    places = np.searchsorted(firsts, lsns, side="left") - 1
    return (places >= 0) & (lsns <= lasts[places]) if len(ranges) else np.zeros(len(lsns), bool)


def meets(lsns: Range, ranges: Sequence[Range]) -> bool:
    return any(lsns[0] < last and lsns[1] > first for first, last in ranges)


def _several(act: Callable[[Given], Answer], given: Sequence[Given], at_once: int) -> list[Answer]:
    if len(given) <= 1:
        return [act(each) for each in given]
    with ThreadPoolExecutor(at_once, thread_name_prefix="headwater-audit") as pool:
        return list(pool.map(act, given))
