"""A real log, a real catalog (SQLite) and a real ledger in one folder, and what others do to its tables.

    lake = SmallLake(tmp_path)
    orders = lake.topic("orders")               a topic of one column x, with the table lake.orders
    lake.append("orders", 3)                    three rows, in one frame
    lake.round()                                land all topics, in this process

SEED     Entropy is drawn from a seeded random.Random, and the clock moves when it is told to.
FAULTS   `lake.before[verb]` is called before a verb of any connection, `lake.after[verb]` after it: they raise, or
         change the table under the caller.
NOT HERE Schedules of many landers: tests/simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import SetSnapshotRefUpdate

import headwater as hw
from headwater.clock import ManualClock
from headwater.errors import Unavailable
from headwater.frames.frame import Kind
from headwater.lake.catalog import catalog_place
from headwater.lake.iceberg_tables import IcebergTables
from headwater.lake.lander import Lander
from headwater.lake.ledger import Ledger
from headwater.lake.ledger_records import LedgerRecord, unpack_ledger_record
from headwater.lake.ledger_state import TopicLedger
from headwater.lake.report import LandingReport
from headwater.lake.runner import InProcess, Runner
from headwater.lake.source import EngineSource
from headwater.lake.standing import Decisions
from headwater.lake.tables import Tables, TableState
from headwater.lake.work import Done, ReadBackWork, Work
from headwater.log.frame_log import open_log
from headwater.metadata.operations import TopicRecord
from headwater.settings import LandingSettings, LogSettings
from headwater.storage.disk import DiskFiles
from tests.unit.topics.small_engines import engine_of

PLAIN = pa.schema([pa.field("x", pa.int64())])
NARROW = LandingSettings(commit_threads=1)
LOG = LogSettings(reserve_bytes=0, segment_age_s_max=float("inf"))
SETTINGS = hw.Settings(log=LOG, journal=LOG, upkeep_interval_s=0, landing=NARROW)


class Watched:
    """A connection whose every verb can be met, before and after."""

    def __init__(self, lake: SmallLake, tables: IcebergTables) -> None:
        self._lake = lake
        self._tables = tables
        self.closed = 0

    def __getattr__(self, verb: str) -> Any:
        asked = getattr(self._tables, verb)

        def call(*args: Any, **options: Any) -> Any:
            assert not self.closed, "a connection was used after it was closed"
            self._lake.calls.append(verb)
            self._lake.meet(self._lake.before, verb, args)
            answer = asked(*args, **options)
            self._lake.meet(self._lake.after, verb, args)
            return answer

        return call

    def close(self) -> None:
        self.closed += 1
        self._tables.close()


Hook = Callable[[tuple[Any, ...]], None]


class SmallLake:
    def __init__(self, folder: Path, settings: hw.Settings = SETTINGS) -> None:
        self.folder = folder / "data"
        self.clock = ManualClock()
        self.log = hw.open(self.folder, settings=settings, clock=self.clock, entropy=Random(1).randbytes)
        self.place = catalog_place(None, directory=str(self.folder))
        self.ledger = Ledger(DiskFiles(self.folder), clock=self.clock, entropy=Random(2).randbytes)
        self.before: dict[str, Hook] = {}
        self.after: dict[str, Hook] = {}
        self.calls: list[str] = []
        self.connections: list[Watched] = []
        self.runner: Runner = InProcess()
        self._entropy = Random(3).randbytes
        self._next = 0

    @staticmethod
    def meet(hooks: dict[str, Hook], verb: str, args: tuple[Any, ...]) -> None:
        hook = hooks.get(verb)
        if hook is not None:
            hook(args)

    def close(self) -> None:
        self.log.close()
        self.ledger.close()

    # The log -----------------------------------------------------------------------------------

    def topic(self, name: str, schema: Any = PLAIN, **options: Any) -> TopicRecord:
        self.log.topic(name, schema=schema, table=f"lake.{name}", **options)
        return self.record(name)

    def record(self, name: str) -> TopicRecord:
        return self.log._engine.topic(name)

    def append(self, name: str, count: int = 1) -> None:
        rows = pa.table({"x": list(range(self._next, self._next + count))}, schema=PLAIN)
        self._next += count
        self.log[name].append(rows)

    # Landing -----------------------------------------------------------------------------------

    def connect(self) -> Tables:
        connection = Watched(self, self.place.connect())
        self.connections.append(connection)
        return connection

    def source(self) -> EngineSource:
        return EngineSource(engine_of(self.log), str(self.folder))

    def lander(self, settings: LandingSettings = NARROW, **parts: Any) -> Lander:
        given = {
            "source": self.source(),
            "connect": self.connect,
            "ledger": self.ledger,
            "runner": self.runner,
            **parts,
        }
        return Lander(**given, clock=self.clock, entropy=self._entropy, settings=settings)

    def round(
        self,
        *names: str,
        after_rollback: Sequence[str] = (),
        landed_lsn: dict[str, int] | None = None,
        settings: LandingSettings = NARROW,
        verify: Any = "read-back",
        **parts: Any,
    ) -> LandingReport:
        """A round of these topics, of all if none is named, by a new lander."""
        topics = [self.record(name) for name in names] or [
            topic for topic in engine_of(self.log).metadata().topics.values() if topic.table is not None
        ]
        decisions = Decisions(frozenset(after_rollback), landed_lsn or {})
        return self.lander(settings, **parts).round(topics, decisions=decisions, verify=verify)

    def known(self, name: str = "orders") -> TopicLedger:
        return self.ledger.state().topic(self.record(name).topic_id.hex())

    def records(self) -> list[LedgerRecord]:
        """Everything that the ledger holds."""
        with open_log(DiskFiles(self.folder), "ledger", settings=LOG, clock=self.clock) as log:
            return [unpack_ledger_record(frame.body) for frame in log.read() if frame.header.kind == Kind.LEDGER]

    def told(self) -> list[str]:
        """The ledger's records by name."""
        return [str(record.__struct_config__.tag) for record in self.records()]

    def rewrite_ledger(self, keeps: Callable[[LedgerRecord], bool]) -> None:
        """As if the other records had never been written."""
        kept = [record for record in self.records() if keeps(record)]
        self.ledger.close()
        for path in (self.folder / "ledger").iterdir():
            path.unlink()
        self.ledger = Ledger(DiskFiles(self.folder), clock=self.clock, entropy=Random(4).randbytes)
        self.ledger.record(kept)

    # The tables --------------------------------------------------------------------------------

    def state(self, name: str = "orders") -> TableState:
        tables = self.place.connect()
        try:
            state = tables.load(f"lake.{name}")
        finally:
            tables.close()
        assert state is not None
        return state

    def values(self, name: str = "orders") -> list[int]:
        """What the table holds of x, sorted."""
        with self.native(name) as table:
            return sorted(table.scan(selected_fields=("x",)).to_arrow()["x"].to_pylist())

    def native(self, name: str = "orders") -> _Native:
        return _Native(self, f"lake.{name}")

    # What others do ----------------------------------------------------------------------------

    def foreign_append(self, name: str = "orders", x: int = -1) -> None:
        """Somebody else's row: it is of no log."""
        with self.native(name) as table:
            fields = table.schema().as_arrow()
            optional = [field for field in fields if field.name == "x"]
            if len(optional) == len(fields):
                table.append(pa.table({"x": [x]}, schema=pa.schema(optional)))
                return
            # Where the columns of a log are required, its row says that it is of none.
            zero = {"_hw_time": 0}
            columns = {field.name: pa.array([zero.get(field.name, 0)]).cast(field.type) for field in fields}
            columns["x"] = pa.array([x], pa.int64())
            table.append(pa.table(columns, schema=fields))

    def foreign_delete(self, name: str = "orders", x: int = 0) -> None:
        with self.native(name) as table:
            table.delete(f"x == {x}")

    def rollback(self, snapshot: int | None, name: str = "orders") -> None:
        """Move main to a snapshot."""
        assert snapshot is not None
        with self.native(name) as table:
            move = SetSnapshotRefUpdate.model_validate(
                {"ref-name": "main", "type": SnapshotRefType.BRANCH, "snapshot-id": snapshot}
            )
            table.catalog.commit_table(table, (), (move,))

    def expire_all_but_head(self, name: str = "orders") -> None:
        """As pyiceberg does it: the head forgets its parent."""
        with self.native(name) as table:
            head = table.current_snapshot()
            assert head is not None
            gone = [each.snapshot_id for each in table.snapshots() if each.snapshot_id != head.snapshot_id]
            table.maintenance.expire_snapshots().by_ids(gone).commit()

    def forget_the_mark(self, name: str = "orders") -> None:
        """Nothing says any more how far the table has come: a row of somebody else, no history, no property."""
        self.foreign_append(name)
        with self.native(name) as table, table.transaction() as change:
            change.remove_properties("headwater.landed.main")
        self.expire_all_but_head(name)

    def drop(self, name: str = "orders") -> None:
        with self.native(name) as table:
            table.catalog.drop_table(f"lake.{name}")

    def files(self, name: str = "orders") -> list[Path]:
        """The data files of the table's head."""
        with self.native(name) as table:
            return [Path(each.file.file_path.removeprefix("file://")) for each in table.scan().plan_files()]


