"""What does a log in front of the table cost, or save, beside plain `table.append(arrow)` of pyiceberg's?

Batches of 1,000 rows of 1 KB, the same for all, in turn:

LANDED ONCE   each batch appended to a topic, which makes it durable, and all of them landed at the end
LANDED EACH   each batch appended and landed at once: the table is as fresh as with plain appends
PLAIN         `table.append` of each batch: a file and a commit for each
PLAIN ONCE    one `table.append` of all batches: what is cheapest, and what keeps all rows in memory until then

Headwater reads back what it has landed and compares it: that is in its seconds.  Rows of plain appends that a process
had not yet appended are gone with it; that is in nobody's seconds.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import pyarrow as pa

import headwater as hw
from bench._kilobyte_rows import SCHEMA, kilobyte_rows
from bench._place import GIB, median, place
from bench.peers._part import Book, Chart, Compared, Figure, Part, Size, in_turn
from bench.peers._tables import catalog_at, plain_catalog, plain_table, rows_in, weigh

ROWS_A_BATCH = 1_000
SIDES = {
    "headwater_land_once": "each batch appended to a topic, all of them landed at the end",
    "headwater_land_each": "each batch appended to a topic and landed at once",
    "pyiceberg_each": "`table.append` of each batch",
    "pyiceberg_once": "one `table.append` of all batches",
}


def measure(size: Size, book: Book) -> None:
    batches = [kilobyte_rows(number * ROWS_A_BATCH, ROWS_A_BATCH) for number in range(size.of(5, 60, 300))]
    rounds = size.of(1, 2, 3)
    book.set(batches=len(batches), rows_a_batch=ROWS_A_BATCH, batch_bytes=batches[0].nbytes, rounds=rounds)
    with place(4 * GIB) as directory:
        now = directory / "now"
        in_turn(
            {
                "headwater_land_once": partial(_headwater, "headwater_land_once", now, batches, False, book),
                "headwater_land_each": partial(_headwater, "headwater_land_each", now, batches, True, book),
                "pyiceberg_each": partial(_pyiceberg, "pyiceberg_each", now, batches, 1, book),
                "pyiceberg_once": partial(_pyiceberg, "pyiceberg_once", now, batches, len(batches), book),
            },
            rounds,
            book,
        )


def _headwater(side: str, directory: Path, batches: list[pa.RecordBatch], land_each: bool, book: Book) -> None:
    appends_ms: list[float] = []
    landings_ms: list[float] = []
    with hw.open(directory) as log:
        topic = log.topic("t", schema=SCHEMA, table="bench.t")
        # The table is made, and the catalog checked, before the clock starts: so it is for the others.
        topic.append(batches[0].slice(0, 1))
        log.land()
        begun_s = time.perf_counter()
        for batch in batches:
            append_s = time.perf_counter()
            topic.append(batch)
            appends_ms.append((time.perf_counter() - append_s) * 1000)
            if land_each:
                landings_ms.append(_land_ms(log))
        if not land_each:
            landings_ms.append(_land_ms(log))
        seconds = time.perf_counter() - begun_s
        assert log._lake is not None
        with closing(catalog_at(log._lake.place)) as catalog:
            table = catalog.load_table("bench.t")
            assert rows_in(table) == ROWS_A_BATCH * len(batches) + 1
            files = weigh(table).data_files - 1
    _write(book, side, len(batches), seconds, appends_ms, landings_ms, files)
    shutil.rmtree(directory)


def _land_ms(log: hw.Log) -> float:
    begun_s = time.perf_counter()
    report = log.land()
    assert report["t"].outcome == "landed", report
    return (time.perf_counter() - begun_s) * 1000


def _pyiceberg(side: str, directory: Path, batches: list[pa.RecordBatch], together: int, book: Book) -> None:
    appends_ms: list[float] = []
    with closing(plain_catalog(directory)) as catalog:
        table = plain_table(catalog, "t", SCHEMA)
        table.append(pa.Table.from_batches([batches[0].slice(0, 1)]))
        begun_s = time.perf_counter()
        for first in range(0, len(batches), together):
            append_s = time.perf_counter()
            table.append(pa.Table.from_batches(batches[first : first + together]))
            appends_ms.append((time.perf_counter() - append_s) * 1000)
        seconds = time.perf_counter() - begun_s
        assert rows_in(table) == ROWS_A_BATCH * len(batches) + 1
        files = weigh(table).data_files - 1
    _write(book, side, len(batches), seconds, appends_ms, appends_ms, files)
    shutil.rmtree(directory)


def _write(
    book: Book,
    side: str,
    batches: int,
    seconds: float,
    safe_ms: Sequence[float],
    commits_ms: Sequence[float],
    files: int,
) -> None:
    book.add(f"{side}_rows_per_s", ROWS_A_BATCH * batches / seconds)
    book.add(f"{side}_safe_ms", median(safe_ms))
    book.add(f"{side}_commit_ms", median(commits_ms))
    book.add(f"{side}_data_files", files)


PART = Part(
    name="pyiceberg_appends",
    title="Plain appends of pyiceberg's",
    question="What does a log in front of the table cost, or save, beside `table.append(arrow)`?",
    method="The same Arrow batches of 1,000 rows of 1 KB, into tables with the same properties in SQLite catalogs. "
    "Headwater's seconds have the append to the log with its sync, the landing, and reading back what has landed. "
    "Plain appends are in the table when they return; Headwater's are durable when they return, are in a view at once, "
    "and in the table once they are landed.",
    figures=tuple(
        figure
        for side, what in SIDES.items()
        for figure in (
            Figure(f"{side}_rows_per_s", f"Rows of 1 KB that were in the table a second: {what}."),
            Figure(f"{side}_safe_ms", f"From giving a batch away to its being safe from a crash, the median: {what}."),
            Figure(
                f"{side}_commit_ms", f"One call that brings rows into the table, the median, files and all: {what}."
            ),
            Figure(f"{side}_data_files", f"Data files in the table at the end: {what}."),
        )
    ),
    measure=measure,
    compared=(
        Compared(
            "rows/s into the table, batches as they come",
            "headwater_land_once_rows_per_s",
            "pyiceberg_each_rows_per_s",
            "pyiceberg, an append a batch",
            "higher",
        ),
        Compared(
            "a batch is safe from a crash",
            "headwater_land_once_safe_ms",
            "pyiceberg_each_safe_ms",
            "pyiceberg, an append a batch",
            "lower",
        ),
        Compared(
            "data files",
            "headwater_land_once_data_files",
            "pyiceberg_each_data_files",
            "pyiceberg, an append a batch",
            "lower",
        ),
        Compared(
            "one commit of one batch",
            "headwater_land_each_commit_ms",
            "pyiceberg_each_commit_ms",
            "pyiceberg, an append a batch",
            "lower",
            "A landing also writes down what it means to do, syncs that, and reads back what it has committed.",
        ),
        Compared(
            "rows/s into the table, all rows in hand",
            "headwater_land_once_rows_per_s",
            "pyiceberg_once_rows_per_s",
            "pyiceberg, one append",
            "higher",
            "Rows that are all in memory, and that may be lost until the call returns, need no log: one append writes "
            "them once and reads nothing back.",
        ),
    ),
    charts=(
        Chart(
            "Rows of 1 KB into the table",
            "rows/s",
            (
                ("Headwater, landed once", "headwater_land_once_rows_per_s"),
                ("pyiceberg, one append", "pyiceberg_once_rows_per_s"),
                ("Headwater, landed each", "headwater_land_each_rows_per_s"),
                ("pyiceberg, an append a batch", "pyiceberg_each_rows_per_s"),
            ),
        ),
    ),
    quick_s=120,
    full_s=420,
)
