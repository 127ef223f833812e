"""Kafka, Spark's Structured Streaming and Iceberg, against a log that lands: how fast, how fresh, in how many files?

RATE   Rows of 1 KB wait in Kafka, as JSON, and in topics of Headwater's, as they were appended.  In turn, until all are
       in the table: `log.land()` with processes of its own; `log.land(spark=...)`; Spark's stream from Kafka that
       parses the JSON, with the trigger availableNow; and the same without parsing, message by message as bytes.
FRESH  A row is produced, and the table asked every 20 ms, from outside, whether it has it.  The stream runs all the
       time, as soon as it can and once a second; so does `headwater land --every`, in a process of its own.
       Beside it, the same row in Headwater's view of topic and table, which needs no landing.

The first round of each is not counted: Spark compiles what it runs often.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from pyiceberg.catalog import Catalog

from bench._engines import engine_of
from bench._kafka import Kafka, check_installed, kafka
from bench._kilobyte_rows import SCHEMA, kilobyte_rows
from bench._lake import BenchLake, lake, spark_on_two_cores
from bench._place import GIB, place
from bench.peers._part import Book, Chart, Compared, Figure, Part, Size
from bench.peers._spark_streams import (
    PARTITIONS,
    TOKENS_VERSION,
    VERSION,
    Producing,
    create_table,
    create_topic,
    into_table,
    json_lines,
    json_stream,
    raw_stream,
    spark_kafka_jars,
)
from bench.peers._tables import NAMESPACE, catalog_at, rows_in, weigh

ROWS_AN_APPEND = 1_000
POLL_S = 0.02
FRESH_S_MAX = 60.0
STREAM_S_MAX = 600
PAUSES = {"asap": (None, "1ms"), "every_second": ("1 second", "1s")}
"""Of Spark's trigger (None: it has no pause), and of `headwater land --every`."""
RATES = {
    "headwater_land": "`log.land()` with processes of its own, read back and compared",
    "headwater_spark_land": "`log.land(spark=...)`, read back and compared",
    "kafka_spark": "Spark's stream from Kafka, JSON parsed into columns",
    "kafka_spark_unparsed": "Spark's stream from Kafka, each message one column of bytes",
}


def measure(size: Size, book: Book) -> None:
    check_installed()
    rows = size.of(2_000, 100_000, 500_000)
    rounds = size.of(1, 2, 3)
    probes = size.of(2, 8, 12)
    book.set(
        rows=rows,
        rounds=rounds,
        probes_a_round=probes,
        rows_an_append=ROWS_AN_APPEND,
        kafka_partitions=PARTITIONS,
        kafka_flush_messages=1,
        spark="local[2], driver memory 4g",
        spark_kafka_source=f"{VERSION}, its token provider {TOKENS_VERSION}",
        poll_ms=POLL_S * 1000,
    )
    with (
        place(size.of(1, 4, 12) * GIB) as directory,
        kafka(directory / "kafka") as broker,
        spark_on_two_cores(spark_kafka_jars()) as spark,
        lake(directory / "lake", spark) as own,
    ):
        bench = _Bench(own, broker, directory, book)
        bench.rate("warm-up", min(rows, 20_000), 1, keep=False)
        bench.rate("rate", rows, rounds, keep=True)
        for number in range(rounds):
            for pause in PAUSES:
                book.say(f"freshness, {pause}, round {number + 1} of {rounds}")
                bench.fresh(pause, number, probes)


