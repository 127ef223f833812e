"""One in a hundred keys has changed: how long until the table of current rows has it, and how much is written for it?

A table of keys and rows of about 128 bytes; 1 % of the keys changed, at random, one tenth of those deleted.  In turn:

HEADWATER  the changes are appended and landed in the change table; then `merge`, on a branch that main is moved to
SPARK      a stream from Parquet files with one change a key, whose `foreachBatch` says MERGE INTO
PYICEBERG  `table.upsert`, then `table.delete` of the deleted keys, from Arrow

WRITTEN    the bytes of data and delete files that each has written into its table, in times of the bytes of the
           changes as one Parquet file; for Headwater the change table, which it keeps for audits, is told apart.
MODES      Copy-on-write writes every file anew that a changed key is in; merge-on-read writes the changes alone.
"""

from __future__ import annotations

import shutil
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.expressions import In, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.table import Table

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
from bench._lake import ROWS_PER_APPEND, SCHEMA, BenchLake, batch_of, lake, spark_on_two_cores
from bench._place import GIB, place
from bench.peers._part import Book, Chart, Compared, Figure, Part, Size
from bench.peers._tables import plain_catalog, plain_table, rows_in
from headwater.lake.shape import CHANGES_SUFFIX
from headwater.lake.state_table import MergeMode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ", ".join(SCHEMA.names)
CHANGES = "id BIGINT, customer BIGINT, amount DOUBLE, created_at TIMESTAMP, region STRING, text STRING, op STRING"
STREAM_S_MAX = 600
MODES: dict[str, MergeMode] = {"rewritten": "copy-on-write", "read_merged": "merge-on-read"}
SAID = {"rewritten": "copy-on-write", "read_merged": "merge-on-read"}


def measure(size: Size, book: Book) -> None:
    keys = size.of(5_000, 100_000, 1_000_000)
    rounds = size.of(1, 2, 3)
    book.set(keys=keys, changed_share=CHANGED, deleted_share=DELETED, rounds=rounds)
    with place(size.of(1, 2, 8) * GIB) as directory:
        with spark_on_two_cores() as spark:
            for name, mode in MODES.items():
                _mode(directory / name, spark, name, mode, keys, rounds, book)
        _pyiceberg(directory / "pyiceberg", keys, rounds, book)


def _mode(directory: Path, spark: SparkSession, name: str, mode: MergeMode, keys: int, rounds: int, book: Book) -> None:
    """Headwater and Spark's stream, in turn.  The first round, which compiles what the others run, is not counted."""
    incoming = directory / "incoming"
    incoming.mkdir(parents=True)
    with lake(directory / "lake", spark) as own:
        topic = keyed_topic(own, keys)
        merge(own, mode)
        make_twin(own, COLUMNS)
        for number in range(rounds + 1):
            book.say(f"{SAID[name]}, round {number} of {rounds}")
            changes, deleted = changes_of(keys, number)
            topic.upsert(changes)
            topic.delete(pa.table({"id": deleted}))
            begun_s = time.perf_counter()
            landed = own.log.land(TOPIC)[TOPIC]
            land_s = time.perf_counter() - begun_s
            assert landed.verified, landed
            source = directory / "changes.parquet"
            changed_bytes = write_source(source, changes, deleted)
            source.rename(incoming / f"{number}.parquet")
            if number % 2 == 0:
                merge_s = merge(own, mode).seconds
                stream_s = _stream(own, directory)
            else:
                stream_s = _stream(own, directory)
                merge_s = merge(own, mode).seconds
            if number == 0:
                continue
            book.add(f"headwater_{name}_land_s", land_s)
            book.add(f"headwater_{name}_merge_s", merge_s)
            book.add(f"spark_{name}_merge_s", stream_s)
            book.add(f"headwater_{name}_written_ratio", written_bytes(own, TABLE) / changed_bytes)
            book.add(f"headwater_{name}_changes_ratio", written_bytes(own, TABLE + CHANGES_SUFFIX) / changed_bytes)
            book.add(f"spark_{name}_written_ratio", written_bytes(own, "bench.twin") / changed_bytes)
        check_equal(own)
    shutil.rmtree(directory)


