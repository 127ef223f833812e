"""What to do next about a landing that has halted, by its cause, in a line and a command; docs/landing.md says more."""

from __future__ import annotations

import shlex
from typing import NamedTuple


class NextStep(NamedTuple):
    text: str
    command: str = ""


_STEPS: dict[str, NextStep] = {
    "gap": NextStep(
        "The table has less than has landed: it was rolled back, replaced, truncated or dropped. If that was an "
        "accident, undo it in the catalog, and landing goes on by itself. If it was meant, land again what it lacks:",
        "headwater land {topic} --after-rollback {topic} --data {data}",
    ),
    "mark-unproven": NextStep(
        "Nothing in the table shows how far it has landed. Compare max(_hw_lsn) of the table with the ledger, then say "
        "up to which LSN it holds everything:",
        "headwater land {topic} --landed-lsn {topic}=LSN --data {data}",
    ),
    "foreign-mark": NextStep(
        "The table holds landings of another log, or of an earlier topic of this name. Give the topic a table of its "
        "own: two logs cannot land in one."
    ),
    "schema": NextStep(
        "A column of the table cannot take the topic's. ALTER TABLE so that it can, or name another table; landing "
        "then goes on by itself. Rows that have landed are not in doubt."
    ),
    "spec": NextStep(
        "The table is partitioned in a way that is not written here. ALTER TABLE ... DROP PARTITION FIELD, or name "
        "another table."
    ),
    "format-version": NextStep("Only Iceberg format version 2 is written: name another table, or make this one anew."),
    "verification": NextStep(
        "What was read back is not what landed. If a file is lost, roll the table back to before that landing, then "
        "have it landed again: the log still holds its rows.",
        "headwater land {topic} --after-rollback {topic} --data {data}",
    ),
    "log-behind": NextStep(
        "The table holds rows that this log does not know: an older copy of the log was put back. Put the newer one "
        "back. If it is lost, name a new table for what comes."
    ),
    "catalog": NextStep(
        "The catalog was seen not to keep a condition, and two landers could both win. Land nothing there until this "
        "passes:",
        "headwater check --catalog --data {data}",
    ),
}
_ANY = NextStep("Look at what the message says, then land again: every round looks anew.", "headwater land {topic}")


def next_step(cause: str, topic: str, data: str | None) -> NextStep:
    """`data` is where the log lies, if whoever asks may know that."""
    found = _STEPS.get(cause, _ANY)
    where = shlex.quote(data) if data is not None else "DATA"
    return NextStep(found.text, found.command.format(topic=shlex.quote(topic), data=where))
