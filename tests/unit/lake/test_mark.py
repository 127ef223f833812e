"""A landing's mark goes into a snapshot's summary and a table's property, and comes out as it was."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import CorruptData
from headwater.lake.mark import Mark, mark_in_property, mark_in_summary, property_name

MARK = Mark(
    "0a" * 16, "0b" * 16, "c1", 0, 10, 20, 7, "00000000000000ff", 3, 19, columns="1,2,7", chain="00000000000000aa"
)

numbers = st.integers(0, 2**63 - 1)
words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)
marks = st.builds(
    Mark,
    log_id=words,
    topic_id=words,
    commit_id=words,
    shard=numbers,
    lsn_from=numbers,
    lsn_to=numbers,
    rows=numbers,
    digest=words,
    epoch=numbers,
    max_row_lsn=numbers,
    columns=st.just("") | st.lists(st.integers(1, 9999), max_size=9).map(lambda ids: ",".join(map(str, ids))),
    chain=st.just("") | words,
    watermark_us=st.none() | st.integers(-(2**63), 2**63 - 1),
)


@given(marks)
def test_a_mark_comes_out_of_a_summary_as_it_went_in(mark: Mark) -> None:
    assert mark_in_summary({"operation": "append", **mark.summary()}) == mark


@given(marks, numbers)
def test_a_mark_comes_out_of_a_property_with_the_snapshot_it_was_given(mark: Mark, snapshot: int) -> None:
    assert mark_in_property(mark.property_value(snapshot)) == replace(mark, snapshot=snapshot)


def test_a_summary_holds_strings_under_names_of_its_own_and_no_snapshot() -> None:
    summary = replace(MARK, snapshot=5).summary()

    assert summary == {
        "headwater.log-id": "0a" * 16,
        "headwater.topic-id": "0b" * 16,
        "headwater.commit-id": "c1",
        "headwater.shard": "0",
        "headwater.lsn-from": "10",
        "headwater.lsn-to": "20",
        "headwater.rows": "7",
        "headwater.digest": "00000000000000ff",
        "headwater.epoch": "3",
        "headwater.max-row-lsn": "19",
        "headwater.columns": "1,2,7",
        "headwater.chain": "00000000000000aa",
    }


def test_the_property_is_one_line_of_json_for_each_branch() -> None:
    value = MARK.property_value(5)

    assert json.loads(value)["snapshot"] == 5
    assert "\n" not in value
    assert (property_name(), property_name("audit")) == ("headwater.landed.main", "headwater.landed.audit")


def test_a_snapshot_of_somebody_else_has_no_mark() -> None:
    assert mark_in_summary({"operation": "append", "total-records": "3"}) is None
    assert mark_in_summary({"headwater.stamp": "true"}) is None


@pytest.mark.parametrize(
    "part", sorted(MARK.summary().keys() - {"headwater.commit-id", "headwater.columns", "headwater.chain"})
)
def test_a_mark_that_lacks_a_part_is_none_that_can_be_read(part: str) -> None:
    summary = MARK.summary()
    del summary[part]

    with pytest.raises(CorruptData, match="lacks one of its parts"):
        mark_in_summary(summary)


def test_a_mark_whose_number_is_none_cannot_be_read() -> None:
    with pytest.raises(CorruptData, match="no number"):
        mark_in_summary({**MARK.summary(), "headwater.lsn-to": "twenty"})


@pytest.mark.parametrize("value", ["", "{", "[]", "7", "null", '{"log-id": "x"}', '"text"'])
def test_a_property_that_somebody_has_written_over_cannot_be_read(value: str) -> None:
    with pytest.raises(CorruptData):
        mark_in_property(value)


def test_a_mark_says_which_columns_were_written() -> None:
    assert MARK.field_ids == (1, 2, 7)
    assert replace(MARK, columns="").field_ids == ()


@pytest.mark.parametrize("columns", ["1,x", "a", ",1", "1 2"])
def test_a_mark_whose_columns_are_no_list_of_numbers_cannot_be_read(columns: str) -> None:
    with pytest.raises(CorruptData, match="no list of columns"):
        mark_in_summary(replace(MARK, columns=columns).summary())


def test_a_mark_is_of_one_topic_of_one_log() -> None:
    assert MARK.is_of("0a" * 16, "0b" * 16)
    assert not MARK.is_of("0b" * 16, "0b" * 16)
    assert not MARK.is_of("0a" * 16, "0a" * 16)
