"""In a bucket every version of a topic's schema is an object, there before the journal names it."""

from __future__ import annotations

import pyarrow as pa
import pytest

import headwater as hw
from headwater.clock import ManualClock
from headwater.errors import Unavailable
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.objects import StoreUnsure
from headwater.storage.simulated_store import SimulatedStore
from headwater.topics.schema import unpack_schema
from headwater.topics.schema_objects import schema_name
from tests.unit.topics.small_engines import engine_of


def open_log(store: SimulatedStore, *, threads: bool = False) -> hw.Log:
    clock = ManualClock()
    return hw.open(BucketFiles(store, clock=clock, threads=threads), clock=clock)


def schemas_in(store: SimulatedStore) -> list[str]:
    return [name for name in store.names() if name.startswith("schemas/")]


def test_a_schema_is_an_object_that_arrow_reads_by_itself() -> None:
    store = SimulatedStore()
    with open_log(store) as log:
        topic_id = log.topic("orders", schema={"id": int}).describe().topic_id

        (name,) = schemas_in(store)

    assert name == schema_name(bytes.fromhex(topic_id), 1) == f"schemas/{topic_id}/1"
    assert pa.ipc.read_schema(pa.BufferReader(store.contents(name))).names == ["id"]


def test_the_next_version_is_another_object() -> None:
    store = SimulatedStore()
    with open_log(store) as log:
        orders = log.topic("orders", schema={"id": int})
        topic_id = orders.describe().topic_id

        orders.alter(add={"note": str})
        orders.alter(partitions=3)

    assert schemas_in(store) == [f"schemas/{topic_id}/1", f"schemas/{topic_id}/2"]
    assert unpack_schema(store.contents(f"schemas/{topic_id}/2")).names == ["id", "note"]


@pytest.mark.parametrize("threads", [False, True])
def test_topics_that_are_made_together_have_theirs_together(threads: bool) -> None:
    store = SimulatedStore()
    with open_log(store, threads=threads) as log:
        log.create_topics([hw.NewTopic(f"t{number}", {"id": int}) for number in range(20)])

    assert len(schemas_in(store)) == 20


def test_what_is_not_there_is_not_journaled() -> None:
    store = SimulatedStore()
    log = open_log(store)
    log.topic("first", schema={"id": int})

    def refuse(verb: str, name: str) -> None:
        if name.startswith("schemas/"):
            raise PermissionError("no puts here")

    store.before_call = refuse
    with pytest.raises(PermissionError):
        log.topic("orders", schema={"id": int})

    assert "orders" not in log


def test_a_store_that_does_not_answer_is_unavailable_and_nothing_is_journaled() -> None:
    store = SimulatedStore()
    log = open_log(store)
    log.topic("first", schema={"id": int})

    def silent(verb: str, name: str) -> None:
        if name.startswith("schemas/"):
            raise StoreUnsure("no answer")

    store.before_call = silent
    with pytest.raises(Unavailable, match="the topic was not changed"):
        log.topic("orders", schema={"id": int})

    assert "orders" not in log


def test_what_an_owner_left_that_could_not_journal_it_is_written_over() -> None:
    store = SimulatedStore()
    with open_log(store) as log:
        orders = log.topic("orders", schema={"id": int})
        name = f"schemas/{orders.describe().topic_id}/2"
        store.put(name, b"another second version")

        orders.alter(add={"note": str})

    assert unpack_schema(store.contents(name)).names == ["id", "note"]


def test_on_a_disk_there_are_none() -> None:
    with hw.open(":memory:") as log:
        log.topic("orders", schema={"id": int})

        assert engine_of(log)._files.list("schemas") == []
