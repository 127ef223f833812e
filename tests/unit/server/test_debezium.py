"""Debezium's events into a keyed topic: upserts and deletes in order, each once, whatever is sent again."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import headwater as hw
from headwater.errors import Conflict, InvalidRequest, RowsRefused
from headwater.server.settings import ServerSettings
from headwater.topics.debezium import SEEN_MAX, DebeziumAppended, append_debezium, source_name
from headwater.topics.requests import SourceAt
from tests.servers.headwater import serving
from tests.unit.server.http_doors import OpenDoor, open_door

Event = dict[str, Any]


def event(op: str, after: object = None, before: object = None, **source: object) -> Event:
    """One of PostgreSQL's, as Debezium writes it with schemas.enable=false."""
    place = {"connector": "postgresql", "name": "shop", "db": "shop", "schema": "public", "table": "customers"}
    return {"op": op, "before": before, "after": after, "source": {**place, "snapshot": "false", **source}, "ts_ms": 1}


def at(commit: int, lsn: int) -> dict[str, object]:
    return {"lsn": lsn, "sequence": json.dumps([str(commit), str(lsn)])}


def upsert(number: int, name: str, commit: int, lsn: int) -> Event:
    return event("u", {"id": number, "name": name}, **at(commit, lsn))


def snapshot_row(number: int, name: str, lsn: int) -> Event:
    return event("r", {"id": number, "name": name}, snapshot="true", lsn=lsn, sequence=json.dumps([None, str(lsn)]))


def mysql(number: int, name: str, file: str, pos: int, row: int = 0, server_id: int = 1) -> Event:
    source = {"connector": "mysql", "file": file, "pos": pos, "row": row, "server_id": server_id, "schema": None}
    return event("c", {"id": number, "name": name}, **source)


@pytest.fixture
def door(tmp_path: Path) -> Iterator[OpenDoor]:
    with open_door(tmp_path / "data") as opened:
        opened.topic("customers", {"id": int, "name": str}, key="id")
        yield opened


def take_in(door: OpenDoor, *events: object, **options: Any) -> DebeziumAppended:
    return append_debezium(door.engine, door.engine.topic("customers"), events, **options)


def state(door: OpenDoor) -> dict[object, object]:
    """The latest of each key, as the log's rows say; a delete is a row without a name."""
    found: dict[object, object] = {}
    for row in door.rows("customers"):
        found[row["id"]] = row["name"]
    return {number: name for number, name in found.items() if name is not None}


def test_events_become_upserts_and_deletes_in_their_order_by_one_write(door: OpenDoor) -> None:
    told = take_in(
        door,
        event("c", {"id": 1, "name": "a"}, **at(10, 11)),
        {"schema": {"type": "struct"}, "payload": event("c", {"id": 2, "name": "b"}, **at(10, 12))},
        event("u", {"id": 1, "name": "c"}, {"id": 1, "name": "a"}, **at(10, 13)),
        event("d", None, {"id": 2, "name": None}, **at(10, 14)),
        None,
        {"schema": None, "payload": None},
        event("c", {"id": 2, "name": "again"}, **at(20, 21)),
    )

    assert (told.rows, told.duplicates, told.tombstones, told.duplicate) == (5, 0, 2, False)
    assert [(row["id"], row["name"]) for row in door.rows("customers")] == [
        (1, "a"),
        (2, "b"),
        (1, "c"),
        (2, None),
        (2, "again"),
    ]
    assert told.lsn == door.engine.durable_lsn()


def test_a_repeat_is_passed_over_and_what_follows_is_taken_in(door: OpenDoor) -> None:
    first = [upsert(1, "a", 10, 11), upsert(2, "b", 10, 12)]
    told = take_in(door, *first)

    again = take_in(door, *first)
    more = take_in(door, first[1], upsert(3, "c", 20, 15))

    assert (again.rows, again.duplicates, again.duplicate, again.lsn) == (0, 2, True, told.lsn)
    assert (more.rows, more.duplicates, more.duplicate) == (1, 1, False)
    assert state(door) == {1: "a", 2: "b", 3: "c"}


