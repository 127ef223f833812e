"""What upkeep may do to a table: decisions, and nothing but decisions.

    snapshots    which of them may expire, and of which of those the files may go at once
    stamp        whether the head must get the mark first, so that no expiry takes the mark away
    orphans      which files no snapshot, no commit in flight and no reader needs
    compaction   whether there are small files enough to be worth it
    retention    which files of a change table hold nothing but rows that are merged and old
    others       which commits on a branch are not ours, and what they did

PROMISE  A branch's head, what a tag names, and the snapshots that another branch's mark rests on are never let go.
         A file is an orphan only if nothing references it, by path or by name, it is older than the age, and it is not
         of a commit that is in flight by the ledger; and it goes only once no commit that would bring it in can still
         be applied.  What was not written by an Iceberg writer is left where it is.
NOT HERE Doing any of it: care.py, and spark/maintain.py for what needs Spark.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from headwater.lake.ledger_records import Begun, Intended
from headwater.lake.mark import MAIN, mark_in_summary
from headwater.lake.marks import SOURCE_SNAPSHOT, Standing
from headwater.lake.tables import TableSnapshot, TableState
from headwater.settings import MIB

MERGE_BRANCH = "headwater_merge_"
"""A merge works on a branch of this name, the time when it was made (µs), and a part of its commit-id."""


@dataclass(frozen=True)
class UpkeepSettings:
    """How tables are kept."""

    snapshots_kept: int = 100
    """Of main; more make every commit slower, because each one writes the list of all."""

    readers_s: float = 3600.0
    """A snapshot that was replaced less than this long ago may still be read, so its files stay."""

    orphan_age_s: float = 3 * 86_400.0
    """Files that nothing references are removed once they are this old; so are snapshots on no branch, and branches
    that a merge has left behind."""

    small_file_bytes: int = 32 * MIB
    """A data file below this is small ..."""

    small_files_min: int = 12
    """... and so many of them in one partition are worth a compaction."""

    target_file_bytes: int = 256 * MIB
    """What compaction makes."""

    attempts_max: int = 5
    """How often a commit that another one overtook is made again."""

    dry_run: bool = False
    """Say what would be done, and change nothing."""

    def __post_init__(self) -> None:
        if self.snapshots_kept < 1:
            raise ValueError("snapshots_kept is at least 1: the head stays")
        if self.small_files_min < 2:
            raise ValueError("small_files_min is at least 2: one file cannot be compacted with itself")


# Snapshots ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ref:
    """A branch or a tag."""

    name: str
    snapshot_id: int
    is_branch: bool = True
    snapshots_min: int = 1
    """What its owner wants kept, at the least."""


def history(state: TableState, head: int) -> list[TableSnapshot]:
    """A snapshot and those before it, by parent, as far as they are still there."""
    found: list[TableSnapshot] = []
    snapshot = state.snapshots.get(head)
    while snapshot is not None:
        found.append(snapshot)
        snapshot = state.snapshots.get(snapshot.parent_id) if snapshot.parent_id is not None else None
    return found


def expirable(
    state: TableState,
    refs: Iterable[Ref],
    *,
    unverified: Collection[int] = (),
    pinned: Collection[int] = (),
    now_ms: int,
    settings: UpkeepSettings,
) -> tuple[TableSnapshot, ...]:
    """The snapshots that nothing needs any more, the oldest first; `pinned` are those that readers hold.

    `unverified` are those of landings that nobody has read back yet.  They are found from the head by parent, so all
    that lies between stays too: what cannot be found cannot be verified, and the log would never forget it."""
    needed: set[int] = {*unverified, *pinned}
    on_main: set[int] = set()
    for ref in refs:
        line = history(state, ref.snapshot_id)
        if not ref.is_branch:
            needed.add(ref.snapshot_id)
        elif ref.name == MAIN:
            on_main.update(each.snapshot_id for each in line)
            to_verify = [number + 1 for number, each in enumerate(line) if each.snapshot_id in unverified]
            kept = max(settings.snapshots_kept, ref.snapshots_min, *to_verify)
            # Down to a mark: whoever rolls back to the oldest that is left must still find how far it had landed, and
            # some catalogs forget that it ever had a parent.
            below = next((at for at, each in enumerate(line[kept - 1 :]) if _has_mark(each)), 0)
            needed.update(each.snapshot_id for each in line[: kept + below])
        else:
            needed.update(each.snapshot_id for each in line[: max(_to_the_mark(line), ref.snapshots_min)])
    old_ms = now_ms - round(settings.orphan_age_s * 1000)
    found = [
        each
        for each in state.snapshots.values()
        # One that is on no branch was rolled back, or staged by somebody: it gets the time of an orphan.
        if each.snapshot_id not in needed and (each.snapshot_id in on_main or each.timestamp_ms < old_ms)
    ]
    return tuple(sorted(found, key=lambda each: (each.timestamp_ms, each.snapshot_id)))


def _has_mark(snapshot: TableSnapshot) -> bool:
    return mark_in_summary(snapshot.summary) is not None


def _to_the_mark(line: Sequence[TableSnapshot]) -> int:
    """How many snapshots of a branch there are down to the one that says how far it has come; all, if none does."""
    for number, snapshot in enumerate(line):
        if _has_mark(snapshot):
            return number + 1
    return len(line)


def needs_stamp(state: TableState, standing: Standing, expired: Collection[TableSnapshot]) -> bool:
    """Whether the head must get the mark before these expire: it has none of its own, and something has landed."""
    head = state.head()
    if head is None or standing.mark is None or not expired:
        return False
    return not _has_mark(head)


def unread(
    state: TableState, expired: Iterable[TableSnapshot], *, now_ms: int, settings: UpkeepSettings
) -> frozenset[int]:
    """Those of the expired snapshots that nobody can be reading any more: replaced on main long enough ago.

    When one that is not on main was left is not known, so its files wait until they are old enough for orphans."""
    head = state.head()
    replaced_ms: dict[int, int] = {}
    if head is not None:
        line = history(state, head.snapshot_id)
        replaced_ms = {older.snapshot_id: newer.timestamp_ms for newer, older in pairwise(line)}
    before_ms = now_ms - round(settings.readers_s * 1000)
    return frozenset(each.snapshot_id for each in expired if replaced_ms.get(each.snapshot_id, now_ms) <= before_ms)


def merge_branch(commit_id: str, at_us: int) -> str:
    return f"{MERGE_BRANCH}{at_us}_{commit_id.replace('-', '')[:12]}"


def abandoned_branches(refs: Iterable[Ref], *, now_us: int, settings: UpkeepSettings) -> tuple[Ref, ...]:
    """Branches of merges that have ended without a word: their names say when they were made."""
    found = []
    for ref in refs:
        made = re.fullmatch(MERGE_BRANCH + r"(\d+)_[0-9a-f]+", ref.name)
        if ref.is_branch and made and int(made[1]) < now_us - round(settings.orphan_age_s * 1_000_000):
            found.append(ref)
    return tuple(found)


# Files --------------------------------------------------------------------------------------------------------------

_WRITTEN_BY_ICEBERG = (".parquet", ".orc", ".avro", ".metadata.json", ".puffin", ".stats")
_SAME_STORE = {"s3a": "s3", "s3n": "s3", "abfss": "abfs", "wasbs": "wasb"}


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file below a table's location, as a listing shows it."""

    path: str
    bytes: int
    modified_us: int


