"""`headwater topic list` and `headwater topic describe TOPIC`: what there is, for people and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from headwater.cli.completion import topic_names
from headwater.cli.data_directory import AsJson, DataOption, open_topics
from headwater.cli.failures import exit_codes
from headwater.cli.output import counted, emit_json, printable, remarks, results, say, say_in_colour
from headwater.cli.plain_table import Column, print_table, size_cell
from headwater.cli.schema_text import schema_text, type_text
from headwater.cli.topic_lookup import topic_named

if TYPE_CHECKING:
    from headwater.metadata.operations import Policy
    from headwater.topics.answers import TopicDescription, TopicStatus

PARTITIONS_SHOWN = 16

Name = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The topic's name.", show_default=False, autocompletion=topic_names)
]
NewName = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.", show_default=False)]
All = Annotated[bool, typer.Option("--all", help=f"Every partition, and not the first {PARTITIONS_SHOWN} alone.")]


def list_topics(data: DataOption = None, as_json: AsJson = False) -> None:
    """List the topics, one a line.

    Exit code 0: done. 2: there is no log. 3: the log is halted. 75: try again.
    """
    with exit_codes(as_json=as_json, command="topic list"), open_topics(data) as log:
        found = log.topics()
        if as_json:
            emit_json("topic list", {"topics": [line_content(each) for each in found]})
        elif found:
            _show_list(results(), found)
        else:
            say(remarks(), "There is no topic yet; `headwater topic create NAME` makes one.")


def describe_topic(topic: Name, data: DataOption = None, all_partitions: All = False, as_json: AsJson = False) -> None:
    """Show a topic: its schema, its policy, and what each partition holds.

    Exit code 0: done. 2: there is no such topic. 3: the log is halted. 75: try again.
    """
    with exit_codes(as_json=as_json, command="topic describe"), open_topics(data) as log:
        found = topic_named(log, topic).describe()
        if as_json:
            emit_json("topic describe", {"topic": as_content(found)})
        else:
            show(results(), found, all_partitions=all_partitions)


def as_content(topic: TopicDescription) -> dict[str, object]:
    """A topic for programs."""
    return {
        "name": topic.name,
        "number": topic.number,
        "topic_id": topic.topic_id,
        "created": topic.created.isoformat().replace("+00:00", "Z"),
        "schema": [
            {"name": field.name, "type": type_text(field.type), "nullable": field.nullable} for field in topic.schema
        ],
        "schema_version": topic.schema_version,
        "partitions": topic.partitions,
        "key": list(topic.key),
        "time_column": topic.time_column,
        "table": topic.table,
        "partition_by": list(topic.partition_by),
        "policy": policy_content(topic.policy),
        "rows": topic.rows,
        "bytes": topic.bytes,
        "offsets": [
            {"partition": partition, "first": offsets.first, "next": offsets.next}
            for partition, offsets in sorted(topic.offsets.items())
        ],
    }


def policy_content(policy: Policy) -> dict[str, object]:
    return {
        "cleanup": policy.cleanup,
        "retention_s": policy.retention_s,
        "retention_bytes": policy.retention_bytes,
        "tombstones_s": policy.tombstones_s,
        "changes_retention_s": policy.changes_retention_s,
    }


def line_content(topic: TopicStatus) -> dict[str, object]:
    """A topic in a list, for programs."""
    return {
        "name": topic.name,
        "partitions": topic.partitions,
        "rows": topic.rows,
        "bytes": topic.bytes,
        "appended": topic.appended,
        "key": list(topic.key),
        "table": topic.table,
        "policy": policy_content(topic.policy),
    }


def _show_list(console: Console, found: list[TopicStatus]) -> None:
    columns = [
        Column("TOPIC", keep=True, style="bold"),
        Column("ROWS", right=True),
        Column("BYTES", right=True),
        Column("PARTITIONS", right=True),
        Column("KEY"),
        Column("CLEANUP", keep=True),
        Column("TABLE"),
    ]
    rows = [
        (
            each.name,
            f"{each.rows:,}",
            size_cell(each.bytes),
            f"{each.partitions:,}",
            ",".join(each.key) or "-",
            policy_text(each.policy, each.table),
            each.table or "-",
        )
        for each in found
    ]
    print_table(console, columns, [[printable(cell) for cell in row] for row in rows])


def show(console: Console, topic: TopicDescription, *, all_partitions: bool) -> None:
    """A topic for people."""
    facts = [
        ("topic", f"{topic.name} (number {topic.number}, id {topic.topic_id})"),
        ("created", topic.created.isoformat(timespec="milliseconds").replace("+00:00", "Z")),
        ("rows", f"{topic.rows:,} in {counted(topic.partitions, 'partition')}, {size_cell(topic.bytes)}"),
        ("key", ", ".join(topic.key) or "none: rows are never replaced"),
        ("time", topic.time_column or "none: append time"),
        ("cleanup", policy_text(topic.policy, topic.table)),
        ("table", table_text(topic)),
        ("schema", f"version {topic.schema_version}"),
    ]
    for name, text in facts:
        say_in_colour(console, (f"{name:<9}", "dim"), printable(text))
    for field in topic.schema:
        null = "may be null" if field.nullable else ""
        width = max(len(each) for each in topic.schema.names)
        line = f"  {printable(field.name):<{width}}  {type_text(field.type):<12}{'  ' + null if null else ''}"
        say_in_colour(console, line.rstrip())
    # Never wrapped: it is there to be copied.
    say_in_colour(console, ("as text  ", "dim"), f'--schema "{printable(schema_text(topic.schema))}"')
    offsets = sorted(topic.offsets.items())
    shown = offsets if all_partitions else offsets[:PARTITIONS_SHOWN]
    console.print()
    heads = [Column(head, right=True) for head in ("PARTITION", "FIRST", "NEXT", "ROWS")]
    print_table(
        console,
        heads,
        [(f"{number}", f"{each.first:,}", f"{each.next:,}", f"{each.next - each.first:,}") for number, each in shown],
    )
    if len(shown) < len(offsets):
        say(console, f"... and {len(offsets) - len(shown):,} more: --all shows them")


def table_text(topic: TopicDescription) -> str:
    """`none`, `sales.orders`, `sales.orders by day(created_at)`."""
    by = f" by {', '.join(topic.partition_by)}" if topic.partition_by else ""
    return f"{topic.table or 'none'}{by}"


def policy_text(policy: Policy, table: str | None) -> str:
    """`kept`, `landed` (rows go once they are in the table), `delete 7d`, `compact`, `both 30d 1.0 GB`."""
    limits = []
    if policy.retention_s is not None:
        limits.append(duration_text(policy.retention_s))
    if policy.retention_bytes is not None:
        limits.append(size_cell(policy.retention_bytes))
    if policy.cleanup == "delete" and not limits:
        return "kept" if table is None else "landed"
    return " ".join([policy.cleanup, *limits])


def duration_text(seconds: float) -> str:
    """The shortest of `7d`, `36h`, `90min`, `10s` that says it exactly."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:g}s"
