"""A keyed topic and changes of some of its keys, for benches that merge."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import headwater as hw
from bench._lake import ROWS_PER_APPEND, SCHEMA, BenchLake, batch_of
from headwater.clock import SystemClock, system_entropy
from headwater.lake.state_table import MergeMode
from headwater.spark.merge import TopicMerge, merge_topic

CHANGED = 0.01
DELETED = 0.1
"""Of the changed keys."""
TOPIC = "customers"
TABLE = f"bench.{TOPIC}"


def keyed_topic(own: BenchLake, keys: int) -> hw.Topic:
    """A topic with so many keys, landed."""
    topic = own.log.topic(TOPIC, schema=SCHEMA, key="id", table=TABLE)
    for first in range(0, keys, ROWS_PER_APPEND):
        topic.upsert(batch_of(first, min(ROWS_PER_APPEND, keys - first)))
    own.land(TOPIC)
    return topic


def changes_of(keys: int, seed: int) -> tuple[pa.RecordBatch, pa.Array]:
    """The rows that are upserted, and the keys that are deleted: none of them twice."""
    chosen = np.random.default_rng(seed).choice(keys, round(keys * CHANGED), replace=False)
    deletes = round(len(chosen) * DELETED)
    rows = batch_of(keys * (seed + 1), len(chosen) - deletes)
    place_of_key = rows.schema.get_field_index("id")
    rows = rows.set_column(place_of_key, SCHEMA.field("id"), pa.array(chosen[deletes:]))
    return rows, pa.array(chosen[:deletes])


def write_source(path: Path, changes: pa.RecordBatch, deleted: pa.Array) -> int:
    """The same changes as one Parquet file; its bytes."""
    nullable = pa.schema([field.with_nullable(True) for field in SCHEMA])
    upserts = pa.table(changes).cast(nullable).append_column("op", pa.array(["U"] * changes.num_rows))
    deletes = pa.table({"id": deleted, "op": pa.array(["D"] * len(deleted))})
    pq.write_table(pa.concat_tables([upserts, deletes], promote_options="permissive"), path, compression="zstd")
    return path.stat().st_size


def merge(own: BenchLake, mode: MergeMode) -> TopicMerge:
    """Headwater's own: the changes that have landed into the state table."""
    merged = merge_topic(
        own.spark, own.catalog, own.place, own.record(TOPIC), own._lake.ledger, SystemClock(), system_entropy, mode
    )
    assert merged.outcome == "merged", merged
    return merged


def make_twin(own: BenchLake, columns: str = "*") -> None:
    """A table of the same rows, these columns and the same properties, in files of the same number."""
    with closing(own.place.connect()) as tables:
        state = tables.load(TABLE)
    assert state is not None
    wanted = {
        name: value
        for name, value in state.properties.items()
        if name.startswith(("write.", "commit.")) and (columns == "*" or "_hw_" not in name)
    }
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in wanted.items())
    files: int = own.spark.sql(f"SELECT count(*) AS n FROM {own.catalog}.{TABLE}.files").collect()[0]["n"]
    own.spark.sql(
        f"CREATE TABLE {own.catalog}.bench.twin USING iceberg TBLPROPERTIES ('format-version' = '2', {properties}) "
        f"AS SELECT /*+ REPARTITION({files}) */ {columns} FROM {own.catalog}.{TABLE}"
    ).collect()


def written_bytes(own: BenchLake, table: str) -> int:
    """What the newest snapshot added, data and deletes."""
    with closing(own.place.connect()) as tables:
        state = tables.load(table)
    assert state is not None
    head: Any = state.head()
    return int(head.summary.get("added-files-size", "0"))


def check_equal(own: BenchLake) -> None:
    """The state table and its twin have come to the same rows."""
    columns = ", ".join(SCHEMA.names)
    ours, twin = f"{own.catalog}.{TABLE}", f"{own.catalog}.bench.twin"
    for one, other in ((ours, twin), (twin, ours)):
        statement = f"SELECT {columns} FROM {one} EXCEPT ALL SELECT {columns} FROM {other} LIMIT 1"
        assert not own.spark.sql(statement).collect(), f"{one} has rows that {other} has not"
