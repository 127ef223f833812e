"""What does landing cost beside Spark's own append, and does it stay what it is as tables and logs grow?

RATE      4 million rows of about 128 bytes on a Spark of two cores.  In turn: ours, steps 1 to 7 of docs/landing.md
          with the digest, from the log into an Iceberg table; Spark's own append of the same rows, the system's columns
          among them, from Parquet into a table of the same spec; the same with the user's own columns alone; and the
          tasks alone on plain Arrow files: no frames, no digest, no ledger, no commit.
          Step 8, reading it back, is told apart.  The digest's share is of the tasks' CPU seconds.
GROWTH    Seconds per row at 1 and at 20 million rows; seconds of a commit after 10 and after 2,000 landings, upkeep on.
BACKFILL  Seven days of rows into a table partitioned by day, ours and Spark's own.
TOPICS    1,000 topics in one round, each commit 300 ms longer, as in a catalog far away; how often a byte was read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench._lake import ROWS_PER_APPEND, BenchLake, Landed, batch_of, lake, spark_on_two_cores
from bench._place import GIB, machine, median, place
from bench.report import Report, at_least, at_most
from headwater.lake.data_files import columns_of
from headwater.lake.reading import read_rows
from headwater.lake.runner import InProcess, LocalProcesses

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MILLION = 1_000_000
DAY_US = 86_400 * MILLION
COMMIT_DELAY_S = 0.3


def run(quick: bool) -> Report:
    rounds = 2 if quick else 5
    rows = MILLION // 4 if quick else 4 * MILLION
    large = MILLION if quick else 20 * MILLION
    small = MILLION // 4 if quick else MILLION
    landings = 60 if quick else 2_000
    topics = 40 if quick else 1_000
    figures: dict[str, float] = {}
    with place((2 if quick else 16) * GIB) as directory, spark_on_two_cores() as spark:
        _warm_up(directory, spark)
        spark_ratio, arrow_ratio, digest = _rate(directory, spark, rows, rounds, figures)
        per_row = _per_row(directory, spark, small, large, figures)
        commits = _commits(directory, spark, landings, figures)
        _backfill(directory, spark, rows, max(rounds // 2, 1), figures)
        _topics(directory, spark, topics, figures)
    return Report(
        bench="land",
        settings={
            "rows": rows,
            "rounds": rounds,
            "rows_small": small,
            "rows_large": large,
            "landings": landings,
            "topics": topics,
            "row_bytes": round(batch_of(0, 10_000).nbytes / 10_000),
            **machine(),
        },
        figures=figures,
        bars=(
            at_least("landing, in times of Spark's own append (median of rounds)", spark_ratio, 1.5),
            at_least("landing, in times of the same tasks on plain Arrow files (median of rounds)", arrow_ratio, 0.85),
            at_most("digest, share of the tasks' CPU seconds (median of rounds)", digest, 0.15),
            at_most("seconds per row, the most rows in times of the fewest", per_row, 1.2),
            at_most("seconds of a commit, last landings in times of the tenth and after", commits, 2.0),
        ),
    )


def _warm_up(directory: Path, spark: SparkSession) -> None:
    """Spark compiles what it runs often, and workers import what they need: none of it is what is asked here."""
    with lake(directory / "warm-up", spark) as own:
        for number in range(2):
            own.fill(f"t{number}", 200_000)
            own.land(f"t{number}")
            _write_inputs(own, f"t{number}", own.directory / f"in{number}")
            own.append_by_spark(own.spark.read.parquet(f"{own.directory}/in{number}/parquet"), f"by_spark{number}")


# Rate -------------------------------------------------------------------------------------------------------------


def _rate(
    directory: Path, spark: SparkSession, rows: int, rounds: int, figures: dict[str, float]
) -> tuple[float, float, float]:
    ours: list[Landed] = []
    sparks: list[float] = []
    bare: list[float] = []
    arrows: list[float] = []
    with lake(directory / "rate", spark) as own:
        for number in range(rounds):
            topic = f"t{number}"
            own.fill(topic, rows)
            inputs = own.directory / "inputs"
            files = _write_inputs(own, topic, inputs)
            own.make_table(topic)
            # Each goes first by turns.
            for step in range(4):
                match (step + number) % 4:
                    case 0:
                        ours.append(own.land(topic))
                    case 1:
                        sparks.append(_by_spark(own, inputs, f"by_spark{number}"))
                    case 2:
                        bare.append(_by_spark_bare(own, inputs, f"by_spark_bare{number}"))
                    case _:
                        arrows.append(_by_arrow(own, topic, files, f"by_arrow{number}"))
            for table in (topic, f"by_spark{number}", f"by_spark_bare{number}", f"by_arrow{number}"):
                own.forget_files(table)
    seconds = [landed.seconds for landed in ours]
    figures["land_s"] = median(seconds)
    figures["land_rows_per_s"] = rows / median(seconds)
    figures["read_back_s"] = median([landed.report.verify_s for landed in ours])
    figures["spark_append_s"] = median(sparks)
    figures["spark_append_own_columns_s"] = median(bare)
    figures["plain_arrow_tasks_s"] = median(arrows)
    to_spark = [there / here for here, there in zip(seconds, sparks, strict=True)]
    to_bare = [there / here for here, there in zip(seconds, bare, strict=True)]
    to_arrow = [there / here for here, there in zip(seconds, arrows, strict=True)]
    with_read_back = [there / here.report.seconds for here, there in zip(ours, sparks, strict=True)]
    figures["ratio_to_spark_lowest"], figures["ratio_to_spark_highest"] = min(to_spark), max(to_spark)
    figures["ratio_to_spark_own_columns"] = median(to_bare)
    figures["ratio_to_spark_with_read_back"] = median(with_read_back)
    figures["ratio_to_arrow_lowest"], figures["ratio_to_arrow_highest"] = min(to_arrow), max(to_arrow)
    for part in ("read", "digest", "write"):
        figures[f"task_{part}_cpu_s"] = median([landed.accounts.cpu_s[part] for landed in ours])
    return median(to_spark), median(to_arrow), median([landed.digest_share for landed in ours])


def _write_inputs(own: BenchLake, topic: str, folder: Path) -> list[str]:
    """The same rows in files: as they will be in the table, in Parquet, and as they were appended, in Arrow's own
    format; as many files as there are works."""
    target = own.table_like(topic, f"shape_of_{topic}")
    columns = columns_of(target)
    arrow, parquet = folder / "arrow", folder / "parquet"
    for path in (arrow, parquet):
        path.mkdir(parents=True, exist_ok=True)
        for old in path.iterdir():
            old.unlink()
    files = []
    for number, work in enumerate(own.works(topic, target)):
        rows = read_rows(work, {work.topics[0].number: columns}).topics[work.topics[0].number].rows
        if not rows.num_rows:
            continue
        pq.write_table(rows, parquet / f"{number}.parquet")
        given = rows.select([name for name in rows.column_names if not name.startswith("_hw_")])
        files.append(str(arrow / f"{number}.arrow"))
        with pa.OSFile(files[-1], "wb") as sink, pa.ipc.new_file(sink, given.schema) as writer:
            writer.write_table(given, max_chunksize=ROWS_PER_APPEND)
    return files


def _by_spark(own: BenchLake, inputs: Path, table: str, *, partition_by: str | None = None) -> float:
    return own.append_by_spark(own.spark.read.parquet(f"{inputs}/parquet"), table, partition_by=partition_by)


def _by_spark_bare(own: BenchLake, inputs: Path, table: str) -> float:
    """The user's own columns alone: without Headwater nobody would have the others."""
    rows = own.spark.read.parquet(f"{inputs}/parquet")
    return own.append_by_spark(rows.select([name for name in rows.columns if not name.startswith("_hw_")]), table)


