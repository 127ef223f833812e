"""Attacks on Flight's own level: calls, tickets, descriptors and streams of rows whose contents are wrong.

The frames of HTTP/2 and gRPC around them are right; where those are wrong too: wire_attacks.py.
"""

from __future__ import annotations

import gzip
import random
import struct
from typing import Any

import msgspec

from headwater.protocol.calls import CALLS, CreateTopics
from headwater.protocol.codec import pack
from headwater.protocol.streams import AppendStream, ReadPartition, ReadPartitions, ReadRows, RowsRequest
from tests.hostile import arrow_bytes, flight_bytes
from tests.hostile.attack import OWN_ERROR, Attacker, Finding, Target
from tests.hostile.flight_bytes import SERVICE
from tests.hostile.http2 import Answer, Silence, grpc_message, request_headers
from tests.hostile.mutations import mutated, mutated_msgpack
from tests.unit.protocol import every_message

SUCCESS = 0
CANCEL_CODES = (0, 2, 8, 11)
GOOD_MAX_S = 2.0
"""How long a call may wait by its own request: the bounds of an attack are shorter than what servers wait."""
QUIET_CALLS = ("wait_beyond",)
"""Calls that may wait for something, and are only sent mutated."""


def call(attacker: Attacker, method: bytes, sent: list[bytes], headers: list[tuple[bytes, bytes]]) -> Answer:
    """One call from its first byte to its end."""
    connection = attacker.connection()
    stream = connection.open(request_headers(SERVICE + method, *headers))
    for each in sent:
        connection.send(stream, each, within_s=attacker.patience_s)
    connection.send(stream, b"", end=True)
    return judged(connection.answer(stream, within_s=attacker.patience_s))


def judged(answer: Answer) -> Answer:
    message = answer.headers.get("grpc-message", "")
    if OWN_ERROR in message or OWN_ERROR.encode() in answer.body:
        raise Finding(f"the server met {OWN_ERROR}: {message}")
    return answer


def told(answer: Answer) -> str:
    return answer.how if answer.status is None else f"status {answer.status}"


def authorized(target: Target) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", b"Bearer " + target.token.encode())]


# Calls ----------------------------------------------------------------------------------------------------------------


def request_of(name: str, chance: random.Random, target: Target) -> bytes:
    """A request of this call, drawn from its types; ids and names are often those of topics that are there."""
    value = every_message.value_of(CALLS[name].request, chance)
    if hasattr(value, "name") and chance.random() < 0.7:
        value = msgspec.structs.replace(value, name=_topic_name(chance))
    if isinstance(value, CreateTopics) and chance.random() < 0.7:
        schema = bytes(arrow_bytes.SCHEMA.serialize())
        if chance.random() < 0.3:
            schema = mutated(schema, chance)
        value = CreateTopics(
            tuple(
                msgspec.structs.replace(each, name=_topic_name(chance), schema=schema, **chance.choice(_POLICIES))
                for each in value.topics
            )
        )
    return _with_names(pack(value), chance, (target.topic, target.keyed_topic, target.foreign_topic))


_PLAIN: dict[str, Any] = dict.fromkeys(("partitions", "key", "time", "table", "partition_by", "cleanup"))
_POLICIES: tuple[dict[str, Any], ...] = ({}, _PLAIN, {**_PLAIN, "partitions": 3}, {**_PLAIN, "key": ("id",)})


def _topic_name(chance: random.Random) -> str:
    """Few names, so that topics are made, found, changed and deleted by turns."""
    return chance.choice(("fuzz.a", "fuzz.b", "fuzz.c", "honest.orders", "fuzz.", "other"))


def _with_names(data: bytes, chance: random.Random, ids: tuple[bytes, ...]) -> bytes:
    """Ids of sixteen bytes replaced by those of topics that are there."""
    out = bytearray(data)
    at = out.find(b"\xc4\x10")
    while at >= 0:
        if chance.random() < 0.8:
            out[at + 2 : at + 18] = chance.choice(ids)
        at = out.find(b"\xc4\x10", at + 18)
    return bytes(out)


def typed_call(chance: random.Random, attacker: Attacker) -> str:
    """A call whose every field has its type, and any value."""
    name = chance.choice([each for each in CALLS if each not in QUIET_CALLS])
    body = flight_bytes.action(name.encode(), request_of(name, chance, attacker.target))
    return told(call(attacker, b"DoAction", [grpc_message(body)], authorized(attacker.target)))


