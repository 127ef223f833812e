"""From nothing to the first durable row, and what each then holds: memory, disk, and what has to be installed.

Each side starts on an empty directory.  A server counts from the start of its process, with all that has to be done
before (Kafka's storage is formatted), until a client that waits for it has its first row acknowledged.  The embedded
log counts from the start of a new Python, its imports included.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import headwater as hw
from bench._kafka import START_S_MAX, check_installed, kafka, kafka_jars
from bench._place import GIB, place
from bench._serve_clients import PAYLOAD_BYTES, ROW_BYTES, SCHEMA, batches, measure
from bench.peers import _nats
from bench.peers._part import Book, Chart, Compared, Figure, Part, Size, in_turn
from bench.peers._processes import installed_mb, on_disk_mb, resident_mb
from tests.servers.headwater import ServerProcess

REST_S = 2.0
SIDES = {
    "embedded": "Headwater in the program itself",
    "ours": "`headwater serve`",
    "kafka": "Kafka, one broker",
    "nats": "nats-server with JetStream",
}
EMBEDDED = f"""
import sys, time
import headwater as hw
with hw.open(sys.argv[1]) as log:
    topic = log.topic("first", schema={{"number": int, "payload": bytes}})
    topic.append({{"number": 1, "payload": b"x" * {PAYLOAD_BYTES}}})
    print("acknowledged", flush=True)
    sys.stdin.read()
