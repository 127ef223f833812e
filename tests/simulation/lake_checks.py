"""What must hold of tables, log and ledger, whatever landers, their deaths and the owners of tables do: L1 to L6.

L1  along a branch's history each landing begins where the one before it ended
L2  every committed row at or below the landed LSN is in the table once (minus deletes by its owner), none above it
L3  the log holds every row above the landed LSN that was verified on main
L4  the landed LSN never falls but by an act of a person
L5  no data file is referenced twice, or written over, or referenced and not there
L6  after anything a new lander makes progress, or halts by a name that is deserved

TRUTH    Is kept beside the tables, snapshot by snapshot, from what was done: it knows nothing of marks, properties or
         the product's walk, and what a mark says is read here by its own name.
WHEN     At every commit, at every record of the ledger, whenever the log forgets, and at the end of a schedule.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from headwater.lake.ledger_records import Decided, Intended, Landed, LedgerRecord, Verified
from headwater.lake.ledger_state import LedgerState
from tests.simulation.lake_log import LOG_ID, LedgerRecords, SimulatedLog
from tests.simulation.lake_world import Catalog, Request, Row, Snapshot, Version, digest_of

HALTS = {"mark-unproven", "gap", "foreign-mark", "schema", "format-version", "verification", "spec", "log-behind"}


@dataclass(frozen=True)
class Truth:
    """What a snapshot holds, as it came about."""

    number: int = 0
    """The topic whose rows it has."""
    landed: int = 0
    removed: frozenset[Row] = frozenset()
    """Rows that the table's owner has deleted."""
    copied: bool = False
    """Its rows are a copy without history: once the last of them is deleted, nothing says that anything had landed."""
    spoiled: bool = False
    """Somebody has cherry-picked a landing that does not follow: rows are there twice, or missing."""


NOTHING = Truth()


@dataclass(frozen=True)
class Landing:
    """A landing's commit that was applied."""

    table: str
    uuid: str
    number: int
    lsn_from: int
    lsn_to: int
    rows: int
    added: tuple[str, ...]
    snapshot_id: int


