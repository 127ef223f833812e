"""The door for Flight, as somebody sees it who knows only the protocol."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from headwater.errors import Conflict, InvalidRequest, Unavailable, UnknownPartition, UnknownTopic
from headwater.protocol import calls
from headwater.protocol.codec import pack, unpack
from headwater.protocol.places import AtLsn, AtOffsets, AtWord
from headwater.protocol.streams import ReadPartition, ReadPartitions, ReadPlan, ReadRows, ReadTo, RowsAnswer
from headwater.server import calls as server_calls
from headwater.server import flight as server_flight
from headwater.server.appends import Answers
from headwater.server.reads import ranges
from headwater.server.serving import Server
from headwater.server.settings import ServerLimits
from tests.servers.headwater import on_loopback, serving
from tests.unit.server.wire import ORDERS, Wire, read_all, told

WAIT_S = 20.0


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(":memory:") as found:
        yield found


@pytest.fixture
def wire(server: Server) -> Iterator[Wire]:
    found = Wire(server.location)
    yield found
    found.close()


def one(number: int) -> list[dict[str, Any]]:
    return [{"id": number, "note": "x"}]


def until(true: Any) -> None:
    """Wait until it is so."""
    nobody = threading.Event()
    for _ in range(int(WAIT_S / 0.02)):
        if true():
            return
        nobody.wait(0.02)
    raise AssertionError("it did not become so")


def test_requests_are_answered_in_order_and_a_refused_one_does_not_end_the_stream(wire: Wire) -> None:
    topic = wire.make("in-order")
    put = wire.put(topic)

    put.send(1, one(1))
    put.send(2, one(2), partition=9)
    put.send(3, one(3))
    answers = [put.answer() for _ in range(3)]
    put.end()

    assert [each.number for each in answers] == [1, 2, 3]
    assert answers[1].failure is not None and answers[1].failure.kinds[0] == "UnknownPartition"
    assert answers[2].appended is not None and answers[2].appended.offsets == {0: (1, 2)}
    assert read_all(wire.get(ReadRows(topic.topic_id, AtWord("earliest")))) == one(1) + one(3)


def test_a_stream_has_exactly_the_schema_of_the_version_that_it_names(wire: Wire) -> None:
    topic = wire.make("exact")

    for schema in (pa.schema([("id", pa.int64())]), pa.schema([*ORDERS, ("more", pa.int64())])):
        put = wire.put(topic, schema)
        with pytest.raises(InvalidRequest):
            put.answer()
    put = wire.put(topic, version=2)
    with pytest.raises(InvalidRequest, match="no schema version 2"):
        put.answer()


def test_rows_of_an_older_version_are_taken_and_come_in_the_present_one(wire: Wire) -> None:
    topic = wire.make("older")
    wider = pa.schema([*ORDERS, pa.field("region", pa.string())])
    wire.call(calls.ALTER_TOPIC, calls.AlterTopic(topic.topic_id, schema=wider.serialize().to_pybytes()))

    put = wire.put(topic)
    put.send(1, one(1))
    answer = put.answer()
    put.end()

    assert answer.appended is not None
    assert read_all(wire.get(ReadRows(topic.topic_id, AtWord("earliest")))) == [{"id": 1, "note": "x", "region": None}]


def test_a_null_where_none_may_be_is_refused(wire: Wire) -> None:
    put = wire.put(wire.make("not-null"))
    batch = pa.RecordBatch.from_arrays([pa.array([None], pa.int64()), pa.array(["x"])], schema=ORDERS)

    put.send(1, batch)
    answer = put.answer()
    put.end()

    assert answer.failure is not None and "InvalidRequest" in answer.failure.kinds


def test_rows_whose_bytes_are_not_what_they_say_are_refused_and_the_next_are_taken(wire: Wire) -> None:
    put = wire.put(wire.make("not-valid"))
    offsets, half_a_character = pa.py_buffer(b"\x00\x00\x00\x00\x01\x00\x00\x00"), pa.py_buffer(b"\xff")
    note = pa.StringArray.from_buffers(1, offsets, half_a_character)

    put.send(1, pa.RecordBatch.from_arrays([pa.array([1]), note], schema=ORDERS))
    put.send(2, one(2))
    refused, taken = put.answer(), put.answer()
    put.end()

    assert refused.failure is not None and "no valid Arrow" in refused.failure.message
    assert taken.appended is not None


def test_a_follower_is_given_rows_when_they_are_durable_and_ends_when_its_reader_has_gone(
    server: Server, wire: Wire
) -> None:
    topic = wire.make("followed")
    before = server.streams.open_now
    reader = wire.get(ReadRows(topic.topic_id, AtWord("latest"), follow=True))
    until(lambda: server.streams.open_now == before + 1)

    put = wire.put(topic)
    put.send(1, one(1))
    put.answer()
    put.end()
    chunk = reader.read_chunk()
    reader.cancel()

    assert chunk.data.to_pylist() == one(1)
    until(lambda: server.streams.open_now == before)


def test_a_partition_is_read_with_the_offsets_of_each_batch(wire: Wire) -> None:
    topic = wire.make("by-partition", partitions=2)
    put = wire.put(topic)
    for number in range(4):
        put.send(number + 1, one(number), partition=1)
        put.answer()

    reader = wire.get(ReadPartition(topic.topic_id, 1, 2))
    first = reader.read_chunk()
    put.send(9, one(9), partition=1)
    put.answer()
    second = reader.read_chunk()
    reader.cancel()
    put.end()

    assert unpack(memoryview(first.app_metadata), ReadTo) == ReadTo(2, 4)
    assert first.data.column("id").to_pylist() == [2, 3]
    assert unpack(memoryview(second.app_metadata), ReadTo) == ReadTo(4, 5)
    assert second.data.drop_columns(["_hw_offset"]).to_pylist() == one(9)


def test_rows_of_many_partitions_come_by_one_message_with_their_places(wire: Wire) -> None:
    topic = wire.make("many-partitions", partitions=3)
    put = wire.put(topic)
    for number in range(6):
        put.send(number + 1, one(number), partition=number % 3)
        put.answer()
    put.end()

    rows = read_all(wire.get(ReadPartitions(topic.topic_id, {0: 1, 2: 0})))

    assert [(row["id"], row["_hw_partition"], row["_hw_offset"]) for row in rows] == [(2, 2, 0), (3, 0, 1), (5, 2, 1)]
    assert list(rows[0])[-2:] == ["_hw_partition", "_hw_offset"]
    assert read_all(wire.get(ReadPartitions(topic.topic_id, {1: 2}))) == []


def test_a_read_that_cannot_be_is_refused_by_its_kind(wire: Wire) -> None:
    topic = wire.make("refused-reads")

    for ticket, kind in (
        (ReadPartition(topic.topic_id, 7, 0), UnknownPartition),
        (ReadPartitions(topic.topic_id, {0: 0, 7: 0}), UnknownPartition),
        (ReadPartitions(bytes(16), {0: 0}), UnknownTopic),
        (ReadPartitions(topic.topic_id, {}), InvalidRequest),
        (ReadRows(bytes(16), AtWord("earliest")), UnknownTopic),
        (ReadRows(topic.topic_id, AtWord("yesterday-ish")), InvalidRequest),
    ):
        with pytest.raises(kind):
            read_all(wire.get(ticket))
    with pytest.raises(InvalidRequest):
        read_all(wire.get(b"no ticket"))


def test_a_planned_read_gives_the_same_rows_at_every_use(wire: Wire) -> None:
    topic = wire.make("planned")
    put = wire.put(topic)
    for number in range(20):
        put.send(number + 1, one(number))
        put.answer()
    whole = wire.info(ReadRows(topic.topic_id, AtWord("earliest")))
    latest = wire.info(ReadRows(topic.topic_id, AtWord("latest"), follow=True, timeout_s=0.0))
    parts = wire.info(ReadPlan(topic.topic_id, AtWord("earliest"), endpoints_min=3))
    put.send(100, one(100))
    put.answer()
    put.end()

    for _ in range(2):
        assert len(read_all(wire.client.do_get(whole.endpoints[0].ticket))) == 20
        assert read_all(wire.client.do_get(latest.endpoints[0].ticket)) == one(100)
        found = [read_all(wire.client.do_get(each.ticket)) for each in parts.endpoints]
        assert len(found) == 3
        assert [row["id"] for each in found for row in each] == list(range(20))
    assert whole.schema.equals(ORDERS)


def test_a_plan_by_offsets_is_for_one_reader(wire: Wire) -> None:
    topic = wire.make("planned-by-offset", partitions=2)

    plan = wire.info(ReadPlan(topic.topic_id, AtOffsets({0: 0, 1: 0}), endpoints_min=9))

    assert len(plan.endpoints) == 1


@pytest.mark.parametrize(
    ("first", "last", "begins", "at_least", "found"),
    [
        (1, 10, [], 1, [(1, 10)]),
        (1, 10, [4, 8], 1, [(1, 3), (4, 7), (8, 10)]),
        (1, 10, [4], 2, [(1, 3), (4, 10)]),
        (1, 10, [4], 5, [(1, 2), (3, 4), (5, 6), (7, 8), (9, 10)]),
        (1, 2, [], 5, [(1, 1), (2, 2)]),
        (5, 4, [], 3, []),
    ],
)
def test_ranges_hold_each_lsn_once(
    first: int, last: int, begins: list[int], at_least: int, found: list[tuple[int, int]]
) -> None:
    assert ranges(first, last, begins, at_least) == found


@pytest.mark.parametrize(
    ("header", "value", "kind"),
    [
        ("hw_version", "2", InvalidRequest),
        ("hw_version", "one", InvalidRequest),
        ("hw_shard", "1", Conflict),
        ("hw_epoch", "99", Unavailable),
    ],
)
def test_a_call_for_another_log_is_refused(server: Server, header: str, value: str, kind: type[Exception]) -> None:
    other = Wire(server.location, **{header: value})

    with pytest.raises(kind):
        other.call(calls.HELLO)
    other.close()


def test_a_call_for_this_log_is_answered(server: Server) -> None:
    same = Wire(server.location, hw_version="1", hw_shard="0", hw_epoch="1")

    assert same.call(calls.HELLO).principal == "everybody"
    same.close()


def test_an_error_of_the_servers_own_is_told_without_its_details(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a secret of the server")

    monkeypatch.setitem(server_flight.ANSWERED, calls.DURABLE_LSN.name, broken)

    with pytest.raises(flight.FlightInternalError) as error:
        wire.call(calls.DURABLE_LSN)

    assert "secret" not in str(error.value)
    assert "a secret of the server" in caplog.text


def test_a_call_that_there_is_not_and_one_that_is_too_large_are_refused(server: Server, wire: Wire) -> None:
    with pytest.raises(flight.FlightError) as error:
        list(wire.client.do_action(flight.Action("no such call", b"")))
    assert isinstance(told(error.value), InvalidRequest)

    small = on_loopback(limits=ServerLimits(message_bytes_max=1_000))
    with serving(":memory:", settings=small) as other:
        narrow = Wire(other.location)
        with pytest.raises(InvalidRequest, match="too large"):
            narrow.call(calls.CREATE_TOPICS, calls.CreateTopics((calls.WireNewTopic("orders", bytes(2_000)),)))
        narrow.close()


def test_the_actions_that_are_listed_are_those_that_are_answered(wire: Wire) -> None:
    assert {each.type for each in wire.client.list_actions()} == set(server_flight.ANSWERED)
    assert set(server_calls.HANDLERS) <= set(server_flight.ANSWERED)


def test_the_next_stream_above_the_limit_is_refused_at_once() -> None:
    with serving(":memory:", settings=on_loopback(limits=ServerLimits(streams_max=2))) as server:
        wire = Wire(server.location)
        topic = wire.make("orders")
        puts = [wire.put(topic) for _ in range(2)]
        for put in puts:
            put.send(1, one(1))
            put.answer()

        with pytest.raises(Unavailable):
            read_all(wire.get(ReadRows(topic.topic_id, AtWord("earliest"))))
        puts.pop().end()
        until(lambda: server.streams.open_now == 1)
        assert len(read_all(wire.get(ReadRows(topic.topic_id, AtLsn(1))))) == 2

        puts.pop().end()
        wire.close()


def test_a_stop_answers_what_is_in_flight_and_tells_those_who_hold_streams_open() -> None:
    with serving(":memory:") as server:
        wire = Wire(server.location)
        put = wire.put(wire.make("orders"))
        put.send(1, one(1))
        answers = [put.answer()]
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        answers.append(put.answer())
        put.send(2, one(2))
        answers.append(put.answer())
        put.end()
        stopping.join(WAIT_S)

        assert not stopping.is_alive()
        assert not server.streams_left
    assert [each.number for each in answers] == [1, 0, 2]
    assert [each.failure is not None and each.failure.kinds[0] for each in answers] == [
        False,
        "Unavailable",
        "Unavailable",
    ]
    wire.close()


def test_a_sender_of_whom_nothing_is_heard_is_told_once_to_end_its_stream() -> None:
    with serving(":memory:", settings=on_loopback(limits=ServerLimits(idle_s=0.05))) as server:
        wire = Wire(server.location)
        put = wire.put(wire.make("orders"))

        idle = put.answer()
        put.send(1, one(1))
        after = put.answer()
        put.end()

        assert idle.number == 0 and idle.failure is not None and idle.failure.kinds[0] == "Unavailable"
        assert after.number == 1 and after.appended is not None
        wire.close()


def test_answers_that_nobody_takes_do_not_hold_the_stream() -> None:
    class Gone:
        def write(self, _: object) -> None:
            raise OSError("the other end has gone")

    ended: list[int] = []
    answers = Answers(Gone(), 1, 60.0, lambda error: error)

    assert answers.has_room()
    answers.add(1, Unavailable("no"), lambda: ended.append(1))
    assert not answers.has_room()
    answers.add(2, Unavailable("no"), lambda: ended.append(2))
    answers.finish()

    assert ended == [1, 2]
    assert unpack(pack(RowsAnswer(1)), RowsAnswer) == RowsAnswer(1)
