"""What an audit found, topic by topic: PASS or FAIL as a value, as text, as JSON and in a notebook.

    report = log.audit()
    report.passed; report["orders"].missing; report.raise_for_status(); print(report)

PROMISE  A topic passes only if every row that it owes was looked at or had passed before, and is there once, unchanged.
         Offsets are told as ranges, the first of them; counts count all.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from headwater.errors import AuditFailed

UNAVAILABLE = "unavailable"
"""The cause of a topic that could not be looked at this time."""
RANGES_TOLD = 100
"""So many ranges of offsets are kept of each kind and partition."""


@dataclass(frozen=True)
class Offsets:
    """Offsets of one partition."""

    count: int = 0
    ranges: tuple[tuple[int, int], ...] = ()
    """(first, last), the first of them."""

    def __bool__(self) -> bool:
        return self.count > 0

    def __str__(self) -> str:
        shown = ", ".join(str(first) if first == last else f"{first}..{last}" for first, last in self.ranges[:5])
        told = sum(last - first + 1 for first, last in self.ranges[:5])
        return shown if told >= self.count else f"{shown} and more, {self.count} in all"


def offsets_of(runs: Iterable[tuple[int, int]], count: int | None = None) -> Offsets:
    """These runs as what is told of them."""
    given = sorted(runs)
    found: list[tuple[int, int]] = []
    for first, last in given:
        if found and first == found[-1][1] + 1:
            found[-1] = found[-1][0], last
        else:
            found.append((first, last))
    total = sum(last - first + 1 for first, last in found)
    return Offsets(total if count is None else count, tuple(found[:RANGES_TOLD]))


@dataclass(frozen=True)
class PartitionAudit:
    """One partition of a topic in its table."""

    partition: int
    rows: int
    """That were read in this audit."""
    digest: str
    """Of these rows, 16 hex digits."""
    missing: Offsets = Offsets()
    extra: Offsets = Offsets()
    doubled: Offsets = Offsets()
    altered: Offsets = Offsets()
    altered_blocks: Offsets = Offsets()
    """Some row of each of these ranges is altered; which one, only the log could say, and it has let go of them."""

    @property
    def passed(self) -> bool:
        return not (self.missing or self.extra or self.doubled or self.altered or self.altered_blocks)

    def told(self) -> Iterator[str]:
        for kind in ("missing", "extra", "doubled", "altered"):
            found: Offsets = getattr(self, kind)
            if found:
                yield f"partition {self.partition}: {kind}: offset {found}"
        if self.altered_blocks:
            yield f"partition {self.partition}: altered: a row among offsets {self.altered_blocks}"


@dataclass(frozen=True)
class LostFile:
    """A data file, or a delete file of one, that its table names and that is not there."""

    path: str
    rows: int
    lsn_from: int
    """It may hold rows after this LSN ..."""
    lsn_to: int
    """... and up to this one."""
    landings: tuple[str, ...] = ()
    """The commit-ids of landings with such LSNs."""


@dataclass(frozen=True)
class StateAudit:
    """The state table of a keyed topic against the latest of its changes.  Rows are named by the change that made
    them."""

    table: str
    merged_lsn: int
    rows: int
    partitions: tuple[PartitionAudit, ...] = ()
    since_lsn: int = 0
    """Changes up to here are past their retention: rows that they made are counted, and not compared."""
    findings: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.findings and all(partition.passed for partition in self.partitions)


@dataclass(frozen=True)
class TopicAudit:
    """One topic against its table."""

    topic: str
    table: str
    full: bool = True
    lsn_to: int = 0
    """Rows up to this LSN were looked at, or had passed before."""
    snapshot: int | None = None
    rows: int = 0
    """That the table holds."""
    owed: int = 0
    """That it should hold."""
    checked: int = 0
    """That were read in this audit; the others had passed before."""
    erased: int = 0
    """That their owner has erased, by receipts in the ledger."""
    unmarked: int = 0
    """That were in the table before the topic, or beside it: none of the log's."""
    accepted: int = 0
    """Rows that the topic has ever taken."""
    rejected: int = 0
    """Rows that did not fit, and were kept beside it."""
    redriven: int = 0
    """Of these, rows that the topic took later, corrected."""
    partitions: tuple[PartitionAudit, ...] = ()
    lost_files: tuple[LostFile, ...] = ()
    findings: tuple[str, ...] = ()
    """What else is wrong: with the table's history, the ledger or the log."""
    notes: tuple[str, ...] = ()
    """What should be known, and is not wrong."""
    dropped_columns: tuple[str, ...] = ()
    """Columns that the table's owner dropped: of landings that had them, offsets and counts were compared."""
    state: StateAudit | None = None
    cause: str = ""
    """Why nobody can say whether it is right: a word of docs/landing.md, or "unavailable"."""
    message: str = ""
    seconds: float = 0.0

    @property
    def sent(self) -> int:
        return self.accepted + self.rejected - self.redriven

    @property
    def passed(self) -> bool:
        return (
            not (self.cause or self.findings or self.lost_files)
            and all(partition.passed for partition in self.partitions)
            and (self.state is None or self.state.passed)
        )

    @property
    def differences(self) -> int:
        """How many rows, files and other things are not as they should be."""
        partitions = (*self.partitions, *(self.state.partitions if self.state is not None else ()))
        found = sum(
            each.missing.count + each.extra.count + each.doubled.count + each.altered.count for each in partitions
        )
        blocks = sum(len(each.altered_blocks.ranges) for each in partitions)
        others = len(self.findings) + len(self.lost_files) + (len(self.state.findings) if self.state else 0)
        return found + blocks + others

    def offsets(self, kind: str) -> dict[int, Offsets]:
        """By partition: "missing", "extra", "doubled", "altered" or "altered_blocks"."""
        return {each.partition: found for each in self.partitions if (found := getattr(each, kind))}

    @property
    def missing(self) -> dict[int, Offsets]:
        return self.offsets("missing")

    @property
    def extra(self) -> dict[int, Offsets]:
        return self.offsets("extra")

    @property
    def doubled(self) -> dict[int, Offsets]:
        return self.offsets("doubled")

    @property
    def altered(self) -> dict[int, Offsets]:
        return self.offsets("altered")

    def told(self) -> Iterator[str]:
        """What is wrong, a line each."""
        if self.message:
            yield self.message
        yield from self.findings
        for lost in self.lost_files:
            yield f"lost: {lost.path}, {lost.rows} rows, lsn {lost.lsn_from + 1}..{lost.lsn_to}"
        for partition in self.partitions:
            yield from partition.told()
        if self.state is not None:
            yield from (f"{self.state.table}: {each}" for each in self.state.findings)
            for partition in self.state.partitions:
                yield from (f"{self.state.table}: {each}" for each in partition.told())

    def __str__(self) -> str:
        verdict = "PASS" if self.passed else "FAIL"
        how = "full" if self.full else f"{self.checked} of them read"
        return f"{verdict} {self.topic}: {self.rows} of {self.owed} rows in {self.table}, lsn {self.lsn_to}, {how}"


