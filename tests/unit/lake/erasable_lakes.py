"""A log with one topic of people in its own lake, whose files hold their values in clear: shared by tests of erasure.

    with people(tmp_path) as lake:
        lake.land("ann", "bob"); lake.erase("name = 'bob'")
        assert lake.names() == ["ann"] and not lake.files_with("bob")

The tables are written without compression, so that a value is found in whatever file has it: segments, data files,
and manifests, where it is a bound of its column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import headwater as hw
from headwater.clock import ManualClock
from headwater.lake.catalog import CatalogPlace
from headwater.lake.erasing import erase
from headwater.lake.erasure_report import ErasureReport
from headwater.lake.erasures import erasures_of
from headwater.lake.iceberg_tables import IcebergTables
from headwater.lake.landing import Lake, _identity
from headwater.lake.ledger_records import CheckedCatalog, Erased
from headwater.lake.merging import MergePlan, Merging
from headwater.lake.runner import InProcess, Runner
from headwater.lake.shape import landing_table
from headwater.lake.tables import TableState
from headwater.metadata.operations import TopicRecord
from headwater.settings import LandingSettings, LogSettings
from headwater.topics.reading import Wanted, read_rows

LOG = LogSettings(reserve_bytes=0, segment_age_s_max=float("inf"))
SETTINGS = hw.Settings(log=LOG, journal=LOG, upkeep_interval_s=0, landing=LandingSettings(commit_threads=1))
TABLE = "crm.people"
IN_CLEAR = {"write.parquet.compression-codec": "uncompressed", "write.avro.compression-codec": "null"}


class Crash(BaseException):
    """The process ends here."""


class Meeting:
    """A connection whose commits and loads can be met, before and after."""

    def __init__(self, lake: Erasable, tables: IcebergTables) -> None:
        self._lake = lake
        self._tables = tables

    def __getattr__(self, verb: str) -> Any:
        asked = getattr(self._tables, verb)
        if not callable(asked):
            return asked

        def call(*args: Any, **options: Any) -> Any:
            self._lake.meet(f"before {verb}")
            answer = asked(*args, **options)
            self._lake.meet(f"after {verb}")
            return answer

        return call


@dataclass
class Erasable:
    folder: Path
    log: hw.Log
    topic: str = "people"
    runner: Runner = field(default_factory=InProcess)
    hooks: dict[str, Callable[[], None]] = field(default_factory=dict)
    """What happens at a point, once: "before commit", "after load"."""
    met: list[str] = field(default_factory=list)

    def meet(self, point: str) -> None:
        self.met.append(point)
        hook = self.hooks.pop(point, None)
        if hook is not None:
            hook()

    @property
    def engine(self) -> Any:
        return self.log._engine

    @property
    def lake(self) -> Lake:
        return self.log._beside()

    @property
    def record(self) -> TopicRecord:
        record: TopicRecord = self.engine.topic(self.topic)
        return record

    # Doing -------------------------------------------------------------------------------------

    def append(self, *names: str, ids: list[int] | None = None) -> None:
        numbers = ids if ids is not None else list(range(len(names)))
        self.log[self.topic].append([{"id": each, "name": name} for each, name in zip(numbers, names, strict=True)])

    def land(self, *names: str, ids: list[int] | None = None) -> None:
        if names:
            self.append(*names, ids=ids)
        [landed] = self.lake.land(self.lake.log_of(self.engine), self.topic, runner=self.runner).topics
        assert landed.outcome in {"landed", "nothing"} and landed.verified, landed

    def erase(self, where: str, reason: str = "they asked", **options: Any) -> ErasureReport:
        return erase(self.lake, self.engine, self.record, where, reason, runner=self.runner, **options)

    def merge(self) -> None:
        """What stands for Spark's MERGE: the changes since are put into a branch, the latest of each new key."""
        merging = Merging(self.lake.place.connect, self.lake.ledger, clock=self.lake.clock, entropy=self.lake.entropy)
        plan = self.begun_merge(merging)
        made = merging.finish(plan, self.merged(plan))
        assert made is not None

    def begun_merge(self, merging: Merging) -> MergePlan:
        plan = merging.begin(self.record, "copy-on-write")
        assert plan is not None
        merging.branch(plan, "copy-on-write")
        return plan

    def merged(self, plan: MergePlan) -> Any:
        changes = self.native(plan.changes).scan(
            f"_hw_lsn > {plan.lsn_from} and _hw_lsn <= {plan.lsn_to}", snapshot_id=plan.changes_snapshot
        )
        rows = changes.to_arrow()
        mark = plan.mark(rows.num_rows, max(rows["_hw_lsn"].to_pylist()))
        self.native(plan.table).append(
            rows.select(plan.columns), snapshot_properties=mark.summary(), branch=plan.branch
        )
        return mark

    # Looking -----------------------------------------------------------------------------------

    def native(self, table: str | None = None) -> Any:
        return self.lake.place.connect().catalog.load_table(table or landing_table(self.record))

    def state(self, table: str | None = None) -> TableState:
        with closing(self.lake.place.connect()) as tables:
            state = tables.load(table or landing_table(self.record))
        assert state is not None
        return state

    def names(self, table: str | None = None) -> list[str]:
        """What the table holds."""
        return sorted(self.native(table).scan(selected_fields=("name",)).to_arrow()["name"].to_pylist())

    def logged(self) -> list[str]:
        """What the log holds."""
        rows = read_rows(self.engine.shard.log, lambda: self.record, Wanted(columns=["name"])).to_arrow()
        return sorted(rows["name"].to_pylist())

    def files_with(self, value: str) -> list[str]:
        """The files below the data directory that hold this value anywhere in their bytes."""
        found = [path for path in self.folder.rglob("*") if path.is_file() and value.encode() in path.read_bytes()]
        return sorted(str(path.relative_to(self.folder)) for path in found)

    def receipts(self) -> list[Erased]:
        return erasures_of(self.lake.ledger.records(), self.record.topic_id.hex())


@contextmanager
def people(folder: Path, *, in_clear: bool = True, **options: Any) -> Iterator[Erasable]:
    """Topic and table are there, with one person in them, "first"."""
    data = folder / "data"
    table = options.pop("table", TABLE)
    with hw.open(data, settings=SETTINGS, clock=ManualClock(), entropy=Random(1).randbytes) as log:
        log.topic("people", schema=options.pop("schema", {"id": int, "name": str}), table=table, **options)
        lake = Erasable(data, log)
        if table is None:
            yield lake
            return
        beside = lake.lake
        # That a catalog keeps its word is shown elsewhere, and takes seconds.
        beside.ledger.record([CheckedCatalog(catalog=_identity(beside.place), passed=True, properties={}, at_us=1)])
        beside._place = _Met(beside.place, lake)  # type: ignore[assignment]
        lake.land("first", ids=[0])
        if in_clear:
            _in_clear(lake)
        yield lake


def _in_clear(lake: Erasable) -> None:
    with lake.native().transaction() as change:
        change.set_properties(IN_CLEAR)


class _Met:
    """The catalog's place, whose connections are met."""

    def __init__(self, place: CatalogPlace, lake: Erasable) -> None:
        self._place = place
        self._lake = lake

    def __getattr__(self, name: str) -> Any:
        return getattr(self._place, name)

    def connect(self) -> Any:
        return Meeting(self._lake, self._place.connect())
