"""What a log asks of its store is what bench/_store_model.py says, to the last request."""

from __future__ import annotations

import pytest

import headwater as hw
from bench._store_model import VERBS, Spell, expected, unexplained
from headwater.clock import ManualClock
from headwater.log.slots import is_slot_name
from headwater.settings import LogSettings, Settings
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.objects import StoreCounters
from headwater.storage.simulated_store import SimulatedStore
from tests.unit.topics.small_engines import engine_of

KIB = 1024
SEGMENT_BYTES = 4096 * KIB
SETTINGS = Settings(
    log=LogSettings(segment_size_bytes_max=SEGMENT_BYTES, write_body_bytes_max=SEGMENT_BYTES), upkeep_interval_s=0
)


def append_and_count(row_bytes: int, appends: int) -> Spell:
    """Rows of this size, one by one, on a store without faults and by an owner without threads: no lease is renewed."""
    store = SimulatedStore(remember_calls=False)
    files = BucketFiles(store, clock=ManualClock(), threads=False)
    with hw.open(files, settings=SETTINGS, clock=files.clock) as log:
        topic = log.topic("events", schema={"text": str})
        for _ in range(3):
            topic.append({"text": "first"})
            log.checkpoint()
        owned = engine_of(log).shard.log
        before, commits, rolls = store.counters.as_dict(), owned.counters.commits, owned.counters.rolls
        slots = slots_in(store)
        for number in range(appends):
            topic.append({"text": f"{number:08}" * (row_bytes // 8)})
            owned.device.keep()  # type: ignore[union-attr]
        asked = {name: value - before[name] for name, value in store.counters.as_dict().items()}
        committed = owned.counters.commits - commits
        rolled = owned.counters.rolls - rolls
        return Spell(
            asked=StoreCounters(**asked),
            commits=committed,
            rolls=rolled,
            fences=min(rolled, 1),
            slots_gone=slots + committed - slots_in(store),
            slot_bytes=asked["bytes_put"] / committed,
            seconds=0.0,
        )


def slots_in(store: SimulatedStore) -> int:
    return sum(is_slot_name(name.removeprefix("log/")) for name in store.names() if name.startswith("log/"))


@pytest.mark.parametrize(("row_bytes", "appends", "rolls"), [(900 * KIB, 12, 2), (80 * KIB, 120, 2), (1 * KIB, 20, 0)])
def test_a_log_asks_for_what_the_model_says_and_for_nothing_else(row_bytes: int, appends: int, rolls: int) -> None:
    spell = append_and_count(row_bytes, appends)

    model = expected(spell)
    leases = spell.commits  # keep() renews it each time, where a thread would do so once a second
    assert spell.rolls == rolls
    assert spell.asked.puts - leases == model.puts[0]
    assert [getattr(spell.asked, verb) for verb in VERBS[1:]] == [getattr(model, verb)[0] for verb in VERBS[1:]]


def test_while_nothing_rolls_nothing_is_listed_read_or_deleted() -> None:
    asked = append_and_count(1 * KIB, 20).asked

    assert (asked.lists, asked.gets, asked.deletes, asked.bytes_got) == (0, 0, 0, 0)


def test_a_request_too_many_is_not_explained() -> None:
    spell = append_and_count(1 * KIB, 5)
    kept = Spell(StoreCounters(puts=5), 5, 0, 0, 0, spell.slot_bytes, 0.5)

    assert unexplained(kept) == 0
    assert unexplained(Spell(StoreCounters(puts=5, gets=1), 5, 0, 0, 0, spell.slot_bytes, 0.5)) == 1
    assert unexplained(Spell(StoreCounters(puts=4), 5, 0, 0, 0, spell.slot_bytes, 0.5)) == 1
