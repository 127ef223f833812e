"""The clients that `python -m bench serve` and `peers` measure, each in a process of its own.

    python -m bench._serve_clients ROLE ADDRESS TOPIC COUNT      prints one JSON object: what it measured

Roles are the functions of ROLES.  An address of ours is a server's (hw://...), or a directory, which the process opens:
the log is embedded then.  A process connects and warms up, and then measures; what it makes rows of is made before.
Rows are 1 KB of random bytes: a message's value in Kafka, a number and a binary column in Headwater.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pyarrow as pa

import headwater as hw
from bench._kilobyte_rows import SCHEMA as TYPED_SCHEMA
from bench._kilobyte_rows import thousand_rows as typed_batch

ROW_BYTES = 1_024
BATCH_ROWS = 1_000
LARGE_ROWS = 10_000
SCHEMA = pa.schema([pa.field("number", pa.int64(), nullable=False), pa.field("payload", pa.binary(), nullable=False)])
PAYLOAD_BYTES = ROW_BYTES - 8
"""With its number a row has as many bytes as a message of Kafka's."""
PRODUCER: dict[str, Any] = {
    "acks": "all",
    "linger.ms": 50,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 2_097_151,
    "delivery.report.only.error": True,
}
"""Of confluent-kafka, as it was fastest here: batches of 1 MB as ours are, and a queue that never makes it wait."""
CONSUMER: dict[str, Any] = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
"""Its defaults, as ours are; nothing is committed on either side."""
LARGE_FETCHES: dict[str, Any] = {
    "fetch.message.max.bytes": 8 << 20,
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 1 << 20,
}
"""What makes it faster in most rounds here."""
IDLE_S_MAX = 30.0
CLIENT_S_MAX = 600.0
WARM_UP_ROWS = 50

Measured = dict[str, Any]


def measure(role: str, address: str, topic: str, count: int, module: str = "bench._serve_clients") -> Measured:
    """What a client of this role says, run as a process of its own."""
    command = [sys.executable, "-m", module, role, address, topic, str(count)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=CLIENT_S_MAX)
    assert done.returncode == 0, f"{role}: {done.stderr[-4000:]}"
    found: Measured = json.loads(done.stdout)
    return found


def opened(address: str) -> hw.Log:
    """A log at a server, or the one that lies in a directory."""
    return hw.connect(address) if address.startswith("hw://") else hw.open(address)


def payloads() -> list[bytes]:
    return [os.urandom(PAYLOAD_BYTES) for _ in range(BATCH_ROWS)]


def batches() -> list[pa.RecordBatch]:
    return [
        pa.RecordBatch.from_arrays([pa.array(range(BATCH_ROWS), pa.int64()), pa.array(payloads())], schema=SCHEMA)
        for _ in range(4)
    ]


# Headwater --------------------------------------------------------------------------------------------------------


def ours_produce(address: str, topic: str, count: int) -> Measured:
    """Record batches of 1,000 rows, as many under way as the client lets be; over when all are acknowledged."""
    return _append_batches(address, topic, count, SCHEMA, batches())


def ours_produce_large(address: str, topic: str, count: int) -> Measured:
    """The same with batches of 10,000 rows, for whoever reads them."""
    large = [pa.concat_batches(batches() * 3).slice(0, LARGE_ROWS)]
    return _append_batches(address, topic, count, SCHEMA, large)


def ours_produce_typed(address: str, topic: str, count: int) -> Measured:
    """The same with rows of ten columns, six of them text, which the server reads to see that it is UTF-8."""
    return _append_batches(address, topic, count, TYPED_SCHEMA, [typed_batch(seed) for seed in range(4)])


