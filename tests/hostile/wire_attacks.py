"""Attacks below Flight: bytes that are no HTTP/2, frames that are wrong, sessions of honest clients changed anywhere.

Each goes over a connection of its own.  We then say that we are done (a half-closed connection), and the server closes
its half: at once, because nobody is there any more.
"""

from __future__ import annotations

import random
import socket
import struct

from tests.hostile import flight_bytes
from tests.hostile.attack import Attacker, Finding
from tests.hostile.flight_attacks import authorized
from tests.hostile.flight_bytes import SERVICE
from tests.hostile.http2 import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
    grpc_message,
    header_block,
    request_headers,
)
from tests.hostile.mutations import mutated

TLS_HELLO = bytes.fromhex(
    "16030100a5010000a10303000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20e0e1e2e3e4e5e6e7e8e9eaebec"
    "edeeeff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff000813021303130100ff0100005000000016001400001165786d706c652e756c66686569"
)


def sent_and_closed(data: bytes, attacker: Attacker, port: int) -> str:
    """Send bytes, then nothing more; the other side has to close."""
    try:
        with socket.create_connection((attacker.target.host, port), timeout=attacker.patience_s) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            received = 0
            while piece := connection.recv(65_536):
                received += len(piece)
            return "answered, closed" if received else "closed"
    except TimeoutError as error:
        raise Finding(f"a connection stayed open for {attacker.patience_s} s after its end") from error
    except OSError:
        return "reset"


def garbage(chance: random.Random, attacker: Attacker) -> str:
    data = chance.choice(
        (
            b"",
            b"\0",
            b"\0" * 10_000,
            b"\xff" * 10_000,
            TLS_HELLO,
            PREFACE[: chance.randrange(len(PREFACE))],
            PREFACE + b"\0" * 9,
            PREFACE * 3,
            b"GET / HTTP/1.1\r\nhost: a\r\n\r\n",
            b"POST /arrow.flight.protocol.FlightService/DoAction HTTP/1.1\r\ncontent-length: 5\r\n\r\nhello",
            b"GET / HTTP/1.1\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAAA\r\n\r\n",
            b"SSH-2.0-x\r\n",
            chance.randbytes(chance.choice((1, 24, 1_000, 70_000))),
        )
    )
    return sent_and_closed(data, attacker, attacker.target.port)


def wrong_frames(chance: random.Random, attacker: Attacker) -> str:
    """A good beginning, then frames that HTTP/2 does not allow, or that ask for much."""
    headers = header_block(request_headers(SERVICE + b"DoAction", *authorized(attacker.target)))
    body = grpc_message(flight_bytes.action(b"hello", b"\x80"))
    request = frame(HEADERS, END_HEADERS, 1, headers) + frame(DATA, END_STREAM, 1, body)
    wrong = (
        frame(DATA, 0, 0, b"x"),
        frame(DATA, END_STREAM, 99, body),
        frame(DATA, PADDED, 1, b"\xff"),
        frame(HEADERS, END_HEADERS, 0, headers),
        frame(HEADERS, END_HEADERS, 2, headers),
        frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff\xff"),
        frame(HEADERS, 0, 1, headers),
        frame(HEADERS, 0, 1, headers) + frame(CONTINUATION, 0, 1, b"") * 2_000,
        frame(HEADERS, 0, 1, headers) + frame(CONTINUATION, 0, 1, b"\x00\x01a" + b"\x7f\xff\xff\x03") * 200,
        frame(CONTINUATION, END_HEADERS, 1, headers),
        frame(PRIORITY, 0, 1, b"\0\0\0\1\0"),
        frame(PRIORITY, 0, 1, b"\0"),
        frame(RST_STREAM, 0, 0, b"\0\0\0\0"),
        frame(RST_STREAM, 0, 7, b"\0\0\0\0"),
        frame(SETTINGS, 0, 0, b"\0"),
        frame(SETTINGS, 0, 1, b""),
        frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 1 << 31)),
        frame(SETTINGS, 0, 0, struct.pack(">HI", 5, 1)),
        frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0)) + request,
        frame(SETTINGS, 0, 0, b"") * 3_000,
        frame(PUSH_PROMISE, END_HEADERS, 1, b"\0\0\0\2" + headers),
        frame(PING, 0, 0, b"short"),
        frame(PING, 0, 0, b"12345678") * 3_000,
        frame(GOAWAY, 0, 0, b"\0" * 8) + request,
        frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\0"),
        frame(WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff") * 3,
        frame(WINDOW_UPDATE, 0, 99, b"\x7f\xff\xff\xff"),
        frame(0xEE, 0xFF, 1, b"x" * 100),
        frame(
            chance.randrange(256),
            chance.randrange(256),
            chance.randrange(1 << 32),
            chance.randbytes(chance.randrange(64)),
        ),
        b"\xff\xff\xff\0\0\0\0\0\1" + b"x" * 20_000,
        b"".join(
            frame(HEADERS, END_HEADERS, 1 + 2 * each, headers) + frame(RST_STREAM, 0, 1 + 2 * each, b"\0\0\0\x08")
            for each in range(300)
        ),
    )
    parts = [frame(SETTINGS, 0, 0), request if chance.random() < 0.5 else b"", chance.choice(wrong)]
    if chance.random() < 0.3:
        parts.append(chance.choice(wrong))
    return sent_and_closed(PREFACE + b"".join(parts), attacker, attacker.target.port)


def mutated_session(chance: random.Random, attacker: Attacker) -> str:
    """What an honest client sent, changed anywhere behind the preface, or cut."""
    recorded = chance.choice(attacker.target.recorded)
    keep = chance.choice((0, len(PREFACE), len(PREFACE)))
    data = recorded[:keep] + mutated(recorded[keep:], chance)
    return sent_and_closed(data, attacker, attacker.target.port)


def mutated_request(chance: random.Random, attacker: Attacker) -> str:
    """Our own requests, several on one connection, changed anywhere."""
    data = bytearray(PREFACE + frame(SETTINGS, 0, 0))
    for number in range(chance.choice((1, 2, 5))):
        method = chance.choice(flight_bytes.METHODS)
        block = header_block(request_headers(SERVICE + method, *authorized(attacker.target)))
        body = grpc_message(flight_bytes.action(b"topics", b"\x80"))
        data += frame(HEADERS, END_HEADERS, 1 + 2 * number, block) + frame(DATA, END_STREAM, 1 + 2 * number, body)
    changed = bytes(data[: len(PREFACE)]) + mutated(bytes(data[len(PREFACE) :]), chance)
    return sent_and_closed(changed, attacker, attacker.target.port)


ATTACKS = {garbage: 3, wrong_frames: 5, mutated_session: 8, mutated_request: 4}