@dataclass(frozen=True)
class AuditReport:
    topics: tuple[TopicAudit, ...] = ()
    seconds: float = 0.0
    at_us: int = field(default=0, compare=False)

    @property
    def passed(self) -> bool:
        return all(topic.passed for topic in self.topics)

    @property
    def failed(self) -> tuple[TopicAudit, ...]:
        return tuple(topic for topic in self.topics if not topic.passed)

    @property
    def halted(self) -> tuple[TopicAudit, ...]:
        """Topics that need a person."""
        return tuple(topic for topic in self.topics if topic.cause not in {"", UNAVAILABLE})

    @property
    def unavailable(self) -> tuple[TopicAudit, ...]:
        """Topics whose table could not be looked at this time."""
        return tuple(topic for topic in self.topics if topic.cause == UNAVAILABLE)

    def __getitem__(self, topic: str) -> TopicAudit:
        return next(each for each in self.topics if each.topic == topic)

    def __iter__(self) -> Iterator[TopicAudit]:
        return iter(self.topics)

    def raise_for_status(self) -> None:
        """AuditFailed, which names what was found first, unless everything passed."""
        if self.passed:
            return
        first = self.failed[0]
        raise AuditFailed(
            f"{len(self.failed)} of {len(self.topics)} topics did not pass: {first}: {next(first.told())}",
            topics=[topic.topic for topic in self.failed],
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values, for programs."""
        return {
            "passed": self.passed,
            "seconds": round(self.seconds, 6),
            "topics": [
                {
                    **asdict(topic),
                    # 64 bits: many readers of JSON would round the number.
                    "snapshot": str(topic.snapshot) if topic.snapshot is not None else None,
                    "passed": topic.passed,
                    "sent": topic.sent,
                    "differences": topic.differences,
                    "seconds": round(topic.seconds, 6),
                }
                for topic in self.topics
            ],
        }

    def __str__(self) -> str:
        lines = []
        for topic in self.topics:
            lines.append(str(topic))
            lines.extend(f"  {each}" for each in topic.told())
        return "\n".join([*lines, "PASS" if self.passed else "FAIL"])

    __repr__ = __str__
    """What a prompt shows: the verdict, and what is wrong.  All else is in the fields."""

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{'PASS' if topic.passed else 'FAIL'}</td><td>{html.escape(topic.topic)}</td>"
            f"<td>{html.escape(topic.table)}</td><td>{topic.rows:,}</td><td>{topic.owed:,}</td>"
            f"<td>{html.escape('; '.join(topic.told()))}</td></tr>"
            for topic in self.topics
        )
        head = "".join(f"<th>{name}</th>" for name in ("", "topic", "table", "rows", "owed", "found"))
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