@dataclass(frozen=True)
class Orphans:
    """What a listing holds beside the files that the table needs."""

    removable: tuple[ListedFile, ...] = ()
    young: int = 0
    """Not referenced, and not old enough to say so."""
    in_flight: int = 0
    """Old enough, and of a commit that the ledger knows as under way."""
    strangers: int = 0
    """Not written by an Iceberg writer: never touched."""


def find_orphans(
    listed: Iterable[ListedFile],
    referenced: Iterable[str],
    in_flight: Iterable[Begun | Intended],
    *,
    now_us: int,
    settings: UpkeepSettings,
) -> Orphans:
    """`referenced` was read after the listing was made: what a commit in between took in is in it."""
    paths = {plain_path(path) for path in referenced}
    names = {_name(path) for path in paths}
    before_us = now_us - round(settings.orphan_age_s * 1_000_000)
    under_way = [each for each in in_flight if each.at_us >= before_us]
    commit_ids = tuple(each.commit_id for each in under_way)
    intended = {plain_path(path) for each in under_way if isinstance(each, Intended) for path in each.files}
    removable: list[ListedFile] = []
    young = held = strangers = 0
    for file in listed:
        path = _checked_file(plain_path(file.path))
        name = _name(path)
        # A name holds a uuid, so the same name elsewhere is the same file under another spelling of its place.
        if path in paths or name in names:
            continue
        if not name.endswith(_WRITTEN_BY_ICEBERG):
            strangers += 1
        elif file.modified_us >= before_us:
            young += 1
        elif path in intended or any(commit_id in name for commit_id in commit_ids):
            held += 1
        else:
            removable.append(file)
    return Orphans(tuple(sorted(removable, key=lambda each: each.path)), young, held, strangers)


