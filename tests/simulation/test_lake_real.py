"""Schedules of landing on a real log, a real ledger and pyiceberg's tables in SQLite: every row is in the table once.

HEADWATER_LANDING_REAL says how many are run (12 in CI), HEADWATER_LANDING_REAL_FROM with which they begin.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.lake_real import run_real

SCHEDULES = int(os.environ.get("HEADWATER_LANDING_REAL", "12"))
FIRST = int(os.environ.get("HEADWATER_LANDING_REAL_FROM", "0"))
SHARES = 4


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.timeout(120 + SCHEDULES * 20)
@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
def test_every_row_is_in_a_real_table_once_whatever_comes_between(share: int) -> None:
    landed = 0

    for seed in range(FIRST + share, FIRST + SCHEDULES, SHARES):
        landed += run_real(seed)["landed"]

    assert landed >= (SCHEDULES - share) // SHARES, "hardly anything landed"
