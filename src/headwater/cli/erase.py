"""`headwater erase TOPIC --where CONDITION --reason TEXT`: take rows out of log, tables and old snapshots, for good.

PROMISE  It says how many rows would go, and asks, before anything is touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.completion import topic_names
from headwater.cli.confirmation import decide
from headwater.cli.data_directory import AsJson, CatalogOption, DataOption, TakeOver, open_topics
from headwater.cli.exit_codes import ExitCode
from headwater.cli.failures import exit_codes
from headwater.cli.output import counted, emit_json, printable, remarks, results, say
from headwater.cli.spark_option import SparkConnect, SparkMaster, spark_session
from headwater.cli.topic_lookup import topic_named

if TYPE_CHECKING:
    from headwater.lake.erasure_report import ErasureReport

COMMAND = "erase"

Name = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False, autocompletion=topic_names)
]
Where = Annotated[
    str,
    typer.Option(
        "--where",
        metavar="CONDITION",
        help="Which rows: \"email = 'a@b.c'\". Of a keyed topic, a condition on its key.",
        show_default=False,
    ),
]
Reason = Annotated[
    str,
    typer.Option("--reason", metavar="TEXT", help="Why; the receipt in the ledger keeps it.", show_default=False),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say how many rows would go, and change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it without asking.")]


def erase(
    topic: Name,
    where: Where,
    reason: Reason,
    data: DataOption = None,
    catalog: CatalogOption = None,
    spark: SparkMaster = None,
    connect: SparkConnect = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    take_over: TakeOver = False,
    as_json: AsJson = False,
) -> None:
    """Erase rows, for good: from the log, the table, its older snapshots and their files. A receipt stays.

    Copies that others made are theirs to erase: backups, tables filled from this one, exports.

    Exit code 0: they are gone, or there were none. 2: it was not confirmed, or another call is needed. 3: you said no,
    or the topic's landing is halted. 75: not all could be erased yet, and it says why; run it again.
    """
    with (
        exit_codes(as_json=as_json, command=COMMAND),
        open_topics(data, catalog=catalog, take_over=take_over) as log,
        spark_session(spark, connect, log.spark_config) as session,
    ):
        topic_named(log, topic)
        found = log.erase(topic, where, reason=reason, dry_run=True)
        outcome = _decide(found, dry_run=dry_run, yes=yes, as_json=as_json)
        report = found if outcome is not None else log.erase(topic, where, reason=reason, spark=session)
        if as_json:
            emit_json(COMMAND, as_content(report))
        elif outcome is None:
            _show(report)
        if outcome is None:
            outcome = ExitCode.TRY_AGAIN if report.outcome == "incomplete" else ExitCode.DONE
    raise typer.Exit(outcome)


def as_content(report: ErasureReport) -> dict[str, object]:
    """What was done, for programs."""
    return {
        "topic": report.topic,
        "outcome": report.outcome,
        "erasure_id": report.erasure_id,
        "rows": report.rows,
        "offsets": [list(run) for run in report.offsets],
        "lsn_to": report.lsn_to,
        "rewritten_files": report.rewritten_files,
        "expired_snapshots": report.expired_snapshots,
        "removed_files": report.removed_files,
        "segments": list(report.segments),
        "finished": list(report.finished),
        "left": list(report.left),
    }


def _decide(found: ErasureReport, *, dry_run: bool, yes: bool, as_json: bool) -> ExitCode | None:
    lost = f"{found.topic}: {counted(found.rows, 'row')} would be erased"
    return decide(lost, "Erase them, for good?", dry_run=dry_run, yes=yes, as_json=as_json)


def _show(report: ErasureReport) -> None:
    if report.outcome == "nothing":
        say(results(), f"{report.topic}: no row to erase.")
        return
    made = f"{counted(report.rewritten_files, 'data file')} and {counted(len(report.segments), 'segment')} made again"
    gone = f"{counted(report.expired_snapshots, 'snapshot')} and {counted(report.removed_files, 'file')} removed"
    say(results(), printable(f"{report.topic}: {counted(report.rows, 'row')} erased; {made}, {gone}."))
    if report.erasure_id:
        say(results(), f"receipt {report.erasure_id} is in the ledger")
    for each in report.finished:
        say(results(), f"an erasure that had not been finished is now: {each}")
    for left in report.left:
        say(remarks(), f"not yet: {printable(left)}", "yellow")
