"""The options of `format("headwater")`, checked and in their own types.

    uri                   the data directory, on a disk that the driver and the workers reach, or s3://bucket/prefix, or
                          a server: hws://host:port
    topic                 the topic's name
    tokenFile             of a server: the file with the token; caFile, certFile and keyFile likewise.  Each is a path
                          on the driver and on every worker
    read                  "log", the default: rows that the log holds.  "view": table and tail as one
    asOf                  of a view: a cut's token, a time (ISO 8601 with a zone), or an LSN: 7, lsn:7; without it now
    catalog               of a view: a name of pyiceberg's configuration, or its properties as JSON; without it the
                          catalog in the data directory
    startingOffsets       "earliest", the default, "latest", or JSON: {"0": 12, "1": -2}; -2 is earliest, -1 latest
    endingOffsets         "latest", the default, or JSON likewise; exclusive; not for a stream
    startingTimestamp     rows appended at or after this time: milliseconds since 1970, or ISO 8601 with a zone
    endingTimestamp       rows appended before this time; not for a stream
    columns               names, separated by commas: only these are read
    where                 rows for which this holds: "amount > 100 and region in ('eu', 'us')"
    systemColumns         "true" adds _hw_shard, _hw_lsn, _hw_partition, _hw_offset and _hw_time
    minPartitions         at least so many Spark partitions, if there are so many frames
    maxBytesPerTrigger    a stream's batch takes about so many bytes of the log; at least one write
    failOnDataLoss        "true", the default: where the log has forgotten rows that were asked for, the query fails

PROMISE  What cannot be done is refused here, by the option's name; an option that is not known is refused too, because
         one that is mistyped and passed over changes what a query reads.
NOT HERE What a place in the log is: source_log.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from headwater.errors import InvalidRequest
from headwater.lake.elsewhere import is_elsewhere
from headwater.storage.places import is_bucket
from headwater.topics.positions import Lsn, time_us_of

EARLIEST, LATEST = "earliest", "latest"
EARLIEST_OFFSET, LATEST_OFFSET = -2, -1
"""What Kafka's JSON has in the place of an offset."""

_OF_A_SERVER = {"tokenFile": "token_file", "caFile": "ca_file", "certFile": "cert_file", "keyFile": "key_file"}
"""As the address names them (protocol/address.py)."""
_KNOWN = (
    "uri",
    "topic",
    *_OF_A_SERVER,
    "read",
    "asOf",
    "catalog",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "columns",
    "where",
    "systemColumns",
    "minPartitions",
    "maxBytesPerTrigger",
    "failOnDataLoss",
)
_NEVER = {
    "token": "a token is no option, because plans and the UI show those: put it into a file, and name it by tokenFile",
}
_OF_A_VIEW = ("asOf", "catalog")
_OF_THE_LOG = (
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "minPartitions",
    "maxBytesPerTrigger",
    "failOnDataLoss",
)
_UNITS = {"": 1, "b": 1, "k": 2**10, "kb": 2**10, "m": 2**20, "mb": 2**20, "g": 2**30, "gb": 2**30}

Offsets = dict[int, int]


@dataclass(frozen=True)
class AtTime:
    """A place in the log by append time."""

    time_us: int


Where = str | Offsets | AtTime
"""EARLIEST, LATEST, offsets by partition, or a time."""


@dataclass(frozen=True)
class SourceOptions:
    directory: str
    """Absolute, because workers are started elsewhere; or a url."""
    topic: str
    start: Where = EARLIEST
    end: Where = LATEST
    columns: tuple[str, ...] | None = None
    where: str | None = None
    system_columns: bool = False
    min_partitions: int | None = None
    bytes_per_trigger_max: int | None = None
    fail_on_data_loss: bool = True
    view: bool = False
    """Table and tail as one, and not the log alone."""
    as_of: Lsn | str | None = None
    catalog: str | Mapping[str, Any] | None = None

    def check_for_stream(self) -> None:
        if self.view:
            raise InvalidRequest("read=view is for spark.read: a stream reads the log, or the table by Iceberg")
        if self.end != LATEST:
            raise InvalidRequest("a stream has no end: endingOffsets and endingTimestamp are for spark.read")

    def check_for_batch(self) -> None:
        if self.bytes_per_trigger_max is not None:
            raise InvalidRequest("maxBytesPerTrigger is for spark.readStream: spark.read has no triggers")


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """The options of a query; InvalidRequest names the one that is wrong.  Names count in any case, as in Spark."""
    options = {name.lower(): value for name, value in given.items()}
    _check_names(given)
    view = _is_view(options)
    columns = options.get("columns")
    where = options.get("where")
    return SourceOptions(
        directory=_place_of(_needed(options, "uri"), options),
        topic=_needed(options, "topic"),
        start=_place(options, "starting", EARLIEST),
        end=_place(options, "ending", LATEST),
        columns=None if columns is None else _names(columns),
        where=where.strip() if where is not None and where.strip() else None,
        system_columns=_truth(options, "systemColumns", default=False),
        min_partitions=_count(options, "minPartitions"),
        bytes_per_trigger_max=_bytes(options, "maxBytesPerTrigger"),
        fail_on_data_loss=_truth(options, "failOnDataLoss", default=True),
        view=view,
        as_of=_as_of(options.get("asof", "").strip()),
        catalog=_catalog(options.get("catalog", "").strip()),
    )


