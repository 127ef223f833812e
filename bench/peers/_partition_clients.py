"""The clients that write to and read from topics of many partitions, each in a process of its own.

    python -m bench.peers._partition_clients ROLE ADDRESS TOPIC COUNT      prints one JSON object: what it measured

Rows have 1 KB and a key, which no other row has; each client sends a row where its key's hash says, as it does by
default, so that rows are spread evenly over partitions that neither program names.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

import pyarrow as pa

import headwater as hw
from bench._serve_clients import BATCH_ROWS, CLIENT_S_MAX, CONSUMER, IDLE_S_MAX, PRODUCER, SCHEMA, Measured, payloads

CONSUME_S_MAX = 20.0
"""A round of reading ends after this long, whatever has come: what is measured is a rate."""


def ours_produce(address: str, topic: str, count: int) -> Measured:
    """Record batches of 1,000 rows, as many under way as the client lets be."""
    values = pa.array(payloads())
    made = [
        pa.RecordBatch.from_arrays([pa.array(range(at, at + BATCH_ROWS), pa.int64()), values], schema=SCHEMA)
        for at in range(0, count, BATCH_ROWS)
    ]
    with hw.connect(address) as log:
        target = log.topic(topic)
        target.append(made[0].slice(0, 1))
        begun = time.perf_counter()
        futures = [target.append_future(batch) for batch in made]
        rows = sum(each.result().rows for each in futures)
        return {"rows": rows, "rows_per_s": rows / (time.perf_counter() - begun)}


def ours_consume(address: str, topic: str, count: int) -> Measured:
    """A new group's only member, from the first row on."""
    with hw.connect(address) as log, log.consumer(topic, group=f"bench-{os.getpid()}") as member:

        def some() -> int:
            polled = member.poll(timeout_s=IDLE_S_MAX)
            assert polled is not None, f"nothing came for {IDLE_S_MAX} s"
            return int(polled.batch.num_rows)

        return _consumed(count, some)


def kafka_produce(address: str, topic: str, count: int) -> Measured:
    """`produce()` for each message with its key, and `flush()`."""
    from confluent_kafka import Producer

    made = payloads()
    producer = Producer({**PRODUCER, "bootstrap.servers": address})
    producer.produce(topic, made[0], key=b"first")
    producer.flush()
    begun = time.perf_counter()
    for number in range(count):
        producer.produce(topic, made[number % BATCH_ROWS], key=number.to_bytes(8, "big"))
    left = producer.flush(CLIENT_S_MAX)
    assert left == 0, f"{left} messages were not acknowledged"
    return {"rows": count, "rows_per_s": count / (time.perf_counter() - begun)}


def kafka_consume(address: str, topic: str, count: int) -> Measured:
    """A new group's only member, `consume(1000)` at a time."""
    from confluent_kafka import Consumer

    consumer = Consumer({**CONSUMER, "bootstrap.servers": address, "group.id": f"bench-{os.getpid()}"})
    consumer.subscribe([topic])

    def some() -> int:
        rows = 0
        for message in consumer.consume(1_000, 1.0):
            error = message.error()
            # Its client tells of a broker that was slow to answer, and goes on by itself.
            assert error is None or not error.fatal(), error
            rows += error is None
        return rows

    try:
        return _consumed(count, some)
    finally:
        consumer.close()


def _consumed(count: int, some: Callable[[], int]) -> Measured:
    """The rate after the first rows have come, over all rows or over the longest time that a round may take."""
    waiting_s = time.perf_counter() + CLIENT_S_MAX / 4
    first = 0
    while first == 0:
        assert time.perf_counter() < waiting_s, "not one row came"
        first = some()
    rows = 0
    begun = time.perf_counter()
    while first + rows < count and time.perf_counter() - begun < CONSUME_S_MAX:
        rows += some()
    assert rows > 0, f"all {first} rows came at once: too few to measure a rate"
    return {"rows": rows, "rows_per_s": rows / (time.perf_counter() - begun)}


ROLES: dict[str, Callable[[str, str, int], Measured]] = {
    role.__name__: role for role in (ours_produce, ours_consume, kafka_produce, kafka_consume)
}

if __name__ == "__main__":
    print(json.dumps(ROLES[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4]))))
