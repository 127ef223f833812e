"""One, a hundred and very many partitions, each row synced before it is acknowledged: Kafka beside a server of ours.

Kafka has a file a partition and syncs each by itself; ours has one log for all.  How many "many" are is a setting:
1,000 in a quick run, 10,000 in a full one.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import headwater as hw
from bench._kafka import START_S_MAX, Kafka, check_installed, kafka
from bench._place import GIB, place
from bench._serve_clients import PRODUCER, ROW_BYTES, SCHEMA, measure
from bench.peers._part import Book, Chart, Compared, Figure, Part, Size, in_turn
from bench.peers._partition_clients import CONSUME_S_MAX
from bench.peers._processes import resident_mb
from tests.servers.headwater import ServerProcess

CLIENTS = "bench.peers._partition_clients"
SIDES = {"ours": "Headwater's server", "kafka": "Kafka with `flush.messages=1`"}
COUNTS = {"one": "one partition", "hundred": "100 partitions", "many": "many partitions"}


def measure_part(size: Size, book: Book) -> None:
    check_installed()
    rounds = size.of(1, 2, 3)
    partitions = {"one": 1, "hundred": size.of(5, 100, 100), "many": size.partitions}
    rows = {
        "one": size.of(20_000, 50_000, 200_000),
        "hundred": size.of(4_000, 10_000, 40_000),
        "many": size.of(4_000, 10_000, 40_000),
    }
    book.set(
        rounds=rounds, row_bytes=ROW_BYTES, many_partitions=size.partitions, consume_s_max=CONSUME_S_MAX,
        kafka_producer=", ".join(f"{name}={value}" for name, value in PRODUCER.items()),
        **{f"rows_{name}": count for name, count in rows.items()},
    )  # fmt: skip
    with (
        place(size.of(1, 2, 6) * GIB) as directory,
        ServerProcess(directory / "headwater", ready_s=START_S_MAX) as ours,
        kafka(directory / "kafka") as broker,
    ):
        for name, count in partitions.items():
            _create(ours, broker, name, count, book)
        addresses = {"ours": ours.address, "kafka": broker.address}

        for what in ("produce", "consume"):
            for name, count in rows.items():
                book.say(f"{what}, {partitions[name]:,} partitions")

                # What is produced is kept: a consumer reads as many rows of it as one round wrote.
                in_turn(
                    {side: partial(_one, book, what, side, addresses[side], name, count) for side in SIDES},
                    rounds,
                    book,
                )
            for side in SIDES:
                _ratio(book, what, side)
        book.add("ours_many_resident_mb", resident_mb(ours.pid))
        book.add("kafka_many_resident_mb", resident_mb(broker.pid))
        book.add("ours_many_files", _files(directory / "headwater"))
        book.add("kafka_many_files", _files(directory / "kafka"))


def _one(book: Book, what: str, side: str, address: str, name: str, count: int) -> None:
    found = measure(f"{side}_{what}", address, name, count, CLIENTS)
    book.add(f"{what}_{side}_{name}_rows_per_s", found["rows_per_s"])


def _create(ours: ServerProcess, broker: Kafka, name: str, count: int, book: Book) -> None:
    with hw.connect(ours.address) as log:
        begun = time.perf_counter()
        log.topic(name, schema=SCHEMA, key="number", partitions=count)
        ours_s = time.perf_counter() - begun
    begun = time.perf_counter()
    broker.create_topic(name, fsync=True, partitions=count)
    kafka_s = time.perf_counter() - begun
    if name == "many":
        book.add("create_ours_many_s", ours_s)
        book.add("create_kafka_many_s", kafka_s)


def _ratio(book: Book, what: str, side: str) -> None:
    """Of each round, its rate over many partitions in times of that over one."""
    one, many = (book.values[f"{what}_{side}_{name}_rows_per_s"] for name in ("one", "many"))
    book.add(f"{what}_{side}_many_to_one_ratio", *(m / o for o, m in zip(one, many, strict=True)))


def _files(directory: Path) -> int:
    return sum(1 for path in directory.rglob("*") if path.is_file())


PART = Part(
    name="partitions",
    title="Many partitions, with fsync",
    question="What is left of the rate when rows are spread over thousands of partitions?",
    method=(
        "Rows of 1 KB, each with a key of its own, over 1, 100 and many partitions of one topic, where the "
        "client's own hash sends them; every row is synced before it is acknowledged. Kafka has a log for "
        "each partition and syncs each by itself, so rows that are spread share no sync. Headwater has one "
        "log: whatever comes together is one write and one sync, however many partitions it is of. Reading is "
        f"a group's only member, at most {CONSUME_S_MAX:.0f} s a round. Headwater's rows come as batches of "
        "1,000, Kafka's as messages."
    ),
    figures=(
        *(
            Figure(f"{what}_{side}_{name}_rows_per_s", f"Rows {done} a second, {of}: {says}.")
            for what, done in (("produce", "produced and durable"), ("consume", "consumed"))
            for name, of in COUNTS.items()
            for side, says in SIDES.items()
        ),
        *(
            Figure(f"{what}_{side}_many_to_one_ratio", f"Rate over many partitions in times of one, {what}: {says}.")
            for what in ("produce", "consume")
            for side, says in SIDES.items()
        ),
        *(
            Figure(f"create_{side}_many_s", f"Creating the topic of many partitions, until it takes rows: {says}.")
            for side, says in SIDES.items()
        ),
        *(
            Figure(f"{side}_many_resident_mb", f"Memory of the server with all topics, after the rounds: {says}.")
            for side, says in SIDES.items()
        ),
        *(Figure(f"{side}_many_files", f"Files in the data directory then: {says}.") for side, says in SIDES.items()),
    ),
    compared=(
        Compared(
            "durable rows produced over many partitions",
            "produce_ours_many_rows_per_s",
            "produce_kafka_many_rows_per_s",
            "Kafka with fsync",
            "higher",
        ),
        Compared(
            "durable rows produced over one partition",
            "produce_ours_one_rows_per_s",
            "produce_kafka_one_rows_per_s",
            "Kafka with fsync",
            "higher",
        ),
        Compared(
            "rows consumed from many partitions",
            "consume_ours_many_rows_per_s",
            "consume_kafka_many_rows_per_s",
            "Kafka with fsync",
            "higher",
            "Each frame of ours is read and checked by Python, and rows that are spread are a frame each; a poll gives "
            "those of one partition.",
        ),
        Compared(
            "rows consumed from 100 partitions",
            "consume_ours_hundred_rows_per_s",
            "consume_kafka_hundred_rows_per_s",
            "Kafka with fsync",
            "higher",
            "Each frame of ours is read and checked by Python, and rows that are spread are a frame each; a poll gives "
            "those of one partition.",
        ),
        Compared(
            "consuming: rate over many partitions in times of one",
            "consume_ours_many_to_one_ratio",
            "consume_kafka_many_to_one_ratio",
            "Kafka with fsync",
            "higher",
            "As above.",
        ),
        Compared(
            "producing: rate over many partitions in times of one",
            "produce_ours_many_to_one_ratio",
            "produce_kafka_many_to_one_ratio",
            "Kafka with fsync",
            "higher",
            "A batch of ours that is spread becomes a frame for each partition that it has rows of.",
        ),
        Compared(
            "creating the topic",
            "create_ours_many_s",
            "create_kafka_many_s",
            "Kafka",
            "lower",
        ),
        Compared("memory of the server", "ours_many_resident_mb", "kafka_many_resident_mb", "Kafka", "lower"),
    ),
    charts=(
        Chart(
            "Durable rows produced, many partitions",
            "rows/s",
            (
                ("Headwater, 1", "produce_ours_one_rows_per_s"),
                ("Headwater, 100", "produce_ours_hundred_rows_per_s"),
                ("Headwater, many", "produce_ours_many_rows_per_s"),
                ("Kafka, 1", "produce_kafka_one_rows_per_s"),
                ("Kafka, 100", "produce_kafka_hundred_rows_per_s"),
                ("Kafka, many", "produce_kafka_many_rows_per_s"),
            ),
        ),
        Chart(
            "Rows consumed, many partitions",
            "rows/s",
            (
                ("Headwater, 1", "consume_ours_one_rows_per_s"),
                ("Headwater, 100", "consume_ours_hundred_rows_per_s"),
                ("Headwater, many", "consume_ours_many_rows_per_s"),
                ("Kafka, 1", "consume_kafka_one_rows_per_s"),
                ("Kafka, 100", "consume_kafka_hundred_rows_per_s"),
                ("Kafka, many", "consume_kafka_many_rows_per_s"),
            ),
        ),
    ),
    measure=measure_part,
    quick_s=270,
    full_s=900,
)
