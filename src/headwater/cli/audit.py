"""`headwater audit [TOPIC...]`: compare tables with what landed in them, and name the rows that differ.

PASS     Every row that a table owes is in it once, unchanged: by the log, or by the ledger where the log has forgotten.
LITTLE   Without --full only what has changed since the last audit that passed is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.data_directory import AsJson, CatalogOption, DataOption, open_topics
from headwater.cli.exit_codes import ExitCode
from headwater.cli.failures import exit_codes
from headwater.cli.land import Topics
from headwater.cli.output import counted, emit_json, printable, remarks, results, say, say_in_colour
from headwater.cli.spark_option import SparkConnect, SparkMaster, spark_session
from headwater.cli.topic_lookup import topic_named

if TYPE_CHECKING:
    from headwater.lake.audit_report import AuditReport, TopicAudit

COMMAND = "audit"

Full = Annotated[bool, typer.Option("--full", help="Read every row again, not only what has changed since.")]


def audit(
    topics: Topics = None,
    data: DataOption = None,
    catalog: CatalogOption = None,
    full: Full = False,
    spark: SparkMaster = None,
    connect: SparkConnect = None,
    as_json: AsJson = False,
) -> None:
    """Audit tables: is every row that has landed there, once, and unchanged? What differs is named by its offset.

    The log is the witness for what it still has, the ledger for the rest. Without --full it reads only what has changed
    since the last audit that passed.

    Exit code 0: PASS. 1: FAIL, rows or files differ. 2: another call is needed. 3: a table could not be audited, a
    person decides (docs/audit.md). 75: a table could not be looked at this time; try again.
    """
    with (
        exit_codes(as_json=as_json, command=COMMAND),
        open_topics(data, catalog=catalog) as log,
        spark_session(spark, connect, log.spark_config) as session,
    ):
        for name in topics or []:
            topic_named(log, name)
        report = log.audit(topics or None, full=full, spark=session)
        if as_json:
            emit_json(COMMAND, report.to_json())
        else:
            show(report)
        outcome = exit_code(report)
    raise typer.Exit(outcome)


def exit_code(report: AuditReport) -> ExitCode:
    """What a script is told."""
    if report.halted:
        return ExitCode.HALTED
    if any(not topic.passed and not topic.cause for topic in report):
        return ExitCode.FAIL
    return ExitCode.TRY_AGAIN if report.unavailable else ExitCode.DONE


def show(report: AuditReport) -> None:
    """A line a topic, and below it what is wrong."""
    for topic in report:
        style = "green" if topic.passed else "red"
        verdict = "PASS" if topic.passed else "HALTED" if topic in report.halted else "FAIL"
        say_in_colour(results(), (verdict, style), f"  {printable(_line(topic))}")
        for told in topic.told():
            say(results(), printable(told), first="  ", indent="    ")
        for note in _notes(topic):
            say(remarks(), f"{topic.topic}: {printable(note)}", "yellow")
    if not report.topics:
        say(remarks(), "no topic has a table", "dim")
        return
    passed = sum(topic.passed for topic in report)
    say(remarks(), f"{passed} of {counted(len(report.topics), 'topic')} passed in {report.seconds:.1f} s", "dim")


def _line(topic: TopicAudit) -> str:
    """The topic in one line."""
    parts = [f"{topic.rows:,} of {counted(topic.owed, 'row')} in {topic.table}"]
    if topic.lsn_to:
        parts.append(f"up to LSN {topic.lsn_to}")
    parts.append("all read" if topic.full else f"{topic.checked:,} read, the others unchanged since they passed")
    if topic.erased:
        parts.append(f"{topic.erased:,} erased by their owner")
    if topic.unmarked:
        parts.append(f"{topic.unmarked:,} beside them not the log's")
    if topic.rejected:
        redriven = f" - {topic.redriven:,} of them corrected" if topic.redriven else ""
        parts.append(f"{topic.accepted:,} accepted + {topic.rejected:,} rejected{redriven} = {topic.sent:,} sent")
    if topic.state is not None:
        parts.append(
            f"{counted(topic.state.rows, 'key')} in {topic.state.table}, merged up to {topic.state.merged_lsn}"
        )
    return f"{topic.topic}: " + ", ".join(parts)


def _notes(topic: TopicAudit) -> list[str]:
    notes = list(topic.notes)
    if topic.dropped_columns:
        notes.append(
            f"dropped by the table's owner: {', '.join(topic.dropped_columns)}; of landings that had them, offsets and "
            "counts were compared"
        )
    if topic.state is not None and topic.state.since_lsn:
        notes.append(
            f"changes up to lsn {topic.state.since_lsn} are past their retention: rows of {topic.state.table} that "
            "they made were not compared"
        )
    return notes
