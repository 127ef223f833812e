"""The ledger of a log behind a server: who writes which lines of it, and who sees them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.errors import HeadwaterError, InvalidRequest, NotAllowed, UnknownTopic
from headwater.lake.ledger_records import (
    Audited,
    Begun,
    CheckedCatalog,
    Decided,
    Ended,
    Erased,
    Kept,
    LedgerRecord,
    Restored,
)
from headwater.protocol.lake_calls import RECORD_IN_LEDGER, RecordInLedger
from headwater.server import lake_calls
from headwater.server.access import Grant
from tests.unit.client.served_lakes import KEYED, PLAIN, LakeServer, serve_lake


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeServer]:
    folder: Path = tmp_path_factory.mktemp("ledger")
    with serve_lake(folder) as served:
        served.log.topic("orders", PLAIN, table="lake.orders")
        served.log.topic("customers", KEYED, key="id", table="lake.customers")
        served.log.topic("others", PLAIN, table="lake.others")
        served.log["orders"].append(pa.table({"x": [1]}, schema=PLAIN))
        yield served


def topic_id(served: LakeServer, name: str) -> str:
    return served.server.served.engine.topic(name).topic_id.hex()


def begun(topic: str, commit_id: str = "c", epoch: int = 1) -> Begun:
    return Begun(topic_id=topic, table="t", epoch=epoch, commit_id=commit_id, at_us=1)


def test_a_record_is_in_the_servers_ledger_and_in_every_clients_state(served: LakeServer) -> None:
    orders = topic_id(served, "orders")

    with served.source("lander") as one, served.source("reader") as two:
        assert two.ledger.state().topic(orders).in_flight == {}
        one.ledger.record([])
        one.ledger.record([begun(orders, "first"), begun(orders, "second", epoch=7)])
        seen = two.ledger.state().topic(orders)
        assert set(seen.in_flight) == {"first", "second"} and seen.epoch == 7
        assert one.ledger.state().topic(orders) == seen
        assert [each.commit_id for each in one.ledger.records() if isinstance(each, Begun)] == ["first", "second"]
        one.ledger.close()
    lake = served.server.served.lake
    assert lake is not None and set(lake.ledger.state().topic(orders).in_flight) == {"first", "second"}


def test_lines_of_other_topics_are_not_shown(served: LakeServer) -> None:
    orders, others, customers = (topic_id(served, name) for name in ("orders", "others", "customers"))
    catalog = CheckedCatalog(catalog="c", passed=True, properties={}, at_us=1)
    with served.source("everything") as everything:
        everything.ledger.record([begun(others, "of others"), begun(customers, "of customers"), catalog])
        everything.ledger.record(
            [Kept(table=name, what="w", at_us=1) for name in ("lake.orders", "lake.others", "lake.customers_changes")]
        )

    with served.source("other") as other, served.source("reader") as reader, served.source("lander") as lander:
        assert {each.topic_id for each in other.ledger.records() if isinstance(each, Begun)} == {others}
        assert set(other.ledger.state().kept) == {"lake.others"} and other.ledger.state().catalogs
        assert set(reader.ledger.state().kept) == {"lake.orders"} and not reader.ledger.state().catalogs
        assert others not in reader.ledger.state().topics
        assert set(lander.ledger.state().kept) == {"lake.orders", "lake.customers_changes"}
        assert {orders, customers} == set(lander.ledger.state().topics)


def every_refused(served: LakeServer) -> list[tuple[str, LedgerRecord, type[HeadwaterError]]]:
    orders, others = topic_id(served, "orders"), topic_id(served, "others")
    audit = Audited(
        topic_id=orders, table="t", table_uuid="", snapshot=None, lsn_to=10**9, rows=0, full=True, passed=True, at_us=1
    )
    decided = Decided(topic_id=orders, table="t", act="landed-lsn", lsn=10**9, lsn_before=0, at_us=1)
    ended = Ended(topic_id=orders, table="t", commit_id="c", why="failed", at_us=1)
    erased = Erased(
        topic_id=orders, topic="orders", table="t", erasure_id="e", reason="r", condition_hash="", lsn_to=1, rows=0,
        offsets=(), parts=(), at_us=1,
    )  # fmt: skip
    restored = Restored(
        topic_id=orders, topic="orders", table="t", table_uuid="", log_id_before="", snapshot=1, lsn_before=1,
        lsn_to=1, rows=0, digest=None, columns=(), at_us=1,
    )  # fmt: skip
    return [
        ("lander", begun(others), UnknownTopic),
        ("lander", begun("00" * 16), UnknownTopic),
        ("lander", begun("no id"), UnknownTopic),
        ("lander", Kept(table="lake.others", what="w", at_us=1), UnknownTopic),
        ("lander", audit, InvalidRequest),
        ("lander", decided, InvalidRequest),
        ("lander", erased, InvalidRequest),
        ("lander", restored, InvalidRequest),
        ("reader", ended, NotAllowed),
        ("mixed", ended, NotAllowed),
        ("other", ended, UnknownTopic),
    ]


def test_what_a_principal_may_not_say_is_not_written(served: LakeServer) -> None:
    for principal, record, error in every_refused(served):
        with served.source(principal) as source:
            before = len(list(source.ledger.records()))
            with pytest.raises(error):
                source.ledger.record([record])
            assert len(list(source.ledger.records())) == before


def test_bytes_that_are_no_record_are_refused(served: LakeServer) -> None:
    with served.connection("lander") as connection, pytest.raises(InvalidRequest):
        connection.call(RECORD_IN_LEDGER, RecordInLedger((b"\xc1",)))


def test_a_long_ledger_comes_in_pages(served: LakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = topic_id(served, "orders")
    with served.source("lander") as source:
        source.ledger.record([begun(orders, f"page {number}") for number in range(20)])
        whole = list(source.ledger.records())
    monkeypatch.setattr(lake_calls, "PAGE_BYTES", 100)

    with served.source("lander") as source:
        assert list(source.ledger.records()) == whole
        assert len(source.ledger.state().topic(orders).in_flight) >= 20


def test_what_was_kept_from_a_principal_is_read_once_it_may(
    served: LakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = topic_id(served, "others")
    with served.source("everything") as everything:
        everything.ledger.record([begun(others, "before it might")])

    with served.source("reader") as reader:
        assert others not in reader.ledger.state().topics
        access = served.server.served._access
        authenticate = access.authenticate

        def more(authorization: str | None, certificate: str | None):  # type: ignore[no-untyped-def]
            found = authenticate(authorization, certificate)
            return type(found)(found.name, (*found.grants, Grant("read", "others")))

        monkeypatch.setattr(access, "authenticate", more)
        assert "before it might" in reader.ledger.state().topic(others).in_flight