@dataclass
class _Bench:
    own: BenchLake
    broker: Kafka
    directory: Path
    book: Book

    # Rate ---------------------------------------------------------------------------------------------------------

    def rate(self, name: str, rows: int, rounds: int, *, keep: bool) -> None:
        """All sides, round by round; Kafka's topic is read anew from its beginning by each query."""
        self.book.say(f"{rows:,} rows into Kafka")
        create_topic(self.broker, name)
        producing = Producing(self.broker)
        for first in range(0, rows, ROWS_AN_APPEND):
            producing.send(name, json_lines(kilobyte_rows(first, min(ROWS_AN_APPEND, rows - first))))
        sides: dict[str, Callable[[str], float]] = {
            "headwater_land": self._land,
            "headwater_spark_land": self._land_by_spark,
            "kafka_spark": partial(self._stream, name, True),
            "kafka_spark_unparsed": partial(self._stream, name, False),
        }
        names = list(sides)
        for number in range(rounds):
            # Each goes first by turns.
            for side in names[number % 4 :] + names[: number % 4]:
                table = f"{side}_{name.replace('-', '_')}_{number}"
                if side.startswith("headwater"):
                    self._fill(table, rows)
                self.book.say(f"{name}, round {number + 1} of {rounds}: {side}")
                seconds = sides[side](table)
                with closing(catalog_at(self.own.place)) as catalog:
                    weight = weigh(catalog.load_table(f"{NAMESPACE}.{table}"))
                    found = rows_in(catalog.load_table(f"{NAMESPACE}.{table}"))
                assert found == rows, f"{side} has {found} of {rows} rows"
                self.own.forget_files(table)
                if keep:
                    self.book.add(f"{side}_rows_per_s", rows / seconds)
                    self.book.add(f"{side}_data_files", weight.data_files)

    def _fill(self, name: str, rows: int) -> None:
        """A topic with so many rows, in segments of its own, and its empty table: Spark's exists before, too."""
        engine_of(self.own.log).shard.log.roll()
        topic = self.own.log.topic(name, schema=SCHEMA, table=f"{NAMESPACE}.{name}")
        for first in range(0, rows, ROWS_AN_APPEND):
            topic.append(kilobyte_rows(first, min(ROWS_AN_APPEND, rows - first)))
        self.own.make_table(name)

    def _land(self, table: str) -> float:
        begun_s = time.perf_counter()
        report = self.own.log.land(table)
        seconds = time.perf_counter() - begun_s
        assert report[table].verified, report
        return seconds

    def _land_by_spark(self, table: str) -> float:
        begun_s = time.perf_counter()
        report = self.own.log.land(table, spark=self.own.spark)
        seconds = time.perf_counter() - begun_s
        assert report[table].verified, report
        return seconds

    def _stream(self, topic: str, parse: bool, table: str) -> float:
        spark = self.own.spark
        full = create_table(self.own, table) if parse else create_table(self.own, table, "value BINARY")
        begun_s = time.perf_counter()
        rows = (
            json_stream(spark, self.broker, topic) if parse else raw_stream(spark, self.broker, topic).select("value")
        )
        query = into_table(rows, full, self.directory / "checkpoints" / table, available_now=True)
        ended = query.awaitTermination(STREAM_S_MAX)
        seconds = time.perf_counter() - begun_s
        assert ended, f"the stream was not done in {STREAM_S_MAX} s"
        return seconds

    # Freshness ----------------------------------------------------------------------------------------------------

    def fresh(self, pause: str, number: int, probes: int) -> None:
        sides = [self._fresh_spark, self._fresh_headwater]
        for side in sides if number % 2 == 0 else sides[::-1]:
            side(pause, f"fresh_{pause}_{number}", probes)

    def _fresh_spark(self, pause: str, name: str, probes: int) -> None:
        create_topic(self.broker, name)
        producing = Producing(self.broker)
        table = f"{name}_spark"
        full = create_table(self.own, table)
        rows = json_stream(self.own.spark, self.broker, name)
        query = into_table(rows, full, self.directory / "checkpoints" / table, every=PAUSES[pause][0])
        try:
            seconds = self._probe(
                table, probes, lambda number: producing.send(name, json_lines(kilobyte_rows(number, 1)))
            )
        finally:
            query.stop()
        self.book.add(f"kafka_spark_{pause}_queryable_s", *seconds)

    def _fresh_headwater(self, pause: str, name: str, probes: int) -> None:
        topic = self.own.log.topic(name, schema=SCHEMA, table=f"{NAMESPACE}.{name}")
        self.own.make_table(name)
        with _lander(self.own.directory, name, PAUSES[pause][1]):
            seconds = self._probe(name, probes, lambda number: topic.append(kilobyte_rows(number, 1)))
        self.book.add(f"headwater_{pause}_queryable_s", *seconds)
        expected = topic.scan().count()
        for number in range(probes):
            begun_s = time.perf_counter()
            topic.append(kilobyte_rows(number, 1))
            with topic.scan() as scan:
                count = scan.count()
            self.book.add("headwater_view_ms", (time.perf_counter() - begun_s) * 1000)
            expected += 1
            assert count == expected, f"{count} of {expected} rows in the view"

    def _probe(self, table: str, probes: int, send: Callable[[int], object]) -> list[float]:
        """Seconds from giving a row away to its being in the table; the first one, which starts all up, is left out."""
        pauses_s = np.random.default_rng(1).random(probes + 1)
        found: list[float] = []
        with closing(catalog_at(self.own.place)) as catalog:
            for number in range(probes + 1):
                begun_s = time.perf_counter()
                send(number)
                _wait_for(catalog, f"{NAMESPACE}.{table}", number + 1)
                found.append(time.perf_counter() - begun_s)
                # Not in step with whoever looks once a second.
                time.sleep(pauses_s[number])
        return found[1:]


