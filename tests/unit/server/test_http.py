"""The door over HTTP: rows in, as JSON, NDJSON and Arrow, with the answer that every append has."""

from __future__ import annotations

import io
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from headwater.errors import Fenced, Unauthenticated
from headwater.protocol.failures import KINDS
from headwater.server.access import Grant, Principal
from headwater.server.http import HttpDoor
from headwater.server.http_errors import status_of
from headwater.server.settings import ServerLimits, ServerSettings
from headwater.topics.appending import key_hash
from headwater.topics.requests import Identity
from tests.unit.server.http_doors import OpenDoor, open_door

ORDER = pa.schema([pa.field("order_id", pa.int64(), nullable=False), ("amount", pa.float64())])
SETTINGS = ServerSettings(http=("127.0.0.1", 0))


def arrow(batch: pa.RecordBatch) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


@pytest.fixture
def door(tmp_path: Path) -> Iterator[OpenDoor]:
    with open_door(tmp_path / "data") as opened:
        opened.topic("orders", ORDER)
        yield opened


def test_one_row_is_durable_and_acknowledged_as_every_append_is(door: OpenDoor) -> None:
    answer = door.post("orders", '{"order_id": 1, "amount": 9.5}')

    assert answer.status_code == 200
    told = answer.json()
    assert told.pop("time").endswith("Z")
    assert told == {
        "topic": "orders",
        "rows": 1,
        "first_lsn": 2,
        "lsn": door.engine.durable_lsn(),
        "offsets": {"0": {"first": 0, "next": 1}},
        "duplicate": False,
        "rejected": 0,
    }
    assert door.rows("orders") == [{"order_id": 1, "amount": 9.5}]


def test_what_curl_sends_without_a_type_is_read_as_json(door: OpenDoor) -> None:
    answer = door.post("orders", ' {"order_id":1}', "application/x-www-form-urlencoded")

    assert answer.json()["rows"] == 1


def test_a_list_lines_and_arrow_bring_the_same_rows(door: OpenDoor) -> None:
    rows = [{"order_id": number, "amount": number / 2} for number in range(100)]
    batch = pa.RecordBatch.from_pylist(rows, ORDER)

    for body, kind in (
        (json.dumps(rows), "application/json"),
        ("\n\n".join(map(json.dumps, rows)) + "\n", "application/x-ndjson"),
        (arrow(batch), "application/vnd.apache.arrow.stream"),
    ):
        assert door.post("orders", body, kind).json()["rows"] == 100

    assert door.rows("orders") == rows * 3


def test_a_repeat_with_the_same_idempotency_key_gets_the_first_answer(door: OpenDoor) -> None:
    first = door.post("orders", '{"order_id": 1}', idempotency_key="a-1").json()
    topic = door.engine.topic("orders")

    again = door.post("orders", '{"order_id": 1}', idempotency_key="a-1").json()
    embedded = door.engine.append(topic.number, {"order_id": 1}, identity=Identity(key=key_hash("a-1", topic.topic_id)))

    assert again == {**first, "duplicate": True}
    assert embedded.duplicate and embedded.lsn == first["lsn"]
    assert len(door.rows("orders")) == 1


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_an_idempotency_key_of_another_length_is_refused(door: OpenDoor, key: str) -> None:
    assert door.post("orders", '{"order_id": 1}', idempotency_key=key).status_code == 400


def test_rows_that_do_not_fit_are_refused_by_number_and_nothing_is_appended(door: OpenDoor) -> None:
    answer = door.post("orders", '[{"order_id": 1}, {"order_id": "x"}, 7, {"order_id": 2, "colour": "red"}]')

    assert answer.status_code == 400
    told = answer.json()
    assert told["error"] == "RowsRefused"
    assert [each["row"] for each in told["refused"]] == [1, 2, 3]
    assert door.rows("orders") == []


