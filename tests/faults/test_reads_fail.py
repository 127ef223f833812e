"""Reads that fail: the caller gets an error, never a shorter log; and the same handle reads again when they work."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from headwater.clock import ManualClock
from headwater.errors import HeadwaterError
from headwater.log import FrameLog
from headwater.storage.simulated import SimulatedFiles
from tests.faults.life import PARTITIONS, Life
from tests.simulation.plain_model import read_from_start

READS = ["open", "list", "read_at", "read_into", "size"]

Act = Callable[[FrameLog], object]


def everything(log: FrameLog) -> object:
    return [(frame.header, bytes(frame.body)) for frame in read_from_start(log)]


def partitions(log: FrameLog) -> object:
    return [
        [(frame.header, bytes(frame.body)) for frame in log.read_partition(topic, partition)]
        for topic, partition in PARTITIONS
    ]


def lookups(log: FrameLog) -> object:
    first_us = ManualClock().now_us()
    offsets = [log.find(topic, partition, offset) for topic, partition in PARTITIONS for offset in (0, 5, 9)]
    return offsets, [log.find_time(first_us + second * 1_000_000) for second in range(9)]


def shares(log: FrameLog) -> object:
    return [log.device.topics_in(segment) for segment in log.segments()]


ACTS: list[Act] = [everything, partitions, lookups, shares]


def lived() -> Life:
    """A log of a few segments, one of them rewritten and some forgotten, closed."""
    life = Life(SimulatedFiles())
    life.run()
    assert not life.refusals and life.model.log_start > 1
    return life


def open_again(life: Life, files: SimulatedFiles, *, owner: bool) -> FrameLog:
    other = Life(files)
    other.model.log_start = life.model.log_start
    log = other.open()
    if owner:
        log.claim()
    return log


@pytest.mark.parametrize("indexes", [True, False], ids=["indexed", "without_indexes"])
@pytest.mark.parametrize("owner", [True, False], ids=["owner", "reader"])
@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
def test_a_read_that_fails_anywhere_is_an_error_or_complete_and_works_when_it_is_tried_again(
    act: Act, owner: bool, indexes: bool
) -> None:
    life = lived()
    if not indexes:
        # The first segment's index alone knows the offsets of what was forgotten.
        for name in [name for name in life.files.list("log") if name.endswith(".idx")][1:]:
            life.files.unlink(f"log/{name}")
    wanted = act(open_again(life, life.files.restart(), owner=owner))
    number = 0
    errors = 0
    while True:
        number += 1
        files = life.files.restart()
        log = open_again(life, files, owner=owner)
        files.calls.clear()
        files.fail(number, errno.EIO, verbs=READS)
        try:
            found = act(log)
        except OSError:
            errors += 1
            assert act(log) == wanted, f"read {number} failed, and the next try is wrong"
            continue
        assert found == wanted, f"read {number} failed, and was not noticed"
        if sum(verb in READS for verb, _ in files.calls) < number:
            break

    assert errors > 3


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
def test_an_opening_of_which_any_read_fails_is_an_error_or_complete(clean: bool) -> None:
    life = lived()
    if not clean:
        life.append((1, 0), (2, 0))
        life.files = life.files.restart()
    wanted = everything(open_again(life, life.files.restart(), owner=False))
    number = 0
    errors = 0
    while True:
        number += 1
        files = life.files.restart()
        files.fail(number, errno.EIO, verbs=READS)
        try:
            log = open_again(life, files, owner=False)
        except OSError:
            errors += 1
            continue
        struck = sum(verb in READS for verb, _ in files.calls) >= number
        files.heal()
        assert everything(log) == wanted, f"read {number} failed, and was not noticed"
        if not struck:
            break

    assert errors > 10


def test_a_recovery_of_which_any_read_fails_changes_nothing_that_was_acknowledged() -> None:
    life = lived()
    life.append((1, 0), (2, 0))
    number = 0
    errors = 0
    while True:
        number += 1
        files = life.files.restart()
        other = Life(files)
        other.model.log_start = life.model.log_start
        log = other.open()
        files.calls.clear()
        files.fail(number, errno.EIO, verbs=READS)
        try:
            log.claim()
        except HeadwaterError:
            errors += 1
        struck = sum(verb in READS for verb, _ in files.calls) >= number
        files.heal()
        log.close()
        life.check(files)
        if not struck:
            break

    assert errors > 10
