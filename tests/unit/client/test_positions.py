"""Where queries of Spark begin and end in a log behind a server: where they would beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.clock import ManualClock
from headwater.errors import Conflict, Forgotten, InvalidRequest, NotAllowed, UnknownTopic
from headwater.lake.reading import read_rows
from headwater.protocol.lake_calls import FIND_POSITION, FindPosition
from headwater.spark.source_log import OpenTopic
from headwater.spark.source_options import EARLIEST, LATEST, AtTime, Where, parse_options
from headwater.spark.source_position import Position
from tests.unit.client.served_lakes import PLAIN, LakeServer, serve_lake


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeServer]:
    folder: Path = tmp_path_factory.mktemp("positions")
    with serve_lake(folder) as served:
        orders = served.log.topic("orders", PLAIN, partitions=2, retention_bytes=1)
        others = served.log.topic("others", PLAIN)
        for number in range(12):
            orders.append(pa.table({"x": [number] * 50}, schema=PLAIN), partition=number % 2)
            others.append(pa.table({"x": [number] * 20}, schema=PLAIN))
            if number % 4 == 3:
                served.server.served.engine.shard.log.roll()
        yield served


def both(served: LakeServer, principal: str = "reader") -> tuple[OpenTopic, OpenTopic]:
    return OpenTopic(str(served.folder / "data"), "orders"), OpenTopic(served.address(principal), "orders")


def places(served: LakeServer) -> list[Where]:
    time_us = served.server.served.engine.shard.log.device.last_append_time_us()
    return [EARLIEST, LATEST, AtTime(0), AtTime(time_us), AtTime(1 << 60), {0: 30, 1: -1}, {0: -2, 1: 120}]


def test_positions_are_the_same_through_a_server_as_beside_the_log(served: LakeServer) -> None:
    here, there = both(served)
    with here, there:
        assert there.record == here.record and there.latest() == here.latest()
        for where in places(served):
            assert there.start(where) == here.start(where)
            assert there.end(where) == here.end(where)
        start = here.start(EARLIEST)
        for bytes_max in (None, 1, 3_000, 10**9):
            assert there.after(start, bytes_max) == here.after(start, bytes_max)
        assert there.after(there.latest(), None) == there.latest()
        there.check_not_forgotten(start, fail=True)


def test_the_pieces_hold_every_row_once(served: LakeServer) -> None:
    _, there = both(served)
    with there:
        start, end = there.start(EARLIEST), there.latest()
        partitions = there.pieces(start, end, partitions_min=4)
        pieces = [piece for each in partitions for piece in each]
        again = [other for piece in pieces for other in there.again(piece)]
    seen: list[int] = []
    for piece in pieces:
        done = read_rows(piece.work, {piece.topic.number: PLAIN})
        assert not done.errors
        seen += done.topics[piece.topic.number].rows["x"].to_pylist()

    assert len(partitions) >= 4 and all(piece.bytes > 0 for piece in pieces)
    assert sorted(seen) == sorted(number for number in range(12) for _ in range(50))
    assert [each.work.runs for each in again] == [each.work.runs for each in pieces]


def test_what_was_asked_for_wrongly_is_refused_in_the_same_words(served: LakeServer) -> None:
    here, there = both(served)
    with here, there:
        for wrong in ({0: 1}, {0: 1, 1: 1, 2: 1}):
            with pytest.raises(InvalidRequest) as one:
                here.start(wrong)
            with pytest.raises(InvalidRequest) as two:
                there.start(wrong)
            assert one.value.message == two.value.message
        with pytest.raises(Conflict):
            there.check(Position("00" * 16, 1, {}))


def test_a_word_that_is_no_position_is_refused(served: LakeServer) -> None:
    orders = served.server.served.engine.topic("orders").topic_id
    with served.connection("reader") as connection, pytest.raises(InvalidRequest):
        connection.call(FIND_POSITION, FindPosition(orders, word="noon"))


def test_a_topic_that_is_not_ones_own_has_no_positions(served: LakeServer) -> None:
    with pytest.raises(UnknownTopic):
        OpenTopic(served.address("other"), "orders")
    with OpenTopic(served.address("writer"), "orders") as topic, pytest.raises(NotAllowed):
        topic.latest()


def test_rows_that_the_log_has_forgotten_are_told_of_through_a_server(tmp_path: Path) -> None:
    clock = ManualClock()
    with serve_lake(tmp_path, clock=clock) as served:
        orders = served.log.topic("orders", PLAIN, retention="1d")
        for _ in range(4):
            orders.append(pa.table({"x": [1, 2, 3]}, schema=PLAIN))
            served.server.served.engine.shard.log.roll()
            served.log.checkpoint()
        clock.advance(86_400 * 2)
        orders.append(pa.table({"x": [4]}, schema=PLAIN))
        with OpenTopic(served.address("reader"), "orders") as topic:
            start = topic.start(EARLIEST)
            [pieces] = topic.pieces(start, topic.latest(), partitions_min=None)
            clock.advance(3_600)
            assert served.log.cleanup().deleted
            with pytest.raises(Forgotten, match="that this query has not read"):
                topic.check_not_forgotten(start, fail=True)
            topic.check_not_forgotten(start, fail=False)
            with pytest.raises(Forgotten, match="while they were being read"):
                topic.again(pieces[0])


def test_options_name_a_server_and_the_files_that_it_is_asked_with() -> None:
    given = {"uri": "hws://log:7070", "topic": "t", "tokenFile": "/run/a token", "caFile": "/ca.pem"}

    options = parse_options(given)

    assert options.directory == "hws://log:7070?token_file=/run/a%20token&ca_file=/ca.pem"
    assert parse_options({**given, "uri": "hws://log?ca_file=/x", "caFile": ""}).directory == (
        "hws://log?ca_file=/x&token_file=/run/a%20token"
    )
    with pytest.raises(InvalidRequest, match="tokenFile is for a server"):
        parse_options({"uri": "/data", "topic": "t", "tokenFile": "x"})
    with pytest.raises(InvalidRequest, match="put it into a file"):
        parse_options({**given, "token": "hw_secret"})