CLOCKS_APART_US = 3_600_000_000
"""The clock of a store and that of whoever commits are taken to be closer than this."""


def could_still_come(state: TableState, orphans: Iterable[ListedFile]) -> bool:
    """Whether a commit that brings one of these into main could still be applied.

    Whoever wrote a file had read main's head before, and commits on condition of that head.  So main must have moved
    since the file was written: then a lander that was paused for days, or a request that is days late, is refused."""
    head = state.head()
    moved_us = head.timestamp_ms * 1000 if head is not None else 0
    return any(file.modified_us + CLOCKS_APART_US >= moved_us for file in orphans)


def plain_path(path: str) -> str:
    """One spelling for a file: engines write `file:/a`, `file:///a` and `/a`, `s3a:` and `s3:`, for the same one."""
    scheme, colon, rest = path.partition(":")
    if not colon or "/" in scheme:
        return path
    if scheme == "file":
        return "/" + rest.lstrip("/")
    return f"{_SAME_STORE.get(scheme, scheme)}:{rest}"


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _checked_file(path: str) -> str:
    """A checksum that Hadoop keeps beside a local file, `.name.crc`, goes where that file goes."""
    folder, slash, name = path.rpartition("/")
    if name.startswith(".") and name.endswith(".crc"):
        return folder + slash + name[1:-4]
    return path


@dataclass(frozen=True, slots=True)
class DataFileFacts:
    """What a table's manifests say about one of its data files."""

    path: str
    bytes: int
    partition: str = ""
    lsn_max: int | None = None
    """Upper bound of `_hw_lsn`; None: not known."""
    time_max_us: int | None = None
    """Upper bound of `_hw_time`."""


def worth_compacting(files: Iterable[DataFileFacts], settings: UpkeepSettings) -> bool:
    """Whether some partition has enough small files."""
    small: dict[str, int] = {}
    for file in files:
        if file.bytes < settings.small_file_bytes:
            small[file.partition] = small.get(file.partition, 0) + 1
    return max(small.values(), default=0) >= settings.small_files_min


def forgettable_changes(
    files: Iterable[DataFileFacts], *, merged_lsn: int, before_us: int
) -> tuple[DataFileFacts, ...]:
    """The files of a change table all of whose rows are merged, and were appended before this time."""
    return tuple(
        file
        for file in files
        if file.lsn_max is not None
        and file.time_max_us is not None
        and file.lsn_max <= merged_lsn
        and file.time_max_us < before_us
    )


