"""The metrics page: the names that are promised, worked out from what the log says."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from headwater.errors import Unauthenticated
from headwater.lake.ledger_records import Audited, Ended, HaltedLanding, Landed
from headwater.server.access import Principal
from headwater.server.counters import RequestCounters
from headwater.server.settings import ServerSettings
from tests.unit.server.http_doors import OpenDoor, open_door

ROOT = Path(__file__).resolve().parents[3]
PROMISED = (
    "headwater_append_rows_total",
    "headwater_append_duration_seconds_bucket",
    "headwater_sync_duration_seconds_bucket",
    "headwater_landing_lag_seconds",
    "headwater_landing_lag_rows",
    "headwater_landings_total",
    "headwater_landing_halted",
    "headwater_audit_last_pass_timestamp_seconds",
    "headwater_disk_pinned_bytes",
    "headwater_rejected_rows_total",
    "headwater_consumer_lag_rows",
    "headwater_build_info",
)


Samples = dict[str, dict[tuple[str, ...], float]]


def samples(door: OpenDoor) -> Samples:
    """By name, and by the values of the labels in the order of their names."""
    found: Samples = {}
    for family in text_string_to_metric_families(door.client.get("/metrics").text):
        for each in family.samples:
            labels = tuple(value for _, value in sorted(each.labels.items()))
            found.setdefault(each.name, {})[labels] = each.value
    return found


def a_landing(topic_id: str, **changes: object) -> Landed:
    given: dict[str, object] = {
        "at_us": 1,
        "topic_id": topic_id,
        "topic": "orders",
        "table": "sales.orders",
        "table_uuid": "u",
        "commit_id": "c",
        "snapshot": 1,
        "lsn_from": 0,
        "lsn_to": 1,
        "rows": 1,
        "digest": None,
        "total": "0" * 16,
        "columns": (),
        "max_row_lsn": 1,
        "epoch": 1,
    }
    return Landed(**{**given, **changes})  # type: ignore[arg-type]


def test_every_promised_name_is_there_with_what_the_log_and_the_ledger_say(tmp_path: Path) -> None:
    with open_door(tmp_path / "data") as door:
        topic = door.topic("orders", {"order_id": int}, table="sales.orders", partitions=2)
        assert door.client.post("/v1/topics/orders/rows", json=[{"order_id": 1}, {"order_id": 2}]).is_success
        assert door.client.post("/v1/topics/orders/rows?rejected=keep", json=[{"order_id": "x"}]).is_success
        consumer = door.engine.consumer("orders", "billing")
        consumer.poll(timeout_s=1.0)
        consumer.commit()
        door.engine.append(topic.number, [{"order_id": 3}] * 4)
        assert door.served.lake is not None
        topic_id = topic.topic_id.hex()
        door.served.lake.ledger.record(
            [
                a_landing(topic_id),
                Ended(at_us=2, topic_id=topic_id, table="sales.orders", commit_id="d", why="failed"),
                Audited(
                    at_us=5_000_000,
                    topic_id=topic_id,
                    table="sales.orders",
                    table_uuid="u",
                    snapshot=1,
                    lsn_to=1,
                    rows=1,
                    full=True,
                    passed=True,
                ),
                HaltedLanding(at_us=3, topic_id=topic_id, table="sales.orders", cause="gap", message="a gap"),
            ]
        )

        found = samples(door)

        assert [name for name in PROMISED if name not in found] == []
        assert found["headwater_append_rows_total"][()] == 7
        assert found["headwater_append_duration_seconds_count"][()] == 4
        assert found["headwater_sync_duration_seconds_count"][()] > 0
        assert found["headwater_landing_halted"] == {("gap", "orders"): 1}
        assert sum(found["headwater_landings_total"].values()) == 3
        assert found["headwater_audit_last_pass_timestamp_seconds"][("orders",)] == 5
        assert found["headwater_landing_lag_rows"][("orders",)] > 0
        assert found["headwater_disk_pinned_bytes"][("orders",)] > 0
        assert found["headwater_rejected_rows_total"][("orders",)] == 1
        assert sum(found["headwater_consumer_lag_rows"].values()) == 4
        assert found["headwater_ready"][()] == 1
        assert found["headwater_http_requests_total"][("rows", "200")] == 2
        assert found["headwater_moved_bytes_total"][()] > 0
        assert found["headwater_disk_free_bytes"][()] > 0
        assert found["process_resident_memory_bytes"][()] > 0
        assert not [name for name in found if "partition" in name]
        assert "partition=" not in door.client.get("/metrics").text
        consumer.close()


def test_every_name_of_the_page_is_in_the_docs_and_the_other_way_round(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    told = set(re.findall(r"`(headwater_[a-z_]+)", text))
    with open_door(tmp_path / "data") as door:
        page = door.client.get("/metrics").text

    there = set(re.findall(r"^# TYPE (headwater_[a-z_]+) ", page, re.MULTILINE))
    assert there == told


def test_a_ledger_that_cannot_be_read_leaves_a_page_that_says_so(tmp_path: Path) -> None:
    with open_door(tmp_path / "data") as door:
        topic = door.topic("orders", {"order_id": int}, table="sales.orders")
        assert door.served.lake is not None
        for number in range(20):
            door.served.lake.ledger.record([a_landing(topic.topic_id.hex(), commit_id=str(number))])
        assert samples(door)["headwater_status_complete"][()] == 1
    for path in (tmp_path / "data" / "ledger").iterdir():
        if path.stat().st_size > 4_096:
            path.write_bytes(path.read_bytes()[:2_000] + bytes(100) + path.read_bytes()[2_100:])

    with open_door(tmp_path / "data") as door:
        found = samples(door)

        assert found["headwater_status_complete"][()] == 0
        assert found["headwater_topic_rows_total"][("orders",)] == 0


def test_anybody_may_read_the_page_where_the_server_was_told_so(tmp_path: Path) -> None:
    class Nobody:
        def authenticate(self, authorization: str | None, certificate: str | None) -> Principal:
            raise Unauthenticated("give a token")

        def close(self) -> None:
            pass

    closed = ServerSettings(http=("127.0.0.1", 0))
    shown = ServerSettings(http=("127.0.0.1", 0), metrics_open=True)
    for settings, status in ((closed, 401), (shown, 200)):
        with open_door(tmp_path / "data", settings, access=Nobody()) as door:
            assert door.client.get("/metrics").status_code == status


def test_requests_are_counted_by_how_they_ended() -> None:
    counters = RequestCounters()

    for raised in (None, Unauthenticated("who?"), ZeroDivisionError()):
        with contextlib.suppress(Unauthenticated, ZeroDivisionError), counters.counted("flight"):
            if raised is not None:
                raise raised

    assert counters.read() == {("flight", "ok"): 1, ("flight", "Unauthenticated"): 1, ("flight", "bug"): 1}
