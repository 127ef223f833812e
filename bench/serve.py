"""What does a server of ours do beside Kafka, on the same disk, from one Python process?

Both sides run on loopback with their defaults, one partition a topic, rows of 1 KB of random bytes; a round has each
side once, each goes first by turns, and each in a client process of its own.  Ratios are within a round.

PRODUCE  Durable rows a second.  Ours are record batches of 1,000 rows, each a write that is synced before it is
         acknowledged; Kafka's are messages, one `produce()` each, which its client makes batches of 1 MB of, and which
         the broker syncs before it acknowledges (`flush.messages=1`).  So this compares batches of columns with single
         messages: it is what a Python program that has its rows in Arrow gains.  Beside it, without bars: Kafka's
         `produce_batch()` of 1,000 messages a call; Kafka without fsync, which a power loss takes rows from; ours with
         ten typed columns; and ours as dicts appended one at a time, which is what `produce()` is.
CONSUME  Rows a second of a group's only member, from a topic that is in the page cache.  Ours come as record batches:
         every byte is delivered, and no Python object is made of a row.  Kafka's are `consume(1000)`, an object a
         message, with the client's default settings, as ours are.  Beside it, without bars: Kafka's with large fetches;
         ours from a topic whose batches have 10,000 rows (a poll gives a batch as it was appended, and costs one
         message to the server); and ours made dicts of, an object a row and one a value.
SINGLE   One row, its acknowledgement, the next: p50 and p99, beside Kafka with and without fsync.
WEB      A FastAPI app with 4 workers whose POST answers when the row is durable, 64 requests under way from one
         process; the same app over aiokafka, with fsync and without.  All of it shares this machine's cores, the
         process that sends included: it compares services, and says little of servers.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from bench import _kafka
from bench._kafka import Kafka, check_installed, kafka
from bench._place import GIB, machine, median, percentile, place
from bench._serve_clients import BATCH_ROWS, CONSUMER, LARGE_FETCHES, PRODUCER, ROW_BYTES, Measured, measure
from bench._serve_load import load, web_service
from bench.report import Report, Setting, at_least
from tests.servers.headwater import ServerProcess

WORKERS = 4
IN_FLIGHT = 64
Side = Callable[[], Measured]
Rounds = list[dict[str, Measured]]


def run(quick: bool) -> Report:
    check_installed()
    rounds = 2 if quick else 7
    produced = 40_000 if quick else 400_000
    dicts = 10_000 if quick else 60_000
    consumed = 100_000 if quick else 1_000_000
    singles = 200 if quick else 1_000
    requests = 1_000 if quick else 6_000
    figures: dict[str, float] = {}
    with (
        place((4 if quick else 24) * GIB) as directory,
        ServerProcess(directory / "headwater") as ours,
        kafka(directory / "kafka") as broker,
    ):
        produce = _produce(ours, broker, rounds, produced, dicts, figures)
        consume = _consume(ours, broker, rounds, consumed, figures)
        _single(ours, broker, rounds, singles, figures)
        _web(ours, broker, max(rounds // 2, 1), requests, directory, figures)
    return Report(
        bench="serve",
        settings={
            "rounds": rounds,
            "row_bytes": ROW_BYTES,
            "batch_rows": BATCH_ROWS,
            "produced_rows": produced,
            "produced_dicts": dicts,
            "consumed_rows": consumed,
            "single_rows_a_round": singles,
            "web_workers": WORKERS,
            "web_in_flight": IN_FLIGHT,
            "web_requests_a_round": requests,
            **_versions(),
            **{f"kafka {name}": value for name, value in (PRODUCER | CONSUMER).items()},
            **{f"kafka large fetches, {name}": value for name, value in LARGE_FETCHES.items()},
            "kafka fsync": "flush.messages=1 of the topic",
            **machine(),
        },
        figures=figures,
        bars=(
            at_least(
                "durable rows produced: Arrow batches of 1,000 beside produce() with flush.messages=1 (median)",
                produce,
                1.5,
            ),
            at_least("rows consumed: Arrow batches beside consume(1000) (median)", consume, 2.5),
        ),
    )


def _versions() -> dict[str, Setting]:
    return {
        "kafka": f"{_kafka.VERSION}, KRaft, one broker, heap {_kafka.HEAP}",
        **{name: version(name) for name in ("confluent-kafka", "aiokafka", "pyarrow", "fastapi", "uvicorn")},
    }


def _in_turn(sides: dict[str, Side], rounds: int) -> Rounds:
    """What each side measured in each round; each goes first by turns."""
    names = list(sides)
    found: Rounds = []
    for number in range(rounds):
        first = number % len(names)
        found.append({name: sides[name]() for name in names[first:] + names[:first]})
    return found


def _tell_rates(what: str, found: Rounds, beside: str, figures: dict[str, float]) -> float:
    """The median rates of the sides; the median of the rounds' ratios of ours to the side that the bar names."""
    for name in found[0]:
        figures[f"{what}_{name}_rows_per_s"] = median([each[name]["rows_per_s"] for each in found])
    for name in found[0]:
        if name.startswith("kafka"):
            ratios = [each["ours"]["rows_per_s"] / each[name]["rows_per_s"] for each in found]
            figures[f"{what}_ours_to_{name}_ratio"] = median(ratios)
            if name == beside:
                figures[f"{what}_ours_to_{name}_ratio_lowest"] = min(ratios)
                figures[f"{what}_ours_to_{name}_ratio_highest"] = max(ratios)
    return figures[f"{what}_ours_to_{beside}_ratio"]


