"""What a table owes, by the ledger alone: which landings, which offsets, and which rows their owner has erased.  Pure.

    expectation_of(records, topic_id)   the landings that the table still holds by the ledger: a decision after a
                                        rollback takes those away that were set back, landing again replaces them
    Era                                 landings that wrote the same columns in the same types: their digests add up
    selected(...)                       of an incremental audit, the landings that a change of files may have touched

PROMISE  Every LSN up to the landed one is in one landing, in what a person has answered for, or told as a hole.
         Digests are compared only over rows that they were made of: landings that share a block with an erasure are
         taken together, because a receipt says what went from a block and not from which landing.
NOT HERE What the table holds: audit_measure.py.  What the two differ in: audit_compare.py.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from headwater.lake.digest import BLOCK_BITS
from headwater.lake.ledger_records import Decided, Erased, ErasedPart, Landed, LedgerRecord, Restored
from headwater.lake.ledger_state import LedgerState, TopicLedger
from headwater.lake.work import Column, Digest

Place = tuple[int, int]
"""A partition and a block of it."""
Range = tuple[int, int]
"""LSNs after the first and up to the second."""
OffsetRun = tuple[int, int, int]
"""A partition, a first offset and a last one."""
Blocks = dict[Place, tuple[int, int]]
"""Rows and the sum of their words, by place."""

_MODULUS = 1 << 64


@dataclass(frozen=True)
class Owed:
    """One landing, as the table owes it."""

    lsn_from: int
    lsn_to: int
    rows: int
    total: int | None
    """The sum of the words of its rows; none where it was never known."""
    digest: Digest | None
    """By block; none where only the total is known."""
    columns: tuple[Column, ...]
    offsets: tuple[OffsetRun, ...]
    commit_id: str = ""
    snapshot: int = 0
    erased: int = 0
    """So many of its rows were erased since."""

    @property
    def range(self) -> Range:
        return self.lsn_from, self.lsn_to

    @property
    def offsets_known(self) -> bool:
        return bool(self.offsets) or not self.rows

    @property
    def places(self) -> set[Place]:
        return {(block.partition, block.block) for block in self.digest.blocks} if self.digest is not None else set()


@dataclass(frozen=True)
class Expectation:
    """What the ledger says that the table of a topic holds."""

    known: TopicLedger
    landings: tuple[Owed, ...] = ()
    """In the order of their LSNs."""
    erased_runs: tuple[OffsetRun, ...] = ()
    """Offsets that their owner has erased: none of them is owed again."""
    erased_parts: tuple[ErasedPart, ...] = ()
    """What is to be subtracted from the digests of landings."""
    doubtful: frozenset[Place] = frozenset()
    """Here rows were erased and others then landed again: which offsets are owed is known, and no digest of them."""
    unfinished: tuple[Erased, ...] = ()
    """Erasures of which it is not written down whether the table's rows are gone: all of them are, or none."""
    answered: tuple[Range, ...] = ()
    """LSNs without rows, or for which a person has answered."""
    by_word: tuple[Range, ...] = ()
    """Of these, the ones for which a person has answered: what the table holds of them is not compared."""

    @property
    def rows(self) -> int:
        """How many rows the table owes."""
        return sum(landing.rows - landing.erased for landing in self.landings)

    @property
    def erased_places(self) -> set[Place]:
        """Blocks from which rows were erased."""
        found = {(block.partition, block.block) for part in self.erased_parts for block in part.digest.blocks}
        return found | self.doubtful

    def rows_by_place(self) -> dict[Place, int]:
        """How many rows are owed of a block, where the ledger says that of all of it."""
        if not all(each.offsets_known for each in self.landings):
            return {}
        found: dict[Place, int] = {}
        for era in eras_of([each for each in self.landings if each.digest is not None], self.erased_parts):
            for place, (rows, _) in (era.blocks or {}).items():
                found[place] = found.get(place, 0) + rows
        alone = {place for each in self.landings if each.digest is None for place in places_of(each.offsets)}
        return {place: rows for place, rows in found.items() if place not in alone | self.doubtful}

    def skipped(self, holes: Iterable[Range]) -> tuple[Owed, ...]:
        """What is in no landing, by the offsets that those around it leave out."""
        found = []
        for first, last in holes:
            before = [each for each in self.landings if each.lsn_to <= first]
            after = [each for each in self.landings if each.lsn_from >= last]
            runs = _between(before, after)
            found.append(Owed(first, last, count_of(runs), 0, None, (), runs))
        return tuple(found)

    def holes(self, lsn_to: int) -> tuple[Range, ...]:
        """LSNs up to this one that are in no landing, and that nobody answers for."""
        covered = merged([*(each.range for each in self.landings), *self.answered])
        found, end = [], 0
        for first, last in covered:
            if first > end:
                found.append((end, first))
            end = max(end, last)
        return tuple((first, min(last, lsn_to)) for first, last in [*found, (end, lsn_to)] if first < min(last, lsn_to))


