"""Messages as bytes: what is sent is what is read, and what is no message is an InvalidRequest and nothing else.

A seed is the whole repro: each hostile message is made from its number.
"""

from __future__ import annotations

import math
import random
import time
import tracemalloc
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from headwater.errors import InvalidRequest
from headwater.metadata.operations import TopicRecord
from headwater.protocol.calls import CALLS, Commit, NamedTopic, TransactionOffset, TransactionSource, WaitBeyond
from headwater.protocol.codec import pack, unpack
from headwater.protocol.failures import Failure, error_of
from headwater.protocol.places import AtTime, WirePlace, place_of
from headwater.protocol.streams import ReadRows, RowsRequest, Ticket, WireIdentity
from headwater.topics.answers import TopicDescription
from tests.hostile.mutations import mutated_msgpack
from tests.unit.protocol.every_message import ALL, REQUESTS, SCHEMA, value_of

TOPIC = b"t" * 16
PLACE: Any = WirePlace


@pytest.mark.parametrize("name", ALL)
def test_what_is_sent_is_what_is_read(name: str) -> None:
    for seed in range(50):
        message = value_of(ALL[name], random.Random(seed))

        assert unpack(pack(message), ALL[name]) == message, f"{name}, seed {seed}"


def test_every_call_is_known_by_its_own_name() -> None:
    assert len(CALLS) > 25
    assert all(call.name == name and name.isidentifier() and name.islower() for name, call in CALLS.items())
    assert {call.right for call in CALLS.values()} <= {None, "read", "write", "land", "admin"}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_field_that_is_not_known_is_refused(name: str) -> None:
    refused = 0
    for seed in range(50):
        data = msgspec.msgpack.decode(pack(value_of(REQUESTS[name], random.Random(seed))))
        assert isinstance(data, dict)
        for place in _maps(data):
            place["later"] = 1
            with pytest.raises(InvalidRequest, match="unknown field"):
                unpack(pack(data), REQUESTS[name])
            del place["later"]
            refused += 1
    assert refused


def _maps(data: Any) -> list[dict[str, Any]]:
    """This map and those in it whose fields have names; a source's position is anybody's own."""
    found = [data]
    for name, value in data.items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict) and each and name != "position" and all(isinstance(key, str) for key in each):
                found += _maps(each)
    return found


@pytest.mark.parametrize("kind", [WireIdentity, TransactionOffset])
def test_one_element_more_than_is_known_is_refused(kind: type) -> None:
    given = list(msgspec.to_builtins(value_of(kind, random.Random(0)), builtin_types=(bytes,)))

    with pytest.raises(InvalidRequest):
        unpack(pack([*given, 0]), kind)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", NamedTopic),
        (b"\xc1", NamedTopic),
        (b"\xc0", NamedTopic),
        (b"\x91\xa1a", NamedTopic),
        (b"\x81\xa4name\xa1aZZZ", NamedTopic),
        (b"\x81\xa4name\xa2\xff\xff", NamedTopic),
        (b"\x81\xa4name\xdb\xff\xff\xff\xff", NamedTopic),
        (b"\x81\xa4name\xc4\x01a", NamedTopic),
        (b"\x81\x01\xa1a", NamedTopic),
        (pack({"name": "x" * 256}), NamedTopic),
        (pack({"lsn": 1, "timeout_s": math.nan}), WaitBeyond),
        (pack({"lsn": 1, "timeout_s": math.inf}), WaitBeyond),
        (pack({"lsn": 1, "timeout_s": -1}), WaitBeyond),
        (pack({"lsn": 1, "timeout_s": 1e10}), WaitBeyond),
        (pack({"lsn": -1, "timeout_s": 1}), WaitBeyond),
        (pack({"lsn": 1 << 63, "timeout_s": 1}), WaitBeyond),
        (pack({"lsn": True, "timeout_s": 1}), WaitBeyond),
        (pack({"lsn": 1.5, "timeout_s": 1}), WaitBeyond),
        (pack({"type": "time", "time_us": 1 << 62}), WirePlace),
        (pack({"type": "time", "time_us": -(1 << 62)}), WirePlace),
        (pack({"type": "elsewhere"}), WirePlace),
        (pack({"type": "offsets", "offsets": {"a": 1}}), WirePlace),
        (b"\x82\xa4type\xa7offsets\xa7offsets\xdf\xff\xff\xff\xff", WirePlace),
        (pack({"type": "plan", "topic": TOPIC, "start": {"type": "word", "word": "latest"}}), Ticket),
        (pack({"type": "rows", "topic": b"short", "start": {"type": "word", "word": "latest"}}), Ticket),
        (b"\x81\xa7sources\xdd\xff\xff\xff\xff", Commit),
        (b"\x81\xa7sources\x91\x82\xa4name\xa1a\xa8position" + b"\x91" * 1_000_000, Commit),
        (b"\x81\xa7sources\x91\x82\xa4name\xa1a\xa8position" + b"\x81\xa1k" * 300_000, Commit),
        (b"\x81\xa7sources\x91\x82\xa4name\xa1a\xa8position\x81\x80\x01", Commit),
        (b"\x81\xa7sources\x91\x82\xa4name\xa1a\xa8position\xd7\xff" + b"\xff" * 8, Commit),
        (b"\x81\xa7sources\x91\x82\xa4name\xa1a\xa8position\xdd\xff\xff\xff\xff", Commit),
        (b"\x81\xa7sources\x91\x82\xa4name\xa1a\xa8position\xc6\xff\xff\xff\xff", Commit),
        (pack({"number": 1, "identity": [0, 0, 0, b"k" * 17]}), RowsRequest),
        (pack(b"no schema"), pa.Schema),
        (pack(b""), pa.Schema),
        (pack(7), pa.Schema),
    ],
)
def test_what_is_no_message_is_an_invalid_request(data: bytes, kind: Any) -> None:
    with pytest.raises(InvalidRequest, match="a message that cannot be read"):
        unpack(data, kind)


