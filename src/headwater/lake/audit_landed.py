"""One topic's landed rows against what is owed: steps 2 to 4 of an audit.

WITNESSES  The ledger's digests are compared with the table's; and with the log's, for landings of which it has every
           row.  Two that agree outvote the third: a block in which only the log, or only the ledger, differs is told as
           theirs.
NOT HERE   The state of a keyed topic: audit_state.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from headwater.errors import CorruptData, LandingHalted
from headwater.lake.audit_compare import BlockFinding, BlockOwed, compare_block, runs_of
from headwater.lake.audit_history import History, history_of
from headwater.lake.audit_log import LogWitness
from headwater.lake.audit_measure import (
    NAMING,
    Asked,
    BlockRows,
    LocalMeasure,
    Looks,
    Measure,
    SnapshotLook,
    Strays,
)
from headwater.lake.audit_plan import (
    Blocks,
    Era,
    Expectation,
    Owed,
    Place,
    Range,
    add_blocks,
    eras_of,
    expectation_of,
    merged,
    places_of,
    selected,
)
from headwater.lake.audit_report import LostFile, PartitionAudit, TopicAudit, offsets_of
from headwater.lake.digest import BLOCK_BITS
from headwater.lake.file_cache import LiveFile
from headwater.lake.ledger_records import Erased, LedgerRecord
from headwater.lake.marks import Standing
from headwater.lake.shape import CREATED_FOR
from headwater.lake.source import RowSource
from headwater.lake.tables import TableState
from headwater.lake.work import Column
from headwater.metadata.operations import TopicRecord


@dataclass
class _Measured:
    """An era, and what was found of it."""

    era: Era
    columns: tuple[Column, ...]
    """As the table has them now."""
    landed: tuple[Column, ...]
    """The same as they landed."""
    counted: bool = False
    """The ledger has no digest of these rows over these columns: they are counted, and compared with the log's."""
    blocks: Blocks = field(default_factory=dict)
    witnessed: tuple[Owed, ...] = ()
    """The landings that the log speaks for."""
    differs: set[Place] = field(default_factory=set)
    """Where the table is not what is owed ..."""
    log_differs: set[Place] = field(default_factory=set)
    """... and where the log is not."""


