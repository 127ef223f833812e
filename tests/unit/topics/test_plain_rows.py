"""Single rows that become columns together: the same rows and the same refusals as one by one."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import OffsetMismatch, RowsRefused, UnknownPartition, UnknownTopic
from headwater.frames.frame import Kind
from headwater.topics.plain_rows import PlainCheck
from headwater.topics.rows import RowReader
from tests.unit.topics.small_engines import World, appending, engine_of, frames, together

SCHEMA = pa.schema(
    [
        pa.field("n", pa.int64(), nullable=False),
        pa.field("x", pa.float64()),
        pa.field("s", pa.string()),
        pa.field("b", pa.binary()),
        pa.field("t", pa.bool_()),
        pa.field("d", pa.date32()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("i", pa.int32()),
        pa.field("many", pa.list_(pa.int64())),
    ]
)
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
ROW = {"n": 1, "x": 0.5, "s": "text", "b": b"bytes", "t": True, "d": date(2026, 1, 2), "at": NOON}


def test_a_row_of_the_very_types_of_its_columns_is_plain_and_its_size_is_known() -> None:
    check = PlainCheck(SCHEMA)

    assert check.size_of(ROW) == 7 * 8 + len("text") + len(b"bytes")
    assert check.size_of({"n": 1, "x": None, "i": None, "many": None}) is not None


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"n": None},
        {"n": True},
        {"n": 1.0},
        {"n": 1, "x": 1},
        {"n": 1, "s": b"x"},
        {"n": 1, "b": bytearray(b"x")},
        {"n": 1, "d": NOON},
        {"n": 1, "at": datetime(2026, 1, 2)},  # noqa: DTZ001  (that it has no zone is the point)
        {"n": 1, "at": "2026-01-02"},
        {"n": 1, "i": 1},
        {"n": 1, "many": [1]},
        {"n": 1, "nobody": 1},
        {"n": 1, "nobody": None},
        {"n": 1, "x": Decimal(1)},
    ],
    ids=repr,
)
def test_a_row_that_needs_a_second_look_is_not_plain(row: dict[str, Any]) -> None:
    assert PlainCheck(SCHEMA).size_of(row) is None


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(st.characters(), max_size=4),
    st.binary(max_size=4),
    st.dates(),
    st.datetimes(timezones=st.sampled_from([UTC])),
    st.lists(st.integers(0, 3), max_size=2),
)


@settings(max_examples=400, deadline=None)
@given(st.dictionaries(st.sampled_from([*SCHEMA.names, "nobody"]), values))
def test_a_row_that_is_plain_fits_or_is_refused_for_its_value_alone(row: dict[str, Any]) -> None:
    if PlainCheck(SCHEMA).size_of(row) is None:
        return

    accepted = RowReader(SCHEMA).read(row)

    for refused in accepted.refused:
        # Only what no Python type can tell: numbers, dates and text beyond what a column holds.
        assert not any(word in refused.reason for word in ("no such column", "may not be null", "missing"))


def test_rows_of_one_commit_are_read_together_and_the_one_that_does_not_fit_is_refused_alone() -> None:
    log = World().log()
    log.topic("a", {"x": int, "s": str | None})
    engine = engine_of(log)
    rows: list[dict[str, Any]] = [{"x": 1}, {"x": 2**63}, {"x": 2, "s": "\udcff"}, {"x": 3, "s": "fits"}]

    futures = together(engine, *(appending(log, "a", row) for row in rows))

    for future, reason in zip(futures[1:3], ("x: ", "s: "), strict=True):
        with pytest.raises(RowsRefused, match=f"1 of 1 rows.*row 0: {reason}"):
            future.result()
    assert [future.result().offsets[0] for future in (futures[0], futures[3])] == [(0, 1), (1, 2)]
    assert log["a"].read().to_pylist() == [{"x": 1, "s": None}, {"x": 3, "s": "fits"}]
    assert len(frames(engine, kind=Kind.DATA)) == 1


def test_a_blocking_append_of_a_row_that_does_not_fit_after_all_says_why() -> None:
    log = World().log()
    log.topic("a", {"x": int})

    with pytest.raises(RowsRefused, match=r"1 of 1 rows.*row 0: x"):
        log["a"].append({"x": 2**63})

    assert log["a"].read().to_pylist() == []


def test_rows_of_several_topics_and_versions_are_each_read_with_their_own_schema() -> None:
    log = World().log()
    a, b = log.topic("a", {"x": int}), log.topic("b", {"s": str})
    first = appending(log, "a", {"x": 1})
    engine = engine_of(log)

    futures = together(engine, first, appending(log, "b", {"s": "t"}), appending(log, "a", {"x": 2}))

    assert [future.result().rows for future in futures] == [1, 1, 1]
    assert (a.read().to_pylist(), b.read().to_pylist()) == ([{"x": 1}, {"x": 2}], [{"s": "t"}])


def test_a_row_that_its_caller_changes_afterwards_is_written_as_it_was_given() -> None:
    log = World().log()
    log.topic("a", {"x": int})
    row = {"x": 1}

    def changed_after() -> Any:
        future = log["a"].append_future(row)
        row["x"] = 2
        return future

    together(engine_of(log), changed_after)[0].result()

    assert log["a"].read().to_pylist() == [{"x": 1}]


def test_a_plain_row_goes_where_any_other_row_would_and_expects_what_it_would() -> None:
    log = World().log()
    topic = log.topic("a", {"x": int}, partitions=3)

    assert topic.append({"x": 1}, partition=2, expect_offset=0).offsets == {2: (0, 1)}
    with pytest.raises(OffsetMismatch):
        topic.append({"x": 1}, partition=2, expect_offset=0)
    with pytest.raises(UnknownPartition):
        topic.append({"x": 1}, partition=3)
    assert topic.append({"x": 1}, idempotency_key="k").duplicate is False
    assert topic.append({"x": 1}, idempotency_key="k").duplicate is True


def test_a_plain_row_of_a_topic_that_was_deleted_meanwhile_is_refused() -> None:
    log = World().log()
    log.topic("a", {"x": int}).append({"x": 1})
    topic = log["a"]

    def deleted_before_it_is_served() -> Any:
        return topic.append_future({"x": 2})

    engine = engine_of(log)
    future = together(engine, deleted_before_it_is_served)[0]
    assert future.result().rows == 1
    log.delete_topic("a")

    with pytest.raises(UnknownTopic):
        topic.append({"x": 3})


def test_a_large_row_is_not_kept_for_later() -> None:
    log = World().log()
    topic = log.topic("a", {"s": str})

    assert topic.append({"s": "x" * 200_000}).rows == 1
    assert len(topic.read().to_pylist()[0]["s"]) == 200_000


def test_a_row_that_is_to_be_kept_if_it_does_not_fit_is_kept() -> None:
    log = World().log()
    topic = log.topic("a", {"x": int})

    kept = [topic.append({"x": 2**63}, rejected="keep"), topic.append_future({"x": 2**64}, rejected="keep").result()]

    assert [(each.rows, each.rejected) for each in kept] == [(0, 1), (0, 1)]
    assert log["a.rejected"].read().to_arrow().num_rows == 2
