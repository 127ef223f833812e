"""The network of the tests does what it says: otherwise a suite that breaks it shows nothing."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.servers.tcp_proxy import TcpProxy, tcp_proxy


class Echo:
    """A server that says again what it hears, and counts it."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.heard = 0
        self.ends: list[str] = []
        self.ended = threading.Condition()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        end = "closed"
        with connection:
            try:
                while piece := connection.recv(65_536):
                    self.heard += len(piece)
                    connection.sendall(piece)
            except ConnectionResetError:
                end = "reset"
        with self.ended:
            self.ends.append(end)
            self.ended.notify_all()

    def stop(self) -> None:
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)  # It wakes the thread that accepts.
        self.listener.close()

    def wait_for_end(self) -> str:
        with self.ended:
            assert self.ended.wait_for(lambda: bool(self.ends), 5)
            return self.ends[0]


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.stop()


@pytest.fixture
def network(echo: Echo) -> Iterator[TcpProxy]:
    with tcp_proxy(echo.port) as proxy:
        yield proxy


@pytest.fixture
def client(network: TcpProxy) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", network.port), timeout=5) as connection:
        yield connection


def receive(client: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count and (piece := client.recv(count - len(found))):
        found += piece
    return found


def talk(network: TcpProxy) -> None:
    """Say something again and again, until the connection breaks."""
    with socket.create_connection(("127.0.0.1", network.port), timeout=5) as another:
        for _ in range(500):
            another.sendall(b"x")
            another.recv(1)
            time.sleep(0.01)


def test_bytes_go_through_unchanged_and_an_end_is_passed_on(client: socket.socket, echo: Echo) -> None:
    data = bytes(range(256)) * 4_000
    threading.Thread(target=client.sendall, args=(data,), daemon=True).start()

    assert receive(client, len(data)) == data
    client.shutdown(socket.SHUT_WR)
    assert client.recv(1) == b""
    assert echo.wait_for_end() == "closed"


def test_a_stall_holds_bytes_until_the_network_goes_on(client: socket.socket, network: TcpProxy) -> None:
    client.sendall(b"before")
    assert receive(client, 6) == b"before"

    network.stall()
    client.sendall(b"held")
    client.settimeout(0.1)
    with pytest.raises(TimeoutError):
        client.recv(1)
    network.resume()
    client.settimeout(5)

    assert receive(client, 4) == b"held"


def test_a_cut_resets_both_sides_and_whoever_comes_until_it_is_resumed(
    client: socket.socket, network: TcpProxy, echo: Echo
) -> None:
    client.sendall(b"before")
    assert receive(client, 6) == b"before"

    network.cut()

    with pytest.raises(ConnectionResetError):
        client.recv(1)
    assert echo.wait_for_end() == "reset"
    with pytest.raises(ConnectionError):
        talk(network)
    network.resume()
    with socket.create_connection(("127.0.0.1", network.port), timeout=5) as another:
        another.sendall(b"well")
        assert receive(another, 4) == b"well"


@pytest.mark.parametrize("byte_count", [0, 1, 10])
def test_a_connection_breaks_at_the_byte_that_was_named(
    client: socket.socket, network: TcpProxy, echo: Echo, byte_count: int
) -> None:
    client.sendall(b"before")
    assert receive(client, 6) == b"before"
    network.break_after(byte_count)

    client.sendall(b"x" * 20)

    assert echo.wait_for_end() == "reset"
    # Echoes count too, so what got through is at most what was named.
    assert 6 <= echo.heard <= 6 + byte_count
    assert network.resets >= 1


def test_where_nobody_serves_a_connection_is_reset(network: TcpProxy, echo: Echo) -> None:
    echo.stop()

    with pytest.raises(ConnectionError):
        talk(network)
