"""What every test may use: a seed that is the whole repro, and Hypothesis set to replay.

`seed` is a number that belongs to the test (made from its name, so it is the same in every run), unless
`--seed N` gives one, or `--seed random` draws one.  When a test that used it fails, the report shows the
seed and the command that replays it.

NOT HERE Fixtures of one suite: they stand beside that suite.
"""

from __future__ import annotations

import random
import shlex
import zlib
from collections.abc import Generator
from typing import Any

import hypothesis
import pytest

SEED_MAX = 2**32

USED_SEED = pytest.StashKey[int]()

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
