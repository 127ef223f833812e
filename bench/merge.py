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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from bench._keyed import (
    CHANGED,
    DELETED,
    TABLE,
    TOPIC,
    changes_of,
    check_equal,
    keyed_topic,
    make_twin,
    merge,
    write_source,
    written_bytes,
)
from bench._lake import SCHEMA, BenchLake, lake, spark_on_two_cores
from bench._place import GIB, machine, median, place
from bench.report import Report
from headwater.lake.state_table import MergeMode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MILLION = 1_000_000
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
        topic = keyed_topic(own, keys)
        loaded = merge(own, mode)
        figures[f"{name}_first_merge_s"] = loaded.seconds
        make_twin(own)
        ours: list[float] = []
        bare: list[float] = []
        written: dict[str, list[float]] = {"ours": [], "bare": []}
        for number in range(rounds + 1):
            changes, deleted = changes_of(keys, number)
            topic.upsert(changes)
            topic.delete(pa.table({"id": deleted}))
            own.land(TOPIC)
            source = directory / f"{name}-{number}.parquet"
            size = write_source(source, changes, deleted)
            sides = [(ours, partial(_timed_merge, own, mode)), (bare, partial(_bare_merge, own, source))]
            # Each goes first by turns.
            for seconds, side in sides if number % 2 == 0 else reversed(sides):
                seconds.append(side())
            for kind, table in (("ours", TABLE), ("bare", "bench.twin")):
                written[kind].append(written_bytes(own, table) / size)
        # The first round compiles what the others run.
        figures[f"{name}_merge_s"] = median(ours[1:])
        figures[f"{name}_bare_merge_s"] = median(bare[1:])
        figures[f"{name}_times_bare"] = median([a / b for a, b in zip(ours[1:], bare[1:], strict=True)])
        figures[f"{name}_written_times_changes"] = median(written["ours"][1:])
        figures[f"{name}_bare_written_times_changes"] = median(written["bare"][1:])
        check_equal(own)


def _timed_merge(own: BenchLake, mode: MergeMode) -> float:
    return merge(own, mode).seconds


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
