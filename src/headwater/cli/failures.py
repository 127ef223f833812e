"""From what went wrong to an exit code and one line that says what to do: no traceback for what the world did.

A traceback is left for our own mistakes: whatever is neither a HeadwaterError nor an OSError.

InvalidRequest                                  2    change the call
Conflict, Unavailable, OutcomeUnknown, Poisoned 75   try again
CorruptData, Halted                             3    a person decides
OSError: no permission, not a directory         2    change the call
OSError: a store that does not answer           75   try again
OSError: a file has gone, no room, no memory    75   try again
OSError: any other                              3    the disk or its file system failed: a person looks at it
nobody reads the output any more                75   it was not delivered
"""

from __future__ import annotations

import errno
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from headwater.cli.exit_codes import ExitCode
from headwater.cli.output import emit_json, printable, remarks, say
from headwater.errors import (
    Conflict,
    CorruptData,
    Halted,
    HeadwaterError,
    InvalidRequest,
    OutcomeUnknown,
    Poisoned,
    Unavailable,
)
from headwater.storage.objects import StoreUnsure
from headwater.storage.places import is_bucket

CODES: list[tuple[type[HeadwaterError], ExitCode]] = [
    (InvalidRequest, ExitCode.USAGE),
    (Conflict, ExitCode.TRY_AGAIN),
    (Unavailable, ExitCode.TRY_AGAIN),
    (OutcomeUnknown, ExitCode.TRY_AGAIN),
    (Poisoned, ExitCode.TRY_AGAIN),
    (CorruptData, ExitCode.HALTED),
    (Halted, ExitCode.HALTED),
]

_CHANGE_THE_CALL = "give a directory that you may read, and write for a repair"
_RUN_AGAIN = "run the command again"
_PASSING = {
    errno.ENOENT: "a file has gone since the directory was read, its owner is at work; " + _RUN_AGAIN,
    errno.ENOSPC: "make room on the disk, then " + _RUN_AGAIN,
    errno.EDQUOT: "make room in the quota, then " + _RUN_AGAIN,
    errno.ENOMEM: "free some memory, then " + _RUN_AGAIN,
    errno.EMFILE: "raise the limit of open files, then " + _RUN_AGAIN,
    errno.ENFILE: "raise the limit of open files, then " + _RUN_AGAIN,
    errno.EAGAIN: _RUN_AGAIN,
}


def code_of(error: HeadwaterError | OSError) -> ExitCode:
    if isinstance(error, HeadwaterError):
        return next(code for kind, code in CODES if isinstance(error, kind))
    if isinstance(error, PermissionError | NotADirectoryError):
        return ExitCode.USAGE
    if isinstance(error, StoreUnsure):
        return ExitCode.TRY_AGAIN
    return ExitCode.TRY_AGAIN if error.errno in _PASSING else ExitCode.HALTED


def describe(error: HeadwaterError | OSError) -> dict[str, object]:
    """The error as the member `error` of a JSON object."""
    facts: dict[str, object] = {}
    if isinstance(error, HeadwaterError):
        facts = {name: value if isinstance(value, int) else str(value) for name, value in error.facts.items()}
    return {
        "name": type(error).__name__,
        "message": error.message if isinstance(error, HeadwaterError) else _os_message(error),
        "facts": facts,
        "exit_code": int(code_of(error)),
    }


def tell(error: HeadwaterError | OSError) -> None:
    """One line on stderr: what, and what to do."""
    text = str(error) if isinstance(error, HeadwaterError) else _os_message(error)
    say(remarks(), f"{type(error).__name__}: {printable(text)}", "red")


@contextmanager
def exit_codes(*, as_json: bool, command: str) -> Iterator[None]:
    """Around a command: an error ends it with its code and a line; with `--json` also with an object."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise _nobody_reads() from None
    except (HeadwaterError, OSError) as error:
        tell(error)
        if as_json:
            emit_json(command, {"error": describe(error)})
        raise typer.Exit(code_of(error)) from error


def _os_message(error: OSError) -> str:
    name = f"{error.filename}: " if error.filename else ""
    if isinstance(error, PermissionError) and is_bucket(name):
        # What the store refuses says what to do by itself.
        return f"{name}{error.strerror or error}"
    if isinstance(error, StoreUnsure):
        do = "the store did not answer: " + _RUN_AGAIN
    elif isinstance(error, PermissionError | NotADirectoryError):
        do = _CHANGE_THE_CALL
    else:
        do = _PASSING.get(error.errno or 0, "look at the disk and its file system, and at the system's log")
    return f"{name}{error.strerror or error}; {do}"


def _nobody_reads() -> typer.Exit:
    # What is still buffered can go nowhere; the interpreter would complain when it flushes it at its end.
    sys.stdout = io.StringIO()
    return typer.Exit(ExitCode.TRY_AGAIN)
