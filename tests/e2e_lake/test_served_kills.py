"""A landing through a server that is killed between its steps, and started again: every row lands once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

import headwater as hw
from headwater.lake.runner import InProcess
from headwater.lake.work import Done, Work
from headwater.settings import KIB, LogSettings
from tests.servers.headwater import ServerProcess

SCHEMA = pa.schema([pa.field("x", pa.int64())])
LOG = LogSettings(segment_size_bytes_max=64 * KIB, write_body_bytes_max=16 * KIB, reserve_bytes=0)


class Killing(InProcess):
    """Kills the server before the works are done, and after: their frames are read from one server, and what came of
    them is recorded by another."""

    def __init__(self, server: ServerProcess) -> None:
        super().__init__()
        self._server = server

    def run(self, works: Sequence[Work]) -> Iterator[Done]:
        self._server.kill()
        self._server.start()
        done = list(super().run(works))
        self._server.kill()
        self._server.start()
        return iter(done)


def test_a_landing_goes_on_through_a_server_that_is_killed_between_its_steps(tmp_path: Path) -> None:
    with hw.open(tmp_path / "data", settings=hw.Settings(log=LOG)) as log:
        topic = log.topic("orders", SCHEMA, table="lake.orders")
        for number in range(40):
            topic.append(pa.table({"x": list(range(number * 500, (number + 1) * 500))}, schema=SCHEMA))
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/lake"}

    with ServerProcess(tmp_path / "data") as server, hw.connect(server.address, catalog=catalog) as log:
        report = log._beside().land(log._viewed().source, None, runner=Killing(server))
        with log["orders"].scan() as scan:
            server.kill()
            server.start()
            rows = sorted(scan.to_arrow()["x"].to_pylist())
        audited = log.audit()

    assert report["orders"].outcome == "landed" and report["orders"].rows == 20_000
    assert rows == list(range(20_000))
    assert audited.passed, str(audited)
