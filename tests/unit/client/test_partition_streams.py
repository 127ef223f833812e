"""A consumer's streams: kept between polls, and begun anew where they have broken or ended."""

from __future__ import annotations

from pathlib import Path

import headwater as hw
from tests.servers.headwater import serving
from tests.servers.tcp_proxy import tcp_proxy


def test_a_consumer_goes_on_after_the_schema_was_changed(tmp_path: Path) -> None:
    with serving(tmp_path) as server, hw.connect(server.address) as log:
        topic = log.topic("rows", schema={"n": int})
        topic.append({"n": 1})
        consumer = log.consumer("rows", group="g")
        first = consumer.poll(timeout_s=5)
        topic.alter(add={"note": "string"})
        topic.append({"n": 2, "note": "new"})

        second = consumer.poll(timeout_s=5)

        assert first is not None and first.batch.to_pylist() == [{"n": 1}]
        assert second is not None and second.batch.to_pylist() == [{"n": 2, "note": "new"}]


def test_a_consumer_goes_on_after_its_connection_broke(tmp_path: Path) -> None:
    with (
        serving(tmp_path) as server,
        tcp_proxy(server.port) as network,
        hw.connect(f"hw://127.0.0.1:{network.port}") as log,
    ):
        topic = log.topic("rows", schema={"n": int})
        consumer = log.consumer("rows", group="g")
        seen: list[int] = []
        for number in range(5):
            topic.append({"n": number})
            network.reset()
            polled = consumer.poll(timeout_s=5)
            assert polled is not None
            seen += polled.batch.column("n").to_pylist()

        assert seen == list(range(5))
