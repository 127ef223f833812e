"""Where `headwater read` begins and ends, from what `--start` and `--stop` say.

earliest, latest             the first row that is kept; behind the last
lsn:7                        an LSN
1042                         an offset, with --partition
0:17,1:3                     an offset for each of some partitions
15min, 2h, 7d                so long ago
2026-11-15T02:55:13Z         a moment, by append time; one without a zone is UTC
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from headwater.clock import Clock
from headwater.errors import InvalidRequest

_UNITS_S = {"s": 1.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Place = str | int | dict[int, int] | datetime
"""What Topic.read takes for `start` and `stop`; an LSN is a number of its own type."""


def parse_place(text: str, partition: int | None, clock: Clock) -> Place:
    """The place that the text names; InvalidRequest lists what it may be."""
    if text in {"earliest", "latest"}:
        return text
    if found := re.fullmatch(r"lsn:([0-9]+)", text, re.IGNORECASE):
        from headwater.topics.positions import Lsn

        return Lsn(int(found[1]))
    if re.fullmatch(r"[0-9]+", text):
        if partition is None:
            raise InvalidRequest(
                f"{text} is an offset, and offsets are a partition's: give --partition too, or lsn:{text}"
            )
        return int(text)
    if re.fullmatch(r"[0-9]+:[0-9]+(,[0-9]+:[0-9]+)*", text):
        pairs = [part.split(":") for part in text.split(",")]
        return {int(number): int(offset) for number, offset in pairs}
    if found := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(s|min|h|d)", text):
        ago_s = float(found[1]) * _UNITS_S[found[2]]
        return _EPOCH + timedelta(microseconds=clock.now_us()) - timedelta(seconds=ago_s)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(
            f"{text!r} is no place in a topic; one is: earliest, latest, lsn:7, 0:17,1:3 (offsets by partition), "
            "15min (ago), or 2026-11-15T02:55:13Z"
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
