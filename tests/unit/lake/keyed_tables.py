"""A log with a keyed topic, its change table and its state table in a SQLite lake, merged without Spark.

    with keyed(tmp_path) as lake:
        lake.land((1, "a"), (2, "b")); lake.merge()
        assert lake.ids() == [1, 2]

The MERGE itself is Spark's.  What stands for it here is a commit of pyiceberg's into the branch of the plan: the rows
that were landed between its two LSNs are appended in one snapshot that has the mark, as a merge of new keys leaves it.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from headwater.lake.ledger_records import CheckedCatalog, Merged
from headwater.lake.mark import Mark
from headwater.lake.merging import MergePlan, Merging
from headwater.lake.state_table import MergeMode
from headwater.lake.tables import TableState
from headwater.lake.upkeep import UpkeepSettings
from headwater.metadata.operations import TopicRecord
from headwater.storage.disk import DiskFiles

SCHEMA = {"id": int, "name": str}
STATE, CHANGES = "crm.customers", "crm.customers_changes"
MODE: MergeMode = "copy-on-write"


@dataclass
class Keyed:
    folder: Path
    log: hw.Log
    topic: hw.Topic
    ledger: Ledger
    place: CatalogPlace
    clock: ManualClock = field(default_factory=lambda: ManualClock(SystemClock().now_us()))
    """Upkeep's and the merge's: it can be sent days ahead."""

    @property
    def record(self) -> TopicRecord:
        return self.log._engine.topic(self.topic.name)

    @property
    def merging(self) -> Merging:
        return Merging(self.place.connect, self.ledger, clock=self.clock, entropy=system_entropy)

    @property
    def merged(self) -> Merged | None:
        """The last merge that the ledger knows."""
        return self.ledger.state().topic(self.record.topic_id.hex()).merged

    def land(self, *rows: tuple[int, str]) -> None:
        self.topic.upsert([{"id": number, "name": name} for number, name in rows])
        assert self.log.land().rows == len(rows)

    def begin(self, *, after_rollback: bool = False) -> MergePlan | None:
        return self.merging.begin(self.record, MODE, after_rollback=after_rollback)

    def begun(self, *, after_rollback: bool = False) -> tuple[MergePlan, Mark]:
        """A merge that there is something to do for, up to where Spark has made its snapshot."""
        plan = self.begin(after_rollback=after_rollback)
        assert plan is not None
        self.merging.branch(plan, MODE)
        return plan, self.run(plan)

    def run(self, plan: MergePlan) -> Mark:
        """What stands for the MERGE."""
        changes = self.pyiceberg(CHANGES).scan(
            f"_hw_lsn > {plan.lsn_from} and _hw_lsn <= {plan.lsn_to}", snapshot_id=plan.changes_snapshot
        )
        rows = changes.to_arrow()
        mark = plan.mark(rows.num_rows, max(rows["_hw_lsn"].to_pylist()))
        self.pyiceberg().append(rows.select(plan.columns), snapshot_properties=mark.summary(), branch=plan.branch)
        return mark

    def merge(self, *, after_rollback: bool = False) -> int:
        """A whole merge: its snapshot."""
        plan, mark = self.begun(after_rollback=after_rollback)
        made = self.merging.finish(plan, mark)
        assert made is not None
        return made

    def care(self, **settings: Any) -> dict[str, TableUpkeep]:
        keeper = Care(
            self.place.connect,
            self.ledger,
            clock=self.clock,
            entropy=system_entropy,
            settings=UpkeepSettings(**settings),
        )
        return {told.table: told for told in keeper.of_topic(self.record)}

    def load(self, table: str = STATE) -> TableState:
        with closing(self.place.connect()) as tables:
            state = tables.load(table)
        assert state is not None
        return state

    def pyiceberg(self, table: str = STATE) -> Any:
        return self.place.connect().catalog.load_table(table)

    def ids(self, table: str = STATE) -> list[int]:
        return sorted(self.pyiceberg(table).scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())

    def drop_table(self, table: str = STATE) -> None:
        self.place.connect().catalog.drop_table(table)

    def roll_back(self, snapshot: int) -> None:
        self.pyiceberg().manage_snapshots().rollback_to_snapshot(snapshot).commit()


@contextmanager
def keyed(folder: Path) -> Iterator[Keyed]:
    with hw.open(folder) as log:
        topic = log.topic("customers", schema=SCHEMA, key="id", table=STATE)
        ledger = Ledger(DiskFiles(folder), clock=SystemClock(), entropy=system_entropy)
        place = catalog_place(None, directory=str(folder))
        # That a catalog keeps its word is shown elsewhere, and takes seconds.
        ledger.record([CheckedCatalog(catalog=_identity(place), passed=True, properties={}, at_us=1)])
        try:
            yield Keyed(folder, log, topic, ledger, place)
        finally:
            ledger.close()