def _by_arrow(own: BenchLake, topic: str, files: list[str], table: str) -> float:
    target = own.table_like(topic, table)
    begun = time.perf_counter()
    written = own.spark.range(0, len(files), 1, len(files)).mapInArrow(_plain_tasks(files, target), "rows long")
    assert sum(row["rows"] for row in written.collect()) > 0
    return time.perf_counter() - begun


def _plain_tasks(files: list[str], target: bytes) -> Callable[[Any], Iterator[Any]]:
    """A task without frames and without a digest: the same columns from the same batches, by the same writer."""

    def write_each(batches: Any) -> Iterator[Any]:
        import numpy
        import pyarrow
        from pyspark import TaskContext

        from headwater.lake.data_files import DataFileWriter, columns_of
        from headwater.lake.reading import system_columns

        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with pyarrow.OSFile(files[number]) as source:
                    given = pyarrow.ipc.open_file(source).read_all().to_batches()
                counts = numpy.array([each.num_rows for each in given])
                places = range(len(given))
                bases = (numpy.cumsum(counts) - counts).tolist()
                system = system_columns(0, places, [0] * len(given), bases, counts, places)
                own = pyarrow.concat_batches(given)
                columns = columns_of(target)
                arrays = [system[each.name] if each.name in system else own.column(each.name) for each in columns]
                rows = pyarrow.Table.from_arrays(arrays, schema=columns)
                writer = DataFileWriter(target, "6b5bd1cf-4b9d-4a4b-9f6d-0c8e0f6a7d11", context.taskAttemptId())
                count = sum(file.rows for file in writer.write(rows))
                yield pyarrow.RecordBatch.from_arrays([pyarrow.array([count], pyarrow.int64())], names=["rows"])

    return write_each


