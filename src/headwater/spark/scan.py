"""A scan as a DataFrame: landed rows by Iceberg's own reader at the cut's snapshots, the log's tail beside them.

    table     SELECT ... FROM <table> VERSION AS OF <snapshot>: the scan's columns and condition, and whatever a query
              asks besides, reach Iceberg, and what it does not need is not read
    tail      tasks read bytes of segments, and give the rows that fulfil the condition (mapInArrow: on a cluster, on
              Spark 3.5 and later, and through Spark Connect)
    keyed     the state without the keys that changed since, by an anti-join, and of the changes the latest of each key

TYPES    Those of the topic's table, as `format("headwater")` has them too: an int8 is an int.
PIN      The scan, and with it what it holds, lives for as long as the DataFrame or one that was made from it; a frame
         that takes it in beside others (`other.join(frame)`, a view that is named in SQL) does not hold it in classic
         Spark: keep the DataFrame, or the scan, until the query is done.
NOT HERE Which snapshots and which LSNs: lake/view_plan.py.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812  as everybody names it
from pyspark.sql.pandas.types import to_arrow_schema

from headwater.lake.scan import Scan
from headwater.lake.shape import OPERATION_COLUMN
from headwater.lake.snapshot_columns import names_in_snapshot
from headwater.lake.view_plan import TablePart
from headwater.lake.where import Condition
from headwater.lake.where_sql import sql_of
from headwater.spark.merge_sql import quoted
from headwater.spark.session import catalog_table, check_session
from headwater.spark.source_pieces import Piece, TopicPieces
from headwater.spark.source_rows import Shape, read_piece, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LSN, _OFFSET, _AGE = "_hw_lsn", "_hw_offset", "_hw_age"
_BROADCAST_BYTES_MAX = 32 * 1024 * 1024


def to_spark(scan: Scan, spark: SparkSession) -> DataFrame:
    """The rows of a scan as a DataFrame of this session; InvalidRequest names what the session lacks."""
    return _ScanFrame(scan, spark).frame()


@dataclass(frozen=True)
class _ScanFrame:
    scan: Scan
    spark: SparkSession

    @cached_property
    def _catalog(self) -> str:
        lake = self.scan.views.lake
        return check_session(self.spark, lake.place, lake.spark_catalog)

    def frame(self) -> DataFrame:
        self.scan.check_open()
        parts = self._latest() if self.scan.topic.key else self._rows()
        names = [quoted(name) for name in self.scan.schema.names]
        found = [part.select(*names) for part in parts]
        if not found:
            found = [self._nothing().select(*names)]
        return _holding(self.scan, reduce(lambda one, other: one.unionByName(other), found))

    def _nothing(self) -> DataFrame:
        fields = spark_schema(self.scan.wanted.read())
        return self.spark.range(0).select(*(F.lit(None).cast(each.dataType).alias(each.name) for each in fields))

    def _rows(self) -> Iterator[DataFrame]:
        read = self.scan.wanted.read()
        whole = self.scan.wanted.conditions[0]
        for part in self.scan.plan.tables:
            yield self._part(part, read, whole)
        yield from self._tail(read, whole)

    def _latest(self) -> Iterator[DataFrame]:
        """One row a key."""
        wanted = self.scan.wanted
        whole, of_key = wanted.conditions
        key = self.scan.topic.key
        read = wanted.read(*key, _LSN, _OFFSET, OPERATION_COLUMN.name)
        base = self.scan.plan.base
        if base is not None:
            columns = pa.schema([field for field in read if field.name != OPERATION_COLUMN.name])
            state = self._part(base, columns, whole)
            changed = self._changes(pa.schema([read.field(name) for name in (*key, _LSN)]), of_key)
            yield state if changed is None else _without(state, changed, key, large=self._has_a_large_tail)
        changes = self._changes(read, of_key)
        if changes is not None:
            age = F.row_number().over(
                Window.partitionBy(*map(quoted, key)).orderBy(F.col(_LSN).desc(), F.col(_OFFSET).desc())
            )
            latest = changes.withColumn(_AGE, age).where(f"{_AGE} = 1 AND _hw_op = 'U'")
            yield latest if whole is None else latest.where(sql_of(whole, wanted.lake))

    def _changes(self, columns: pa.Schema, where: Condition | None) -> DataFrame | None:
        # A row of a change table that no landing brought is no change: it has no LSN.
        landed = [self._part(part, columns, where).where(f"{_LSN} > 0") for part in self.scan.plan.tables]
        found = [*landed, *self._tail(columns, where)]
        return reduce(lambda one, other: one.unionByName(other), found) if found else None

    # The table ---------------------------------------------------------------------------------

    def _part(self, part: TablePart, columns: pa.Schema, where: Condition | None) -> DataFrame:
        """Rows of a snapshot in these columns, by the names that they had in it; the condition looks at no others."""
        stored = names_in_snapshot(part.state, part.snapshot_id, columns.names)
        table = catalog_table(self._catalog, part.state.name)
        frame = self.spark.sql(f"SELECT * FROM {table} VERSION AS OF {part.snapshot_id}")
        if not part.whole:
            frame = frame.where(between(part))
        frame = frame.select(
            *(
                # Where a column has its type already, the optimizer takes the cast away again.
                (F.lit(None) if name is None else F.col(quoted(name))).cast(field.dataType).alias(field.name)
                for name, field in zip(stored, spark_schema(columns), strict=True)
            )
        )
        return frame if where is None else frame.where(sql_of(where, self.scan.wanted.lake))

    # The log -----------------------------------------------------------------------------------

    @cached_property
    def _pieces(self) -> list[tuple[Piece, ...]]:
        return TopicPieces(self.scan.views.source, self.scan.topic).between(*self.scan.plan.tail)

    @property
    def _has_a_large_tail(self) -> bool:
        return sum(piece.bytes for pieces in self._pieces for piece in pieces) > _BROADCAST_BYTES_MAX

    def _tail(self, columns: pa.Schema, where: Condition | None) -> Iterator[DataFrame]:
        """The rows of the log in these columns, if there are any; the condition looks at no others."""
        if self._pieces:
            given = spark_schema(columns)
            shape = Shape(to_arrow_schema(given), columns, where.expression if where is not None else None)
            task = _tail_task(self._pieces, shape, self.scan.topic.name)
            yield self.spark.range(0, len(self._pieces), 1, len(self._pieces)).mapInArrow(task, given)


def between(part: TablePart) -> str:
    """The LSNs of a part, as SQL."""
    if part.unmarked:
        return f"({_LSN} <= {part.lsn_to} OR {_LSN} IS NULL)"
    return f"({_LSN} > {part.lsn_from} AND {_LSN} <= {part.lsn_to})"


def _tail_task(pieces: Sequence[tuple[Piece, ...]], shape: Shape, topic: str) -> Any:
    def read_tail(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for piece in pieces[number]:
                    yield from read_piece(piece, topic, shape)

    return read_tail


def _without(state: DataFrame, changed: DataFrame, key: Sequence[str], *, large: bool) -> DataFrame:
    """The state without the keys that changed.  Spark takes what tasks give for small and would send it to everybody:
    it is told where that is not so."""
    names = [f"_hw_key{place}" for place in range(len(key))]
    keys = changed.select(*(F.col(quoted(own)).alias(name) for own, name in zip(key, names, strict=True)))
    equal = reduce(
        lambda one, other: one & other,
        (F.col(quoted(own)) == F.col(name) for own, name in zip(key, names, strict=True)),
    )
    return state.join(keys.hint("merge") if large else keys, equal, "left_anti")


def _holding(scan: Scan, frame: DataFrame) -> DataFrame:
    """The frame, so that it and what is made from it hold the scan."""
    any_frame: Any = frame
    if type(frame).__module__.startswith("pyspark.sql.connect"):
        # Plans there are Python's own, and name those that they are made from.
        any_frame._plan._headwater_scan = scan
    else:
        # What is made from a frame has no way back to it, but has its session: one of its own, for the same Spark.
        session = copy.copy(any_frame.sparkSession)
        session._headwater_scan = scan
        any_frame._session = session
    return frame
