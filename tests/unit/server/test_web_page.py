"""The web page over HTTP: its files for anybody, its document for whoever has a right, and what it costs."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import Unauthenticated
from headwater.lake.ledger_records import HaltedLanding, LedgerRecord
from headwater.page.assets import ASSETS, HEADERS
from headwater.server.access import Principal, parse_grant
from headwater.server.settings import ServerSettings
from headwater.topics.answers import Status
from tests.unit.server.http_doors import OpenDoor, open_door
from tests.unit.server.test_metrics import a_landing

GRANTS = {
    "admin": ("admin:*",),
    "orders": ("read:orders",),
    "writer": ("write:orders",),
    "nobody": (),
}


class Named:
    """Whoever says `Bearer NAME` is NAME."""

    def authenticate(self, authorization: str | None, certificate: str | None) -> Principal:
        name = (authorization or "").removeprefix("Bearer ")
        if name not in GRANTS:
            raise Unauthenticated("give a token")
        return Principal(name, tuple(map(parse_grant, GRANTS[name])))

    def close(self) -> None:
        pass


def fill(door: OpenDoor) -> None:
    records: list[LedgerRecord] = []
    for name in ("orders", "secret"):
        topic = door.topic(name, {"x": int}, table=f"sales.{name}")
        door.engine.append(topic.number, [{"x": 1}, {"x": 2}])
        consumer = door.engine.consumer(name, f"readers-of-{name}")
        consumer.poll(timeout_s=1.0)
        consumer.commit()
        consumer.close()
        topic_id = topic.topic_id.hex()
        records.append(a_landing(topic_id, topic=name, table=f"sales.{name}", commit_id=name))
        records.append(
            HaltedLanding(
                at_us=3, topic_id=topic_id, table=f"sales.{name}", cause="gap", message=f"<b>{name}</b> is gone"
            )
        )
    assert door.served.lake is not None
    door.served.lake.ledger.record(records)


def shown(door: OpenDoor, name: str = "", **query: str) -> dict[str, Any]:
    headers = {"authorization": f"Bearer {name}"} if name else {}
    answer = door.client.get("/v1/page", headers=headers, params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_the_page_is_served_to_anybody_and_may_load_nothing_but_itself(tmp_path: Path) -> None:
    with open_door(tmp_path / "data", access=Named()) as door:
        answers = {path: door.client.get(path) for path in ASSETS}

    assert [answer.status_code for answer in answers.values()] == [200, 200, 200]
    assert answers["/"].headers["content-type"] == "text/html; charset=utf-8"
    assert "<title>Headwater</title>" in answers["/"].text
    for answer in answers.values():
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS


def test_a_principal_is_shown_what_it_has_a_right_over(tmp_path: Path) -> None:
    with open_door(tmp_path / "data", access=Named()) as door:
        fill(door)
        admin, orders, writer, nobody = (shown(door, name) for name in GRANTS)
        answer = door.client.get("/v1/page")

    assert answer.status_code == 401
    assert [each["name"] for each in admin["topics"]["items"]] == ["orders", "secret"]
    assert {each["topic"] for each in admin["landings"]["items"]} == {"orders", "secret"}
    assert admin["log"]["directory"] == str(tmp_path / "data") and admin["place"]["kind"] == "disk"
    assert "secret" not in str(orders)
    assert [each["message"] for each in orders["halts"]["items"]] == ["<b>orders</b> is gone"]
    assert [each["group"] for each in orders["groups"]["items"]] == ["readers-of-orders"]
    assert "directory" not in orders["log"]
    assert [each["name"] for each in writer["topics"]["items"]] == ["orders"]
    assert writer["landings"]["items"] == writer["groups"]["items"] == writer["halts"]["items"] == []
    assert nobody["topics"]["items"] == []


def test_a_filter_an_order_and_a_place_are_taken_from_the_query(tmp_path: Path) -> None:
    with open_door(tmp_path / "data") as door:
        fill(door)

        assert [each["name"] for each in shown(door, filter="ord")["topics"]["items"]] == ["orders"]
        assert [each["name"] for each in shown(door, sort="-name")["topics"]["items"]] == ["secret", "orders"]
        assert [each["name"] for each in shown(door, **{"from": "1"})["topics"]["items"]] == ["secret"]


@pytest.mark.parametrize(
    "query", ["sort=colour", "from=-1", "from=x", "filter=" + "x" * 250, "limit=5", "sort=name&sort=rows"]
)
def test_what_cannot_be_asked_is_refused(tmp_path: Path, query: str) -> None:
    with open_door(tmp_path / "data") as door:
        answer = door.client.get(f"/v1/page?{query}")

    assert (answer.status_code, answer.json()["error"]) == (400, "InvalidRequest")


def test_the_same_question_is_answered_from_one_look_however_often_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_door(tmp_path / "data") as door:
        fill(door)
        looks: list[str] = []
        status = door.served.status

        def counted() -> Status:
            looks.append(threading.current_thread().name)
            return status()

        monkeypatch.setattr(door.served, "status", counted)
        answers = {door.client.get("/v1/page").content for _ in range(20)}

    # Twenty are answered within a second or two; the history may have taken a look beside.
    assert len(answers) <= 3 and len(looks) <= 3
    assert {name.partition("_")[0] for name in looks} <= {"headwater-http-draw", "headwater-http-page"}


def test_a_topic_that_was_deleted_is_not_shown_to_whoever_has_a_right_over_its_name(tmp_path: Path) -> None:
    with open_door(tmp_path / "data", access=Named()) as door:
        fill(door)
        door.engine.delete_topic("orders", force=True)
        door.topic("orders", {"x": int}, table="sales.others")

        found = shown(door, "orders")

    assert [each["name"] for each in found["topics"]["items"]] == ["orders"]
    assert found["landings"]["items"] == []


def test_a_ledger_that_cannot_be_read_leaves_a_page_that_says_so(tmp_path: Path) -> None:
    with open_door(tmp_path / "data") as door:
        fill(door)
        assert door.served.lake is not None
        for number in range(20):
            topic_id = door.engine.topic("orders").topic_id.hex()
            door.served.lake.ledger.record([a_landing(topic_id, commit_id=str(number))])
    for path in (tmp_path / "data" / "ledger").iterdir():
        if path.stat().st_size > 4_096:
            path.write_bytes(path.read_bytes()[:2_000] + bytes(100) + path.read_bytes()[2_100:])

    with open_door(tmp_path / "data") as door:
        found = shown(door)

    assert len([note for note in found["notes"] if note.startswith("the ledger cannot be read")]) == 1
    assert len(found["topics"]["items"]) == 2


def test_a_page_of_another_name_that_leads_to_loopback_is_answered_nothing(tmp_path: Path) -> None:
    with open_door(tmp_path / "data") as door:
        fill(door)
        rebound = door.client.get("/v1/page", headers={"host": f"evil.example:{door.door.port}"})
        rows = door.client.get("/v1/topics/orders/rows", headers={"host": "evil.example"})
        by_name = door.client.get("/v1/page", headers={"host": f"localhost:{door.door.port}"})
        by_six = door.client.get("/v1/page", headers={"host": f"[::1]:{door.door.port}"})

    assert (rebound.status_code, rows.status_code) == (403, 403)
    assert (by_name.status_code, by_six.status_code) == (200, 200)


def test_a_server_with_tokens_is_asked_by_any_name(tmp_path: Path) -> None:
    settings = ServerSettings(http=("127.0.0.1", 0), tokens=True)
    with open_door(tmp_path / "data", settings, access=Named()) as door:
        answer = door.client.get("/v1/page", headers={"host": "log.example.com", "authorization": "Bearer orders"})

    assert answer.status_code == 200


def test_there_is_a_history_although_nobody_has_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.server.web_page.EVERY_S", 0.05)
    monkeypatch.setattr("headwater.server.web_page.LOOK_S", 0.05)
    monkeypatch.setattr("headwater.page.looking.LOOK_S", 0.0)
    monkeypatch.setattr("headwater.page.looking.EVERY_S", 0.05)
    with open_door(tmp_path / "data") as door:
        fill(door)
        threading.Event().wait(1.5)
        points = shown(door)["history"]["points"]

    assert len(points) >= 3
