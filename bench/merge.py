"""What does merging the changes of a keyed topic cost beside a bare MERGE INTO of the same rows?

MERGE    1 million keys of about 128 bytes, 1 % of them changed, at random, one tenth of those deleted.  In turn: ours,
         from the landed changes into the state table, on a branch that main is moved to; and Spark's own MERGE INTO,
         from Parquet with one row a key, into a table of the same rows, columns and properties.
WRITTEN  The bytes of data and delete files that each has written, in times of the bytes of the changed rows as Parquet.
MODES    Copy-on-write writes every file anew that a changed key is in; merge-on-read writes the changes alone.

There is no bar: what a merge writes is decided by where the changed keys lie.
"""

from __future__ import annotations

import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench._lake import ROWS_PER_APPEND, SCHEMA, BenchLake, batch_of, lake, spark_on_two_cores
from bench._place import GIB, machine, median, place
from bench.report import Report
from headwater.clock import SystemClock, system_entropy
from headwater.lake.state_table import MergeMode
from headwater.spark.merge import TopicMerge, merge_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MILLION = 1_000_000
CHANGED = 0.01
DELETED = 0.1
"""Of the changed keys."""
MODES: tuple[MergeMode, ...] = ("copy-on-write", "merge-on-read")


def run(quick: bool) -> Report:
    keys = MILLION // 10 if quick else MILLION
    rounds = 2 if quick else 5
    figures: dict[str, float] = {}
    with place((1 if quick else 8) * GIB) as directory, spark_on_two_cores() as spark:
        for mode in MODES:
            _mode(directory, spark, mode, keys, rounds, figures)
    return Report(
        bench="merge",
        settings={"keys": keys, "changed_share": CHANGED, "deleted_share": DELETED, "rounds": rounds, **machine()},
        figures=figures,
    )


def _mode(
    directory: Path, spark: SparkSession, mode: MergeMode, keys: int, rounds: int, figures: dict[str, float]
) -> None:
    name = mode.replace("-", "_")
    with lake(directory / name, spark) as own:
        topic = own.log.topic("customers", schema=SCHEMA, key="id", table="bench.customers")
        for first in range(0, keys, ROWS_PER_APPEND):
            topic.upsert(batch_of(first, min(ROWS_PER_APPEND, keys - first)))
        own.land("customers")
        loaded = _merge(own, mode)
        figures[f"{name}_first_merge_s"] = loaded.seconds
        _twin(own)
        ours: list[float] = []
        bare: list[float] = []
        written: dict[str, list[float]] = {"ours": [], "bare": []}
        for number in range(rounds + 1):
            changes, deleted = _changes(keys, number)
            topic.upsert(changes)
            topic.delete(pa.table({"id": deleted}))
            own.land("customers")
            source = directory / f"{name}-{number}.parquet"
            size = _write_source(source, changes, deleted)
            sides = [(ours, partial(_timed_merge, own, mode)), (bare, partial(_bare_merge, own, source))]
            # Each goes first by turns.
            for seconds, side in sides if number % 2 == 0 else reversed(sides):
                seconds.append(side())
            for kind, table in (("ours", "bench.customers"), ("bare", "bench.twin")):
                written[kind].append(_written_bytes(own, table) / size)
        # The first round compiles what the others run.
        figures[f"{name}_merge_s"] = median(ours[1:])
        figures[f"{name}_bare_merge_s"] = median(bare[1:])
        figures[f"{name}_times_bare"] = median([a / b for a, b in zip(ours[1:], bare[1:], strict=True)])
        figures[f"{name}_written_times_changes"] = median(written["ours"][1:])
        figures[f"{name}_bare_written_times_changes"] = median(written["bare"][1:])
        _check_equal(own)


