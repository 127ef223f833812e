"""A FastAPI app whose POST answers when the row is durable: once over Headwater, once over aiokafka.

uvicorn runs it with several workers; each worker's lifespan connects.  The environment says where and to which:
BENCH_SIDE is "headwater" or "kafka", BENCH_ADDRESS and BENCH_TOPIC are the server's and the topic's.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

import headwater as hw

Append = Callable[[dict[str, Any]], Awaitable[int]]
"""Makes a row durable, and says its offset."""
SCHEMA = {"order_id": int, "note": str}


class Order(BaseModel):
    order_id: int
    note: str


@asynccontextmanager
async def _over_headwater(address: str, topic: str) -> AsyncIterator[Append]:
    async with await hw.connect_async(address) as log:
        orders = await log.topic(topic, schema=SCHEMA)

        async def append(row: dict[str, Any]) -> int:
            appended = await orders.append(row)
            return int(appended.lsn)

        yield append


@asynccontextmanager
async def _over_kafka(address: str, topic: str) -> AsyncIterator[Append]:
    from aiokafka import AIOKafkaProducer

    async with AIOKafkaProducer(bootstrap_servers=address, acks="all") as producer:

        async def append(row: dict[str, Any]) -> int:
            stored = await producer.send_and_wait(topic, json.dumps(row).encode())
            return int(stored.offset)

        yield append


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    over = _over_kafka if os.environ["BENCH_SIDE"] == "kafka" else _over_headwater
    async with over(os.environ["BENCH_ADDRESS"], os.environ["BENCH_TOPIC"]) as append:
        app.state.append = append
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders")
async def create(order: Order) -> dict[str, int]:
    return {"at": await app.state.append({"order_id": order.order_id, "note": order.note})}


@app.get("/ready")
async def ready() -> dict[str, int]:
    return {"pid": os.getpid()}
