"""Upkeep: the owner looks after the log by itself, tells of trouble, and ends with the log."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from headwater.clock import SystemClock
from headwater.errors import Closed, Unavailable
from headwater.topics import upkeep
from headwater.topics.engine import Engine
from tests.unit.topics.small_engines import PLAIN, QUIET, WAIT_S, World, engine_of


def upkeep_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "headwater-upkeep"]


def test_the_owner_looks_after_the_log_by_itself_until_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(upkeep_threads())
    cleaned = threading.Semaphore(0)
    cleanup = Engine.cleanup

    def counted(self: Engine) -> Any:
        try:
            return cleanup(self)
        finally:
            cleaned.release()

    monkeypatch.setattr(Engine, "cleanup", counted)
    world = World(settings=replace(QUIET, upkeep_interval_s=0.001))
    world.clock = SystemClock()  # type: ignore[assignment]
    log = world.log()
    assert len(upkeep_threads()) == before, "a reader has none"
    log.topic("a", PLAIN)
    log["a"].append({"x": 1})

    assert cleaned.acquire(timeout=WAIT_S)
    assert cleaned.acquire(timeout=WAIT_S), "again and again"
    log.close()

    assert len(upkeep_threads()) == before


def test_upkeep_that_meets_trouble_says_so_and_tries_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = threading.Semaphore(0)

    def failing(self: Engine) -> Any:
        tried.release()
        raise Unavailable("the disk is full")

    monkeypatch.setattr(Engine, "cleanup", failing)
    log = World(settings=replace(QUIET, upkeep_interval_s=0.001)).log()
    log.topic("a", PLAIN)

    assert tried.acquire(timeout=WAIT_S) and tried.acquire(timeout=WAIT_S)
    log.close()

    assert "upkeep did not run: the disk is full" in caplog.text


def test_upkeep_ends_where_the_log_was_closed_under_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(self: Engine) -> Any:
        raise Closed("this log is closed")

    monkeypatch.setattr(Engine, "cleanup", closed)
    log = World(settings=replace(QUIET, upkeep_interval_s=0.001)).log()
    log.topic("a", PLAIN)
    upkeep = engine_of(log)._upkeep
    assert upkeep is not None

    upkeep.join(WAIT_S)

    assert not upkeep.is_alive()
    log.close()


def test_without_an_interval_there_is_no_upkeep_thread() -> None:
    log = World().log()
    log.topic("a", PLAIN)

    assert engine_of(log)._upkeep is None
    assert log.cleanup().deleted == ()


def test_notes_are_given_by_an_owner_only() -> None:
    log = World().log()

    assert engine_of(log).cleanup_notes() == ()


def test_a_sealed_segment_wakes_the_upkeep_before_its_interval_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    cleaned = threading.Semaphore(0)
    monkeypatch.setattr(Engine, "cleanup", lambda self: cleaned.release())
    monkeypatch.setattr(upkeep, "PAUSE_S", 0.001)
    world = World(settings=replace(QUIET, upkeep_interval_s=3600))
    log = world.log()
    log.topic("a", PLAIN)
    log["a"].append({"x": 1})
    assert not cleaned.acquire(timeout=0.05), "nothing has happened yet"

    engine_of(log).shard.log.roll()
    log["a"].append({"x": 2})

    assert cleaned.acquire(timeout=WAIT_S)
    assert not cleaned.acquire(timeout=0.05), "once is enough"
    log["a"].append_future({"x": 3}).result(WAIT_S)
    engine_of(log).shard.log.roll()
    log["a"].append_future({"x": 4}).result(WAIT_S)
    assert cleaned.acquire(timeout=WAIT_S)
    log.close()
