"""Where a read begins and ends, in the words of the command line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from headwater.cli.read_range import Place, parse_place
from headwater.clock import ManualClock
from headwater.errors import InvalidRequest
from headwater.topics.positions import Lsn

NOW = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("0:17", {0: 17}),
        ("0:17,12:3", {0: 17, 12: 3}),
        ("15min", NOW - timedelta(minutes=15)),
        ("1.5h", NOW - timedelta(hours=1.5)),
        ("7d", NOW - timedelta(days=7)),
        ("30s", NOW - timedelta(seconds=30)),
        ("2026-11-15T02:55:13Z", datetime(2026, 11, 15, 2, 55, 13, tzinfo=UTC)),
        ("2026-11-15T02:55:13", datetime(2026, 11, 15, 2, 55, 13, tzinfo=UTC)),
        ("2026-11-15", datetime(2026, 11, 15, tzinfo=UTC)),
        ("2026-11-15T02:55+02:00", datetime(2026, 11, 15, 2, 55, tzinfo=timezone(timedelta(hours=2)))),
    ],
)
def test_a_place_is_what_it_says(text: str, place: Place) -> None:
    assert parse_place(text, None, ManualClock()) == place


def test_an_lsn_is_no_offset() -> None:
    place = parse_place("lsn:7", 3, ManualClock())

    assert place == 7
    assert isinstance(place, Lsn)


def test_an_offset_needs_its_partition() -> None:
    with_one = parse_place("7", 3, ManualClock())

    with pytest.raises(InvalidRequest) as refused:
        parse_place("7", None, ManualClock())

    assert (with_one, isinstance(with_one, Lsn)) == (7, False)
    assert "--partition" in str(refused.value) and "lsn:7" in str(refused.value)


@pytest.mark.parametrize("text", ["", "yesterday", "-5", "5m", "0:x", "lsn:", "lsn:-1"])
def test_what_is_no_place_is_told_what_one_is(text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_place(text, None, ManualClock())

    assert "earliest" in str(refused.value)