def _wait_for(catalog: Catalog, table: str, rows: int) -> None:
    until_s = time.monotonic() + FRESH_S_MAX
    while rows_in(catalog.load_table(table)) < rows:
        assert time.monotonic() < until_s, f"{table} had not {rows} rows after {FRESH_S_MAX:.0f} s"
        time.sleep(POLL_S)


@contextmanager
def _lander(directory: Path, topic: str, every: str) -> Iterator[None]:
    """`headwater land --every` in a process of its own."""
    command = [sys.executable, "-m", "headwater", "land", topic, "--data", str(directory), "--every", every]
    process = subprocess.Popen(
        [*command, "--freshness", "1ms"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=sys.stderr
    )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


_QUERYABLE = {
    "asap": "as soon as it can",
    "every_second": "once a second",
}
PART = Part(
    name="kafka_spark",
    title="Kafka, Spark's streaming and Iceberg",
    question="How fast, how fresh and in how many files do rows come into the table?",
    method="Rows of 1 KB. Kafka has them as JSON, which is what most would send, in a topic of two partitions that "
    "syncs before it acknowledges; Headwater has them as they were appended, in Arrow. Spark runs on two cores, and so "
    "do Headwater's own processes. Tables are made before the clock starts, with the same properties; Spark's "
    "columns may be null, which is faster. Rates: all rows wait, and the trigger is availableNow; the unparsed "
    "stream writes each message as one column of bytes, and shows what parsing costs. Headwater's seconds have "
    "reading back what has landed. Freshness: a row is given away at random moments, and the table is asked every "
    "20 ms, from another connection; both streams are up and have landed a row before.",
    figures=(
        *(
            figure
            for side, what in RATES.items()
            for figure in (
                Figure(f"{side}_rows_per_s", f"Rows of 1 KB that came into the table a second: {what}."),
                Figure(f"{side}_data_files", f"Data files that they made: {what}."),
            )
        ),
        *(
            figure
            for pause, what in _QUERYABLE.items()
            for figure in (
                Figure(
                    f"headwater_{pause}_queryable_s",
                    f"From an append to the row in the Iceberg table; `headwater land --every` looks {what}.",
                ),
                Figure(
                    f"kafka_spark_{pause}_queryable_s",
                    f"From producing to the row in the Iceberg table; Spark's stream is triggered {what}.",
                ),
            )
        ),
        Figure("headwater_view_ms", "From an append to the row in `topic.scan().count()`, which reads table and log."),
    ),
    measure=measure,
    compared=(
        Compared(
            "rows/s into the table", "headwater_land_rows_per_s", "kafka_spark_rows_per_s", "Kafka + Spark", "higher"
        ),
        Compared(
            "rows/s into the table, both on Spark",
            "headwater_spark_land_rows_per_s",
            "kafka_spark_rows_per_s",
            "Kafka + Spark",
            "higher",
        ),
        Compared(
            "rows/s into the table, beside bytes that are not parsed",
            "headwater_land_rows_per_s",
            "kafka_spark_unparsed_rows_per_s",
            "Kafka + Spark, unparsed",
            "higher",
            "Bytes that nobody has parsed are cheap to copy; whoever reads the table parses them, every time.",
        ),
        *(
            Compared(
                f"seconds to the row in the table, {what}",
                f"headwater_{pause}_queryable_s",
                f"kafka_spark_{pause}_queryable_s",
                "Kafka + Spark",
                "lower",
                "A landing writes down what it means to do, walks the table's history, and commits on condition.",
            )
            for pause, what in _QUERYABLE.items()
        ),
    ),
    charts=(
        Chart("Rows of 1 KB into the table", "rows/s", tuple((side, f"{side}_rows_per_s") for side in RATES)),
        Chart(
            "From a row given away to the row in the table",
            "s",
            (
                ("Headwater, as soon as it can", "headwater_asap_queryable_s"),
                ("Kafka + Spark, as soon as it can", "kafka_spark_asap_queryable_s"),
                ("Headwater, once a second", "headwater_every_second_queryable_s"),
                ("Kafka + Spark, once a second", "kafka_spark_every_second_queryable_s"),
            ),
        ),
    ),
    quick_s=300,
    full_s=900,
)