@dataclass
class Judge:
    """Looks on."""

    catalog: Catalog
    log: SimulatedLog
    ledger: LedgerRecords
    violated: Callable[[str], None]
    numbers: dict[str, int] = field(default_factory=dict)
    """Topic numbers by topic-id."""
    truths: dict[int, Truth] = field(default_factory=dict)
    landings: dict[str, list[Landing]] = field(default_factory=dict)
    """By commit-id."""
    main: dict[str, list[tuple[int, Truth]]] = field(default_factory=dict)
    """By table: what main held, from which step on."""
    stale: list[tuple[int, str, Truth]] = field(default_factory=list)
    """What stale caches have shown of main, and when."""
    permitted: set[int] = field(default_factory=set)
    """Topics of which a person has said that they may be landed again, or up to where they have landed."""
    released: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """By topic: the ranges of LSNs that were verified, or that a person answers for, since they may be forgotten."""
    lost: dict[str, int] = field(default_factory=dict)
    """Files that a store has lost by itself, and when."""
    excused: dict[int, set[Row]] = field(default_factory=dict)
    """Rows that are nowhere any more because a person has taken a table back after the log had forgotten them."""
    step: int = 0

    def truth(self, table: str) -> Truth:
        """Of main, now."""
        version = self.catalog.tables.get(table)
        return self.truth_of(version.head if version is not None else None)

    def truth_of(self, snapshot: Snapshot | None) -> Truth:
        return NOTHING if snapshot is None else self.truths[snapshot.snapshot_id]

    def rows_of(self, snapshot: Snapshot | None) -> list[Row]:
        """What a reader of this snapshot gets; a file that is not there is a violation, unless the store lost it."""
        if snapshot is None:
            return []
        rows: list[Row] = []
        for path in snapshot.files:
            held = self.catalog.store.files.get(path)
            if held is None:
                if path not in self.lost:
                    self.violated(f"L5: snapshot {snapshot.snapshot_id} needs {path}, which is not there")
                continue
            rows.extend(held)
        return [row for row in rows if row not in snapshot.deleted] if snapshot.deleted else rows

    # At every commit --------------------------------------------------------------------------------------

    def on_commit(self, before: Version | None, after: Version, request: Request | None) -> None:
        self.step += 1
        if request is not None:
            self._landing(before, after, request)
        head = after.head
        self._noted(after.name, self.truth_of(head))
        if head is not None:
            self._holds(head)

    def on_stale(self, version: Version | None) -> None:
        if version is not None:
            self.stale.append((self.step, version.name, self.truth_of(version.head)))

    def dropped(self, table: str) -> None:
        self.step += 1
        self._noted(table, NOTHING)

    def _noted(self, table: str, truth: Truth) -> None:
        known = self.main.setdefault(table, [])
        known.append((self.step, truth))
        for number in {each.number for _, each in known} - {0}:
            landed = truth.landed if truth.number == number else 0
            gone = self.log.forgotten.get(number, 0)
            if gone > landed:
                self._excuse(number, landed, gone)

    def _excuse(self, number: int, lsn_from: int, lsn_to: int) -> None:
        rows = self.log.committed.get(number, ())
        self.excused.setdefault(number, set()).update(row for row in rows if lsn_from < row[1] <= lsn_to)

    def _landing(self, before: Version | None, after: Version, request: Request) -> None:
        snapshot = request.snapshot
        said = {name.removeprefix("headwater."): value for name, value in snapshot.summary.items()}
        number = self.numbers.get(said.get("topic-id", ""), -1)
        lsn_from, lsn_to = int(said.get("lsn-from", -1)), int(said.get("lsn-to", -1))
        about = f"the landing {lsn_from}..{lsn_to} into {after.name}"
        below = self.truth_of(before.head if before is not None else None)
        asked = number in self.permitted and lsn_from != below.landed
        if before is not None and asked and _unmarked_and_empty(self, before):
            # A person has said that it is to be landed again, and nothing that is left says anything else.
            below = NOTHING
        if said.get("log-id") != LOG_ID or number < 0:
            self.violated(f"{about} carries no mark of this log and one of its topics")
        if below.spoiled:
            self.violated(f"L1: {about} goes into a table whose history does not follow")
        if below.number not in {0, number}:
            self.violated(f"L2: {about} goes into a table with rows of an earlier topic")
        if lsn_from != below.landed:
            self.violated(f"L1: {about} does not begin at {below.landed}")
        if lsn_to < lsn_from:
            self.violated(f"L4: {about} goes back")
        if lsn_to > self.log.durable_lsn or lsn_to not in self.log.write_ends:
            self.violated(f"L2: {about} does not end at a durable write (durable up to {self.log.durable_lsn})")
        if before is not None and request.staged_under != (before.schema_id, before.spec_id):
            self.violated(f"{about} has files of another schema or spec")
        if set(snapshot.added) & set(before.head.files if before is not None and before.head is not None else ()):
            self.violated(f"L5: {about} brings files that the table has")
        added = [row for path in snapshot.added for row in self.catalog.store.files.get(path, ())]
        digest = digest_of(added)
        if said.get("rows") != str(len(added)) or said.get("digest") != str(digest):
            self.violated(f"{about} says that it has {said.get('rows')} rows and has {len(added)}")
        self._property(after, request, about, number, lsn_to)
        self.truths[snapshot.snapshot_id] = Truth(number, lsn_to, below.removed)
        self.landings.setdefault(said.get("commit-id", ""), []).append(
            Landing(after.name, after.uuid, number, lsn_from, lsn_to, len(added), snapshot.added, snapshot.snapshot_id)
        )

    def _property(self, after: Version, request: Request, about: str, number: int, lsn_to: int) -> None:
        told = json.loads(after.properties.get("headwater.landed.main", "{}"))
        highest = max((row[1] for row in self.log.committed.get(number, ()) if row[1] <= lsn_to), default=0)
        if told.get("snapshot") != request.snapshot.snapshot_id or told.get("lsn-to") != lsn_to:
            self.violated(f"{about} leaves a property that speaks of something else: {told}")
        elif told["max-row-lsn"] != highest and not (number in self.permitted and told["max-row-lsn"] < highest):
            # Where a person said how far it has landed, the newest rows may be gone: then the table's own count.
            self.violated(f"{about} says that its newest row has LSN {told['max-row-lsn']}, and it has {highest}")

    def _holds(self, snapshot: Snapshot) -> None:
        truth = self.truths[snapshot.snapshot_id]
        if len(set(snapshot.files)) != len(snapshot.files) and not truth.spoiled:
            self.violated(f"L5: snapshot {snapshot.snapshot_id} references a file twice")
        held = Counter(row for row in self.rows_of(snapshot) if row[0])
        if truth.spoiled:
            return
        for path in snapshot.files:
            if path in self.lost and path not in self.catalog.store.files:
                return
        expected = Counter(
            row
            for row in self.log.committed.get(truth.number, ())
            if row[1] <= truth.landed and row not in truth.removed
        )
        if held != expected:
            twice = sorted((held - expected).elements())[:3]
            missing = sorted((expected - held).elements())[:3]
            self.violated(
                f"L2: snapshot {snapshot.snapshot_id}, landed up to {truth.landed}: too many {twice}, too few {missing}"
            )

    # At every record ---------------------------------------------------------------------------------------

    def on_record(
        self,
        records: Sequence[LedgerRecord],
        known: Mapping[str, int],
        round_step: int,
        permitted: Collection[int],
        read_rows: Collection[Row],
    ) -> None:
        """`known` are the landed LSNs of the ledger that the lander has compared with, `round_step` is when its round
        began, `permitted` are the topics that a person has told it to land again, and `read_rows` is what its tasks
        have read back in this round."""
        self.step += 1
        for record in records:
            match record:
                case Intended():
                    number = self.numbers[record.topic_id]
                    if record.lsn_from < known.get(record.topic_id, 0) and number not in permitted:
                        self.violated(f"L4: rows from {record.lsn_from} on are landed again, and nobody said so")
                case Landed():
                    self._recorded(record)
                case Verified():
                    self._verified(record, round_step, read_rows)
                case Decided():
                    self._decided(record)
                case _:
                    pass

    def _recorded(self, record: Landed) -> None:
        found = [
            landing
            for landing in self.landings.get(record.commit_id, ())
            if (landing.lsn_from, landing.lsn_to, landing.rows, landing.uuid)
            == (record.lsn_from, record.lsn_to, record.rows, record.table_uuid)
        ]
        if not found:
            self.violated(f"the ledger says that {record.lsn_from}..{record.lsn_to} landed, and it never did")

    def _verified(self, record: Verified, round_step: int, read_rows: Collection[Row]) -> None:
        found = self.landings.get(record.commit_id, ())
        if not any(landing.lsn_to == record.lsn_to for landing in found):
            self.violated(f"L3: {record.lsn_to} counts as verified, and no such landing was ever applied")
            return
        number = self.numbers[record.topic_id]
        held = [truth for _, truth in self._main_since(record.table, round_step)]
        # A cache may have shown it as it was: then it has been verified as of that time.
        held += [truth for step, table, truth in self.stale if step >= round_step and table == record.table]
        if max((truth.landed for truth in held if truth.number == number), default=0) < record.lsn_to:
            self.violated(f"L3: {record.lsn_to} counts as verified, and main has not been there in this round")
        self.released.setdefault(number, []).extend((landing.lsn_from, landing.lsn_to) for landing in found)
        rows = [row for landing in found for path in landing.added for row in self.catalog.store.written[path]]
        unread = [row for row in rows if row not in read_rows]
        if record.mode == "read-back" and unread:
            self.violated(f"L3: {record.lsn_to} counts as verified, and {unread[:3]} were not read back")

    def _decided(self, record: Decided) -> None:
        """What is above is to be landed again, so it must not be forgotten any more; what is below is answered for."""
        number = self.numbers[record.topic_id]
        kept = [(start, min(end, record.lsn)) for start, end in self.released.get(number, ()) if start < record.lsn]
        self.released[number] = [*kept, (0, record.lsn)] if record.act == "landed-lsn" else kept

    def _main_since(self, table: str, step: int) -> list[tuple[int, Truth]]:
        known = self.main.get(table, [])
        # The last one before counts too: it was main when the round began.
        before = [each for each in known if each[0] <= step][-1:]
        return before + [each for each in known if each[0] > step]

    # When the log forgets ----------------------------------------------------------------------------------

    def forgets(self, table: str, number: int, lsn: int) -> None:
        """Before rows of a topic up to this LSN are let go of."""
        self.step += 1
        truth = self.truth(table)
        if not lsn:
            return
        for row in self.log.rows(number, 0, lsn):
            if not any(start < row[1] <= end for start, end in self.released.get(number, ())):
                self.violated(f"L3: the log forgets {row}, and nobody has verified the landing that it is in")
                return
        held = truth.landed if truth.number == number else 0
        if held >= lsn:
            return
        highest = max((each.landed for _, each in self.main.get(table, ()) if each.number == number), default=0)
        if highest < lsn:
            self.violated(f"L3: the log forgets up to {lsn}, and the table never had more than {highest}")
        # Somebody has taken the table back within the grace: what the log lets go of is in no table of theirs.
        self._excuse(number, held, lsn)

    def unrecorded(self, number: int) -> bool:
        """Whether a landing was applied that the ledger was not told of before its snapshot expired, or only when it
        knew later ones."""
        known: set[str] = set()
        landed = 0
        for record in self.ledger.records:
            if isinstance(record, Landed) and self.numbers[record.topic_id] == number:
                if record.lsn_to <= landed and record.commit_id not in known:
                    return True
                known.add(record.commit_id)
                landed = max(landed, record.lsn_to)
        return any(
            landing.number == number
            and landing.rows
            and commit_id not in known
            and landing.snapshot_id not in self.catalog.tables[landing.table].snapshots
            for commit_id, landings in self.landings.items()
            for landing in landings
        )

    # At the end --------------------------------------------------------------------------------------------

    def nothing_is_lost(self, table: str, number: int) -> None:
        """Every committed row is in the log or in the table, but for those that a person took away."""
        head = self.catalog.tables[table].head if table in self.catalog.tables else None
        truth = self.truth_of(head)
        held = set(self.rows_of(head)) | set(self.log.rows(number, 0, self.log.durable_lsn))
        excused = self.excused.get(number, set()) | truth.removed
        gone = [row for row in self.log.committed.get(number, ()) if row not in held and row not in excused]
        if gone and not self.lost:
            self.violated(f"L3: rows {gone[:3]} of topic {number} are neither in the log nor in {table}")

    def complete(self, table: str, number: int) -> None:
        """Main holds every committed row."""
        truth = self.truth(table)
        last = max((row[1] for row in self.log.committed.get(number, ())), default=0)
        if last and (truth.number != number or truth.landed < last):
            self.violated(f"L6: a lander has nothing to do, and {table} holds {truth.landed} of {last}")


