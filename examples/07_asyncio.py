"""Many small appends from one asyncio loop: they share frames and syncs, and each has its own answer."""

import asyncio

import headwater as hw


async def handle(topic: hw.Topic, number: int) -> int:
    appended = await asyncio.wrap_future(topic.append_future({"request": number}))
    return appended.lsn


async def main(log: hw.Log) -> None:
    requests = log.topic("requests", schema={"request": int})
    lsns = await asyncio.gather(*(handle(requests, number) for number in range(200)))
    counters = log.status().counters
    print(f"{len(lsns)} appends, each durable, with {counters['syncs']:.0f} syncs")


with hw.open("data") as log:
    asyncio.run(main(log))
