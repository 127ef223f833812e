"""Places to read from, as they travel: each form that positions.py takes comes back as it was."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from headwater.errors import InvalidRequest
from headwater.protocol.codec import pack, unpack
from headwater.protocol.places import WirePlace, place_of, wire_place
from headwater.topics.positions import Lsn, Where

PLACE: Any = WirePlace
NO_ZONE = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)


@pytest.mark.parametrize(
    "where",
    [
        "earliest",
        "latest",
        "2026-11-14T10:41:07Z",
        Lsn(0),
        Lsn(7),
        0,
        (1 << 63) - 1,
        {0: 1, 7: 9},
        {},
        datetime(2026, 11, 14, 10, 41, 7, 123_456, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    ],
)
def test_a_place_comes_back_as_it_was(where: Where) -> None:
    back = place_of(unpack(pack(wire_place(where)), PLACE))

    assert back == where and type(back) is type(where)


def test_a_moment_is_the_same_in_another_zone() -> None:
    where = datetime(2026, 11, 14, 12, tzinfo=timezone(timedelta(hours=2)))

    assert place_of(wire_place(where)) == where


@pytest.mark.parametrize(
    "where",
    [True, None, 1.5, b"earliest", -1, {0: -1}, {-1: 0}, {"a": 0}, {0: "a"}, [1], object(), NO_ZONE],
)
def test_what_is_no_place_is_refused(where: Any) -> None:
    with pytest.raises(InvalidRequest):
        wire_place(where)


@pytest.mark.parametrize("where", [1 << 63, {0: 1 << 63}, Lsn(1 << 63)])
def test_a_number_that_is_too_large_is_refused_on_the_other_side(where: Where) -> None:
    with pytest.raises(InvalidRequest):
        unpack(pack(wire_place(where)), PLACE)


def test_a_word_of_any_length_is_refused_by_whoever_looks_at_it() -> None:
    back = place_of(unpack(pack(wire_place("e" * 100_000)), PLACE))

    assert isinstance(back, str) and back not in ("earliest", "latest")
