"""Upkeep with Spark: compaction of small files, then all that needs no Spark.

    maintain(spark, "lake", place, topics, ledger, clock, entropy)  ->  MaintenanceReport

Compaction is Iceberg's own `rewrite_data_files`.  It replaces files by others with the same rows: in a table that is
landed into it conflicts with nothing, and a landing that it overtakes commits its files onto the new head.  A merge
that it overtakes begins anew.

PROMISE  A compaction that was overtaken or failed has changed nothing; it is said, and tried again the next time.
NOT HERE Stamps, expiry, orphans, changes past their retention, and what others did: lake/care.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from headwater.clock import Clock, Entropy
from headwater.errors import HeadwaterError
from headwater.lake.care import COMPACTION, Care, Pinned, TableUpkeep, note_of, nothing_pinned
from headwater.lake.catalog import CatalogPlace
from headwater.lake.ledger import LakeLedger
from headwater.lake.ledger_records import Kept
from headwater.lake.maintenance import MaintenanceReport, is_worth_compacting, maintain_without_spark
from headwater.lake.shape import landing_table
from headwater.lake.tables import TableState
from headwater.lake.upkeep import UpkeepSettings, history
from headwater.metadata.operations import TopicRecord
from headwater.spark.own_session import own_session
from headwater.spark.session import catalog_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("headwater.spark")


def maintain(
    spark: SparkSession | None,
    spark_catalog: str,
    place: CatalogPlace,
    topics: Iterable[TopicRecord],
    ledger: LakeLedger,
    clock: Clock,
    entropy: Entropy,
    settings: UpkeepSettings | None = None,
    *,
    pinned: Pinned = nothing_pinned,
) -> MaintenanceReport:
    """Keep the tables of these topics: the ones that rows land in, and the states of keyed ones."""
    settings = settings or UpkeepSettings()
    if spark is None:
        return maintain_without_spark(place, topics, ledger, clock, entropy, settings, pinned=pinned)
    begun_s = clock.monotonic_s()
    care = Care(place.connect, ledger, clock=clock, entropy=entropy, settings=settings, pinned=pinned)
    found: list[TableUpkeep] = []
    for topic in topics:
        if topic.table is None:
            continue
        compacted = {
            table: _compacted(spark, spark_catalog, place, topic.name, table, ledger, clock, settings)
            for table in dict.fromkeys((landing_table(topic), topic.table))
        }
        for told in care.of_topic(topic):
            before = compacted[told.table]
            told.compacted_files, told.made_files = before.compacted_files, before.made_files
            told.left[:0] = before.left
            found.append(told)
    return MaintenanceReport(tuple(found), clock.monotonic_s() - begun_s)


def _compacted(
    spark: SparkSession,
    catalog: str,
    place: CatalogPlace,
    topic: str,
    table: str,
    ledger: LakeLedger,
    clock: Clock,
    settings: UpkeepSettings,
) -> TableUpkeep:
    """Compact one table, if that is worth it."""
    told = TableUpkeep(topic, table)
    if not is_worth_compacting(place, told, settings):
        return told
    if settings.dry_run:
        told.left.append("small files would be compacted")
        return told
    try:
        before = _snapshots(place, table)
        with own_session(spark, catalog) as session:
            row = session.sql(rewrite_statement(catalog, table, settings)).collect()[0]
    except HeadwaterError as error:
        told.left.append(str(error))
        return told
    except Exception as error:  # noqa: BLE001  Spark raises what any of its parts raised; the table is as it was
        logger.warning("the compaction of %s raised %s: %s", table, type(error).__name__, str(error)[:500])
        told.left.append(f"small files stay for now: {_first_line(error)}")
        return told
    told.compacted_files, told.made_files = row["rewritten_data_files_count"], row["added_data_files_count"]
    _note(place, ledger, clock, told, before)
    return told


def rewrite_statement(catalog: str, table: str, settings: UpkeepSettings) -> str:
    options = {
        "target-file-size-bytes": settings.target_file_bytes,
        # Only small files are taken up, and those that have many others saying which of their rows are gone.
        "min-file-size-bytes": min(settings.small_file_bytes, settings.target_file_bytes),
        "max-file-size-bytes": 1 << 62,
        "min-input-files": settings.small_files_min,
        "delete-file-threshold": settings.small_files_min,
        "remove-dangling-deletes": "true",
    }
    listed = ", ".join(f"'{name}', '{value}'" for name, value in options.items())
    name = catalog_table(catalog, table).partition(".")[2]
    return (
        f"CALL {catalog_table(catalog, 'system.rewrite_data_files')}(table => '{name}', strategy => 'binpack', "
        f"options => map({listed}))"
    )


def _note(
    place: CatalogPlace, ledger: LakeLedger, clock: Clock, told: TableUpkeep, before: Mapping[int, Mapping[str, str]]
) -> None:
    """Write down which snapshots are this compaction's: they carry no mark of ours, and are not others' either."""
    after = _snapshots(place, told.table)
    detail = f"{told.compacted_files} files became {told.made_files}"
    # Beside the one that replaced files there may be one that took away what was left of deletes.
    replaced = {str(told.compacted_files), "0"}
    ledger.record(
        [
            Kept(table=told.table, what=COMPACTION, detail=note_of(snapshot, detail), at_us=clock.now_us())
            for snapshot, summary in after.items()
            if snapshot not in before and summary.get("deleted-data-files", "0") in replaced
        ]
    )


def _snapshots(place: CatalogPlace, table: str) -> dict[int, Mapping[str, str]]:
    """The summaries of main's compactions."""
    tables = place.connect()
    try:
        state: TableState | None = tables.load(table)
    finally:
        tables.close()
    head = state.head() if state is not None else None
    if state is None or head is None:
        return {}
    line = history(state, head.snapshot_id)
    return {each.snapshot_id: each.summary for each in line if each.operation == "replace"}


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200] if str(error).strip() else ''}"
