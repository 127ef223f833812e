"""Kafka from Python, beside a server of ours and beside a log that the program opens itself.

The clients and the broker are those of `bench serve`; what is new here is the embedded log, and that every figure has
its range.  Sides take turns; each client is a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bench._kafka import START_S_MAX, check_installed, kafka
from bench._place import GIB, percentile, place
from bench._serve_clients import BATCH_ROWS, CONSUMER, LARGE_FETCHES, PRODUCER, ROW_BYTES, Measured, measure
from bench.peers._part import Book, Chart, Compared, Figure, Part, Size, in_turn
from tests.servers.headwater import ServerProcess

PRODUCE = {
    "ours_server": "Headwater's server, Arrow batches of 1,000 rows, each synced before it is acknowledged",
    "ours_embedded": "the same batches into a log that the program has opened itself, without a server",
    "kafka_fsync": "Kafka, a `produce()` a message, the broker syncing before it acknowledges (`flush.messages=1`)",
    "kafka_fsync_batches": "the same with `produce_batch()` of 1,000 messages a call",
    "kafka_plain": "Kafka without a sync, which is its default: a power loss takes acknowledged rows from one broker",
    "ours_server_dicts": "Headwater's server, one dict an append, acknowledged together",
    "ours_embedded_dicts": "the same into an embedded log",
}
CONSUME = {
    "ours_server": "Headwater's server, as Arrow batches: every byte is delivered, no Python object is made of a row",
    "ours_embedded": "the same from an embedded log",
    "kafka": "Kafka's `consume(1000)` with the client's default settings: an object a message",
    "kafka_large_fetches": "the same with fetches of 8 MiB and a queue of a million messages",
    "ours_server_dicts": "Headwater's server, each row made a dict, an object a row and one a value",
}
SINGLE = {
    "ours_server": "a row to Headwater's server",
    "ours_embedded": "a row to an embedded log",
    "kafka_fsync": "a message to Kafka, synced",
    "kafka_plain": "a message to Kafka, not synced",
}


def measure_part(size: Size, book: Book) -> None:
    check_installed()
    produced, dicts = size.of(4_000, 50_000, 200_000), size.of(500, 5_000, 40_000)
    consumed, singles = size.of(40_000, 100_000, 500_000), size.of(50, 200, 1_000)
    book.set(
        rounds=size.rounds, row_bytes=ROW_BYTES, batch_rows=BATCH_ROWS, produced_rows=produced, produced_dicts=dicts,
        consumed_rows=consumed, single_rows_a_round=singles,
        producer=_written(PRODUCER), consumer=_written(CONSUMER), large_fetches=_written(LARGE_FETCHES),
    )  # fmt: skip
    with (
        place(size.of(1, 3, 9) * GIB) as directory,
        ServerProcess(directory / "headwater", ready_s=START_S_MAX) as ours,
        kafka(directory / "kafka") as broker,
    ):
        embedded = str(directory / "embedded")

        def rates(figure: str, role: str, address: str, topic: str, count: int) -> Callable[[], None]:
            return lambda: book.add(figure, measure(role, address, topic, count)["rows_per_s"])

        book.say("produce")
        for topic, fsync in (("produce_fsync", True), ("produce_plain", False)):
            broker.create_topic(topic, fsync=fsync)
        sides = {
            "ours_server": ("ours_produce", ours.address, "produce", produced),
            "ours_embedded": ("ours_produce", embedded, "produce", produced),
            "kafka_fsync": ("kafka_produce", broker.address, "produce_fsync", produced),
            "kafka_fsync_batches": ("kafka_produce_batch", broker.address, "produce_fsync", produced),
            "kafka_plain": ("kafka_produce", broker.address, "produce_plain", produced),
            "ours_server_dicts": ("ours_produce_dicts", ours.address, "produce_dicts", dicts),
            "ours_embedded_dicts": ("ours_produce_dicts", embedded, "produce_dicts", dicts),
        }
        in_turn({name: rates(f"produce_{name}_rows_per_s", *side) for name, side in sides.items()}, size.rounds, book)

        book.say("consume")
        broker.create_topic("consume", fsync=False)
        for role, address in (("ours", ours.address), ("ours", embedded), ("kafka", broker.address)):
            measure(f"{role}_produce", address, "consume", consumed)
        sides = {
            "ours_server": ("ours_consume", ours.address, "consume", consumed),
            "ours_embedded": ("ours_consume", embedded, "consume", consumed),
            "kafka": ("kafka_consume", broker.address, "consume", consumed),
            "kafka_large_fetches": ("kafka_consume_large", broker.address, "consume", consumed),
            "ours_server_dicts": ("ours_consume_dicts", ours.address, "consume", consumed),
        }
        in_turn({name: rates(f"consume_{name}_rows_per_s", *side) for name, side in sides.items()}, size.rounds, book)

        book.say("single rows")
        for topic, fsync in (("single_fsync", True), ("single_plain", False)):
            broker.create_topic(topic, fsync=fsync)
        timed: dict[str, Callable[[], Measured]] = {
            "ours_server": partial(measure, "ours_single", ours.address, "single", singles),
            "ours_embedded": partial(measure, "ours_single", embedded, "single", singles),
            "kafka_fsync": partial(measure, "kafka_single", broker.address, "single_fsync", singles),
            "kafka_plain": partial(measure, "kafka_single", broker.address, "single_plain", singles),
        }
        in_turn({name: partial(add_times, book, name, side) for name, side in timed.items()}, size.rounds, book)


def add_times(book: Book, name: str, side: Callable[[], Measured]) -> None:
    """The p50 and the p99 of a round of single rows."""
    times_ms = side()["times_ms"]
    book.add(f"single_{name}_p50_ms", percentile(times_ms, 0.50))
    book.add(f"single_{name}_p99_ms", percentile(times_ms, 0.99))


def _written(settings: dict[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())


PART = Part(
    name="kafka",
    title="Kafka from Python",
    question="How fast are rows of 1 KB made durable, read back, and acknowledged one by one, beside Kafka?",
    method=(
        "Kafka (one broker) and `headwater serve` run on one disk with their defaults, one partition a topic; "
        "the client is confluent-kafka. **This compares batches with messages**: Headwater takes and gives "
        "Arrow batches of 1,000 rows, Kafka's client takes and gives messages, and makes batches of 1 MB of "
        "them by itself. A program that has its rows in Arrow gains what the first lines say. One that has "
        "them one by one reads the lines with dicts. Nothing is committed by either consumer, and both topics "
        "are in the page cache."
    ),
    figures=(
        *(Figure(f"produce_{name}_rows_per_s", f"Rows produced: {says}.") for name, says in PRODUCE.items()),
        *(Figure(f"consume_{name}_rows_per_s", f"Rows consumed: {says}.") for name, says in CONSUME.items()),
        *(
            Figure(f"single_{name}_{share}_ms", f"One row at a time, until it is acknowledged, {share}: {says}.")
            for name, says in SINGLE.items()
            for share in ("p50", "p99")
        ),
    ),
    compared=(
        Compared(
            "durable rows produced, Arrow batches beside messages",
            "produce_ours_server_rows_per_s",
            "produce_kafka_fsync_rows_per_s",
            "Kafka with fsync",
            "higher",
        ),
        Compared(
            "the same, embedded",
            "produce_ours_embedded_rows_per_s",
            "produce_kafka_fsync_rows_per_s",
            "Kafka with fsync",
            "higher",
        ),
        Compared(
            "durable rows produced one by one",
            "produce_ours_server_dicts_rows_per_s",
            "produce_kafka_fsync_rows_per_s",
            "Kafka with fsync",
            "higher",
            "Kafka's client is C, and takes a message in a microsecond; ours makes columns of Python's values.",
        ),
        Compared(
            "rows consumed, Arrow batches beside messages",
            "consume_ours_server_rows_per_s",
            "consume_kafka_rows_per_s",
            "Kafka",
            "higher",
            "Kafka's broker sends the file's pages without touching them; ours reads each frame and checks its sum.",
        ),
        Compared(
            "rows consumed as Python objects",
            "consume_ours_server_dicts_rows_per_s",
            "consume_kafka_large_fetches_rows_per_s",
            "Kafka, large fetches",
            "higher",
            "A dict and its values cost more to make than one object with bytes in it.",
        ),
        Compared(
            "one row until it is durable, p50",
            "single_ours_server_p50_ms",
            "single_kafka_fsync_p50_ms",
            "Kafka with fsync",
            "lower",
            "Both wait for one sync. What is left is Python on both ends of our connection, beside C and the JVM.",
        ),
        Compared(
            "one row until it is durable, p99",
            "single_ours_server_p99_ms",
            "single_kafka_fsync_p99_ms",
            "Kafka with fsync",
            "lower",
            "As for the p50.",
        ),
        Compared(
            "one row until it is durable, p50, embedded",
            "single_ours_embedded_p50_ms",
            "single_kafka_fsync_p50_ms",
            "Kafka with fsync",
            "lower",
            "A sync is most of it on both sides; ours goes through a writer's thread so that others can join it.",
        ),
    ),
    charts=(
        Chart(
            "Durable rows of 1 KB produced",
            "rows/s",
            (
                ("Headwater server, batches", "produce_ours_server_rows_per_s"),
                ("Headwater embedded, batches", "produce_ours_embedded_rows_per_s"),
                ("Headwater server, dicts", "produce_ours_server_dicts_rows_per_s"),
                ("Kafka, fsync, produce()", "produce_kafka_fsync_rows_per_s"),
                ("Kafka, fsync, produce_batch()", "produce_kafka_fsync_batches_rows_per_s"),
                ("Kafka, no fsync", "produce_kafka_plain_rows_per_s"),
            ),
        ),
        Chart(
            "Rows of 1 KB consumed",
            "rows/s",
            (
                ("Headwater server, batches", "consume_ours_server_rows_per_s"),
                ("Headwater embedded, batches", "consume_ours_embedded_rows_per_s"),
                ("Headwater server, dicts", "consume_ours_server_dicts_rows_per_s"),
                ("Kafka, defaults", "consume_kafka_rows_per_s"),
                ("Kafka, large fetches", "consume_kafka_large_fetches_rows_per_s"),
            ),
        ),
        Chart(
            "One row until it is acknowledged, p50 (shorter is better)",
            "ms",
            (
                ("Headwater server", "single_ours_server_p50_ms"),
                ("Headwater embedded", "single_ours_embedded_p50_ms"),
                ("Kafka, fsync", "single_kafka_fsync_p50_ms"),
                ("Kafka, no fsync", "single_kafka_plain_p50_ms"),
            ),
        ),
    ),
    measure=measure_part,
    quick_s=150,
    full_s=600,
)
