"""A cut: one point of a log at which topics are read, again and again, with the same rows.

It is an LSN at the end of a write, so that a transaction is in it whole or not at all, and for each topic the snapshots
that held the landed part when the cut was taken.  `str(cut)` is a token: "hwcut1." and base64url of its msgpack with
four bytes of CRC-32C before it.  Tokens are compared, stored and sent as text.

PROMISE  Cut.parse(str(cut)) == cut; a token that was changed is refused.
NOT HERE What a cut shows: view_plan.py.
"""

from __future__ import annotations

import base64
import binascii

import msgspec

from headwater.errors import InvalidRequest
from headwater.frames.checksum import crc32c

PREFIX = "hwcut1."


class TopicCut(msgspec.Struct, frozen=True, array_like=True):
    """One topic in a cut."""

    topic_id: str
    snapshot: int | None = None
    """Of the table that the topic's rows land in; none: nothing had landed."""
    landed_lsn: int = 0
    """What that snapshot holds."""
    state_snapshot: int | None = None
    """Of a keyed topic's state table, if it was merged."""
    merged_lsn: int = 0
    log_rows: int = -1
    """Of a topic without a table: how many rows the log held up to the cut, by which it is known later whether it
    still does; -1: not counted."""


class _Packed(msgspec.Struct, frozen=True, array_like=True):
    log_id: str
    lsn: int
    time_us: int
    topics: tuple[TopicCut, ...]


class Cut:
    """A point at which topics are read."""

    __slots__ = ("_packed",)

    def __init__(self, log_id: str, lsn: int, time_us: int, topics: tuple[TopicCut, ...]) -> None:
        self._packed = _Packed(log_id, lsn, time_us, tuple(sorted(topics, key=lambda each: each.topic_id)))

    @property
    def log_id(self) -> str:
        """Of which log it is a point."""
        return self._packed.log_id

    @property
    def lsn(self) -> int:
        """Rows up to this LSN are in it; always the end of a write."""
        return self._packed.lsn

    @property
    def time_us(self) -> int:
        """When it was taken."""
        return self._packed.time_us

    @property
    def topics(self) -> tuple[TopicCut, ...]:
        """The topics that it names, with the snapshot of each one's table."""
        return self._packed.topics

    def topic(self, topic_id: str) -> TopicCut:
        """What it says of a topic; InvalidRequest where the topic is not in it."""
        for each in self.topics:
            if each.topic_id == topic_id:
                return each
        raise InvalidRequest("the topic is not in this cut: take one that names it", topic_id=topic_id)

    @classmethod
    def parse(cls, token: str) -> Cut:
        """The cut of a token, `str(cut)`; InvalidRequest where it is none, or was changed."""
        if not token.startswith(PREFIX):
            raise InvalidRequest(f"{token[:80]!r} is no cut: a token begins with {PREFIX}")
        try:
            body = base64.urlsafe_b64decode(token[len(PREFIX) :].encode("ascii"))
            if len(body) < 4 or crc32c(body[4:]).to_bytes(4, "little") != body[:4]:
                raise InvalidRequest("the token of a cut was changed or cut short", token=token[:80])
            packed = _DECODER.decode(body[4:])
        except (binascii.Error, UnicodeEncodeError, msgspec.DecodeError) as error:
            raise InvalidRequest("the token of a cut cannot be read", token=token[:80]) from error
        cut = cls(packed.log_id, packed.lsn, packed.time_us, packed.topics)
        if str(cut) != token:
            # Base64 passes over characters that are none of its own, and over bits that stand for nothing.
            raise InvalidRequest("the token of a cut was changed", token=token[:80])
        return cut

    def __str__(self) -> str:
        body = msgspec.msgpack.encode(self._packed)
        return PREFIX + base64.urlsafe_b64encode(crc32c(body).to_bytes(4, "little") + body).decode("ascii")

    def __repr__(self) -> str:
        return f"Cut(lsn={self.lsn}, topics={len(self.topics)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cut) and self._packed == other._packed

    def __hash__(self) -> int:
        return hash(self._packed)


_DECODER: msgspec.msgpack.Decoder[_Packed] = msgspec.msgpack.Decoder(_Packed)
