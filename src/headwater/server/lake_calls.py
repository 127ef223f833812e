"""Calls of the lake: one function for each of protocol/lake_calls.py.

PROMISE  A principal sees the segments' shares, the ledger's lines and the positions of the topics that it may read or
         land, and of no others; a segment is as large as its topics' frames in it.
         It writes the ledger's records of topics that it may land, and only what can be true of them: nothing beyond
         the durable LSN is landed.
NOT HERE Frames: frames.py.  Erasures and restores of lost logs, whose records only the log's own machine writes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from headwater.errors import CorruptData, InvalidRequest
from headwater.lake.lag import Waiting
from headwater.lake.landing import Lake
from headwater.lake.ledger import Ledger
from headwater.lake.ledger_records import (
    CheckedCatalog,
    Erased,
    Kept,
    LedgerRecord,
    Restored,
    unpack_ledger_record,
)
from headwater.lake.shape import landing_table
from headwater.lake.source import OpenLog
from headwater.metadata.operations import TopicRecord
from headwater.protocol import lake_calls as calls
from headwater.protocol.calls import Nothing
from headwater.protocol.failures import Failure, failure_of
from headwater.server.access import Principal, unknown_topic
from headwater.server.lake_rights import check_lands, check_looks, topic_to_look_at, topics_to_look_at
from headwater.server.pins import ServedPins
from headwater.server.served import Served
from headwater.spark.source_log import LogPositions
from headwater.spark.source_options import EARLIEST, LATEST, AtTime, Where
from headwater.spark.source_position import Position

PAGE_BYTES = 4 * 1024 * 1024
"""Of the ledger, in one answer."""


def _log(served: Served) -> OpenLog:
    if served.log is None:
        raise InvalidRequest("this server has no lake beside its log")
    return served.log


# Segments -------------------------------------------------------------------------------------------------------------


def lake_topics(served: Served, principal: Principal, request: Nothing) -> list[TopicRecord]:
    return topics_to_look_at(served, principal)


def segments(served: Served, principal: Principal, request: Nothing) -> list[calls.WireSegment]:
    check_looks(principal)
    seen = {each.number for each in topics_to_look_at(served, principal)}
    return [
        calls.WireSegment(
            each.name,
            each.first_lsn,
            each.last_lsn,
            each.sealed,
            tuple(
                calls.WireShare(number, share.frames, share.bytes, share.rows, share.last_lsn)
                for number, share in each.topics.items()
                if number in seen
            ),
        )
        for each in _log(served).segments()
    ]


def rows_between(served: Served, principal: Principal, request: calls.TopicRange) -> int:
    topic = topic_to_look_at(served, principal, request.topic)
    return _log(served).rows_between(topic.number, request.lsn_from, request.lsn_to)


def holds_all(served: Served, principal: Principal, request: calls.TopicRange) -> bool:
    topic = topic_to_look_at(served, principal, request.topic)
    return _log(served).holds_all(topic.number, request.lsn_from, request.lsn_to)


def chain_at(served: Served, principal: Principal, request: calls.AtLsn) -> str:
    check_looks(principal)
    return _log(served).chain_at(request.lsn)


def next_write(served: Served, principal: Principal, request: calls.AtLsn) -> calls.WireWrite | None:
    check_looks(principal)
    found = _log(served).next_write(request.lsn)
    return None if found is None else calls.WireWrite(*found)


def find_time(served: Served, principal: Principal, request: calls.AtTime) -> int | None:
    check_looks(principal)
    return _log(served).find_time(request.time_us)


def waiting(served: Served, principal: Principal, request: calls.LandedTopic) -> Waiting:
    topic = topic_to_look_at(served, principal, request.topic)
    return _log(served).waiting(topic, request.landed_lsn)


# Pins -----------------------------------------------------------------------------------------------------------------


def _pins(served: Served) -> ServedPins:
    _log(served)
    assert served.pins is not None
    return served.pins


def hold_pin(served: Served, principal: Principal, request: calls.HoldPin) -> int:
    check_looks(principal)
    return _pins(served).hold(principal.name, request.pin, request.lsn, request.snapshots)


def renew_pins(served: Served, principal: Principal, request: calls.SomePins) -> list[bytes]:
    check_looks(principal)
    return _pins(served).renew(principal.name, request.pins)


def release_pins(served: Served, principal: Principal, request: calls.SomePins) -> None:
    check_looks(principal)
    _pins(served).release(principal.name, request.pins)


def pinned(served: Served, principal: Principal, request: Nothing) -> list[int]:
    check_lands(principal)
    return sorted(_log(served).pinned())


def let_go(served: Served, principal: Principal, request: Nothing) -> str:
    check_lands(principal)
    return _log(served).let_go()


# The ledger -----------------------------------------------------------------------------------------------------------


def _ledger(served: Served) -> Ledger:
    lake: Lake | None = served.lake
    if lake is None or not isinstance(lake.ledger, Ledger):
        raise InvalidRequest("this server has no ledger beside its log")
    return lake.ledger


def record_in_ledger(served: Served, principal: Principal, request: calls.RecordInLedger) -> None:
    check_lands(principal)
    records = [_record(each) for each in request.records]
    durable_lsn = served.engine.durable_lsn()
    tables = _tables([each for each in topics_to_look_at(served, principal) if principal.may("land", each.name)])
    for record in records:
        if isinstance(record, Erased | Restored):
            raise InvalidRequest("what was erased or restored is recorded beside the log, and not through a server")
        if isinstance(record, CheckedCatalog):
            continue
        if isinstance(record, Kept):
            if record.table not in tables:
                raise unknown_topic()
            continue
        served.by_id(principal, _topic_id(record.topic_id), "land")
        if getattr(record, "lsn_to", 0) > durable_lsn or getattr(record, "lsn", 0) > durable_lsn:
            raise InvalidRequest("the log has not come to this LSN", durable_lsn=durable_lsn)
    _ledger(served).record(records)


def _record(data: bytes) -> LedgerRecord:
    try:
        return unpack_ledger_record(data)
    except (CorruptData, msgspec.MsgspecError) as error:
        raise InvalidRequest(f"a record of the ledger that cannot be read: {error}") from error


def _topic_id(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise unknown_topic() from None


def ledger_after(served: Served, principal: Principal, request: calls.AtLsn) -> calls.LedgerPage:
    check_looks(principal)
    topics = topics_to_look_at(served, principal)
    ids, tables = {each.topic_id.hex() for each in topics}, _tables(topics)
    page = _ledger(served).page(request.lsn, PAGE_BYTES)
    shown = [each for each in page.records if _is_shown(principal, unpack_ledger_record(each), ids, tables)]
    return calls.LedgerPage(page.lsn, tuple(shown), page.more, _rights(principal))


def _rights(principal: Principal) -> str:
    return hashlib.sha256("\n".join(sorted(map(str, principal.grants))).encode()).hexdigest()[:16]


def _tables(topics: Sequence[TopicRecord]) -> set[str]:
    """The tables of these topics, of keyed ones those of their changes too."""
    return {name for each in topics if each.table is not None for name in (each.table, landing_table(each))}


def _is_shown(principal: Principal, record: LedgerRecord, ids: set[str], tables: set[str]) -> bool:
    if isinstance(record, CheckedCatalog):
        return principal.may_any("land")
    if isinstance(record, Kept):
        return record.table in tables
    return record.topic_id in ids


# Positions of a query -------------------------------------------------------------------------------------------------


def find_position(served: Served, principal: Principal, request: calls.FindPosition) -> calls.WirePosition:
    where: Where
    if request.time_us is not None:
        where = AtTime(request.time_us)
    elif request.offsets is not None:
        where = dict(request.offsets)
    elif request.word in {EARLIEST, LATEST}:
        where = request.word
    else:
        raise InvalidRequest("a position is a word, a time or offsets")
    return _wire(_positions(served, principal, request.topic).position(where, ending=request.ending))


def position_after(served: Served, principal: Principal, request: calls.PositionAfter) -> calls.WirePosition:
    positions = _positions(served, principal, request.topic)
    return _wire(positions.after(_position(request.topic, request.position), request.bytes_max))


def lost_after(served: Served, principal: Principal, request: calls.LostAfter) -> list[Failure]:
    positions = _positions(served, principal, request.topic)
    return [failure_of(each) for each in positions.forgotten(_position(request.topic, request.position))]


def _positions(served: Served, principal: Principal, topic_id: bytes) -> LogPositions:
    topic = topic_to_look_at(served, principal, topic_id)
    return LogPositions(served.engine, _log(served), topic.number)


def _position(topic_id: bytes, wire: calls.WirePosition) -> Position:
    return Position(topic_id.hex(), wire.lsn, wire.offsets)


def _wire(position: Position) -> calls.WirePosition:
    return calls.WirePosition(position.lsn, dict(position.offsets))


LAKE_HANDLERS: dict[str, Callable[[Served, Principal, Any], Any]] = {
    calls.LAKE_TOPICS.name: lake_topics,
    calls.SEGMENTS.name: segments,
    calls.ROWS_BETWEEN.name: rows_between,
    calls.HOLDS_ALL.name: holds_all,
    calls.CHAIN_AT.name: chain_at,
    calls.NEXT_WRITE.name: next_write,
    calls.FIND_TIME.name: find_time,
    calls.WAITING.name: waiting,
    calls.HOLD_PIN.name: hold_pin,
    calls.RENEW_PINS.name: renew_pins,
    calls.RELEASE_PINS.name: release_pins,
    calls.PINNED.name: pinned,
    calls.LET_GO.name: let_go,
    calls.RECORD_IN_LEDGER.name: record_in_ledger,
    calls.LEDGER_AFTER.name: ledger_after,
    calls.FIND_POSITION.name: find_position,
    calls.POSITION_AFTER.name: position_after,
    calls.LOST_AFTER.name: lost_after,
}
assert set(LAKE_HANDLERS) == set(calls.LAKE_CALLS)
