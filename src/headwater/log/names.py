"""The names of a log's files, and whose they are.

<first LSN, 20 digits>.<generation>.seg   a segment; generation 0 as first written, above: rewritten
the same with .idx                        its index
mark, lock, reserve                       one of each
any of these with .tmp, or with eight     being made: left over by a crash, removed by the next owner
hex digits and .tmp

All else in the directory is not ours: it is reported and never touched.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MARK = "mark"
LOCK = "lock"
RESERVE = "reserve"
TEMPORARY = ".tmp"
DAMAGED = ".damaged"
"""What a repair adds to the name of a damaged file that it keeps for people to look at."""

_SEGMENT = re.compile(r"(\d{20})\.(0|[1-9]\d{0,9})\.(seg|idx)")
_TOKEN = re.compile(r"\.[0-9a-f]{8}$")


@dataclass(frozen=True, order=True)
class SegmentName:
    first_lsn: int
    generation: int

    def __str__(self) -> str:
        return f"{self.first_lsn:020}.{self.generation}.seg"

    @property
    def index(self) -> str:
        return f"{self.first_lsn:020}.{self.generation}.idx"


@dataclass
class DirectoryListing:
    """A log's directory, sorted into what is ours and what is not."""

    segments: list[SegmentName] = field(default_factory=list)
    indexes: list[SegmentName] = field(default_factory=list)
    temporaries: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    mark: bool = False


def parse_segment_name(name: str) -> SegmentName | None:
    """The segment of this name, if it is the name of one."""
    match = _SEGMENT.fullmatch(name)
    if match is None or match[3] != "seg":
        return None
    return SegmentName(int(match[1]), int(match[2]))


def sort_names(names: list[str]) -> DirectoryListing:
    listing = DirectoryListing()
    for name in names:
        match = _SEGMENT.fullmatch(name)
        if match is not None:
            found = SegmentName(int(match[1]), int(match[2]))
            (listing.segments if match[3] == "seg" else listing.indexes).append(found)
        elif name == MARK:
            listing.mark = True
        elif name in (LOCK, RESERVE):
            continue
        elif _is_temporary(name):
            listing.temporaries.append(name)
        else:
            listing.foreign.append(name)
    listing.segments.sort()
    return listing


def _is_temporary(name: str) -> bool:
    if not name.endswith(TEMPORARY):
        return False
    made = _TOKEN.sub("", name.removesuffix(TEMPORARY))
    return made in (MARK, LOCK, RESERVE) or _SEGMENT.fullmatch(made) is not None
