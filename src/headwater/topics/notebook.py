"""How things look in a notebook: small HTML tables, everything escaped, no script and no style sheet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

import pyarrow as pa

from headwater.topics.answers import TopicDescription, TopicStatus


def html_table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    cells = "".join(f"<th style='text-align:left'>{escape(each)}</th>" for each in head)
    body = "".join(
        "<tr>" + "".join(f"<td style='text-align:left'>{escape(_text(each))}</td>" for each in row) + "</tr>"
        for row in rows
    )
    return (
        f"<table><caption style='text-align:left'>{escape(caption)}</caption>"
        f"<thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"
    )


def html_of_topics(caption: str, topics: Iterable[TopicStatus]) -> str:
    return html_table(
        caption,
        ("topic", "rows", "bytes", "partitions", "key", "table"),
        ((each.name, each.rows, each.bytes, each.partitions, ", ".join(each.key), each.table or "") for each in topics),
    )


def html_of_topic(topic: TopicDescription) -> str:
    partitions = "1 partition" if topic.partitions == 1 else f"{topic.partitions:,} partitions"
    caption = f"{topic.name}: {topic.rows:,} rows in {partitions}, schema version {topic.schema_version}"
    return html_table(caption, ("column", "type", ""), (_column(each, topic.key) for each in topic.schema))


def _column(each: pa.Field, key: tuple[str, ...]) -> tuple[str, str, str]:
    role = "key" if each.name in key else "" if each.nullable else "not null"
    return each.name, str(each.type), role


def _text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
