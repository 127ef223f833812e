"""Whether a catalog keeps its word: the landing is exactly once only where a conditional commit is refused when its
condition does not hold.  So it is tried, with real commits, on scratch tables of their own.

    raced           two commits on one base at the same moment: one is in the table, and the other was refused
    late            a commit is sent after another has moved the head: it is refused, and not in the table
    re-sent         the same request is sent twice: the second is refused, and the first is found by its id, once
    after expiry    the base of a commit, which was the last landing, expires before it is sent: it is refused, and
                    how far the table has landed is told by its property, with proof
    after rollback  the head is moved back before a commit is sent: it is refused, and the table has landed as far as
                    the older head says

PROMISE  No table but the scratch tables is touched, and these are dropped and purged, also after a FAIL.
         Every answer is checked against the table, loaded through another connection, and not believed by itself.
         Unavailable if the catalog does not answer: then nothing was found out.
NOT HERE What a FAIL means for landings, and keeping the result: the ledger's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Barrier
from uuid import UUID

import pyarrow as pa
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table, Transaction
from pyiceberg.table.update import AssertRefSnapshotId, RemoveSnapshotsUpdate, SetSnapshotRefUpdate, TableUpdate

from headwater.clock import Clock, Entropy
from headwater.errors import Conflict, Halted, HeadwaterError
from headwater.lake.catalog import CatalogPlace
from headwater.lake.data_files import DataFileWriter, columns_of
from headwater.lake.iceberg_tables import IcebergTables
from headwater.lake.mark import MAIN, Mark
from headwater.lake.marks import Standing, landing_in_history, standing_of
from headwater.lake.shape import SYSTEM_COLUMNS, TABLE_PROPERTIES
from headwater.lake.tables import CommitRefused, CommitUncertain, Staged, TableShape, TableState

NAMESPACE = "headwater_check"
RACES = 5
_LOG_ID = "headwater-check"
_RACE_WAIT_S = 30.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CheckedProperty:
    """One thing that a landing relies on, and whether the catalog was seen to do it."""

    name: str
    passed: bool
    detail: str
    seconds: float


class Broken(Exception):
    """The catalog was seen not to keep its word; the message says in what."""


def check_catalog(place: CatalogPlace, clock: Clock, entropy: Entropy) -> tuple[CheckedProperty, ...]:
    """Try every property, each on a new table."""
    with _connections(place) as connections:
        return tuple(_checked(name, check, connections, clock, entropy) for name, check in _PROPERTIES.items())


def _checked(
    name: str, check: Callable[[_Scratch], str], connections: list[IcebergTables], clock: Clock, entropy: Entropy
) -> CheckedProperty:
    begun_s = clock.monotonic_s()
    with _scratch_table(connections, entropy) as scratch:
        try:
            detail, passed = check(scratch), True
        except Broken as broken:
            detail, passed = str(broken), False
        except (Conflict, Halted, CommitUncertain) as error:
            detail, passed = f"{type(error).__name__}: {error}", False
    return CheckedProperty(name, passed, detail, clock.monotonic_s() - begun_s)


# -------------------------------------------------------------------------------------------------- properties


def _raced(scratch: _Scratch) -> str:
    refused = uncertain = 0
    for number in range(RACES):
        both = [scratch.staged(rows=1), scratch.staged(rows=0)]
        answers = scratch.sent_at_once(both)
        state = scratch.load()
        landed = [landing_in_history(state, mark.commit_id) is not None for _, mark, _ in both]
        if sum(landed) != 1:
            raise Broken(f"round {number + 1}: of two commits on one base {sum(landed)} are in the table")
        for answer, is_there in zip(answers, landed, strict=True):
            if answer is None and not is_there:
                raise Broken(f"round {number + 1}: a commit was acknowledged and is not in the table")
            if isinstance(answer, CommitRefused) and is_there:
                raise Broken(f"round {number + 1}: a commit was refused and is in the table")
            refused += isinstance(answer, CommitRefused)
            uncertain += isinstance(answer, CommitUncertain)
        scratch.settle(state)
    return f"{RACES} races, one winner each: {refused} refused, {uncertain} without a clear answer"


def _late(scratch: _Scratch) -> str:
    scratch.land(rows=1)
    late = scratch.staged(rows=1)
    scratch.land(rows=1)
    scratch.must_be_refused(late, "a commit whose base was no longer the head")
    return "refused, and not in the table"


def _re_sent(scratch: _Scratch) -> str:
    scratch.land(rows=1)
    request = scratch.staged(rows=1)
    tables, mark, staged = request
    tables.commit(staged)
    answer = scratch.sent(tables, staged)
    if answer is None:
        raise Broken("the same request was acknowledged twice")
    # The newest of that id is looked for: if it is another snapshot, the request was applied a second time.
    found = landing_in_history(scratch.load(), mark.commit_id)
    if found is None:
        raise Broken("a landing that was acknowledged is not found by its id")
    if found.snapshot_id != staged.snapshot_id:
        raise Broken("a request that was sent twice is in the table twice")
    return "the second was refused, and the first is in the table once"


def _after_expiry(scratch: _Scratch) -> str:
    landing = scratch.land(rows=1)
    late = scratch.staged(rows=1)
    scratch.move_on()
    base = late[2].base
    assert base is not None
    scratch.change([RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [base]})])
    scratch.must_be_refused(late, "a commit whose base had expired")
    state = scratch.load()
    standing = scratch.standing(state)
    if standing.landed_lsn != landing.lsn_to or not standing.by_property:
        raise Broken(
            f"the table has landed up to LSN {landing.lsn_to} by a snapshot that was expired, and says "
            f"{standing.landed_lsn} by {'its property' if standing.by_property else 'a snapshot'}"
        )
    return f"refused; the table's property was proven and says LSN {standing.landed_lsn}"


def _after_rollback(scratch: _Scratch) -> str:
    older = scratch.land(rows=1)
    older_head = scratch.load().branches[MAIN]
    newer = scratch.land(rows=1)
    late = scratch.staged(rows=1)
    scratch.change(
        [SetSnapshotRefUpdate.model_validate({"ref-name": MAIN, "type": "branch", "snapshot-id": older_head})]
    )
    scratch.must_be_refused(late, "a commit whose base was rolled back")
    state = scratch.load()
    standing = scratch.standing(state)
    if standing.landed_lsn != older.lsn_to:
        raise Broken(
            f"the table was rolled back to LSN {older.lsn_to} from {newer.lsn_to}, and says {standing.landed_lsn}"
        )
    return f"refused; the table says LSN {older.lsn_to}, as its head does"


_PROPERTIES: dict[str, Callable[[_Scratch], str]] = {
    "raced": _raced,
    "late": _late,
    "re-sent": _re_sent,
    "after expiry": _after_expiry,
    "after rollback": _after_rollback,
}


# ----------------------------------------------------------------------------------------------- scratch tables

_Request = tuple[IcebergTables, Mark, Staged]


class _Scratch:
    """A table to try things on, over two connections and a third that only looks."""

    def __init__(self, name: str, connections: list[IcebergTables], entropy: Entropy) -> None:
        self.name = name
        self._connections = connections
        self._turn = 0
        self._entropy = entropy
        self._topic_id = entropy(16).hex()
        self._landed = Standing()

    def load(self) -> TableState:
        """The table, as the connection that only looks sees it."""
        return self._loaded(self._connections[-1])

    def _loaded(self, tables: IcebergTables) -> TableState:
        state = tables.load(self.name)
        if state is None:
            raise Broken("the scratch table is gone")
        return state

    def standing(self, state: TableState) -> Standing:
        looking = self._connections[-1]
        return standing_of(
            state, log_id=_LOG_ID, topic_id=self._topic_id, max_row_lsn=lambda: looking.max_row_lsn(state)
        )

    def staged(self, rows: int) -> _Request:
        """A landing of the next LSN on the head as it is now, not sent.  The connections take turns."""
        self._turn = (self._turn + 1) % (len(self._connections) - 1)
        tables = self._connections[self._turn]
        state = self._loaded(tables)
        fit = tables.fit(state, _SHAPE)
        commit_id = str(UUID(bytes=self._entropy(16), version=4))
        before = self._landed
        lsn = before.landed_lsn + 1
        columns = columns_of(fit.target)
        values = pa.table([pa.array([lsn] * rows, pa.int64()).cast(field.type) for field in columns], schema=columns)
        files = DataFileWriter(fit.target, commit_id, 0).write(values)
        newest_row = lsn if rows else before.max_row_lsn
        mark = Mark(
            _LOG_ID,
            self._topic_id,
            commit_id,
            0,
            before.landed_lsn,
            lsn,
            rows,
            "0" * 16,
            epoch=1,
            max_row_lsn=newest_row,
        )
        return tables, mark, tables.stage(state, fit, files, mark)

    def land(self, rows: int) -> Mark:
        """A landing of the next LSN, as it should go."""
        tables, mark, staged = self.staged(rows)
        tables.commit(staged)
        self._landed = Standing(mark.lsn_to, mark.max_row_lsn)
        return mark

    def settle(self, state: TableState) -> None:
        """Go on from what the table says, after a race."""
        self._landed = self.standing(state)

    def sent(self, tables: IcebergTables, staged: Staged) -> HeadwaterError | None:
        """Send a commit; what was said instead of yes."""
        try:
            tables.commit(staged)
        except (CommitRefused, CommitUncertain) as error:
            tables.close()  # what an open connection shows after an error may be what was never applied
            return error
        return None

    def sent_at_once(self, requests: list[_Request]) -> list[HeadwaterError | None]:
        """Send each from a thread of its own, all at the same moment."""
        ready = Barrier(len(requests))

        def send(request: _Request) -> HeadwaterError | None:
            ready.wait(_RACE_WAIT_S)
            return self.sent(request[0], request[2])

        with ThreadPoolExecutor(len(requests)) as threads:
            return list(threads.map(send, requests))

    def must_be_refused(self, request: _Request, what: str) -> None:
        tables, mark, staged = request
        answer = self.sent(tables, staged)
        if answer is None:
            raise Broken(f"{what} was acknowledged")
        state = self.load()
        if staged.snapshot_id in state.snapshots or landing_in_history(state, mark.commit_id) is not None:
            raise Broken(f"{what} is in the table")

    def move_on(self) -> None:
        """A commit by somebody else: a snapshot without a mark."""
        table = self._table()
        transaction = Transaction(table)
        transaction.update_snapshot().fast_append().commit()
        self._send(table, transaction._updates)

    def change(self, updates: list[TableUpdate]) -> None:
        """What an owner of the table does to its history."""
        self._send(self._table(), tuple(updates))

    def _table(self) -> Table:
        native = self.load().native
        assert isinstance(native, Table)
        return native

    def _send(self, table: Table, updates: tuple[TableUpdate, ...]) -> None:
        base = table.metadata.current_snapshot_id
        requirement = AssertRefSnapshotId.model_validate({"ref": MAIN, "snapshot-id": base})
        self._connections[-1].catalog.commit_table(table, (requirement,), updates)


_SHAPE = TableShape(pa.schema([pa.field("value", pa.int64()), *SYSTEM_COLUMNS]), properties=TABLE_PROPERTIES)


@contextmanager
def _connections(place: CatalogPlace) -> Iterator[list[IcebergTables]]:
    """Two to commit through and one to look through."""
    connections: list[IcebergTables] = []
    try:
        connections.extend(place.connect() for _ in range(3))
        yield connections
        _quietly(lambda: connections[-1].catalog.drop_namespace(NAMESPACE), NAMESPACE)
    finally:
        for connection in connections:
            connection.close()


@contextmanager
def _scratch_table(connections: list[IcebergTables], entropy: Entropy) -> Iterator[_Scratch]:
    name = f"{NAMESPACE}.t{entropy(8).hex()}"
    made = connections[0].create(name, _SHAPE)
    table = made.native
    assert isinstance(table, Table)
    try:
        yield _Scratch(name, connections, entropy)
    finally:
        connections[-1].close()
        _quietly(lambda: connections[-1].catalog.purge_table(name), name)
        _quietly(lambda: _delete_folder(table, name), name)


def _quietly(remove: Callable[[], object], what: str) -> None:
    try:
        remove()
    except Exception:  # noqa: BLE001  it is gone already, or another check uses the namespace, or it stays
        _log.info("%s was not wholly removed", what, exc_info=True)


def _delete_folder(table: Table, name: str) -> None:
    """A purge does not know of files that no snapshot names."""
    location = table.location()
    if isinstance(table.io, PyArrowFileIO) and name.rpartition(".")[2] in location:
        scheme, host, path = table.io.parse_location(location)
        table.io.fs_by_scheme(scheme, host).delete_dir(path)
