"""Tables over a REST catalog that answers as it is told: what a request's outcome is, and that it is sent once."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import headwater.lake.catalog_connection
from headwater.errors import Unavailable
from headwater.lake.catalog import CatalogPlace, catalog_place
from headwater.lake.tables import CommitRefused, CommitUncertain
from tests.e2e_lake.tables_contract import staged_landing
from tests.unit.lake.scratch_tables import ORDERS, TABLE, connected, loaded, native, sqlite_place


class RestCatalogOfOneTable(ThreadingHTTPServer):
    """Speaks as much of the REST protocol as a landing needs, answers commits as it is told, and counts them."""

    daemon_threads = True

    def __init__(self, table: dict[str, Any]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.table = table
        self.commit_status = 200
        self.commit_body = b"{}"
        self.hangs = threading.Event()
        self.load_status = 200
        self.commits: list[dict[str, Any]] = []

    @property
    def place(self) -> CatalogPlace:
        return catalog_place({"uri": f"http://127.0.0.1:{self.server_port}", "token": "t"}, directory="x")


class _Handler(BaseHTTPRequestHandler):
    server: RestCatalogOfOneTable

    def do_GET(self) -> None:
        if self.path.startswith("/v1/config"):
            self._answer(200, b'{"defaults": {}, "overrides": {}}')
        elif self.server.load_status != 200:
            self._answer(self.server.load_status, b"")
        else:
            assert "snapshots=refs" not in self.path
            self._answer(200, json.dumps(self.server.table).encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.commits.append(json.loads(body))
        if self.server.hangs.is_set():
            self.server.hangs.wait(0.01)
            while self.server.hangs.is_set():
                threading.Event().wait(0.01)
        self._answer(self.server.commit_status, self.server.commit_body)

    def _answer(self, status: int, body: bytes) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except ConnectionError:
            pass  # whoever asked has stopped waiting

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[RestCatalogOfOneTable]:
    with connected(sqlite_place(tmp_path)) as tables:
        table = native(tables.create(TABLE, ORDERS))
    described = {
        "metadata-location": table.metadata_location,
        "metadata": json.loads(table.metadata.model_dump_json()),
        "config": {},
    }
    server = RestCatalogOfOneTable(described)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.hangs.clear()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "body", "outcome"),
    [
        (409, b'{"error": {"message": "no", "type": "CommitFailedException", "code": 409}}', CommitRefused),
        (401, b"", CommitUncertain),
        (419, b"", CommitUncertain),
        (404, b"", CommitUncertain),
        (429, b"", CommitUncertain),
        (500, b"", CommitUncertain),
        (502, b"", CommitUncertain),
        (503, b"", CommitUncertain),
        (504, b"<html>", CommitUncertain),
        (200, b"not json", CommitUncertain),
        (200, b"{}", CommitUncertain),
    ],
    ids=str,
)
def test_a_request_to_a_rest_catalog_is_sent_once_whatever_it_answers(
    rest: RestCatalogOfOneTable, status: int, body: bytes, outcome: type[Exception]
) -> None:
    rest.commit_status, rest.commit_body = status, body
    with connected(rest.place) as tables:
        request = staged_landing(tables, TABLE, lsn=1)

        with pytest.raises(outcome):
            tables.commit(request)

    assert len(rest.commits) == 1
    assert {requirement["type"] for requirement in rest.commits[0]["requirements"]} == {
        "assert-table-uuid",
        "assert-ref-snapshot-id",
        "assert-current-schema-id",
        "assert-default-spec-id",
    }


def test_a_rest_catalog_that_does_not_reply_is_not_waited_for_forever(
    monkeypatch: pytest.MonkeyPatch, rest: RestCatalogOfOneTable
) -> None:
    monkeypatch.setattr(headwater.lake.catalog_connection, "REPLY_TIMEOUT_S", 0.2)
    rest.hangs.set()
    with connected(rest.place) as tables:
        request = staged_landing(tables, TABLE, lsn=1)

        with pytest.raises(CommitUncertain, match="timed out"):
            tables.commit(request)

    assert len(rest.commits) == 1


@pytest.mark.parametrize("status", [500, 502, 503, 504, 429])
def test_a_rest_catalog_in_trouble_is_unavailable(rest: RestCatalogOfOneTable, status: int) -> None:
    rest.load_status = status

    with connected(rest.place) as tables, pytest.raises(Unavailable, match="cannot be loaded"):
        tables.load(TABLE)


def test_a_rest_catalog_is_asked_for_all_snapshots(rest: RestCatalogOfOneTable) -> None:
    place = CatalogPlace("lake", {**rest.place.properties, "snapshot-loading-mode": "refs"})

    with connected(place) as tables:
        assert loaded(tables).head() is None