def test_a_call_that_meets_the_ceiling_of_arrow_s_memory_is_to_be_tried_again(
    door: OpenDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **more: object) -> None:
        raise pa.ArrowMemoryError("malloc failed")

    monkeypatch.setattr("headwater.server.http_app.rows_of", refuse)

    answer = door.post("orders", '{"order_id": 1}')

    assert (answer.status_code, answer.json()["error"]) == (503, "Unavailable")
    assert "send less" in answer.json()["message"]


@pytest.mark.parametrize("row", ['{"order_id": "\\ud800"}', '{"\\ud800": 1}', '{"order_id": 1e400}'])
def test_a_reason_that_quotes_what_no_encoding_has_is_told_all_the_same(door: OpenDoor, row: str) -> None:
    answer = door.post("orders", row)

    assert answer.status_code == 400
    assert answer.json()["refused_count"] == 1


def test_rows_that_do_not_fit_are_kept_where_that_is_asked_for(door: OpenDoor) -> None:
    answer = door.client.post("/v1/topics/orders/rows?rejected=keep", json=[{"order_id": 1}, {"order_id": "x"}])

    assert (answer.json()["rows"], answer.json()["rejected"]) == (1, 1)
    assert len(door.rows("orders.rejected")) == 1


def test_a_row_goes_to_the_partition_that_is_named(tmp_path: Path) -> None:
    with open_door(tmp_path / "data") as door:
        door.topic("orders", {"order_id": int}, partitions=4)

        answer = door.client.post("/v1/topics/orders/rows?partition=3", json={"order_id": 1})
        beyond = door.client.post("/v1/topics/orders/rows?partition=4", json={"order_id": 1})

        assert list(answer.json()["offsets"]) == ["3"]
        assert beyond.status_code == 404


@pytest.mark.parametrize(
    ("path", "body", "kind", "status"),
    [
        ("/v1/topics/nobody/rows", "{}", "application/json", 404),
        ("/v1/topics/orders/rows", "{", "application/json", 400),
        ("/v1/topics/orders/rows", '{"order_id": 1}{"order_id": 2}', "application/json", 400),
        ("/v1/topics/orders/rows", '{"order_id": 1, "order_id": 2}', "application/json", 400),
        ("/v1/topics/orders/rows", '{"order_id": 1, "amount": NaN}', "application/json", 400),
        ("/v1/topics/orders/rows", "7", "application/json", 400),
        ("/v1/topics/orders/rows", '{"order_id": ' + "[" * 100 + "]" * 100 + "}", "application/json", 400),
        ("/v1/topics/orders/rows", "[" * 100_000 + "]" * 100_000, "application/json", 400),
        ("/v1/topics/orders/rows", b"\xff\xfe\x00", "application/json", 400),
        ("/v1/topics/orders/rows", "order_id=1", "application/x-www-form-urlencoded", 415),
        ("/v1/topics/orders/rows", "{}", "application/xml", 415),
        ("/v1/topics/orders/rows", b"\xff" * 40, "application/vnd.apache.arrow.stream", 400),
        ("/v1/topics/orders/rows?partition=x", "{}", "application/json", 400),
        ("/v1/topics/orders/rows?partition=0&partition=0", "{}", "application/json", 400),
        ("/v1/topics/orders/rows?colour=red", "{}", "application/json", 400),
        ("/v1/topics/orders/rows?rejected=lose", "{}", "application/json", 400),
        ("/v1/topics/orders/rows?format=avro", "{}", "application/json", 400),
        ("/v1/topics/orders/rows?source=pg", "{}", "application/json", 400),
        ("/v1/nothing", "{}", "application/json", 404),
        ("/livez", "{}", "application/json", 405),
    ],
)
def test_what_cannot_be_taken_has_a_status_and_says_why(
    door: OpenDoor, path: str, body: str | bytes, kind: str, status: int
) -> None:
    answer = door.client.post(path, content=body, headers={"content-type": kind})

    assert answer.status_code == status
    assert answer.json()["message"]
    assert door.rows("orders") == []


