"""A catalog and its tables as plain values: what it shows, what it is asked, and all the ways in which it lies.

TABLE    A version is a frozen value: uuid, schema and spec id, properties, branches, snapshots with their data files.
         A commit makes the next one, if the request's requirements hold; nothing else does.
FILES    A store of data files with their rows.  Writing over a file, or taking away one that a branch's head needs, is
         noticed.  A snapshot's files were listed when its commit was staged, as manifests are: a commit that goes to
         another head than it was staged on takes the files in between away.
FAULTS   Of a connection, as its `Seam` draws them: unavailable, a stale cache, a lost reply, a request that is applied
         later or not at all, one that is sent again, a COMMIT that was refused and shows its result to its own
         connection until that is closed.
NOT HERE Who calls and when: lake_schedules.py.  What must hold: lake_checks.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Protocol, TypeVar

from headwater.errors import LandingHalted, Unavailable
from headwater.lake.mark import MAIN, Mark, property_name
from headwater.lake.tables import (
    CommitRefused,
    CommitUncertain,
    Fit,
    Staged,
    TableShape,
    TableSnapshot,
    TableState,
)
from headwater.lake.work import Block, Column, Digest, WrittenFile

T = TypeVar("T")

Row = tuple[int, int, int, int]
"""Topic number, LSN, partition, offset: all that a row is here."""

_MASK = 0xFFFF_FFFF_FFFF_FFFF


def word(row: Row) -> int:
    """A row's word: rows that differ have different ones."""
    number, lsn, partition, offset = row
    mixed = (number * 0x9E3779B97F4A7C15 + lsn * 0xBF58476D1CE4E5B9 + partition * 0x94D049BB133111EB + offset) & _MASK
    mixed ^= mixed >> 31
    return mixed * 0xD6E8FEB86659FD93 & _MASK


def digest_of(rows: Sequence[Row]) -> Digest:
    """The digest of some rows, in the product's form."""
    blocks: dict[tuple[int, int], tuple[int, int]] = {}
    for row in rows:
        where = row[2], row[3] >> 16
        count, total = blocks.get(where, (0, 0))
        blocks[where] = count + 1, (total + word(row)) & _MASK
    return Digest(tuple(Block(*where, *counted) for where, counted in sorted(blocks.items())))


class Seam(Protocol):
    """Where a lander meets the world: every call passes here, so that others may come between, and it may fail."""

    def call(self, what: str, effect: Callable[[], T]) -> T:
        """Do it, unless the caller dies before; the caller may die after."""
        ...

    def fault(self, what: str) -> str | None:
        """Which fault this call meets, of those that there are for it."""
        ...


class NoFaults:
    """The seam of somebody whom nothing happens to."""

    def call(self, what: str, effect: Callable[[], T]) -> T:
        return effect()

    def fault(self, what: str) -> str | None:
        return None


class Missing(OSError):
    """A data file that is not there."""


class Store:
    """The data files of all tables."""

    def __init__(self, violated: Callable[[str], None]) -> None:
        self.files: dict[str, tuple[Row, ...]] = {}
        self.written: dict[str, tuple[Row, ...]] = {}
        """All that ever were."""
        self.gone: set[str] = set()
        self.orphans: set[str] = set()
        """Those of them that went because upkeep called them orphans."""
        self._violated = violated

    def write(self, path: str, rows: Sequence[Row]) -> None:
        if path in self.files or path in self.gone:
            self._violated(f"L5: the data file {path} was written over")
        self.files[path] = self.written[path] = tuple(rows)

    def remove(self, path: str) -> None:
        if self.files.pop(path, None) is not None:
            self.gone.add(path)

    def rows(self, path: str) -> tuple[Row, ...]:
        try:
            return self.files[path]
        except KeyError:
            raise Missing(f"there is no {path}") from None


@dataclass(frozen=True)
class Snapshot:
    snapshot_id: int
    parent_id: int | None
    operation: str
    summary: Mapping[str, str]
    sequence: int
    files: tuple[str, ...]
    """Every data file that it shows."""
    added: tuple[str, ...] = ()
    deleted: frozenset[Row] = frozenset()
    """Rows of those files that are deleted row by row."""


