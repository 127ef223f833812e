"""A log behind a server, as landings, audits and views ask it; who sees what of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.client.connecting import connect_to
from headwater.client.connection import Connection
from headwater.client.lake import open_log
from headwater.client.source import ServedSource
from headwater.errors import HeadwaterError, InvalidRequest, NotAllowed, UnknownTopic
from headwater.lake.audit import Audit
from headwater.lake.lander import Lander
from headwater.lake.plan import plan_landing
from headwater.lake.reading import read_rows
from headwater.lake.runner import InProcess
from headwater.lake.view import Views
from headwater.lake.work import LandWork, TopicWork
from headwater.protocol.codec import pack
from headwater.protocol.streams import ReadFrames
from headwater.settings import LandingSettings
from headwater.topics.positions import Lsn
from tests.unit.client.served_lakes import KEYED, PLAIN, LakeServer, serve_lake


@pytest.fixture
def served(tmp_path: Path) -> Iterator[LakeServer]:
    with serve_lake(tmp_path) as served:
        served.log.topic("orders", PLAIN, table="lake.orders", partitions=2)
        served.log.topic("customers", KEYED, key="id", table="lake.customers")
        served.log.topic("others", PLAIN, table="lake.others")
        yield served


def rows(first: int, count: int) -> pa.Table:
    return pa.table({"x": list(range(first, first + count))}, schema=PLAIN)


def fill(served: LakeServer, writes: int = 20) -> int:
    for number in range(writes):
        served.log["orders"].append(rows(10 * number, 10))
        served.log["others"].append(rows(0, 7))
        served.log["customers"].append([{"id": number % 3, "name": str(number)}])
        if number % 8 == 7:
            served.server.served.engine.shard.log.roll()
    return 10 * writes


def test_a_client_lands_audits_and_reads_a_servers_log_into_a_catalog_of_its_own(served: LakeServer) -> None:
    wanted = fill(served)

    with served.lake("lander", LandingSettings(item_bytes=1500)) as (lake, source):
        report = lake.land(source, ["orders", "customers"], runner=InProcess())
        served.log["orders"].append(rows(wanted, 5))
        served.log["customers"].append([{"id": 1, "name": "last"}])
        views = Views(lake, source)
        with views.scan(source.topic("orders")) as scan:
            seen = sorted(scan.to_arrow()["x"].to_pylist())
            counted, cut = scan.count(), scan.cut
        with views.scan(source.topic("customers")) as scan:
            latest = {row["id"]: row["name"] for row in scan.to_arrow().to_pylist()}
        with views.scan(source.topic("orders"), ["x", "_hw_shard", "_hw_lsn"], "x < 3", as_of=cut) as scan:
            few = scan.to_arrow()
        audited = Audit(source, lake.place.connect, lake.ledger, clock=lake.clock).run(
            [source.topic("orders"), source.topic("customers")]
        )
        lags = {lag.topic.name: (lag.rows, lag.oldest_us is not None) for lag in lake.lags(source)}

    assert {each.topic: (each.outcome, each.rows) for each in report.topics} == {
        "orders": ("landed", wanted),
        "customers": ("landed", 20),
    }
    assert report["orders"].files > 3, "a segment is cut into several works"
    assert seen == list(range(wanted + 5)) and counted == wanted + 5
    assert latest == {0: "18", 1: "last", 2: "17"}
    assert few.num_rows == 3 and set(few["_hw_shard"].to_pylist()) == {0}
    assert audited.passed
    assert lags == {"orders": (5, True), "customers": (1, True)}
    assert served.log.status().landing[1].verified_lsn > 0, "the server's own ledger was told"


def test_processes_of_the_client_read_the_frames_themselves(served: LakeServer) -> None:
    wanted = fill(served, 3)

    with served.lake("lander") as (lake, source):
        report = lake.land(source, "orders")

    assert report["orders"].rows == wanted


def test_a_source_says_what_the_log_itself_says(served: LakeServer) -> None:
    fill(served)
    here = served.server.served.log
    assert here is not None

    with served.source("everything") as source:
        assert (source.log_id, source.shard, source.durable_lsn()) == (here.log_id, here.shard, here.durable_lsn())
        assert {each.name for each in source.topics()} == {"orders", "customers", "others"}
        told = source.segments()
        own = here.segments()
        assert [(each.name, each.first_lsn, each.last_lsn, each.sealed) for each in told] == [
            (each.name, each.first_lsn, each.last_lsn, each.sealed) for each in own
        ]
        assert [dict(each.topics) for each in told] == [
            {number: share for number, share in each.topics.items() if number} for each in own
        ]
        orders = source.topic("orders")
        for lsn_from, lsn_to in [(0, 60), (7, 33), (60, 60)]:
            assert source.rows_between(orders.number, lsn_from, lsn_to) == here.rows_between(
                orders.number, lsn_from, lsn_to
            )
            assert source.holds_all(orders.number, lsn_from, lsn_to) == here.holds_all(orders.number, lsn_from, lsn_to)
        for lsn in (1, 9, 10**9):
            assert source.chain_at(lsn) == here.chain_at(lsn)
            assert source.next_write(lsn) == here.next_write(lsn)
        assert source.find_time(0) == here.find_time(0) and source.find_time(1 << 60) is None
        assert source.waiting(orders, 12) == here.waiting(orders, 12)
        columns = pa.schema([("x", pa.int64()), ("_hw_lsn", pa.int64()), ("_hw_offset", pa.int64())])
        assert source.tail(orders, columns, 5, 40).sort_by("_hw_lsn") == here.tail(orders, columns, 5, 40).sort_by(
            "_hw_lsn"
        )
        assert source.tail(orders, columns, 5, 5).num_rows == 0
        assert isinstance(source.let_go(), str)


def test_a_topic_that_was_deleted_is_told_by_its_number(served: LakeServer) -> None:
    with served.source("everything") as source, pytest.raises(UnknownTopic):
        source.rows_between(99, 0, 1)


def test_a_segment_is_shown_with_the_topics_of_whoever_asks_and_no_others(served: LakeServer) -> None:
    fill(served)
    orders, others = served.log["orders"], served.log["others"]

    with served.source("other") as other, served.source("reader") as reader:
        shares = {number for each in other.segments() for number in each.topics}
        assert {each.name for each in other.topics()} == {"others"}
        assert shares == {other.topic("others").number}
        of_orders = {number for each in reader.segments() for number in each.topics}
        assert of_orders == {reader.topic("orders").number}
        bytes_shown = sum(each.bytes for each in reader.segments())
        assert bytes_shown == sum(share.bytes for each in reader.segments() for share in each.topics.values())
        with pytest.raises(UnknownTopic):
            other.topic("orders")
    assert orders.name != others.name


@pytest.mark.parametrize(("principal", "error"), [("other", UnknownTopic), ("writer", NotAllowed)])
def test_what_is_of_a_topic_is_kept_from_who_may_not_look_at_it(
    served: LakeServer, principal: str, error: type[HeadwaterError]
) -> None:
    fill(served, 2)
    record = served.server.served.engine.topic("orders")

    with served.source(principal) as source:
        source._known([record])
        for ask in (
            lambda: source.rows_between(record.number, 0, 9),
            lambda: source.holds_all(record.number, 0, 9),
            lambda: source.waiting(record, 0),
        ):
            with pytest.raises(error):
                ask()
    segment = served.server.served.engine.shard.log.segments()[0].name
    with served.connection(principal) as connection, pytest.raises(error):
        list(connection.get(ReadFrames(segment, ((record.topic_id, 0, 9),))))


def test_who_only_writes_is_told_nothing_of_the_log(served: LakeServer) -> None:
    with served.source("writer") as source:
        for ask in (
            source.segments,
            source.pinned,
            source.let_go,
            source.ledger.state,
            lambda: source.hold(None),
            lambda: source.chain_at(1),
            lambda: source.next_write(1),
            lambda: source.find_time(1),
        ):
            with pytest.raises(NotAllowed):
                ask()
        assert source.topics() == []


def test_no_byte_of_another_topic_is_in_the_frames_that_are_sent(served: LakeServer) -> None:
    served.log["orders"].append(rows(0, 3))
    served.log["others"].append(pa.table({"x": [0x5EC2E7]}, schema=PLAIN))
    served.log["orders"].append(rows(3, 3))
    record = served.server.served.engine.topic("orders")
    segment = served.server.served.engine.shard.log.segments()[0].name

    with served.connection("reader") as connection:
        sent = list(connection.get(ReadFrames(segment, ((record.topic_id, 0, 99),))))

    frames = [each for batch, _ in sent for each in batch.column(0).to_pylist()]
    assert len(frames) == 3 and not any(0x5EC2E7.to_bytes(8, "little") in each for each in frames)


@pytest.mark.parametrize("topics", [3, 12])
def test_frames_of_few_and_of_many_topics_come_in_the_order_of_the_log(served: LakeServer, topics: int) -> None:
    names = [f"others{number}" for number in range(topics)]
    for name in names:
        served.log.topic(name, PLAIN)
    for number in range(4):
        for name in names:
            served.log[name].append(rows(number, 2))

    with served.source("everything") as source:
        found = [source.topic(name) for name in names]
        plan = plan_landing(
            {each.number: 0 for each in found},
            source.segments(),
            durable_lsn=source.durable_lsn(),
            budget_bytes=1 << 40,
            item_bytes=1 << 30,
        )
        [placed] = source.runs(plan.ranges[0], 1 << 30)
        for each in found:
            columns = pa.schema([("x", pa.int64())])
            assert source.tail(each, columns, 0, plan.lsn_to)["x"].to_pylist() == [0, 1, 1, 2, 2, 3, 3, 4]
        again = open_log(served.address("everything"))
        assert again.bytes_of(plan.ranges[0]) == plan.ranges[0].bytes, "of a segment that it has not seen"
        again.close()
    assert placed.runs == ((0, plan.lsn_to),)


def test_a_work_of_several_runs_reads_each(served: LakeServer) -> None:
    fill(served, 4)
    with served.source("reader") as source:
        orders = source.topic("orders")
        [segment] = source.segments()
        topic = TopicWork(orders.number, "", 0, 99, orders.schemas, b"")
        ids = pack({orders.number: orders.topic_id})
        whole = LandWork(source.directory, segment.name, ((0, 99),), 0, (topic,), ids)
        cut = LandWork(source.directory, segment.name, ((0, 5), (5, 6), (6, 99)), 0, (topic,), ids)
        found = [source.read(work, {orders.number: PLAIN}).topics[orders.number].rows for work in (whole, cut)]

    assert found[0] == found[1] and found[0].num_rows == 40


def test_what_is_sent_in_the_place_of_frames_is_refused(served: LakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    class Others(Connection):
        def get(
            self, ticket: object, gone: Callable[[], bool] | None = None
        ) -> Iterator[tuple[pa.RecordBatch, bytes | None]]:
            yield pa.record_batch({"rows": [1]}), None

    fill(served, 1)
    monkeypatch.setattr("headwater.client.connecting.Connection", Others)
    with served.source("reader") as source, pytest.raises(HeadwaterError, match="something else than frames"):
        source.tail(source.topic("orders"), PLAIN, 0, 99)


def test_a_point_in_the_past_is_found_through_a_server(served: LakeServer) -> None:
    first = served.log["orders"].append(rows(0, 4))
    served.log["orders"].append(rows(4, 4))

    with served.lake("lander") as (lake, source):
        views = Views(lake, source)
        with views.scan(source.topic("orders"), as_of=Lsn(first.lsn)) as scan:
            assert sorted(scan.to_arrow()["x"].to_pylist()) == [0, 1, 2, 3]
        with views.scan(source.topic("orders"), as_of=first.time) as scan:
            assert scan.count() == 4


def test_a_lake_behind_a_server_needs_a_catalog_by_name(served: LakeServer) -> None:
    with served.lake("lander") as (lake, _):
        lake._catalog = None
        with pytest.raises(InvalidRequest, match="catalog="):
            lake.place.connect()


def test_a_segment_that_was_rewritten_since_it_was_planned_is_planned_again(
    served: LakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyed = served.log.topic("people", KEYED, key="id", cleanup="compact")
    for number in range(30):
        keyed.append([{"id": number % 2, "name": str(number)}])
    columns = pa.schema([("name", pa.string())])

    with served.source("everything") as source:
        topic = source.topic("people")
        before = source.segments()
        served.log.compact("people")
        monkeypatch.setattr(source, "segments", iter_of(before, source.segments))
        kept = source.tail(topic, columns, 0, source.durable_lsn())["name"].to_pylist()

    assert kept[-2:] == ["28", "29"] and len(kept) < 30


def iter_of(first: object, then: object) -> object:
    """What was seen before, once, and then what there is."""
    answers = [first]
    return lambda: answers.pop() if answers else then()  # type: ignore[operator]


def test_a_landing_of_a_segment_that_has_gone_fails_and_the_next_one_lands(served: LakeServer) -> None:
    wanted = fill(served, 9)

    with served.lake("lander") as (lake, source):
        lake.check_catalog_once()
        lander = Lander(
            source,
            lake.place.connect,
            lake.ledger,
            Renaming(),
            clock=lake.clock,
            entropy=lake.entropy,
            settings=LandingSettings(),
        )
        failed = lander.round([source.topic("orders")])
        landed = lake.land(source, "orders", runner=InProcess())

    assert failed["orders"].outcome == "failed" and "plan again" in failed["orders"].message
    assert landed["orders"].rows == wanted


class Renaming(InProcess):
    """Works of a plan in which every segment has been rewritten since."""

    def run(self, works):  # type: ignore[no-untyped-def]
        from msgspec import structs

        return super().run([structs.replace(work, segment="00000000000000000001.9.seg") for work in works])


# What is sent is checked here ------------------------------------------------------------------------------------


class Tampering(Connection):
    """A network, or a server, that changes what is sent."""

    change = staticmethod(lambda frames: frames)

    def get(
        self, ticket: object, gone: Callable[[], bool] | None = None
    ) -> Iterator[tuple[pa.RecordBatch, bytes | None]]:
        for batch, beside in super().get(ticket, gone):
            frames = self.change(batch.column(0).to_pylist())
            yield pa.record_batch([pa.array(frames, pa.large_binary())], names=batch.schema.names), beside


def flipped(frame: bytes, at: int) -> bytes:
    return frame[:at] + bytes([frame[at] ^ 1]) + frame[at + 1 :]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda frames: [frames[0], flipped(frames[1], 130), *frames[2:]], "does not match its checksum"),
        (lambda frames: [frames[0], flipped(frames[1], 60), *frames[2:]], "does not match its checksum"),
        (lambda frames: [flipped(frames[0], 140), *frames[1:]], "segment's header"),
        (lambda frames: [frames[0], frames[2], frames[1], *frames[3:]], "not in its place"),
        (lambda frames: [*frames[:2], *frames[1:2], *frames[3:]], "not in its place"),
        (lambda frames: [frames[0], frames[1] + bytes(128), *frames[2:]], "not in its place"),
        (lambda frames: frames[:-1], "not all frames came"),
        (lambda frames: [], "not all frames came"),
    ],
)
def test_frames_that_were_changed_on_their_way_are_not_believed(
    served: LakeServer, monkeypatch: pytest.MonkeyPatch, change: object, words: str
) -> None:
    fill(served, 4)
    monkeypatch.setattr(Tampering, "change", staticmethod(change))  # type: ignore[arg-type]
    monkeypatch.setattr("headwater.client.connecting.Connection", Tampering)
    columns = pa.schema([("x", pa.int64())])

    with served.source("reader") as source, pytest.raises(HeadwaterError, match=words):
        source.tail(source.topic("orders"), columns, 0, source.durable_lsn())


def test_frames_of_another_topic_are_not_taken(served: LakeServer) -> None:
    fill(served, 2)
    with served.source("everything") as source:
        orders, others = source.topic("orders"), source.topic("others")
        [segment] = source.segments()
    topic = TopicWork(orders.number, "", 0, 99, orders.schemas, b"")
    wrong = pack({orders.number: others.topic_id})
    work = LandWork(served.address("everything"), segment.name, ((0, 99),), 0, (topic,), wrong)

    read = read_rows(work, {orders.number: PLAIN})

    assert "not asked for" in read.errors[orders.number]


def test_a_token_that_is_in_no_file_reads_in_its_own_process(served: LakeServer) -> None:
    fill(served, 2)
    connection = connect_to(served.server.address, token=(served.folder / "reader.token").read_text())
    source = ServedSource(connection, owns_connection=True)
    try:
        rows_read = source.tail(source.topic("orders"), PLAIN, 0, source.durable_lsn())
    finally:
        source.close()

    assert rows_read.num_rows == 20


def test_an_address_that_is_no_servers_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        open_log("ftp://nobody")
