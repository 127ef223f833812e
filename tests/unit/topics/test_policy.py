"""Durations, sizes and policies in the words of a caller."""

from __future__ import annotations

from datetime import timedelta

import pytest

from headwater.errors import InvalidRequest
from headwater.metadata.operations import Policy
from headwater.topics.policy import bytes_of, policy_of, seconds_of


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("90d", 90 * 86_400),
        ("24h", 86_400),
        ("10min", 600),
        ("10m", 600),
        ("30s", 30),
        ("500ms", 0.5),
        ("1.5h", 5_400),
        (" 2 w ", 14 * 86_400),
        (30, 30),
        (0.25, 0.25),
        (timedelta(days=1, seconds=1), 86_401),
    ],
)
def test_a_duration_is_a_text_a_number_of_seconds_or_a_timedelta(given: object, seconds: float) -> None:
    assert seconds_of(given) == seconds  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given",
    [
        "",
        "d",
        "7",
        "7 days",
        "-1d",
        "1e3s",
        "7D",
        "1h30m",
        "٣d",
        0,
        -1,
        float("nan"),
        float("inf"),
        True,
        None,
        timedelta(0),
        [7],
    ],
)
def test_what_is_no_duration_is_refused_by_the_arguments_name(given: object) -> None:
    with pytest.raises(InvalidRequest, match="retention"):
        seconds_of(given, "retention")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "size"),
    [(1, 1), ("1", 1), ("500MB", 500_000_000), ("10GiB", 10 << 30), ("1.5KiB", 1_536), ("2 kB", 2_000)],
)
def test_a_size_is_a_number_of_bytes_or_a_text(given: str | int, size: int) -> None:
    assert bytes_of(given) == size


@pytest.mark.parametrize("given", [0, -1, True, 1.5, None, "", "GiB", "10 gigs", "10gb", "0GiB"])
def test_what_is_no_size_is_refused(given: object) -> None:
    with pytest.raises(InvalidRequest, match="retention_bytes"):
        bytes_of(given, "retention_bytes")  # type: ignore[arg-type]


def test_a_policy_from_nothing_is_the_default() -> None:
    assert policy_of() == Policy()


def test_what_is_given_takes_its_place_and_the_rest_stays() -> None:
    base = policy_of("both", "7d", "10GiB", "12h", "60d")

    assert base == Policy("both", 7 * 86_400.0, 10 << 30, 12 * 3_600.0, 60 * 86_400.0)
    assert policy_of(base=base) == base
    assert policy_of(retention="3d", base=base) == Policy("both", 3 * 86_400.0, 10 << 30, 12 * 3_600.0, 60 * 86_400.0)
    assert policy_of(cleanup="compact", base=base).cleanup == "compact"


def test_a_limit_is_taken_away_by_forever() -> None:
    base = policy_of(retention="7d", retention_bytes=1)

    assert policy_of(retention="forever", retention_bytes="forever", base=base) == Policy()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"cleanup": "compress"}, "cleanup is one of delete, compact, both"),
        ({"retention": "soon"}, "retention: 'soon'"),
        ({"retention_bytes": "much"}, "retention_bytes: 'much'"),
        ({"tombstones": 0}, "tombstones"),
        ({"changes_retention": "forever"}, "changes_retention"),
    ],
)
def test_what_makes_no_policy_is_refused_by_its_name(arguments: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        policy_of(**arguments)  # type: ignore[arg-type]
