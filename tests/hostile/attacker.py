"""The attackers' process: numbers in a row, each made into an attack and played; findings are printed and counted.

    python -m tests.hostile.attacker TARGET.json --seed 0 --first 0 --count 20000
    python -m tests.hostile.attacker TARGET.json --seed 0 --first 4711 --count 1          one again, alone

TARGET.json says where the server is (attack.py, Target); tests/hostile/serve.py starts one to play with, and writes it.
The last line of the output is a JSON document: how many, how each ended, the slowest, what was found.
"""

from __future__ import annotations

import argparse
import base64
import dataclasses
import json
import os
import queue
import random
import sys
import threading
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.hostile import flight_attacks, http_attacks, wire_attacks
from tests.hostile.attack import Attack, Attacker, Finding, Target
from tests.hostile.http2 import Silence

FINDINGS_MAX = int(os.environ.get("HEADWATER_FINDINGS", "20"))
THREADS = 4
ATTACKS: dict[Attack, int] = {**flight_attacks.ATTACKS, **wire_attacks.ATTACKS, **http_attacks.ATTACKS}


def drawn(seed: int, number: int) -> tuple[Attack, random.Random]:
    """The attack of this number, and the chance that makes its bytes."""
    chance = random.Random(f"{seed}/{number}")
    return chance.choices(list(ATTACKS), list(ATTACKS.values()))[0], chance


def play(attacker: Attacker, seed: int, number: int) -> str:
    """One attack; Finding where the server failed."""
    attack, chance = drawn(seed, number)
    try:
        return attack(chance, attacker)
    except Silence as error:
        attacker.forget()
        raise Finding(f"no answer within {attacker.patience_s} s") from error
    except ConnectionRefusedError as error:
        raise Finding("nobody listens any more") from error


@dataclasses.dataclass
class Report:
    """What came of a run."""

    inputs: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0
    slowest: int = -1
    by_attack: Counter[str] = dataclasses.field(default_factory=Counter)
    outcomes: Counter[str] = dataclasses.field(default_factory=Counter)
    findings: list[str] = dataclasses.field(default_factory=list)

    def add(self, number: int, name: str, outcome: str, finding: str, took_s: float) -> None:
        self.inputs += 1
        self.by_attack[name] += 1
        self.outcomes[f"{name}: {outcome}"] += 1
        if finding:
            self.findings.append(finding)
        if took_s > self.slowest_s:
            self.slowest_s, self.slowest = took_s, number


def run(target: Target, seed: int, first: int, count: int, *, threads: int = THREADS) -> Report:
    """These numbers, by several threads: gRPC lets who sends nonsense wait for its answer."""
    numbers = queue.SimpleQueue[int]()
    for number in range(first, first + count):
        numbers.put(number)
    report = Report()
    began_s = time.monotonic()
    guard = threading.Lock()
    workers = [threading.Thread(target=_work, args=(target, seed, numbers, report, guard)) for _ in range(threads)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    report.seconds = time.monotonic() - began_s
    return report


def _work(target: Target, seed: int, numbers: queue.SimpleQueue[int], report: Report, guard: threading.Lock) -> None:
    attacker = Attacker(target)
    while len(report.findings) < FINDINGS_MAX:
        try:
            number = numbers.get_nowait()
        except queue.Empty:
            break
        name = drawn(seed, number)[0].__name__
        began_s = time.monotonic()
        finding = ""
        try:
            outcome = play(attacker, seed, number)
        except Finding as error:
            outcome, finding = "FINDING", f"{name}, --seed {seed} --first {number} --count 1: {error}"
        except Exception:  # noqa: BLE001  a mistake of the attacker's own: the run goes on, and fails at its end
            attacker.forget()
            outcome, finding = "FINDING", f"{name}, --seed {seed} --first {number}: {traceback.format_exc()}"
        with guard:
            report.add(number, name, outcome, finding, time.monotonic() - began_s)
    attacker.forget()


def load_target(path: Path) -> Target:
    found = json.loads(path.read_text(encoding="utf-8"))
    for name in ("topic", "foreign_topic", "keyed_topic"):
        found[name] = bytes.fromhex(found[name])
    found["recorded"] = tuple(base64.b64decode(each) for each in found["recorded"])
    found["dead_tokens"] = tuple(found["dead_tokens"])
    return Target(**found)


def save_target(target: Target, path: Path) -> None:
    values = dataclasses.asdict(target)
    for name in ("topic", "foreign_topic", "keyed_topic"):
        values[name] = values[name].hex()
    values["recorded"] = [base64.b64encode(each).decode() for each in target.recorded]
    path.write_text(json.dumps(values), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.attacker", description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1_000)
    arguments = parser.parse_args()
    report = run(load_target(arguments.target), arguments.seed, arguments.first, arguments.count)
    for finding in report.findings:
        print(finding, file=sys.stderr, flush=True)
    print(json.dumps(vars(report)))
    return 1 if report.findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
