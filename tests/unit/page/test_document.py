"""The document of the page: bounded, and with nothing in it that its reader may not see."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.clock import SystemClock
from headwater.page.document import EVERYTHING, Question, Sight, page_document
from headwater.page.history import History, Point, Shown
from headwater.page.ledger_tail import LedgerTail
from headwater.page.looking import Looking, Seen
from headwater.storage.disk import Space
from headwater.topics.answers import GroupDescription
from tests.unit.lake.audited_lakes import AuditedLake
from tests.unit.page.seen_logs import a_landing, a_look, a_standing, a_status, a_topic, an_audit


def a_document(
    seen: Seen, sight: Sight = EVERYTHING, question: Question | None = None, **rates: float
) -> dict[str, object]:
    history = History()
    history.add(seen.status, 1_000, 0.0)
    history.add(seen.status, 2_000, 1.0)

    def points(shown: Shown | None, looks: Shown) -> list[Point]:
        return history.of_all() if shown is None else history.of_some(shown, looks)

    return page_document(a_look(seen, rates), points, sight, question or Question(), source="server", again_s=2.0)


def only(*names: str) -> Sight:
    known = set(names).__contains__
    return Sight("reader", everything=False, knows=known, reads=known, looks=known)


def items(document: dict[str, object], name: str) -> list[dict[str, object]]:
    found = document[name]
    assert isinstance(found, dict)
    return list(found["items"])


def two_topics() -> Seen:
    return Seen(
        a_status(
            [a_topic("orders", rows=7, table="lake.orders"), a_topic("secret", rows=1_000, table="lake.secret")],
            [
                a_standing("orders", lag_rows=2, lag_s=3),
                a_standing("secret", lag_rows=90, lag_s=99, halted="gap", message="secret is gone"),
            ],
            [
                GroupDescription("billing", "orders", {0: 1}, {0: 4}, 1),
                GroupDescription("spies", "secret", {}, {0: 9}, 0),
            ],
            notes=["secret is full"],
        ),
        [a_landing(1), a_landing(2, "secret")],
        [an_audit(), an_audit("secret")],
        {"orders": "orders", "secret": "secret"},
        Space(10, 100),
    )


def test_a_real_log_with_landings_an_audit_and_a_halt_is_told_as_it_is(tmp_path: Path) -> None:
    lake = AuditedLake(tmp_path)
    lake.topic("orders")
    lake.topic("payments")
    lake.append("orders", 5)
    lake.append("payments", 1)
    lake.round()
    lake.report("orders", "payments")
    lake.append("payments", 1)
    lake.drop("payments")
    lake.round()
    tail = LedgerTail(lambda lsn: lake.ledger.page(lsn, 1))
    tail.read()
    seen = Seen(lake.log.status(), tail.landings(), tail.audits(), tail.names)
    lake.close()
    looking = Looking(lambda: seen, SystemClock())

    document = page_document(looking.now(), looking.points, source="file", again_s=None)

    assert {each["topic"]: each["rows"] for each in items(document, "landings")} == {"orders": 5, "payments": 1}
    assert all(each["verified_at"] and len(str(each["digest"])) == 16 for each in items(document, "landings"))
    assert {(each["topic"], each["passed"]) for each in items(document, "audits")} == {
        ("orders", True),
        ("payments", True),
    }
    (halt,) = items(document, "halts")
    assert (halt["topic"], halt["cause"]) == ("payments", "gap")
    assert halt["command"] == f"headwater land payments --after-rollback payments --data {lake.folder}"
    by_name = {each["name"]: each for each in items(document, "topics")}
    landing = by_name["orders"]["landing"]
    assert isinstance(landing, dict)
    durable_lsn = seen.status.durable_lsn
    assert landing["lag_rows"] == 0 and sum(landing["lsns"]) == durable_lsn
    assert document["totals"] == {
        "topics": 2,
        "rows": 7,
        "bytes": sum(each.bytes for each in seen.status.topics),
        "rows_per_s": 0.0,
        "tables": 2,
        "lag_rows": 1,
        "lag_s": pytest.approx(0, abs=60),
        "halted": 1,
    }
    json.dumps(document)


def test_a_reader_is_shown_nothing_of_a_topic_that_it_has_no_right_over() -> None:
    document = a_document(two_topics(), only("orders"))

    assert "secret" not in json.dumps(document)
    assert document["totals"] == {
        "topics": 1, "rows": 7, "bytes": 700, "rows_per_s": 0.0, "tables": 1, "lag_rows": 2, "lag_s": 3, "halted": 0
    }  # fmt: skip
    history = document["history"]
    assert isinstance(history, dict)
    assert [point[2:] for point in history["points"]] == [[2, 3.0], [2, 3.0]]
    log = document["log"]
    assert isinstance(log, dict)
    assert "directory" not in log and document["place"] is None and document["notes"] == []


def test_who_may_see_everything_is_shown_everything() -> None:
    document = a_document(two_topics(), secret=4.0)

    assert [each["name"] for each in items(document, "topics")] == ["orders", "secret"]
    assert [each["group"] for each in items(document, "groups")] == ["spies", "billing"]
    assert [each["topic"] for each in items(document, "landings")] == ["orders", "secret"]
    assert len(items(document, "audits")) == 2 and len(items(document, "halts")) == 1
    assert document["place"] == {"kind": "disk", "free_bytes": 10, "size_bytes": 100}
    assert document["notes"] == ["secret is full"]
    assert items(document, "topics")[1]["rows_per_s"] == 4.0


def test_a_reader_who_may_only_write_sees_neither_groups_nor_landings() -> None:
    sight = Sight(
        "writer", everything=False, knows={"orders"}.__contains__, reads=lambda _: False, looks=lambda _: False
    )

    document = a_document(two_topics(), sight)

    assert [each["name"] for each in items(document, "topics")] == ["orders"]
    assert items(document, "topics")[0]["landing"] is None
    assert items(document, "groups") == items(document, "landings") == items(document, "audits") == []
    history = document["history"]
    assert isinstance(history, dict)
    assert [point[2:] for point in history["points"]] == [[0, 0.0], [0, 0.0]]


def test_a_filter_is_over_names_and_everything_follows_it() -> None:
    document = a_document(two_topics(), question=Question(filter="ORD"))

    assert [each["name"] for each in items(document, "topics")] == ["orders"]
    assert [each["topic"] for each in items(document, "groups")] == ["orders"]
    assert [each["topic"] for each in items(document, "landings")] == ["orders"]
    assert items(document, "halts") == []


@pytest.mark.parametrize(
    ("question", "names"),
    [
        (Question(sort="rows"), ["orders", "secret"]),
        (Question(sort="rows", falling=True), ["secret", "orders"]),
        (Question(sort="bytes", falling=True), ["secret", "orders"]),
        (Question(sort="lag_s", falling=True), ["secret", "orders"]),
        (Question(sort="rows_per_s", falling=True), ["orders", "secret"]),
        (Question(falling=True), ["secret", "orders"]),
        (Question(start=1), ["secret"]),
        (Question(start=5), []),
        (Question(topics_max=1), ["orders"]),
    ],
)
def test_topics_come_in_the_order_and_from_the_place_that_was_asked_for(question: Question, names: list[str]) -> None:
    document = a_document(two_topics(), EVERYTHING, question, orders=5.0)

    assert [each["name"] for each in items(document, "topics")] == names
    topics = document["topics"]
    assert isinstance(topics, dict)
    assert topics["count"] == 2


def test_a_document_is_bounded_whatever_there_is() -> None:
    long = "x" * 100_000
    names = [f"topic-{number:05}-{'n' * 200}" for number in range(10_000)]
    seen = Seen(
        a_status(
            [a_topic(name, table=f"lake.{name}") for name in names],
            [a_standing(name, lag_rows=1, halted="gap", message=long) for name in names],
            [GroupDescription(f"group-{number}", names[0], {}, {0: 1}, 0) for number in range(5_000)],
            notes=[long] * 1_000,
        ),
        [a_landing(number, names[0]) for number in range(1_000)],
        [an_audit(names[0])] * 400,
        {name: name for name in names},
    )
    document = a_document(seen)

    size = len(json.dumps(document))

    assert size < 600_000
    bounds = {"topics": (200, 10_000), "groups": (200, 5_000), "landings": (100, 1_000), "audits": (50, 400)}
    for name, (shown, count) in {**bounds, "halts": (50, 10_000)}.items():
        found = document[name]
        assert isinstance(found, dict)
        assert (len(found["items"]), found["count"]) == (shown, count)
