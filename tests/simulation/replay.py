"""Run one seed again and tell what happened: python -m tests.simulation.replay --seed N"""

from __future__ import annotations

import argparse
import sys
import traceback

from tests.simulation.crashes import CrashEngine, Effort
from tests.simulation.damage import run_damage


def main() -> int:
    usual = Effort()
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.replay", description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--states", type=int, default=usual.states)
    parser.add_argument("--states-in-recovery", type=int, default=usual.states_in_recovery)
    parser.add_argument("--damages", type=int, default=0, help="damage the seed's log so often, and nothing else")
    given = parser.parse_args()
    if given.damages:
        print(
            f"seed {given.seed}: every damage was told by name or did no harm; {run_damage(given.seed, given.damages)}"
        )
        return 0
    engine = CrashEngine(given.seed, Effort(given.states, given.states_in_recovery))
    try:
        engine.run()
    except BaseException:  # noqa: BLE001  Whatever it was, the steps that led to it are what a person wants to see
        print("\n".join(engine.workload.steps))
        traceback.print_exc()
        return 1
    print(f"seed {given.seed}: every promise was kept; {engine.counts}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
