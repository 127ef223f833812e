"""Who waits for rows of a topic: woken by them, and not by others'."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from headwater.api.opening import Opened, open_engine
from headwater.server.arrivals import Arrivals
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.simulated_store import SimulatedStore
from headwater.topics.topic import NewTopic

WAIT_S = 20.0


@dataclass
class Place:
    opened: Opened
    arrivals: Arrivals
    a: int
    b: int
    stopping: threading.Event

    def append(self, number: int) -> int:
        return self.opened.engine.append(number, [{"id": 1}]).lsn


@pytest.fixture(params=["files", "bucket"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    opened = open_engine(":memory:" if request.param == "files" else BucketFiles(SimulatedStore()))
    a, b = opened.engine.create_topics([NewTopic("a", {"id": int}), NewTopic("b", {"id": int})])
    stopping = threading.Event()
    yield Place(opened, Arrivals(opened.engine, stopping), a.number, b.number, stopping)
    stopping.set()
    opened.engine.close()
    opened.lake.close()


def waiting(place: Place, number: int, lsn: int, timeout_s: float = WAIT_S) -> tuple[threading.Thread, list[bool]]:
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(place.arrivals.wait(number, lsn, timeout_s)))
    thread.start()
    return thread, found


def test_what_is_there_already_is_not_waited_for(place: Place) -> None:
    place.append(place.a)

    assert place.arrivals.wait(place.a, 0, WAIT_S)


def test_rows_of_another_topic_wake_nobody(place: Place) -> None:
    lsn = place.append(place.a)
    thread, found = waiting(place, place.a, lsn, 0.3)

    place.append(place.b)
    thread.join(WAIT_S)

    assert found == [False]


def test_rows_of_the_topic_wake_whoever_waits_for_them(place: Place) -> None:
    lsn = place.append(place.a)
    threads = [waiting(place, place.a, lsn) for _ in range(5)]
    other, found = waiting(place, place.b, lsn, 0.3)

    place.append(place.a)
    for thread, _ in threads:
        thread.join(WAIT_S)
    other.join(WAIT_S)

    assert [woken for _, woken in threads] == [[True]] * 5
    assert found == [False]


def test_a_new_segment_wakes_whoever_has_not_read_to_its_beginning(place: Place) -> None:
    lsn = place.append(place.a)
    place.append(place.a)
    place.opened.engine.shard.log.roll()
    last = place.append(place.b)

    assert place.arrivals.wait(place.a, lsn, 0.0), "its row is in the segment before"
    assert not place.arrivals.wait(place.a, last, 0.0)


def test_nobody_looks_when_nobody_waits(place: Place) -> None:
    def looking() -> bool:
        return any(thread.name == "headwater-arrivals" for thread in threading.enumerate())

    assert not place.arrivals.wait(place.a, 1_000, 0.01)
    nobody = threading.Event()
    for _ in range(200):
        if not looking():
            break
        nobody.wait(0.02)

    assert not looking()


def test_a_hundred_rounds_lose_no_wake_up(place: Place) -> None:
    rounds = 100
    seen: queue.SimpleQueue[int] = queue.SimpleQueue()
    upto = place.append(place.a)

    def follow(upto: int) -> None:
        for _ in range(rounds):
            if not place.arrivals.wait(place.a, upto, WAIT_S):
                return
            upto = place.opened.engine.durable_lsn()
            seen.put(upto)

    thread = threading.Thread(target=follow, args=(upto,))
    thread.start()
    for _ in range(rounds):
        lsn = place.append(place.a)
        assert seen.get(timeout=WAIT_S) >= lsn
    thread.join(WAIT_S)
