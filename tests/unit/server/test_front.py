"""The door before Flight, with a real Flight server behind it: what passes, what is held, what is ended."""

from __future__ import annotations

import gzip
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import flight

from headwater.errors import Unavailable
from headwater.server import front as front_module
from headwater.server.front import Front
from headwater.server.settings import ServerLimits, TlsFiles
from headwater.server.tls import server_context
from headwater.settings import MIB
from tests.hostile import flight_bytes
from tests.hostile.http2 import Http2, grpc_message, request_headers
from tests.hostile.memory import Watched
from tests.servers.certificates import make_certificates

LIMITS = ServerLimits(message_bytes_max=8 * MIB, authentication_s=0.5)
ACTION = flight_bytes.SERVICE + b"DoAction"


class Behind(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Answers with how many bytes came, and by whose certificate; the word `hello` says who one is."""

    front: Front

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> Iterator[flight.Result]:
        peer = context.peer()
        assert self.front.knows(peer)
        if action.type == "hello":
            self.front.authenticated(peer)
        found = f"{len(action.body)} {self.front.identity_of(peer)}"
        return iter([flight.Result(found.encode())])

    def do_get(self, _context: flight.ServerCallContext, _ticket: flight.Ticket) -> flight.GeneratorStream:
        batch = pa.record_batch([pa.array([b"x" * MIB], pa.binary())], names=["a"])
        return flight.GeneratorStream(batch.schema, (batch for _ in range(400)))


@contextmanager
def fronted(limits: ServerLimits = LIMITS, tls: TlsFiles | None = None) -> Iterator[Front]:
    with Behind("grpc://127.0.0.1:0") as server:
        context = None if tls is None else server_context(tls, "h2")
        front = server.front = Front(("127.0.0.1", 0), server.port, limits, context)
        front.start()
        try:
            yield front
        finally:
            front.stop()


def ask(front: Front, name: str = "hello", body: bytes = b"", **options: object) -> str:
    scheme = "grpc+tls" if options else "grpc"
    with flight.connect(f"{scheme}://localhost:{front.port}", **options) as client:
        return told(client, name, body)


def told(client: flight.FlightClient, name: str, body: bytes = b"") -> str:
    (result,) = client.do_action(flight.Action(name, pa.py_buffer(body)))
    return bytes(result.body).decode()


def ended(front: Front, data: bytes) -> bool:
    """Whether the front ends a connection on which this was sent, and nothing more."""
    with socket.create_connection(("127.0.0.1", front.port), timeout=5) as connection:
        connection.sendall(data)
        return is_ended(connection)


def is_ended(connection: socket.socket) -> bool:
    try:
        while connection.recv(1_000):
            pass
    except ConnectionResetError:
        pass  # That is an end, too.
    except TimeoutError:
        return False
    return True


def until(what: Callable[[], bool], seconds: float = 5.0) -> None:
    end_s = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end_s, "it did not come to that"
        time.sleep(0.01)


def test_a_call_goes_through_and_its_answer_comes_back() -> None:
    with fronted() as front:
        assert ask(front, body=b"x" * 300_000) == "300000 None"


def test_a_certificate_is_known_behind_the_front(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    mine = certificates.client("loader")
    with fronted(tls=certificates.tls(client_ca=True)) as front:
        roots = certificates.ca_file.read_bytes()
        found = ask(
            front,
            tls_root_certs=roots,
            cert_chain=mine.cert_file.read_bytes(),
            private_key=mine.key_file.read_bytes(),
        )
        assert found == "0 loader"
        with pytest.raises(flight.FlightUnavailableError):
            ask(front, tls_root_certs=roots)


def test_plain_bytes_to_a_port_with_tls_are_closed(tmp_path: Path) -> None:
    with fronted(tls=make_certificates(tmp_path).tls()) as front:
        assert ended(front, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")


def test_what_did_not_come_through_here_is_not_known() -> None:
    with fronted() as front:
        for peer in (
            "ipv4:127.0.0.1:1",
            "ipv4:127.0.0.1:x",
            "unix:",
            "",
            "ipv6:[::1]:1",
            f"ipv4:127.0.0.1:{front.port}",
        ):
            assert not front.knows(peer) and front.identity_of(peer) is None
            front.authenticated(peer)


def test_a_compressed_message_ends_its_connection_before_it_is_unpacked() -> None:
    bomb = gzip.compress(flight_bytes.action(b"hello", b"\0" * (64 * MIB)), 1)
    with fronted() as front, Watched(os.getpid()) as memory:
        with Http2("127.0.0.1", front.port) as connection:
            stream = connection.open(request_headers(ACTION, (b"grpc-encoding", b"gzip")))
            connection.send(stream, grpc_message(bomb, compressed=1), end=True)
            assert connection.answer(stream, within_s=5).how == "closed"
        assert list(front.refused) == ["a message that is compressed: send it as it is"]
    assert memory.peak_bytes - memory.before_bytes < 60 * MIB


def test_a_message_above_the_limit_ends_its_connection() -> None:
    with fronted() as front, flight.connect(f"grpc://127.0.0.1:{front.port}") as client:
        assert told(client, "hello") == "0 None"
        assert told(client, "hello", b"x" * (7 * MIB)).startswith(str(7 * MIB))
        with pytest.raises(flight.FlightUnavailableError):
            told(client, "hello", b"x" * (8 * MIB))
        assert list(front.refused) == ["a message is too large: split it"]


def test_a_connection_of_nobody_known_is_held_and_then_ended() -> None:
    with fronted() as front, Http2("127.0.0.1", front.port) as connection:
        stream = connection.open(request_headers(ACTION))
        began_s = time.monotonic()
        connection.send(stream, grpc_message(flight_bytes.action(b"hello", b"x" * (4 * MIB))), end=True)
        assert connection.answer(stream, within_s=5).how == "closed"
        assert 0.3 < time.monotonic() - began_s < 3
        assert list(front.refused) == ["nobody was authenticated in time"]


def test_who_has_been_heard_of_may_stay_and_send_more() -> None:
    with fronted() as front, flight.connect(f"grpc://127.0.0.1:{front.port}") as client:
        assert told(client, "hello") == "0 None"
        time.sleep(1.0)
        assert told(client, "other", b"x" * (4 * MIB)).startswith(str(4 * MIB))
        assert not front.refused


def test_what_was_held_is_passed_on_once_somebody_is_known() -> None:
    """Another call on the same connection says who it is while the first waits."""
    with fronted() as front, Http2("127.0.0.1", front.port) as connection:
        body = grpc_message(flight_bytes.action(b"other", b"x" * (3 * MIB)))
        large, small = connection.open(request_headers(ACTION)), connection.open(request_headers(ACTION))
        connection.send(large, body[: MIB // 2])
        connection.send(small, grpc_message(flight_bytes.action(b"hello", b"")), end=True)
        connection.send(large, body[MIB // 2 :], end=True)
        assert connection.answer(small, within_s=5).status == 0
        assert str(3 * MIB).encode() in connection.answer(large, within_s=5).body


def test_a_silent_connection_is_ended() -> None:
    with fronted() as front:
        assert ended(front, b"") and ended(front, b"PRI * HTTP/2.0\r\n\r\n")
        assert front.refused == {"nobody was authenticated in time": 2}


def test_a_connection_on_which_nothing_moves_is_ended() -> None:
    with fronted(ServerLimits(idle_s=0.5)) as front, Http2("127.0.0.1", front.port) as connection:
        for _ in range(5):
            time.sleep(0.2)
            stream = connection.open(request_headers(ACTION))
            connection.send(stream, grpc_message(flight_bytes.action(b"hello", b"")), end=True)
            assert connection.answer(stream, within_s=5).status == 0
        began_s = time.monotonic()
        held = connection.open(request_headers(ACTION))
        assert connection.answer(held, within_s=5).how == "closed"
        assert time.monotonic() - began_s > 0.4
        assert front.refused == {"nothing moved for too long": 1}


def test_of_many_connections_of_nobody_known_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_module, "UNKNOWN_MAX", 3)
    with fronted(ServerLimits(authentication_s=60)) as front:
        silent = [socket.create_connection(("127.0.0.1", front.port), timeout=5) for _ in range(3)]
        assert ask(front) == "0 None"
        assert is_ended(silent[0])
        for each in silent:
            each.close()
        assert front.refused == {"too many connections of nobody known": 1}


def test_the_connection_too_many_is_ended() -> None:
    with fronted(ServerLimits(streams_max=1, authentication_s=60)) as front:
        kept = [flight.connect(f"grpc://127.0.0.1:{front.port}") for _ in range(2)]
        for each in kept:
            told(each, "hello")
        assert ended(front, b"")
        assert told(kept[0], "hello") == "0 None"
        for each in kept:
            each.close()


def test_a_reader_that_does_not_read_holds_little() -> None:
    with fronted() as front, flight.connect(f"grpc://127.0.0.1:{front.port}") as client, Watched(os.getpid()) as memory:
        told(client, "hello")
        reader = client.do_get(flight.Ticket(b""))
        time.sleep(1.5)
        assert memory.peak_bytes - memory.before_bytes < 100 * MIB
        reader.cancel()


def test_connections_that_end_are_forgotten() -> None:
    with fronted() as front:
        for _ in range(20):
            ask(front)
        until(lambda: not front._by_port and not front._outsides and not front._unknown)


def test_a_stop_ends_every_connection() -> None:
    with fronted() as front, Http2("127.0.0.1", front.port) as connection:
        stream = connection.open(request_headers(ACTION))
        front.stop()
        assert connection.answer(stream, within_s=5).how == "closed"
        front.stop()


def test_a_port_that_is_taken_is_unavailable_by_name() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Unavailable, match=f"cannot listen on 127.0.0.1:{port}"):
            Front(("127.0.0.1", port), 1, LIMITS, None).start()
    with pytest.raises(Unavailable, match="cannot listen"):
        Front(("no such host.invalid", 0), 1, LIMITS, None).start()


def test_nobody_behind_it_ends_the_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    front = Front(("127.0.0.1", 0), port, LIMITS, None)
    front.start()
    try:
        with Http2("127.0.0.1", front.port) as connection:
            stream = connection.open(request_headers(ACTION))
            assert connection.answer(stream, within_s=5).how == "closed"
    finally:
        front.stop()
