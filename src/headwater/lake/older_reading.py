"""Rows of a topic's table in the order of the log.

    load the table → is what is wanted in it, all of it → a window of LSNs after the other, each sorted

PROMISE  Rows after one LSN and up to another, each once, in the order of their LSNs and offsets, whatever landings,
         compactions and expiries do meanwhile: a window is read from one snapshot, and where a file of it is gone
         the table is loaded anew and the same window read from its head, which holds the same rows.
         Where the table does not hold what the log has let go of, LandingHalted; where changes of a keyed topic are
         past their retention, Forgotten, but for whoever wants the first that there are.
MEMORY   One window: row_windows.py.
NOT HERE Who asks, and where the log begins: older_rows.py, topics/older.py.  Reading files: table_rows.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import Forgotten, LandingHalted, Unavailable
from headwater.lake.connections import Connections
from headwater.lake.file_cache import FileCache
from headwater.lake.mark import FORGOTTEN
from headwater.lake.marks import standing_of
from headwater.lake.row_windows import WINDOW_BYTES, FileShare, windows
from headwater.lake.shape import OPERATION_COLUMN, SYSTEM_COLUMNS, lake_schema, landing_table
from headwater.lake.table_rows import PartReading, read_part
from headwater.lake.tables import TableState
from headwater.lake.view_plan import TablePart
from headwater.lake.where import Condition, condition
from headwater.metadata.operations import TopicRecord
from headwater.topics.older import OlderRange
from headwater.topics.schema import unpack_schema

Integers = npt.NDArray[np.int64]

BATCH_ROWS = 65_536
_ORDER = ("_hw_lsn", "_hw_partition", "_hw_offset", "_hw_time")
_SYSTEM = pa.schema([SYSTEM_COLUMNS.field(name).with_nullable(True) for name in _ORDER])
_IN_MEMORY = 4
"""How many times larger rows are in memory than in a file."""
_PARTITIONS_NAMED_MAX = 64
"""Files are not chosen by more partitions than these."""
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class OlderReading:
    """Reads from the tables of a catalog."""

    def __init__(self, connections: Connections, window_bytes: int | None = None) -> None:
        self._connections = connections
        self._window_bytes = window_bytes if window_bytes is not None else WINDOW_BYTES
        self._cache = FileCache()

    def read(self, topic: TopicRecord, wanted: OlderRange) -> Iterator[pa.RecordBatch]:
        cache = self._cache
        own = unpack_schema(topic.schemas[-1])
        columns = _columns(topic, pa.schema([own.field(name) for name in wanted.columns]))
        asked = _asked(wanted)
        state = self._load(topic, wanted)
        reached = self._begin(topic, wanted, state)
        while reached < wanted.lsn_to:
            head = state.head()
            assert head is not None, "something has landed"
            try:
                files = cache.files(state, head.snapshot_id).data
                shares = [_share(live.file.file_size_in_bytes, live.bounds(_lsn_id(state)), wanted) for live in files]
                for lsn_from, lsn_to in windows(shares, reached, wanted.lsn_to, window_bytes=self._window_bytes):
                    part = TablePart(state, head.snapshot_id, lsn_from, lsn_to, whole=False, unmarked=False)
                    tables = list(read_part(part, lake_schema(columns), asked, cache))
                    yield from _batches(pa.concat_tables(tables), columns, wanted) if tables else ()
                    reached = lsn_to
            except Unavailable:
                later = self._load(topic, wanted)
                if later.branches == state.branches:
                    raise
                # A compaction or an expiry has replaced files since the table was loaded.
                state = later
                if reached < _forgotten(topic, state):
                    raise _past_retention(topic, state) from None

    # The table ---------------------------------------------------------------------------------

    def _load(self, topic: TopicRecord, wanted: OlderRange) -> TableState:
        """The table now, which holds every row that is wanted."""
        name = landing_table(topic)
        with self._connections.lent() as tables:
            state = tables.load(name)
            landed = 0
            if state is not None:
                loaded = state
                landed = standing_of(
                    loaded,
                    log_id=wanted.log_id,
                    topic_id=topic.topic_id.hex(),
                    max_row_lsn=lambda: tables.max_row_lsn(loaded),
                ).landed_lsn
        if state is None or landed < wanted.lsn_to:
            raise LandingHalted(
                "gap",
                f"the table {name!r} holds rows of {topic.name!r} up to lsn {landed}, and the log has let go of rows "
                f"that had landed up to lsn {wanted.lsn_to}: it was rolled back, replaced or dropped; read from "
                f"hw.Lsn({wanted.lsn_to + 1}) on, or restore it",
                topic=topic.name,
                table=name,
            )
        return state

    def _begin(self, topic: TopicRecord, wanted: OlderRange, state: TableState) -> int:
        """After which LSN the reading begins; Forgotten where rows that are wanted may be gone from the table too."""
        forgotten = _forgotten(topic, state)
        if wanted.lsn_from >= forgotten:
            return wanted.lsn_from
        if not wanted.from_the_first:
            self._check_not_forgotten(topic, wanted, state, forgotten)
        return forgotten

    def _check_not_forgotten(self, topic: TopicRecord, wanted: OlderRange, state: TableState, forgotten: int) -> None:
        """By what is still there: rows before those that are wanted are, or rows may be gone that are wanted."""
        if not wanted.missing and wanted.time_from_us is None:
            raise _past_retention(topic, state)
        head = state.head()
        assert head is not None
        part = TablePart(state, head.snapshot_id, forgotten, wanted.lsn_to, whole=False, unmarked=False)
        found = pa.concat_tables([_SYSTEM.empty_table(), *read_part(part, _SYSTEM, None, self._cache)])
        first_us = pc.min(found["_hw_time"].cast(pa.int64())).as_py()
        if wanted.time_from_us is not None and (first_us is None or first_us >= wanted.time_from_us):
            raise _past_retention(topic, state)
        for partition in sorted(wanted.missing):
            first = pc.min(found.filter(pc.equal(found["_hw_partition"], partition))["_hw_offset"]).as_py()
            assert wanted.offsets is not None
            if first is None or first > wanted.offsets[partition]:
                raise _past_retention(topic, state, partition=partition, first_offset=first)


def _forgotten(topic: TopicRecord, state: TableState) -> int:
    return int(state.properties.get(FORGOTTEN, "0")) if topic.key else 0


def _past_retention(
    topic: TopicRecord, state: TableState, *, partition: int | None = None, first_offset: int | None = None
) -> Forgotten:
    facts = {"partition": partition, "first_offset": first_offset}
    return Forgotten(
        f"changes of {topic.name!r} up to lsn {_forgotten(topic, state)} are past their retention: begin at 'earliest'",
        **{name: value for name, value in facts.items() if value is not None},
    )


# What is asked for -------------------------------------------------------------------------------


def _columns(topic: TopicRecord, own: pa.Schema) -> pa.Schema:
    """What comes out, in the topic's types."""
    operation = [OPERATION_COLUMN] if topic.key else []
    return pa.schema([field.with_nullable(True) for field in (*own, *operation, *_SYSTEM)])


