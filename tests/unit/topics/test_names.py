"""Kafka's rule for the names of topics, and the name of the topic that keeps rejected rows."""

from __future__ import annotations

import pytest

from headwater.errors import InvalidRequest
from headwater.topics.names import REJECTED_SUFFIX, check_topic_name, rejected_name


@pytest.mark.parametrize("name", ["a", "orders", "Orders_2024-v1.rejected", "...", "-", "0", "x" * 249])
def test_a_name_by_kafkas_rule_is_taken(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "empty"),
        (".", "may not be named"),
        ("..", "may not be named"),
        ("x" * 250, "at most 249"),
        ("a/b", "letters"),
        ("../etc", "letters"),
        ("orders\n", "letters"),
        ("order s", "letters"),
        ("größe", "letters"),
        ("a\0", "letters"),
        ("٣", "letters"),
    ],
)
def test_any_other_name_is_refused_with_its_reason(name: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        check_topic_name(name)


def test_a_name_is_a_string() -> None:
    with pytest.raises(InvalidRequest, match="not bytes"):
        check_topic_name(b"orders")  # type: ignore[arg-type]


def test_rejected_rows_have_a_topic_of_their_own_if_its_name_fits() -> None:
    assert rejected_name("orders") == "orders" + REJECTED_SUFFIX == "orders.rejected"
    check_topic_name(rejected_name("x" * 240))

    with pytest.raises(InvalidRequest, match="too long"):
        rejected_name("x" * 241)
