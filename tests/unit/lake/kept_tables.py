"""A log with one topic in its own lake, and the means to keep its table: shared by tests of upkeep.

with kept(tmp_path) as lake:
    lake.land(1, 2, 3); lake.care(snapshots_kept=1)
    assert lake.ids() == [1, 2, 3]
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import headwater as hw
from headwater.clock import ManualClock, SystemClock, system_entropy
from headwater.lake.care import Care, TableUpkeep
from headwater.lake.catalog import CatalogPlace, catalog_place
from headwater.lake.landing import _identity
from headwater.lake.ledger import Ledger
from headwater.lake.ledger_records import CheckedCatalog
from headwater.lake.tables import TableState
from headwater.lake.upkeep import UpkeepSettings
from headwater.metadata.operations import TopicRecord
from headwater.storage.disk import DiskFiles

TABLE = "sales.orders"


@dataclass
class Kept:
    """A log with one topic, its lake, and the means to keep it."""

    folder: Path
    log: hw.Log
    topic: hw.Topic
    ledger: Ledger
    place: CatalogPlace
    clock: ManualClock = field(default_factory=lambda: ManualClock(SystemClock().now_us()))

    @property
    def record(self) -> TopicRecord:
        return self.log._engine.topic(self.topic.name)

    def land(self, *numbers: int) -> None:
        for number in numbers:
            self.topic.append([{"id": number}])
            assert self.log.land().rows == 1

    def care(self, **settings: Any) -> TableUpkeep:
        keeper = Care(
            self.place.connect,
            self.ledger,
            clock=self.clock,
            entropy=system_entropy,
            settings=UpkeepSettings(**settings),
        )
        [told] = keeper.of_topic(self.record)
        return told

    def load(self) -> TableState:
        with closing(self.place.connect()) as tables:
            state = tables.load(TABLE)
        assert state is not None
        return state

    def pyiceberg(self) -> Any:
        return self.place.connect().catalog.load_table(TABLE)

    def ids(self) -> list[int]:
        return sorted(self.pyiceberg().scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())

    def data_paths(self) -> set[str]:
        return {str(path) for path in (self.folder / "lake" / "sales" / "orders").rglob("*") if path.is_file()}


@contextmanager
def kept(folder: Path, catalog: Mapping[str, str] | None = None) -> Iterator[Kept]:
    with hw.open(folder, catalog=catalog) as log:
        topic = log.topic("orders", schema={"id": int}, table=TABLE)
        ledger = Ledger(DiskFiles(folder), clock=SystemClock(), entropy=system_entropy)
        place = catalog_place(catalog, directory=str(folder))
        # That a catalog keeps its word is shown elsewhere, and takes seconds.
        ledger.record([CheckedCatalog(catalog=_identity(place), passed=True, properties={}, at_us=1)])
        try:
            yield Kept(folder, log, topic, ledger, place)
        finally:
            ledger.close()


def compact(lake: Kept) -> None:
    """All rows into one file, in a snapshot without a mark, as somebody's compaction would."""
    table = lake.pyiceberg()
    rows = table.scan().to_arrow()
    table.overwrite(rows)


def age(path: str, days: float) -> None:
    then = SystemClock().now_us() / 1e6 - days * 86_400
    os.utime(path, (then, then))
