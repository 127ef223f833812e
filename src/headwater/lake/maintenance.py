"""What a round of upkeep did, table by table; and the round without Spark.

    maintain_without_spark(place, topics, ledger, clock, entropy, settings)     and the report says what it left

Compaction and merges need Spark: spark/maintain.py and spark/merge.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headwater.clock import Clock, Entropy
from headwater.errors import HeadwaterError
from headwater.lake.care import Care, Pinned, TableUpkeep, nothing_pinned
from headwater.lake.catalog import CatalogPlace
from headwater.lake.ledger import LakeLedger
from headwater.lake.table_files import data_files
from headwater.lake.upkeep import UpkeepSettings, worth_compacting
from headwater.metadata.operations import TopicRecord


@dataclass(frozen=True)
class MaintenanceReport:
    tables: tuple[TableUpkeep, ...] = ()
    seconds: float = 0.0

    @property
    def halted(self) -> tuple[TableUpkeep, ...]:
        return tuple(each for each in self.tables if each.cause)

    @property
    def left(self) -> tuple[str, ...]:
        """What was not done, and why."""
        return tuple(f"{each.table}: {what}" for each in self.tables for what in each.left)

    def __getitem__(self, table: str) -> TableUpkeep:
        return next(each for each in self.tables if each.table == table)

    def __iter__(self) -> Iterator[TableUpkeep]:
        return iter(self.tables)

    def __repr__(self) -> str:
        shown = [str(each) for each in self.tables if each.did_something]
        return f"Maintained({'; '.join(shown) or 'nothing to do'})"


def maintain_without_spark(
    place: CatalogPlace,
    topics: Iterable[TopicRecord],
    ledger: LakeLedger,
    clock: Clock,
    entropy: Entropy,
    settings: UpkeepSettings | None = None,
    *,
    pinned: Pinned = nothing_pinned,
) -> MaintenanceReport:
    """Keep the tables of these topics as far as that needs no Spark."""
    settings = settings or UpkeepSettings()
    begun_s = clock.monotonic_s()
    care = Care(place.connect, ledger, clock=clock, entropy=entropy, settings=settings, pinned=pinned)
    found = [told for topic in topics if topic.table is not None for told in care.of_topic(topic)]
    for told in found:
        if is_worth_compacting(place, told, settings):
            told.left.append("small files stay as they are: compaction needs Spark")
    return MaintenanceReport(tuple(found), clock.monotonic_s() - begun_s)


def is_worth_compacting(place: CatalogPlace, told: TableUpkeep, settings: UpkeepSettings) -> bool:
    """Whether the table has small files enough, or enough files that say which rows are gone."""
    try:
        tables = place.connect()
        try:
            state = tables.load(told.table)
        finally:
            tables.close()
        if state is None:
            return False
        files, deletes = data_files(state)
    except HeadwaterError as error:
        told.left.append(str(error))
        return False
    return deletes >= settings.small_files_min or worth_compacting(files, settings)