class LandedAudit:
    def __init__(
        self,
        topic: TopicRecord,
        state: TableState,
        standing: Standing | None,
        expectation: Expectation,
        records: Sequence[LedgerRecord],
        looks: Looks,
        measure: Measure,
        source: RowSource,
    ) -> None:
        self._topic = topic
        self._state = state
        self._standing = standing
        self._records = records
        self._looks = looks
        self._source = source
        head = state.head()
        self._head = head.snapshot_id if head is not None else None
        self._look = looks.at(state, self._head)
        # What Spark would fail on is passed over here: the audit has failed, and it is to be named what is gone.
        self._measure = LocalMeasure(looks.at) if self._look.lost else measure
        self._witness: LogWitness | None = LogWitness(source, topic)
        self._findings: list[str] = []
        self._notes: list[str] = []
        self._dropped: dict[str, None] = {}
        self._expectation = self._completed(expectation)

    # 2 -----------------------------------------------------------------------------------------

    def _completed(self, expectation: Expectation) -> Expectation:
        """The expectation with what only the table can tell."""
        lacking = [name for name in NAMING if name not in self._look.names]
        if lacking and expectation.landings:
            raise LandingHalted(
                "schema",
                f"{self._state.name!r} has lost {', '.join(lacking)}, by which rows are named: it cannot be audited; "
                "roll it back to before that",
                table=self._state.name,
            )
        for erased in expectation.unfinished:
            self._notes.append(f"the erasure {erased.erasure_id} is not finished: run it again")
        not_gone = [each.erasure_id for each in expectation.unfinished if self._is_there(each)]
        if not_gone:
            expectation = expectation_of(self._records, self._topic.topic_id.hex(), not_gone)
        history: History = history_of(self._state, self._source.log_id, self._topic.topic_id.hex(), expectation)
        self._findings.extend(history.findings)
        landings = tuple(self._with_offsets(each) for each in history.expectation.landings)
        return replace(history.expectation, landings=landings)

    def _with_offsets(self, landing: Owed) -> Owed:
        """A landing that does not know its offsets, with those that the log knows."""
        if landing.offsets_known or self._witness is None:
            return landing
        try:
            return replace(landing, offsets=self._witness.offsets(landing)) if self._witness.holds(landing) else landing
        except CorruptData as error:
            self._findings.append(f"log: {error}")
            self._witness = None
            return landing

    def _is_there(self, erased: Erased) -> bool:
        """Whether the rows of an erasure are in the table: all of them are, or none."""
        if not erased.offsets:
            return False
        partition, first, last = erased.offsets[0]
        rows = self._look.block((partition, first >> BLOCK_BITS), None)
        return bool(((rows.offsets >= first) & (rows.offsets <= last)).any())

    # The whole ---------------------------------------------------------------------------------

    def audit(self, *, full: bool) -> TopicAudit:
        known = self._expectation.known
        lsn_to = self._standing.landed_lsn if self._standing is not None else known.landed_lsn
        if lsn_to < known.landed_lsn:
            self._findings.append(
                f"the table holds rows up to lsn {lsn_to}, and had them up to lsn {known.landed_lsn}: it was rolled "
                "back or replaced; if that was meant, land with --after-rollback"
            )
        if known.table_uuid and known.table_uuid != self._state.uuid:
            self._findings.append(f"it is another table than the one that was landed into, {known.table_uuid}")
        holes = self._expectation.holes(min(lsn_to, known.landed_lsn))
        for first, last in holes:
            self._findings.append(f"rows after lsn {first} and up to lsn {last} are in no landing")
        skipped = self._expectation.skipped(holes)
        for columns in {each.columns for each in self._expectation.landings if each.digest is not None}:
            self._dropped.update(dict.fromkeys(self._look.now(columns)[1]))
        base = None if full else self._audited_before()
        chosen = self._expectation.landings if base is None else self._chosen(base)
        eras = [self._measured(era) for era in eras_of(chosen, self._expectation.erased_parts)]
        strays = self._strays(eras, holes)
        found = self._named(eras, strays, holes, skipped)
        rows = self._look.live_rows() - strays.unmarked if self._head is not None else 0
        if rows != self._expectation.rows and not (found or self._findings or self._expectation.answered):
            self._findings.append(f"it holds {rows} rows, and owes {self._expectation.rows}")
        for first, last in self._expectation.by_word:
            self._notes.append(
                f"rows after lsn {first} and up to lsn {last} are there by a person's word (--landed-lsn)"
            )
        return TopicAudit(
            self._topic.name,
            self._state.name,
            full=base is None,
            lsn_to=lsn_to,
            snapshot=self._head,
            rows=rows,
            owed=self._expectation.rows,
            checked=sum(count for each in eras for count, _ in each.blocks.values()),
            erased=sum(each.erased for each in self._expectation.landings),
            unmarked=strays.unmarked,
            partitions=_partitions(eras, found),
            lost_files=self._lost(),
            findings=tuple(self._findings),
            notes=tuple(self._notes),
            dropped_columns=tuple(self._dropped),
        )

    def _audited_before(self) -> SnapshotLook | None:
        """What the last audit that passed has seen; nothing where that can no longer be told."""
        audited = self._expectation.known.audited
        if audited is None or audited.table_uuid != self._state.uuid or audited.snapshot not in self._state.snapshots:
            return None
        return SnapshotLook(self._state, audited.snapshot, self._looks.cache, look_for_files=False)

    def _chosen(self, before: SnapshotLook) -> tuple[Owed, ...]:
        """The landings that may have been touched since."""
        audited = self._expectation.known.audited
        assert audited is not None
        lost = [live for live, _ in self._look.lost]
        then = {_identity(live): live for live in before.files}
        now = {_identity(live): live for live in (*self._look.files, *lost)}
        changed = [each for key, each in {**then, **now}.items() if (key in then) != (key in now)]
        touched = [self._look.lsns_in(live) for live in (*changed, *lost)]
        return selected(self._expectation, touched, audited.lsn_to)

    # 3 -----------------------------------------------------------------------------------------

    def _measured(self, era: Era) -> _Measured:
        if era.blocks is None:
            return self._measured_alone(era)
        now, gone = self._look.now(era.columns)
        found = self._digested(era, now)
        found.counted = bool(gone)
        found.differs |= self._expectation.doubtful & set(era.blocks)
        self._ask_the_log(found)
        if found.counted:
            found.differs |= _differences(_counts(era.blocks), _counts(found.blocks))
        else:
            found.differs |= _differences(era.blocks, found.blocks)
        return found

    def _measured_alone(self, era: Era) -> _Measured:
        """A landing of which only the total is known: over columns in types that are not."""
        [landing] = era.landings
        found = _Measured(era, (), ())
        names = LogWitness(self._source, self._topic).names
        known = self._look.typed(era.columns, landing.snapshot, names) if era.columns else []
        for typed in known or [self._look.naming_columns()]:
            now, gone = self._look.now(typed)
            self._dropped.update(dict.fromkeys(gone))
            found = self._digested(replace(era, columns=typed), now)
            rows, total = _total(found.blocks)
            # Of rows that were erased, and of columns that were dropped, no total is known: they are counted.
            found.counted = bool(gone) or bool(landing.erased) or landing.total is None or not known
            if rows == landing.rows - landing.erased and (found.counted or total == landing.total):
                break
        else:
            found.differs |= set(found.blocks) | places_of(landing.offsets)
            owed, rows = landing.rows - landing.erased, _total(found.blocks)[0]
            if rows != owed and not landing.offsets_known:
                self._findings.append(
                    f"{rows} of {owed} rows after lsn {landing.lsn_from} and up to lsn {landing.lsn_to} are there"
                )
        self._ask_the_log(found)
        return found

    def _digested(self, era: Era, columns: tuple[Column, ...]) -> _Measured:
        kept = {column.field_id for column in columns}
        landed = tuple(
            sorted((each for each in era.columns if each.field_id in kept), key=lambda column: column.field_id)
        )
        found = _Measured(era, columns, landed)
        if self._head is not None:
            add_blocks(found.blocks, self._measure.digest(Asked(self._state, self._head, columns, era.ranges)))
        return found

    def _ask_the_log(self, found: _Measured) -> None:
        """What the log says of the landings that it still has."""
        if self._witness is None or not {column.name for column in found.landed} <= self._witness.names:
            return
        try:
            found.witnessed = tuple(each for each in found.era.landings if self._witness.holds(each))
            if not found.witnessed:
                return
            said: Blocks = {}
            add_blocks(said, self._witness.digest(found.landed, merged(each.range for each in found.witnessed)))
        except CorruptData as error:
            self._findings.append(f"log: {error}")
            self._witness, found.witnessed = None, ()
            return
        if found.counted:
            # Where the ledger has no digest that could be compared, the log has.
            speaks_for_all = len(found.witnessed) == len(found.era.landings)
            found.differs |= _differences(said, found.blocks) if speaks_for_all else set()
            return
        owed: Blocks = {}
        for landing in found.witnessed:
            if landing.digest is None:
                if _total(said) != (landing.rows, landing.total):
                    found.log_differs |= set(said)
                return
            add_blocks(owed, landing.digest)
        unsure = self._expectation.erased_places
        found.log_differs |= {place for place in _differences(owed, said) if place not in unsure}

    def _strays(self, eras: Sequence[_Measured], holes: Sequence[Range]) -> Strays:
        """Rows of no landing.  They are looked for where the count says that there are some, or might be."""
        if self._head is None:
            return Strays.none()
        ours = self._state.properties.get(CREATED_FOR) == self._topic.topic_id.hex()
        counted = ours and not self._expectation.answered and self._look.live_rows() == self._expectation.rows
        if counted and not any(each.differs for each in eras) and not self._look.lost:
            return Strays.none()
        known = [*(each.range for each in self._expectation.landings), *self._expectation.answered, *holes]
        strays = self._look.outside(merged(known))
        if ours and strays.unmarked:
            self._findings.append(f"{strays.unmarked} rows have no LSN, in a table that a landing made")
        return strays

    # 4 -----------------------------------------------------------------------------------------

    def _named(
        self,
        eras: Sequence[_Measured],
        strays: Strays,
        holes: Sequence[Range],
        skipped: Sequence[Owed],
    ) -> list[BlockFinding]:
        """What is wrong, by offset, in the blocks that differ."""
        owed = self._expectation.rows_by_place()
        free = [
            *self._expectation.answered,
            *holes,
            *(each.range for each in self._expectation.landings if not each.offsets_known),
        ]
        at = {*strays.places, *(place for each in skipped for place in places_of(each.offsets))}
        places = at.union(*(each.differs | each.log_differs for each in eras))
        found = []
        for place in sorted(places):
            expected = BlockOwed(
                place,
                (*self._expectation.landings, *skipped),
                self._expectation.erased_runs,
                None if place in at else owed.get(place),
                free,
            )
            finding = self._compared(place, expected, eras, strays)
            if finding.found:
                found.append(finding)
        return found

    def _compared(self, place: Place, owed: BlockOwed, eras: Sequence[_Measured], strays: Strays) -> BlockFinding:
        witnessed: list[Owed] = []
        log: list[tuple[BlockRows, BlockRows]] = []
        for each in eras:
            speaking = [landing for landing in each.witnessed if place in places_of(landing.offsets)]
            if speaking and self._witness is not None:
                witnessed.extend(speaking)
                said = self._witness.block(place, each.landed, merged(landing.range for landing in speaking))
                log.append((self._look.block(place, each.columns, said.offsets), said))
        differs = any(place in each.differs for each in eras)
        chosen = (strays.partitions == place[0]) & (strays.offsets >> BLOCK_BITS == place[1])
        finding = compare_block(
            owed,
            self._look.block(place, None),
            log=log,
            witnessed=witnessed,
            strays=strays.offsets[chosen],
            differs=differs and place not in self._expectation.doubtful,
        )
        log_differs = any(place in each.log_differs for each in eras)
        first, last = place[1] << BLOCK_BITS, ((place[1] + 1) << BLOCK_BITS) - 1
        where = f"partition {place[0]}, offsets {first}..{last}"
        if log_differs and not differs:
            named = offsets_of(runs_of(np.union1d(finding.altered, np.union1d(finding.missing, finding.extra))))
            self._findings.append(
                f"log: its rows of {where} are not those that landed: {named or 'which is not known'}"
            )
            return BlockFinding(place)
        if differs and len(finding.missing) and not log:
            self._notes.append(f"{where}: whether rows that are there are altered too, only the log could tell")
        if differs and log_differs and not finding.found:
            self._findings.append(
                f"ledger: what it says of {where} is neither what the table holds nor what the log does"
            )
        return finding

    def _lost(self) -> tuple[LostFile, ...]:
        found = []
        for live, path in self._look.lost:
            lsn_from, lsn_to = self._look.lsns_in(live)
            landings = tuple(
                each.commit_id
                for each in self._expectation.landings
                if each.lsn_from < lsn_to and each.lsn_to > lsn_from
            )
            found.append(LostFile(path, int(live.file.record_count), max(lsn_from, 0), lsn_to, landings))
        return tuple(found)


