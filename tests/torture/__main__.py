"""The long form of the checks: `python -m tests.torture`, before a part is called done and before a release.

Each part has the size of the torture column of docs/testing.md; `--scale 0.01` runs a hundredth of it, `--only PART`
one part.  Two processes work side by side.  Parts that are pytest suites get their size by an environment variable.
Every failure prints its seed and the command that replays it; the exit code is 1 if there was one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.simulation.crashes import Counts, Effort, replay_command, run_seed
from tests.simulation.damage import DamageCounts, run_damage
from tests.simulation.mutants import MUTANTS, by_name, kills

PROCESSES = 2
CHUNK = 20
STATES_A_SEED = 500
STATES_IN_RECOVERY_A_SEED = 50
SEEDS = 10_000
MUTANT_SEEDS = 500
DAMAGE_SEEDS = 2_000
DAMAGES_A_SEED = 50


@dataclass
class Result:
    """What one part has shown."""

    part: str
    counts: dict[str, float] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, other: Result) -> None:
        for name, value in other.counts.items():
            self.counts[name] = self.counts.get(name, 0) + value
        self.violations.extend(other.violations)


def _crash_states(seeds: range) -> Result:
    effort = Effort(states=STATES_A_SEED, states_in_recovery=STATES_IN_RECOVERY_A_SEED)
    counts = Counts()
    result = Result("crash-states")
    for seed in seeds:
        try:
            counts.add(run_seed(seed, effort))
        except AssertionError as error:
            result.violations.append(f"seed {seed}: {error}; {replay_command(seed, effort)}")
    result.counts = {"seeds": len(seeds), **{name: float(value) for name, value in vars(counts).items()}}
    return result


def _damage(seeds: range) -> Result:
    result = Result("damage")
    total = DamageCounts()
    for seed in seeds:
        try:
            counts = run_damage(seed, DAMAGES_A_SEED)
        except AssertionError as error:
            result.violations.append(f"damage seed {seed}: {error}")
            continue
        total.damages += counts.damages
    result.counts = {"seeds": len(seeds), "damages": total.damages}
    return result


def _mutant(task: tuple[str, int]) -> Result:
    name, seeds = task
    mutant = by_name(name)
    killed = sum(kills(mutant, seed) is not None for seed in range(seeds))
    result = Result("mutants", {f"{name}, killed by % of seeds": round(100 * killed / seeds, 1), "mutants": 1})
    if not killed:
        result.violations.append(f"the mutant {name} lives: {mutant.what}")
    return result


def _chunks(seeds: int) -> Iterator[range]:
    for start in range(0, seeds, CHUNK):
        yield range(start, min(start + CHUNK, seeds))


def _in_processes(part: str, work: Callable[..., Result], tasks: list[object]) -> Result:
    result = Result(part)
    began = time.monotonic()
    with ProcessPoolExecutor(PROCESSES) as pool:
        for number, each in enumerate(pool.map(work, tasks), 1):
            result.add(each)
            for violation in each.violations:
                print(f"{part}: {violation}", flush=True)
            if number % max(len(tasks) // 20, 1) == 0:
                took = time.monotonic() - began
                print(f"{part}: {number} of {len(tasks)} in {took:.0f} s", file=sys.stderr, flush=True)
    result.seconds = time.monotonic() - began
    return result


def _pytest(part: str, path: str, sizes: dict[str, int], *, workers: int = 0) -> Result:
    """A suite of its own, at torture size."""
    began = time.monotonic()
    environment = {**os.environ, **{name: str(size) for name, size in sizes.items()}}
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", path]
    command += ["-n", str(workers)] if workers else []
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    result = Result(part, {name: float(size) for name, size in sizes.items()}, seconds=time.monotonic() - began)
    print(done.stdout[-2000:], flush=True)
    if done.returncode:
        result.violations.append(f"{' '.join(command)} with {sizes} ended with {done.returncode}")
    return result


def parts(scale: float) -> dict[str, Callable[[], Result]]:
    def scaled(size: float) -> int:
        return max(round(size * scale), 1)

    return {
        "crash-states": lambda: _in_processes("crash-states", _crash_states, list(_chunks(scaled(SEEDS)))),
        "damage": lambda: _in_processes("damage", _damage, list(_chunks(scaled(DAMAGE_SEEDS)))),
        "mutants": lambda: _in_processes(
            "mutants", _mutant, [(mutant.name, scaled(MUTANT_SEEDS)) for mutant in MUTANTS]
        ),
        "bit-flips": lambda: _pytest(
            "bit-flips", "tests/formats/test_bit_flips.py", {"HEADWATER_BIT_FLIPS": scaled(20_000_000)}
        ),
        "kills": lambda: _pytest("kills", "tests/e2e/test_kill.py", {"HEADWATER_KILLS": scaled(3_000)}),
        "topic-kills": lambda: _pytest(
            "topic-kills", "tests/e2e/test_topic_kills.py", {"HEADWATER_TOPIC_KILLS": scaled(3_000)}
        ),
        "power-losses": lambda: _pytest(
            "power-losses", "tests/e2e/test_power_loss.py", {"HEADWATER_POWER_LOSSES": scaled(300)}
        ),
        "stateful": lambda: _pytest(
            "stateful",
            "tests/simulation/test_stateful.py",
            {"HEADWATER_STATEFUL_RUNS": scaled(20_000), "HEADWATER_STATEFUL_STEPS": 100},
        ),
        "topics-stateful": lambda: _pytest(
            "topics-stateful",
            "tests/simulation/test_topics_stateful.py",
            {"HEADWATER_TOPICS_RUNS": scaled(20_000), "HEADWATER_TOPICS_STEPS": 100},
            workers=PROCESSES,
        ),
        "topics-crashes": lambda: _pytest(
            "topics-crashes",
            "tests/simulation/test_topics_crashes.py",
            {"HEADWATER_TOPICS_CRASH_SEEDS": scaled(2_000)},
            workers=PROCESSES,
        ),
        "landing-schedules": lambda: _pytest(
            "landing-schedules",
            "tests/simulation/test_lake_schedules.py",
            {"HEADWATER_LANDING_SCHEDULES": scaled(200_000)},
            workers=PROCESSES,
        ),
        "landing-real": lambda: _pytest(
            "landing-real",
            "tests/simulation/test_lake_real.py",
            {"HEADWATER_LANDING_REAL": scaled(1_000)},
            workers=PROCESSES,
        ),
        "landing-races": lambda: _pytest(
            "landing-races", "tests/e2e_lake/test_races.py", {"HEADWATER_RACES": scaled(1_000)}
        ),
        "landing-kills": lambda: _pytest(
            "landing-kills", "tests/e2e_lake/test_spark_kills.py", {"HEADWATER_SPARK_KILLS": scaled(70)}
        ),
        "view-schedules": lambda: _pytest(
            "view-schedules",
            "tests/simulation/test_view_schedules.py",
            {"HEADWATER_VIEW_SCHEDULES": scaled(20_000)},
            workers=PROCESSES,
        ),
        "view-real": lambda: _pytest(
            "view-real",
            "tests/simulation/test_view_real.py",
            {"HEADWATER_VIEW_REAL": scaled(1_000), "HEADWATER_VIEW_CUTS": scaled(5_000)},
            workers=PROCESSES,
        ),
        "contract-minio": lambda: _pytest(
            "contract-minio", "tests/contract", {"HEADWATER_MINIO": 1}, workers=PROCESSES
        ),
        "slot-schedules": lambda: _pytest(
            "slot-schedules",
            "tests/simulation/test_slot_schedules.py",
            {"HEADWATER_SLOT_SCHEDULES": scaled(1_000_000)},
            workers=PROCESSES,
        ),
        "store-topics": lambda: _pytest(
            "store-topics",
            "tests/simulation/test_topics_on_store.py",
            {"HEADWATER_STORE_TOPICS_SEEDS": scaled(5_000)},
            workers=PROCESSES,
        ),
        "takeovers": lambda: _pytest(
            "takeovers",
            "tests/e2e_objects/test_takeover.py",
            {"HEADWATER_TAKEOVERS": scaled(100)},
            workers=PROCESSES,
        ),
        "object-landing-kills": lambda: _pytest(
            "object-landing-kills",
            "tests/e2e_objects/test_landing_kills.py",
            {"HEADWATER_OBJECT_SPARK_KILLS": scaled(14)},
        ),
        "server-kills": lambda: _pytest(
            "server-kills", "tests/e2e_server/test_kills.py", {"HEADWATER_SERVER_KILLS": scaled(3_000)}
        ),
        "server-histories": lambda: _pytest(
            "server-histories", "tests/e2e_server/test_histories.py", {"HEADWATER_HISTORIES": scaled(50)}
        ),
        "server-streams": lambda: _pytest(
            "server-streams", "tests/e2e_server/test_streams.py", {"HEADWATER_STALLED_S": scaled(60)}
        ),
        "server-standbys": lambda: _pytest(
            "server-standbys", "tests/e2e_server/test_standby.py", {"HEADWATER_STANDBYS": scaled(30)}
        ),
        "hostile": lambda: _pytest(
            "hostile", "tests/hostile/test_hostile.py", {"HEADWATER_HOSTILE_INPUTS": scaled(1_000_000)}
        ),
        "soak": lambda: _pytest("soak", "tests/soak", {"HEADWATER_SOAK_S": scaled(2_400)}),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument(
        "--only", action="append", metavar="PART", help=f"one of {', '.join(parts(1))}; may be repeated"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="a part of the full size")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too, after each part")
    arguments = parser.parse_args()
    available = parts(arguments.scale)
    wanted = arguments.only or list(available)
    results = []
    for name in wanted:
        if name not in available:
            parser.error(f"there is no part {name}")
        result = available[name]()
        results.append(result)
        print(f"\n{name}: {len(result.violations)} violations in {result.seconds:.0f} s")
        for figure, value in result.counts.items():
            print(f"  {figure:<50} {value:>14,.1f}".replace(".0 ", " ").rstrip())
        if arguments.json is not None:
            arguments.json.write_text(json.dumps([asdict(each) for each in results], indent=1) + "\n", encoding="utf-8")
    failed = sum(len(result.violations) for result in results)
    print(f"\n{len(results)} parts, {failed} violations, {sum(result.seconds for result in results):.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
