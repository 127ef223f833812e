"""Views and cuts on a real log and pyiceberg's tables in SQLite, while other threads do all that may be done to them.

HEADWATER_VIEW_REAL says how many runs there are (20 in CI), HEADWATER_VIEW_REAL_FROM with which they begin,
HEADWATER_VIEW_CUTS how many cuts are taken of two topics under load (500 in CI).
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.simulation.view_real import run_cuts, run_real_views

RUNS = int(os.environ.get("HEADWATER_VIEW_REAL", "20"))
FIRST = int(os.environ.get("HEADWATER_VIEW_REAL_FROM", "0"))
CUTS = int(os.environ.get("HEADWATER_VIEW_CUTS", "500"))
SHARES = 2


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.timeout(300 + RUNS * 20)
def test_every_view_is_the_replay_of_all_writes_while_tables_are_landed_merged_rewritten_and_expired(
    share: int,
) -> None:
    counts: Counter[str] = Counter()

    for seed in range(FIRST + share, FIRST + RUNS, SHARES):
        counts += run_real_views(seed)

    print(dict(counts))
    runs = len(range(FIRST + share, FIRST + RUNS, SHARES))
    assert counts["at a new cut"] + counts["now"] + counts["at a cut again"] > 5 * runs
    assert all(counts[what] >= runs // 5 for what in ("landed", "merged", "rewritten", "expired snapshots")), counts


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.timeout(300 + CUTS)
def test_no_cut_of_two_topics_under_load_has_half_a_transaction_and_each_is_the_same_later(share: int) -> None:
    cuts = CUTS // SHARES

    counts = run_cuts(share, cuts)

    print(dict(counts))
    assert counts["at a new cut"] == 2 * cuts
    assert counts["at a cut again"] == 2 * cuts
    assert counts["landed"] and counts["rewritten"] and counts["segments gone"]
