"""How soon is an acknowledged row in a view, and what does a view cost beside a bare scan of its table?

FRESH     10 million rows landed.  1,000 appends of one row, a landing after every tenth: from the acknowledgement to
          the row in `scan().count()`, and in a scan filtered on the row's partition and offset.  The table never has
          more than 100 manifests.  The same, ten times, in a warm Spark session.
COLUMNS   A view of three columns, table and tail, beside pyiceberg's own scan of the same table and the tail's own
          share: in turn.
KEYED     The view of a keyed topic, its state in changes and tail; told, no bar.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bench._lake import ROWS_PER_APPEND, SCHEMA, BenchLake, batch_of, lake, spark_on_two_cores
from bench._place import GIB, machine, median, place
from bench.report import Report, at_most
from headwater.api import Topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MILLION = 1_000_000
TOPIC = "orders"
COLUMNS = ["id", "amount", "region"]
KEYED_ROWS_TAIL = 10_000


def run(quick: bool) -> Report:
    rows = MILLION // 4 if quick else 10 * MILLION
    appends = 100 if quick else 1_000
    rounds = 3 if quick else 7
    keys = 50_000 if quick else MILLION
    figures: dict[str, float] = {}
    with place((2 if quick else 16) * GIB) as directory, spark_on_two_cores() as spark:
        with lake(directory / "fresh", spark) as own:
            own.fill(TOPIC, rows)
            own.log.land(spark=spark)
            topic = own.log[TOPIC]
            counted, found = _fresh(own, topic, appends, figures)
            in_spark = _fresh_in_spark(own, topic, figures)
            _landed_row(topic, figures)
            ratio = _columns(own, topic, rounds, figures)
        _keyed(directory, spark, keys, rounds, figures)
    return Report(
        bench="view",
        settings={"rows": rows, "appends": appends, "rounds": rounds, "keys": keys, **machine()},
        figures=figures,
        bars=(
            at_most("from acknowledgement to the row in scan().count(), p99 ms", counted, 50.0),
            at_most("from acknowledgement to the row by its partition and offset, p99 ms", found, 50.0),
            at_most("manifests of the table", figures["manifests"], 100),
            at_most("from acknowledgement to the row in a warm Spark session, slowest s", in_spark, 2.0),
            at_most("a view of columns, in times of a bare scan and the tail (median of rounds)", ratio, 1.15),
        ),
    )


# Fresh ------------------------------------------------------------------------------------------------------------


def _fresh(own: BenchLake, topic: Topic, appends: int, figures: dict[str, float]) -> tuple[float, float]:
    counted_ms: list[float] = []
    found_ms: list[float] = []
    after_landing_ms: list[float] = []
    expected = topic.scan().count()
    for number in range(appends):
        appended = topic.append(batch_of(1_000 * MILLION + number, 1))
        expected += 1
        ((partition, offsets),) = appended.offsets.items()
        begun_s = time.perf_counter()
        with topic.scan() as scan:
            count = scan.count()
        counted_s = time.perf_counter()
        where = f"_hw_partition = {partition} and _hw_offset = {offsets.first}"
        with topic.scan(where=where) as scan:
            rows = scan.to_arrow().num_rows
        found_s = time.perf_counter()
        assert (count, rows) == (expected, 1), f"append {number}: {count} of {expected} rows, {rows} found"
        counted_ms.append((counted_s - begun_s) * 1000)
        found_ms.append((found_s - counted_s) * 1000)
        if number % 10 == 0 and number:
            after_landing_ms.append(counted_ms[-1])
        if number % 10 == 9:
            own.log.land(TOPIC)
    with topic.scan() as scan:
        (part,) = scan.plan.tables
        table = part.state.native
        manifests = table.current_snapshot().manifests(table.io)  # type: ignore[attr-defined]
    figures["manifests"] = len(manifests)
    figures["count_p50_ms"], figures["count_p99_ms"] = median(counted_ms), _p99(counted_ms)
    figures["count_after_landing_p50_ms"] = median(after_landing_ms)
    figures["by_offset_p50_ms"], figures["by_offset_p99_ms"] = median(found_ms), _p99(found_ms)
    return figures["count_p99_ms"], figures["by_offset_p99_ms"]


def _fresh_in_spark(own: BenchLake, topic: Topic, figures: dict[str, float]) -> float:
    seconds: list[float] = []
    expected = topic.scan().count()
    for number in range(10):
        topic.append(batch_of(2_000 * MILLION + number, 1))
        expected += 1
        begun_s = time.perf_counter()
        with topic.scan() as scan:
            count = scan.to_spark(own.spark).count()
        seconds.append(time.perf_counter() - begun_s)
        assert count == expected, f"{count} of {expected} rows in Spark"
    # The first compiles what the others run: the session is warm after it.
    figures["spark_count_p50_s"], figures["spark_count_first_s"] = median(seconds[1:]), seconds[0]
    return max(seconds[1:])


def _landed_row(topic: Topic, figures: dict[str, float]) -> None:
    seconds = []
    for offset in range(0, 100_000, 10_007):
        begun_s = time.perf_counter()
        with topic.scan(where=f"_hw_partition = 0 and _hw_offset = {offset}") as scan:
            assert scan.to_arrow().num_rows == 1
        seconds.append(time.perf_counter() - begun_s)
    figures["landed_row_by_offset_p50_ms"] = median(seconds) * 1000


# Columns ----------------------------------------------------------------------------------------------------------


def _columns(own: BenchLake, topic: Topic, rounds: int, figures: dict[str, float]) -> float:
    """Table and tail beside the table alone and the tail alone, in turn."""
    own.log.land(TOPIC)
    for number in range(10):
        topic.append(batch_of(3_000 * MILLION + number * ROWS_PER_APPEND, ROWS_PER_APPEND))
    with topic.scan(COLUMNS) as scan:
        (part,) = scan.plan.tables
        table = part.state.native
    view_s, bare_s, tail_s, all_s = [], [], [], []

    def view() -> int:
        with topic.scan(COLUMNS) as scan:
            return int(scan.to_arrow().num_rows)

    def bare() -> int:
        found = table.scan(selected_fields=tuple(COLUMNS)).to_arrow()  # type: ignore[attr-defined]
        return int(found.num_rows)

    def tail() -> int:
        with topic.scan(COLUMNS) as scan:
            return int(scan.tail(scan.wanted.read()).num_rows)

    rows = view()
    assert rows == bare() + tail()
    for _ in range(rounds):
        bare_s.append(_timed(bare))
        view_s.append(_timed(view))
        tail_s.append(_timed(tail))
        all_s.append(_timed(lambda: int(topic.scan().to_arrow().num_rows)))
    figures["view_three_columns_s"], figures["bare_scan_three_columns_s"] = median(view_s), median(bare_s)
    figures["tail_alone_s"], figures["view_all_columns_s"] = median(tail_s), median(all_s)
    figures["view_rows"] = rows
    return median([view / (bare + tail) for view, bare, tail in zip(view_s, bare_s, tail_s, strict=True)])


def _keyed(directory: Path, spark: SparkSession, keys: int, rounds: int, figures: dict[str, float]) -> None:
    with lake(directory / "keyed", spark) as own:
        topic = own.log.topic("customers", schema=SCHEMA, key="id", table="bench.customers")
        for first in range(0, keys, ROWS_PER_APPEND):
            topic.append(batch_of(first, min(ROWS_PER_APPEND, keys - first)))
        own.log.land("customers", spark=own.spark)
        own.log.merge("customers", spark=own.spark)
        topic.append(batch_of(keys // 2, KEYED_ROWS_TAIL))
        own.log.land("customers")
        topic.append(batch_of(keys - KEYED_ROWS_TAIL // 2, KEYED_ROWS_TAIL))

        def view() -> int:
            with topic.scan(COLUMNS) as scan:
                return int(scan.to_arrow().num_rows)

        assert view() == keys + KEYED_ROWS_TAIL // 2
        figures["keyed_view_three_columns_s"] = median([_timed(view) for _ in range(rounds)])
        figures["row_by_key_p50_ms"] = 1000 * median(
            [_timed(lambda: int(topic.get(7) is not None)) for _ in range(rounds)]
        )


def _timed(act: Callable[[], int]) -> float:
    begun_s = time.perf_counter()
    act()
    return time.perf_counter() - begun_s


def _p99(values: list[float]) -> float:
    return sorted(values)[max(-(-len(values) * 99 // 100) - 1, 0)]
