"""HTML for notebooks: everything is escaped, numbers are readable."""

from __future__ import annotations

import pyarrow as pa

from headwater.topics.notebook import html_table
from tests.unit.topics.small_engines import World


def test_everything_in_a_table_is_escaped() -> None:
    html = html_table("<b>", ["<i>"], [["<script>", 1_234_567], ["a&b", ""]])

    assert "<script>" not in html and "&lt;script&gt;" in html
    assert "&lt;b&gt;" in html and "&lt;i&gt;" in html and "a&amp;b" in html
    assert "1,234,567" in html


def test_a_log_is_shown_as_a_table_of_its_topics() -> None:
    log = World().log()
    log.topic("orders", {"id": int}, key="id", partitions=2, table="sales.orders")
    log["orders"].upsert({"id": 1})

    html = log._repr_html_()

    assert html is not None
    assert "Headwater log small" in html
    assert "orders" in html and "sales.orders" in html and ">2<" in html


def test_a_topic_is_shown_as_a_table_of_its_columns() -> None:
    log = World().log()
    schema = pa.schema(
        [pa.field("id", pa.int64()), pa.field("must", pa.string(), nullable=False), pa.field("may", pa.string())]
    )
    topic = log.topic("orders", schema, key="id")

    html = topic._repr_html_()

    assert html is not None
    assert "orders: 0 rows in 1 partition, schema version 1" in html
    assert html.count(">key<") == 1 and html.count(">not null<") == 1
