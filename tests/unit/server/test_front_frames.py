"""Frames of HTTP/2 followed without being decoded: what is let through, what is refused, in pieces of any size."""

from __future__ import annotations

import random

import pytest

from headwater.errors import HeadwaterError, InvalidRequest, TooLarge
from headwater.server.front_frames import HEADER_BLOCK_BYTES_MAX, HEADER_FRAMES_MAX, STREAMS_MAX, FrameWatch
from tests.hostile.http2 import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    frame,
    grpc_message,
)

LIMIT = 1_000


def call(stream: int, *data: bytes) -> bytes:
    """A call whose messages come in these DATA frames."""
    begun = frame(HEADERS, END_HEADERS, stream, b"headers")
    return begun + b"".join(frame(DATA, 0, stream, each) for each in data) + frame(DATA, END_STREAM, stream)


def watched(data: bytes, *, pieces: random.Random | None = None) -> FrameWatch:
    watch = FrameWatch(LIMIT)
    at = 0
    while at < len(data):
        size = len(data) if pieces is None else pieces.choice((1, 2, 5, 9, 40))
        watch.feed(data[at : at + size])
        at += size
    return watch


GOOD = (
    PREFACE
    + frame(SETTINGS, 0, 0)
    + call(1, grpc_message(b"x" * LIMIT))
    + call(3, grpc_message(b"a") + grpc_message(b"") + grpc_message(b"c" * 700))
    + frame(PING, 0, 0, b"12345678")
    + call(5, grpc_message(b"split")[:3], grpc_message(b"split")[3:7], grpc_message(b"split")[7:])
    + frame(0xEE, 0xFF, 0, b"unknown")
    + call(7)
)


def test_calls_as_clients_send_them_are_let_through() -> None:
    assert watched(GOOD).message_bytes == LIMIT + 5 + 6 + 5 + 705 + 10


def test_the_pieces_in_which_bytes_come_change_nothing() -> None:
    for seed in range(50):
        assert watched(GOOD, pieces=random.Random(seed)).message_bytes == watched(GOOD).message_bytes, f"seed {seed}"


BAD: dict[str, tuple[bytes, type[HeadwaterError], str]] = {
    "no preface": (b"GET / HTTP/1.1\r\n", InvalidRequest, "no HTTP/2"),
    "a wrong preface": (PREFACE[:-1] + b"x", InvalidRequest, "no HTTP/2"),
    "compressed": (PREFACE + call(1, grpc_message(b"x", compressed=1)), InvalidRequest, "compressed"),
    "a flag of another meaning": (PREFACE + call(1, grpc_message(b"x", compressed=0x80)), InvalidRequest, "compressed"),
    "compressed, the second": (
        PREFACE + call(1, grpc_message(b"a") + grpc_message(b"x", compressed=1)),
        InvalidRequest,
        "compressed",
    ),
    "too long": (PREFACE + call(1, grpc_message(b"", length=LIMIT + 1)), TooLarge, "too large"),
    "too long, its prefix in two frames": (
        PREFACE + call(1, grpc_message(b"", length=1 << 31)[:2], grpc_message(b"", length=1 << 31)[2:]),
        TooLarge,
        "too large",
    ),
    "too long, on the second of two streams": (
        PREFACE
        + frame(HEADERS, END_HEADERS, 1)
        + frame(HEADERS, END_HEADERS, 3)
        + frame(DATA, 0, 1, grpc_message(b"", length=10))
        + frame(DATA, 0, 3, grpc_message(b"", length=0xFFFFFFFF)),
        TooLarge,
        "too large",
    ),
    "padding": (PREFACE + frame(HEADERS, END_HEADERS, 1) + frame(DATA, PADDED, 1, b"\1x\0"), InvalidRequest, "padding"),
    "data of no stream": (PREFACE + frame(DATA, 0, 0, b"x"), InvalidRequest, "no stream"),
    "headers without an end": (
        PREFACE + frame(HEADERS, 0, 1, b"x" * 16_000) + frame(CONTINUATION, 0, 1, b"x" * 16_000) * 4,
        TooLarge,
        "headers",
    ),
    "headers in countless frames": (
        PREFACE + frame(HEADERS, 0, 1, b"x") + frame(CONTINUATION, 0, 1, b"") * HEADER_FRAMES_MAX,
        TooLarge,
        "headers",
    ),
    "streams without an end": (
        PREFACE + b"".join(frame(HEADERS, END_HEADERS, 1 + 2 * each) for each in range(STREAMS_MAX + 1)),
        TooLarge,
        "streams",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_must_not_get_in_is_refused_whatever_pieces_it_comes_in(name: str) -> None:
    data, kind, text = BAD[name]

    for seed in (None, 0, 1, 2):
        with pytest.raises(kind, match=text):
            watched(data, pieces=None if seed is None else random.Random(seed))


def test_a_bad_message_is_refused_before_its_first_byte() -> None:
    """What is known from the prefix is not waited for."""
    begun = PREFACE + frame(HEADERS, END_HEADERS, 1) + frame(DATA, 0, 1, b"x" * 100)[:9]
    watch = watched(begun + b"\0")
    watch.feed(b"\xff\xff\xff")
    with pytest.raises(TooLarge):
        watch.feed(b"\xff")
    with pytest.raises(InvalidRequest):
        watched(begun + b"\1")


def test_streams_that_ended_are_forgotten() -> None:
    ended = b"".join(call(1 + 2 * each, grpc_message(b"x")) for each in range(STREAMS_MAX))
    reset = b"".join(
        frame(HEADERS, END_HEADERS, each) + frame(RST_STREAM, 0, each, b"\0\0\0\x08") for each in range(1, 20_001, 2)
    )
    headers_only = b"".join(frame(HEADERS, END_HEADERS | END_STREAM, each) for each in range(1, 20_001, 2))

    watched(PREFACE + ended + reset + headers_only + GOOD[len(PREFACE) :])


def test_data_of_a_stream_that_has_ended_is_passed_over() -> None:
    watched(PREFACE + call(1) + frame(DATA, 0, 1, grpc_message(b"x", compressed=1)))


def test_headers_within_the_limit_are_let_through() -> None:
    half = b"x" * (HEADER_BLOCK_BYTES_MAX // 2)

    watched(PREFACE + (frame(HEADERS, 0, 1, half) + frame(CONTINUATION, END_HEADERS, 1, half) + call(1)[16:]) * 3)


def test_a_length_that_lies_is_counted_as_it_comes() -> None:
    watch = watched(PREFACE + frame(HEADERS, END_HEADERS, 1) + b"\xff\xff\xff\0\0\0\0\0\1" + b"\0\0\0\0\5abc")

    assert watch.message_bytes == 8


def test_any_bytes_are_followed_or_refused_and_nothing_else() -> None:
    for seed in range(3_000):
        chance = random.Random(seed)
        data = bytearray(GOOD)
        for _ in range(chance.choice((1, 3, 10))):
            data[chance.randrange(len(PREFACE), len(data))] = chance.randrange(256)
        try:
            watched(bytes(data))
        except (InvalidRequest, TooLarge):
            continue
        except Exception as error:  # anything else is the finding
            raise AssertionError(f"seed {seed} gives {error!r}") from error
