"""What can go wrong, sorted by what the caller should do next.

HeadwaterError
├── InvalidRequest      change the call
│   ├── TooLarge        split it: a frame, a write or a request is above its stated limit
│   ├── RowsRefused     rows that do not fit the topic's schema, each by number and reason
│   ├── UnknownTopic    there is no topic of this name
│   ├── UnknownPartition  the topic has no partition of this number
│   ├── Unauthenticated a server does not know who is asking: give a token, or a certificate
│   ├── NotAllowed      a server knows who is asking, and this principal may not do this
│   └── Closed          this handle was closed, or belongs to the process that forked this one
├── Conflict            somebody else won: read again, then decide
│   ├── LogLocked       another process owns the log; the message names it, and what to do
│   ├── TopicExists     a topic of this name is there, and it is another one than was asked for
│   ├── RowsUnlanded    the topic's table does not hold all its rows yet
│   ├── Fenced          a later owner has begun: of this producer, of a group's partition, of this log in a bucket
│   ├── OffsetMismatch  `expect_offset` is not the partition's next offset
│   ├── OutOfSequence   a producer's request came before the one that should precede it
│   ├── Duplicate       it was applied, and its answer is no longer remembered
│   ├── UnknownProducer the producer was never registered, or was forgotten after a week without a request
│   ├── Forgotten       the log has let go of these LSNs: read them from the table
│   ├── PinExpired      what the pin was to hold has been forgotten already
│   └── CutExpired      the rows of this cut can no longer all be had: take a new cut
├── Unavailable         retry with back-off; nothing was acknowledged, and nothing refused will appear
│   └── CheckpointFailed  a checkpoint was not made; `stage` names the step that failed, and the older ones stand
├── OutcomeUnknown      it may have happened: retry with the same sequence number
├── CorruptData         stored bytes are wrong: run `headwater log verify`
│   └── AuditFailed     a table does not hold what landed in it: the report names the rows
├── Halted              nothing was guessed: a person decides; the message names the command
│   ├── DamagedLog      bytes that were durable cannot be read back
│   ├── LostSegment     an LSN at or above the log's start is in no segment
│   ├── DuplicateLsn    two segments claim one LSN
│   ├── ForeignLog      files of two logs in one directory
│   ├── CheckpointLost  no checkpoint can be read that the log or the journal still continues
│   ├── MetadataBehindLog  the log names a topic that the journal does not know
│   ├── OperationRefused   an operation of the journal does not apply to the state before it
│   ├── LandingHalted   one topic's table cannot be landed into without a person: `cause` names why
│   └── UnknownFormat   written by a version that this one does not understand
└── Poisoned            this open log promises nothing any more: close it and open it again

A new class exists only where a caller would act differently.  Facts are keywords:
they stand in the message, and in `facts` for programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class HeadwaterError(Exception):
    """The root: everything Headwater raises on purpose."""

    def __init__(self, message: str, **facts: object) -> None:
        self.message = message
        self.facts = facts
        details = ", ".join(f"{name}={value}" for name, value in facts.items())
        super().__init__(f"{message} ({details})" if details else message)


class InvalidRequest(HeadwaterError):
    """The call is wrong: change it."""


class TooLarge(InvalidRequest):
    """Above a stated limit, found before anything was written."""


@dataclass(frozen=True)
class RefusedRow:
    """A row that does not fit, by its number in the request (from 0) and the reason."""

    number: int
    reason: str


class RowsRefused(InvalidRequest):
    """Rows that do not fit the topic's schema: nothing of the request was appended."""

    def __init__(self, topic: str, refused: Sequence[RefusedRow], rows: int, count: int | None = None) -> None:
        self.topic = topic
        self.rows = rows
        self.refused = tuple(refused)
        """By number, the first of them; `refused_count` counts all."""
        self.refused_count = len(self.refused) if count is None else count
        shown = "; ".join(f"row {row.number}: {row.reason}" for row in self.refused[:3])
        more = f"; and {self.refused_count - 3} more" if self.refused_count > 3 else ""
        super().__init__(
            f"{self.refused_count} of {rows} rows do not fit the schema of {topic!r}, and nothing was appended: "
            f"{shown}{more}"
        )


class UnknownTopic(InvalidRequest):
    """There is no topic of this name."""


class UnknownPartition(InvalidRequest):
    """The topic has no partition of this number."""


class Unauthenticated(InvalidRequest):
    """The server does not know who is asking."""


class NotAllowed(InvalidRequest):
    """Who is asking may not do this."""


class Closed(InvalidRequest):
    """This handle is closed here."""


class Conflict(HeadwaterError):
    """Somebody else won: read again, then decide."""


class LogLocked(Conflict):
    """Another process owns the log."""


class TopicExists(Conflict):
    """A topic of this name is there, and it is another one than was asked for."""


class RowsUnlanded(Conflict):
    """The topic's table does not hold all its rows yet."""


class Fenced(Conflict):
    """A later owner has begun: this one may not go on.  Close it, and open it again if it should go on here."""


class OffsetMismatch(Conflict):
    """The partition's next offset is not the one that was expected."""


class OutOfSequence(Conflict):
    """A request before this one is missing."""


class Duplicate(Conflict):
    """It was applied already, and its answer is no longer remembered."""


class UnknownProducer(Conflict):
    """The producer is not registered, or no longer."""


class Forgotten(Conflict):
    """The log has let go of what was asked for."""


class PinExpired(Conflict):
    """What the pin was to hold is gone already."""


class CutExpired(Conflict):
    """The rows of a cut can no longer all be had."""


class Unavailable(HeadwaterError):
    """Nothing was acknowledged and nothing of it will appear: retry with back-off."""


class CheckpointFailed(Unavailable):
    """A checkpoint was not made; the fact `stage` names the step that failed."""


class OutcomeUnknown(HeadwaterError):
    """It may or may not have happened: retry with the same sequence number."""


class CorruptData(HeadwaterError):
    """Stored bytes are wrong."""


class AuditFailed(CorruptData):
    """An audit found rows that are missing, too many, or changed."""


class Halted(HeadwaterError):
    """Nothing was guessed: a person decides."""


class DamagedLog(Halted):
    """Bytes that were durable cannot be read back."""


class LostSegment(Halted):
    """An LSN at or above the log's start is in no segment."""


class DuplicateLsn(Halted):
    """Two segments claim one LSN."""


class ForeignLog(Halted):
    """Files of two logs in one directory."""


class CheckpointLost(Halted):
    """No checkpoint can be read that the log or the journal still continues."""


class MetadataBehindLog(Halted):
    """The log names a topic that the journal does not know."""


class OperationRefused(Halted):
    """An operation of the journal does not apply to the state before it."""


class LandingHalted(Halted):
    """One topic's landing needs a person: `cause` is one of the words of docs/landing.md, and says what to do."""

    def __init__(self, cause: str, message: str, **facts: object) -> None:
        self.cause = cause
        super().__init__(message, cause=cause, **facts)


class UnknownFormat(Halted):
    """Written by a version that this one does not understand."""


class Poisoned(HeadwaterError):
    """After a failed sync nothing may be promised: close the log and open it again."""