# Commits by others --------------------------------------------------------------------------------------------------

Deed = Literal["compaction", "deletes", "overwrite", "append", "rollback", "replacement"]
"""
compaction    the same rows in other files
deletes       rows went, none came
overwrite     rows went and others came: an update, a merge, an INSERT OVERWRITE
append        rows that did not come by a landing
rollback      main has left a snapshot that it had pointed to
replacement   a table of the same name, or main begun anew: CREATE OR REPLACE, or dropped and made again
"""


@dataclass(frozen=True, slots=True)
class ForeignCommit:
    """Something on a branch that is not ours."""

    what: Deed
    detail: str
    snapshot: int | None = None
    at_ms: int = 0

    def __str__(self) -> str:
        return f"{self.what}: {self.detail}"


def foreign_commits(
    state: TableState,
    *,
    were_main: Collection[int] = (),
    table_uuid: str = "",
    landed_lsn: int = 0,
    own: Collection[int] = (),
) -> tuple[ForeignCommit, ...]:
    """What others have done on main, the oldest first.

    `were_main` are the snapshots that main has pointed to, by the table; `table_uuid` and `landed_lsn` are what the
    ledger knows; `own` are upkeep's own snapshots, which carry no mark because Spark's compaction leaves none."""
    head = state.head()
    line = history(state, head.snapshot_id) if head is not None else []
    unmarked = [each for each in line if not _has_mark(each)]
    found = [_classified(each) for each in unmarked if each.snapshot_id not in own]
    on_main = {each.snapshot_id for each in line}
    for snapshot in state.snapshots.values():
        if snapshot.snapshot_id in were_main and snapshot.snapshot_id not in on_main:
            found.append(_rolled_back(snapshot))
    found.sort(key=lambda each: each.at_ms)
    if table_uuid and table_uuid != state.uuid:
        found.append(ForeignCommit("replacement", "this is another table than the one that was landed into"))
    elif landed_lsn and len(unmarked) == len(line) and (not line or line[-1].parent_id is None):
        # The whole history is here, and no landing is in it: CREATE OR REPLACE keeps the table's id and begins anew.
        detail = f"no landing is in the history of main, and the ledger has landings up to LSN {landed_lsn}"
        found.append(ForeignCommit("replacement", detail))
    return tuple(found)


def _rolled_back(snapshot: TableSnapshot) -> ForeignCommit:
    mark = mark_in_summary(snapshot.summary)
    what = f"the landing up to LSN {mark.lsn_to}" if mark is not None else f"a commit ({snapshot.operation})"
    detail = f"{what} was on main and is no longer"
    return ForeignCommit("rollback", detail, snapshot.snapshot_id, snapshot.timestamp_ms)


def _classified(snapshot: TableSnapshot) -> ForeignCommit:
    summary = snapshot.summary
    removed, added = summary.get("deleted-records", "0"), summary.get("added-records", "0")
    what: Deed
    match snapshot.operation:
        case "replace":
            rewritten = summary.get("deleted-data-files", "0")
            made = summary.get("added-data-files", "0")
            what, detail = "compaction", f"{rewritten} data files became {made}"
        case "delete":
            left = summary.get("total-records", "?")
            what, detail = "deletes", f"{removed} rows went with their files, {left} are left"
        case "overwrite" if added == "0" and (removed != "0" or "added-delete-files" in summary):
            positions = summary.get("added-position-deletes", "0")
            what, detail = "deletes", f"{removed} rows went with their files, {positions} by position"
        case "overwrite":
            what, detail = "overwrite", f"{removed} rows went, {added} came"
        case _ if SOURCE_SNAPSHOT in summary:
            what, detail = "append", f"snapshot {summary[SOURCE_SNAPSHOT]} was cherry-picked, {added} rows"
        case _:
            what, detail = "append", f"{added} rows that are not of this log"
    return ForeignCommit(what, detail, snapshot.snapshot_id, snapshot.timestamp_ms)
