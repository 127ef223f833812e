"""The asyncio client over real servers: one loop, many rows under way, a server that dies and comes back; and FastAPI
with several workers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from pathlib import Path

import pytest

import headwater as hw
from tests.servers.headwater import ServerProcess, free_ports, serving

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 60.0
SCHEMA = {"number": int}


def test_one_loop_appends_reads_consumes_and_transacts(tmp_path: Path) -> None:
    async def use(address: str) -> None:
        async with asyncio.timeout(WAIT_S), await hw.connect_async(address) as log:
            topic = await log.topic("events", schema=SCHEMA)
            await asyncio.gather(*(topic.append({"number": number}) for number in range(500)))
            assert sorted(row["number"] for row in await topic.read().to_pylist()) == list(range(500))

            async with await log.consumer("events", group="g", timeout_s=0.5) as consumer:
                rows = 0
                async for batch in consumer:
                    rows += batch.num_rows
                    async with log.transaction() as tx:
                        await tx.append("events", {"number": -1})
                        await tx.commit_offsets(consumer)
                    if rows >= 500:
                        break
                assert await consumer.commit() == {}

            with pytest.raises(hw.errors.RowsRefused):
                await topic.append({"number": "one"})
            with pytest.raises(hw.errors.UnknownTopic):
                await log.topic("orders")

    with serving(tmp_path) as server:
        asyncio.run(use(server.address))


def test_a_follower_is_given_a_row_when_it_is_durable_and_ends_when_it_is_left(tmp_path: Path) -> None:
    async def use(address: str) -> None:
        async with asyncio.timeout(WAIT_S), await hw.connect_async(address) as log:
            topic = await log.topic("events", schema=SCHEMA)
            async with aclosing(aiter(topic.read(follow=True))) as batches:
                for number in range(5):
                    _, batch = await asyncio.gather(topic.append({"number": number}), anext(batches))
                    assert batch["number"].to_pylist() == [number]

            async def follow() -> None:
                async for _ in topic.read(follow=True, start="latest"):
                    raise AssertionError("nothing was appended")

            following = asyncio.create_task(follow())
            await asyncio.sleep(0.1)
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            while any(each.name == "headwater-async-read" for each in threading.enumerate()):
                await asyncio.sleep(0.02)

    with serving(tmp_path) as server:
        asyncio.run(use(server.address))


def test_rows_that_are_awaited_while_the_server_dies_and_comes_back_are_there_once(tmp_path: Path) -> None:
    async def use(server: ServerProcess) -> list[int]:
        async with asyncio.timeout(WAIT_S), await hw.connect_async(server.address) as log:
            topic = await log.topic("events", schema=SCHEMA)
            acknowledged: list[int] = []

            async def append(number: int) -> None:
                await asyncio.sleep(number / 1_000)
                await topic.append({"number": number})
                acknowledged.append(number)

            appends = asyncio.gather(*(append(number) for number in range(1_000)))
            while len(acknowledged) < 300:
                await asyncio.sleep(0.005)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            await appends
            assert sorted(acknowledged) == list(range(1_000))
            return [row["number"] for row in await topic.read().to_pylist()]

    with ServerProcess(tmp_path / "data") as server:
        there = asyncio.run(use(server))

    assert sorted(there) == list(range(1_000))


# FastAPI ----------------------------------------------------------------------------------------------------------


def test_fastapi_with_several_workers_appends_each_order_once(tmp_path: Path) -> None:
    pytest.importorskip("fastapi", reason="the example needs fastapi: pip install fastapi httpx")
    with ServerProcess(tmp_path / "data") as server, workers(server.address, tmp_path / "uvicorn.log") as url:
        with ThreadPoolExecutor(8) as posting:
            # Each order is posted twice, as after an answer that was lost, and is appended once.
            answers = list(posting.map(lambda number: post(url, number // 2), range(400)))
        with hw.connect(server.address) as log:
            there = [row["order_id"] for row in log["orders"].read().to_pylist()]

    assert sorted(there) == list(range(200))
    assert len({answer["worker"] for answer in answers}) == 2
    assert [answer["offset"] for answer in answers[::2]] == [answer["offset"] for answer in answers[1::2]]


def post(url: str, order_id: int) -> dict[str, int]:
    body = json.dumps({"order_id": order_id, "amount": 1.5}).encode()
    headers = {"Content-Type": "application/json", "Idempotency-Key": f"order-{order_id}"}
    with urllib.request.urlopen(urllib.request.Request(f"{url}/orders", body, headers), timeout=WAIT_S) as answer:
        found: dict[str, int] = json.load(answer)
        return found


@contextmanager
def workers(address: str, told: Path) -> Iterator[str]:
    """The example, run by uvicorn with two workers; where it listens."""
    (port,) = free_ports(1)
    command = [
        *(sys.executable, "-m", "uvicorn", "--app-dir", str(ROOT / "examples"), "17_fastapi:app"),
        *("--workers", "2", "--port", str(port), "--no-access-log"),
    ]
    environment = {**os.environ, "HEADWATER_SERVER": address}
    with told.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        # A worker listens when its lifespan has begun: until both have, one of them would take everything.
        deadline = time.monotonic() + WAIT_S
        while told.read_text().count("Application startup complete") < 2:
            assert process.poll() is None and time.monotonic() < deadline, told.read_text()
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) in (0, -signal.SIGTERM), told.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(WAIT_S)
