"""HTTP/2 by hand, as far as a caller of gRPC needs it: every byte is ours, so every byte can be wrong.

    with Http2("127.0.0.1", port) as connection:
        stream = connection.open("/arrow.flight.protocol.FlightService/DoAction", headers)
        connection.send(stream, grpc_message(body), end=True)
        answer = connection.answer(stream, within_s=5)

FRAME    length (3 bytes), type, flags, stream (4 bytes), payload.
HEADERS  Literals without an index, both ways: our SETTINGS allow the other side no table.  What it compresses with
         Huffman's code (binary headers) is passed over.
PROMISE  `answer` says how a stream ended, or raises Silence once the time is over: nothing here waits for ever.
"""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass, field
from typing import Self

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, HAS_PRIORITY = 1, 1, 4, 8, 32
FRAME_BYTES_MAX = 16_384
WINDOW_BYTES = 1 << 30
"""Of a connection."""
STREAM_WINDOW_BYTES = 4 << 20
"""Of a stream, which never gets more: whoever reads a large topic here is a reader that stalls."""
BODY_BYTES_KEPT = 1 << 20
_STATIC_NAMES = {8: ":status", 9: ":status", 13: ":status", 14: ":status", 31: "content-type"}


class Silence(Exception):
    """Nothing came in the time that was given."""


@dataclass
class Answer:
    """How a stream ended."""

    how: str = ""
    """ "answered", "reset", "closed" (the connection), or "" while it goes on."""
    status: int | None = None
    """gRPC's own; None where there was none."""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def grpc_message(body: bytes, *, compressed: int = 0, length: int | None = None) -> bytes:
    """A message as gRPC frames it; both fields of the frame may lie."""
    return struct.pack(">BI", compressed, (len(body) if length is None else length) & 0xFFFFFFFF) + body


