"""A row is followed back: from its data file to its landing, its segment, its write and whoever sent it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from headwater.errors import Forgotten, InvalidRequest, UnknownPartition
from headwater.lake.ledger_records import Erased, Landed, Restored, Verified
from headwater.lake.shape import table_shape
from headwater.lake.tracing import RowTrace, Sender, trace_row
from headwater.topics.appending import key_hash
from tests.unit.lake.older_lakes import OlderLake
from tests.unit.lake.small_lakes import PLAIN, NoReadBack, of_kind
from tests.unit.topics.small_engines import engine_of


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[OlderLake]:
    lake = OlderLake(tmp_path)
    yield lake
    lake.close()


def traced(lake: OlderLake, offset: int, partition: int = 0, name: str = "orders") -> RowTrace:
    beside = lake.log._lake
    assert beside is not None
    return trace_row(engine_of(lake.log), beside, lake.record(name), partition, offset)


def test_a_landed_row_is_followed_to_its_file_its_landing_and_its_frame(lake: OlderLake) -> None:
    lake.topic("orders")
    lake.append("orders", 2)
    lake.append("orders", 3)
    lake.round()

    found = traced(lake, 3)

    [record] = of_kind(lake, Landed)
    [verified] = of_kind(lake, Verified)
    [path] = lake.files()
    assert found.file is not None and found.landing is not None and found.log is not None
    assert (found.file.path.removeprefix("file://"), found.file.row_group, found.file.row) == (str(path), 0, 3)
    assert found.file.lsn == found.log.lsn == found.lsn
    assert found.file.time_us == found.log.time_us
    assert (found.landing.commit_id, found.landing.snapshot) == (record.commit_id, record.snapshot)
    assert (found.landing.lsn_from, found.landing.lsn_to, found.landing.rows) == (0, record.lsn_to, 5)
    assert (found.landing.verified_us, found.landing.verified_by) == (verified.at_us, "read-back")
    assert (found.log.first_offset, found.log.offsets, found.log.rows) == (2, 3, 3)
    segment = (lake.folder / "log" / found.log.segment).read_bytes()
    assert segment[found.log.position :][:4] == b"\xc8HWF"
    assert found.sender is None and found.notes == ()


def test_what_has_not_landed_and_what_was_not_verified_is_said(lake: OlderLake) -> None:
    lake.topic("orders")
    lake.append("orders", 1)
    lake.round(runner=NoReadBack())
    lake.append("orders", 1)

    landed, waiting = traced(lake, 0), traced(lake, 1)

    assert landed.landing is not None and landed.landing.verified_us is None
    assert waiting.file is None and waiting.landing is None
    assert waiting.notes == (f"it has not landed: the table holds rows up to lsn {lake.known().landed_lsn}",)


def test_what_the_log_has_let_go_of_is_followed_from_the_table(lake: OlderLake) -> None:
    lake.topic("orders")
    lake.append("orders", 2)
    lake.round()
    assert lake.let_go()
    lake.append("orders", 1)

    found = traced(lake, 1)

    assert found.log is None and found.write is None
    assert found.notes == ("the log has let go of it",)
    assert found.file is not None and found.landing is not None and found.lsn == found.file.lsn
    assert found.landing.lsn_from < found.file.lsn <= found.landing.lsn_to


def test_a_row_that_is_nowhere_any_more_is_still_known_by_its_landing(lake: OlderLake) -> None:
    lake.topic("orders")
    lake.append("orders", 2)
    lake.round()
    lake.append("orders", 2)
    lake.round()
    lake.let_go()
    lake.foreign_delete(x=1)
    lake.ledger.record(
        [
            Erased(
                topic_id=lake.record("orders").topic_id.hex(), topic="orders", table="lake.orders", erasure_id="e1",
                reason="asked for", condition_hash="", lsn_to=9, rows=1, offsets=((0, 1, 1),), parts=(), at_us=1,
            )
        ]
    )  # fmt: skip

    found = traced(lake, 1)

    first, _ = of_kind(lake, Landed)
    assert found.landing is not None and found.landing.commit_id == first.commit_id
    assert found.notes == (
        "the log has let go of it",
        "the table lake.orders does not hold it now: audit it",
        "it was erased: asked for (erasure e1)",
    )
    lake.drop()
    assert "there is no table lake.orders" in traced(lake, 0).notes


def test_a_row_that_is_there_twice_is_said(lake: OlderLake) -> None:
    lake.topic("orders")
    lake.append("orders", 1)
    lake.round()
    with lake.native() as table:
        table.append(table.scan().to_arrow())

    assert "the table lake.orders holds it 2 times: audit it" in traced(lake, 0).notes


def test_a_row_of_a_lost_log_is_known_by_the_taking_over(lake: OlderLake) -> None:
    record = lake.topic("orders")
    lake.append("orders", 1)
    lake.round()
    lsn = lake.known().landed_lsn
    lake.rewrite_ledger(lambda record: not isinstance(record, Landed | Verified))
    common: dict[str, Any] = {"topic_id": record.topic_id.hex(), "topic": "orders", "table": "lake.orders", "at_us": 5}
    lake.ledger.record(
        [
            Restored(
                **common, table_uuid="", log_id_before="old", snapshot=4, lsn_before=lsn, lsn_to=lsn, rows=1,
                digest=None, columns=(),
            )
        ]
    )  # fmt: skip

    found = traced(lake, 0)

    assert found.landing is not None and found.landing.restored and found.landing.verified_by == "taken over"


def test_a_landing_that_the_ledger_does_not_know_is_said(lake: OlderLake) -> None:
    lake.topic("orders")
    lake.append("orders", 1)
    lake.round()
    [landed] = of_kind(lake, Landed)
    lake.rewrite_ledger(lambda record: not isinstance(record, Landed | Verified))
    lake.ledger.record([_moved(landed)])

    assert "the ledger does not know by which landing it came" in traced(lake, 0).notes


def _moved(landed: Landed) -> Landed:
    """A landing of later rows."""
    return msgspec.structs.replace(landed, lsn_from=landed.lsn_to, lsn_to=landed.lsn_to + 9)


def test_a_table_that_was_made_anew_is_said(lake: OlderLake) -> None:
    record = lake.topic("orders")
    lake.append("orders", 1)
    lake.round()
    lake.drop()
    lake.connect().create("lake.orders", table_shape(record))

    assert traced(lake, 0).notes == ("the table lake.orders does not hold it now: audit it",)


def test_a_topic_without_a_table_is_followed_in_the_log_alone(lake: OlderLake) -> None:
    lake.log.topic("plain", schema=PLAIN)
    lake.log["plain"].append([{"x": 1}])

    found = traced(lake, 0, name="plain")

    assert found.log is not None and found.notes == ("the topic has no table",)


@pytest.mark.parametrize("rows", [1, 20_000])
def test_who_sent_a_row_is_told_by_producer_and_by_key(lake: OlderLake, rows: int) -> None:
    """A large request has a frame of its own; a small one shares it, and the write's first frame says whose it is."""
    lake.topic("orders")
    table = pa.table({"x": list(range(rows))}, schema=PLAIN)
    producer = lake.log.producer("etl")
    producer.append("orders", table)
    producer.append("orders", table)
    lake.log["orders"].append(table, idempotency_key="again")
    lake.log["orders"].append(table)

    found = [traced(lake, rows * number).sender for number in range(4)]

    assert found[0] == Sender(1, "etl", 1, 0) and found[1] == Sender(1, "etl", 1, 1)
    assert found[2] == Sender(key_hash=key_hash("again", lake.record("orders").topic_id).hex())
    assert found[3] is None