def _stream(own: BenchLake, directory: Path) -> float:
    """What the stream says that its batch took; starting it is not in it."""
    twin = f"{own.catalog}.bench.twin"

    def merge_batch(rows: DataFrame, _: int) -> None:
        rows.createOrReplaceTempView("changes")
        rows.sparkSession.sql(
            f"""
            MERGE INTO {twin} AS t USING changes AS s ON t.id = s.id
            WHEN MATCHED AND s.op = 'D' THEN DELETE
            WHEN MATCHED THEN UPDATE SET {", ".join(f"t.{name} = s.{name}" for name in SCHEMA.names)}
            WHEN NOT MATCHED AND s.op = 'U' THEN
                INSERT ({COLUMNS}) VALUES ({", ".join(f"s.{name}" for name in SCHEMA.names)})
            """
        ).collect()

    rows = own.spark.readStream.schema(CHANGES).parquet(str(directory / "incoming"))
    writer = rows.writeStream.foreachBatch(merge_batch).option("checkpointLocation", str(directory / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(STREAM_S_MAX), f"the stream was not done in {STREAM_S_MAX} s"
    (batch,) = (each for each in query.recentProgress if each["numInputRows"])
    return float(batch["durationMs"]["triggerExecution"]) / 1000


def _pyiceberg(directory: Path, keys: int, rounds: int, book: Book) -> None:
    with closing(plain_catalog(directory)) as catalog:
        table = plain_table(catalog, TOPIC, SCHEMA)
        table.append(
            pa.Table.from_batches(
                [batch_of(first, min(ROWS_PER_APPEND, keys - first)) for first in range(0, keys, ROWS_PER_APPEND)]
            )
        )
        gone: set[int] = set()
        for number in range(1, rounds + 1):
            book.say(f"pyiceberg, round {number} of {rounds}")
            changes, deleted = changes_of(keys, number)
            changed_bytes = write_source(directory / "changes.parquet", changes, deleted)
            before = len(table.metadata.snapshots)
            begun_s = time.perf_counter()
            table.upsert(pa.Table.from_batches([changes]), join_cols=["id"])
            table.delete(In(term=Reference("id"), values={literal(key) for key in deleted.to_pylist()}))
            book.add("pyiceberg_rewritten_upsert_s", time.perf_counter() - begun_s)
            book.add("pyiceberg_rewritten_written_ratio", _added_bytes(table, before) / changed_bytes)
            gone = (gone - set(changes["id"].to_pylist())) | set(deleted.to_pylist())
        assert rows_in(table) == keys - len(gone), f"{rows_in(table)} of {keys - len(gone)} rows"


def _added_bytes(table: Table, before: int) -> int:
    """What the snapshots after the first so many have added."""
    newest = sorted(table.metadata.snapshots, key=lambda each: each.sequence_number or 0)[before:]
    return sum(int(each.summary["added-files-size"] or 0) for each in newest if each.summary is not None)


_BRANCH = (
    "A merge of ours takes the newest change of each key from the change table, works on a branch, and moves main by a "
    "commit on condition: so that two merges, or one that is late, can do no harm. The stream does none of that."
)
PART = Part(
    name="keyed_merge",
    title="Keyed tables",
    question="One in a hundred keys has changed: how long does the merge take, and how much is written for it?",
    method="A table with rows of about 128 bytes, one a key; 1 % of the keys changed at random, a tenth of those "
    "deleted. Headwater merges what has landed in its change table. Spark's stream reads one Parquet file that has "
    "each key once, and says MERGE INTO in `foreachBatch`; its time is what it says of the batch, and it does not have "
    "to find the newest change of a key. Its table has the same rows in as many files with the same properties, "
    "without the columns `_hw_*`. pyiceberg's is `upsert` and `delete`, two commits or more. Headwater and Spark take "
    "turns and must come to the same rows; pyiceberg comes after them, without Spark beside it.",
    figures=(
        *(
            figure
            for name, said in SAID.items()
            for figure in (
                Figure(
                    f"headwater_{name}_land_s", f"Landing the changes in the change table, before the merge; {said}."
                ),
                Figure(f"headwater_{name}_merge_s", f"Headwater's merge of the landed changes; {said}."),
                Figure(f"spark_{name}_merge_s", f"MERGE INTO in `foreachBatch`, the stream's own word; {said}."),
                Figure(
                    f"headwater_{name}_written_ratio",
                    f"Bytes that the merge wrote, in times of the changes as Parquet; Headwater, {said}.",
                ),
                Figure(
                    f"headwater_{name}_changes_ratio",
                    f"Bytes that landing wrote into the change table, in times of the changes as Parquet; {said}.",
                ),
                Figure(
                    f"spark_{name}_written_ratio",
                    f"Bytes that MERGE INTO wrote, in times of the changes as Parquet; {said}.",
                ),
            )
        ),
        Figure(
            "pyiceberg_rewritten_upsert_s", "`table.upsert` of the changed rows and `table.delete` of the deleted keys."
        ),
        Figure(
            "pyiceberg_rewritten_written_ratio",
            "Bytes that both of them wrote, in times of the changes as Parquet; copy-on-write.",
        ),
    ),
    measure=measure,
    compared=(
        *(
            Compared(
                f"the merge, {said}",
                f"headwater_{name}_merge_s",
                f"spark_{name}_merge_s",
                "Spark's MERGE",
                "lower",
                _BRANCH,
            )
            for name, said in SAID.items()
        ),
        *(
            Compared(
                f"bytes written by the merge, {said}",
                f"headwater_{name}_written_ratio",
                f"spark_{name}_written_ratio",
                "Spark's MERGE",
                "lower",
                "Five columns more in each row that is written.",
            )
            for name, said in SAID.items()
        ),
        Compared(
            "the merge, copy-on-write",
            "headwater_rewritten_merge_s",
            "pyiceberg_rewritten_upsert_s",
            "pyiceberg's upsert",
            "lower",
            "It compares and rewrites in one process, without Spark and without a change table; it writes twice as "
            "many bytes for it.",
        ),
    ),
    charts=(
        Chart(
            "Merging 1 % of the keys",
            "s",
            (
                ("Headwater, copy-on-write", "headwater_rewritten_merge_s"),
                ("Spark's MERGE, copy-on-write", "spark_rewritten_merge_s"),
                ("pyiceberg's upsert", "pyiceberg_rewritten_upsert_s"),
                ("Headwater, merge-on-read", "headwater_read_merged_merge_s"),
                ("Spark's MERGE, merge-on-read", "spark_read_merged_merge_s"),
            ),
        ),
    ),
    quick_s=240,
    full_s=900,
)
