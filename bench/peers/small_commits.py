"""Many small commits: what becomes of a table, and of the next commit, after 2,000 landings of ten rows?

HEADWATER  `topic.append` and `log.land()`, again and again.  Kept: `log.maintain()` after every 100, as from cron, and
           at the end once with Spark, which compacts.  Bare: nobody ever looks after the table.
PYICEBERG  `table.append`, again and again.  Kept: its `expire_snapshots`, down to the last 100, after every 100; it
           has nothing that compacts.  Bare: nothing.
SPARK      a stream that commits every file of ten rows on its own; then `rewrite_data_files` and `expire_snapshots`.
           It has fewer commits, because each takes longer: how many is a figure.  Nothing is extrapolated.

The four sides in Python take turns, commit by commit.  A side that has had its time stops, and says at how many.
All tables are read by the same reader, pyiceberg's: two columns of all rows, from a new connection.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

import headwater as hw
from bench._lake import SCHEMA, BenchLake, batch_of, spark_on_two_cores
from bench._place import GIB, median, place
from bench.peers._part import Book, Chart, Compared, Figure, Part, Size
from bench.peers._spark_streams import create_table, file_stream, into_table
from bench.peers._tables import NAMESPACE, catalog_at, plain_catalog, plain_table, weigh
from headwater.lake.catalog import CatalogPlace, catalog_place
from headwater.lake.upkeep import UpkeepSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 10
KEPT_EVERY = 100
KEPT = UpkeepSettings(readers_s=0.0)
"""As if landings were minutes apart: no reader of an older snapshot is waited for."""
ENDS = 50
"""So many commits are the first ones, and so many the last; less where there are few."""
SCANS = 3
STREAM_S_MAX = 900
COLUMNS = "id BIGINT, customer BIGINT, amount DOUBLE, created_at TIMESTAMP, region STRING, text STRING"
SIDES = {
    "headwater_kept": "Headwater with `maintain` after every 100 landings",
    "headwater_bare": "Headwater that nobody looks after",
    "pyiceberg_kept": "pyiceberg with `expire_snapshots` after every 100 appends",
    "pyiceberg_bare": "pyiceberg that nobody looks after",
    "spark_stream": "Spark's stream",
}
COMPACTED = {
    "headwater_kept": "Headwater after `maintain` with Spark",
    "spark_stream": "Spark's stream after `rewrite_data_files` and `expire_snapshots`",
}


@dataclass
class Side:
    """One way of committing, again and again."""

    place: CatalogPlace
    table: str
    commit: Callable[[pa.RecordBatch], None]
    keep: Callable[[], None] | None = None
    commits_ms: list[float] = field(default_factory=list)
    upkeep_s: float = 0.0

    @property
    def seconds(self) -> float:
        return sum(self.commits_ms) / 1000 + self.upkeep_s

    def step(self, number: int) -> None:
        begun_s = time.perf_counter()
        self.commit(batch_of(number * ROWS, ROWS))
        self.commits_ms.append((time.perf_counter() - begun_s) * 1000)
        if self.keep is not None and number % KEPT_EVERY == KEPT_EVERY - 1:
            begun_s = time.perf_counter()
            self.keep()
            self.upkeep_s += time.perf_counter() - begun_s


def ends(commits_ms: Sequence[float]) -> tuple[float, float]:
    """The medians of the first and of the last commits."""
    some = max(min(ENDS, len(commits_ms) // 4), 1)
    return median(commits_ms[:some]), median(commits_ms[-some:])


def measure(size: Size, book: Book) -> None:
    side_s_max = size.of(60.0, 60.0, 420.0)
    stream_commits = size.of(4, 30, 200)
    book.set(landings=size.landings, rows_a_commit=ROWS, kept_every=KEPT_EVERY, side_s_max=side_s_max, scans=SCANS)
    with place(size.of(1, 2, 6) * GIB) as directory, ExitStack() as open_:
        logs = {name: open_.enter_context(_log(directory / name)) for name in SIDES if name.startswith("headwater")}
        sides = {name: _headwater(name, log) for name, log in logs.items()}
        for name in ("pyiceberg_kept", "pyiceberg_bare"):
            sides[name] = _pyiceberg(
                name, directory / name, open_.enter_context(closing(plain_catalog(directory / name)))
            )
        _commit_in_turn(sides, size.landings, side_s_max, book)
        with spark_on_two_cores() as spark:
            own = BenchLake(logs["headwater_kept"], directory / "headwater_kept", spark)
            sides["spark_stream"] = _stream(own, directory, stream_commits, book)
            for name, side in sides.items():
                _tell(name, side, book)
            _scan(sides, "scan_ms", book)
            _compact(own, sides, book)
            _scan({name: sides[name] for name in COMPACTED}, "compacted_scan_ms", book)


def _commit_in_turn(sides: dict[str, Side], commits: int, side_s_max: float, book: Book) -> None:
    names = list(sides)
    for number in range(commits):
        # Each goes first by turns.
        first = number % len(names)
        going = [sides[name] for name in names[first:] + names[:first] if sides[name].seconds < side_s_max]
        if not going:
            return
        for side in going:
            side.step(number)
        if number % KEPT_EVERY == KEPT_EVERY - 1:
            told = ", ".join(f"{name} {sides[name].commits_ms[-1]:.0f} ms" for name in names)
            book.say(f"{number + 1:,} of {commits:,} commits: {told}")


# Headwater ---------------------------------------------------------------------------------------------------------


@contextmanager
def _log(directory: Path) -> Iterator[hw.Log]:
    with hw.open(directory) as log:
        log.topic("t", schema=SCHEMA, table=f"{NAMESPACE}.t")
        # Whether the catalog keeps its word is tried at the first landing: not what a commit costs.
        log.check_catalog()
        yield log


def _headwater(name: str, log: hw.Log) -> Side:
    topic = log["t"]

    def commit(rows: pa.RecordBatch) -> None:
        topic.append(rows)
        landed = log.land()["t"]
        assert landed.verified, landed

    def keep() -> None:
        report = log.maintain(settings=KEPT)
        assert not report.halted, report

    assert log._lake is not None
    return Side(log._lake.place, f"{NAMESPACE}.t", commit, keep if name == "headwater_kept" else None)


# pyiceberg ---------------------------------------------------------------------------------------------------------


def _pyiceberg(name: str, directory: Path, catalog: Catalog) -> Side:
    table = plain_table(catalog, "t", SCHEMA)

    def commit(rows: pa.RecordBatch) -> None:
        table.append(pa.Table.from_batches([rows]))

    def keep() -> None:
        _expire(table)

    own = catalog_place(None, directory=str(directory))
    return Side(own, f"{NAMESPACE}.t", commit, keep if name == "pyiceberg_kept" else None)


def _expire(table: Table) -> None:
    """All but the last 100 snapshots."""
    table.refresh()
    newest = sorted(table.metadata.snapshots, key=lambda each: each.sequence_number or 0)[-KEPT.snapshots_kept :]
    older_than = datetime.fromtimestamp(newest[0].timestamp_ms / 1000, UTC)
    table.maintenance.expire_snapshots().older_than(older_than).commit()
    table.refresh()


# Spark -------------------------------------------------------------------------------------------------------------


def _stream(own: BenchLake, directory: Path, commits: int, book: Book) -> Side:
    """A stream that has committed so many files of ten rows, one by one."""
    book.say(f"Spark's stream, {commits} commits")
    own.spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(commits + 10))
    incoming = directory / "incoming"
    incoming.mkdir()
    nullable = pa.schema([each.with_nullable(True) for each in SCHEMA])
    for number in range(commits + 1):
        rows = pa.table(batch_of(number * ROWS, ROWS)).cast(nullable)
        pq.write_table(rows, incoming / f"{number:06}.parquet")
    table = create_table(own, "by_spark", COLUMNS)
    query = into_table(
        file_stream(own.spark, incoming, COLUMNS, files=1), table, directory / "checkpoint", available_now=True
    )
    assert query.awaitTermination(STREAM_S_MAX), f"the stream was not done in {STREAM_S_MAX} s"
    took_ms = [float(each["durationMs"]["triggerExecution"]) for each in query.recentProgress if each["numInputRows"]]
    assert len(took_ms) == commits + 1, f"{len(took_ms)} of {commits + 1} batches have told their time"
    # The first one compiles what the others run.
    return Side(own.place, f"{NAMESPACE}.by_spark", _never, commits_ms=took_ms[1:])


def _never(rows: pa.RecordBatch) -> None:
    raise AssertionError("a stream commits by itself")


def _compact(own: BenchLake, sides: dict[str, Side], book: Book) -> None:
    for name in COMPACTED:
        book.say(f"compaction, {name}")
        begun_s = time.perf_counter()
        if name == "headwater_kept":
            own.maintain("t")
        else:
            _rewrite(own.spark, own.catalog, sides[name].table)
        book.add(f"{name}_compaction_s", time.perf_counter() - begun_s)
        with closing(catalog_at(sides[name].place)) as catalog:
            book.add(f"{name}_compacted_files", weigh(catalog.load_table(sides[name].table)).data_files)


def _rewrite(spark: SparkSession, catalog: str, table: str) -> None:
    spark.sql(f"CALL {catalog}.system.rewrite_data_files(table => '{table}')").collect()
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    spark.sql(
        f"CALL {catalog}.system.expire_snapshots(table => '{table}', older_than => TIMESTAMP '{now}', "
        f"retain_last => {KEPT.snapshots_kept})"
    ).collect()


# What has become of them -------------------------------------------------------------------------------------------


def _tell(name: str, side: Side, book: Book) -> None:
    first_ms, last_ms = ends(side.commits_ms)
    with closing(catalog_at(side.place)) as catalog:
        weight = weigh(catalog.load_table(side.table))
    book.add(f"{name}_commits_count", len(side.commits_ms))
    book.add(f"{name}_first_commit_ms", first_ms)
    book.add(f"{name}_last_commit_ms", last_ms)
    book.add(f"{name}_data_files", weight.data_files)
    book.add(f"{name}_snapshots_count", weight.snapshots)
    book.add(f"{name}_manifests_count", weight.manifests)
    book.add(f"{name}_metadata_json_kb", weight.metadata_json_bytes / 1000)
    book.add(f"{name}_manifests_kb", weight.manifest_bytes / 1000)
    if side.keep is not None:
        book.add(f"{name}_upkeep_s", side.upkeep_s)


def _scan(sides: dict[str, Side], figure: str, book: Book) -> None:
    for _ in range(SCANS):
        for name, side in sides.items():
            begun_s = time.perf_counter()
            with closing(catalog_at(side.place)) as catalog:
                found = catalog.load_table(side.table).scan(selected_fields=("id", "amount")).to_arrow().num_rows
            book.add(f"{name}_{figure}", (time.perf_counter() - begun_s) * 1000)
            # The stream has committed one file more than are counted.
            expected = ROWS * (len(side.commits_ms) + (name == "spark_stream"))
            assert found == expected, f"{name} has {found} of {expected} rows"


_LESS = "A landing also writes down what it means to do, syncs that, and reads back what it has committed."
PART = Part(
    name="small_commits",
    title="Many small commits",
    question="What becomes of a table, and of its next commit, after thousands of commits of ten rows?",
    method="Ten rows of about 128 bytes a commit, into tables with the same properties in SQLite catalogs. Headwater's "
    "time is an append and a landing that is read back; pyiceberg's is one `table.append`; both take turns, "
    "commit by commit, and each is measured with the upkeep that its documentation gives a user, and without any. "
    "A side that has used up its time stops there. Spark's stream takes one Parquet file of ten rows a batch, and "
    "its time is what it says of each batch; it commits fewer times, and nothing is extrapolated. All are scanned "
    "by pyiceberg: two columns, all rows, from a new connection. What is counted is what the newest snapshot "
    "needs.",
    figures=(
        *(
            figure
            for side, what in SIDES.items()
            for figure in (
                Figure(f"{side}_commits_count", f"Commits that were made: {what}."),
                Figure(f"{side}_first_commit_ms", f"One of the first commits, the median of up to 50: {what}."),
                Figure(f"{side}_last_commit_ms", f"One of the last commits, the median of up to 50: {what}."),
                Figure(f"{side}_data_files", f"Data files in the newest snapshot: {what}."),
                Figure(f"{side}_snapshots_count", f"Snapshots in the table's metadata: {what}."),
                Figure(f"{side}_manifests_count", f"Manifests of the newest snapshot: {what}."),
                Figure(f"{side}_metadata_json_kb", f"Size of the newest metadata.json: {what}."),
                Figure(f"{side}_manifests_kb", f"Size of the newest snapshot's manifests and of their list: {what}."),
                Figure(f"{side}_scan_ms", f"Reading two columns of all rows: {what}."),
            )
        ),
        *(
            Figure(f"{side}_upkeep_s", f"Seconds of upkeep in all: {SIDES[side]}.")
            for side in ("headwater_kept", "pyiceberg_kept")
        ),
        *(
            figure
            for side, what in COMPACTED.items()
            for figure in (
                Figure(f"{side}_compaction_s", f"Seconds of that compaction, with Spark up: {what}."),
                Figure(f"{side}_compacted_files", f"Data files afterwards: {what}."),
                Figure(f"{side}_compacted_scan_ms", f"Reading two columns of all rows afterwards: {what}."),
            )
        ),
    ),
    measure=measure,
    compared=(
        Compared(
            "the first commits",
            "headwater_kept_first_commit_ms",
            "pyiceberg_kept_first_commit_ms",
            "pyiceberg",
            "lower",
            _LESS,
        ),
        Compared(
            "the last commits, both kept",
            "headwater_kept_last_commit_ms",
            "pyiceberg_kept_last_commit_ms",
            "pyiceberg, expired",
            "lower",
            _LESS,
        ),
        Compared(
            "the last commits, nobody looks after them",
            "headwater_bare_last_commit_ms",
            "pyiceberg_bare_last_commit_ms",
            "pyiceberg",
            "lower",
            _LESS,
        ),
        Compared(
            "the last commits, beside a stream",
            "headwater_kept_last_commit_ms",
            "spark_stream_last_commit_ms",
            "Spark's stream",
            "lower",
        ),
        Compared(
            "scan of the table, both kept, not compacted",
            "headwater_kept_scan_ms",
            "pyiceberg_kept_scan_ms",
            "pyiceberg, expired",
            "lower",
            "The same number of files, each with five columns more in its footer.",
        ),
    ),
    charts=(
        Chart(
            "One of the last commits of ten rows",
            "ms",
            tuple((what, f"{side}_last_commit_ms") for side, what in SIDES.items()),
        ),
        Chart(
            "Scan of the table at the end",
            "ms",
            (
                *((what, f"{side}_scan_ms") for side, what in SIDES.items()),
                *((what, f"{side}_compacted_scan_ms") for side, what in COMPACTED.items()),
            ),
        ),
    ),
    quick_s=300,
    full_s=2_400,
)
