"""Where a topic's rows are, drawn from what the status says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.cli.lsn_picture import lsn_picture, shares
from headwater.topics.answers import LandingStatus


def status(landed: int, verified: int, first: int, lag: int = 1, topic: str = "orders") -> LandingStatus:
    return LandingStatus(topic, "sales.orders", landed, verified, None, lag, lag, 0.0, log_first_lsn=first)


def test_a_picture_shows_in_order_what_is_deleted_verified_landed_and_in_the_log_alone() -> None:
    lines = lsn_picture([status(landed=80, verified=60, first=41)], durable_lsn=100, width=29)

    assert [line.plain for line in lines] == [
        "LSN     1            100",
        "orders  ░░░░░░░▒▒▒▓▓▓███",
        "        ░ in the table alone   ▒ in both, verified   ▓ in both   █ in the log alone",
    ]


def test_nothing_is_drawn_of_a_log_without_rows_or_without_tables() -> None:
    assert lsn_picture([], durable_lsn=9, width=80) == [] == lsn_picture([status(0, 0, 0)], durable_lsn=0, width=80)


def test_a_topic_that_has_landed_whole_has_nothing_in_the_log_alone_though_others_went_on() -> None:
    assert shares(status(landed=10, verified=10, first=1, lag=0), durable_lsn=100, cells=20) == [0, 20, 0, 0]
    assert shares(status(landed=10, verified=5, first=1, lag=0), durable_lsn=100, cells=20) == [0, 1, 19, 0]


def test_a_topic_of_which_the_log_holds_nothing_is_in_the_table_alone() -> None:
    assert shares(status(landed=100, verified=100, first=0, lag=0), durable_lsn=100, cells=20) == [20, 0, 0, 0]


def test_a_long_name_is_cut() -> None:
    lines = lsn_picture([status(1, 1, 1, topic="n" * 40)], durable_lsn=9, width=80)

    assert lines[1].plain.startswith("n" * 23 + "…  ")


@given(st.integers(1, 10**12), st.data(), st.integers(16, 60))
def test_cells_are_always_filled_and_nothing_that_there_is_goes_unseen(
    durable: int, data: st.DataObject, cells: int
) -> None:
    landed = data.draw(st.integers(0, durable))
    verified = data.draw(st.integers(0, landed))
    first = data.draw(st.integers(1, durable))

    counts = shares(status(landed, verified, first), durable, cells)

    gone = min(first - 1, verified)
    lsns = [gone, verified - gone, landed - verified, durable - landed]
    assert sum(counts) == cells
    assert [bool(count) for count in counts] == [bool(lsn) for lsn in lsns]