def test_a_change_made_before_another_and_committed_after_it_is_not_lost(door: OpenDoor) -> None:
    """PostgreSQL sends transactions in the order of their commits: the LSN of a change goes back between them."""
    take_in(door, upsert(1, "early commit", 10, 20))

    told = take_in(door, upsert(2, "begun earlier", 25, 15), upsert(3, "same transaction", 25, 30))

    assert told.rows == 2


def test_events_of_one_position_are_told_apart(door: OpenDoor) -> None:
    """COPY writes many rows by one WAL record, and a change of the key is two events."""
    take_in(door, upsert(1, "a", 10, 11), upsert(2, "b", 10, 11))

    told = take_in(door, upsert(2, "b", 10, 11), upsert(3, "c", 10, 11))

    assert (told.rows, told.duplicates) == (1, 1)


def test_a_change_of_the_key_deletes_the_old_one_first(door: OpenDoor) -> None:
    take_in(door, upsert(1, "a", 10, 11))

    told = take_in(door, event("u", {"id": 2, "name": "a"}, {"id": 1, "name": "a"}, **at(20, 21)))

    assert told.rows == 2
    assert state(door) == {2: "a"}


def test_a_snapshot_its_repeat_and_the_changes_after_it(door: OpenDoor) -> None:
    rows = [snapshot_row(number, "old", 100) for number in range(5)]
    take_in(door, *rows[:3])

    again = take_in(door, *rows)
    changes = take_in(door, upsert(1, "new", 0, 90))  # begun before the snapshot, committed after it
    late = take_in(door, rows[1])
    next_snapshot = take_in(door, snapshot_row(1, "newest", 300))

    assert (again.rows, again.duplicates) == (2, 3)
    assert changes.rows == 1
    assert (late.rows, late.duplicates) == (0, 1)
    assert next_snapshot.rows == 1
    assert state(door)[1] == "newest"


def test_a_position_keeps_a_bounded_number_of_digests(door: OpenDoor) -> None:
    take_in(door, *(snapshot_row(number, "x", 100) for number in range(SEEN_MAX + 10)))

    again = take_in(door, snapshot_row(0, "x", 100), snapshot_row(SEEN_MAX, "x", 100))

    assert (again.rows, again.duplicates) == (1, 1)


def test_mysql_goes_by_file_position_and_row_and_file_numbers_are_numbers(door: OpenDoor) -> None:
    take_in(door, mysql(1, "a", "binlog.999999", 50, 0), mysql(2, "b", "binlog.999999", 50, 1))

    told = take_in(door, mysql(2, "b", "binlog.999999", 50, 1), mysql(3, "c", "binlog.1000000", 4))

    assert (told.rows, told.duplicates) == (1, 1)


def test_positions_of_another_server_are_not_compared(door: OpenDoor) -> None:
    take_in(door, mysql(1, "a", "binlog.000009", 50))

    with pytest.raises(Conflict, match="another server"):
        take_in(door, mysql(2, "b", "binlog.000002", 10, server_id=2))
    moved = take_in(door, mysql(2, "b", "binlog.000002", 10, server_id=2), source="after the failover")

    assert moved.rows == 1


