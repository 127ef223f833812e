"""What a command's exit code tells a script."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    DONE = 0
    """Done, or there was nothing to do."""
    FAIL = 1
    """A check found something: `log verify` with findings."""
    USAGE = 2
    """Another call is needed: a wrong argument, no such directory, no confirmation."""
    HALTED = 3
    """Nothing was guessed: a person decides."""
    TRY_AGAIN = 75
    """Nothing was done; the same call may succeed later."""
    INTERRUPTED = 130
    """Ctrl-C ended it before its end, as shells write it; what it said was done is done."""
