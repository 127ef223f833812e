"""What can go wrong, sorted by what the caller should do next.

HeadwaterError
├── InvalidRequest      change the call
│   ├── TooLarge        split it: a frame, a write or a request is above its stated limit
│   └── Closed          this handle was closed, or belongs to the process that forked this one
├── Conflict            somebody else won: read again, then decide
│   ├── LogLocked       another process owns the log; the message names it
│   ├── Forgotten       the log has let go of these LSNs: read them from the table
│   └── PinExpired      what the pin was to hold has been forgotten already
├── Unavailable         retry with back-off; nothing was acknowledged, and nothing refused will appear
├── OutcomeUnknown      it may have happened: retry with the same sequence number
├── CorruptData         stored bytes are wrong: run `headwater log verify`
├── Halted              nothing was guessed: a person decides; the message names the command
│   ├── DamagedLog      bytes that were durable cannot be read back
│   ├── LostSegment     an LSN at or above the log's start is in no segment
│   ├── DuplicateLsn    two segments claim one LSN
│   ├── ForeignLog      files of two logs in one directory
│   └── UnknownFormat   written by a version that this one does not understand
└── Poisoned            this open log promises nothing any more: close it and open it again

A new class exists only where a caller would act differently.  Facts are keywords:
they stand in the message, and in `facts` for programs.
"""

from __future__ import annotations


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


class Closed(InvalidRequest):
    """This handle is closed here."""


class Conflict(HeadwaterError):
    """Somebody else won: read again, then decide."""


class LogLocked(Conflict):
    """Another process owns the log."""


class Forgotten(Conflict):
    """The log has let go of what was asked for."""


class PinExpired(Conflict):
    """What the pin was to hold is gone already."""


class Unavailable(HeadwaterError):
    """Nothing was acknowledged and nothing of it will appear: retry with back-off."""


class OutcomeUnknown(HeadwaterError):
    """It may or may not have happened: retry with the same sequence number."""


class CorruptData(HeadwaterError):
    """Stored bytes are wrong."""


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


class UnknownFormat(Halted):
    """Written by a version that this one does not understand."""


class Poisoned(HeadwaterError):
    """After a failed sync nothing may be promised: close the log and open it again."""
