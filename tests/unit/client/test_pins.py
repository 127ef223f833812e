"""Pins that a server holds for its clients: for as long as they are heard of."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.client import pins as client_pins
from headwater.clock import ManualClock
from headwater.errors import Closed, Unavailable
from headwater.lake.engine_log import EngineLog
from headwater.protocol.lake_calls import LEASE_S
from headwater.server import pins as server_pins
from headwater.server.pins import ServedPins
from tests.unit.client.served_lakes import PLAIN, LakeServer, serve_lake


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeServer]:
    folder: Path = tmp_path_factory.mktemp("pins")
    with serve_lake(folder) as served:
        served.log.topic("orders", PLAIN)
        for _ in range(3):
            served.log["orders"].append(pa.table({"x": [1]}, schema=PLAIN))
        yield served


def held(served: LakeServer) -> list[int]:
    return sorted(pin.lsn for pin in served.server.served.engine.pins.read())


def log_of(served: LakeServer) -> EngineLog:
    log = served.server.served.log
    assert isinstance(log, EngineLog)
    return log


def wait_until(look: Callable[[], bool]) -> None:
    for _ in range(500):
        if look():
            return
        threading.Event().wait(0.02)
    raise AssertionError("it did not come to be in ten seconds")


def test_a_pin_holds_the_servers_log_until_it_is_released(served: LakeServer) -> None:
    with served.source("reader") as source, served.source("lander") as lander:
        all_of_it = source.hold(None)
        later = source.hold(3, [11, 12, 13, 14])
        assert held(served) == [1, 3, 3] and lander.pinned() == {11, 12, 13, 14}

        later.release()
        later.release()
        wait_until(lambda: held(served) == [1])
        all_of_it.release()
        wait_until(lambda: held(served) == [])


def test_a_client_that_is_closed_holds_nothing_any_more(served: LakeServer) -> None:
    with served.source("reader") as source:
        source.hold(None)
        source.hold(2)
    assert held(served) == []
    with pytest.raises(Closed):
        source._pins.hold(None, ())
    source.close()


def test_a_child_that_was_forked_releases_nothing(served: LakeServer) -> None:
    with served.source("reader") as source:
        pin = source.hold(2)
        assert isinstance(pin, client_pins.ServedPin)
        pin._pid = os.getpid() + 1
        pin.release()
        assert source._pins._left.empty() and held(served) == [2]


def test_pins_are_renewed_and_asked_for_again_where_the_server_has_lost_them(
    served: LakeServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(client_pins, "RENEW_S", 0.02)
    pins = served.server.served.pins
    assert pins is not None
    with served.source("reader") as source:
        pin = source.hold(2)
        assert isinstance(pin, client_pins.ServedPin)
        pins.release("reader", [pin.name])
        wait_until(lambda: held(served) == [2])

        pin.lsn = 0
        pins.release("reader", [pin.name])
        with caplog.at_level(logging.WARNING, "headwater.client"):
            wait_until(lambda: pin.lsn == 1)
        assert "let go of rows" in caplog.text


def test_a_server_that_does_not_answer_is_told_of_and_asked_again(
    served: LakeServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with served.source("reader") as source:
        source.hold(2)

        def nobody(*_: object) -> None:
            raise Unavailable("nobody is there")

        with monkeypatch.context() as broken, caplog.at_level(logging.INFO, "headwater.client"):
            broken.setattr(source._connection, "call", nobody)
            source._pins._renew()
            source._pins._release(list(source._pins._held))
        assert "tried again" in caplog.text and "by itself" in caplog.text
        source._pins._renew()
    pins = served.server.served.pins
    assert pins is not None
    pins.release("reader", [name for _, name in pins._held])


def test_what_a_client_does_not_renew_ends_by_itself(served: LakeServer) -> None:
    clock = ManualClock()
    pins = ServedPins(log_of(served), clock)
    assert pins.hold("one", b"a" * 16, None, ()) == 1
    clock.advance(LEASE_S - 1)
    assert pins.hold("one", b"b" * 16, 2, ()) == 2
    assert pins.renew("one", [b"b" * 16, b"c" * 16]) == [b"c" * 16]
    assert pins.renew("two", [b"a" * 16]) == [b"a" * 16], "a pin is its principal's"
    clock.advance(2)
    pins.expire()
    assert held(served) == [2]

    assert pins.hold("one", b"b" * 16, 2, ()) == 2, "asking twice is asking once"
    pins.close()
    assert held(served) == []
    with pytest.raises(Closed):
        pins.hold("one", b"a" * 16, None, ())


def test_a_thread_looks_after_them(served: LakeServer) -> None:
    pins = ServedPins(log_of(served), served.server.served.engine.clock, lease_s=0.05)
    pins.hold("one", b"a" * 16, None, ())
    wait_until(lambda: held(served) == [])
    pins.close()
    ServedPins(log_of(served), ManualClock()).close()


def test_a_principal_holds_so_many_and_no_more(served: LakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_pins, "PINS_MAX", 2)
    pins = ServedPins(log_of(served), ManualClock())
    for name in (b"a" * 16, b"b" * 16):
        pins.hold("one", name, None, ())
    with pytest.raises(Unavailable):
        pins.hold("one", b"c" * 16, None, ())
    pins.hold("two", b"c" * 16, None, ())
    pins.close()


def test_a_pin_that_cannot_be_released_is_told_of(
    served: LakeServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pins = ServedPins(log_of(served), ManualClock())
    pins.hold("one", b"a" * 16, None, ())
    [kept] = pins._held.values()

    def broken() -> None:
        raise OSError("no disk")

    with monkeypatch.context() as failing, caplog.at_level(logging.WARNING, "headwater.server"):
        failing.setattr(type(kept.hold), "release", lambda self: broken())
        pins.release("one", [b"a" * 16])
    assert "no disk" in caplog.text
    kept.hold.release()
    pins.close()