# The four questions -----------------------------------------------------------------------------------------------


def _produce(
    ours: ServerProcess, broker: Kafka, rounds: int, count: int, dicts: int, figures: dict[str, float]
) -> float:
    broker.create_topic("produce_fsync", fsync=True)
    broker.create_topic("produce_plain", fsync=False)
    found = _in_turn(
        {
            "ours": lambda: measure("ours_produce", ours.address, "produce", count),
            "kafka_fsync": lambda: measure("kafka_produce", broker.address, "produce_fsync", count),
            "kafka_fsync_batches": lambda: measure("kafka_produce_batch", broker.address, "produce_fsync", count),
            "kafka_plain": lambda: measure("kafka_produce", broker.address, "produce_plain", count),
            "ours_typed": lambda: measure("ours_produce_typed", ours.address, "produce_typed", count),
            "ours_dicts": lambda: measure("ours_produce_dicts", ours.address, "produce_dicts", dicts),
        },
        rounds,
    )
    return _tell_rates("produce", found, "kafka_fsync", figures)


def _consume(ours: ServerProcess, broker: Kafka, rounds: int, count: int, figures: dict[str, float]) -> float:
    broker.create_topic("consume", fsync=False)
    measure("ours_produce", ours.address, "consume", count)
    measure("ours_produce_large", ours.address, "consume_large", count)
    measure("kafka_produce", broker.address, "consume", count)
    found = _in_turn(
        {
            "ours": lambda: measure("ours_consume", ours.address, "consume", count),
            "kafka": lambda: measure("kafka_consume", broker.address, "consume", count),
            "ours_large": lambda: measure("ours_consume", ours.address, "consume_large", count),
            "kafka_large_fetches": lambda: measure("kafka_consume_large", broker.address, "consume", count),
            "ours_dicts": lambda: measure("ours_consume_dicts", ours.address, "consume", count),
        },
        rounds,
    )
    return _tell_rates("consume", found, "kafka", figures)


def _single(ours: ServerProcess, broker: Kafka, rounds: int, count: int, figures: dict[str, float]) -> None:
    broker.create_topic("single_fsync", fsync=True)
    broker.create_topic("single_plain", fsync=False)
    found = _in_turn(
        {
            "ours": lambda: measure("ours_single", ours.address, "single", count),
            "kafka_fsync": lambda: measure("kafka_single", broker.address, "single_fsync", count),
            "kafka_plain": lambda: measure("kafka_single", broker.address, "single_plain", count),
        },
        rounds,
    )
    for name in found[0]:
        figures[f"single_{name}_p50_ms"] = median([percentile(each[name]["times_ms"], 0.50) for each in found])
        figures[f"single_{name}_p99_ms"] = median([percentile(each[name]["times_ms"], 0.99) for each in found])


def _web(
    ours: ServerProcess, broker: Kafka, rounds: int, count: int, directory: Path, figures: dict[str, float]
) -> None:
    broker.create_topic("web_fsync", fsync=True)
    broker.create_topic("web_plain", fsync=False)

    def over(side: str, address: str, topic: str) -> Side:
        def one() -> Measured:
            with web_service(side, address, topic, WORKERS, directory / "web.log") as port:
                load(port, count // 10, IN_FLIGHT)
                measured = load(port, count, IN_FLIGHT)
            assert measured["failed"] == 0, measured["failures"]
            assert len(measured["times_ms"]) == count
            return {"rows": count, "rows_per_s": count / measured["seconds"], "times_ms": measured["times_ms"]}

        return one

    found = _in_turn(
        {
            "ours": over("headwater", ours.address, "web"),
            "aiokafka_fsync": over("kafka", broker.address, "web_fsync"),
            "aiokafka_plain": over("kafka", broker.address, "web_plain"),
        },
        rounds,
    )
    for name in found[0]:
        figures[f"web_{name}_requests_per_s"] = median([each[name]["rows_per_s"] for each in found])
        figures[f"web_{name}_p50_ms"] = median([percentile(each[name]["times_ms"], 0.50) for each in found])
        figures[f"web_{name}_p99_ms"] = median([percentile(each[name]["times_ms"], 0.99) for each in found])
