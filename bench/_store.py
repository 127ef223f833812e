"""An S3 server of a bench's own on loopback, logs in it, and bare conditional puts beside them.

with store(directory) as place
    place.url("log")                       for hw.open; the environment of this process and of its children knows how
    place.bare("puts").put(name, data)     one conditional put: obstore alone, without retries
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import obstore
from obstore.store import S3Store

import headwater as hw
from headwater.log.slots import is_slot_name
from headwater.settings import bucket_settings
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.objects import Objects, StoreCounters
from headwater.storage.places import open_files
from tests.servers.versitygw import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server, s3_process, versitygw_program

WINDOW = 8


@dataclass(frozen=True)
class BareStore:
    """Puts without anything around them."""

    store: S3Store
    prefix: str

    def put(self, name: str, data: bytes) -> None:
        obstore.put(self.store, f"{self.prefix}/{name}", data, mode="create", use_multipart=False)


@dataclass(frozen=True)
class Store:
    """A server that runs while its block does."""

    server: S3Server

    def url(self, name: str) -> str:
        return self.server.url(name)

    def bare(self, prefix: str) -> BareStore:
        store = S3Store(
            self.server.bucket,
            config={"conditional_put": "etag"},
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )
        return BareStore(store, prefix)

    def objects_below(self, prefix: str) -> dict[str, int]:
        """Names and sizes, from the server's own disk: looking costs no request."""
        root = self.server.folder / self.server.bucket / prefix
        found = {}
        for path in root.rglob("*"):
            with suppress(FileNotFoundError):  # deleted since it was listed
                if path.is_file():
                    found[str(path.relative_to(root))] = path.stat().st_size
        return found


@contextmanager
def store(directory: Path) -> Iterator[Store]:
    """A server whose objects lie below the directory; this process and its children find it by their environment."""
    data = directory / "data"
    (data / BUCKET).mkdir(parents=True)
    command = [str(versitygw_program()), "--quiet", "--port", "{address}", "posix", str(data)]
    secrets = {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
    with s3_process(command, secrets, data) as server, server.in_environment():
        yield Store(server)


@dataclass(frozen=True)
class BucketLog:
    """A log in the bucket, and what it has asked of the store so far."""

    log: hw.Log
    files: BucketFiles
    place: Store
    name: str

    def counted(self) -> StoreCounters:
        return StoreCounters(**self.files.objects.counters.as_dict())

    def slots(self) -> int:
        """How many slots of the log there are."""
        return sum(is_slot_name(name) for name in self.place.objects_below(f"{self.name}/log"))


class FarObjects:
    """A store to which each request has a long way."""

    def __init__(self, objects: Objects, seconds: float) -> None:
        self._objects = objects
        self._seconds = seconds

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._objects, name)
        if not callable(found):
            return found

        def asked(*given: Any, **named: Any) -> Any:
            time.sleep(self._seconds)
            return found(*given, **named)

        return asked


@contextmanager
def bucket_log(
    place: Store, name: str, settings: hw.Settings | None = None, *, far_s: float = 0.0, take_over: bool = False
) -> Iterator[BucketLog]:
    """A log in the bucket; with `far_s` each of its requests takes so much longer."""
    files = open_files(place.url(name), take_over=take_over)
    assert isinstance(files, BucketFiles)
    if far_s:
        files = BucketFiles(cast(Objects, FarObjects(files.objects, far_s)), take_over=take_over)
    with hw.open(files, settings=settings if settings is not None else bucket_settings()) as log:
        yield BucketLog(log, files, place, name)


def from_threads(count: int, each: int, act: Callable[[int], None]) -> float:
    """The seconds until so many threads have each acted so often; `act` is told a number of its own."""
    ready = threading.Barrier(count + 1)

    def acting(first: int) -> None:
        ready.wait()
        for number in range(first, first + each):
            act(number)

    running = [threading.Thread(target=acting, args=(place * each,)) for place in range(count)]
    for thread in running:
        thread.start()
    ready.wait()
    started = time.perf_counter()
    for thread in running:
        thread.join()
    return time.perf_counter() - started


def in_turn(sides: Sequence[Callable[[], float]], rounds: int) -> list[list[float]]:
    """What each side says in each round; each goes first by turns.  A round before them warms up."""
    for warm_up in sides:
        warm_up()
    found = []
    for number in range(rounds):
        row = [0.0] * len(sides)
        for step in range(len(sides)):
            place = (step + number) % len(sides)
            row[place] = sides[place]()
        found.append(row)
    return found
