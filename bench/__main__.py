"""Runs one bench: python -m bench NAME [--json] [--quick]

python -m bench peers has two options more: --only PART (as often as wanted), and --write FILE, which holds the report
so far after every part.

A bench is a module of this package with `def run(quick: bool) -> Report`.
With --json the report is one object on stdout, and nothing else is; otherwise it is tables for a person.
Exit codes: 0 every bar holds, 1 one does not, 2 usage.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import sys
from pathlib import Path

from rich.console import Console

import bench
from bench.report import Report, show

NOT_BENCHES = {"__main__", "report", "scale"}


def bench_names() -> list[str]:
    """Modules whose names begin with an underscore are parts of benches, not benches."""
    found = (module.name for module in pkgutil.iter_modules(bench.__path__))
    return sorted(name for name in found if name not in NOT_BENCHES and not name.startswith("_"))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="One question, its figures and its bars.")
    parser.add_argument("name", choices=bench_names(), help="which bench")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--quick", action="store_true", help="smaller and noisier: does it run at all")
    parser.add_argument("--only", action="append", metavar="PART", help="of peers: this part alone; may be repeated")
    parser.add_argument("--write", type=Path, metavar="FILE", help="of peers: write the report as it grows")
    given = parser.parse_args(arguments)
    if given.name != "peers" and (given.only or given.write):
        parser.error("--only and --write are options of peers")
    options = {name: value for name in ("only", "write") if (value := getattr(given, name)) is not None}

    report = importlib.import_module(f"bench.{given.name}").run(quick=given.quick, **options)
    assert isinstance(report, Report), f"bench.{given.name}.run returned {type(report).__name__}, not a Report"

    if given.json:
        print(json.dumps(report.as_dict(), indent=2, allow_nan=False))
    else:
        show(report, Console())
    return 0 if report.holds else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