@dataclass(frozen=True)
class Version:
    """A table at one moment."""

    name: str
    uuid: str
    schema_id: int = 0
    spec_id: int = 0
    columns: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    branches: Mapping[str, int] = field(default_factory=dict)
    snapshots: Mapping[int, Snapshot] = field(default_factory=dict)
    last_sequence: int = 0
    format_version: int = 2

    @property
    def head(self) -> Snapshot | None:
        head = self.branches.get(MAIN)
        return None if head is None else self.snapshots[head]

    def history(self) -> list[Snapshot]:
        """From main's head back, as far as it is kept."""
        found = []
        snapshot = self.head
        while snapshot is not None:
            found.append(snapshot)
            snapshot = None if snapshot.parent_id is None else self.snapshots.get(snapshot.parent_id)
        return found

    def with_snapshot(self, snapshot: Snapshot, branch: str = MAIN) -> Version:
        return replace(
            self,
            snapshots={**self.snapshots, snapshot.snapshot_id: snapshot},
            branches={**self.branches, branch: snapshot.snapshot_id},
            last_sequence=max(self.last_sequence, snapshot.sequence),
        )


@dataclass(frozen=True)
class Request:
    """A commit as it is sent: what must hold, and what it changes."""

    table: str
    uuid: str | None
    branch: str
    base: int | None
    check_base: bool
    schema_id: int | None
    spec_id: int | None
    snapshot: Snapshot
    columns: tuple[str, ...] | None
    """The columns of the schema that it adds."""
    properties: Mapping[str, str]
    staged_under: tuple[int, int]
    """Schema and spec id that its files were written under."""


OnCommit = Callable[[Version | None, Version, "Request | None"], None]


class Catalog:
    """What is true: the tables by name, and requests that are still under way."""

    def __init__(self, chance: Random, violated: Callable[[str], None], *, checks_sequence: bool = True) -> None:
        self.chance = chance
        self.store = Store(violated)
        self.tables: dict[str, Version] = {}
        self.past: dict[str, list[Version | None]] = {}
        """What each table was before, newest last: stale caches show these."""
        self.late: list[Request] = []
        self.on_commit: OnCommit = lambda before, after, request: None
        self.on_stale: Callable[[Version | None], None] = lambda version: None
        self._checks_sequence = checks_sequence
        self._numbers = 0

    def number(self) -> int:
        """A new one, for snapshots, files and uuids."""
        self._numbers += 1
        return self._numbers

    def change(self, name: str, after: Version | None, request: Request | None = None) -> None:
        """The table becomes this."""
        before = self.tables.get(name)
        past = self.past.setdefault(name, [])
        past.append(before)
        del past[:-6]
        if after is None:
            self.tables.pop(name, None)
            return
        self.tables[name] = after
        self.on_commit(before, after, request)

    def applied(self, request: Request, to: Version | None) -> Version:
        """What a request makes of a table.  CommitRefused where one of its requirements does not hold."""
        if to is None:
            raise CommitRefused("there is no such table", table=request.table)
        if request.uuid is not None and to.uuid != request.uuid:
            raise CommitRefused("the table has another uuid", table=request.table)
        if request.check_base and to.branches.get(request.branch) != request.base:
            raise CommitRefused("the branch has another head", table=request.table)
        if request.schema_id is not None and to.schema_id != request.schema_id:
            raise CommitRefused("the table has another schema", table=request.table)
        if request.spec_id is not None and to.spec_id != request.spec_id:
            raise CommitRefused("the table has another partition spec", table=request.table)
        if request.snapshot.snapshot_id in to.snapshots:
            raise CommitRefused("the snapshot is there already", table=request.table)
        if self._checks_sequence and request.base is not None and request.snapshot.sequence <= to.last_sequence:
            raise CommitRefused("the sequence number is older than the last", table=request.table)
        after = to.with_snapshot(request.snapshot, request.branch)
        if request.columns is not None:
            after = replace(after, schema_id=to.schema_id + 1, columns=request.columns)
        return replace(after, properties={**to.properties, **request.properties})

    def apply(self, request: Request) -> None:
        self.change(request.table, self.applied(request, self.tables.get(request.table)), request)

    def deliver(self, request: Request) -> bool:
        """A request that was under way arrives."""
        if any(path in self.store.gone - self.store.orphans for path in request.snapshot.files):
            # Its snapshot was there, was taken back and has expired, after days: no network keeps a request so long.
            return False
        try:
            self.apply(request)
        except CommitRefused:
            return False
        return True


