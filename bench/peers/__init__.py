"""What does the field do, on the same machine, with the same rows?  Real software, started here, side by side.

    python -m bench peers [--quick] [--json] [--only PART] [--write FILE]

A part is a module of this package that has a `PART`: one question, the figures that answer it, and how they are taken
(`bench.peers._part`).  Parts run one after the other, each in a process of its own with a limit of time
(`bench.peers._running`), so that what one leaves behind does not touch the next.

PROMISE  Every figure of every part has its name in the report, whatever happens.  A part that fails or runs out of
         time is a bar that does not hold; its figures that were not taken are null, and `PART.failed` in the settings
         says why.  Figures are medians over rounds, `NAME_lowest` and `NAME_highest` beside them; inside a round the
         sides take turns.  With `write` the report so far is on disk after every part.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from bench.peers._part import FULL, QUICK, Part, Size
from bench.peers._record import Taken, as_report, merged
from bench.peers._running import run_part, tell
from bench.report import Report

PARTS = (
    "kafka",
    "nats",
    "partitions",
    "start_up",
    "kafka_spark",
    "pyiceberg_appends",
    "small_commits",
    "many_topics",
    "keyed_merge",
    "columns",
)
"""The modules, in the order in which they run and in which the page shows them."""

QUICK_S_MAX = 20 * 60.0
"""A quick run takes no longer than this: what is left when time runs out is said to have failed for want of it."""


def part_named(name: str) -> Part:
    part = import_module(f"bench.peers.{name}").PART
    assert isinstance(part, Part), f"bench.peers.{name}.PART is {type(part).__name__}, not a Part"
    assert part.name == name, f"bench.peers.{name}.PART calls itself {part.name}"
    return part


def run(quick: bool, only: Sequence[str] = (), write: Path | None = None, size: Size | None = None) -> Report:
    """All parts, or only those named; those not named are kept as `write` has them from before."""
    size = size or (QUICK if quick else FULL)
    unknown = set(only) - set(PARTS)
    if unknown:
        raise SystemExit(f"there is no part {', '.join(sorted(unknown))}: there are {', '.join(PARTS)}")
    wanted = [part_named(name) for name in PARTS if not only or name in only]
    left_s = QUICK_S_MAX if size is QUICK else float("inf")
    taken: list[Taken] = []
    for number, part in enumerate(wanted, 1):
        limit_s = min(part.limit_s(size), left_s)
        tell(f"part {number} of {len(wanted)}, {part.name}, at most {limit_s:,.0f} s: {part.question}")
        taken.append(run_part(part, size, limit_s))
        left_s = max(0.0, left_s - taken[-1].seconds)
        if write is not None:
            _write(write, taken, size, keep=bool(only))
    return as_report(taken, size)


def _write(path: Path, taken: Sequence[Taken], size: Size, keep: bool) -> None:
    """The report so far; where some parts only are run, those of an earlier run stay."""
    before = json.loads(path.read_text(encoding="utf-8")) if keep and path.exists() else None
    found = merged(before, taken, size)
    whole = path.with_name(path.name + ".new")
    whole.write_text(json.dumps(found, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    whole.replace(path)
