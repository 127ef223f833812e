"""How long does it take to bring many topics into their tables where each commit needs 300 ms?

A catalog that answers from another region takes about that long.  Both sides have the same one (_slow_catalog.py), the
same tables, and the same 500 rows of about 128 bytes for each.

HEADWATER  one `log.land()` of all topics: one pass over the log, and commits of several topics at a time, as its
           settings say (`commit_threads`, 8).
PYICEBERG  `table.append(arrow)`, one table after the other, from rows that are in memory: what one would write first.
           And the same from 8 threads, for whoever writes that.

Tables exist before the clock starts.  Headwater reads its rows from the log and reads back what it has landed; its
seconds have both, and reading back is told apart.
"""

from __future__ import annotations

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

import headwater as hw
from bench._lake import SCHEMA, batch_of
from bench._place import GIB, place
from bench.peers._part import Book, Chart, Compared, Figure, Part, Size
from bench.peers._slow_catalog import NAME, SlowCatalog
from bench.peers._tables import NAMESPACE, plain_table, rows_in

COMMIT_DELAY_S = 0.3
ROWS = 500
THREADS = hw.LandingSettings().commit_threads
COUNTS = {"one": "1 topic", "twenty": "20 topics", "many": "many topics (how many is a setting: 1,000 in a full run)"}


def measure(size: Size, book: Book) -> None:
    counts = {"one": 1, "twenty": size.of(2, 20, 20), "many": size.topics}
    book.set(
        commit_delay_ms=COMMIT_DELAY_S * 1000, rows_a_topic=ROWS, commit_threads=THREADS, topics_many=counts["many"]
    )
    with place(2 * GIB) as directory:
        for turn, (count, topics) in enumerate(counts.items()):
            sides = (_headwater, _pyiceberg)
            # Each goes first by turns.
            for side in sides if turn % 2 == 0 else sides[::-1]:
                book.say(f"{topics:,} topics, {side.__name__.strip('_')}")
                try:
                    side(directory / "now", count, topics, book)
                finally:
                    SlowCatalog.delay_s = 0.0
                shutil.rmtree(directory / "now")


def _properties(directory: Path) -> dict[str, Any]:
    (directory / "lake").mkdir(parents=True, exist_ok=True)
    return {
        "py-catalog-impl": NAME,
        "uri": f"sqlite:///{directory}/catalog.db?timeout=30",
        "warehouse": f"file://{directory}/lake",
    }


def _headwater(directory: Path, count: str, topics: int, book: Book) -> None:
    names = [f"t{number}" for number in range(topics)]
    with hw.open(directory / "log", catalog=_properties(directory)) as log:
        for number, name in enumerate(names):
            log.topic(name, schema=SCHEMA, table=f"{NAMESPACE}.{name}").append(batch_of(number, 1))
        assert len(log.land().landed) == topics
        for number, name in enumerate(names):
            log[name].append(batch_of(number * ROWS, ROWS))
        SlowCatalog.delay_s = COMMIT_DELAY_S
        begun_s = time.perf_counter()
        report = log.land()
        book.add(f"headwater_land_{count}_s", time.perf_counter() - begun_s)
        book.add(f"headwater_read_back_{count}_s", report.verify_s)
        assert len(report.landed) == topics, report
        assert report.rows == topics * ROWS, report


def _pyiceberg(directory: Path, count: str, topics: int, book: Book) -> None:
    with closing(load_catalog("headwater", **_properties(directory))) as catalog:
        catalog.create_namespace(NAMESPACE)
        tables = [plain_table(catalog, f"t{number}", SCHEMA) for number in range(topics)]
        rows = [pa.Table.from_batches([batch_of(number * ROWS, ROWS)]) for number in range(topics)]
        for number, table in enumerate(tables):
            table.append(pa.Table.from_batches([batch_of(number, 1)]))
        SlowCatalog.delay_s = COMMIT_DELAY_S
        begun_s = time.perf_counter()
        for table, mine in zip(tables, rows, strict=True):
            table.append(mine)
        book.add(f"pyiceberg_one_by_one_{count}_s", time.perf_counter() - begun_s)
        begun_s = time.perf_counter()
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(Table.append, tables, rows))
        book.add(f"pyiceberg_threads_{count}_s", time.perf_counter() - begun_s)
        _check(catalog, topics)


def _check(catalog: Catalog, topics: int) -> None:
    for number in range(topics):
        assert rows_in(catalog.load_table(f"{NAMESPACE}.t{number}")) == 2 * ROWS + 1


PART = Part(
    name="many_topics",
    title="Many topics, a catalog far away",
    question="How long does it take to bring many topics into their tables where each commit needs 300 ms?",
    method="Both sides commit through the same catalog: pyiceberg's SQL catalog on SQLite, whose every commit waits "
    "300 ms first, several at once where they are made at once. 500 rows of about 128 bytes for each topic; tables "
    "exist before the clock starts. Headwater's seconds have reading the log and reading back what has landed, with "
    "its default of 8 commits at a time; pyiceberg appends rows that are in memory, one table after the other, and "
    "again from 8 threads. Spark's streaming was not measured here: it has a query for each topic, each with a "
    "checkpoint and commits of its own, or one query whose `foreachBatch` writes one table after the other and waits "
    "as plain appends do.",
    figures=tuple(
        figure
        for count, topics in COUNTS.items()
        for figure in (
            Figure(f"headwater_land_{count}_s", f"One `log.land()` of {topics}, read back and compared."),
            Figure(f"headwater_read_back_{count}_s", f"Of that, reading back: {topics}."),
            Figure(f"pyiceberg_one_by_one_{count}_s", f"`table.append`, one table after the other: {topics}."),
            Figure(f"pyiceberg_threads_{count}_s", f"`table.append` from 8 threads: {topics}."),
        )
    ),
    measure=measure,
    compared=tuple(
        Compared(
            f"{topics.partition(' (')[0]} into their tables", f"headwater_land_{count}_s", theirs, peer, "lower", why
        )
        for count, topics in COUNTS.items()
        for theirs, peer, why in (
            (
                f"pyiceberg_one_by_one_{count}_s",
                "pyiceberg, one by one",
                "With one topic there is nothing to do at once, and a landing also reads back what it has committed.",
            ),
            (
                f"pyiceberg_threads_{count}_s",
                f"pyiceberg, {THREADS} threads",
                "A program with threads of its own waits for as many commits at once, has its rows in memory, writes "
                "no ledger and reads nothing back.",
            ),
        )
    ),
    charts=(
        Chart(
            "Many topics into their tables, 300 ms a commit",
            "s",
            (
                ("Headwater", "headwater_land_many_s"),
                ("pyiceberg, 8 threads", "pyiceberg_threads_many_s"),
                ("pyiceberg, one by one", "pyiceberg_one_by_one_many_s"),
            ),
        ),
    ),
    quick_s=180,
    full_s=1_500,
)
