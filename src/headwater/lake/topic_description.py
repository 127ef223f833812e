"""What a table says of the topic that lands in it, so that a log that is lost can be made again from its lake.

    headwater.topic      the topic: one line of JSON, written by the first landing and by each that finds it changed
    headwater.adopted    which log took the table over from which: one line of JSON, written when that is done

`headwater.topic` is {"format": 1, "topic": {...}}: the fields of the journal's topic by name (docs/formats/journal.md),
bytes in base64, each schema zlib-compressed before that, because some catalogs keep properties short.

READER   A format or a field that is not known here was written by a later version, and is refused as such.
PROMISE  described_topic(describe_topic(topic)) == topic.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from headwater.errors import CorruptData, UnknownFormat
from headwater.lake.mark import PREFIX
from headwater.metadata.operations import TopicRecord

TOPIC = f"{PREFIX}topic"
ADOPTED = f"{PREFIX}adopted"
FORMAT = 1

FOLLOWED = (TOPIC, ADOPTED)
"""Properties that a commit sets where the table does not have them as the shape does."""


class Adoption(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A new log took over a table of a log that was lost."""

    log_id: str
    log_ids_before: tuple[str, ...]
    """The one that it was taken from, then the one that that had taken it from, and so on."""
    lsn_before: int
    lsn_to: int
    at_us: int


class _Described(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    topic: TopicRecord


class _Format(msgspec.Struct, frozen=True):
    format: int


_described = msgspec.json.Decoder(_Described)
_format = msgspec.json.Decoder(_Format)
_adoption = msgspec.json.Decoder(Adoption)


def describe_topic(topic: TopicRecord) -> str:
    packed = replace(topic, schemas=tuple(zlib.compress(schema, 9) for schema in topic.schemas))
    return msgspec.json.encode(_Described(FORMAT, packed)).decode()


def described_topic(value: str, table: str) -> TopicRecord:
    """The topic again; `table` is for the message.  UnknownFormat or CorruptData where this cannot be read."""
    try:
        if _format.decode(value).format != FORMAT:
            raise UnknownFormat(f"what {table!r} says of its topic was written by a later version: use that one")
        topic = _described.decode(value).topic
        return replace(topic, schemas=tuple(zlib.decompress(schema) for schema in topic.schemas))
    except (msgspec.DecodeError, zlib.error) as error:
        raise CorruptData(
            f"what {table!r} says of its topic cannot be read: {error}; roll its properties back", table=table
        ) from error


def adoption_property(adoption: Adoption) -> str:
    return msgspec.json.encode(adoption).decode()


def adoption_of(properties: Mapping[str, str], table: str) -> Adoption | None:
    """Who took the table over last; None where nobody did."""
    value = properties.get(ADOPTED)
    try:
        return _adoption.decode(value) if value is not None else None
    except msgspec.DecodeError as error:
        raise CorruptData(
            f"what {table!r} says of who took it over cannot be read: {error}; roll it back", table=table
        ) from error