def shown(version: Version) -> TableState:
    return TableState(
        name=version.name,
        uuid=version.uuid,
        format_version=version.format_version,
        schema_id=version.schema_id,
        spec_id=version.spec_id,
        properties=version.properties,
        branches=version.branches,
        snapshots={
            each.snapshot_id: TableSnapshot(each.snapshot_id, each.parent_id, each.operation, each.summary)
            for each in version.snapshots.values()
        },
        native=version,
    )


def target_of(version: Version, columns: tuple[str, ...]) -> bytes:
    return "|".join(
        (version.name, version.uuid, str(version.schema_id), str(version.spec_id), ",".join(columns))
    ).encode()


class SimulatedTables:
    """One connection."""

    def __init__(self, catalog: Catalog, seam: Seam) -> None:
        self._catalog = catalog
        self._seam = seam
        self._uncommitted: dict[str, Version] = {}
        """What a COMMIT that was refused has left in this connection."""
        self._open = True

    def load(self, name: str) -> TableState | None:
        return self._call("load", lambda fault: self._load(name, fault), name)

    def create(self, name: str, shape: TableShape) -> TableState:
        return self._call("create", lambda fault: self._create(name, shape, fault))

    def fit(self, state: TableState, shape: TableShape) -> Fit:
        version = _version(state)
        wanted = tuple(shape.schema.names)
        strange = [name for name in version.columns if name.startswith("required_") and name not in wanted]
        if strange:
            raise LandingHalted("schema", f"{state.name!r} has columns that no row has a value for", columns=strange)
        new = tuple(name for name in wanted if name not in version.columns)
        columns = version.columns + new
        return Fit(
            target=target_of(version, columns),
            columns=tuple(Column(number, name, "long") for number, name in enumerate(columns, 1)),
            changes_schema=bool(new),
            native=columns if new else None,
        )

    def stage(
        self, state: TableState, fit: Fit, files: Sequence[WrittenFile], mark: Mark, *, branch: str = MAIN
    ) -> Staged:
        return self._call("stage", lambda fault: self._stage(state, fit, files, mark, branch, fault))

    def _stage(
        self,
        state: TableState,
        fit: Fit,
        files: Sequence[WrittenFile],
        mark: Mark,
        branch: str,
        fault: str | None,
    ) -> Staged:
        if fault is not None:
            raise Unavailable("a manifest could not be written", table=state.name)
        version = _version(state)
        head = version.branches.get(branch)
        below = version.snapshots[head].files if head is not None else ()
        snapshot_id = 1_000_000 + self._catalog.number()
        added = tuple(file.path for file in files)
        snapshot = Snapshot(
            snapshot_id=snapshot_id,
            parent_id=head,
            operation="append",
            summary=mark.summary(),
            sequence=version.last_sequence + 1,
            files=below + added,
            added=added,
            deleted=version.snapshots[head].deleted if head is not None else frozenset(),
        )
        columns = fit.native if isinstance(fit.native, tuple) else None
        return Staged(snapshot_id, head, self._request(version, snapshot, columns, mark, branch, files))

    def _request(
        self,
        version: Version,
        snapshot: Snapshot,
        columns: tuple[str, ...] | None,
        mark: Mark,
        branch: str,
        files: Sequence[WrittenFile],
    ) -> Request:
        under = {_written_under(file) for file in files} or {(version.schema_id, version.spec_id)}
        return Request(
            table=version.name,
            uuid=version.uuid,
            branch=branch,
            base=snapshot.parent_id,
            check_base=True,
            schema_id=version.schema_id,
            spec_id=version.spec_id,
            snapshot=snapshot,
            columns=columns,
            properties={property_name(branch): mark.property_value(snapshot.snapshot_id)},
            staged_under=min(under),
        )

    def commit(self, staged: Staged) -> None:
        request = staged.native
        assert isinstance(request, Request)
        self._call("commit", lambda fault: self._commit(request, fault))

    def max_row_lsn(self, state: TableState, branch: str = MAIN) -> int:
        def bound(fault: str | None) -> int:
            if fault is not None:
                raise Unavailable("the bounds of the data files cannot be told", table=state.name)
            version = _version(state)
            head = version.branches.get(branch)
            files = version.snapshots[head].files if head is not None else ()
            # A bound is of the file as it was written: rows that were deleted from it since still count.
            # It stands in a manifest, so a file that is lost has it too.
            return max((row[1] for path in files for row in self._catalog.store.written[path]), default=0)

        return self._call("max_row_lsn", bound)

    def added_files(self, state: TableState, snapshot_id: int) -> Sequence[str]:
        return self._call("added_files", lambda fault: self._files_of(state, snapshot_id, fault).added)

    def files_between(self, state: TableState, lsn_from: int, lsn_to: int) -> Sequence[str]:
        def found(fault: str | None) -> Sequence[str]:
            if fault is not None:
                raise Unavailable("a manifest could not be read", table=state.name)
            head = _version(state).head
            written = self._catalog.store.written
            # By their bounds, as manifests have them: a file may be named that holds no such row.
            return [
                path
                for path in (head.files if head is not None else ())
                if max(row[1] for row in written[path]) > lsn_from and min(row[1] for row in written[path]) <= lsn_to
            ]

        return self._call("files_between", found)

    def read_back_target(self, state: TableState, snapshot_id: int, columns: Sequence[Column]) -> bytes:
        return target_of(_version(state), ())

    def make_durable(self, state: TableState, snapshot_id: int, data_files: Sequence[str] = ()) -> None:
        self._call("make_durable", lambda fault: self._files_of(state, snapshot_id, fault))

    def close(self) -> None:
        self._uncommitted.clear()
        self._open = False

    def remove(self, path: str) -> None:
        """Not of the seam: a mutant that cleans up after itself calls it."""
        self._catalog.store.remove(path)

    # Behind the seam ---------------------------------------------------------------------------------------

    def _call(self, what: str, effect: Callable[[str | None], T], table: str = "") -> T:
        assert self._open, "a connection was used after it was closed"
        return self._seam.call(f"{what} {table}".rstrip(), lambda: effect(self._seam.fault(what)))

    def _seen(self, name: str) -> Version | None:
        return self._uncommitted.get(name) or self._catalog.tables.get(name)

    def _load(self, name: str, fault: str | None) -> TableState | None:
        if fault == "unavailable":
            raise Unavailable("the catalog answered 503", table=name)
        version = self._seen(name)
        past = self._catalog.past.get(name)
        if fault == "stale" and past and name not in self._uncommitted:
            version = self._catalog.chance.choice(past[-3:])
            self._catalog.on_stale(version)
        return None if version is None else shown(version)

    def _create(self, name: str, shape: TableShape, fault: str | None) -> TableState:
        if fault == "unavailable":
            raise Unavailable("the catalog answered 503", table=name)
        version = self._catalog.tables.get(name)
        if version is None:
            version = Version(
                name,
                f"uuid-{self._catalog.number()}",
                columns=tuple(shape.schema.names),
                properties=dict(shape.properties),
            )
            self._catalog.change(name, version)
        if fault == "lost reply":
            raise Unavailable("the connection was reset", table=name)
        return shown(version)

    def _commit(self, request: Request, fault: str | None) -> None:
        catalog = self._catalog
        match fault:
            case "refused" if request.table not in self._uncommitted:
                # As when another request held the lock of the table's row.
                raise CommitRefused("the table was being committed to", table=request.table)
            case "unavailable":
                raise CommitUncertain("the catalog answered 503", table=request.table)
            case "late":
                catalog.late.append(request)
                raise CommitUncertain("the request timed out", table=request.table)
            case "locked":
                try:
                    self._uncommitted[request.table] = catalog.applied(request, self._seen(request.table))
                except CommitRefused as error:
                    raise CommitRefused("the table has changed", table=request.table) from error
                raise CommitUncertain("database is locked", table=request.table)
            case "lost reply":
                try:
                    catalog.apply(request)
                except CommitRefused as error:
                    raise CommitUncertain("the connection was reset", table=request.table) from error
                raise CommitUncertain("the connection was reset", table=request.table)
            case "sent twice":
                # A gateway that had no answer in time sends it again: the second is refused because of the first.
                catalog.deliver(request)
                catalog.apply(request)
            case "sent again later":
                catalog.late.append(request)
                catalog.apply(request)
            case _:
                if request.table in self._uncommitted:
                    raise CommitUncertain("database is locked", table=request.table)
                catalog.apply(request)

    def _files_of(self, state: TableState, snapshot_id: int, fault: str | None) -> Snapshot:
        if fault is not None:
            raise Unavailable("a manifest could not be read", table=state.name)
        return _version(state).snapshots[snapshot_id]


def _version(state: TableState) -> Version:
    assert isinstance(state.native, Version)
    return state.native


def _written_under(file: WrittenFile) -> tuple[int, int]:
    schema_id, spec_id = file.stats.split(b"|")
    return int(schema_id), int(spec_id)
