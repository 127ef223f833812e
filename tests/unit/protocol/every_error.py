"""One of each error of errors.py, with facts of every sort: what the wire must give back as it was."""

from __future__ import annotations

from datetime import UTC, datetime

from headwater.errors import HeadwaterError, LandingHalted, RefusedRow, RowsRefused
from headwater.protocol.failures import KINDS

FACTS: dict[str, object] = {
    "text": "größe, \0 and 🙂",
    "number": 7,
    "large": (1 << 64) - 1,
    "small": -(1 << 63),
    "part": 1.5,
    "yes": True,
    "none": None,
    "some": [1, "two", None, 3.0],
}
"""Facts that travel as they are."""

TOLD_FACTS: dict[str, object] = {
    "tuple": (1, 2),
    "set": {1},
    "map": {"a": 1},
    "bytes": b"ab",
    "time": datetime(2026, 11, 15, tzinfo=UTC),
    "huge": 1 << 70,
    "huge_negative": -(1 << 70),
    "huge_in_a_list": [1 << 70],
    "nested": [(1, 2)],
    "half_a_character_in_a_list": ["\ud800"],
}
"""Facts that travel as they stand in the message."""


def one_of(kind: type[HeadwaterError], **facts: object) -> HeadwaterError:
    if kind is RowsRefused:
        return RowsRefused("orders", [RefusedRow(3, "amount: text"), RefusedRow(9, "ort: größer")], 12, 7)
    if kind is LandingHalted:
        return LandingHalted("table-replaced", "the table is another one", **facts)
    return kind(f"what a {kind.__name__} says", **facts)


ALL = [one_of(kind, **FACTS) for kind in KINDS.values()]