def test_sqlserver_and_others_by_their_time(door: OpenDoor) -> None:
    def change(number: int, commit_lsn: str) -> Event:
        return event("c", {"id": number, "name": "x"}, connector="sqlserver", commit_lsn=commit_lsn, event_serial_no=1)

    def timed(number: int, ts_ms: int) -> Event:
        return event("c", {"id": number, "name": "x"}, connector="oracle", table="orders", ts_ms=ts_ms)

    assert take_in(door, change(1, "0027:0ac0:0002"), change(1, "0027:0ac0:0002")).duplicates == 1
    with pytest.raises(RowsRefused, match="position=time"):
        take_in(door, timed(1, 5))
    assert take_in(door, timed(2, 5), timed(3, 6), by_time=True).rows == 2
    assert take_in(door, timed(3, 6), timed(4, 4), by_time=True).duplicates == 2


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (7, "no event"),
        ({"id": 1}, "op: missing"),
        ({"payload": {"id": 1}}, "payload.op"),
        ({"op": "c", "after": {"id": 1, "name": "a"}}, "source: missing"),
        (event("t", **at(1, 1)), "none of c, r, u, d"),
        (event("c", None, **at(1, 1)), "after: missing"),
        (event("d", None, **at(1, 1)), "REPLICA IDENTITY"),
        (event("d", None, {"name": "a"}, **at(1, 1)), "before.id"),
        (event("c", {"name": "a"}, **at(1, 1)), "after.id"),
        (event("c", {"id": 1, "name": "__debezium_unavailable_value"}, **at(1, 1)), "REPLICA IDENTITY FULL"),
        (event("c", {"id": 1, "name": ["__debezium_unavailable_value"]}, **at(1, 1)), "REPLICA IDENTITY FULL"),
        (event("c", {"id": 1, "name": "a"}), "source.sequence"),
        (event("c", {"id": 1, "name": "a"}, sequence='["1", null]'), "no LSN"),
        (event("c", {"id": 1, "name": "a"}, connector="mysql", file="x", pos=1), "source.file"),
        (event("c", {"id": 1, "name": "a"}, connector="mysql", file="x.1", pos="1"), "source.pos"),
        (event("c", {"id": 1, "name": "a"}, connector="sqlserver"), "commit_lsn"),
        (event("c", {"id": "one", "name": "a"}, **at(30, 31)), "not an int64"),
        (event("c", {"id": 1, "name": "a", "colour": "red"}, **at(30, 31)), "no such column"),
    ],
)
def test_what_cannot_be_read_is_refused_by_number_and_nothing_is_taken_in(
    door: OpenDoor, bad: object, why: str
) -> None:
    with pytest.raises(RowsRefused, match=why) as caught:
        take_in(door, upsert(1, "a", 10, 11), None, event("d", None, {"id": 1}, **at(10, 12)), bad)

    assert [each.number for each in caught.value.refused] == [3]
    assert door.rows("customers") == []
    assert take_in(door, upsert(1, "a", 10, 11)).rows == 1


def test_a_topic_without_a_key_takes_no_changes(door: OpenDoor) -> None:
    plain = door.topic("plain", {"id": int})

    with pytest.raises(InvalidRequest, match="has no key"):
        append_debezium(door.engine, plain, [])


def test_a_source_that_somebody_else_has_set_is_left_alone(door: OpenDoor) -> None:
    topic = door.engine.topic("customers")
    name = source_name(topic, "mine")
    door.engine.commit_transaction([], groups=(), sources=[SourceAt(name, 7, None)], identity=None)

    with pytest.raises(Conflict, match="set by somebody else"):
        take_in(door, upsert(1, "a", 1, 1), source="mine")


def test_a_topic_that_is_made_again_begins_again(door: OpenDoor) -> None:
    take_in(door, upsert(1, "a", 10, 11))
    door.engine.delete_topic("customers", force=True)
    door.topic("customers", {"id": int, "name": str}, key="id")

    assert take_in(door, upsert(1, "a", 10, 11)).rows == 1


def test_a_long_name_of_a_source_is_shortened_and_stays_its_own(door: OpenDoor) -> None:
    topic = door.engine.topic("customers")

    names = {source_name(topic, "x" * 300), source_name(topic, "x" * 301), source_name(topic, "short")}

    assert len(names) == 3 and all(len(each) <= 255 for each in names)


