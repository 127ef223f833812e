"""A network that a test can break: a TCP proxy on loopback, with a thread for each direction of a connection.

    with tcp_proxy(server_port) as network:
        hw.connect(f"hw://127.0.0.1:{network.port}")
        network.stall()            bytes stay where they are, and nobody is told
        network.delay(0.05)        each piece of bytes waits for so long
        network.break_after(700)   each connection is reset once so many more bytes of it have gone through
        network.cut()              every connection is reset (RST), and whoever comes is reset too
        network.resume()           all is well again, for bytes that were held and for new connections

PROMISE  A connection that is reset is reset on both sides, as where a machine between them died: what was sent and has
         not arrived is lost.
         Bytes are never changed, and never come in another order.
NOT HERE The server: where nobody listens behind the proxy, a connection is reset at once.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

PIECE_BYTES = 65_536
RESET = struct.pack("ii", 1, 0)
"""A socket that lingers for no time is closed by RST."""


class _Connection:
    """A client's socket and the server's, and how many bytes may still go through."""

    def __init__(self, client: socket.socket, server: socket.socket, bytes_left: int | None) -> None:
        self.sockets = (client, server)
        self.bytes_left = bytes_left
        self._guard = threading.Lock()
        self._ends = 0
        self.was_reset = False

    def end_of_one(self) -> bool:
        """One direction has ended as it should; true: both have."""
        with self._guard:
            self._ends += 1
            return self._ends == 2

    def allowance(self, wanted: int) -> int:
        """How many of these bytes may pass; fewer than wanted: the connection breaks behind them."""
        with self._guard:
            if self.bytes_left is None:
                return wanted
            passed = min(wanted, self.bytes_left)
            self.bytes_left -= passed
            return passed

    def break_after(self, byte_count: int) -> None:
        with self._guard:
            self.bytes_left = byte_count

    def reset(self) -> None:
        self.was_reset = True
        for each in self.sockets:
            # It may be closed already, by the other direction's thread.
            with suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            # A shutdown wakes the thread that waits in recv; a close alone would not.
            with suppress(OSError):
                each.shutdown(socket.SHUT_RD)
            each.close()

    def close(self) -> None:
        for each in self.sockets:
            each.close()


class TcpProxy:
    """The network between clients and one server."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._guard = threading.Lock()
        self._connections: set[_Connection] = set()
        self._flows = threading.Event()
        self._flows.set()
        self._is_cut = False
        self._delay_s = 0.0
        self._ended = False
        self._break_new_after: int | None = None
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1_024)
        self.port: int = self._listener.getsockname()[1]
        self.resets = 0
        """Connections that were reset so far."""
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    # What a test does to it ---------------------------------------------------------------------

    def stall(self) -> None:
        self._flows.clear()

    def delay(self, seconds: float) -> None:
        self._delay_s = seconds

    def break_after(self, byte_count: int, *, also_new: bool = False) -> None:
        """Reset each connection after so many bytes, and with `also_new` those that come, too."""
        with self._guard:
            self._break_new_after = byte_count if also_new else None
            for each in self._connections:
                each.break_after(byte_count)

    def cut(self) -> None:
        with self._guard:
            self._is_cut = True
        self.reset()

    def reset(self) -> None:
        """Reset every connection; new ones may come."""
        with self._guard:
            broken, self._connections = self._connections, set()
        for each in broken:
            self._reset(each)

    def resume(self) -> None:
        with self._guard:
            self._is_cut = False
            self._break_new_after = None
            for each in self._connections:
                each.bytes_left = None
        self._delay_s = 0.0
        self._flows.set()

    def close(self) -> None:
        self._ended = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._flows.set()
        self.reset()

    @property
    def connections(self) -> int:
        return len(self._connections)

    # Threads ------------------------------------------------------------------------------------

    def _accept(self) -> None:
        while not self._ended:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # It was closed.
            threading.Thread(target=self._serve, args=(client,), name="proxy connection", daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        if self._is_cut:
            client.close()
            return
        try:
            server = socket.create_connection(("127.0.0.1", self._server_port), timeout=5)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
        for each in (client, server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = _Connection(client, server, self._break_new_after)
        if not self._add(connection):
            connection.reset()
            return
        back = threading.Thread(target=self._pump, args=(connection, server, client), name="proxy back", daemon=True)
        back.start()
        self._pump(connection, client, server)

    def _add(self, connection: _Connection) -> bool:
        """False: the network was cut while the server was being reached."""
        with self._guard:
            if self._is_cut or self._ended:
                return False
            self._connections.add(connection)
            return True

    def _pump(self, connection: _Connection, source: socket.socket, target: socket.socket) -> None:
        broken = False
        try:
            while piece := source.recv(PIECE_BYTES):
                # What was read is held here while the network stalls.
                self._flows.wait()
                if self._delay_s:
                    time.sleep(self._delay_s)
                passed = connection.allowance(len(piece))
                target.sendall(piece[:passed])
                if passed < len(piece):
                    broken = True
                    break
        except OSError:
            broken = True  # Reset by one of the two, or by us.
        broken = broken or connection.was_reset
        if not broken:
            # One side has said all that it had to say; the other may go on.
            with suppress(OSError):
                target.shutdown(socket.SHUT_WR)
            if not connection.end_of_one():
                return
        with self._guard:
            self._connections.discard(connection)
        if broken:
            self._reset(connection)
        else:
            connection.close()

    def _reset(self, connection: _Connection) -> None:
        with self._guard:
            self.resets += 1
        connection.reset()


@contextmanager
def tcp_proxy(server_port: int) -> Iterator[TcpProxy]:
    proxy = TcpProxy(server_port)
    try:
        yield proxy
    finally:
        proxy.close()
