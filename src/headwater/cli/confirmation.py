"""Before something is lost for good: say what, and ask, unless that was answered on the command line."""

from __future__ import annotations

import sys

import typer

from headwater.cli.exit_codes import ExitCode
from headwater.cli.output import remarks, results, say


def decide(lost: str, question: str, *, dry_run: bool, yes: bool, as_json: bool) -> ExitCode | None:
    """Say what would be lost; the exit code if it ends here, nothing if it is to be done."""
    console = remarks() if as_json else results()
    if dry_run:
        say(console, f"{lost}; nothing was changed.")
        return ExitCode.DONE
    if yes:
        return None
    say(console, f"{lost}.")
    if as_json or not sys.stdin.isatty():
        say(remarks(), "Nothing was changed: give --yes, or run it on a terminal, where it asks.", "red")
        return ExitCode.USAGE
    try:
        confirmed = typer.confirm(question, err=True)
    except typer.Abort:
        say(remarks(), "")
        confirmed = False
    if confirmed:
        return None
    say(console, "Nothing was changed.")
    return ExitCode.HALTED
