"""Debezium's change events: what one says, and where it stands among the others of its source.  Pure.

An event is Debezium's JSON envelope: {"before", "after", "op", "source", ...}, alone or as the "payload" beside a
"schema", which is not read.

op     becomes
c, r   an upsert of `after`                            (r: a row of a snapshot)
u      an upsert of `after`, and before it a delete of the old key where `before` shows that the key has changed
d      a delete of the key in `before`
null   nothing: a tombstone follows a delete for Kafka's sake

POSITION What orders the events of a table, by connector:
    postgresql        source.sequence: [LSN of the last commit, LSN of the change].  The LSN of the change alone does
                      not rise: transactions come in the order of their commits, and their changes were made before.
    mysql, mariadb    number of the binlog file, pos, row; of one server: another server's positions mean nothing here
    sqlserver         commit_lsn, change_lsn, event_serial_no
    any, if asked     the source's own time (ts_ns, ts_us, ts_ms): right only where that clock never goes back
PROMISE  What cannot be read, or ordered, or holds a placeholder in place of a value that Debezium did not have, is
         Unreadable, with a reason.  Nothing is guessed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgspec

DIGEST_BYTES = 8
_PLACEHOLDERS = {"__debezium_unavailable_value", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="}
"""As text, and as the bytes of that text in base64."""
_BINLOG_FILE = re.compile(r"(?P<name>.+)\.(?P<number>\d+)")
_NOT_A_SNAPSHOT = {None, False, "false", "incremental"}
"""Rows of an incremental snapshot come between other changes, with the position of the stream."""

Position = tuple[Any, ...]


class Unreadable(Exception):
    """This event cannot be taken in: why."""


@dataclass(frozen=True)
class Change:
    """One event."""

    number: int
    """Its place in the request, from 0."""
    table: str
    """Whose changes are ordered among each other: the connector's name and the table's."""
    origin: str
    """Positions of two origins cannot be compared."""
    at: Position
    snapshot: bool
    upsert: Mapping[str, object] | None
    delete: Mapping[str, object] | None
    """The row whose key is deleted, before the upsert where there is one."""
    digest: bytes
    """Tells events of one position apart."""


def read_change(event: object, number: int, key: tuple[str, ...], *, by_time: bool) -> Change | None:
    """What an event says; None for a tombstone."""
    payload = _payload(event)
    if payload is None:
        return None
    op, before, after, source = (payload.get(name) for name in ("op", "before", "after", "source"))
    if not isinstance(source, Mapping):
        raise Unreadable("source: missing; an event says where it comes from")
    upsert, delete = _rows(op, before, after, key)
    snapshot = not by_time and source.get("snapshot") not in _NOT_A_SNAPSHOT
    at, origin = _position(source, snapshot=snapshot, by_time=by_time)
    return Change(
        number=number,
        table=_table(source),
        origin=origin,
        at=at,
        snapshot=snapshot,
        upsert=upsert,
        delete=delete,
        digest=_digest([op, before, after]),
    )


def _payload(event: object) -> Mapping[str, Any] | None:
    if event is None:
        return None
    if not isinstance(event, Mapping):
        raise Unreadable("this is no event: an object with op, before, after and source is")
    if "op" in event:
        return event
    if "payload" not in event:
        raise Unreadable("op: missing; rows without their envelope (ExtractNewRecordState) cannot be told apart")
    payload = event["payload"]
    if payload is not None and (not isinstance(payload, Mapping) or "op" not in payload):
        raise Unreadable("payload.op: missing; this is no event of a row")
    return payload


def _rows(
    op: object, before: object, after: object, key: tuple[str, ...]
) -> tuple[Mapping[str, object] | None, Mapping[str, object] | None]:
    if op == "d":
        if not isinstance(before, Mapping):
            raise Unreadable("before: missing; a delete says whose, so the table needs a REPLICA IDENTITY")
        return None, _key_of(before, key, "before")
    if op not in ("c", "r", "u"):
        raise Unreadable(f"op: {str(op)[:20]!r} is none of c, r, u, d; set skipped.operations for the others")
    if not isinstance(after, Mapping):
        raise Unreadable(f"after: missing, and op is {op!r}")
    lost = [name for name, value in after.items() if _is_placeholder(value)]
    if lost:
        raise Unreadable(f"{lost[0]}: Debezium did not have the value; give the table REPLICA IDENTITY FULL")
    after_key = _key_of(after, key, "after")
    if op == "u" and isinstance(before, Mapping) and all(before.get(name) is not None for name in key):
        before_key = _key_of(before, key, "before")
        if before_key != after_key:
            return after, before_key
    return after, None


def _key_of(row: Mapping[str, object], key: tuple[str, ...], where: str) -> dict[str, object]:
    missing = [name for name in key if name not in row]
    if missing:
        raise Unreadable(f"{where}.{missing[0]}: missing, and it is part of the topic's key")
    return {name: row[name] for name in key}


def _is_placeholder(value: object) -> bool:
    if isinstance(value, list):
        return any(_is_placeholder(each) for each in value)
    return isinstance(value, str) and value in _PLACEHOLDERS


def _table(source: Mapping[str, Any]) -> str:
    parts = (source.get(name) for name in ("name", "db", "schema", "table", "collection"))
    return ".".join(str(part) for part in parts if part)


# --------------------------------------------------------------------------------------------------- positions


def _position(source: Mapping[str, Any], *, snapshot: bool, by_time: bool) -> tuple[Position, str]:
    connector = str(source.get("connector", ""))[:40]
    if by_time:
        return _time(source), "time"
    if connector == "postgresql":
        return _postgresql(source, snapshot), connector
    if connector in ("mysql", "mariadb"):
        return _mysql(source, connector, snapshot)
    if connector == "sqlserver":
        return _sqlserver(source, snapshot), connector
    raise Unreadable(
        f"source.connector: the order of events of {connector!r} is not known here; position=time goes by their time"
    )


def _postgresql(source: Mapping[str, Any], snapshot: bool) -> Position:
    sequence = source.get("sequence")
    try:
        found = json.loads(sequence) if isinstance(sequence, str) else sequence
        last_commit, lsn = (0 if each is None else int(each) for each in found)  # type: ignore[union-attr]
    except (ValueError, TypeError):
        raise Unreadable("source.sequence: missing or not readable; Debezium 1.6 and later write it") from None
    if not lsn:
        raise Unreadable("source.sequence: it has no LSN")
    return (lsn,) if snapshot else (last_commit, lsn)


def _mysql(source: Mapping[str, Any], connector: str, snapshot: bool) -> tuple[Position, str]:
    name = _BINLOG_FILE.fullmatch(str(source.get("file", "")))
    if name is None:
        raise Unreadable("source.file: missing, or not the name of a binlog file")
    at = (int(name["number"]), _whole(source, "pos"), _whole(source, "row", 0))
    origin = connector if snapshot else f"{connector} {_whole(source, 'server_id', 0)} {name['name'][:60]}"
    return at, origin


def _sqlserver(source: Mapping[str, Any], snapshot: bool) -> Position:
    commit_lsn = source.get("commit_lsn")
    if not isinstance(commit_lsn, str):
        raise Unreadable("source.commit_lsn: missing")
    if snapshot:
        return (commit_lsn,)
    return commit_lsn, str(source.get("change_lsn") or ""), _whole(source, "event_serial_no", 0)


def _time(source: Mapping[str, Any]) -> Position:
    for name, ns in (("ts_ns", 1), ("ts_us", 1_000), ("ts_ms", 1_000_000)):
        if source.get(name) is not None:
            return (_whole(source, name) * ns,)
    raise Unreadable("source.ts_ms: missing")


def _whole(source: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = source.get(name)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise Unreadable(f"source.{name}: missing, or no whole number")
    return value


def _digest(parts: list[object]) -> bytes:
    data = msgspec.json.encode(parts, enc_hook=repr, order="deterministic")
    return blake2b(data, digest_size=DIGEST_BYTES).digest()
