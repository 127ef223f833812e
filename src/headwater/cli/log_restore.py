"""`headwater log restore DATA --from-lake`: a new log where the old one is lost, from what its tables hold and say.

PROMISE  A directory that holds a log is refused.  With --dry-run nothing is made and no table is touched.
NOT HERE What comes back and what is lost: lake/from_lake.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from headwater.cli.data_directory import AsJson, CatalogOption, configured_catalog, refuse_server
from headwater.cli.exit_codes import ExitCode
from headwater.cli.failures import exit_codes
from headwater.cli.output import counted, emit_json, printable, remarks, results, say, say_in_colour
from headwater.cli.plain_table import Column, print_table
from headwater.errors import InvalidRequest
from headwater.lake.extra import from_the_extra

if TYPE_CHECKING:
    from headwater.lake.from_lake import RestoredLog

COMMAND = "log restore"

NewData = Annotated[
    str,
    typer.Argument(
        metavar="DATA", help="The data directory, or s3://bucket/prefix; it holds no log.", show_default=False
    ),
]
FromLake = Annotated[bool, typer.Option("--from-lake", help="From the tables of the catalog.")]
LogId = Annotated[
    str | None,
    typer.Option("--log-id", metavar="ID", help="The lost log, where several have landed.", show_default=False),
]
Namespace = Annotated[
    list[str] | None,
    typer.Option(
        "--namespace",
        metavar="NAME",
        help="Look at the tables of this namespace alone; again for more.",
        show_default=False,
    ),
]
Group = Annotated[
    list[str] | None,
    typer.Option(
        "--group",
        metavar="NAME",
        help="A consumer group that is to read on after what has landed; again for more.",
        show_default=False,
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would come back; make nothing, touch no table.")]


def restore_log(
    data: NewData,
    from_lake: FromLake = False,
    catalog: CatalogOption = None,
    log_id: LogId = None,
    namespace: Namespace = None,
    group: Group = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Make a log anew where it is lost, from the tables that it has landed in.

    Topics, schemas, keys, policies and landed rows come back, with their offsets and LSNs; new rows come after them.
    The log has a new id, and the tables take it on: if the lost log turns up again, it can no longer land. What only
    the log had is gone, and it says what that is. After a crash the same command goes on.

    Exit code 0: done. 2: DATA holds a log, or it is not clear which log is meant. 3: a table needs a person.
    75: the catalog does not answer; try again.
    """
    with exit_codes(as_json=as_json, command=COMMAND):
        if not from_lake:
            raise InvalidRequest("say what to restore from: --from-lake")
        refuse_server(data)
        with remarks().status("reading the tables ..."):
            with from_the_extra():
                from headwater.lake import from_lake as lake
            report = lake.restore_log(
                data,
                catalog=catalog if catalog is not None else configured_catalog(),
                log_id=log_id,
                namespaces=namespace or (),
                groups=group or (),
                dry_run=dry_run,
            )
        if as_json:
            emit_json(COMMAND, as_content(report))
        else:
            _show(results(), report)
    raise typer.Exit(ExitCode.DONE)


def as_content(report: RestoredLog) -> dict[str, object]:
    return {
        "data": report.directory,
        "dry_run": report.dry_run,
        "continued": report.continued,
        "log_id": report.log_id,
        "log_ids_before": list(report.log_ids_before),
        "first_lsn": report.first_lsn,
        "topics": [
            {
                "name": topic.name,
                "topic_id": topic.topic_id,
                "table": topic.table,
                "state_table": topic.state_table,
                "landed_lsn": topic.landed_lsn,
                "rows": topic.rows,
                "partitions": topic.partitions,
                "next_offsets": {str(partition): offset for partition, offset in topic.next_offsets.items()},
                "schema_versions": topic.schema_versions,
                "key": list(topic.key),
            }
            for topic in report.topics
        ],
        "passed_over": report.passed_over,
        "groups": list(report.groups),
        "lost": list(report.lost),
    }


def _show(console: Console, report: RestoredLog) -> None:
    heads = [Column("TOPIC", keep=True, style="bold"), Column("TABLE"), Column("ROWS", right=True)]
    heads += [Column("PARTITIONS", right=True), Column("LANDED LSN", right=True)]
    rows = [
        (
            printable(topic.name),
            printable(topic.table),
            "-" if topic.rows is None else f"{topic.rows:,}",
            f"{topic.partitions:,}",
            f"{topic.landed_lsn}",
        )
        for topic in report.topics
    ]
    print_table(console, heads, rows)
    console.print()
    for table, why in report.passed_over.items():
        say(console, f"{printable(table)} brings no topic back: {printable(why)}", "yellow")
    if report.groups:
        say(console, f"groups that read on after what has landed: {printable(', '.join(report.groups))}")
    say(console, "What only the log had, and is not there again:", "bold")
    for each in report.lost:
        say(console, each, first="  - ", indent="    ")
    console.print()
    topics = counted(len(report.topics), "topic")
    if report.dry_run:
        say(console, f"Nothing was made, no table was touched. {topics} would come back.")
        return
    again = "a restore that had been begun is finished: " if report.continued else ""
    say_in_colour(
        console,
        ("RESTORED", "bold green"),
        f"  {again}{topics} in {printable(report.directory)}, log {report.log_id}, from lsn {report.first_lsn} on.",
    )
