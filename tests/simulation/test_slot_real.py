"""Real logs of several processes on one simulated store, whatever comes between two requests: there is one history.

HEADWATER_SLOT_REAL says how many schedules are run (60 in CI), HEADWATER_SLOT_REAL_FROM with which they begin.
A violation prints the command that replays it.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.simulation.slot_real import Stage, run_real_seed

SCHEDULES = int(os.environ.get("HEADWATER_SLOT_REAL", "60"))
FIRST = int(os.environ.get("HEADWATER_SLOT_REAL_FROM", "0"))
SHARES = 2


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.timeout(120 + SCHEDULES)
def test_real_processes_on_one_store_have_one_history_whoever_owns_it_dies_or_is_late(share: int) -> None:
    counts: Counter[str] = Counter()

    for seed in range(FIRST + share, FIRST + SCHEDULES, SHARES):
        counts += run_real_seed(seed)

    print(dict(counts))
    played = SCHEDULES // SHARES
    assert counts["acknowledged"] > 10 * played, f"hardly anything was written: {counts}"
    assert counts["Fenced"] > played // 2, f"hardly anybody came between: {counts}"


def test_a_seed_gives_the_same_schedule_of_real_processes_again() -> None:
    first, again = Stage(7), Stage(7)

    assert first.run() == again.run()
    assert first.shown == again.shown
    assert first.requests == again.requests
