"""A server in this process whose callers show tokens, and lakes of clients over its log.

    with serve_lake(tmp_path) as served:
        served.log.topic("orders", PLAIN, table="lake.orders"); served.log["orders"].append(...)
        with served.source("lander") as source: ...          a connection of its own, with that principal's token
        with served.lake("lander") as (lake, source): ...    and a catalog of its own

PRINCIPALS  lander: land and read orders, land customers; reader: read orders; writer: write orders; other: read and
            land others; mixed: read orders, land others; everything: all of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import headwater as hw
from headwater.api.log import Log
from headwater.client.connecting import connect_to
from headwater.client.connection import Connection
from headwater.client.lake import lake_over, open_log
from headwater.client.source import ServedSource
from headwater.lake.landing import Lake
from headwater.server.access import RIGHTS, parse_grant
from headwater.server.serving import Server
from headwater.server.tokens import create
from headwater.settings import LandingSettings, LogSettings
from headwater.storage.disk import DiskFiles
from headwater.topics.embedded import EmbeddedEngine
from tests.servers.headwater import on_loopback, serving

PLAIN = pa.schema([pa.field("x", pa.int64())])
KEYED = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
LOG = LogSettings(reserve_bytes=0, segment_age_s_max=float("inf"), deletion_grace_s=0)
SETTINGS = hw.Settings(log=LOG, journal=LOG, upkeep_interval_s=0)
GRANTS = {
    "lander": ("land:orders", "read:orders", "land:customers"),
    "reader": ("read:orders",),
    "writer": ("write:orders",),
    "other": ("read:others", "land:others"),
    "mixed": ("read:orders", "land:others"),
    "everything": tuple(f"{right}:*" for right in RIGHTS),
}


@dataclass
class LakeServer:
    server: Server
    log: Log
    """The log itself, as its own process uses it."""
    folder: Path

    def address(self, principal: str) -> str:
        return f"{self.server.address}?token_file={self.folder}/{principal}.token"

    @contextmanager
    def connection(self, principal: str) -> Iterator[Connection]:
        connection = connect_to(self.address(principal))
        try:
            yield connection
        finally:
            connection.close()

    @contextmanager
    def source(self, principal: str) -> Iterator[ServedSource]:
        source = open_log(self.address(principal))
        try:
            yield source
        finally:
            source.close()

    @contextmanager
    def lake(self, principal: str, landing: LandingSettings | None = None) -> Iterator[tuple[Lake, ServedSource]]:
        with self.connection(principal) as connection:
            lake = lake_over(connection, catalog=self.catalog, landing=landing)
            source = lake.log_of(None)
            assert isinstance(source, ServedSource)
            try:
                yield lake, source
            finally:
                source.close()
                lake.close()

    @property
    def catalog(self) -> dict[str, str]:
        """The client's own: the server knows nothing of it."""
        return {
            "name": "elsewhere",
            "type": "sql",
            "uri": f"sqlite:///{self.folder}/catalog.db",
            "warehouse": f"file://{self.folder}/lake",
        }


@contextmanager
def serve_lake(folder: Path, **opening: Any) -> Iterator[LakeServer]:
    folder.mkdir(parents=True, exist_ok=True)
    data = DiskFiles(folder / "data")
    data.make_directory("")
    for name, grants in GRANTS.items():
        token = create(data, name, tuple(parse_grant(each) for each in grants))
        (folder / f"{name}.token").write_text(token)
    with serving(folder / "data", settings=on_loopback(tokens=True), log_settings=SETTINGS, **opening) as server:
        engine = server.served.engine
        assert isinstance(engine, EmbeddedEngine)
        yield LakeServer(server, Log(engine, str(folder / "data"), server.served.lake), folder)