"""


def measure_part(size: Size, book: Book) -> None:
    check_installed()
    _nats.check_installed()
    _nats.program()
    kafka_jars()
    rounds = size.of(1, 2, 5)
    rows = size.of(2_000, 10_000, 100_000)
    book.set(rounds=rounds, rest_s=REST_S, disk_rows=rows, row_bytes=ROW_BYTES, heap="-Xmx1g for Kafka")
    with place(size.of(1, 1, 3) * GIB) as directory:
        turn = iter(range(1_000_000))

        def each(start: Callable[[Path, int, Book], None]) -> Callable[[], None]:
            return lambda: start(directory / str(next(turn)), rows, book)

        sides = {"embedded": _embedded, "ours": _ours, "kafka": _kafka, "nats": _nats_side}
        in_turn({name: each(start) for name, start in sides.items()}, rounds, book)
    book.add("install_ours_mb", installed_mb("headwater"))
    book.add("install_kafka_mb", on_disk_mb(kafka_jars()))
    book.add("install_nats_mb", on_disk_mb(_nats.program()))


def _embedded(directory: Path, rows: int, book: Book) -> None:
    begun = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", EMBEDDED, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout is not None
        said = process.stdout.readline()
        book.add("first_row_embedded_s", time.perf_counter() - begun)
        assert said == b"acknowledged\n", said
        time.sleep(REST_S)
        book.add("resident_embedded_mb", resident_mb(process.pid))
        process.communicate(b"")


def _ours(directory: Path, rows: int, book: Book) -> None:
    begun = time.perf_counter()
    with ServerProcess(directory, ready_s=START_S_MAX) as server:
        with hw.connect(server.address) as log:
            log.topic("first", schema=SCHEMA).append(batches()[0].slice(0, 1))
            book.add("first_row_ours_s", time.perf_counter() - begun)
        time.sleep(REST_S)
        book.add("resident_ours_mb", resident_mb(server.pid))
        measure("ours_produce", server.address, "first", rows)
        book.add("disk_ours_per_row_bytes", on_disk_mb(directory) * 1e6 / rows)


def _kafka(directory: Path, rows: int, book: Book) -> None:
    from confluent_kafka import Producer

    begun = time.perf_counter()
    with kafka(directory) as broker:
        broker.create_topic("first", fsync=True)
        producer = Producer({"bootstrap.servers": broker.address, "acks": "all"})
        producer.produce("first", b"x" * ROW_BYTES)
        assert producer.flush(30) == 0
        book.add("first_row_kafka_s", time.perf_counter() - begun)
        del producer  # or it tells stderr that its broker is gone
        time.sleep(REST_S)
        book.add("resident_kafka_mb", resident_mb(broker.pid))
        measure("kafka_produce", broker.address, "first", rows)
        book.add("disk_kafka_per_row_bytes", on_disk_mb(directory / "data") * 1e6 / rows)


def _nats_side(directory: Path, rows: int, book: Book) -> None:
    from bench.peers._nats_clients import create_stream, publish_one

    begun = time.perf_counter()
    with _nats.nats_server(directory, sync=True) as server:
        asyncio.run(create_stream(server.address, "first"))
        asyncio.run(publish_one(server.address, "first"))
        book.add("first_row_nats_s", time.perf_counter() - begun)
        time.sleep(REST_S)
        book.add("resident_nats_mb", resident_mb(server.pid))
    # Syncing each message by itself would only take long: the bytes are the same.
    apart = directory.with_name(directory.name + "-disk")
    with _nats.nats_server(apart, sync=False) as server:
        asyncio.run(create_stream(server.address, "first"))
        measure("publish", server.address, "first", rows, "bench.peers._nats_clients")
        book.add("disk_nats_per_row_bytes", on_disk_mb(apart / "data") * 1e6 / rows)


PART = Part(
    name="start_up",
    title="Start-up, memory and disk",
    question="How long from nothing to the first durable row, and what does each hold then?",
    method=(
        "Each side starts on an empty directory. A server's time runs from the start of its process, with "
        "what has to be done before (Kafka's storage is formatted), until a client has its first row of 1 KB "
        "acknowledged and synced; the embedded log's runs from the start of a new Python, imports included. "
        f"Memory is the resident set of the server {REST_S:.0f} s later, or of the program that holds the "
        "embedded log, pyarrow included. Disk is what the data directory takes per row of 1 KB of random "
        "bytes, with all that each keeps beside rows. What is installed is Headwater with the packages that "
        "it cannot do without, Kafka's jars without a JVM, and the program of NATS."
    ),
    figures=(
        *(
            Figure(f"first_row_{side}_s", f"From nothing to the first durable row: {says}.")
            for side, says in SIDES.items()
        ),
        *(Figure(f"resident_{side}_mb", f"Resident memory at rest: {says}.") for side, says in SIDES.items()),
        Figure("disk_ours_per_row_bytes", "Disk taken per row of 1 KB: `headwater serve`."),
        Figure("disk_kafka_per_row_bytes", "Disk taken per row of 1 KB: Kafka."),
        Figure("disk_nats_per_row_bytes", "Disk taken per row of 1 KB: JetStream."),
        Figure("install_ours_mb", "Installed: Headwater and the packages that it always needs, most of it pyarrow."),
        Figure("install_kafka_mb", "Installed: the jars of Kafka's broker, without a JVM."),
        Figure("install_nats_mb", "Installed: the program nats-server."),
    ),
    compared=(
        Compared("first durable row, embedded", "first_row_embedded_s", "first_row_kafka_s", "Kafka", "lower"),
        Compared("first durable row, server", "first_row_ours_s", "first_row_kafka_s", "Kafka", "lower"),
        Compared(
            "first durable row, server",
            "first_row_ours_s",
            "first_row_nats_s",
            "nats-server",
            "lower",
            "A Go program of one file starts in milliseconds; ours imports Python's packages first.",
        ),
        Compared("memory at rest, server", "resident_ours_mb", "resident_kafka_mb", "Kafka", "lower"),
        Compared(
            "memory at rest, server",
            "resident_ours_mb",
            "resident_nats_mb",
            "nats-server",
            "lower",
            "Python with pyarrow beside one Go program.",
        ),
        Compared(
            "disk per row",
            "disk_ours_per_row_bytes",
            "disk_kafka_per_row_bytes",
            "Kafka",
            "lower",
            "Ours keeps an index of its frames, and room at the end of its file that was taken beforehand.",
        ),
        Compared(
            "installed",
            "install_ours_mb",
            "install_nats_mb",
            "nats-server",
            "lower",
            "Most of ours is pyarrow.",
        ),
    ),
    charts=(
        Chart(
            "From nothing to the first durable row (shorter is better)",
            "s",
            (
                ("Headwater embedded", "first_row_embedded_s"),
                ("headwater serve", "first_row_ours_s"),
                ("Kafka", "first_row_kafka_s"),
                ("nats-server", "first_row_nats_s"),
            ),
        ),
        Chart(
            "Resident memory at rest (shorter is better)",
            "MB",
            (
                ("Headwater embedded", "resident_embedded_mb"),
                ("headwater serve", "resident_ours_mb"),
                ("Kafka", "resident_kafka_mb"),
                ("nats-server", "resident_nats_mb"),
            ),
        ),
    ),
    measure=measure_part,
    quick_s=120,
    full_s=300,
)
