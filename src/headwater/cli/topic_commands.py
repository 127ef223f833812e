"""`headwater topic create|alter|delete|compact`: change what topics there are, and what they keep.

PROMISE  What is lost is asked about first: a deletion says how many rows go, `--dry-run` says it and does nothing.
         Creating a topic that is there already, as asked, is done; it is refused if it is another one.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.confirmation import decide
from headwater.cli.data_directory import AsJson, DataOption, TakeOver, open_topics
from headwater.cli.exit_codes import ExitCode
from headwater.cli.failures import exit_codes
from headwater.cli.output import counted, emit_json, printable, results, say
from headwater.cli.plain_table import size_cell
from headwater.cli.schema_text import parse_columns, parse_schema
from headwater.cli.topic_lookup import topic_named
from headwater.cli.topic_show import Name, NewName, as_content, policy_text, table_text
from headwater.errors import InvalidRequest, TopicExists

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.topics.answers import TopicDescription


class Cleanup(StrEnum):
    DELETE = "delete"
    COMPACT = "compact"
    BOTH = "both"


SchemaOption = Annotated[
    str | None,
    typer.Option(
        "--schema",
        metavar="COLUMNS",
        help='Like "id:int64,amount:double,note:string?"; ? allows null. Without a schema a topic is of bytes: key, '
        "value, headers.",
        show_default=False,
    ),
]
SchemaFrom = Annotated[
    Path | None,
    typer.Option(
        "--schema-from", exists=True, dir_okay=False, metavar="FILE", help="The schema of a Parquet file.",
        show_default=False,
    ),
]  # fmt: skip
Key = Annotated[
    str | None,
    typer.Option(
        "--key", metavar="COLUMNS", help="Columns, with commas between, by which rows are partitioned and replaced.",
        show_default=False,
    ),
]  # fmt: skip
Partitions = Annotated[
    int | None, typer.Option("--partitions", min=1, metavar="N", help="How many partitions.", show_default=False)
]
Time = Annotated[
    str | None,
    typer.Option("--time", metavar="COLUMN", help="The column with the time of the event.", show_default=False),
]
Table = Annotated[
    str | None, typer.Option("--table", metavar="NAME", help="The table to land in: sales.orders.", show_default=False)
]
PartitionBy = Annotated[
    list[str] | None,
    typer.Option(
        "--partition-by",
        metavar="PART",
        help='How that table is made: "day(created_at)", "bucket(16, id)", "region"; may be given several times.',
        show_default=False,
    ),
]
CleanupOption = Annotated[
    Cleanup | None,
    typer.Option(
        "--cleanup",
        metavar="HOW",
        help="`delete` rows that are too old or too many, `compact` to the latest of each key, or `both`.",
        show_default=False,
    ),
]
Retention = Annotated[
    str | None,
    typer.Option("--retention", metavar="TIME", help="How long rows are kept: 90d, 24h, 10min.", show_default=False),
]
RetentionBytes = Annotated[
    int | None,
    typer.Option("--retention-bytes", min=1, metavar="N", help="How many bytes of rows are kept.", show_default=False),
]
Tombstones = Annotated[
    str | None,
    typer.Option("--tombstones", metavar="TIME", help="How long a deleted key is remembered.", show_default=False),
]
ChangesRetention = Annotated[
    str | None,
    typer.Option(
        "--changes-retention", metavar="TIME", help="How long a keyed topic's changes are kept.", show_default=False
    ),
]
Add = Annotated[
    str | None,
    typer.Option("--add", metavar="COLUMNS", help='New columns, which may be null: "note:string".', show_default=False),
]
Widen = Annotated[
    str | None,
    typer.Option("--widen", metavar="COLUMNS", help='Wider types: "amount:double".', show_default=False),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do it without asking.")]
Force = Annotated[bool, typer.Option("--force", help="Although its table does not hold all its rows yet.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be lost, and change nothing.")]


def create(
    topic: NewName,
    data: DataOption = None,
    schema: SchemaOption = None,
    schema_from: SchemaFrom = None,
    key: Key = None,
    partitions: Partitions = None,
    time: Time = None,
    table: Table = None,
    partition_by: PartitionBy = None,
    cleanup: CleanupOption = None,
    retention: Retention = None,
    retention_bytes: RetentionBytes = None,
    tombstones: Tombstones = None,
    changes_retention: ChangesRetention = None,
    take_over: TakeOver = False,
    as_json: AsJson = False,
) -> None:
    """Make a topic, and the data directory if there is none. Nothing is done if it is there already, as asked.

    Exit code 0: it is there. 2: there is another topic of this name, or another call is needed. 75: the log has an
    owner (it is named).
    """
    with (
        exit_codes(as_json=as_json, command="topic create"),
        open_topics(data, making=True, take_over=take_over) as log,
    ):
        wanted = _schema(schema, schema_from)
        before = {each.name for each in log.topics()}
        given: dict[str, Any] = {
            "key": tuple(_names(key)) if key else None,
            "partitions": partitions,
            "time": time,
            "table": table,
            "partition_by": partition_by or None,
            "cleanup": cleanup.value if cleanup is not None else None,
            "retention": retention,
            "retention_bytes": retention_bytes,
            "tombstones": tombstones,
            "changes_retention": changes_retention,
        }
        try:
            # What was not given is left out, so that it is the library which has the defaults.
            made = log.topic(topic, schema=wanted, **_given(given)).describe()
        except TopicExists as error:
            raise InvalidRequest(f"{error}; `headwater topic alter {topic}` changes it") from error
        created = topic not in before
        if as_json:
            emit_json("topic create", {"created": created, "topic": as_content(made)})
        else:
            what = "created" if created else "it is there already, as asked"
            say(results(), f"{topic}: {what}; {_summary(made)}")


def alter(
    topic: Name,
    data: DataOption = None,
    add: Add = None,
    widen: Widen = None,
    partitions: Partitions = None,
    table: Table = None,
    partition_by: PartitionBy = None,
    cleanup: CleanupOption = None,
    retention: Retention = None,
    retention_bytes: RetentionBytes = None,
    tombstones: Tombstones = None,
    changes_retention: ChangesRetention = None,
    take_over: TakeOver = False,
    as_json: AsJson = False,
) -> None:
    """Change a topic: more columns, wider types, more partitions, another policy. Nothing can be made less.

    Rows that are there already are read in the new schema; keys of new rows may fall into other partitions when there
    are more of them.

    Exit code 0: done. 2: it cannot be changed so. 75: the log has an owner (it is named).
    """
    with exit_codes(as_json=as_json, command="topic alter"), open_topics(data, take_over=take_over) as log:
        changes = _given(
            {
                "add": parse_columns(add) if add else None,
                "widen": parse_columns(widen) if widen else None,
                "partitions": partitions,
                "table": table,
                "partition_by": partition_by or None,
                "cleanup": cleanup.value if cleanup is not None else None,
                "retention": retention,
                "retention_bytes": retention_bytes,
                "tombstones": tombstones,
                "changes_retention": changes_retention,
            }
        )
        if not changes:
            raise InvalidRequest("say what to change: --add, --widen, --partitions, --retention ...; --help has all")
        changed = topic_named(log, topic).alter(**changes).describe()
        if as_json:
            emit_json("topic alter", {"topic": as_content(changed)})
        else:
            say(results(), f"{topic}: changed; {_summary(changed)}")


def delete(
    topic: Name,
    data: DataOption = None,
    force: Force = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    take_over: TakeOver = False,
    as_json: AsJson = False,
) -> None:
    """Delete a topic and all its rows in the log. It says how many, and asks. Its table is left alone.

    Exit code 0: done. 2: it was not confirmed, or there is no such topic. 3: you said no. 75: its table does not hold
    all rows yet (--force deletes it all the same), or the log has an owner.
    """
    with exit_codes(as_json=as_json, command="topic delete"), open_topics(data, take_over=take_over) as log:
        found = topic_named(log, topic).describe()
        outcome = _decide(found, dry_run=dry_run, yes=yes, as_json=as_json)
        if outcome is None:
            log.delete_topic(topic, force=force)
        if as_json:
            content = {"dry_run": dry_run, "deleted": outcome is None, "topic": as_content(found)}
            emit_json("topic delete", content)
        elif outcome is None:
            say(results(), f"{topic}: deleted, with {counted(found.rows, 'row')}.")
    raise typer.Exit(outcome or ExitCode.DONE)


def compact(topic: Name, data: DataOption = None, take_over: TakeOver = False, as_json: AsJson = False) -> None:
    """Compact a keyed topic now: of each key the latest row stays. Offsets and order stay as they are.

    Exit code 0: done, or nothing to do. 2: the topic is not compacted. 75: the log has an owner (it is named).
    """
    with exit_codes(as_json=as_json, command="topic compact"), open_topics(data, take_over=take_over) as log:
        done = topic_named(log, topic).compact()
        if as_json:
            emit_json(
                "topic compact",
                {
                    "topic": topic,
                    "rows_removed": done.rows_removed,
                    "tombstones_removed": done.tombstones_removed,
                    "bytes_saved": done.bytes_saved,
                    "segments": list(done.segments),
                    "up_to_lsn": done.up_to_lsn,
                },
            )
        elif done.rows_removed:
            say(
                results(),
                f"{topic}: {counted(done.rows_removed, 'row')} removed, {size_cell(done.bytes_saved)} saved, in "
                f"{counted(len(done.segments), 'segment')}; looked at up to LSN {done.up_to_lsn}.",
            )
        else:
            say(results(), f"{topic}: nothing to compact up to LSN {done.up_to_lsn}.")


def _schema(text: str | None, file: Path | None) -> pa.Schema:
    if text is not None and file is not None:
        raise InvalidRequest("give --schema or --schema-from, not both")
    if text is not None:
        return parse_schema(text)
    if file is not None:
        return _schema_of_file(file)
    from headwater.topics.schema import BYTES

    return BYTES


def _schema_of_file(file: Path) -> pa.Schema:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        return parquet.read_schema(file)
    except pa.ArrowInvalid as error:
        raise InvalidRequest(f"{file} is not a Parquet file: {error}") from error


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _summary(topic: TopicDescription) -> str:
    parts = [
        counted(topic.partitions, "partition"),
        counted(len(topic.schema), "column"),
        f"schema version {topic.schema_version}",
        f"cleanup {policy_text(topic.policy, topic.table)}",
    ]
    if topic.key:
        parts.insert(1, f"key {', '.join(topic.key)}")
    if topic.table:
        parts.append(f"table {table_text(topic)}")
    return printable(", ".join(parts))


def _decide(topic: TopicDescription, *, dry_run: bool, yes: bool, as_json: bool) -> ExitCode | None:
    lost = f"{topic.name}: {counted(topic.rows, 'row')} in {counted(topic.partitions, 'partition')} would be deleted"
    return decide(lost, "Delete it, for good?", dry_run=dry_run, yes=yes, as_json=as_json)