@pytest.mark.parametrize("name", ALL)
def test_a_mutated_message_is_read_or_refused_and_nothing_else(name: str) -> None:
    refused = 0
    for seed in range(300):
        chance = random.Random(seed)
        data = mutated_msgpack(pack(value_of(ALL[name], chance)), chance)
        try:
            message = unpack(data, ALL[name])
        except InvalidRequest:
            refused += 1
            continue
        except Exception as error:  # anything else is the finding
            raise AssertionError(f"{name}, seed {seed}: {data!r} gives {error!r}") from error
        pack(message)  # what was taken can be sent again
        if isinstance(message, Failure):
            error_of(message)
        if isinstance(message, ReadRows):
            place_of(message.start)
    assert refused > 50


@pytest.mark.parametrize("head", [b"\xdd", b"\xdf", b"\xdb", b"\xc6", b"\xc9"])
def test_a_length_that_lies_takes_neither_time_nor_memory(head: bytes) -> None:
    data = b"\x81\xa7sources\x91\x82\xa4name\xa1a\xa8position" + head + b"\xff\xff\xff\xff" + b"\xc0" * 1_000
    tracemalloc.start()
    began = time.monotonic()

    for _ in range(100):
        with pytest.raises(InvalidRequest):
            unpack(data, Commit)

    took, (_, peak) = time.monotonic() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert took < 5 and peak < 1 << 20


def test_a_moment_beyond_what_a_datetime_can_say_is_refused_at_the_door() -> None:
    for time_us in (-62_135_596_800_000_000, 253_402_300_799_999_999):
        place_of(unpack(pack(AtTime(time_us)), PLACE))
    for time_us in (-62_135_596_800_000_001, 253_402_300_800_000_000):
        with pytest.raises(InvalidRequest):
            unpack(pack(AtTime(time_us)), PLACE)


@pytest.mark.parametrize("value", ["half \ud800", 1 << 64, -(1 << 63) - 1])
def test_what_has_no_bytes_is_refused_before_it_is_sent(value: object) -> None:
    with pytest.raises(InvalidRequest, match="cannot be sent"):
        pack(TransactionSource("s", value))


def test_a_position_that_holds_itself_is_refused_before_it_is_sent() -> None:
    around: list[object] = []
    around.append(around)

    with pytest.raises(InvalidRequest, match="cannot be sent"):
        pack(TransactionSource("s", around))


def test_an_object_that_does_not_travel_is_our_own_mistake() -> None:
    with pytest.raises(TypeError, match="does not travel"):
        pack(TransactionSource("s", object()))


def test_a_schema_travels_as_its_ipc_bytes() -> None:
    assert unpack(pack(SCHEMA), pa.Schema) == SCHEMA
    described = value_of(TopicDescription, random.Random(1))
    assert unpack(pack(described), TopicDescription).schema == SCHEMA


def test_a_record_of_a_topic_that_was_changed_on_the_way_is_refused() -> None:
    record = value_of(TopicRecord, random.Random(3))

    with pytest.raises(InvalidRequest):
        unpack(pack(record)[:-1], TopicRecord)
