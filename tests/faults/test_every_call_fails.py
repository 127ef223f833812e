"""Every call that a life of the log makes fails, once and for ever, with every error: no promise is broken.

The n-th call is call n of the life in life.py, in which nothing failed before; so together they are every call site
that the life reaches, reads and recovery included.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from headwater.storage.simulated import SimulatedFiles
from tests.faults.life import Life
from tests.simulation.invariants import quiet

WRITES = frozenset({"append", "write_at"})
READS = frozenset({"open", "list", "read_at", "read_into", "size"})
VERBS = frozenset(
    {
        "append", "write_at", "sync_data", "sync_all", "truncate", "create", "rename", "unlink", "sync_directory",
        "make_directory", "allocate", "lock", "open", "list", "read_at", "read_into", "size",
    }
)  # fmt: skip
SHORT = -1


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


def calls_of_a_life() -> list[tuple[str, str]]:
    files = SimulatedFiles()
    life = Life(files)
    life.run()
    assert not life.refusals
    return files.calls


def test_the_life_reaches_every_verb_but_the_one_that_only_faults_need() -> None:
    reached = {verb for verb, _ in calls_of_a_life()}

    assert reached == VERBS - {"truncate"}


@pytest.mark.parametrize("for_ever", [False, True], ids=["once", "for_ever"])
@pytest.mark.parametrize(
    "error", [errno.EIO, errno.ENOSPC, errno.EINTR, SHORT], ids=["EIO", "ENOSPC", "EINTR", "short"]
)
def test_whatever_call_fails_no_promise_is_broken_and_the_log_goes_on(error: int, for_ever: bool) -> None:
    calls = calls_of_a_life()
    struck = 0
    for number, (verb, name) in enumerate(calls, 1):
        # What a read failed with makes no difference to anybody, and only a write can be short.
        if (error == SHORT and verb not in WRITES) or (error != errno.EIO and verb in READS):
            continue
        try:
            struck += live_with(number, error, for_ever, states=1 if verb in READS else 4)
        except BaseException as failure:
            failure.add_note(f"call {number}, {verb} {name}, failed{' for ever' if for_ever else ''}")
            raise

    # Recovery reads again what it could not read, and an index can be rebuilt: not every failure is noticed.
    assert struck > 0


def live_with(number: int, error: int, for_ever: bool, *, states: int) -> int:
    """Live, with one fault; what is left when it has struck, and at the end, keeps all promises."""
    files = SimulatedFiles(number)
    life = Life(files)
    short = error == SHORT
    files.fail(number, errno.ENOSPC if short else error, for_ever=for_ever, short=short)
    looked = False

    def after_step() -> None:
        nonlocal looked
        if not looked and len(files.calls) >= number:
            looked = True
            for state in life.states()[:states]:
                life.check(state)

    life.after_step = after_step
    life.run()
    assert looked
    files.heal()
    life.close()
    life.check(files)
    return len(life.refusals)
