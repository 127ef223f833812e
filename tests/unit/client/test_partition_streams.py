"""A consumer's streams: kept between polls, and begun anew where they have broken or ended."""

from __future__ import annotations

from pathlib import Path

import headwater as hw
from headwater.client.engine import ClientEngine
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


def test_streams_that_a_gathering_overtook_are_ended(tmp_path: Path) -> None:
    with serving(tmp_path) as server, hw.connect(server.address) as log:
        topic = log.topic("rows", schema={"n": int}, partitions=12)
        consumer = log.consumer("rows", group="g")
        for partition in range(3):
            topic.append({"n": partition}, partition=partition)
        alone = [consumer.poll(timeout_s=5) for _ in range(3)]
        engine = log._engine
        assert isinstance(engine, ClientEngine)
        standing = engine._streams.standing(engine.id_of(consumer.topic_number))
        assert sorted(standing) == [(0, 1), (1, 1), (2, 1)]

        with log.transaction() as tx:
            for partition in range(2, 12):
                tx.append("rows", {"n": 10 + partition}, partition=partition)
        consumer.commit()
        consumer._alone = 0
        found = [consumer.poll(timeout_s=5) for _ in range(10)]

        assert sorted(engine._streams.standing(engine.id_of(consumer.topic_number))) == [(0, 1), (1, 1)]
        rows = [row["n"] for polled in [*alone, *found] if polled for row in polled.batch.to_pylist()]
        assert sorted(rows) == [0, 1, 2, *range(12, 22)]


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
