"""Tasks in Spark: one Spark task for each work, by `mapInArrow`, so that it runs on a cluster, on Spark 3.5 and later,
and through Spark Connect.

PROMISE  A work whose task is retried, or runs twice by speculation, is done by attempts with numbers of their own
         (Spark's task attempt id), so their files have names of their own; one answer for each work comes back.
NEEDS    Workers have this package with its `lake` extra, and reach the table's files, and the data directory or the
         server that has the log: with the files of its address (token_file=, ca_file=) at the same paths.
NOT HERE What a task does: headwater.lake.task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import Unavailable
from headwater.lake.work import Done, Work, pack, unpack_done

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DONE = "done binary"


class SparkRunner:
    """Runs works on the Spark of this session, classic or Connect."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def run(self, works: Sequence[Work]) -> Iterator[Done]:
        if not works:
            return
        # Every task is given all of them, and the targets of the same few tables again and again: so they are packed.
        packed = [pa.compress(pack(work), codec="zstd", asbytes=True) for work in works]
        sizes = [len(pack(work)) for work in works]

        def perform_each(batches: Iterable[Any]) -> Iterator[Any]:
            # Imported where it runs: a worker gets this function, and finds the rest by its names.
            import pyarrow
            from pyspark import TaskContext

            from headwater.lake.task import perform

            context = TaskContext.get()
            assert context is not None
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    work = pyarrow.decompress(packed[number], sizes[number], codec="zstd", asbytes=True)
                    done = perform(work, context.taskAttemptId())
                    yield pyarrow.RecordBatch.from_arrays([pyarrow.array([done], pyarrow.binary())], names=["done"])

        numbers = self._spark.range(0, len(packed), 1, len(packed))
        try:
            rows = numbers.mapInArrow(perform_each, _DONE).collect()
        except Exception as error:  # classic, Connect and a JVM that has ended raise nothing in common
            raise Unavailable(f"the Spark job that writes data files failed: {reason(error)}") from error
        for row in rows:
            yield unpack_done(bytes(row["done"]))


def reason(error: Exception) -> str:
    """One line for a person; Spark's own account is hundreds of them, and stays as the cause."""
    lines = [line.strip() for line in str(error).partition("\n\tat ")[0].splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    # What was raised in a worker is the last line of its traceback, and before it comes all of Spark's.
    in_worker = any(line.startswith("Traceback") for line in lines)
    return lines[-1 if in_worker else 0][:500]