def mutated_call(chance: random.Random, attacker: Attacker) -> str:
    name = chance.choice(list(CALLS))
    body = mutated_msgpack(request_of(name, chance, attacker.target), chance)
    if name in QUIET_CALLS:
        body = body[: len(body) // 2]
    message = flight_bytes.action(name.encode(), body)
    return told(call(attacker, b"DoAction", [grpc_message(message)], authorized(attacker.target)))


def unknown_call(chance: random.Random, attacker: Attacker) -> str:
    name = chance.choice(
        (b"", b"\xff\xfe", b"HELLO", b"hello\0", b"../hello", b"x" * 100_000, b"__class__", chance.randbytes(20))
    )
    message = flight_bytes.action(name, chance.choice((b"", b"\x80", chance.randbytes(50))))
    return told(call(attacker, b"DoAction", [grpc_message(message)], authorized(attacker.target)))


def any_method(chance: random.Random, attacker: Attacker) -> str:
    """Each method of Flight, those that nobody serves among them, with bytes of another's message."""
    method = chance.choice((*flight_bytes.METHODS, b"Nothing", b"../DoAction", b""))
    messages = (
        b"",
        flight_bytes.ticket(b"\x80"),
        flight_bytes.descriptor(b"\x80"),
        flight_bytes.descriptor(b"a", flight_bytes.PATH),
        flight_bytes.action(b"hello", b"\x80"),
        flight_bytes.flight_data(b"x", b"y", metadata=b"z", described=b""),
        chance.randbytes(chance.randrange(60)),
    )
    sent = [grpc_message(chance.choice(messages)) for _ in range(chance.choice((1, 1, 0, 3)))]
    return told(call(attacker, method, sent, authorized(attacker.target)))


def stranger(chance: random.Random, attacker: Attacker) -> str:
    """Without a token that counts, nothing succeeds, whatever is asked."""
    target = attacker.target
    token = target.token.encode()
    headers: list[tuple[bytes, bytes]] = chance.choice(
        (
            [],
            [(b"authorization", b"")],
            [(b"authorization", b"Bearer ")],
            [(b"authorization", b"Bearer " + chance.choice(target.dead_tokens).encode())],
            [(b"authorization", b"Bearer " + token[:-1])],
            [(b"authorization", b"Bearer " + token + b"x")],
            [(b"authorization", b"Bearer " + token.swapcase())],
            [(b"authorization", b"Basic " + token)],
            [(b"authorization", token)],
            [(b"authorization", b"Bearer " + b"x" * 7_000)],
            [(b"authorization", b"Bearer \xff\xfe\x80")],
            [(b"authorization", b"Bearer " + token), (b"authorization", b"Bearer " + token)],
            [(b"authorization-bin", b"Bearer " + token)],
            [(b"x-authorization", b"Bearer " + token)],
        )
    )
    method = chance.choice((b"DoAction", b"DoGet", b"DoPut", b"GetFlightInfo", b"ListActions"))
    good: dict[bytes, bytes] = {
        b"DoAction": flight_bytes.action(b"hello", b"\x80"),
        b"DoGet": flight_bytes.ticket(good_ticket(target)),
        b"DoPut": append_messages(target, arrow_bytes.good_messages(0, 5, None))[0],
        b"GetFlightInfo": flight_bytes.descriptor(good_ticket(target)),
        b"ListActions": b"",
    }
    answer = call(attacker, method, [grpc_message(good[method])], headers)
    if answer.status == SUCCESS:
        raise Finding(f"{method.decode()} succeeded with {headers}")
    return told(answer)


def odd_headers(chance: random.Random, attacker: Attacker) -> str:
    """A good token among headers that are none, or too many, or too large, or of another log."""
    more: list[tuple[bytes, bytes]] = chance.choice(
        (
            [(b"hw-epoch", b"99999999")],
            [(b"hw-epoch", b"-1")],
            [(b"hw-epoch", b"9" * 5_000)],
            [(b"hw-shard", b"1")],
            [(b"hw-shard", "\u0661".encode())],
            [(b"hw-version", b"2")],
            [(b"hw-version", chance.randbytes(8).hex().encode())],
            [(b"hw-version", b"1"), (b"hw-version", b"1")],
            [(b"x", b"y")] * 200,
            [(b"x" * 5_000, b"y")],
            [(b"x", b"y" * 60_000)],
            [(b"X-Upper", b"y")],
            [(b"", b"")],
            [(b":path", b"/other")],
            [(b"grpc-timeout", b"1n")],
            [(b"grpc-timeout", b"99999999H")],
            [(b"grpc-timeout", b"soon")],
            [(b"grpc-encoding", b"snappy")],
            [(b"a-bin", b"!!!")],
            [(b"content-length", b"3")],
        )
    )
    sent = grpc_message(flight_bytes.action(b"hello", b"\x80"))
    return told(call(attacker, b"DoAction", [sent], [*authorized(attacker.target), *more]))


# Reads ----------------------------------------------------------------------------------------------------------------


def good_ticket(target: Target) -> bytes:
    place = {"type": "word", "word": "earliest"}
    return pack({"type": "rows", "topic": target.topic, "start": place, "limit": 3})


def hostile_ticket(chance: random.Random, attacker: Attacker) -> str:
    """Tickets that are drawn from their types, or mutated; those that would follow are ended by us."""
    target = attacker.target
    kind: Any = every_message.REQUESTS[chance.choice(("Ticket", "Ticket", "Command"))]
    data = _with_names(pack(every_message.value_of(kind, chance)), chance, (target.topic, target.foreign_topic))
    if chance.random() < 0.5:
        data = mutated_msgpack(data, chance)
    connection = attacker.connection()
    if chance.random() < 0.3:
        method, message = b"GetFlightInfo", flight_bytes.descriptor(data)
    else:
        method, message = b"DoGet", flight_bytes.ticket(data)
    stream = connection.open(request_headers(SERVICE + method, *authorized(target)))
    connection.send(stream, grpc_message(message), end=True)
    try:
        return told(judged(connection.answer(stream, within_s=0.2)))
    except Silence:
        # It may be a reader that waits for rows, as it asked to.
        connection.reset(stream)
        if not connection.ping(within_s=attacker.patience_s):
            return "closed"
        return "followed"


def reader_that_goes(chance: random.Random, attacker: Attacker) -> str:
    """Followers that leave at any moment."""
    target = attacker.target
    tickets = (
        ReadRows(target.topic, _earliest(), follow=True),
        ReadPartition(target.topic, 0, chance.choice((0, 1, 1 << 40))),
        ReadPartitions(target.topic, {chance.choice((0, 1, 1 << 40)): chance.choice((0, 1, 1 << 40))}),
    )
    connection = attacker.connection()
    stream = connection.open(request_headers(SERVICE + b"DoGet", *authorized(target)))
    connection.send(stream, grpc_message(flight_bytes.ticket(pack(chance.choice(tickets)))), end=True)
    connection.wait_for_body(stream, chance.choice((0, 5)), within_s=attacker.patience_s)
    connection.reset(stream, chance.choice(CANCEL_CODES))
    return "left"


def _earliest() -> Any:
    from headwater.protocol.places import AtWord

    return AtWord("earliest")


# Appends --------------------------------------------------------------------------------------------------------------


def append_messages(
    target: Target, parts: list[arrow_bytes.Message], *, metadata: bytes | None = None, command: bytes | None = None
) -> list[bytes]:
    """Messages of DoPut: the first with the descriptor, each batch with a request beside it."""
    wanted = pack(AppendStream(target.topic, 1)) if command is None else command
    request = pack(RowsRequest(1)) if metadata is None else metadata
    found = []
    for number, (header, body) in enumerate(parts):
        described = flight_bytes.descriptor(wanted) if number == 0 else None
        found.append(flight_bytes.flight_data(header, body, metadata=request if number else b"", described=described))
    return found


def put(attacker: Attacker, messages: list[bytes]) -> str:
    sent = [grpc_message(each) for each in messages]
    return told(call(attacker, b"DoPut", sent, authorized(attacker.target)))


def hostile_rows(chance: random.Random, attacker: Attacker) -> str:
    return put(attacker, append_messages(attacker.target, arrow_bytes.hostile_messages(chance)))


def hostile_request(chance: random.Random, attacker: Attacker) -> str:
    """Good rows, and beside them a request that is none, or holds rows of its own that are none."""
    target = attacker.target
    what = chance.randrange(4)
    if what == 0:
        metadata = mutated_msgpack(pack(every_message.value_of(RowsRequest, chance)), chance)
    elif what == 1:
        metadata = pack(every_message.value_of(RowsRequest, chance))
    else:
        field = "rejected" if what == 2 else "deletes"
        metadata = pack({"number": 1, field: arrow_bytes.hostile_stream(chance)})
    command = None
    if chance.random() < 0.3:
        command = pack(
            AppendStream(chance.choice((target.topic, target.keyed_topic, target.foreign_topic, bytes(16))), 1)
        )
    if chance.random() < 0.2:
        command = mutated_msgpack(command or pack(AppendStream(target.topic, 1)), chance)
    parts = arrow_bytes.good_messages(chance.randrange(4), chance.choice((0, 1, 5)), None)
    return put(attacker, append_messages(target, parts, metadata=metadata, command=command))


def hostile_commit(chance: random.Random, attacker: Attacker) -> str:
    """A transaction with rows that are none."""
    target = attacker.target
    rows = [
        {
            "topic": chance.choice((target.topic,) * 6 + (target.keyed_topic,) * 2 + (target.foreign_topic,)),
            "rows": arrow_bytes.hostile_stream(chance),
            "rejected": arrow_bytes.hostile_stream(chance) if chance.random() < 0.2 else b"",
            "deletes": chance.random() < 0.1,
            **chance.choice(({}, {}, {"partition": 0}, {"partition": 1 << 40})),
        }
        for _ in range(chance.choice((1, 1, 3)))
    ]
    body = flight_bytes.action(b"commit", pack({"rows": rows}))
    return told(call(attacker, b"DoAction", [grpc_message(body)], authorized(target)))


def mutated_put(chance: random.Random, attacker: Attacker) -> str:
    """A good stream of rows whose protobuf, or gRPC's frame around it, is changed anywhere."""
    parts = arrow_bytes.good_messages(chance.randrange(4), 5, chance.choice((None, "zstd", "lz4")))
    messages = append_messages(attacker.target, parts)
    at = chance.randrange(len(messages))
    if chance.random() < 0.5:
        messages[at] = mutated(messages[at], chance)
        sent = [grpc_message(each) for each in messages]
    else:
        sent = [grpc_message(each) for each in messages]
        sent[at] = mutated(sent[at], chance)
    return told(call(attacker, b"DoPut", sent, authorized(attacker.target)))


def half_put(chance: random.Random, attacker: Attacker) -> str:
    """A stream of rows that stops anywhere, and is cancelled, or whose connection goes away."""
    parts = arrow_bytes.good_messages(chance.randrange(4), 60, None)
    sent = b"".join(grpc_message(each) for each in append_messages(attacker.target, parts))
    connection = attacker.connection()
    stream = connection.open(request_headers(SERVICE + b"DoPut", *authorized(attacker.target)))
    connection.send(stream, sent[: chance.randrange(len(sent))])
    if chance.random() < 0.3:
        attacker.forget()
        return "gone"
    connection.reset(stream, chance.choice(CANCEL_CODES))
    return "left" if connection.ping(within_s=attacker.patience_s) else "closed"


def framed_wrong(chance: random.Random, attacker: Attacker) -> str:
    """gRPC's own frame lies: its length, its flag; or what is compressed grows, or is nothing at all."""
    good = flight_bytes.action(b"hello", b"\x80")
    grown = flight_bytes.action(b"hello", b"\0" * chance.choice((1_000, 1 << 20, 8 << 20)))
    packed = gzip.compress(grown, 1)
    choices = (
        grpc_message(good, length=len(good) - 1),
        grpc_message(good, length=len(good) + 1),
        grpc_message(good, length=0xFFFFFFFF),
        grpc_message(good, length=1 << 31),
        grpc_message(good, compressed=1),
        grpc_message(good, compressed=0xFF),
        grpc_message(packed, compressed=1),
        grpc_message(packed[:-8], compressed=1),
        grpc_message(mutated(packed, chance), compressed=1),
        grpc_message(good) * 3,
        grpc_message(good)[: chance.randrange(5)],
        struct.pack(">BI", 0, 0),
    )
    encoding = chance.choice((b"gzip", b"deflate", b"identity"))
    headers = [*authorized(attacker.target), (b"grpc-encoding", encoding)]
    if chance.random() < 0.5:
        headers = headers[1:]
    return told(call(attacker, b"DoAction", [chance.choice(choices)], headers))


ATTACKS = {
    typed_call: 8,
    mutated_call: 14,
    unknown_call: 2,
    any_method: 3,
    stranger: 8,
    odd_headers: 3,
    hostile_ticket: 6,
    reader_that_goes: 3,
    hostile_rows: 16,
    hostile_request: 5,
    hostile_commit: 5,
    mutated_put: 6,
    half_put: 3,
    framed_wrong: 3,
}
