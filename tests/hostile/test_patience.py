"""Clients that take their time: half a request, one byte a second, a stream that never ends.  Each is ended in a bound.

The server is in this process, with short times, so that waiting for them is short too.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import headwater as hw
from headwater.protocol.codec import pack
from headwater.protocol.streams import AppendStream
from headwater.server import tokens
from headwater.server.access import parse_grant
from headwater.server.serving import Server
from headwater.server.settings import ServerLimits
from headwater.storage.disk import DiskFiles
from tests.hostile import arrow_bytes, flight_bytes
from tests.hostile.arrow_bytes import SCHEMA
from tests.hostile.http2 import Http2, grpc_message, request_headers
from tests.servers.headwater import on_loopback, serving

LIMITS = ServerLimits(authentication_s=0.5, idle_s=1.0)
BOUND_S = 8.0
"""In this time whoever is silent, or slow, is ended; the limits above, and a machine that does other things too."""


@contextmanager
def served(directory: Path) -> Iterator[tuple[Server, str, bytes]]:
    """A server with tokens, a token, and the id of a topic."""
    with hw.open(directory) as log:
        topic = bytes.fromhex(log.topic("orders", schema=SCHEMA).describe().topic_id)
    token = tokens.create(DiskFiles(directory), "loader", (parse_grant("write:*"), parse_grant("read:*")))
    settings = on_loopback(tokens=True, http=("127.0.0.1", 0), limits=LIMITS)
    with serving(directory, settings=settings) as server:
        yield server, token, topic


def ended_after_s(connection: socket.socket, drip: bytes = b"") -> float:
    """How long the server lets a connection be; with `drip` we send a byte of it now and then."""
    began_s = time.monotonic()
    gone = threading.Event()

    def dripping() -> None:
        for each in drip:
            if gone.wait(0.25):
                return
            try:
                connection.send(bytes([each]))
            except OSError:
                return  # It was ended.

    dripper = threading.Thread(target=dripping)
    dripper.start()
    connection.settimeout(BOUND_S)
    try:
        while connection.recv(65_536):
            pass
    except ConnectionResetError:
        pass  # That is an end, too.
    finally:
        gone.set()
        dripper.join()
    return time.monotonic() - began_s


@pytest.mark.parametrize(
    ("sent", "drip"),
    [
        (b"", b""),
        (b"POST /v1/topics/orders/rows HTTP/1.1\r\nhost: a\r\n", b""),
        (b"POST /v1/topics/orders/rows HTTP/1.1\r\n", b"x: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy"),
        (b"POST /v1/topics/orders/rows HTTP/1.1\r\nhost: a\r\nTOKENcontent-length: 1000\r\n\r\n{", b""),
        (b"POST /v1/topics/orders/rows HTTP/1.1\r\nhost: a\r\nTOKENcontent-length: 1000\r\n\r\n{", b" " * 100),
        (
            b"POST /v1/topics/orders/rows HTTP/1.1\r\nhost: a\r\nTOKENtransfer-encoding: chunked\r\n\r\n",
            b"5\r\n     \r\n" * 9,
        ),
        (b"GET /livez HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n", b""),
    ],
)
def test_a_slow_sender_over_http_is_ended(tmp_path: Path, sent: bytes, drip: bytes) -> None:
    with served(tmp_path) as (server, token, _):
        connection = socket.create_connection(("127.0.0.1", server.http_port), timeout=BOUND_S)
        with connection:
            connection.sendall(sent.replace(b"TOKEN", b"authorization: Bearer " + token.encode() + b"\r\n"))
            assert ended_after_s(connection, drip) < BOUND_S


def test_a_silent_connection_and_a_slow_one_are_ended_before_anybody_is_known(tmp_path: Path) -> None:
    with served(tmp_path) as (server, _, _):
        for sent, drip in ((b"", b""), (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\0" * 60)):
            with socket.create_connection(("127.0.0.1", server.port), timeout=BOUND_S) as connection:
                connection.sendall(sent)
                assert ended_after_s(connection, drip) < BOUND_S


@pytest.mark.parametrize("how_much", [0, 1, 2, 3])
def test_a_stream_of_rows_that_never_ends_is_ended(tmp_path: Path, how_much: int) -> None:
    """With a good token: nothing, the beginning, half a batch, or a whole one, and then silence."""
    with served(tmp_path) as (server, token, topic):
        parts = arrow_bytes.good_messages(0, 5, None)
        request = pack({"number": 1})
        messages = [
            flight_bytes.flight_data(parts[0][0], described=flight_bytes.descriptor(pack(AppendStream(topic, 1)))),
            flight_bytes.flight_data(*parts[1], metadata=request),
        ]
        whole = [grpc_message(each) for each in messages]
        sent = [b"", whole[0], whole[0] + whole[1][:50], whole[0] + whole[1]][how_much]
        with Http2("127.0.0.1", server.port) as connection:
            path = flight_bytes.SERVICE + b"DoPut"
            stream = connection.open(request_headers(path, (b"authorization", b"Bearer " + token.encode())))
            connection.send(stream, sent)
            assert connection.answer(stream, within_s=BOUND_S).how
        deadline_s = time.monotonic() + BOUND_S
        while server.streams.open_now:
            assert time.monotonic() < deadline_s, "its place among the streams is still taken"
            time.sleep(0.02)


def test_meanwhile_an_honest_client_is_served(tmp_path: Path) -> None:
    with served(tmp_path) as (server, token, _):
        silent = [socket.create_connection(("127.0.0.1", port)) for port in (server.port, server.http_port) * 100]
        with hw.connect(server.address, token=token) as log:
            began_s = time.monotonic()
            for number in range(20):
                log.topic("orders").append([{"id": number}])
            assert time.monotonic() - began_s < BOUND_S
            assert log.topic("orders").read().to_arrow().num_rows == 20
        for each in silent:
            each.close()