def test_the_bounds_of_a_transaction_are_told(lake: OlderLake) -> None:
    lake.topic("orders")
    lake.topic("items")
    with lake.log.transaction() as tx:
        tx.append("orders", [{"x": 1}])
        tx.append("items", [{"x": 2}])

    orders, items = traced(lake, 0), traced(lake, 0, name="items")

    assert orders.write is not None and orders.write == items.write
    assert orders.write.transaction and orders.write.first_lsn < orders.write.lsn
    assert orders.lsn != items.lsn


def test_a_row_that_a_compaction_took_out_of_its_frame_is_said(lake: OlderLake) -> None:
    lake.log.topic("people", schema={"id": int, "n": int}, key="id", cleanup="compact")
    lake.log["people"].upsert([{"id": 1, "n": 0}, {"id": 2, "n": 0}])
    lake.log["people"].upsert([{"id": 1, "n": 1}])
    lake.log["people"].compact()

    gone, left = traced(lake, 0, name="people"), traced(lake, 1, name="people")

    assert gone.notes[0] == "of its frame other rows are left, and this one was taken out"
    assert left.notes == ("the topic has no table",)
    assert left.log is not None and (left.log.offsets, left.log.rows) == (2, 1)


def test_a_write_whose_beginning_is_gone_is_said(lake: OlderLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.topic("orders")
    lake.append("orders", 1)

    def gone(*_: Any) -> Iterator[Any]:
        raise Forgotten("the log has let go of this LSN")

    monkeypatch.setattr(engine_of(lake.log).shard.log, "read", gone)

    assert traced(lake, 0).notes[0] == "the log has let go of the frame that names who sent it"


def test_a_row_is_found_in_whatever_row_group_it_is(lake: OlderLake) -> None:
    lake.topic("orders")
    lake.append("orders", 200_000)
    lake.round()

    found = traced(lake, 150_000).file

    assert found is not None and (found.row_group, found.row) == (1, 150_000 - 131_072)


@pytest.mark.parametrize("offset", [-1, 1])
def test_an_offset_that_nothing_was_appended_at_is_refused(lake: OlderLake, offset: int) -> None:
    lake.topic("orders")
    lake.append("orders", 1)

    with pytest.raises(InvalidRequest, match="its next is 1"):
        traced(lake, offset)
    with pytest.raises(UnknownPartition):
        traced(lake, 0, partition=3)
