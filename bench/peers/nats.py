"""NATS JetStream with sync on, from Python, beside a server of ours.

Module names: `bench.peers.nats` is this part, and `nats` is the client.  Imports are absolute, so neither hides the
other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from bench._place import GIB, place
from bench._serve_clients import BATCH_ROWS, ROW_BYTES, Measured, measure
from bench.peers._nats import START_S_MAX, check_installed, nats_server
from bench.peers._part import Book, Chart, Compared, Figure, Part, Size, in_turn
from bench.peers.kafka import add_times
from tests.servers.headwater import ServerProcess

CLIENTS = "bench.peers._nats_clients"


def measure_part(size: Size, book: Book) -> None:
    check_installed()
    from bench.peers._nats_clients import FETCH, create_stream

    published, plain = size.of(1_000, 3_000, 40_000), size.of(2_000, 10_000, 100_000)
    batched, dicts = size.of(4_000, 50_000, 200_000), size.of(500, 5_000, 40_000)
    consumed, singles = size.of(5_000, 20_000, 200_000), size.of(50, 200, 1_000)
    book.set(
        rounds=size.rounds, row_bytes=ROW_BYTES, published_rows=published, published_rows_not_synced=plain,
        ours_produced_rows=batched, ours_batch_rows=BATCH_ROWS, ours_produced_dicts=dicts,
        consumed_rows=consumed, fetch_messages=FETCH, single_rows_a_round=singles,
        async_publish_pending_max=4_000, stream="file storage, one replica, one subject", sync="sync_interval: always",
    )  # fmt: skip
    with (
        place(size.of(1, 2, 4) * GIB) as directory,
        ServerProcess(directory / "headwater", ready_s=START_S_MAX) as ours,
        nats_server(directory / "synced", sync=True) as synced,
        nats_server(directory / "plain", sync=False) as unsynced,
    ):
        for server in (synced, unsynced):
            for name in ("produce", "consume", "single"):
                asyncio.run(create_stream(server.address, name))

        def rates(figure: str, role: str, address: str, count: int) -> Callable[[], None]:
            what = figure.partition("_")[0]
            module = "bench._serve_clients" if role.startswith("ours") else CLIENTS
            topic = "produce_dicts" if role == "ours_produce_dicts" else what
            return lambda: book.add(figure, measure(role, address, topic, count, module)["rows_per_s"])

        book.say("produce")
        sides = {
            "produce_ours_rows_per_s": ("ours_produce", ours.address, batched),
            "produce_ours_dicts_rows_per_s": ("ours_produce_dicts", ours.address, dicts),
            "produce_nats_sync_rows_per_s": ("publish", synced.address, published),
            "produce_nats_plain_rows_per_s": ("publish", unsynced.address, plain),
        }
        in_turn({name: rates(name, *side) for name, side in sides.items()}, size.rounds, book)

        book.say("consume")
        measure("ours_produce", ours.address, "consume", consumed)
        # What is consumed was written without a sync: it is the same in the file, and is there sooner.
        measure("publish", unsynced.address, "consume", consumed, CLIENTS)
        sides = {
            "consume_ours_rows_per_s": ("ours_consume", ours.address, consumed),
            "consume_ours_dicts_rows_per_s": ("ours_consume_dicts", ours.address, consumed),
            "consume_nats_rows_per_s": ("consume", unsynced.address, consumed),
            "consume_nats_pushed_rows_per_s": ("consume_pushed", unsynced.address, consumed),
        }
        in_turn({name: rates(name, *side) for name, side in sides.items()}, size.rounds, book)

        book.say("single messages")
        timed: dict[str, Callable[[], Measured]] = {
            "ours": partial(measure, "ours_single", ours.address, "single", singles),
            "nats_sync": partial(measure, "single", synced.address, "single", singles, CLIENTS),
            "nats_plain": partial(measure, "single", unsynced.address, "single", singles, CLIENTS),
        }
        in_turn({name: partial(add_times, book, name, side) for name, side in timed.items()}, size.rounds, book)


PART = Part(
    name="nats",
    title="NATS JetStream from Python",
    question="How fast are rows of 1 KB made durable, read back, and acknowledged one by one, beside NATS JetStream?",
    method=(
        "One nats-server, a stream of files with one replica; `sync_interval: always`, so that a message is "
        "on the disk before it is acknowledged, and beside it the default, a sync every two minutes. The "
        "client is nats-py, which is Python from end to end; a Go client would be several times as fast. "
        "Messages are published with `publish_async()`, 4,000 without an answer at most, and consumed without "
        "acknowledgements: by a pull consumer's `fetch(1000)`, and pushed to an ordered consumer, which is "
        "faster in Python. Again batches are compared with messages: JetStream syncs each message by itself, "
        "Headwater each batch."
    ),
    figures=(
        Figure("produce_ours_rows_per_s", "Durable rows produced: Headwater's server, Arrow batches of 1,000 rows."),
        Figure("produce_ours_dicts_rows_per_s", "Durable rows produced: Headwater's server, one dict an append."),
        Figure("produce_nats_sync_rows_per_s", "Durable rows produced: JetStream, each message synced."),
        Figure("produce_nats_plain_rows_per_s", "Rows produced: JetStream with its default of a sync in two minutes."),
        Figure("consume_ours_rows_per_s", "Rows consumed: Headwater's server, as Arrow batches."),
        Figure("consume_ours_dicts_rows_per_s", "Rows consumed: Headwater's server, each row made a dict."),
        Figure("consume_nats_rows_per_s", "Rows consumed: JetStream, `fetch(1000)` of a pull consumer."),
        Figure("consume_nats_pushed_rows_per_s", "Rows consumed: JetStream, pushed to an ordered consumer's callback."),
        Figure("single_ours_p50_ms", "One row until it is durable, p50: Headwater's server."),
        Figure("single_ours_p99_ms", "One row until it is durable, p99: Headwater's server."),
        Figure("single_nats_sync_p50_ms", "One message until it is durable, p50: JetStream, synced."),
        Figure("single_nats_sync_p99_ms", "One message until it is durable, p99: JetStream, synced."),
        Figure("single_nats_plain_p50_ms", "One message until it is acknowledged, p50: JetStream, not synced."),
        Figure("single_nats_plain_p99_ms", "One message until it is acknowledged, p99: JetStream, not synced."),
    ),
    compared=(
        Compared(
            "durable rows produced, Arrow batches beside messages",
            "produce_ours_rows_per_s",
            "produce_nats_sync_rows_per_s",
            "JetStream, sync always",
            "higher",
        ),
        Compared(
            "durable rows produced one by one",
            "produce_ours_dicts_rows_per_s",
            "produce_nats_sync_rows_per_s",
            "JetStream, sync always",
            "higher",
            "Rows that wait share a sync of ours; Python makes columns of them first.",
        ),
        Compared(
            "rows consumed as Python objects",
            "consume_ours_dicts_rows_per_s",
            "consume_nats_pushed_rows_per_s",
            "JetStream, pushed",
            "higher",
            "Making dicts of columns costs more than handing over bytes.",
        ),
        Compared(
            "one row until it is durable, p50",
            "single_ours_p50_ms",
            "single_nats_sync_p50_ms",
            "JetStream, sync always",
            "lower",
            "One connection and no thread between it and the file; ours crosses two threads on each side.",
        ),
        Compared(
            "one row until it is durable, p99",
            "single_ours_p99_ms",
            "single_nats_sync_p99_ms",
            "JetStream, sync always",
            "lower",
            "As for the p50.",
        ),
    ),
    charts=(
        Chart(
            "Rows of 1 KB produced",
            "rows/s",
            (
                ("Headwater, batches", "produce_ours_rows_per_s"),
                ("Headwater, dicts", "produce_ours_dicts_rows_per_s"),
                ("JetStream, sync always", "produce_nats_sync_rows_per_s"),
                ("JetStream, default sync", "produce_nats_plain_rows_per_s"),
            ),
        ),
        Chart(
            "Rows of 1 KB consumed",
            "rows/s",
            (
                ("Headwater, batches", "consume_ours_rows_per_s"),
                ("Headwater, dicts", "consume_ours_dicts_rows_per_s"),
                ("JetStream, fetch(1000)", "consume_nats_rows_per_s"),
                ("JetStream, pushed", "consume_nats_pushed_rows_per_s"),
            ),
        ),
        Chart(
            "One row until it is acknowledged, p50 (shorter is better)",
            "ms",
            (
                ("Headwater server", "single_ours_p50_ms"),
                ("JetStream, sync always", "single_nats_sync_p50_ms"),
                ("JetStream, default sync", "single_nats_plain_p50_ms"),
            ),
        ),
    ),
    measure=measure_part,
    quick_s=180,
    full_s=420,
)