def _identity(live: LiveFile) -> tuple[str, ...]:
    """A data file and what takes rows out of it."""
    return live.path, *sorted(delete.file_path for delete in live.deletes)


# --------------------------------------------------------------------------------------------------------- blocks


def _differences(owed: Mapping[Place, tuple[int, int]], found: Mapping[Place, tuple[int, int]]) -> set[Place]:
    return {place for place in {*owed, *found} if owed.get(place, (0, 0)) != found.get(place, (0, 0))}


def _counts(blocks: Mapping[Place, tuple[int, int]]) -> Blocks:
    return {place: (rows, 0) for place, (rows, _) in blocks.items()}


def _total(blocks: Blocks) -> tuple[int, int]:
    return sum(rows for rows, _ in blocks.values()), sum(total for _, total in blocks.values()) & 0xFFFF_FFFF_FFFF_FFFF


def _partitions(eras: Sequence[_Measured], found: Sequence[BlockFinding]) -> tuple[PartitionAudit, ...]:
    blocks: dict[int, Blocks] = {}
    for each in eras:
        for place, (rows, total) in each.blocks.items():
            own = blocks.setdefault(place[0], {})
            known = own.get(place, (0, 0))
            own[place] = known[0] + rows, known[1] + total
    return partition_audits(blocks, found)


def partition_audits(blocks: dict[int, Blocks], found: Sequence[BlockFinding]) -> tuple[PartitionAudit, ...]:
    """What was measured and what was found, by partition."""
    told = []
    for partition in sorted({*blocks, *(each.place[0] for each in found)}):
        own = [each for each in found if each.place[0] == partition]
        rows, total = _total(blocks.get(partition, {}))
        missing = [run for each in own for run in runs_of(each.missing)]
        missing_rows = sum(each.missing_of or len(each.missing) for each in own)
        somewhere = [each.altered_somewhere[1:] for each in own if each.altered_somewhere is not None]
        told.append(
            PartitionAudit(
                partition,
                rows,
                f"{total:016x}",
                missing=offsets_of(missing, missing_rows),
                extra=offsets_of(run for each in own for run in runs_of(each.extra)),
                doubled=offsets_of(run for each in own for run in runs_of(each.doubled)),
                altered=offsets_of(run for each in own for run in runs_of(each.altered)),
                altered_blocks=offsets_of(somewhere),
            )
        )
    return tuple(told)