def test_arrow_with_another_schema_is_refused(door: OpenDoor) -> None:
    batch = pa.RecordBatch.from_pylist([{"order_id": 1}], pa.schema([("order_id", pa.int32())]))

    assert door.post("orders", arrow(batch), "application/vnd.apache.arrow.stream").status_code == 400


def test_a_stream_of_arrow_without_rows_appends_nothing(door: OpenDoor) -> None:
    answer = door.post("orders", arrow(pa.RecordBatch.from_pylist([], ORDER)), "application/vnd.apache.arrow.stream")

    assert (answer.status_code, answer.json()["rows"]) == (200, 0)


def test_json_that_would_fill_the_memory_is_refused_before_it_is_read(door: OpenDoor) -> None:
    answer = door.post("orders", b"[" + b"{}," * 9_000_000 + b"{}]")

    assert (answer.status_code, answer.json()["error"]) == (413, "TooLarge")


def test_a_body_is_refused_when_it_is_above_the_limit_told_or_not(tmp_path: Path) -> None:
    limits = ServerLimits(http_body_bytes_max=1_000)
    with open_door(tmp_path / "data", replace(SETTINGS, limits=limits)) as door:
        door.topic("orders", {"order_id": int})

        told = door.post("orders", b'{"order_id":1}' + b" " * 2_000)
        untold = door.client.post(
            "/v1/topics/orders/rows", content=iter([b" " * 400] * 5), headers={"content-type": "application/json"}
        )
        fits = door.post("orders", b'{"order_id":1}' + b" " * 900)

        assert (told.status_code, untold.status_code, fits.status_code) == (413, 413, 200)


def test_bodies_that_are_held_at_a_time_are_bounded_together(tmp_path: Path) -> None:
    limits = ServerLimits(http_body_bytes_max=1_000)
    with open_door(tmp_path / "data", replace(SETTINGS, limits=limits)) as door:
        door.topic("orders", {"order_id": int})
        head = b"POST /v1/topics/orders/rows HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n"
        slow = [door.connect() for _ in range(4)]
        for each in slow:
            each.sendall(head + b" " * 999)
        time.sleep(0.5)

        refused = door.post("orders", b'{"order_id":1}' + b" " * 900)
        for each in slow:
            each.close()
        deadline = time.monotonic() + 10
        while (taken := door.post("orders", b'{"order_id":1}')).status_code == 503 and time.monotonic() < deadline:
            time.sleep(0.05)

        assert refused.status_code == 503
        assert taken.status_code == 200


def test_a_body_that_is_packed_is_refused(door: OpenDoor) -> None:
    assert door.post("orders", b"\x1f\x8b", content_encoding="gzip").status_code == 415


def test_a_connection_that_does_not_say_what_it_wants_is_closed_however_it_drips(tmp_path: Path) -> None:
    limits = ServerLimits(authentication_s=0.5)
    with open_door(tmp_path / "data", replace(SETTINGS, limits=limits)) as door, door.connect() as slow:
        began = time.monotonic()
        slow.settimeout(5)
        slow.sendall(b"GET /livez HTTP/1.1\r\n")
        ended = False
        while not ended and time.monotonic() - began < 4:
            try:
                slow.sendall(b"a: b\r\n")
                time.sleep(0.1)
            except OSError:
                ended = True

        assert ended
        assert time.monotonic() - began < 3


def test_a_connection_that_says_nothing_is_closed(tmp_path: Path) -> None:
    limits = ServerLimits(authentication_s=0.3)
    with open_door(tmp_path / "data", replace(SETTINGS, limits=limits)) as door, door.connect() as silent:
        began = time.monotonic()

        assert silent.recv(10) == b""
        assert time.monotonic() - began < 5