def deserved(judge: Judge, cause: str, table: str, number: int, known: LedgerState, topic_id: str) -> str | None:
    """Why a halt is not deserved; None where it is.  For a time in which nothing else happens."""
    version = judge.catalog.tables.get(table)
    truth = judge.truth(table)
    ledger = known.topic(topic_id)
    if cause not in HALTS:
        return f"{cause!r} is no name of a halt"
    if truth.spoiled and cause in {"gap", "mark-unproven"}:
        return None
    match cause:
        case "gap":
            if version is None or version.uuid != ledger.table_uuid:
                return None
            landed = truth.landed if truth.number == number else 0
            fell = ledger.landed_lsn > landed or judge.log.forgotten.get(number, 0) > landed
            picked = any("source-snapshot-id" in each.summary for each in version.history())
            return (
                None
                if fell or silent(judge, version) or (picked and not proven(judge, version))
                else "the table holds what the ledger says"
            )
        case "mark-unproven":
            return None if version is not None and not proven(judge, version) else "the mark can be proven"
        case "foreign-mark":
            return None if _others_marks(judge, version, topic_id) else "there is no mark of anybody else"
        case "schema":
            strange = version is not None and any(name.startswith("required_") for name in version.columns)
            return None if strange else "every row fits into the table"
        case "format-version":
            return None if version is not None and version.format_version != 2 else "the table is of format 2"
        case "verification":
            if judge.lost or truth.removed or judge.unrecorded(number):
                return None
            return "every file is there, and every row, and the ledger knows them all"
        case _:
            return "nothing of the kind has happened"


