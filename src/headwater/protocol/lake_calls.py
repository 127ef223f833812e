"""Calls of landings, audits, views and Spark: what the lake asks of a log (lake/source.py), asked over the wire.

Whoever lands has a catalog of its own, and runs the landing itself; the server has the log and the ledger beside it.

RIGHT    `read` or `land` over a topic to look at it; `land` to write the ledger's records of it.  What is of no topic,
         such as how far the log goes, is for whoever has one of the two over some topic.
PINS     A pin holds the log for a client, who names it: asking twice is asking once.  It lasts LEASE_S after it was
         last heard of, so a client that has gone holds nothing for long; whoever reads on renews it.
LEDGER   Records as their bytes (docs/formats/ledger.md), those alone that concern topics which the principal may know.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from headwater.lake.lag import Waiting
from headwater.metadata.operations import TopicRecord
from headwater.protocol.calls import Call, Nothing, Request
from headwater.protocol.failures import Failure
from headwater.protocol.places import Number
from headwater.protocol.streams import TopicId

LEASE_S = 30.0
RENEW_S = 5.0
PageBytes = Annotated[bytes, msgspec.Meta(max_length=1 << 26)]
PinId = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]


# Segments -------------------------------------------------------------------------------------------------------------


class WireShare(msgspec.Struct, frozen=True, array_like=True):
    """What a topic has in a segment."""

    number: int
    frames: int
    bytes: int
    rows: int
    last_lsn: int


class WireSegment(msgspec.Struct, frozen=True, array_like=True):
    name: str
    first_lsn: int
    last_lsn: int
    sealed: bool
    shares: tuple[WireShare, ...]
    """Of the topics that the principal may read or land, and of no others."""


class TopicRange(Request, frozen=True):
    """A topic after one LSN and up to another."""

    topic: TopicId
    lsn_from: Number
    lsn_to: Number


class AtLsn(Request, frozen=True):
    lsn: Number


class AtTime(Request, frozen=True):
    time_us: int


class LandedTopic(Request, frozen=True):
    topic: TopicId
    landed_lsn: Number


class WireWrite(msgspec.Struct, frozen=True, array_like=True):
    lsn: int
    write_lsn: int
    """Where its write begins."""


class FramesEnd(msgspec.Struct, frozen=True, array_like=True):
    """Beside the last batch of ReadFrames."""

    frames: int


# Pins -----------------------------------------------------------------------------------------------------------------


class HoldPin(Request, frozen=True):
    pin: PinId
    lsn: Number | None = None
    """Hold the log from here on; nothing: all that it has."""
    snapshots: Annotated[tuple[int, ...], msgspec.Meta(max_length=10_000)] = ()


class SomePins(Request, frozen=True):
    pins: Annotated[tuple[PinId, ...], msgspec.Meta(max_length=10_000)]


# The ledger -----------------------------------------------------------------------------------------------------------


class RecordInLedger(Request, frozen=True):
    records: Annotated[tuple[PageBytes, ...], msgspec.Meta(max_length=100_000)]


class LedgerPage(msgspec.Struct, frozen=True):
    lsn: int
    """Of the ledger's own: ask from here for the next page."""
    records: tuple[bytes, ...]
    more: bool
    rights: str
    """It changes when the principal's rights do: then what was read by others is read again from the first."""


# Positions of a query -------------------------------------------------------------------------------------------------


class WirePosition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    lsn: Number
    offsets: Annotated[dict[Number, Number], msgspec.Meta(max_length=100_000)]


class FindPosition(Request, frozen=True):
    """One of the four says where."""

    topic: TopicId
    word: Annotated[str, msgspec.Meta(max_length=16)] = ""
    time_us: int | None = None
    offsets: Annotated[dict[Number, int], msgspec.Meta(max_length=100_000)] | None = None
    ending: bool = False


class PositionAfter(Request, frozen=True):
    topic: TopicId
    position: WirePosition
    bytes_max: Annotated[int, msgspec.Meta(ge=1)] | None = None


class LostAfter(Request, frozen=True):
    topic: TopicId
    position: WirePosition


LAKE_TOPICS: Call[Nothing, list[TopicRecord]] = Call("lake_topics", Nothing, list[TopicRecord], None)
"""Those that the principal may read or land."""
SEGMENTS: Call[Nothing, list[WireSegment]] = Call("segments", Nothing, list[WireSegment], None)
ROWS_BETWEEN: Call[TopicRange, int] = Call("rows_between", TopicRange, int, "land")
"""`read` does as well, here and below."""
HOLDS_ALL: Call[TopicRange, bool] = Call("holds_all", TopicRange, bool, "land")
CHAIN_AT: Call[AtLsn, str] = Call("chain_at", AtLsn, str, "land")
NEXT_WRITE: Call[AtLsn, WireWrite | None] = Call("next_write", AtLsn, WireWrite | None, "land")
FIND_TIME: Call[AtTime, int | None] = Call("find_time", AtTime, int | None, "land")
WAITING: Call[LandedTopic, Waiting] = Call("waiting", LandedTopic, Waiting, "land")
HOLD_PIN: Call[HoldPin, int] = Call("hold_pin", HoldPin, int, "land")
"""The answer is the LSN from which on the log is held."""
RENEW_PINS: Call[SomePins, list[bytes]] = Call("renew_pins", SomePins, list[bytes], "land")
"""The answer names those that are not held any more: their client was not heard of, or the server is another."""
RELEASE_PINS: Call[SomePins, None] = Call("release_pins", SomePins, None, "land")
PINNED: Call[Nothing, list[int]] = Call("pinned", Nothing, list[int], "land")
LET_GO: Call[Nothing, str] = Call("let_go", Nothing, str, "land")
RECORD_IN_LEDGER: Call[RecordInLedger, None] = Call("record_in_ledger", RecordInLedger, None, "land")
"""Sent again: a record that stands there twice says what it said once (lake/ledger_state.py)."""
LEDGER_AFTER: Call[AtLsn, LedgerPage] = Call("ledger_after", AtLsn, LedgerPage, "land")
FIND_POSITION: Call[FindPosition, WirePosition] = Call("find_position", FindPosition, WirePosition, "read")
POSITION_AFTER: Call[PositionAfter, WirePosition] = Call("position_after", PositionAfter, WirePosition, "read")
LOST_AFTER: Call[LostAfter, list[Failure]] = Call("lost_after", LostAfter, list[Failure], "read")

LAKE_CALLS: dict[str, Call[Any, Any]] = {
    value.name: value for value in list(globals().values()) if isinstance(value, Call)
}