def header_block(headers: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join(b"\x00" + _string(name) + _string(value) for name, value in headers)


def request_headers(path: bytes, *more: tuple[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    return [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path),
        (b":authority", b"localhost"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
        *more,
    ]


class Http2:
    """One connection, used by one thread."""

    def __init__(self, host: str, port: int, *, within_s: float = 5.0, window_bytes: int = STREAM_WINDOW_BYTES) -> None:
        self.socket = socket.create_connection((host, port), timeout=within_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.closed = False
        self._buffer = bytearray()
        self._next_stream = 1
        self._answers: dict[int, Answer] = {}
        self._block: tuple[int, int, bytearray] = (0, 0, bytearray())
        self._window = 65_535
        self._initial_window = 65_535
        self._windows: dict[int, int] = {}
        self._pongs = 0
        settings = struct.pack(">HIHIHI", 1, 0, 4, min(window_bytes, (1 << 31) - 1), 5, FRAME_BYTES_MAX)
        self.raw(
            PREFACE + frame(SETTINGS, 0, 0, settings) + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", WINDOW_BYTES))
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.closed = True
        self.socket.close()

    # What is sent --------------------------------------------------------------------------------

    def raw(self, data: bytes) -> None:
        """These bytes, whatever they are; a connection that is gone is noted."""
        try:
            self.socket.sendall(data)
        except TimeoutError as error:
            raise Silence("the server takes no bytes") from error
        except OSError:
            self._lost()

    def open(self, headers: list[tuple[bytes, bytes]], *, end: bool = False) -> int:
        stream = self._next_stream
        self._next_stream += 2
        self._answers[stream] = Answer()
        self._windows[stream] = self._initial_window
        block = header_block(headers)
        pieces = [block[at : at + FRAME_BYTES_MAX] for at in range(0, len(block), FRAME_BYTES_MAX)] or [b""]
        for number, piece in enumerate(pieces):
            kind = CONTINUATION if number else HEADERS
            flags = (END_STREAM if end and not number else 0) | (END_HEADERS if number == len(pieces) - 1 else 0)
            self.raw(frame(kind, flags, stream, piece))
        return stream

    def send(self, stream: int, data: bytes, *, end: bool = False, within_s: float = 5.0) -> None:
        """Bytes of a stream, as fast as the other side allows; what it no longer wants is left unsent."""
        deadline = time.monotonic() + within_s
        at = 0
        while at < len(data) and not self._answers[stream].how and not self.closed:
            room = min(self._window, self._windows[stream], FRAME_BYTES_MAX, len(data) - at)
            if room <= 0:
                self._read(deadline)
                continue
            last = end and at + room == len(data)
            self.raw(frame(DATA, END_STREAM if last else 0, stream, data[at : at + room]))
            self._window -= room
            self._windows[stream] -= room
            at += room
        if end and not data:
            self.raw(frame(DATA, END_STREAM, stream))

    def reset(self, stream: int, code: int = 8) -> None:
        self.raw(frame(RST_STREAM, 0, stream, struct.pack(">I", code)))
        self._answers.pop(stream, None)

    # What comes ----------------------------------------------------------------------------------

    def answer(self, stream: int, *, within_s: float) -> Answer:
        """How the stream ended; Silence if it did not."""
        deadline = time.monotonic() + within_s
        answer = self._answers[stream]
        while not answer.how:
            self._read(deadline)
        self._answers.pop(stream, None)
        self._windows.pop(stream, None)
        return answer

    def wait_for_body(self, stream: int, byte_count: int, *, within_s: float) -> bytes:
        """The body once it has so many bytes, or the stream has ended."""
        deadline = time.monotonic() + within_s
        answer = self._answers[stream]
        while len(answer.body) < byte_count and not answer.how:
            self._read(deadline)
        return answer.body

    def ping(self, *, within_s: float) -> bool:
        """Whether the other side answers; false: it has closed the connection."""
        wanted = self._pongs + 1
        deadline = time.monotonic() + within_s
        self.raw(frame(PING, 0, 0, b"headwate"))
        while self._pongs < wanted and not self.closed:
            self._read(deadline)
        return not self.closed

    def _read(self, deadline: float) -> None:
        """One frame, and what it means to us."""
        head = self._take(9, deadline)
        if head is None:
            return
        length = int.from_bytes(head[:3], "big")
        kind, flags, stream = struct.unpack(">BBI", head[3:])
        payload = self._take(length, deadline)
        if payload is not None:
            self._took(kind, flags, stream & 0x7FFFFFFF, payload)

    def _take(self, count: int, deadline: float) -> bytes | None:
        while len(self._buffer) < count:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Silence("no answer")
            self.socket.settimeout(left)
            try:
                piece = self.socket.recv(65_536)
            except TimeoutError as error:
                raise Silence("no answer") from error
            except OSError:
                piece = b""
            if not piece:
                self._lost()
                return None
            self._buffer += piece
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def _lost(self) -> None:
        self.close()
        for each in self._answers.values():
            each.how = each.how or "closed"

    def _took(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        answer = self._answers.get(stream)
        if kind == SETTINGS and not flags & ACK:
            self._settings(payload)
        elif kind == PING:
            if flags & ACK:
                self._pongs += 1
            else:
                self.raw(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE:
            more = int.from_bytes(payload, "big")
            if stream:
                self._windows[stream] = self._windows.get(stream, 0) + more
            else:
                self._window += more
        elif kind == GOAWAY:
            self._lost()
        elif kind in (HEADERS, CONTINUATION):
            self._headers(kind, flags, stream, payload)
        elif answer is not None and kind == DATA:
            if len(answer.body) < BODY_BYTES_KEPT:
                answer.body += payload
            if flags & END_STREAM:
                answer.how = "answered"
        elif answer is not None and kind == RST_STREAM:
            answer.how = "reset"

    def _settings(self, payload: bytes) -> None:
        for at in range(0, len(payload) - 5, 6):
            name, value = struct.unpack_from(">HI", payload, at)
            if name == 4:
                for stream in self._windows:
                    self._windows[stream] += value - self._initial_window
                self._initial_window = value
        self.raw(frame(SETTINGS, ACK, 0))

    def _headers(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == HEADERS:
            self._block = (stream, flags, bytearray(payload))
        else:
            self._block[2].extend(payload)
        opened_stream, opened_flags, block = self._block
        if not flags & END_HEADERS or (answer := self._answers.get(opened_stream)) is None:
            return
        answer.headers.update(_decoded(bytes(block)))
        status = answer.headers.get("grpc-status", "")
        answer.status = int(status) if status.isdecimal() else answer.status
        if opened_flags & END_STREAM:
            answer.how = "answered"


# Header compression, without its tables ---------------------------------------------------------------------------


def _string(data: bytes) -> bytes:
    return _integer(len(data), 7) + data


def _integer(value: int, bits: int) -> bytes:
    most = (1 << bits) - 1
    if value < most:
        return bytes([value])
    out = bytearray([most])
    value -= most
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    out.append(value)
    return bytes(out)


def _read_integer(data: bytes, at: int, bits: int) -> tuple[int, int]:
    most = (1 << bits) - 1
    value = data[at] & most
    at += 1
    shift = 0
    while value >= most:
        byte = data[at]
        at += 1
        value += (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    return value, at


def _decoded(block: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    while at < len(block):
        first = block[at]
        if first & 0x80:  # a whole header of the static table: none that is asked about
            _, at = _read_integer(block, at, 7)
            continue
        if first & 0xE0 == 0x20:  # the size of the table
            _, at = _read_integer(block, at, 5)
            continue
        index, at = _read_integer(block, at, 6 if first & 0x40 else 4)
        name = _STATIC_NAMES.get(index, f"#{index}")
        if not index:
            name, at = _read_string(block, at)
        value, at = _read_string(block, at)
        found[name] = value
    return found


def _read_string(block: bytes, at: int) -> tuple[str, int]:
    coded = bool(block[at] & 0x80)
    length, at = _read_integer(block, at, 7)
    text = "" if coded else block[at : at + length].decode("latin-1")
    return text, at + length
