"""What every open log promises to whoever uses it: the whole contract of Log and Topic, as classes of tests.

USE      A module that runs it derives a class from these, and another from those that end in Kept, which are for a
         place where what was closed can be opened again; and it gives two fixtures: `place`, and `log`, which is
         `place.open()` while the test runs (test_log_api.py).  A log behind a server joins by one more Place.
RULE     The tests use the public names of `headwater` and nothing else, so that they mean the same over a network.

    log_api_topics.py        create, get, list, describe, alter, delete
    log_api_rows.py          rows in every form, refused rows, partitions, upsert and delete, limits of size
    log_api_reading.py       where a read begins and ends, its forms, following, older schemas
    log_api_transactions.py  expected offsets, idempotency keys, producers, transactions, sources
    log_api_groups.py        consumer groups
    log_api_upkeep.py        cleanup, compaction, checkpoints, status, flush, close
"""

from __future__ import annotations

from typing import Protocol

import headwater as hw
from headwater.clock import Clock
from headwater.settings import LogSettings

KIB = 1024

ORDER = {"order_id": int, "amount": float, "note": "string"}
"""`order_id` and `amount` must be there; `note` may be null."""

SETTINGS = hw.Settings(
    log=LogSettings(reserve_bytes=0, deletion_grace_s=0.0, follow_poll_s=0.002),
    journal=LogSettings(reserve_bytes=0, segment_age_s_max=float("inf")),
    upkeep_interval_s=0.0,
)
"""Nothing happens by itself, and what may be deleted goes at once."""

SMALL_SEGMENTS = hw.Settings(
    log=LogSettings(
        segment_size_bytes_max=8 * KIB, write_body_bytes_max=8 * KIB, reserve_bytes=0, deletion_grace_s=0.0
    ),
    journal=SETTINGS.journal,
    upkeep_interval_s=0.0,
)
"""A few rows of some size fill a segment, so that there are sealed ones to clean up."""


class Place(Protocol):
    """Where a log is kept."""

    def open(self, settings: hw.Settings = SETTINGS, clock: Clock | None = None) -> hw.Log:
        """Open it; where it was opened and closed before, what was in it is there again, if the place keeps it."""
        ...


def order(number: int, amount: float = 1.5, note: str | None = None) -> dict[str, object]:
    return {"order_id": number, "amount": amount, "note": note}


def orders(count: int, first: int = 0) -> list[dict[str, object]]:
    return [order(number) for number in range(first, first + count)]


def numbers(topic: hw.Topic) -> list[int]:
    """The order numbers of a topic, as they are read."""
    return [row["order_id"] for row in topic.read().to_pylist()]


def next_offsets(topic: hw.Topic) -> dict[int, int]:
    return {partition: offsets.next for partition, offsets in topic.offsets().items()}
