"""The clients of NATS JetStream that a part measures, each in a process of its own.

    python -m bench.peers._nats_clients ROLE ADDRESS STREAM COUNT      prints one JSON object: what it measured

As `bench._serve_clients`, which measures ours and Kafka's: rows of 1 KB of random bytes, made before they are timed.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import nats
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, StreamConfig

from bench._serve_clients import BATCH_ROWS, CLIENT_S_MAX, IDLE_S_MAX, ROW_BYTES, WARM_UP_ROWS, Measured

FETCH = 1_000
"""Messages that a fetch asks for, as many as a batch of ours has."""


async def publish(stream: JetStreamContext, name: str, count: int) -> Measured:
    """`publish_async()` for each message, 4,000 without an answer at most, which is the client's default."""
    made = [os.urandom(ROW_BYTES) for _ in range(BATCH_ROWS)]
    await stream.publish(name, made[0])
    begun = time.perf_counter()
    futures = [await stream.publish_async(name, made[at % BATCH_ROWS]) for at in range(count)]
    for future in futures:
        await future
    return {"rows": count, "rows_per_s": count / (time.perf_counter() - begun)}


async def consume(stream: JetStreamContext, name: str, count: int) -> Measured:
    """A pull consumer's `fetch(1000)`, from the first message on; nothing is acknowledged, as nothing is of ours."""
    settings = ConsumerConfig(ack_policy=AckPolicy.NONE)
    pulled = await stream.pull_subscribe(name, durable=f"bench-{os.getpid()}", stream=name, config=settings)
    warm_up = await pulled.fetch(FETCH, timeout=IDLE_S_MAX)
    rows = size = 0
    begun = time.perf_counter()
    while rows < count - len(warm_up):
        messages = await pulled.fetch(min(FETCH, count - len(warm_up) - rows), timeout=IDLE_S_MAX)
        for message in messages:
            size += len(message.data)
        rows += len(messages)
    seconds = time.perf_counter() - begun
    assert size == rows * ROW_BYTES, (size, rows)
    return {"rows": rows, "rows_per_s": rows / seconds}


async def consume_pushed(stream: JetStreamContext, name: str, count: int) -> Measured:
    """An ordered consumer's callback, from the first message on: the server pushes, which is faster here."""
    rows = size = 0
    begun = 0.0
    done: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    async def on_message(message: Any) -> None:
        nonlocal rows, size, begun
        if rows == BATCH_ROWS:
            begun = time.perf_counter()
        rows += 1
        size += len(message.data)
        if rows == count:
            done.set_result(time.perf_counter() - begun)

    await stream.subscribe(name, stream=name, ordered_consumer=True, cb=on_message)
    seconds = await asyncio.wait_for(done, CLIENT_S_MAX)
    assert size == rows * ROW_BYTES, (size, rows)
    return {"rows": rows - BATCH_ROWS, "rows_per_s": (rows - BATCH_ROWS) / seconds}


async def single(stream: JetStreamContext, name: str, count: int) -> Measured:
    """`publish()`, which waits for the acknowledgement, and then the next."""
    value = os.urandom(ROW_BYTES)
    times_ms = []
    for number in range(count + WARM_UP_ROWS):
        begun = time.perf_counter()
        await stream.publish(name, value)
        if number >= WARM_UP_ROWS:
            times_ms.append((time.perf_counter() - begun) * 1_000)
    return {"rows": count, "times_ms": times_ms}


ROLES: dict[str, Callable[[JetStreamContext, str, int], Awaitable[Measured]]] = {
    role.__name__: role for role in (publish, consume, consume_pushed, single)
}


async def create_stream(address: str, name: str) -> None:
    """A stream of files with one replica whose only subject has its name."""
    async with await nats.connect(address) as client:
        await client.jetstream().add_stream(StreamConfig(name=name, subjects=[name], num_replicas=1))


async def publish_one(address: str, name: str) -> None:
    """One message, acknowledged."""
    async with await nats.connect(address) as client:
        await client.jetstream().publish(name, b"x" * ROW_BYTES)


async def _run(role: str, address: str, name: str, count: int) -> Any:
    async with await nats.connect(address) as client:
        return await ROLES[role](client.jetstream(timeout=IDLE_S_MAX), name, count)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_run(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))))
