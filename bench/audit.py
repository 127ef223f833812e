"""What does a full audit cost beside the plainest checksum of the same table by Spark, and what does the next one?

FULL      Rows of about 128 bytes, landed in several landings, and a log that has let go of them.  In turn: a full audit
          by Spark, the ledger's records, the table's history and all its files among it; and
          `count(*), sum(shiftrightunsigned(h, 32)), sum(h & 4294967295)` with h = xxhash64 of all columns.
AGAIN     An audit of nothing new; after one more landing of a hundredth; and after a compaction of that landing alone.
HERE      A full audit without Spark.
LOG       The same with the log as a witness, which is read too.
NAMED     An audit that finds a row missing and one doubled, and names them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import headwater as hw
from bench._engines import engine_of
from bench._lake import ROWS_PER_APPEND, SCHEMA, BenchLake, batch_of, spark_on_two_cores
from bench._place import GIB, machine, median, place
from bench.report import Report, at_least
from headwater.settings import LogSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MILLION = 1_000_000
TOPIC = "orders"
LANDINGS = 8


def run(quick: bool) -> Report:
    rows = MILLION // 4 if quick else 8 * MILLION
    rounds = 3 if quick else 7
    figures: dict[str, float] = {}
    with place((2 if quick else 16) * GIB) as directory, spark_on_two_cores() as spark:
        settings = hw.Settings(log=LogSettings(deletion_grace_s=0.0))
        with hw.open(directory / "audit", settings=settings) as log:
            log.topic("warm-up", schema=SCHEMA)
            own = BenchLake(log, directory / "audit", spark)
            _fill(own, rows)
            ratio = _full(own, rows, rounds, figures)
            _again(own, rows, figures)
            figures["here_s"] = _timed(lambda: _audit(own, full=True))
            figures["here_rows_per_s"] = rows / figures["here_s"]
            _named(own, figures)
        _with_log(directory / "log", spark, rows // 4, figures)
    return Report(
        bench="audit",
        settings={"rows": rows, "rounds": rounds, "landings": LANDINGS, **machine()},
        figures=figures,
        bars=(at_least("full audit, in times of a plain checksum by Spark (median of rounds)", ratio, 0.7),),
    )


def _fill(own: BenchLake, rows: int) -> None:
    """Landed in turns, and then forgotten by the log."""
    topic = own.log.topic(TOPIC, schema=SCHEMA, table=f"bench.{TOPIC}")
    each = rows // LANDINGS
    for number in range(LANDINGS):
        for first in range(number * each, (number + 1) * each, ROWS_PER_APPEND):
            topic.append(batch_of(first, min(ROWS_PER_APPEND, (number + 1) * each - first)))
        own.land(TOPIC)
    _forget(own)
    assert own.log[TOPIC].describe().rows == 0, "the log has let go of them"


def _forget(own: BenchLake) -> None:
    """Segments go once two checkpoints cover them, and a checkpoint is made where something was written."""
    for _ in range(3):
        own.log["warm-up"].append(batch_of(0, 1))
        engine_of(own.log).shard.log.roll()
        own.log.checkpoint()
        own.log.cleanup()


def _full(own: BenchLake, rows: int, rounds: int, figures: dict[str, float]) -> float:
    """Ours and the plain query, each first by turns; the first round of both is Spark's to warm up."""
    table = f"{own.catalog}.bench.{TOPIC}"
    columns = ", ".join(f"`{name}`" for name in own.spark.table(table).columns)
    plain = (
        "SELECT count(*), sum(shiftrightunsigned(h, 32)), sum(h & 4294967295) "
        f"FROM (SELECT xxhash64({columns}) AS h FROM {table})"
    )
    ours: list[float] = []
    theirs: list[float] = []
    for number in range(rounds + 1):
        for step in range(2):
            if (step + number) % 2:
                ours.append(_timed(lambda: _audit(own, full=True, spark=own.spark)))
            else:
                theirs.append(_timed(lambda: own.spark.sql(plain).collect()))
    ratios = [there / here for here, there in zip(ours[1:], theirs[1:], strict=True)]
    figures["full_s"], figures["plain_s"] = median(ours[1:]), median(theirs[1:])
    figures["full_rows_per_s"] = rows / median(ours[1:])
    figures["ratio_lowest"], figures["ratio_highest"] = min(ratios), max(ratios)
    return median(ratios)


def _again(own: BenchLake, rows: int, figures: dict[str, float]) -> None:
    figures["nothing_new_s"] = _timed(lambda: _audit(own, spark=own.spark))
    own.log[TOPIC].append(batch_of(rows, max(rows // 100, 1)))
    own.land(TOPIC)
    figures["one_landing_s"] = _timed(lambda: _audit(own, spark=own.spark))


def _named(own: BenchLake, figures: dict[str, float]) -> None:
    """One row goes, and another is there twice."""
    table = own.place.connect().catalog.load_table(f"bench.{TOPIC}")
    rows = table.scan("id >= 100 and id < 103").to_arrow().sort_by("id")
    table.overwrite(rows.take([0, 2, 2]), "id >= 100 and id < 103")
    begun = time.perf_counter()
    told = own.log.audit(TOPIC, spark=own.spark)[TOPIC]
    figures["named_s"] = time.perf_counter() - begun
    assert told.missing and told.doubled, str(list(told.told()))


def _with_log(directory: Path, spark: SparkSession, rows: int, figures: dict[str, float]) -> None:
    with hw.open(directory) as log:
        log.topic("warm-up", schema=SCHEMA)
        own = BenchLake(log, directory, spark)
        own.fill(TOPIC, rows)
        own.land(TOPIC)
        figures["with_log_s"] = _timed(lambda: _audit(own, full=True))
        figures["with_log_rows_per_s"] = rows / figures["with_log_s"]


def _audit(own: BenchLake, *, full: bool = False, spark: SparkSession | None = None) -> None:
    report = own.log.audit(TOPIC, full=full, spark=spark)
    assert report.passed, str(report)


def _timed(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun
