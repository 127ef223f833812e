"""Follow docs/tutorial.md word for word: `python -m tests.tutorial`, with `--spark` to its end.

    --spark         the part with Spark too: it downloads Spark, and jars into an empty cache
    --here          without the part that installs: with the environment of this Python, for a quick look
    --limit-s N     FAIL if it took longer; 120 without Spark and 600 with it, if not given
    --transcript F  what the terminal showed, into a file

A home folder that did not exist before, in which `headwater` is this tree; a new virtual environment in it; every line
typed into a terminal; what the terminal shows compared with the page.  It ends in PASS with the seconds of each
section, or in what differed, with exit code 1.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.tutorial.page import PAGE, Step, difference, steps_of
from tests.tutorial.terminal import Terminal, has_tmux

TREE = PAGE.parents[1]
INSTALL, SPARK, AFTER = "Install", "With Spark", "Where to go from here"
STEP_S_MAX = 600.0
PASSED_ON = ("PATH", "LANG", "LC_ALL", "JAVA_HOME", "SSL_CERT_FILE", "http_proxy", "https_proxy", "no_proxy")


class Differs(Exception):
    """The terminal showed something else than the page."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tutorial", description=__doc__.split("\n")[0])
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--here", action="store_true")
    parser.add_argument("--limit-s", type=float)
    parser.add_argument("--transcript", type=Path)
    given = parser.parse_args(arguments)
    if not has_tmux():
        print("this types into tmux, and tmux is not on the path", file=sys.stderr)
        return 2
    left_out = {AFTER} | (set() if given.spark else {SPARK}) | ({INSTALL} if given.here else set())
    steps = [step for step in steps_of(PAGE.read_text()) if step.section not in left_out]
    if given.here:  # that environment is somebody's, and has what is needed
        steps = [step for step in steps if not step.typed.startswith("pip ")]
    limit_s = given.limit_s or (600.0 if given.spark else 120.0)

    with tempfile.TemporaryDirectory(prefix="headwater-tutorial-") as place:
        home = Path(place)
        with Terminal(home, environment(home, here=given.here)) as terminal:
            seconds: dict[str, float] = {}
            try:
                follow(terminal, steps, seconds)
            except (Differs, TimeoutError) as error:
                print(f"FAIL  {error}")
                return 1
            finally:
                for section, took in seconds.items():
                    print(f"{took:7.1f} s  {section}")
                if given.transcript:
                    given.transcript.write_text("\n".join(terminal.screen()) + "\n")
    total = sum(seconds.values())
    print(f"{'PASS' if total <= limit_s else 'FAIL'}  {len(steps)} steps in {total:.1f} s, limit {limit_s:.0f} s")
    return 0 if total <= limit_s else 1


def follow(terminal: Terminal, steps: list[Step], seconds: dict[str, float]) -> None:
    """Do every step, and count the seconds that each section takes."""
    for step in steps:
        began = time.monotonic()
        if step.file:
            terminal.save(step.file, step.typed, within_s=STEP_S_MAX)
        else:
            seen, code = terminal.type(step.typed, within_s=STEP_S_MAX)
            where = f"{step.section}: {step.prompt} {step.typed}"
            if code != 0 and step.prompt == "$" and not step.typed.endswith("kill -9 $!"):
                raise Differs(f"{where}\nended with exit code {code}\n{seen}")
            if step.prompt == ">>>" and "Traceback" in seen and "Traceback" not in step.shown:
                raise Differs(f"{where}\n{seen}")
            if differs := difference(step, seen):
                raise Differs(f"{where}\n{differs}")
        seconds[step.section] = seconds.get(step.section, 0.0) + time.monotonic() - began


def environment(home: Path, *, here: bool) -> dict[str, str]:
    """What a newcomer's shell has: a home without caches, pip as this machine has it set, no HEADWATER_*."""
    (home / "headwater").symlink_to(TREE)
    conf = home / "spark-conf"
    conf.mkdir()
    # Java takes the home folder from the user's entry, not from HOME: Spark is told where an empty cache is.
    (conf / "spark-defaults.conf").write_text(f"spark.jars.ivy {home / 'ivy'}\n")
    found = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    found |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    if here:
        found["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{found['PATH']}"
    return {**found, "HOME": str(home), "SPARK_CONF_DIR": str(conf), "SPARK_LOCAL_IP": "127.0.0.1"}


if __name__ == "__main__":
    raise SystemExit(main())
