"""A door over HTTP in front of a real log in a folder, for tests; everybody may come in, unless a test says who."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from headwater.api.opening import open_engine
from headwater.metadata.operations import TopicRecord
from headwater.server.access import Access, OpenAccess
from headwater.server.http import HttpDoor
from headwater.server.served import Served
from headwater.server.settings import ServerSettings
from headwater.server.streams import Streams
from headwater.settings import Settings
from headwater.topics.engine import Engine
from headwater.topics.reading import Wanted
from headwater.topics.topic import NewTopic


@dataclass
class OpenDoor:
    """What a test has in hand."""

    engine: Engine
    served: Served
    door: HttpDoor
    client: httpx.Client

    def topic(self, name: str, schema: object, **options: object) -> TopicRecord:
        return self.engine.create_topics([NewTopic(name, schema, **options)])[0]  # type: ignore[arg-type]

    def rows(self, name: str) -> list[dict[str, object]]:
        found: list[dict[str, object]] = self.engine.read(self.engine.topic(name).number, Wanted()).to_pylist()
        return found

    def post(self, topic: str, content: bytes | str, kind: str = "application/json", **headers: str) -> httpx.Response:
        given = {"content-type": kind, **{name.replace("_", "-"): value for name, value in headers.items()}}
        return self.client.post(f"/v1/topics/{topic}/rows", content=content, headers=given)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.door.port), timeout=10)


@contextmanager
def open_door(
    directory: Path,
    settings: ServerSettings | None = None,
    *,
    access: Access | None = None,
    log_settings: Settings | None = None,
) -> Iterator[OpenDoor]:
    wanted = settings if settings is not None else ServerSettings(http=("127.0.0.1", 0))
    opened = open_engine(directory, settings=log_settings)
    served = Served(
        opened.engine,
        opened.lake,
        opened.directory,
        wanted,
        OpenAccess() if access is None else access,
        Streams(wanted.limits),
    )
    door = HttpDoor(lambda: served, wanted)
    try:
        opened.engine.claim()
        door.start()
        scheme = "http" if wanted.tls is None else "https"
        with httpx.Client(base_url=f"{scheme}://127.0.0.1:{door.port}", timeout=20, verify=False) as client:
            yield OpenDoor(opened.engine, served, door, client)
    finally:
        door.stop(5)
        served.close()
        opened.engine.close()
        opened.lake.close()
