"""The records of the ledger: one LEDGER frame each, a msgpack map with the tag "is" (docs/formats/ledger.md).

The ledger decides nothing that the table decides.  It says what was meant, so that upkeep knows in-flight files; what
landed, with digests, so that it can be verified and audited later; and what was verified, so that the log may forget.
A map with a field that is not known here is refused.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from headwater.errors import CorruptData
from headwater.lake.work import Column, Digest

Verification = Literal["read-back", "metadata"]


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="is", kw_only=True):
    at_us: int


class Begun(_Record, frozen=True, tag="begun"):
    """A lander begins: files under this commit-id are in flight."""

    topic_id: str
    table: str
    epoch: int
    commit_id: str


class Intended(_Record, frozen=True, tag="intended"):
    """The files are written and the commit is about to be sent."""

    topic_id: str
    table: str
    commit_id: str
    base: int | None
    lsn_from: int
    lsn_to: int
    files: tuple[str, ...]


class Landed(_Record, frozen=True, tag="landed"):
    """A landing is in the table."""

    topic_id: str
    topic: str
    table: str
    table_uuid: str
    commit_id: str
    snapshot: int
    lsn_from: int
    lsn_to: int
    rows: int
    digest: Digest | None
    """By block; none where the landing was adopted and only its total is known."""
    total: str
    """16 hex digits, as in the mark."""
    columns: tuple[Column, ...]
    """What was written, by field id; names and types are empty where the landing was adopted."""
    max_row_lsn: int
    epoch: int
    adopted: bool = False
    """Found in the table rather than acknowledged by its commit."""
    offsets: tuple[tuple[int, int, int], ...] = ()
    """(partition, first offset, last offset) of its rows; empty where that is not known, as in an adopted one."""


class Verified(_Record, frozen=True, tag="verified"):
    """A landing was read through a new connection and is what the ledger says: the log may forget up to `lsn_to`."""

    topic_id: str
    table: str
    commit_id: str
    snapshot: int
    lsn_to: int
    mode: Verification


class HaltedLanding(_Record, frozen=True, tag="halted"):
    """A topic's landing needs a person."""

    topic_id: str
    table: str
    cause: str
    message: str


class Ended(_Record, frozen=True, tag="ended"):
    """An attempt is over without a landing of its own; its files, if any, are orphans, unless `why` is "unknown"."""

    topic_id: str
    table: str
    commit_id: str
    why: str


class Decided(_Record, frozen=True, tag="decided"):
    """What a person decided at a halt: the only way in which a landed LSN falls."""

    topic_id: str
    table: str
    act: Literal["after-rollback", "landed-lsn"]
    lsn: int
    lsn_before: int
    table_uuid: str = ""
    """The table that it was decided for."""


class CheckedCatalog(_Record, frozen=True, tag="checked-catalog"):
    """Whether conditional commits of a catalog were seen to hold."""

    catalog: str
    passed: bool
    properties: dict[str, bool]


class Merged(_Record, frozen=True, tag="merged"):
    """A keyed topic's state table was brought up to an LSN."""

    topic_id: str
    table: str
    commit_id: str
    snapshot: int
    lsn_from: int
    lsn_to: int


class Kept(_Record, frozen=True, tag="kept"):
    """Upkeep of a table: what was done, or what was found that others did."""

    table: str
    what: str
    detail: str = ""


class ErasedPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Rows that an erasure took out, of landings that wrote these columns."""

    columns: tuple[Column, ...]
    digest: Digest
    """What is to be subtracted from what landed."""


class Erased(_Record, frozen=True, tag="erased"):
    """The receipt of an erasure: which rows are gone by their owner's wish.  It holds no value of any row."""

    topic_id: str
    topic: str
    table: str
    erasure_id: str
    reason: str
    condition_hash: str
    """SHA-256 of the condition, which may itself hold what is to be forgotten."""
    lsn_to: int
    """It looked at rows up to this LSN."""
    rows: int
    offsets: tuple[tuple[int, int, int], ...]
    """(partition, first offset, last offset) of runs of rows that are gone."""
    parts: tuple[ErasedPart, ...]
    done: tuple[str, ...] = ()
    """Where they are gone from: "log", "table", "changes", "state", "snapshots"."""


class Audited(_Record, frozen=True, tag="audited"):
    """An audit of a topic against its table."""

    topic_id: str
    table: str
    table_uuid: str
    snapshot: int | None
    """The table's head that was audited."""
    lsn_to: int
    """Rows up to this LSN were."""
    rows: int
    full: bool
    passed: bool
    differences: int = 0
    state_snapshot: int | None = None


class Restored(_Record, frozen=True, tag="restored"):
    """A new log took over a table of a log that was lost: the recorded act by which its landed LSN is believed."""

    topic_id: str
    topic: str
    table: str
    table_uuid: str
    log_id_before: str
    snapshot: int
    lsn_before: int
    """The table held rows of the lost log up to here."""
    lsn_to: int
    """The LSN before the new log's first."""
    rows: int
    digest: Digest | None
    columns: tuple[Column, ...]
    offsets: tuple[tuple[int, int, int], ...] = ()
    max_row_lsn: int = 0


LedgerRecord = (
    Begun
    | Intended
    | Landed
    | Verified
    | HaltedLanding
    | Ended
    | Decided
    | CheckedCatalog
    | Merged
    | Kept
    | Erased
    | Audited
    | Restored
)

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[LedgerRecord] = msgspec.msgpack.Decoder(LedgerRecord)


def pack_ledger_record(record: LedgerRecord) -> bytes:
    return _ENCODER.encode(record)


def unpack_ledger_record(body: memoryview | bytes) -> LedgerRecord:
    try:
        return _DECODER.decode(body)
    except msgspec.DecodeError as error:
        # Its checksum holds, so these are the bytes that were written.
        raise CorruptData(
            f"a record of the ledger that cannot be read: {error}; a later version may have written it: use that one, "
            "or look at it with `headwater log dump`"
        ) from error
