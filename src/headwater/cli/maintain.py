"""`headwater maintain [TOPIC...]`: look after the tables, and bring those of keyed topics up to their changes.

SPARK    Merges and compaction are made by Spark: without --spark or --connect they are left, and that is said.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.data_directory import AsJson, CatalogOption, DataOption, open_topics
from headwater.cli.exit_codes import ExitCode
from headwater.cli.failures import exit_codes
from headwater.cli.land import Topics
from headwater.cli.output import emit_json, printable, remarks, results, say
from headwater.cli.spark_option import SparkConnect, SparkMaster, spark_session
from headwater.cli.topic_lookup import topic_named

if TYPE_CHECKING:
    from headwater.api import Log
    from headwater.lake.care import TableUpkeep
    from headwater.lake.maintenance import MaintenanceReport
    from headwater.spark.merge import TopicMerge

COMMAND = "maintain"


class Mode(StrEnum):
    COPY_ON_WRITE = "copy-on-write"
    MERGE_ON_READ = "merge-on-read"


DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and change nothing.")]
MergeOption = Annotated[
    Mode,
    typer.Option(
        "--merge",
        metavar="MODE",
        help="How keyed topics are merged: `copy-on-write`, which reads fast, or `merge-on-read`, which writes little.",
    ),
]
AfterRollback = Annotated[
    list[str] | None,
    typer.Option(
        "--after-rollback",
        metavar="TOPIC",
        help="This keyed topic's state table was rolled back, and that was meant: merge again what it lacks.",
        show_default=False,
    ),
]


def maintain(
    topics: Topics = None,
    data: DataOption = None,
    catalog: CatalogOption = None,
    spark: SparkMaster = None,
    connect: SparkConnect = None,
    merge: MergeOption = Mode.COPY_ON_WRITE,
    after_rollback: AfterRollback = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Look after tables while landings go on: expire snapshots, remove orphans, say what others did to them.

    With Spark also: merge the changes of keyed topics into their tables, and compact small files.

    Exit code 0: done, or nothing to do. 2: another call is needed. 3: a table is halted, a person decides
    (docs/landing.md). 75: not all of it could be done this time; try again.
    """
    with (
        exit_codes(as_json=as_json, command=COMMAND),
        open_topics(data, catalog=catalog) as log,
        spark_session(spark, connect, log.spark_config) as session,
    ):
        for name in topics or []:
            topic_named(log, name)
        merges: tuple[TopicMerge, ...] = ()
        if session is not None and not dry_run:
            merges = log.merge(topics or None, spark=session, mode=merge.value, after_rollback=after_rollback or ())
        report = _kept(log, topics, session, dry_run=dry_run)
        if session is None and any(each.key and each.table for each in log.topics()):
            say(remarks(), "keyed topics are not merged: that needs Spark, --spark or --connect", "yellow")
        if as_json:
            emit_json(COMMAND, as_content(merges, report, dry_run=dry_run))
        else:
            _show(merges, report, dry_run=dry_run)
        outcome = exit_code(merges, report)
    raise typer.Exit(outcome)


def _kept(log: Log, topics: list[str] | None, session: object, *, dry_run: bool) -> MaintenanceReport:
    from headwater.lake.upkeep import UpkeepSettings

    return log.maintain(topics or None, spark=session, settings=UpkeepSettings(dry_run=dry_run))


def exit_code(merges: tuple[TopicMerge, ...], report: MaintenanceReport) -> ExitCode:
    """What a script is told."""
    if report.halted or any(each.outcome == "halted" for each in merges):
        return ExitCode.HALTED
    return ExitCode.TRY_AGAIN if any(each.outcome in {"failed", "lost"} for each in merges) else ExitCode.DONE


def as_content(merges: tuple[TopicMerge, ...], report: MaintenanceReport, *, dry_run: bool) -> dict[str, object]:
    """What was done, for programs."""
    return {
        "dry_run": dry_run,
        "seconds": round(report.seconds, 6),
        "merges": [
            {
                "topic": each.topic,
                "table": each.table,
                "outcome": each.outcome,
                "changes": each.changes,
                "lsn_from": each.lsn_from,
                "lsn_to": each.lsn_to,
                "snapshot": str(each.snapshot) if each.snapshot is not None else None,
                "seconds": round(each.seconds, 6),
                "cause": each.cause,
                "message": each.message,
            }
            for each in merges
        ],
        "tables": [_table_content(each) for each in report],
    }


def _table_content(told: TableUpkeep) -> dict[str, object]:
    return {
        "topic": told.topic,
        "table": told.table,
        "compacted_files": told.compacted_files,
        "made_files": told.made_files,
        "stamped": told.stamped,
        "expired_snapshots": told.expired_snapshots,
        "removed_files": told.removed_files,
        "orphans": list(told.orphans),
        "forgotten_files": told.forgotten_files,
        "forgotten_lsn": told.forgotten_lsn,
        "others": [str(each) for each in told.others],
        "left": told.left,
        "cause": told.cause,
    }


def _show(merges: tuple[TopicMerge, ...], report: MaintenanceReport, *, dry_run: bool) -> None:
    for merged in merges:
        say(results(), printable(str(merged)))
        if merged.outcome in {"halted", "failed"}:
            say(remarks(), f"{merged.topic}: {printable(merged.message)}", "red" if merged.cause else "yellow")
    for told in report:
        would = "would be done: " if dry_run and told.did_something else ""
        say(results(), printable(f"{would}{told}" if told.did_something else f"{told.table}: nothing to do"))
        for other in told.others:
            say(remarks(), f"{told.table}: by others: {printable(str(other))}", "dim")
        for left in told.left:
            say(remarks(), f"{told.table}: {printable(left)}", "red" if told.cause else "yellow")