def test_two_senders_at_a_time_bring_each_change_once(door: OpenDoor) -> None:
    events = [upsert(number, f"v{number}", 10, 100 + number) for number in range(60)]
    failed: list[BaseException] = []

    def send() -> None:
        try:
            for first in range(0, 60, 6):
                take_in(door, *events[first : first + 6])
        except Conflict as error:
            failed.append(error)

    threads = [threading.Thread(target=send) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert not failed
    assert [row["id"] for row in door.rows("customers")] == list(range(60))


def test_any_cuts_and_repeats_give_the_state_that_one_delivery_gives(door: OpenDoor, seed: int) -> None:
    draw = random.Random(seed)
    for table in range(8):
        events: list[Event] = []
        model: dict[object, object] = {}
        for commit in range(10, 10 * draw.randrange(5, 20), 10):
            # LSNs rise within a transaction, and go anywhere between two.
            for lsn in sorted(draw.sample(range(1, 1_000), draw.randrange(1, 4))):
                number, name = draw.randrange(6), f"{commit}.{lsn}"
                if draw.random() < 0.3:
                    events.append(event("d", None, {"id": number}, **at(commit, lsn)))
                    model.pop(number, None)
                else:
                    events.append(upsert(number, name, commit, lsn))
                    model[number] = name
        topic = door.topic(f"customers{table}", {"id": int, "name": str}, key="id", partitions=3)

        done = 0
        while done < len(events):
            # At least once, and in order: it goes on from somewhere at or before where it was.
            first = draw.randrange(max(done - 5, 0), done + 1)
            done = min(len(events), max(done, first + draw.randrange(1, 6)))
            append_debezium(door.engine, topic, events[first:done])

        found = {row["id"]: row["name"] for row in door.rows(topic.name)}
        assert {number: name for number, name in found.items() if name is not None} == model, f"seed {seed}"
        assert len(door.rows(topic.name)) == len(events), f"seed {seed}"


def test_the_same_events_through_a_client_embedded_and_over_http_are_taken_in_once(tmp_path: Path) -> None:
    settings = ServerSettings(listen=("127.0.0.1", 0), http=("127.0.0.1", 0), stop_s=5.0)
    events = [upsert(number, f"v{number}", 10, 100 + number) for number in range(6)]
    with hw.open(tmp_path / "data") as log:
        customers = log.topic("customers", schema={"id": int, "name": str}, key="id", partitions=3)
        embedded = customers.append(events[:2], format="debezium")
    with serving(tmp_path / "data", settings=settings) as server, hw.connect(server.address) as log:
        connected = log["customers"].append(events[:4], format="debezium")
        url = f"http://127.0.0.1:{server.http_port}/v1/topics/customers/rows?format=debezium"
        over_http = httpx.post(url, json=events).json()
        again = log["customers"].append(events, format="debezium")
        found = sorted(row["id"] for row in log["customers"].read().to_pylist())

    assert (embedded.rows, connected.rows, over_http["rows"], again.rows) == (2, 2, 2, 0)
    assert again.duplicate and not connected.duplicate
    assert found == list(range(6))


def test_events_come_over_http_as_one_a_list_or_lines(door: OpenDoor) -> None:
    path = "/v1/topics/customers/rows?format=debezium"
    first = door.client.post(path, json=upsert(1, "a", 10, 11))
    listed = door.client.post(path, json=[upsert(1, "a", 10, 11), None, upsert(2, "b", 10, 12)])
    lines = "\n".join(json.dumps(each) for each in (upsert(3, "c", 10, 13), None))
    lined = door.client.post(path, content=lines, headers={"content-type": "application/x-ndjson"})
    refused = door.client.post(path, json={"id": 1})
    keyed = door.client.post(path, json=[], headers={"idempotency-key": "x"})
    arrow = door.client.post(path, content=b"x", headers={"content-type": "application/vnd.apache.arrow.stream"})
    rejected = door.client.post(f"{path}&rejected=keep&source=other", json=event("c", {"id": 9, "name": 7}, **at(1, 1)))

    assert first.json()["rows"] == 1
    assert {name: listed.json()[name] for name in ("rows", "duplicates", "tombstones")} == {
        "rows": 1,
        "duplicates": 1,
        "tombstones": 1,
    }
    assert lined.json()["rows"] == 1
    assert [each.status_code for each in (refused, keyed, arrow)] == [400, 400, 415]
    assert (rejected.json()["rows"], rejected.json()["rejected"]) == (0, 1)
    assert state(door) == {1: "a", 2: "b", 3: "c"}
