"""A registry of logs: where topics live, who wins a race, and what is said when the store or its content is wrong."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import headwater as hw
from headwater.api import registry as module
from headwater.errors import (
    Conflict,
    CorruptData,
    InvalidRequest,
    TopicExists,
    Unavailable,
    UnknownFormat,
    UnknownTopic,
)
from headwater.storage.simulated_store import SimulatedStore, StoreFaults


def opened(store: SimulatedStore) -> hw.Registry:
    return hw.Registry(store, pause=lambda seconds: None)


def a_registry(store: SimulatedStore, logs: int = 3) -> hw.Registry:
    registry = opened(store)
    for number in range(logs):
        registry.add_log(f"log-{number}", f"s3://bucket/log-{number}/")
    return registry


def test_a_topic_is_placed_once_and_found_by_everybody() -> None:
    store = SimulatedStore()
    registry = a_registry(store)

    placed = registry.place("orders", "log-1")

    assert placed == "s3://bucket/log-1"
    for other in (registry, opened(store)):
        assert other.find("orders") == placed
        assert other.place("orders") == placed
        assert other.place("orders", "log-1") == placed
    with pytest.raises(TopicExists, match="not moved"):
        opened(store).place("orders", "log-2")


def test_new_topics_go_to_the_log_with_the_fewest() -> None:
    registry = a_registry(SimulatedStore(), logs=2)
    for number in range(4):
        registry.place(f"old-{number}")

    registry.add_log("new", "s3://other/new")
    for number in range(4):
        registry.place(f"new-{number}")

    assert [(each.name, each.topics) for each in registry.logs()] == [("log-0", 3), ("log-1", 3), ("new", 2)]
    assert registry.topics()["old-1"] == "log-1" and len(registry.topics()) == 8


def test_of_two_that_place_a_topic_at_the_same_time_one_wins_and_both_are_told() -> None:
    store = SimulatedStore(7, faults=StoreFaults(lost=0.1, failed=0.1, conflict=0.1))
    first = a_registry(store)

    def place(number: int) -> str:
        return opened(store).place(f"topic-{number % 20}", f"log-{number % 3}")

    def told(number: int) -> str:
        try:
            return place(number)
        except TopicExists as error:
            return f"s3://bucket/{error.facts['log']}"

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(told, range(240)))

    for number, answer in enumerate(answers):
        assert answer == first.find(f"topic-{number % 20}")
    assert sum(each.topics for each in first.logs()) == 20


def test_whoever_is_second_by_a_moment_is_told_where_the_first_has_placed_it() -> None:
    store = SimulatedStore()
    registry = a_registry(store)

    def somebody_is_faster(verb: str, name: str) -> None:
        if (verb, name) == ("put_if_absent", "topics/orders"):
            store.before_call = None
            opened(store).place("orders", "log-2")

    store.before_call = somebody_is_faster
    placed = registry.place("orders")

    assert placed == registry.find("orders") == opened(store).find("orders") == "s3://bucket/log-2"
    assert [each.topics for each in registry.logs()] == [0, 0, 1]


def test_a_place_whose_reply_was_lost_is_the_same_place() -> None:
    store = SimulatedStore()
    registry = a_registry(store)
    for seed in range(30):
        store.faults = StoreFaults.some(0.08)

        placed = registry.place(f"topic-{seed}")

        store.faults = None
        assert opened(store).find(f"topic-{seed}") == placed


def test_a_store_that_never_answers_is_unavailable_and_nothing_is_guessed() -> None:
    store = SimulatedStore()
    registry = a_registry(store)
    store.faults = StoreFaults(failed=1.0)

    with pytest.raises(Unavailable, match="ask the registry again"):
        registry.place("orders", "log-0")
    with pytest.raises(Unavailable):
        registry.logs()

    store.faults = None
    with pytest.raises(UnknownTopic, match="place it first"):
        registry.find("orders")


def test_a_log_keeps_its_url() -> None:
    store = SimulatedStore()
    registry = a_registry(store)

    registry.add_log("log-0", "s3://bucket/log-0")
    with pytest.raises(Conflict, match="somewhere else"):
        registry.add_log("log-0", "s3://bucket/elsewhere")

    assert opened(store).logs()[0].url == "s3://bucket/log-0"
    assert registry.url == store.url


@pytest.mark.parametrize(
    ("name", "url"), [("", "s3://b/x"), (".hidden", "s3://b/x"), ("a/b", "s3://b/x"), ("log", "data/relative")]
)
def test_what_cannot_be_a_log_is_refused(name: str, url: str) -> None:
    registry = opened(SimulatedStore())

    with pytest.raises(InvalidRequest):
        registry.add_log(name, url)

    assert registry.logs() == []


def test_a_topic_without_a_log_to_live_in_is_refused() -> None:
    registry = opened(SimulatedStore())

    with pytest.raises(InvalidRequest, match="knows no log yet"):
        registry.place("orders")
    with pytest.raises(InvalidRequest, match="knows no log 'nowhere'"):
        registry.place("orders", "nowhere")
    with pytest.raises(UnknownTopic):
        registry.find("orders")
    with pytest.raises(InvalidRequest, match="topic's name"):
        registry.place("no/topic")


def test_what_others_wrote_is_not_believed() -> None:
    store = SimulatedStore()
    store.put("topics/torn", b"{")
    store.put("topics/later", json.dumps({"format": 2, "log": "x"}).encode())

    with pytest.raises(CorruptData, match="topics/torn"):
        opened(store).find("torn")
    with pytest.raises(UnknownFormat, match="format=2"):
        opened(store).find("later")


def test_a_thousand_topics_are_a_thousand_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIST_NAMES", 7)
    store = SimulatedStore()
    registry = a_registry(store, logs=4)

    for number in range(60):
        registry.place(f"topic-{number}")

    written = [name for verb, name in store.calls if verb == "put_if_absent"]
    assert len(set(written)) == len(written) == 4 + 2 * 60
    assert [each.topics for each in registry.logs()] == [15] * 4
    assert len(registry.topics()) == 60


def test_a_crash_between_place_and_count_is_mended_by_placing_again() -> None:
    store = SimulatedStore()
    registry = a_registry(store)
    registry.place("orders", "log-2")
    store.delete("placed/log-2/orders")

    assert opened(store).place("orders") == "s3://bucket/log-2"

    assert opened(store).topics() == {"orders": "log-2"}


def test_a_registry_on_a_disk_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="object store"):
        hw.Registry(str(tmp_path))


def test_a_cut_over_several_logs_is_one_cut_for_each(tmp_path: Path) -> None:
    registry = opened(SimulatedStore())
    for name in ("one", "two"):
        registry.add_log(name, str(tmp_path / name))
    for topic, log in (("orders", "one"), ("items", "one"), ("clicks", "two")):
        registry.place(topic, log)
        with registry.open(topic) as log_of_it:
            log_of_it.topic(topic, schema={"x": int}).append([{"x": 1}, {"x": 2}])

    cuts = registry.cut(["orders", "clicks", "items"])

    assert {name: len(cut.topics) for name, cut in cuts.items()} == {"one": 2, "two": 1}
    assert cuts["one"].log_id != cuts["two"].log_id
    with registry.open("clicks") as log_of_it:
        log_of_it["clicks"].append({"x": 3})
        assert log_of_it["clicks"].scan(as_of=str(cuts["two"])).count() == 2
