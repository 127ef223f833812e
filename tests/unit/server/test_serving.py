"""A server from its beginning to its end: the claim, standing by, a log that is lost, the port, the stop."""

from __future__ import annotations

import errno
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.api.opening import Opened, open_engine
from headwater.errors import Fenced, InvalidRequest, LogLocked, Unavailable
from headwater.protocol import calls
from headwater.server.access import OpenAccess
from headwater.server.serving import Server
from headwater.server.settings import ServerSettings
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.simulated import SimulatedFiles
from headwater.storage.simulated_store import SimulatedStore
from tests.servers.headwater import on_loopback, serving
from tests.unit.server.wire import Wire

WAIT_S = 30.0


def server_over(opened: Opened, settings: ServerSettings) -> Server:
    return Server(opened.engine, None, opened.directory, settings, OpenAccess(), store=opened.store)


def close(opened: Opened) -> None:
    opened.engine.close()
    opened.lake.close()


def test_a_server_claims_its_log_before_anybody_is_let_in(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as server:
        assert server.ready and server.served.engine.claimed

        opened = open_engine(tmp_path / "data")
        second = server_over(opened, on_loopback())
        with pytest.raises(LogLocked):
            second.start()
        assert not second.ready
        second.stop()
        close(opened)
    assert not server.ready


def test_a_standby_waits_answers_nothing_and_goes_on_when_the_owner_has_gone(tmp_path: Path) -> None:
    opened = open_engine(tmp_path / "data")
    with serving(tmp_path / "data") as owner:
        owner_wire = Wire(owner.location)
        owner_wire.make("orders")
        owner_wire.close()
        standby = server_over(opened, on_loopback(standby=True))
        waiting = threading.Thread(target=standby.start)
        waiting.start()
        with pytest.raises(Unavailable, match="stands by"):
            standby.served.authenticate(None, None)
        assert not standby.served.engine.claimed
    waiting.join(WAIT_S)

    assert standby.ready
    wire = Wire(standby.location)
    assert [each.name for each in wire.call(calls.TOPICS)] == ["orders"]
    wire.close()
    standby.stop()
    close(opened)


def test_a_standby_that_is_ended_before_its_turn_never_listens(tmp_path: Path) -> None:
    opened = open_engine(tmp_path / "data")
    with serving(tmp_path / "data"):
        standby = server_over(opened, on_loopback(standby=True))
        standby.ended.set()

        assert not standby.start()
        assert not standby.ready
        standby.stop()
    close(opened)


def test_a_log_that_was_taken_over_is_lost_and_its_callers_go_elsewhere() -> None:
    store = SimulatedStore()
    opened = open_engine(BucketFiles(store))
    server = server_over(opened, on_loopback())
    server.start()
    wire = Wire(server.location)
    topic = wire.make("orders")
    other = open_engine(BucketFiles(store), take_over=True)
    other.engine.claim()

    put = wire.put(topic)
    put.send(1, [{"id": 1, "note": "x"}])
    first = put.answer()
    put.send(2, [{"id": 2, "note": "x"}])
    second = put.answer()
    put.end()

    assert first.failure is not None and first.failure.kinds[0] in ("OutcomeUnknown", "Unavailable")
    assert second.failure is not None and second.failure.kinds[0] == "Unavailable"
    assert isinstance(server.wait(), Fenced)
    wire.close()
    server.stop()
    close(opened)
    close(other)


def test_a_failed_sync_is_told_as_unknown_then_as_unavailable_and_ends_the_server() -> None:
    files = SimulatedFiles()
    with serving(files) as server:
        wire = Wire(server.location)
        put = wire.put(wire.make("orders"))
        files.fail(1, errno.EIO, verbs=["sync_data"], for_ever=True)

        put.send(1, [{"id": 1, "note": "x"}])
        first = put.answer()
        put.send(2, [{"id": 2, "note": "x"}])
        second = put.answer()
        put.end()

        assert first.failure is not None and first.failure.kinds[0] == "OutcomeUnknown"
        assert second.failure is not None and second.failure.kinds[0] == "Unavailable"
        assert server.wait() is not None
        wire.close()
        files.heal()


def test_a_port_that_another_server_has_is_not_shared(tmp_path: Path) -> None:
    with serving(":memory:") as server:
        taken = on_loopback(listen=("127.0.0.1", server.port))
        opened = open_engine(":memory:")
        second = server_over(opened, taken)

        with pytest.raises(Unavailable, match="cannot listen"):
            second.start()
        assert not opened.engine.claimed, "the log is left alone where nobody can be served"
        second.stop()
        close(opened)


def test_a_server_that_everybody_may_use_is_not_made_beyond_loopback() -> None:
    opened = open_engine(":memory:")

    with pytest.raises(InvalidRequest, match="TLS"):
        server_over(opened, replace(ServerSettings(), listen=("0.0.0.0", 0)))
    close(opened)


def test_a_stop_is_a_stop_however_often_and_lets_go_of_the_port() -> None:
    with serving(":memory:") as server:
        port = server.port
        server.stop()
        server.stop()

        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