def _changes(keys: int, seed: int) -> tuple[pa.RecordBatch, pa.Array]:
    """The rows that are upserted, and the keys that are deleted: none of them twice."""
    chosen = np.random.default_rng(seed).choice(keys, round(keys * CHANGED), replace=False)
    deletes = round(len(chosen) * DELETED)
    rows = batch_of(keys * (seed + 1), len(chosen) - deletes)
    place_of_key = rows.schema.get_field_index("id")
    rows = rows.set_column(place_of_key, SCHEMA.field("id"), pa.array(chosen[deletes:]))
    return rows, pa.array(chosen[:deletes])


def _write_source(path: Path, changes: pa.RecordBatch, deleted: pa.Array) -> int:
    """The same changes as one Parquet file; its bytes."""
    nullable = pa.schema([field.with_nullable(True) for field in SCHEMA])
    upserts = pa.table(changes).cast(nullable).append_column("op", pa.array(["U"] * changes.num_rows))
    deletes = pa.table({"id": deleted, "op": pa.array(["D"] * len(deleted))})
    pq.write_table(pa.concat_tables([upserts, deletes], promote_options="permissive"), path, compression="zstd")
    return path.stat().st_size


def _merge(own: BenchLake, mode: MergeMode) -> TopicMerge:
    merged = merge_topic(
        own.spark,
        own.catalog,
        own.place,
        own.record("customers"),
        own._lake.ledger,
        SystemClock(),
        system_entropy,
        mode,
    )
    assert merged.outcome == "merged", merged
    return merged


def _timed_merge(own: BenchLake, mode: MergeMode) -> float:
    return _merge(own, mode).seconds


def _twin(own: BenchLake) -> None:
    """A table of the same rows, columns and properties, in files of the same number."""
    with closing(own.place.connect()) as tables:
        state = tables.load("bench.customers")
    assert state is not None
    wanted = {name: value for name, value in state.properties.items() if name.startswith(("write.", "commit."))}
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in wanted.items())
    files: int = own.spark.sql(f"SELECT count(*) AS n FROM {own.catalog}.bench.customers.files").collect()[0]["n"]
    own.spark.sql(
        f"CREATE TABLE {own.catalog}.bench.twin USING iceberg TBLPROPERTIES ('format-version' = '2', {properties}) "
        f"AS SELECT /*+ REPARTITION({files}) */ * FROM {own.catalog}.bench.customers"
    ).collect()


def _bare_merge(own: BenchLake, source: Path) -> float:
    columns = SCHEMA.names
    begun = time.perf_counter()
    own.spark.read.parquet(str(source)).createOrReplaceTempView("changes")
    own.spark.sql(
        f"""
        MERGE INTO {own.catalog}.bench.twin AS t USING changes AS s ON t.id = s.id
        WHEN MATCHED AND s.op = 'D' THEN DELETE
        WHEN MATCHED THEN UPDATE SET {", ".join(f"t.{name} = s.{name}" for name in columns)}
        WHEN NOT MATCHED AND s.op = 'U' THEN
            INSERT ({", ".join(columns)}, _hw_shard, _hw_lsn, _hw_partition, _hw_offset, _hw_time)
            VALUES ({", ".join(f"s.{name}" for name in columns)}, 0, 0, 0, 0, current_timestamp())
        """
    ).collect()
    return time.perf_counter() - begun


def _written_bytes(own: BenchLake, table: str) -> int:
    """What the newest snapshot added, data and deletes."""
    with closing(own.place.connect()) as tables:
        state = tables.load(table)
    assert state is not None
    head: Any = state.head()
    return int(head.summary.get("added-files-size", "0"))


def _check_equal(own: BenchLake) -> None:
    """Both have come to the same rows."""
    columns = ", ".join(SCHEMA.names)
    ours, twin = f"{own.catalog}.bench.customers", f"{own.catalog}.bench.twin"
    for one, other in ((ours, twin), (twin, ours)):
        statement = f"SELECT {columns} FROM {one} EXCEPT ALL SELECT {columns} FROM {other} LIMIT 1"
        assert not own.spark.sql(statement).collect(), f"{one} has rows that {other} has not"
