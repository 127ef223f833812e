"""HTTP against a real server process: curl as it is, kills under load, TLS with a token, and no secret in its log."""

from __future__ import annotations

import json
import random
import shutil
import ssl
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

import headwater as hw
from headwater.server.access import parse_grant
from headwater.server.tokens import create
from headwater.storage.disk import DiskFiles
from tests.e2e.machine import times
from tests.servers.certificates import make_certificates
from tests.servers.headwater import ServerProcess

KILLS = times("HEADWATER_HTTP_KILLS", 3)


def make_topics(data: Path) -> None:
    with hw.open(data) as log:
        log.topic("orders", schema={"order_id": int}, partitions=2)
        log.topic("customers", schema={"id": int, "name": str}, key="id", partitions=2)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_appends_a_row_as_the_first_page_says(tmp_path: Path) -> None:
    make_topics(tmp_path / "data")
    with ServerProcess(tmp_path / "data") as server:
        told = subprocess.run(
            ["curl", "-s", "-d", '{"order_id":1}', f"{server.url}/v1/topics/orders/rows"],
            capture_output=True,
            timeout=20,
            check=True,
        )
        lines = subprocess.run(
            ["curl", "-s", "-H", "content-type: application/x-ndjson", "--data-binary", "@-",
             f"{server.url}/v1/topics/orders/rows"],
            input=b"".join(b'{"order_id":%d}\n' % number for number in range(2, 5_000)),
            capture_output=True,
            timeout=20,
            check=True,
        )  # fmt: skip
        stopped = server.stop()

    assert json.loads(told.stdout)["rows"] == 1
    assert json.loads(lines.stdout)["rows"] == 4_998
    assert stopped == 0
    with hw.open(tmp_path / "data") as log:
        assert sorted(row["order_id"] for row in log["orders"].read().to_pylist()) == list(range(1, 5_000))


class Sender(threading.Thread):
    """Sends until it is told to stop; what is not answered is sent again, as it was."""

    def __init__(self, url: str, number: int) -> None:
        super().__init__(daemon=True)
        self.client = httpx.Client(base_url=url, timeout=10, verify=False)
        self.number = number
        self.acknowledged: list[int] = []
        self.refused: list[str] = []
        self.stopping = threading.Event()

    def post(self, path: str, content: object, **headers: str) -> None:
        """Return when it was answered; nothing that is answered otherwise than with 503 is sent again."""
        while True:
            try:
                answer = self.client.post(path, json=content, headers=headers)
            except httpx.TransportError:
                time.sleep(0.1)
                continue
            if answer.status_code == 503:
                time.sleep(0.1)
                continue
            if answer.status_code != 200:
                self.refused.append(answer.text)
            return


class RowSender(Sender):
    def run(self) -> None:
        sent = 0
        while not self.stopping.is_set():
            order_id = self.number * 1_000_000 + sent
            self.post("/v1/topics/orders/rows", {"order_id": order_id}, **{"idempotency-key": f"order {order_id}"})
            self.acknowledged.append(order_id)
            sent += 1


class ChangeSender(Sender):
    """As Debezium: in order, at least once; now and then it goes back and sends again what it had sent."""

    def run(self) -> None:
        draw = random.Random(self.number)
        events: list[dict[str, object]] = []
        while not self.stopping.is_set():
            first = max(len(events) - draw.randrange(3), 0)
            for _ in range(draw.randrange(1, 4)):
                lsn = 100 + len(events)
                place = {"connector": "postgresql", "name": "shop", "table": "customers"}
                source = {**place, "sequence": json.dumps([str(lsn - 50), str(lsn)])}
                row = {"id": len(events) % 7, "name": f"v{len(events)}"}
                events.append({"op": "u", "before": None, "after": row, "source": source})
            self.post("/v1/topics/customers/rows?format=debezium", events[first:])
            self.acknowledged = list(range(len(events)))


def test_kills_under_load_lose_nothing_that_was_answered_and_double_nothing(tmp_path: Path) -> None:
    make_topics(tmp_path / "data")
    with ServerProcess(tmp_path / "data") as server:
        senders = [RowSender(server.url, 1), RowSender(server.url, 2), ChangeSender(server.url, 3)]
        for each in senders:
            each.start()
        for _ in range(KILLS):
            before = [len(each.acknowledged) for each in senders]
            deadline = time.monotonic() + 20
            while any(len(each.acknowledged) < seen + 3 for each, seen in zip(senders, before, strict=True)):
                assert time.monotonic() < deadline, [each.refused for each in senders]
                time.sleep(0.02)
            server.kill()
            server.start()
        for each in senders:
            each.stopping.set()
        for each in senders:
            each.join(30)
            assert not each.is_alive() and not each.refused
            each.client.close()
        assert server.stop() == 0

    with hw.open(tmp_path / "data") as log:
        orders = Counter(row["order_id"] for row in log["orders"].read().to_pylist())
        changes = [row["name"] for row in log["customers"].read().to_pylist()]
    assert orders == Counter(number for each in senders[:2] for number in each.acknowledged)
    assert Counter(changes) == Counter(f"v{number}" for number in senders[2].acknowledged)


def test_tls_and_a_token_are_asked_for_and_the_token_is_in_no_log(tmp_path: Path) -> None:
    make_topics(tmp_path / "data")
    certificates = make_certificates(tmp_path / "certificates")
    token = create(DiskFiles(tmp_path / "data"), "loader", (parse_grant("write:orders"),))
    options = ("--tls-cert", str(certificates.server.cert_file), "--tls-key", str(certificates.server.key_file))
    context = ssl.create_default_context(cafile=str(certificates.ca_file))
    server = ServerProcess(tmp_path / "data", *options, "--tokens", "--log-level", "debug", wait_ready=False)
    with server, httpx.Client(base_url=server.url.replace("http:", "https:"), verify=context, timeout=10) as client:
        deadline = time.monotonic() + 30
        while True:
            try:
                if client.get("/readyz").status_code == 200:
                    break
            except httpx.TransportError:
                pass  # it is starting
            assert time.monotonic() < deadline, server.output()
            time.sleep(0.05)
        path = "/v1/topics/orders/rows"
        mine = {"authorization": f"Bearer {token}"}

        answers = [
            client.post(path, json={"order_id": 1}),
            client.post(path, json={"order_id": 1}, headers={"authorization": f"Bearer {token[:-1]}"}),
            client.post(path, json={"order_id": 1}, headers=mine),
            client.post("/v1/topics/customers/rows", json={"id": 1}, headers=mine),
            client.post(path, json={"order_id": token}, headers=mine),
            client.get("/metrics", headers=mine),
        ]
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{server.url}/livez", timeout=5).raise_for_status()
        assert server.stop() == 0

    assert [each.status_code for each in answers] == [401, 401, 200, 404, 400, 403]
    said = server.output()
    assert said.strip() and token not in said and token[3:20] not in said
