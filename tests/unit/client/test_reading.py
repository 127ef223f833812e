"""Reads through a network that breaks: every row once, in order, wherever the stream was cut."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

import headwater as hw
from headwater.errors import Closed, InvalidRequest, Unavailable
from tests.servers.headwater import serving
from tests.servers.tcp_proxy import TcpProxy, tcp_proxy

ROWS = 3_000
QUICK = hw.ClientSettings(retry_s=10.0)


@contextmanager
def broken_network(root: Path) -> Iterator[tuple[TcpProxy, hw.Log]]:
    """A log behind a server behind a network, with a topic of three partitions."""
    with (
        serving(root) as server,
        tcp_proxy(server.port) as network,
        hw.connect(f"hw://127.0.0.1:{network.port}", client=QUICK) as log,
    ):
        topic = log.topic("rows", schema={"n": int, "text": str}, partitions=3)
        for first in range(0, ROWS, 300):
            rows = [{"n": number, "text": "x" * 100} for number in range(first, first + 300)]
            topic.append(rows, partition=first // 300 % 3)
        yield network, log


@pytest.mark.parametrize("seed", range(4))
def test_a_read_that_is_cut_goes_on_behind_the_last_row(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    with broken_network(tmp_path) as (network, log):
        rows = log["rows"].read(batch_rows=70)
        seen: list[int] = []

        for batch in rows:
            seen += batch.column("n").to_pylist()
            if draw.random() < 0.2:
                network.break_after(draw.randrange(4_000))

        assert seen == list(range(ROWS)), seed
        network.resume()
        assert [row["n"] for row in rows.to_pylist()] == list(range(ROWS))


def test_a_read_from_offsets_goes_on_in_each_partition_by_itself(tmp_path: Path) -> None:
    with broken_network(tmp_path) as (network, log):
        seen: list[int] = []
        for batch in log["rows"].read(start={0: 450, 2: 0}, batch_rows=50):
            seen += batch.column("n").to_pylist()
            if len(seen) % 500 == 0:
                network.reset()

        of = {partition: [n for n in range(ROWS) if n // 300 % 3 == partition] for partition in range(3)}
        assert sorted(seen) == sorted(of[0][450:] + of[2])
        assert seen == sorted(seen)


def test_a_read_with_a_limit_gives_no_row_more_after_it_was_cut(tmp_path: Path) -> None:
    with broken_network(tmp_path) as (network, log):
        seen: list[int] = []
        for batch in log["rows"].read(limit=700, batch_rows=100, columns=["n"]):
            assert batch.schema.names == ["n"]
            seen += batch.column("n").to_pylist()
            network.reset()

        assert seen == list(range(700))


def test_a_follower_goes_on_after_its_server_was_away(tmp_path: Path) -> None:
    with broken_network(tmp_path) as (network, log):
        topic = log["rows"]
        seen: list[int] = []

        def follow() -> None:
            for batch in topic.read(start="latest", follow=True, limit=40):
                seen.extend(batch.column("n").to_pylist())

        follower = Thread(target=follow)
        rows = topic.read(start="latest", follow=True, limit=40)
        follower.start()
        while not seen:
            topic.append({"n": 0, "text": ""}, partition=0)
        network.cut()
        network.resume()
        for _ in range(40):
            topic.append({"n": 0, "text": ""}, partition=0)
        follower.join(20)

        assert len(seen) == 40 and not follower.is_alive()
        assert rows.to_arrow().num_rows == 40


def test_what_nobody_answers_for_long_is_told_as_unavailable(tmp_path: Path) -> None:
    with (
        serving(tmp_path) as server,
        tcp_proxy(server.port) as network,
        hw.connect(f"hw://127.0.0.1:{network.port}", client=hw.ClientSettings(retry_s=0.5)) as log,
    ):
        topic = log.topic("rows", schema={"n": int})
        topic.append({"n": 1})
        network.cut()

        with pytest.raises(Unavailable, match="does not answer"):
            topic.read()
        network.resume()
        assert topic.read().to_pylist() == [{"n": 1}]


def test_a_log_that_is_closed_ends_the_reads_of_other_threads(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        log = hw.connect(server.address)
        topic = log.topic("rows", schema={"n": int})
        ended: list[type[BaseException]] = []

        def follow() -> None:
            try:
                for _ in topic.read(follow=True):
                    pass
            except Closed as error:
                ended.append(type(error))

        follower = Thread(target=follow)
        follower.start()
        topic.append({"n": 1})
        log.close()
        follower.join(10)

        assert ended == [Closed]


def test_columns_of_the_system_are_given_only_where_they_are_asked_for(tmp_path: Path) -> None:
    with serving(tmp_path) as server, hw.connect(server.address) as log:
        topic = log.topic("rows", schema={"n": int})
        topic.append({"n": 1})

        assert topic.read().to_arrow().column_names == ["n"]
        assert topic.read(columns=["_hw_lsn", "n"], system_columns=True).to_arrow().column_names == ["_hw_lsn", "n"]
        with pytest.raises(InvalidRequest, match="_hw_lsn"):
            topic.read(columns=["_hw_lsn"])