def _append_batches(address: str, topic: str, count: int, schema: pa.Schema, made: list[pa.RecordBatch]) -> Measured:
    with opened(address) as log:
        target = log.topic(topic, schema=schema)
        target.append(made[0].slice(0, 1))
        begun = time.perf_counter()
        futures = [target.append_future(made[at % len(made)]) for at in range(count // made[0].num_rows)]
        rows = sum(each.result().rows for each in futures)
        return _rate(rows, begun)


def ours_produce_dicts(address: str, topic: str, count: int) -> Measured:
    """Dicts of 1 KB, one at a time; the client sends those that wait together."""
    made = [{"number": number, "payload": payload} for number, payload in enumerate(payloads())]
    with opened(address) as log:
        target = log.topic(topic, schema=SCHEMA)
        target.append(made[0])
        begun = time.perf_counter()
        futures: list[Future[hw.Appended]] = [target.append_future(made[at % BATCH_ROWS]) for at in range(count)]
        rows = sum(each.result().rows for each in futures)
        return _rate(rows, begun)


def ours_consume(address: str, topic: str, count: int) -> Measured:
    """A new group's only member, from the first row on; every column of every batch is there as Arrow."""
    return _consume(address, topic, count, lambda batch: int(batch.nbytes))


def ours_consume_dicts(address: str, topic: str, count: int) -> Measured:
    """The same, and each row made a dict of Python's, whose payload is looked at."""
    return _consume(address, topic, count, lambda batch: sum(len(row["payload"]) for row in batch.to_pylist()))


def _consume(address: str, topic: str, count: int, size_of: Callable[[pa.RecordBatch], int]) -> Measured:
    with opened(address) as log, log.consumer(topic, group=f"bench-{os.getpid()}") as member:
        warm_up = member.poll(timeout_s=IDLE_S_MAX)
        assert warm_up is not None
        rows = size = 0
        begun = time.perf_counter()
        while rows < count - warm_up.batch.num_rows:
            polled = member.poll(timeout_s=IDLE_S_MAX)
            assert polled is not None, f"nothing came for {IDLE_S_MAX} s after {rows} rows"
            size += size_of(polled.batch)
            rows += polled.batch.num_rows
        found = _rate(rows, begun)
        assert size >= rows * PAYLOAD_BYTES
        return found


def ours_single(address: str, topic: str, count: int) -> Measured:
    """One row, and its acknowledgement, and then the next."""
    row = {"number": 1, "payload": os.urandom(PAYLOAD_BYTES)}
    with opened(address) as log:
        target = log.topic(topic, schema=SCHEMA)
        return _times(count, lambda: target.append(row))


# Kafka ------------------------------------------------------------------------------------------------------------


def kafka_produce(address: str, topic: str, count: int) -> Measured:
    """`produce()` for each message, and `flush()`: over when all are acknowledged."""
    from confluent_kafka import Producer

    made = [os.urandom(ROW_BYTES) for _ in range(BATCH_ROWS)]
    producer = Producer({**PRODUCER, "bootstrap.servers": address})
    producer.produce(topic, made[0])
    producer.flush()
    begun = time.perf_counter()
    for number in range(count):
        producer.produce(topic, made[number % BATCH_ROWS])
    return _flushed(producer, count, begun)


def kafka_produce_batch(address: str, topic: str, count: int) -> Measured:
    """`produce_batch()` with 1,000 messages a call, which confluent-kafka has had since 2.12."""
    from confluent_kafka import Producer

    made = [{"value": os.urandom(ROW_BYTES)} for _ in range(BATCH_ROWS)]
    producer = Producer({**PRODUCER, "bootstrap.servers": address})
    producer.produce(topic, made[0]["value"])
    producer.flush()
    begun = time.perf_counter()
    for _ in range(count // BATCH_ROWS):
        taken = producer.produce_batch(topic, made)
        assert taken == BATCH_ROWS, taken
    return _flushed(producer, count, begun)


def _flushed(producer: Any, count: int, begun: float) -> Measured:
    left = producer.flush(CLIENT_S_MAX)
    found = _rate(count, begun)
    assert left == 0, f"{left} messages were not acknowledged"
    return found


def kafka_consume(address: str, topic: str, count: int) -> Measured:
    """A new group's only member, `consume(1000)` at a time; the value of each message is looked at."""
    return _kafka_consume(address, topic, count, CONSUMER)


def kafka_consume_large(address: str, topic: str, count: int) -> Measured:
    """The same with large fetches."""
    return _kafka_consume(address, topic, count, CONSUMER | LARGE_FETCHES)


def _kafka_consume(address: str, topic: str, count: int, settings: dict[str, Any]) -> Measured:
    from confluent_kafka import Consumer

    consumer = Consumer({**settings, "bootstrap.servers": address, "group.id": f"bench-{os.getpid()}"})
    consumer.subscribe([topic])
    try:
        rows = size = 0
        warm_up = consumer.consume(1_000, IDLE_S_MAX)
        assert warm_up, "nothing came"
        begun = time.perf_counter()
        while rows < count - len(warm_up):
            messages = consumer.consume(1_000, IDLE_S_MAX)
            assert messages, f"nothing came for {IDLE_S_MAX} s after {rows} messages"
            for message in messages:
                size += len(message.value())
            rows += len(messages)
        found = _rate(rows, begun)
        assert size == rows * ROW_BYTES, (size, rows)
        return found
    finally:
        consumer.close()


def kafka_single(address: str, topic: str, count: int) -> Measured:
    """`produce()` and `flush()`, without linger, and then the next."""
    from confluent_kafka import Producer

    value = os.urandom(ROW_BYTES)
    producer = Producer({"bootstrap.servers": address, "acks": "all", "linger.ms": 0})

    def one() -> None:
        producer.produce(topic, value)
        assert producer.flush(IDLE_S_MAX) == 0

    return _times(count, one)


# Both -------------------------------------------------------------------------------------------------------------


def _rate(rows: int, begun: float) -> Measured:
    return {"rows": rows, "rows_per_s": rows / (time.perf_counter() - begun)}


def _times(count: int, act: Callable[[], object]) -> Measured:
    for _ in range(WARM_UP_ROWS):
        act()
    times_ms = []
    for _ in range(count):
        begun = time.perf_counter()
        act()
        times_ms.append((time.perf_counter() - begun) * 1_000)
    return {"rows": count, "times_ms": times_ms}


ROLES: dict[str, Callable[[str, str, int], Measured]] = {
    role.__name__: role
    for role in (
        ours_produce,
        ours_produce_large,
        ours_produce_typed,
        ours_produce_dicts,
        ours_consume,
        ours_consume_dicts,
        ours_single,
        kafka_produce,
        kafka_produce_batch,
        kafka_consume,
        kafka_consume_large,
        kafka_single,
    )
}

if __name__ == "__main__":
    print(json.dumps(ROLES[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4]))))