def silent(judge: Judge, version: Version) -> bool:
    """Whether nothing in the table speaks of a landing: no mark, no row, and no property of a history that goes on."""
    head = version.head
    if head is None:
        return True
    begins = version.history()[-1].parent_id is None
    return _unmarked_and_empty(judge, version) and (begins or "headwater.landed.main" not in version.properties)


def _unmarked_and_empty(judge: Judge, version: Version) -> bool:
    head = version.head
    files = head.files if head is not None else ()
    marks = {"headwater.lsn-to", "source-snapshot-id"}
    marked = any(marks & each.summary.keys() for each in version.history())
    return not marked and not any(row[0] for path in files for row in judge.catalog.store.written[path])


def proven(judge: Judge, version: Version) -> bool:
    """Whether the table alone can say how far it has landed, by the rule and not by the product's walk."""
    picked = False
    for snapshot in version.history():
        if "headwater.lsn-to" in snapshot.summary:
            return True
        source = snapshot.summary.get("source-snapshot-id")
        if source is not None:
            # What was picked must follow what is below it: if either is gone, nothing says so.
            picked = True
            if int(source) not in version.snapshots:
                return False
        if snapshot.parent_id is None or snapshot.parent_id not in version.snapshots:
            return not picked and _property_proven(judge, version, snapshot.parent_id)
    return True


def _property_proven(judge: Judge, version: Version, missing: int | None) -> bool:
    head = version.head
    assert head is not None
    bound = max((row[1] for path in head.files for row in judge.catalog.store.written[path]), default=0)
    told = version.properties.get("headwater.landed.main")
    if told is None or (missing is None and bound == 0):
        # Without a parent main has begun anew, or pyiceberg has expired it: only its rows tell which.
        return bound == 0
    said = json.loads(told)
    return bool((missing is not None and said["snapshot"] == missing) or bound == said["max-row-lsn"])


def _others_marks(judge: Judge, version: Version | None, topic_id: str) -> bool:
    if version is None:
        return False
    told = [json.loads(value)["topic-id"] for name, value in version.properties.items() if "headwater.landed" in name]
    told += [
        each.summary["headwater.topic-id"]
        for each in version.snapshots.values()
        if "headwater.topic-id" in each.summary
    ]
    return any(each != topic_id for each in told)