@dataclass(frozen=True)
class Era:
    """Landings whose digests are over the same columns in the same types."""

    columns: tuple[Column, ...]
    landings: tuple[Owed, ...]
    blocks: Mapping[Place, tuple[int, int]] | None
    """What they owe together, by place; none where only the total of one landing is known."""

    @property
    def ranges(self) -> tuple[Range, ...]:
        return tuple(merged(each.range for each in self.landings))

    @property
    def rows(self) -> int:
        return sum(each.rows - each.erased for each in self.landings)


# ----------------------------------------------------------------------------------------------- the ledger's word


def expectation_of(records: Iterable[LedgerRecord], topic_id: str, not_gone: Collection[str] = ()) -> Expectation:
    """Fold the ledger's records of one topic.  `not_gone` are erasures that were begun, and have taken nothing out."""
    state = LedgerState()
    found: dict[Range, Owed] = {}
    ever: dict[str, Owed] = {}
    covered: list[Range] = []
    by_word: list[Range] = []
    receipts: dict[str, tuple[Erased, frozenset[str]]] = {}
    for record in records:
        if getattr(record, "topic_id", None) != topic_id:
            continue
        count = len(state.topic(topic_id).landings)
        state.apply(record)
        known = state.topic(topic_id)
        match record:
            case Landed() if record.rows:
                owed = found.get((record.lsn_from, record.lsn_to))
                if len(known.landings) > count or (
                    # The same landing, told first by who had found it: now by who had written it.
                    owed is not None and owed.commit_id == record.commit_id and owed.digest is None
                ):
                    found[record.lsn_from, record.lsn_to] = ever[record.commit_id] = _owed(record)
            case Landed():
                covered.append((record.lsn_from, record.lsn_to))
            case Restored():
                found[0, record.lsn_to] = ever[""] = _baseline(record)
            case Erased():
                # A receipt that is told again, when more of it is done, is of what had landed at first.
                of = frozenset(each.commit_id for each in found.values())
                receipts[record.erasure_id] = record, receipts.get(record.erasure_id, (record, of))[1]
            case Decided():
                held = {(lsn_from, lsn_to) for lsn_from, lsn_to, _ in known.landings}
                found = {place: owed for place, owed in found.items() if place in held}
                covered, by_word = _up_to(record.lsn, covered), _up_to(record.lsn, by_word)
                if record.act == "landed-lsn":
                    by_word.append((max((lsn_to for _, lsn_to in held), default=0), record.lsn))
            case _:
                pass
    landings = with_offsets(sorted(found.values(), key=lambda each: each.range))
    return _erased_from(
        Expectation(
            state.topic(topic_id),
            landings,
            answered=tuple(each for each in (*covered, *by_word) if each[0] < each[1]),
            by_word=tuple(each for each in by_word if each[0] < each[1]),
        ),
        [each for erasure_id, each in receipts.items() if erasure_id not in not_gone],
        ever,
    )


def _up_to(lsn: int, ranges: Iterable[Range]) -> list[Range]:
    return [(lsn_from, min(lsn_to, lsn)) for lsn_from, lsn_to in ranges]


def _erased_from(
    expectation: Expectation, receipts: Sequence[tuple[Erased, frozenset[str]]], ever: Mapping[str, Owed]
) -> Expectation:
    """What is owed without what was erased.  A receipt is of the landings that the table held when it was written:
    rows that were set back and landed again since came from a log that no longer had the erased ones."""
    live = {each.commit_id for each in expectation.landings}
    doubtful: set[Place] = set()
    parts: list[ErasedPart] = []
    gone: dict[str, int] = {}
    by_place: dict[Place, set[str]] = {}
    for commit_id, landing in ever.items():
        for place in landing.places:
            by_place.setdefault(place, set()).add(commit_id)
    for erased, of in receipts:
        counter = _Counter(erased.offsets)
        for landing in expectation.landings:
            if landing.commit_id in of:
                count = sum(counter.count(run) for run in landing.offsets)
                gone[landing.commit_id] = gone.get(landing.commit_id, 0) + count
        for part in erased.parts:
            kept = []
            for block in part.digest.blocks:
                place = block.partition, block.block
                sharing = by_place.get(place, set()) & of
                if sharing <= live:
                    kept.append(block)
                elif sharing & live:
                    doubtful.add(place)
            parts.append(ErasedPart(columns=part.columns, digest=Digest(tuple(kept))))
    return replace(
        expectation,
        landings=tuple(replace(each, erased=gone.get(each.commit_id, 0)) for each in expectation.landings),
        erased_runs=tuple(run for erased, _ in receipts for run in erased.offsets),
        erased_parts=tuple(parts),
        doubtful=frozenset(doubtful),
        unfinished=tuple(erased for erased, _ in receipts if not {"table", "changes"} & set(erased.done)),
    )


def _owed(record: Landed) -> Owed:
    return Owed(
        record.lsn_from,
        record.lsn_to,
        record.rows,
        int(record.total, 16),
        record.digest,
        record.columns,
        record.offsets,
        record.commit_id,
        record.snapshot,
    )


def _baseline(record: Restored) -> Owed:
    total = record.digest.total if record.digest is not None else None
    return Owed(
        0, record.lsn_to, record.rows, total, record.digest, record.columns, record.offsets, snapshot=record.snapshot
    )