def _asked(wanted: OlderRange) -> Condition | None:
    """By which files and row groups are chosen; what it lets through is looked at again, row by row."""
    parts = []
    partitions = _partitions(wanted)
    if partitions is not None and len(partitions) <= _PARTITIONS_NAMED_MAX:
        parts.append(f"_hw_partition in ({', '.join(str(each) for each in sorted(partitions))})")
    if wanted.offsets:
        parts.append(f"_hw_offset >= {min(wanted.offsets.values())}")
    if wanted.until:
        parts.append(f"_hw_offset < {max(wanted.until.values())}")
    if wanted.time_from_us is not None:
        parts.append(f"_hw_time >= '{_moment(wanted.time_from_us)}'")
    if wanted.time_to_us is not None:
        parts.append(f"_hw_time < '{_moment(wanted.time_to_us)}'")
    return condition(" and ".join(parts), _SYSTEM) if parts else None


def _moment(time_us: int) -> str:
    return (_UNIX_EPOCH + timedelta(microseconds=time_us)).isoformat()


def _partitions(wanted: OlderRange) -> set[int] | None:
    """The partitions that are wanted; None: all of them."""
    named: list[set[int]] = [set(each) for each in (wanted.offsets, wanted.until) if each is not None]
    if wanted.partition is not None:
        named.append({wanted.partition})
    return set.intersection(*named) if named else None


def _share(size_bytes: int, bounds: tuple[int, int] | None, wanted: OlderRange) -> FileShare:
    low, high = bounds if bounds is not None else (wanted.lsn_from + 1, wanted.lsn_to)
    return FileShare(low, max(low, high), size_bytes * _IN_MEMORY)


def _lsn_id(state: TableState) -> int:
    return PartReading(TablePart(state, 0, 0, 0, whole=True), _SYSTEM, None).field_id("_hw_lsn")


# Rows --------------------------------------------------------------------------------------------


def _batches(rows: pa.Table, columns: pa.Schema, wanted: OlderRange) -> Iterator[pa.RecordBatch]:
    """The rows of a window that are wanted, sorted, in the topic's types."""
    lsns, partitions, offsets = (rows[name].to_numpy() for name in _ORDER[:3])
    kept = np.ones(len(lsns), np.bool_)
    if wanted.partition is not None:
        kept &= partitions == wanted.partition
    if wanted.offsets is not None:
        kept &= offsets >= _by_partition(wanted.offsets, partitions, np.iinfo(np.int64).max)
    if wanted.until is not None:
        kept &= offsets < _by_partition(wanted.until, partitions, 0)
    order = np.flatnonzero(kept)
    order = order[np.lexsort((offsets[order], lsns[order]))]
    for start in range(0, len(order), BATCH_ROWS):
        taken = rows.take(pa.array(order[start : start + BATCH_ROWS])).combine_chunks()
        arrays = [taken[field.name].combine_chunks().cast(field.type) for field in columns]
        yield pa.RecordBatch.from_arrays(arrays, schema=columns)


def _by_partition(numbers: Mapping[int, int], partitions: Integers, otherwise: int) -> Integers:
    """For each row the number of its partition."""
    known = np.full(max([*numbers, int(partitions.max(initial=0))]) + 1, otherwise, np.int64)
    known[list(numbers)] = list(numbers.values())
    found: Integers = known[partitions]
    return found
