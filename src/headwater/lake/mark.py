"""The mark of a landing: what a table says about how far it holds a topic's rows.

A landing leaves its mark twice, in the same commit as its rows: in its snapshot's summary, which goes with that
snapshot through rollbacks and is lost when it expires; and in a property of the table, which outlives the snapshot and
stays ahead after a rollback.  Neither is believed alone: marks.py reads them together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from headwater.errors import CorruptData

PREFIX = "headwater."
MAIN = "main"
FORGOTTEN = f"{PREFIX}forgotten.{MAIN}"
"""A property of a change table: its retention has let go of rows up to this LSN, so no merge can begin below it."""


def property_name(branch: str = MAIN) -> str:
    return f"{PREFIX}landed.{branch}"


@dataclass(frozen=True, slots=True)
class Mark:
    """One landing, as its commit says it."""

    log_id: str
    topic_id: str
    commit_id: str
    shard: int
    lsn_from: int
    """Rows after this LSN."""
    lsn_to: int
    """Rows up to this LSN: from here the next landing goes on."""
    rows: int
    digest: str
    """16 hex digits: docs/formats/digest.md."""
    epoch: int
    max_row_lsn: int
    """The highest LSN of any row of the topic at or below `lsn_to`, carried forward; 0: none."""
    columns: str = ""
    """The field ids of the columns that were written, "1,2,3": of these is the digest."""
    chain: str = ""
    """The chain value of the log's frame at `lsn_to`, by which a log that was put back is told; empty: not known."""
    watermark_us: int | None = None
    """The highest event time of any landed row, where the topic declares an event-time column."""
    snapshot: int | None = None
    """The landing's own snapshot: in the property alone, because a summary is in its snapshot."""

    @property
    def field_ids(self) -> tuple[int, ...]:
        return tuple(int(each) for each in self.columns.split(",") if each)

    def is_of(self, log_id: str, topic_id: str) -> bool:
        return self.log_id == log_id and self.topic_id == topic_id

    def summary(self) -> dict[str, str]:
        """For the snapshot: strings under `headwater.` names."""
        named = {_dashed(name): value for name, value in asdict(self).items() if name != "snapshot"}
        return {PREFIX + name: str(value) for name, value in named.items() if value is not None}

    def property_value(self, snapshot: int) -> str:
        """For the table: one line of JSON."""
        named = {_dashed(name): value for name, value in asdict(self).items() if value is not None}
        return json.dumps({**named, "snapshot": snapshot}, sort_keys=True)


_NUMBERS = {"shard", "lsn_from", "lsn_to", "rows", "epoch", "max_row_lsn", "watermark_us", "snapshot"}
_OPTIONAL = {"columns", "chain", "watermark_us", "snapshot"}
_FIELD_IDS = re.compile(r"(\d+(,\d+)*)?")
_FIELDS = tuple(Mark.__dataclass_fields__)


def mark_in_summary(summary: Mapping[str, str]) -> Mark | None:
    """The mark of a snapshot; None where it is no landing's."""
    if PREFIX + "commit-id" not in summary:
        return None
    return _mark({name: summary.get(PREFIX + _dashed(name)) for name in _FIELDS})


def mark_in_property(value: str) -> Mark:
    try:
        named = json.loads(value)
        return _mark({name: named.get(_dashed(name)) for name in _FIELDS})
    except (ValueError, AttributeError) as error:
        raise CorruptData("the table's property with the landed LSN cannot be read", value=value[:200]) from error


def _mark(values: Mapping[str, object]) -> Mark:
    read: dict[str, object] = {}
    for name, value in values.items():
        if value is None:
            if name not in _OPTIONAL:
                raise CorruptData("a landing's mark lacks one of its parts", part=_dashed(name))
        elif name in _NUMBERS:
            try:
                read[name] = int(str(value))
            except ValueError as error:
                raise CorruptData("a landing's mark has no number", part=_dashed(name), value=value) from error
        else:
            read[name] = str(value)
    if not _FIELD_IDS.fullmatch(str(read.get("columns", ""))):
        raise CorruptData("a landing's mark has no list of columns", value=str(read["columns"])[:200])
    return Mark(**read)  # type: ignore[arg-type]  # the names are the fields, the types were made above


def _dashed(name: str) -> str:
    return name.replace("_", "-")