# Growth -----------------------------------------------------------------------------------------------------------


def _per_row(directory: Path, spark: SparkSession, small: int, large: int, figures: dict[str, float]) -> float:
    """In turn, the large landing between small ones."""
    few: list[float] = []
    with lake(directory / "growth", spark) as own:
        for number in range(3):
            own.fill(f"small{number}", small)
        own.fill("large", large)
        for topic in ("small0", "small1", "small2", "large"):
            own.make_table(topic)
        few.append(own.land("small0", verify="metadata").seconds)
        few.append(own.land("small1", verify="metadata").seconds)
        many = own.land("large", verify="metadata").seconds
        few.append(own.land("small2", verify="metadata").seconds)
    figures["land_fewest_rows_us_per_row"] = median(few) / small * 1e6
    figures["land_most_rows_us_per_row"] = many / large * 1e6
    return (many / large) / (median(few) / small)


def _commits(directory: Path, spark: SparkSession, landings: int, figures: dict[str, float]) -> float:
    """Landings of ten rows, one after the other, in this process; upkeep comes every hundred."""
    seconds: list[float] = []
    rounds_s: list[float] = []
    upkeep_s = 0.0
    with lake(directory / "commits", spark) as own:
        own.fill("t", 0)
        topic = own.log["t"]
        runner = InProcess()
        for number in range(landings):
            topic.append(batch_of(number * 10, 10))
            landed = own.land("t", runner=runner, verify="metadata")
            seconds.append(landed.report.topics[0].commit_s)
            rounds_s.append(landed.report.seconds)
            if number % 100 == 99:
                begun = time.perf_counter()
                own.maintain("t")
                upkeep_s += time.perf_counter() - begun
    some = max(landings // 40, 10)
    early, late = seconds[10 : 10 + some], seconds[-some:]
    figures["commit_early_ms"] = median(early) * 1000
    figures["commit_late_ms"] = median(late) * 1000
    figures["small_landing_early_ms"] = median(rounds_s[10 : 10 + some]) * 1000
    figures["small_landing_late_ms"] = median(rounds_s[-some:]) * 1000
    figures["upkeep_s_per_100_landings"] = upkeep_s / max(landings // 100, 1)
    return median(late) / median(early)


# A backfill -------------------------------------------------------------------------------------------------------


def _backfill(directory: Path, spark: SparkSession, rows: int, rounds: int, figures: dict[str, float]) -> None:
    ours: list[float] = []
    sparks: list[float] = []
    with lake(directory / "backfill", spark) as own:
        for number in range(rounds):
            topic = f"t{number}"
            own.fill(topic, rows, partition_by="day(created_at)", step_us=7 * DAY_US // rows)
            inputs = own.directory / "inputs"
            _write_inputs(own, topic, inputs)
            own.make_table(topic)
            ours.append(own.land(topic).seconds)
            sparks.append(_by_spark(own, inputs, f"by_spark{number}", partition_by="days(created_at)"))
    figures["backfill_seven_days_s"] = median(ours)
    figures["backfill_seven_days_spark_append_s"] = median(sparks)
    figures["backfill_ratio_to_spark"] = median([there / here for here, there in zip(ours, sparks, strict=True)])


# Many topics ------------------------------------------------------------------------------------------------------


def _topics(directory: Path, spark: SparkSession, topics: int, figures: dict[str, float]) -> None:
    names = [f"t{number}" for number in range(topics)]
    with lake(directory / "topics", spark) as own:
        for name in names:
            own.log.topic(name, schema=batch_of(0, 1).schema, table=f"bench.{name}")
        for _ in range(4):
            for place_, name in enumerate(names):
                own.log[name].append(batch_of(place_ * 500, 500))
        with closing(LocalProcesses()) as runner:
            first = own.land(*names, runner=runner, verify="metadata")
            for place_, name in enumerate(names):
                own.log[name].append(batch_of(place_ * 500, 500))
            slow = own.land(*names, runner=runner, verify="metadata", connect=own.slow_connect(COMMIT_DELAY_S))
        log_bytes = sum(path.stat().st_size for path in (own.directory / "log").glob("*.seg"))
    figures["topics_first_landing_s"] = first.seconds
    figures["topics_slow_commits_landing_s"] = slow.seconds
    figures["topics_slow_commits_if_one_by_one_s"] = topics * COMMIT_DELAY_S
    figures["topics_bytes_read_per_byte"] = (first.accounts.bytes_read + slow.accounts.bytes_read) / log_bytes