class _Native:
    """pyiceberg's own table, with its connection closed afterwards."""

    def __init__(self, lake: SmallLake, name: str) -> None:
        self._tables = lake.place.connect()
        self._name = name

    def __enter__(self) -> Table:
        return self._tables.catalog.load_table(self._name)

    def __exit__(self, *_: object) -> None:
        self._tables.close()


class ForgetfulSource(EngineSource):
    """A log that has let go of what it had of a topic, up to some number of rows."""

    def __init__(self, lake: SmallLake, held: int | Exception = 0) -> None:
        super().__init__(engine_of(lake.log), str(lake.folder))
        self.held = held

    def holds_all(self, topic_number: int, lsn_from: int, lsn_to: int) -> bool:
        return False

    def rows_between(self, topic_number: int, lsn_from: int, lsn_to: int) -> int:
        if isinstance(self.held, Exception):
            raise self.held
        return self.held


class NoReadBack(InProcess):
    """Lands, and has no worker left when it comes to reading back."""

    def run(self, works: Sequence[Work]) -> Iterator[Done]:
        if works and isinstance(works[0], ReadBackWork):
            raise Unavailable("the workers are gone")
        return super().run(works)


class Once:
    """A hook that acts the first so many times."""

    def __init__(self, act: Callable[[], object], times: int = 1) -> None:
        self._act = act
        self._left = times

    def __call__(self, _: tuple[Any, ...]) -> None:
        if self._left:
            self._left -= 1
            self._act()


def of_kind(lake: SmallLake, *kinds: type) -> list[Any]:
    """The ledger's records of these kinds."""
    return [each for each in lake.records() if isinstance(each, kinds)]


def outcomes(report: LandingReport) -> dict[str, str]:
    return {each.topic: each.outcome for each in report}


def raising(error: BaseException, times: int = 1) -> Once:
    def act() -> None:
        raise error

    return Once(act, times)


def only_for(table: str, hook: Hook) -> Hook:
    """A hook for the verbs of one table alone: by its state or its name, which is their first argument."""

    def met(args: tuple[Any, ...]) -> None:
        named = getattr(args[0], "name", args[0]) if args else ""
        if named == f"lake.{table}":
            hook(args)

    return met


def lakes(folder: Path, settings: hw.Settings = SETTINGS) -> Iterator[SmallLake]:
    """For a fixture: closed when the test is over."""
    lake = SmallLake(folder, settings)
    yield lake
    lake.close()
