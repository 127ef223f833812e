"""Messages of Flight as protobuf, written by hand: every field may hold anything."""

from __future__ import annotations

SERVICE = b"/arrow.flight.protocol.FlightService/"
METHODS = (
    b"DoAction",
    b"DoGet",
    b"DoPut",
    b"GetFlightInfo",
    b"GetSchema",
    b"ListFlights",
    b"ListActions",
    b"Handshake",
    b"DoExchange",
    b"PollFlightInfo",
)
PATH, COMMAND = 1, 2


def bytes_field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def number_field(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def action(name: bytes, body: bytes) -> bytes:
    return bytes_field(1, name) + bytes_field(2, body)


def ticket(data: bytes) -> bytes:
    return bytes_field(1, data)


def descriptor(command: bytes, kind: int = COMMAND) -> bytes:
    return number_field(1, kind) + bytes_field(2 if kind == COMMAND else 3, command)


def flight_data(
    header: bytes = b"", body: bytes = b"", *, metadata: bytes = b"", described: bytes | None = None
) -> bytes:
    out = b"" if described is None else bytes_field(1, described)
    if header:
        out += bytes_field(2, header)
    if metadata:
        out += bytes_field(3, metadata)
    return out + (bytes_field(1_000, body) if body else b"")


def _varint(value: int) -> bytes:
    out = bytearray()
    value &= (1 << 64) - 1
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
