"""What do the columns `_hw_*` add to a table's files?

LANDED  The same rows landed by Headwater, and appended by pyiceberg to a table of the user's own columns: the bytes of
        the data files of both; and, in Headwater's files, the bytes of the five columns alone.
ROWS    Narrow (an int64 and a double), of about 128 bytes, and of about 1 KB.  Appended by 1,000, and narrow ones also
        one by one, where every row has an LSN and a time of its own.

Bytes are counted, not timed: one round is enough.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import headwater as hw
from bench._kilobyte_rows import kilobyte_rows
from bench._lake import batch_of
from bench._place import GIB, place
from bench.peers._part import Book, Chart, Compared, Figure, Part, Size
from bench.peers._tables import catalog_at, plain_catalog, plain_table, weigh

ROWS_AN_APPEND = 1_000
KINDS = {
    "narrow": "rows of an int64 and a double, appended by 1,000",
    "one_by_one": "rows of an int64 and a double, each appended alone",
    "128_bytes": "rows of about 128 bytes, appended by 1,000",
    "1_kb": "rows of about 1 KB, appended by 1,000",
}
NARROW = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("value", pa.float64(), nullable=False)])
SYSTEM = "_hw_"


def narrow_rows(first: int, count: int) -> pa.RecordBatch:
    values = np.random.default_rng(first).random(count)
    return pa.record_batch([pa.array(np.arange(first, first + count)), pa.array(values)], schema=NARROW)


def measure(size: Size, book: Book) -> None:
    rows = size.of(2_000, 100_000, 500_000)
    singles = size.of(500, 5_000, 20_000)
    book.set(rows=rows, rows_one_by_one=singles, rows_of_1_kb=rows // 2, rows_an_append=ROWS_AN_APPEND)
    with place(3 * GIB) as directory:
        for kind, batch, count, rows_an_append in (
            ("narrow", narrow_rows, rows, ROWS_AN_APPEND),
            ("one_by_one", narrow_rows, singles, 1),
            ("128_bytes", batch_of, rows, ROWS_AN_APPEND),
            ("1_kb", kilobyte_rows, rows // 2, ROWS_AN_APPEND),
        ):
            book.say(f"{count:,} {KINDS[kind]}")
            _kind(directory / kind, kind, batch, count, rows_an_append, book)


def _kind(
    directory: Path,
    kind: str,
    batch: Callable[[int, int], pa.RecordBatch],
    rows: int,
    rows_an_append: int,
    book: Book,
) -> None:
    given = [batch(first, min(ROWS_AN_APPEND, rows - first)) for first in range(0, rows, ROWS_AN_APPEND)]
    with hw.open(directory / "headwater") as log:
        topic = log.topic("t", schema=given[0].schema, table="bench.t")
        for each in given:
            # Each waits for the one before it, so that every append is a frame of its own.
            for first in range(0, each.num_rows, rows_an_append):
                topic.append(each.slice(first, rows_an_append))
        assert log.land()["t"].rows == rows
        assert log._lake is not None
        with closing(catalog_at(log._lake.place)) as catalog:
            table = catalog.load_table("bench.t")
            ours = weigh(table)
            system = sum(_system_bytes(path) for path in _paths(table.inspect.files()))
    with closing(plain_catalog(directory / "pyiceberg")) as catalog:
        plain = plain_table(catalog, "t", given[0].schema)
        plain.append(pa.Table.from_batches(given))
        theirs = weigh(plain)
    shutil.rmtree(directory)
    book.add(f"headwater_{kind}_per_row_bytes", ours.data_bytes / rows)
    book.add(f"pyiceberg_{kind}_per_row_bytes", theirs.data_bytes / rows)
    book.add(f"headwater_{kind}_system_columns_per_row_bytes", system / rows)
    book.add(f"headwater_{kind}_file_size_ratio", ours.data_bytes / theirs.data_bytes)


def _paths(files: pa.Table) -> Iterator[Path]:
    for location in files["file_path"].to_pylist():
        yield Path(urlsplit(location).path)


def _system_bytes(path: Path) -> int:
    """What the system's columns take of a file, compressed."""
    found = pq.read_metadata(path)
    return sum(
        column.total_compressed_size
        for group in range(found.num_row_groups)
        for column in (found.row_group(group).column(place_) for place_ in range(found.num_columns))
        if column.path_in_schema.startswith(SYSTEM)
    )


PART = Part(
    name="columns",
    title="What the system's columns add",
    question="How much larger are the data files with the columns `_hw_*`?",
    method="The same rows are landed by Headwater, and appended by pyiceberg to a table of the user's own columns with "
    "the same properties. Bytes of data files are counted, not timed, so one round is enough. Text and doubles are "
    "random, as hexadecimal digits: files of both sides shrink by compression as a user's would, or less.",
    figures=tuple(
        figure
        for kind, rows in KINDS.items()
        for figure in (
            Figure(f"headwater_{kind}_per_row_bytes", f"Bytes of the landed data files, for each of {rows}."),
            Figure(f"pyiceberg_{kind}_per_row_bytes", f"Bytes of pyiceberg's data files, for each of {rows}."),
            Figure(
                f"headwater_{kind}_system_columns_per_row_bytes",
                f"Of the landed files, the compressed bytes of the five columns `_hw_*`, for each of {rows}.",
            ),
            Figure(f"headwater_{kind}_file_size_ratio", f"The landed files in times of pyiceberg's, with {rows}."),
        )
    ),
    measure=measure,
    compared=tuple(
        Compared(
            f"size of the data files, {rows}",
            f"headwater_{kind}_per_row_bytes",
            f"pyiceberg_{kind}_per_row_bytes",
            "pyiceberg",
            "lower",
            "Five columns more, which say of each row which frame and offset it came from. Without them nothing could "
            "be audited, traced or read again from an offset.",
        )
        for kind, rows in KINDS.items()
    ),
    charts=(
        Chart(
            "Data files, narrow rows and rows of 1 KB",
            "bytes a row",
            (
                ("Headwater, narrow", "headwater_narrow_per_row_bytes"),
                ("pyiceberg, narrow", "pyiceberg_narrow_per_row_bytes"),
                ("Headwater, 1 KB", "headwater_1_kb_per_row_bytes"),
                ("pyiceberg, 1 KB", "pyiceberg_1_kb_per_row_bytes"),
            ),
        ),
    ),
    quick_s=60,
    full_s=180,
)
