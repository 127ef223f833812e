"""`headwater restore TOPIC --as-of ... --to NAME`: a topic as it was, as a table of its own, and compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.as_of import parse_as_of
from headwater.cli.completion import topic_names
from headwater.cli.data_directory import AsJson, CatalogOption, DataOption, open_topics
from headwater.cli.exit_codes import ExitCode
from headwater.cli.failures import exit_codes
from headwater.cli.output import counted, emit_json, printable, results, say, say_in_colour
from headwater.cli.spark_option import SparkConnect, SparkMaster, spark_session
from headwater.cli.topic_lookup import topic_named
from headwater.clock import SystemClock

if TYPE_CHECKING:
    from headwater.lake.restoring import RestoreReport

COMMAND = "restore"

TopicName = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False, autocompletion=topic_names)
]
PointOption = Annotated[
    str,
    typer.Option(
        "--as-of",
        metavar="POINT",
        help="A cut (its token), lsn:7, 15min (ago), or 2026-11-15T02:55:13Z.",
        show_default=False,
    ),
]
To = Annotated[
    str, typer.Option("--to", metavar="NAME", help="The new table, as in sales.orders_1041.", show_default=False)
]


def restore(
    topic: TopicName,
    as_of: PointOption,
    to: To,
    data: DataOption = None,
    catalog: CatalogOption = None,
    spark: SparkMaster = None,
    connect: SparkConnect = None,
    as_json: AsJson = False,
) -> None:
    """Restore a topic as of a cut, a time or an LSN into a new table, and compare what the table then holds.

    Rows keep their `_hw_*` columns. A keyed topic is restored as its state, one row a key, from the state and the
    changes that are kept. The topic and its own tables stay as they are.

    Exit code 0: done, and equal. 1: what was read back is not what was restored. 2: another call is needed, as where
    the table is there already or the cut has expired. 75: the catalog does not answer; try again.
    """
    with exit_codes(as_json=as_json, command=COMMAND):
        with open_topics(data, catalog=catalog) as log:
            topic_named(log, topic)
            with spark_session(spark, connect, log.spark_config) as session:
                report = log.restore(topic, as_of=parse_as_of(as_of, SystemClock()), to=to, spark=session)
        if as_json:
            emit_json(COMMAND, as_content(report))
        else:
            _show(report)
    raise typer.Exit(ExitCode.DONE if report.passed else ExitCode.FAIL)


def as_content(report: RestoreReport) -> dict[str, object]:
    return {
        "topic": report.topic,
        "table": report.table,
        "lsn": report.lsn,
        "cut": report.cut,
        "rows": report.rows,
        "digest": str(report.restored.digest),
        "offsets": {str(partition): list(offsets) for partition, offsets in sorted(report.restored.offsets.items())},
        "snapshot": report.snapshot,
        "passed": report.passed,
        "differences": report.differences(),
        "seconds": round(report.seconds, 3),
    }


def _show(report: RestoreReport) -> None:
    console = results()
    verdict = ("PASS", "bold green") if report.passed else ("FAIL", "bold red")
    told = f"{counted(report.rows, 'row')} of {printable(report.topic)} as of lsn {report.lsn}"
    say_in_colour(console, verdict, f"  {told} in {printable(report.table)}, read back and compared.")
    for each in report.differences():
        say(console, each, first="  - ", indent="    ")