def _is_view(options: Mapping[str, str]) -> bool:
    kind = options.get("read", "log").lower()
    if kind not in {"log", "view"}:
        raise InvalidRequest(
            f"read={kind} is not known: read=log gives the rows that the log holds, read=view table and tail as one",
            read=kind,
        )
    others = _OF_THE_LOG if kind == "view" else _OF_A_VIEW
    for name in others:
        if name.lower() in options:
            raise InvalidRequest(f"{name} is not for read={kind}", option=name)
    return kind == "view"


def _as_of(text: str) -> Lsn | str | None:
    number = text.lower().removeprefix("lsn:")
    return Lsn(int(number)) if number.isdecimal() else text or None


def _catalog(text: str) -> str | Mapping[str, Any] | None:
    if not text.startswith("{"):
        return text or None
    try:
        properties: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise InvalidRequest(
            "catalog is a name, or pyiceberg's properties as JSON", position=getattr(error, "pos", 0)
        ) from error
    return properties


def _check_names(given: Mapping[str, str]) -> None:
    known = {name.lower() for name in _KNOWN}
    for name in given:
        if name.lower() in _NEVER:
            raise InvalidRequest(_NEVER[name.lower()], option=name)
        if name.lower() == "path":
            raise InvalidRequest('load() takes no path: .option("uri", ...).option("topic", ...).load()', option=name)
        if name.lower() not in known:
            raise InvalidRequest(f"there is no option {name!r}; there are {', '.join(_KNOWN)}", option=name)


def _needed(options: Mapping[str, str], name: str) -> str:
    value = options.get(name, "")
    if not value:
        raise InvalidRequest(f"the option {name!r} is needed", option=name)
    return value


def _place_of(uri: str, options: Mapping[str, str]) -> str:
    """A directory, a bucket, or the address of a server with the files that it is asked with."""
    files = {known: options[name.lower()] for name, known in _OF_A_SERVER.items() if options.get(name.lower())}
    if is_elsewhere(uri):
        for known, path in files.items():
            uri += f"{'&' if '?' in uri else '?'}{known}={quote(path)}"
        return uri
    for name in _OF_A_SERVER:
        if name.lower() in options:
            raise InvalidRequest(f"{name} is for a server, and {uri!r} is none", option=name)
    return _directory(uri)


def _directory(uri: str) -> str:
    if uri.startswith("file:"):
        parts = urlsplit(uri)
        if parts.netloc not in {"", "localhost"}:
            raise InvalidRequest(f"{uri!r} names another machine: a file URI begins with file:///", uri=uri)
        uri = unquote(parts.path)
    elif is_bucket(uri):
        if not uri.startswith("s3://"):
            raise InvalidRequest(f"{uri!r} is neither a directory nor s3://bucket/prefix nor hws://host:port", uri=uri)
        return uri
    return str(Path(uri).expanduser().absolute())


def _place(options: Mapping[str, str], side: str, otherwise: str) -> Where:
    offsets, moment = options.get(f"{side}offsets"), options.get(f"{side}timestamp")
    if offsets is not None and moment is not None:
        raise InvalidRequest(f"{side}Offsets and {side}Timestamp both say where: give one of them")
    if moment is not None:
        return AtTime(_time_us(moment, f"{side}Timestamp"))
    if offsets is None:
        return otherwise
    name = f"{side}Offsets"
    if offsets.lower() in {EARLIEST, LATEST}:
        if side == "ending" and offsets.lower() == EARLIEST:
            raise InvalidRequest("endingOffsets cannot be 'earliest': nothing would be read", option=name)
        return offsets.lower()
    return _offsets(offsets, name)


def _offsets(text: str, name: str) -> Offsets:
    example = f"""{name} is "earliest", "latest", or offsets by partition as JSON, such as {{"0": 12, "1": -2}}"""
    try:
        read = json.loads(text)
        offsets = {int(partition): offset for partition, offset in read.items()}
    except (ValueError, AttributeError) as error:
        raise InvalidRequest(example, given=text[:200]) from error
    for offset in offsets.values():
        if isinstance(offset, bool) or not isinstance(offset, int) or offset < EARLIEST_OFFSET:
            raise InvalidRequest(example, given=text[:200])
    return offsets


def _time_us(text: str, name: str) -> int:
    text = text.strip()
    if text.lstrip("-").isdecimal():
        return int(text) * 1000
    try:
        return time_us_of(datetime.fromisoformat(text))
    except (ValueError, InvalidRequest) as error:
        now = datetime(2026, 11, 14, 10, 41, 7, tzinfo=UTC)
        millis = (now - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
        raise InvalidRequest(
            f"{name} is milliseconds since 1970, such as {millis}, or ISO 8601 with a zone, such as {now.isoformat()}",
            given=text,
        ) from error


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise InvalidRequest("columns names at least one; leave it out for all of them")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidRequest(f"columns names {twice[0]!r} twice", columns=text)
    return names


def _truth(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = options.get(name.lower())
    if value is None:
        return default
    if value.lower() not in {"true", "false"}:
        raise InvalidRequest(f"{name} is true or false", given=value)
    return value.lower() == "true"


def _count(options: Mapping[str, str], name: str) -> int | None:
    value = options.get(name.lower())
    if value is None:
        return None
    if not value.strip().isdecimal() or int(value) < 1:
        raise InvalidRequest(f"{name} is a whole number of at least 1", given=value)
    return int(value)


def _bytes(options: Mapping[str, str], name: str) -> int | None:
    value = options.get(name.lower())
    if value is None:
        return None
    text = value.strip().lower()
    number = text.rstrip("bkmg")
    unit = _UNITS.get(text[len(number) :])
    if unit is None or not number.isdecimal() or int(number) < 1:
        raise InvalidRequest(f"{name} is a number of bytes, such as 67108864 or 64m", given=value)
    return int(number) * unit
