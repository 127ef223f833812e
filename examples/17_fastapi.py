"""FastAPI over a server: each worker connects for itself, and a POST is answered when its row is durable:
headwater serve data & HEADWATER_SERVER=hw://127.0.0.1:7070 uvicorn --app-dir examples --workers 4 17_fastapi:app"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from pydantic import BaseModel

import headwater as hw


class Order(BaseModel):
    order_id: int
    amount: float


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, object]]:
    server = os.environ.get("HEADWATER_SERVER")  # without one, this process is alone and owns the log
    async with await hw.connect_async(server) if server else hw.AsyncLog(hw.open("data")) as log:
        yield {"orders": await log.topic("orders", schema=Order)}


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=201)
async def create(order: Order, request: Request) -> dict[str, int]:
    appended = await request.state.orders.append(order, idempotency_key=request.headers.get("idempotency-key"))
    return {"offset": appended.offsets[0].first, "worker": os.getpid()}


if __name__ == "__main__":
    from fastapi.testclient import TestClient

    with TestClient(app) as client:
        print(client.post("/orders", json={"order_id": 1, "amount": 9.5}, headers={"Idempotency-Key": "one"}).json())
