"""A registry on a real S3 server: processes that place the same topics at the same time, and the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

import headwater as hw
from tests.servers.versitygw import S3Server, versitygw
from tests.unit.cli.logs import run

TOPICS = 25

PLACER = f"""
import sys
import headwater as hw
registry = hw.Registry(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for number in range({TOPICS}):
    print(number, registry.place(f"topic-{{number}}"))
"""


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with versitygw() as running, running.in_environment():
        yield running


def test_processes_that_place_the_same_topics_at_once_are_told_the_same(server: S3Server) -> None:
    url = server.url("raced")
    registry = hw.Registry(url)
    for number in range(3):
        registry.add_log(f"log-{number}", server.url(f"log-{number}"))
    placers = [
        subprocess.Popen(
            [sys.executable, "-c", PLACER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        for _ in range(2)
    ]
    for placer in placers:
        assert placer.stdout is not None
        assert placer.stdout.readline() == "ready\n"

    for placer in placers:
        assert placer.stdin is not None
        placer.stdin.write("go\n")
        placer.stdin.flush()
    told = [placer.communicate(timeout=60)[0].splitlines() for placer in placers]

    assert told[0] == told[1] == [f"{number} {registry.find(f'topic-{number}')}" for number in range(TOPICS)]
    assert all(placer.returncode == 0 for placer in placers)
    assert sum(log.topics for log in registry.logs()) == TOPICS


def test_a_topic_is_placed_on_the_command_line_and_written_through_the_registry(server: S3Server) -> None:
    where = ["--registry", server.url("by-hand")]

    assert run("registry", "ls", *where).exit_code == 0
    for name in ("one", "two"):
        assert run("registry", "add", name, server.url(name), *where).exit_code == 0
    assert run("registry", "find", "orders", *where).exit_code == 2
    placed = run("registry", "place", "orders", "--log", "two", *where)
    with hw.Registry(where[1]).open("orders") as log:
        log.topic("orders", schema={"x": int}).append({"x": 1})

    assert placed.stdout.strip() == server.url("two")
    assert run("registry", "find", "orders", *where).stdout == placed.stdout
    assert run("registry", "place", "orders", "--log", "one", *where).exit_code == 75
    listed = json.loads(run("registry", "ls", "--json", *where).stdout)
    assert [(log["log"], log["topics"]) for log in listed["logs"]] == [("one", 0), ("two", 1)]
    assert "two       1  s3://" in run("registry", "ls", *where).stdout
    with hw.open(server.url("two")) as log:
        cuts = hw.Registry(where[1]).cut(["orders"])
        assert log["orders"].scan(as_of=cuts["two"]).to_pylist() == [{"x": 1}]


def test_without_a_registry_the_command_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADWATER_REGISTRY", raising=False)

    result = run("registry", "ls", "--json")

    assert result.exit_code == 2
    assert "HEADWATER_REGISTRY" in json.loads(result.stdout)["error"]["message"]