def with_offsets(landings: Sequence[Owed]) -> tuple[Owed, ...]:
    """A landing that was found in its table does not say which offsets it has.  They lie between those of its
    neighbours, and where these leave just as many as it has rows, it has them all."""
    found = list(landings)
    for place, landing in enumerate(found):
        if landing.offsets_known:
            continue
        later = found[place + 1 :]
        known = next((at for at, each in enumerate(later) if not each.offsets_known), len(later))
        runs = _between(found[:place], later[:known])
        if count_of(runs) == landing.rows:
            found[place] = replace(landing, offsets=runs)
    return tuple(found)


def _between(before: Sequence[Owed], after: Sequence[Owed]) -> tuple[OffsetRun, ...]:
    """The offsets that these landings leave out between them."""
    following: dict[int, int] = {}
    firsts: dict[int, int] = {}
    for partition, _, last in (run for each in before for run in each.offsets):
        following[partition] = max(last + 1, following.get(partition, 0))
    for partition, first, _ in (run for each in after for run in each.offsets):
        firsts[partition] = min(first, firsts.get(partition, first))
    return tuple(
        (partition, following.get(partition, 0), first - 1)
        for partition, first in sorted(firsts.items())
        if first > following.get(partition, 0)
    )


# ------------------------------------------------------------------------------------------------------- the parts


def selected(expectation: Expectation, touched: Sequence[Range], after: int) -> tuple[Owed, ...]:
    """The landings with LSNs among those that were touched, and all that came after an LSN."""
    given = expectation.landings
    apart = merged(touched)
    chosen = {
        each.range
        for each in given
        if each.lsn_to > after or any(each.lsn_from < last and each.lsn_to > first for first, last in apart)
    }
    shared = expectation.erased_places
    while True:
        places = {place for each in given if each.range in chosen for place in each.places} & shared
        more = {each.range for each in given if each.range not in chosen and each.places & places}
        if not more:
            return tuple(each for each in given if each.range in chosen)
        chosen |= more


def eras_of(landings: Sequence[Owed], erased: Sequence[ErasedPart]) -> list[Era]:
    """The landings in eras; one of which only the total is known is alone in its own."""
    groups: dict[tuple[tuple[int, str], ...], list[Owed]] = {}
    alone: list[Era] = []
    for landing in landings:
        if landing.digest is None:
            alone.append(Era(landing.columns, (landing,), None))
        else:
            groups.setdefault(_kind(landing.columns), []).append(landing)
    found = []
    for kind, group in groups.items():
        blocks: Blocks = {}
        for landing in group:
            assert landing.digest is not None
            add_blocks(blocks, landing.digest)
        for block in (block for part in erased if _kind(part.columns) == kind for block in part.digest.blocks):
            place = block.partition, block.block
            if place in blocks:
                rows, total = blocks[place]
                blocks[place] = rows - block.rows, (total - block.total) % _MODULUS
        found.append(Era(group[0].columns, tuple(group), {place: each for place, each in blocks.items() if each[0]}))
    return found + alone


def _kind(columns: Iterable[Column]) -> tuple[tuple[int, str], ...]:
    return tuple(sorted((column.field_id, column.type) for column in columns))


def add_blocks(blocks: Blocks, digest: Digest) -> None:
    for block in digest.blocks:
        rows, total = blocks.get((block.partition, block.block), (0, 0))
        blocks[block.partition, block.block] = rows + block.rows, (total + block.total) % _MODULUS


# --------------------------------------------------------------------------------------------------------- ranges


def merged(ranges: Iterable[Range]) -> list[Range]:
    """The same LSNs in as few ranges as can be, in order."""
    found: list[Range] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return found


def places_of(runs: Iterable[OffsetRun]) -> set[Place]:
    """The blocks that these offsets are in."""
    return {
        (partition, number)
        for partition, first, last in runs
        for number in range(first >> BLOCK_BITS, (last >> BLOCK_BITS) + 1)
    }


def count_of(runs: Iterable[OffsetRun]) -> int:
    return sum(last - first + 1 for _, first, last in runs)


class _Counter:
    """How many of some offsets lie between two."""

    def __init__(self, runs: Iterable[OffsetRun]) -> None:
        self._firsts: dict[int, list[int]] = {}
        self._lasts: dict[int, list[int]] = {}
        self._before: dict[int, list[int]] = {}
        for partition, first, last in sorted(runs):
            before = self._before.setdefault(partition, [0])
            self._firsts.setdefault(partition, []).append(first)
            self._lasts.setdefault(partition, []).append(last)
            before.append(before[-1] + last - first + 1)

    def count(self, run: OffsetRun) -> int:
        partition, first, last = run
        return self._up_to(partition, last) - self._up_to(partition, first - 1)

    def _up_to(self, partition: int, offset: int) -> int:
        place = bisect_right(self._firsts.get(partition, []), offset)
        if not place:
            return 0
        beyond = max(self._lasts[partition][place - 1] - offset, 0)
        return self._before[partition][place] - beyond
