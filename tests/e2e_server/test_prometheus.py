"""Alerts and dashboard in a real Prometheus: every rule fires once, and every query of the dashboard has an answer.

    a server      real: rows go in, some are rejected (HeadwaterRowsRejected)
    nobody        a port on which no server listens any more (HeadwaterDown)
    an ill one    the real server's own page, with the values of an illness that takes too long to have: not ready, a
                  halted landing, old rows, an old audit, a full disk, slow syncs

Only how long a condition must hold (`for`) is shortened.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

import headwater as hw
from headwater.lake.ledger_records import HaltedLanding, Landed
from headwater.server.settings import ServerSettings
from headwater.topics.topic import NewTopic
from tests.servers.headwater import free_ports, serving

ROOT = Path(__file__).resolve().parents[2]
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "headwater.json"
DEADLINE_S = 30.0

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")


def names_of_alerts() -> set[str]:
    return set(re.findall(r"- alert: (\w+)", ALERTS.read_text(encoding="utf-8")))


def queries() -> list[str]:
    """Every query of the dashboard, with what Grafana would put in for its variables."""
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    found = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return [each.replace("$instance", ".*").replace("$__rate_interval", "1m") for each in found]


@contextmanager
def prometheus(directory: Path, targets: list[str]) -> Iterator[str]:
    """A Prometheus over these targets, twice a second; gives its address."""
    (port,) = free_ports(1)
    rules = re.sub(r"for: \w+", "for: 0s", ALERTS.read_text(encoding="utf-8"))
    (directory / "alerts.yml").write_text(rules, encoding="utf-8")
    config = {
        "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"},
        "rule_files": ["alerts.yml"],
        "scrape_configs": [{"job_name": "headwater", "static_configs": [{"targets": targets}]}],
    }
    # JSON is YAML.
    (directory / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(timeout=20)


def ask(url: str, path: str, **parameters: str) -> Any:
    query = urllib.parse.urlencode(parameters)
    try:
        with urllib.request.urlopen(f"{url}/api/v1/{path}?{query}", timeout=5) as answer:
            return json.load(answer)["data"]
    except OSError:
        return None  # it is starting


@contextmanager
def ill_page(healthy: Callable[[], str]) -> Iterator[int]:
    """The page of a real server as it would be if all went wrong; gives its port."""
    asked = 0

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            nonlocal asked
            asked += 1
            page = healthy()
            for name, value in (
                (r"headwater_ready", "0"),
                (r"headwater_landing_lag_seconds\{.*?\}", "90000"),
                (r"headwater_audit_last_pass_timestamp_seconds\{.*?\}", str(time.time() - 30 * 86_400)),
                (r"headwater_disk_free_bytes", "1000"),
                (r"headwater_sync_duration_seconds_bucket\{le=\"(?:10.0|30.0|\+Inf)\"\}", str(100 * asked)),
                (r"headwater_sync_duration_seconds_bucket\{le=\"(?!10.0|30.0|\+Inf).*?\"\}", "0"),
            ):
                page, count = re.subn(rf"(?m)^({name}) \S+$", rf"\g<1> {value}", page)
                assert count, name
            body = page.encode()
            self.send_response(200)
            self.send_header("content-type", "text/plain; version=0.0.4")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_every_alert_fires_once_and_every_query_of_the_dashboard_has_an_answer(tmp_path: Path) -> None:
    settings = ServerSettings(listen=("127.0.0.1", 0), http=("127.0.0.1", 0), stop_s=5.0)
    with serving(tmp_path / "data", settings=settings) as server:
        url = f"http://127.0.0.1:{server.http_port}"
        engine = server.served.engine
        (topic,) = engine.create_topics([NewTopic("orders", {"order_id": int}, table="sales.orders")])
        rows = f"{url}/v1/topics/orders/rows?rejected=keep"
        assert httpx.post(rows, json=[{"order_id": 1}]).is_success
        consumer = engine.consumer("orders", "billing")
        consumer.poll(timeout_s=1.0)
        consumer.commit()
        consumer.close()
        with hw.connect(server.address) as client:
            assert client["orders"].read().to_pylist() == [{"order_id": 1}]
        _write_down(server.served.lake, topic.topic_id.hex())
        (nobody,) = free_ports(1)
        with ill_page(lambda: httpx.get(f"{url}/metrics").text) as ill:
            well, sick, gone = (f"127.0.0.1:{port}" for port in (server.http_port, ill, nobody))
            with prometheus(tmp_path, [well, sick, gone]) as address:
                firing = _wait_for_alerts(address, lambda: httpx.post(rows, json=[{"order_id": "x"}]))
                answers = {query: ask(address, "query", query=query)["result"] for query in queries()}

    instances = {name: {each["instance"] for each in found} for name, found in firing.items()}
    assert set(instances) == names_of_alerts() and len(instances) == 8
    assert instances["HeadwaterDown"] == {gone}
    assert instances["HeadwaterNotReady"] == instances["HeadwaterLandingLags"] == {sick}
    assert instances["HeadwaterSyncsSlow"] == {sick}
    assert well in instances["HeadwaterRowsRejected"]
    assert [query for query, answer in answers.items() if not answer] == []
    assert len(answers) >= 25


def _write_down(lake: Any, topic_id: str) -> None:
    """What a landing and its halt leave in the ledger."""
    landed = Landed(
        at_us=1,
        topic_id=topic_id,
        topic="orders",
        table="sales.orders",
        table_uuid="u",
        commit_id="c",
        snapshot=1,
        lsn_from=0,
        lsn_to=1,
        rows=1,
        digest=None,
        total="0" * 16,
        columns=(),
        max_row_lsn=1,
        epoch=1,
    )
    halted = HaltedLanding(at_us=2, topic_id=topic_id, table="sales.orders", cause="gap", message="rows are missing")
    lake.ledger.record([landed, halted])


def _wait_for_alerts(address: str, keep_busy: Callable[[], object]) -> dict[str, list[dict[str, str]]]:
    """The labels of what fires, by alert, once all do."""
    deadline = time.monotonic() + DEADLINE_S
    found: dict[str, list[dict[str, str]]] = {}
    while time.monotonic() < deadline:
        keep_busy()
        told = ask(address, "alerts")
        found = {}
        for each in told["alerts"] if told is not None else []:
            if each["state"] == "firing":
                found.setdefault(each["labels"]["alertname"], []).append(each["labels"])
        if set(found) == names_of_alerts():
            return found
        time.sleep(0.3)
    raise AssertionError(f"not firing after {DEADLINE_S} s: {sorted(names_of_alerts() - set(found))}")