def test_a_second_head_has_its_time_too(tmp_path: Path) -> None:
    limits = ServerLimits(authentication_s=0.5)
    with open_door(tmp_path / "data", replace(SETTINGS, limits=limits)) as door, door.connect() as slow:
        slow.settimeout(5)
        slow.sendall(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
        answer = b""
        while not answer.endswith(b"}"):
            answer += slow.recv(10_000)
        assert answer.startswith(b"HTTP/1.1 200")
        time.sleep(0.8)  # an idle connection is kept: no head has begun
        slow.sendall(b"GET /livez HTTP/1.1\r\n")

        try:
            said = slow.recv(10_000)
        except ConnectionResetError:
            said = b""

        assert said == b""


def test_a_body_that_stops_coming_is_given_up(tmp_path: Path) -> None:
    limits = ServerLimits(idle_s=0.4)
    with open_door(tmp_path / "data", replace(SETTINGS, limits=limits)) as door, door.connect() as slow:
        door.topic("orders", {"order_id": int})
        slow.sendall(b"POST /v1/topics/orders/rows HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{")

        assert slow.recv(10_000).startswith(b"HTTP/1.1 400")


def test_a_body_that_does_not_end_after_its_answer_ends_the_connection(tmp_path: Path) -> None:
    limits = ServerLimits(authentication_s=0.5, http_body_bytes_max=1_000)
    with open_door(tmp_path / "data", replace(SETTINGS, limits=limits)) as door, door.connect() as slow:
        door.topic("orders", {"order_id": int})
        slow.sendall(b"POST /v1/topics/orders/rows HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2000\r\n\r\n{")
        began = time.monotonic()

        assert read_to_the_end(slow).startswith(b"HTTP/1.1 413")
        assert time.monotonic() - began < 5


def test_after_an_early_answer_the_rest_is_passed_over_and_the_next_request_is_heard(tmp_path: Path) -> None:
    limits = ServerLimits(http_body_bytes_max=1_000)
    with open_door(tmp_path / "data", replace(SETTINGS, limits=limits)) as door, door.connect() as slow:
        door.topic("orders", {"order_id": int})
        slow.sendall(b"POST /v1/topics/orders/rows HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2000\r\n\r\n{")
        first = b""
        while not first.endswith(b"}"):
            first += slow.recv(10_000)
        slow.sendall(b" " * 1_999 + b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")

        assert first.startswith(b"HTTP/1.1 413")
        assert slow.recv(10_000).startswith(b"HTTP/1.1 200")


def test_one_connection_above_the_limit_is_told_so_and_closed(tmp_path: Path) -> None:
    limits = ServerLimits(streams_max=2)
    with open_door(tmp_path / "data", replace(SETTINGS, limits=limits)) as door:
        held = [door.connect() for _ in range(2)]
        for each in held:
            each.sendall(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert each.recv(10_000).startswith(b"HTTP/1.1 200")

        with door.connect() as third:
            began = time.monotonic()
            said = third.recv(10_000)
            assert said.startswith(b"HTTP/1.1 503") and json.loads(said.partition(b"\r\n\r\n")[2])["error"]
            assert time.monotonic() - began < 1
        for each in held:
            each.close()


def test_what_is_no_http_is_answered_and_closed(door: OpenDoor) -> None:
    with door.connect() as raw:
        raw.sendall(b"\x16\x03\x01\x02\x00garbage\r\n\r\n")

        assert raw.recv(10_000).startswith(b"HTTP/1.1 400")


class OneWriter:
    """Knows one token."""

    def authenticate(self, authorization: str | None, certificate: str | None) -> Principal:
        if authorization != "Bearer right":
            raise Unauthenticated("give a token")
        return Principal("writer", (Grant("write", "orders"), Grant("read", "hidden.a")))

    def close(self) -> None:
        pass


def test_who_asks_is_known_and_what_they_may_is_checked_before_a_body_is_read(tmp_path: Path) -> None:
    with open_door(tmp_path / "data", access=OneWriter()) as door:
        for name in ("orders", "hidden.a", "secret"):
            door.topic(name, {"order_id": int})
        body = '{"order_id": 1}'

        nobody = door.post("orders", body)
        wrong = door.post("orders", body, authorization="Bearer wrong")
        right = door.post("orders", body, authorization="Bearer right", origin="https://known.example")
        reader = door.post("hidden.a", body, authorization="Bearer right")
        stranger = door.post("secret", body, authorization="Bearer right")
        missing = door.post("nothing", body, authorization="Bearer right")
        metrics = door.client.get("/metrics", headers={"authorization": "Bearer right"})

        assert [each.status_code for each in (nobody, wrong, right, reader, stranger, missing, metrics)] == [
            401,
            401,
            200,
            403,
            404,
            404,
            403,
        ]
        assert nobody.headers["www-authenticate"] == "Bearer"
        assert stranger.json()["message"].replace("secret", "nothing") == missing.json()["message"]
        assert door.client.get("/livez").status_code == 200


def test_a_page_in_a_browser_cannot_write_without_a_token(door: OpenDoor) -> None:
    answer = door.post("orders", '{"order_id": 1}', "text/plain", origin="https://elsewhere.example")

    assert answer.status_code == 403
    assert door.rows("orders") == []


def test_one_principal_with_too_many_requests_is_told_429(tmp_path: Path) -> None:
    limits = ServerLimits(streams_per_principal_max=1)
    with open_door(tmp_path / "data", replace(SETTINGS, limits=limits)) as door, door.connect() as slow:
        door.topic("orders", {"order_id": int})
        slow.sendall(b"POST /v1/topics/orders/rows HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{")
        time.sleep(0.3)

        assert door.post("orders", '{"order_id": 1}').status_code == 429


def test_many_requests_at_a_time_share_syncs(door: OpenDoor) -> None:
    def send(first: int) -> None:
        for number in range(first, first + 10):
            assert door.post("orders", json.dumps({"order_id": number})).status_code == 200

    threads = [threading.Thread(target=send, args=(10 * each,)) for each in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert sorted(row["order_id"] for row in door.rows("orders")) == list(range(80))  # type: ignore[type-var]


def test_rows_are_read_as_lines_from_any_place(tmp_path: Path) -> None:
    with open_door(tmp_path / "data") as door:
        topic = door.topic("orders", pa.schema([("order_id", pa.int64()), ("price", pa.decimal128(9, 2))]))
        door.engine.append(topic.number, [{"order_id": number, "price": 1} for number in range(2_500)])

        def read(**parameters: str) -> list[dict[str, object]]:
            answer = door.client.get("/v1/topics/orders/rows", params=parameters)
            assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-ndjson")
            return [json.loads(line) for line in answer.text.splitlines()]

        assert read(limit="2") == [{"order_id": 0, "price": "1.00"}, {"order_id": 1, "price": "1.00"}]
        assert len(read()) == 1_000
        assert [row["order_id"] for row in read(limit="9999")] == list(range(2_500))
        assert read(start="2499", partition="0", columns="order_id") == [{"order_id": 2_499}]
        assert read(start="latest") == []
        assert len(read(start="2020-01-01T00:00:00Z", limit="7")) == 7
        assert read(start="lsn:1", limit="1", system_columns="true")[0]["_hw_offset"] == 0


@pytest.mark.parametrize(
    "query",
    ["start=nowhere", "start=5", "start=lsn:x", "limit=-1", "limit=1&limit=1", "columns=a", "colour=red", "partition=x",
     "system_columns=maybe"],
)  # fmt: skip
def test_a_place_that_is_none_is_refused(door: OpenDoor, query: str) -> None:
    assert door.client.get(f"/v1/topics/orders/rows?{query}").status_code == 400


def test_a_reader_that_takes_nothing_is_cut_off_and_holds_nothing_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limits = ServerLimits(idle_s=0.5)
    with open_door(tmp_path / "data", replace(SETTINGS, limits=limits)) as door, door.connect() as stalled:
        topic = door.topic("orders", {"text": str})
        for _ in range(20):
            door.engine.append(topic.number, [{"text": "x" * 1_000}] * 1_000)
        stalled.sendall(b"GET /v1/topics/orders/rows?limit=20000 HTTP/1.1\r\nhost: localhost\r\n\r\n")
        time.sleep(0.2)

        assert door.served.streams.open_now == 1
        assert door.post("orders", '{"text": "y"}').status_code == 200
        deadline = time.monotonic() + 10
        while door.served.streams.open_now and time.monotonic() < deadline:
            time.sleep(0.05)
        assert door.served.streams.open_now == 0
        assert not read_to_the_end(stalled).endswith(b"\r\n0\r\n\r\n")
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def read_to_the_end(connection: socket.socket) -> bytes:
    found = bytearray()
    while data := connection.recv(1 << 20):
        found += data
    return bytes(found)


def test_one_reader_too_many_is_told_so(tmp_path: Path) -> None:
    limits = ServerLimits(streams_per_principal_max=0)
    with open_door(tmp_path / "data", replace(SETTINGS, limits=limits)) as door:
        door.topic("orders", {"text": str})

        assert door.client.get("/v1/topics/orders/rows").status_code == 429


def test_a_server_without_a_log_yet_lives_and_is_not_ready() -> None:
    door = HttpDoor(lambda: None, SETTINGS, ready=lambda: "it stands by")
    door.start()
    try:
        url = f"http://127.0.0.1:{door.port}"
        assert httpx.get(f"{url}/livez").status_code == 200
        ready = httpx.get(f"{url}/readyz")
        assert (ready.status_code, ready.json()["why_not"]) == (503, "it stands by")
        assert "headwater_ready 0.0" in httpx.get(f"{url}/metrics").text
        assert httpx.post(f"{url}/v1/topics/orders/rows", content="{}").status_code == 503
    finally:
        door.stop(1)
    door.stop(1)


def test_a_poisoned_or_fenced_or_closed_log_is_not_ready(door: OpenDoor) -> None:
    assert door.client.get("/readyz").json() == {"ready": True, "why_not": ""}

    door.engine.append(door.engine.topic("orders").number, {"order_id": 1})
    door.engine.shard.log.device.poison(Fenced("another process has taken the log over"))

    answer = door.client.get("/readyz")
    assert (answer.status_code, answer.json()["why_not"]) == (503, "another server has taken the log over")
    assert door.post("orders", '{"order_id": 1}').status_code == 503
    door.engine.close()
    assert door.client.get("/readyz").json()["why_not"] == "the log is closed"


def test_a_request_in_flight_is_answered_before_the_door_is_closed(tmp_path: Path) -> None:
    with open_door(tmp_path / "data") as door, door.connect() as slow:
        door.topic("orders", {"order_id": int})
        body = b'{"order_id": 1}'
        head = b"POST /v1/topics/orders/rows HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body)
        slow.sendall(head + body[:5])
        time.sleep(0.2)
        stopping = threading.Thread(target=door.door.stop, args=(10,))
        stopping.start()
        time.sleep(0.2)

        slow.sendall(body[5:])

        assert slow.recv(10_000).startswith(b"HTTP/1.1 200")
        stopping.join()
        assert len(door.rows("orders")) == 1


def test_every_kind_of_error_has_a_status() -> None:
    made = {name: kind.__new__(kind) for name, kind in KINDS.items()}
    found = {name: status_of(error) for name, error in made.items()}

    assert (found["TooLarge"], found["Conflict"], found["OutcomeUnknown"], found["Halted"]) == (413, 409, 503, 503)
    assert set(found.values()) <= {400, 401, 403, 404, 409, 413, 503}
