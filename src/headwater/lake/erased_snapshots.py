"""Older snapshots that still show rows which are to be gone, and their files.

A snapshot may show them if one of its manifests speaks of a data file that is no longer in the head and whose bounds of
`_hw_offset` allow them, also as one that it deleted: an entry has bounds, and they are values of rows.

    expire    such snapshots, but for those that somebody holds: an owner's branch or tag, a reader's pin, a landing
              that nobody has read back yet
    remove    the files that nothing references after that; the ledger knows them before, so that a crash between the
              two leaves none behind

PROMISE  A file goes only when the table, loaded again after the commit that let go of it, does not reference it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field

from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table

from headwater.clock import Clock
from headwater.errors import Unavailable
from headwater.lake.file_cache import FileCache
from headwater.lake.iceberg_tables import IcebergTables
from headwater.lake.ledger import LakeLedger
from headwater.lake.ledger_records import Kept
from headwater.lake.ledger_state import TopicLedger
from headwater.lake.mark import MAIN, mark_in_summary
from headwater.lake.offset_runs import OffsetRuns
from headwater.lake.table_changes import drop_branches, expire
from headwater.lake.table_erasing import head_files, may_hold
from headwater.lake.table_files import may_lose_files, referenced_files, refs_of, remove_files, snapshot_files
from headwater.lake.tables import TableState
from headwater.lake.upkeep import MERGE_BRANCH, history, plain_path

ERASING, ERASED = "erasing", "erased"
"""What the ledger calls files that are about to go, one a line, and that all of them have gone."""

FILES_PER_RECORD = 10_000


@dataclass
class SnapshotsGone:
    expired: int = 0
    removed: int = 0
    left: list[str] = field(default_factory=list)


def snapshots_showing(state: TableState, gone: OffsetRuns, cache: FileCache) -> set[int]:
    """The snapshots, the head apart, that may show one of these rows."""
    table = state.native
    assert isinstance(table, Table), "a table of pyiceberg"
    live = {file.path for file in head_files(state, cache)}
    known: dict[str, bool] = {}

    def shows(snapshot_id: int) -> bool:
        snapshot = table.metadata.snapshot_by_id(snapshot_id)
        assert snapshot is not None
        found = False
        for manifest in snapshot.manifests(table.io):
            if manifest.content == ManifestContent.DATA and manifest.manifest_path not in known:
                known[manifest.manifest_path] = any(
                    entry.data_file.file_path not in live and may_hold(state, entry.data_file, gone)
                    for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
                )
            found |= known.get(manifest.manifest_path, False)
        return found

    try:
        return {each for each in state.snapshots if each != state.branches.get(MAIN) and shows(each)}
    except Exception as error:  # each file system has errors of its own, and reading changes nothing
        raise Unavailable(
            f"the manifests of {state.name!r} cannot be read", cause=f"{type(error).__name__}: {error}"
        ) from error


def holders_of(state: TableState, pinned: Iterable[int], known: TopicLedger | None) -> dict[int, str]:
    """Snapshots that stay, and for whom.  `known` is of the table that landings go into."""
    held: dict[int, str] = {}
    if known is not None:
        head = state.head()
        for snapshot in history(state, head.snapshot_id) if head is not None else ():
            mark = mark_in_summary(snapshot.summary)
            if mark is not None and mark.rows and mark.lsn_to > known.verified_lsn:
                held[snapshot.snapshot_id] = "a landing that nobody has read back yet"
    held.update(dict.fromkeys(pinned, "a reader"))
    for ref in refs_of(state):
        if ref.name != MAIN and not ref.name.startswith(MERGE_BRANCH):
            held[ref.snapshot_id] = f"the {'branch' if ref.is_branch else 'tag'} {ref.name!r} of the table's owner"
    return held


class Expiring:
    """Lets go of a table's snapshots and files."""

    def __init__(
        self, connect: Callable[[], IcebergTables], ledger: LakeLedger, clock: Clock, cache: FileCache
    ) -> None:
        self._connect = connect
        self._ledger = ledger
        self._clock = clock
        self._cache = cache

    def step(
        self,
        tables: IcebergTables,
        state: TableState,
        gone: OffsetRuns,
        holders: Callable[[TableState], Mapping[int, str]],
        told: SnapshotsGone,
    ) -> None:
        """One try.  CommitRefused and CommitUncertain: load the table, and try again."""
        told.left.clear()
        if not may_lose_files(state):
            told.left.append(f"{state.name}: its property gc.enabled says that its files are shared")
            return
        merges = [name for name in state.branches if name.startswith(MERGE_BRANCH)]
        if merges:
            # A merge that stands on one of them is refused, and begins anew from tables without these rows.
            tables.commit(drop_branches(state, merges))
            loaded = tables.load(state.name)
            assert loaded is not None
            state = loaded
        held = holders(state)
        showing = snapshots_showing(state, gone, self._cache)
        told.left.extend(
            f"{state.name}: snapshot {each} is kept for {held[each]}" for each in sorted(showing & {*held})
        )
        expired = showing - {*held}
        if expired:
            files = sorted(snapshot_files(state, expired))
            for first in range(0, len(files), FILES_PER_RECORD):
                self._note(state.name, ERASING, "\n".join(files[first : first + FILES_PER_RECORD]))
            tables.commit(expire(state, expired))
            told.expired += len(expired)

    def remove(self, name: str, told: SnapshotsGone) -> None:
        """Remove the files that were about to go, of this call and of one that did not come so far."""
        files: set[str] = set()
        for each in self._ledger.state().kept.get(name, []):
            if each.what == ERASING:
                files.update(each.detail.split("\n"))
            elif each.what == ERASED:
                files.clear()
        if not files:
            return
        with closing(self._connect()) as tables:
            state = tables.load(name)
        if state is None:
            raise Unavailable(f"the table {name!r} is gone: its files stay", table=name)
        referenced = {plain_path(path) for path in referenced_files(state)}
        gone, stayed = remove_files(state, sorted(path for path in files if plain_path(path) not in referenced))
        told.removed += len(gone)
        if stayed:
            told.left.append(f"{name}: {len(stayed)} files could not be removed")
        else:
            self._note(name, ERASED, f"{len(gone)} files")

    def _note(self, table: str, what: str, detail: str) -> None:
        self._ledger.record([Kept(table=table, what=what, detail=detail, at_us=self._clock.now_us())])
