"""Which names in a log's directory are its own, and how they sort."""

from __future__ import annotations

import pytest

from headwater.log.names import SegmentName, parse_segment_name, sort_names


def test_a_segment_is_named_by_its_first_lsn_in_twenty_digits_and_its_generation() -> None:
    name = SegmentName(42, 3)

    assert str(name) == "00000000000000000042.3.seg"
    assert name.index == "00000000000000000042.3.idx"
    assert parse_segment_name(str(name)) == name


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000042.3.idx",
        "42.3.seg",
        "00000000000000000042.03.seg",
        "00000000000000000042.seg",
        "00000000000000000042.3.seg.tmp",
        "x00000000000000000042.3.seg",
        "mark",
    ],
)
def test_what_is_not_exactly_the_name_of_a_segment_is_none(name: str) -> None:
    parsed = parse_segment_name(name)

    assert parsed is None


def test_a_directory_is_sorted_into_what_is_ours_and_what_is_not() -> None:
    names = [
        "00000000000000000009.0.seg",
        "00000000000000000001.1.seg",
        "00000000000000000001.0.seg",
        "00000000000000000001.0.idx",
        "mark",
        "lock",
        "reserve",
    ]

    listing = sort_names(names)

    assert listing.segments == [SegmentName(1, 0), SegmentName(1, 1), SegmentName(9, 0)]
    assert listing.indexes == [SegmentName(1, 0)]
    assert listing.mark
    assert not listing.temporaries
    assert not listing.foreign


def test_a_directory_without_a_mark_says_so() -> None:
    listing = sort_names(["00000000000000000001.0.seg"])

    assert not listing.mark


def test_only_temporaries_of_our_own_names_are_ours() -> None:
    ours = ["00000000000000000001.1.seg.tmp", "00000000000000000001.0.idx.tmp", "mark.tmp", "lock.tmp", "reserve.tmp"]
    ours.append("00000000000000000001.0.idx.0123abcd.tmp")
    theirs = [
        "notes.txt",
        "mark.0123abc.tmp",
        "mark.0123abcd",
        "notes.tmp",
        ".tmp",
        "00000000000000000001.0.seg.damaged",
        "_folder",
    ]

    listing = sort_names(ours + theirs)

    assert listing.temporaries == ours
    assert listing.foreign == theirs
