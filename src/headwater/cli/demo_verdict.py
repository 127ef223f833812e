"""How a run of `headwater demo` ended: PASS with its counts, or FAIL with what is wrong and the seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.cli.output import counted, printable, results, say, say_in_colour
from headwater.cli.plain_table import Column, print_table

if TYPE_CHECKING:
    from headwater.demo.spark_told import Beside
    from headwater.demo.told import Outcome

_INDENT = "      "
FINDINGS_SHOWN = 12


def show_outcome(outcome: Outcome) -> None:
    """The last word of a run."""
    console = results()
    style = "bold green" if outcome.passed else "bold red"
    word = "PASS" if outcome.passed else "FAIL"
    say_in_colour(
        console,
        (word, style),
        f"  seed {outcome.seed}: {_steps(outcome)} in {outcome.seconds:.1f} s",
    )
    for line in _lines(outcome):
        say(console, printable(line), first=_INDENT, indent=_INDENT)
    for finding in outcome.findings[:FINDINGS_SHOWN]:
        say(console, printable(finding), "red", first=_INDENT, indent=_INDENT)
    if len(outcome.findings) > FINDINGS_SHOWN:
        say(console, f"... and {len(outcome.findings) - FINDINGS_SHOWN} more", "red", first=_INDENT)
    if outcome.directory:
        say(console, f"all of it is in {printable(outcome.directory)}", first=_INDENT, indent=_INDENT)
    say(
        console,
        f"the same steps again: headwater demo chaos --seed {outcome.seed} --steps {outcome.steps}",
        "dim",
        first=_INDENT,
    )


def _lines(outcome: Outcome) -> list[str]:
    counts = outcome.counts
    rows = f"{counted(outcome.acknowledged, 'row')} acknowledged"
    if outcome.judged:
        rows += f", {outcome.in_tables:,} in the tables: lost {outcome.lost:,}, doubled {outcome.doubled:,}, "
        rows += f"altered {outcome.altered:,}, never sent {outcome.never_sent:,}"
    lines = [
        rows,
        f"{counted(counts.kills, 'kill -9').replace('9s', '9')}: {counted(counts.lander_kills, 'lander')}, "
        f"the log's owner {_times(counts.owner_kills)}, {counted(counts.writer_kills, 'writer')}; "
        f"{counted(counts.sent_again, 'request')} sent again, and applied once",
        f"{counted(counts.landings, 'landing')}; {counted(counts.races, 'race')} of three, "
        f"{_times(counts.races_lost)} another was faster; "
        f"{counted(counts.late_commits_refused, 'late commit')} refused",
        f"by others: {counted(counts.compactions, 'compaction')}, {_expiries(counts.expiries)}, "
        f"{counted(counts.rollbacks, 'rollback')}; {counted(counts.halts, 'halt')} by name, each resolved as "
        "docs/landing.md says",
        f"audit: {outcome.audit}",
    ]
    if outcome.damage_found:
        lines.append(f"damage done by hand, behind all that, was named: {'; '.join(outcome.damage_found)}")
    return lines


def _steps(outcome: Outcome) -> str:
    if outcome.steps_taken == outcome.steps:
        return counted(outcome.steps, "step")
    return f"failed in step {outcome.steps_taken + 1} of {outcome.steps},"


def _times(count: int) -> str:
    return "once" if count == 1 else "twice" if count == 2 else f"{count:,} times"


def _expiries(count: int) -> str:
    return "1 expiry" if count == 1 else f"{count:,} expiries"


def show_beside(outcome: Outcome, beside: Beside) -> None:
    """Both sides, step by step, and their sums."""
    console = results()
    say(console, "")
    columns = [
        Column("STEP"),
        Column("HEADWATER"),
        Column("ICEBERG'S SPARK SINK"),
    ]
    rows = [[each.step, each.headwater, each.spark] for each in beside.steps]
    rows.append(
        [
            "in all",
            f"lost {outcome.lost:,}, doubled {outcome.doubled:,} of {outcome.acknowledged:,}",
            f"lost {beside.lost:,}, doubled {beside.doubled:,} of {beside.written:,}",
        ]
    )
    print_table(console, columns, [[printable(cell) for cell in row] for row in rows])
    say(
        console,
        f"Spark {beside.spark_version}, {beside.iceberg}: {beside.seconds:.1f} s. docs/demo.md says what each step "
        "does on both sides.",
        "dim",
    )
