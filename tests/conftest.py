"""What every test may use: a seed that is the whole repro, and Hypothesis set to replay.

`seed` is a number that belongs to the test (made from its name, so it is the same in every run), unless
`--seed N` gives one, or `--seed random` draws one.  When a test that used it fails, the report shows the
seed and the command that replays it.

A test that hangs is ended twice.  pytest-timeout raises in it, with the signal of an alarm.  A test that is stuck in C
code never sees that: GRACE_S later a thread of C writes the stack of every thread and ends the process.  pytest-xdist
then names the test and goes on with a new process.

NOT HERE Fixtures of one suite: they stand beside that suite.
"""

from __future__ import annotations

import faulthandler
import os
import random
import shlex
import sys
import zlib
from collections.abc import Generator
from typing import Any

import hypothesis
import pytest

SEED_MAX = 2**32

GRACE_S = 30.0

USED_SEED = pytest.StashKey[int]()
REAL_STDERR = pytest.StashKey[int]()

# A failure must come again when the command is given again, so the everyday profile draws the same examples
# each time; the torture profile goes where no run went before.  No deadlines: the machine may be busy.
hypothesis.settings.register_profile("everyday", derandomize=True, deadline=None, print_blob=True, database=None)
hypothesis.settings.register_profile("torture", deadline=None, print_blob=True)
hypothesis.settings.load_profile("everyday")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seed",
        default=None,
        metavar="N",
        help="the seed for every test that takes one: a number, or `random`; by default each test has its own",
    )


def pytest_configure(config: pytest.Config) -> None:
    given = config.getoption("--seed")
    if given is not None and given != "random" and not given.isdecimal():
        raise pytest.UsageError(f"--seed takes a number or `random`, not {given!r}")
    # A descriptor of its own: while a test runs, number 2 is a file that nobody reads when the process dies.
    assert sys.__stderr__ is not None
    config.stash[REAL_STDERR] = os.dup(sys.__stderr__.fileno())


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[REAL_STDERR])


def _end_if_stuck(item: pytest.Item) -> None:
    mark = item.get_closest_marker("timeout")
    given = item.config.getoption("timeout") or item.config.getini("timeout")
    limit = float(mark.args[0] if mark is not None else given)
    if limit > 0:
        faulthandler.dump_traceback_later(limit + GRACE_S, exit=True, file=item.config.stash[REAL_STDERR])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    _end_if_stuck(item)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    _end_if_stuck(item)  # again, because pytest calls it off for a test that has failed


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The number from which the test draws all that it draws."""
    given = request.config.getoption("--seed")
    if given is None:
        value = zlib.crc32(request.node.nodeid.encode())
    elif given == "random":
        value = random.SystemRandom().randrange(SEED_MAX)
    else:
        value = int(given)
    request.node.stash[USED_SEED] = value
    return value


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    used = item.stash.get(USED_SEED, None)
    if report.failed and used is not None:
        replay = f"python -m pytest {shlex.quote(item.nodeid)} --seed {used}"
        report.sections.append(("seed", f"seed {used}; replay with: {replay}"))
    return report
