"""A ledger, a landing and a restore on a simulated bucket: what is done there otherwise than on a disk.

NOT HERE A real store: tests/e2e_objects/test_landing.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

import headwater as hw
from headwater.clock import ManualClock, SystemClock
from headwater.errors import Fenced, Halted, InvalidRequest, LostSegment, Unavailable
from headwater.lake import ledger as ledger_module
from headwater.lake import reading
from headwater.lake.catalog import catalog_place
from headwater.lake.from_lake import FromLake, restore_log
from headwater.lake.landing import Lake
from headwater.lake.ledger import DIRECTORY, Ledger
from headwater.lake.restore_plan import RestorePlan
from headwater.lake.source import reachable
from headwater.log.frame_log import FrameLog
from headwater.log.manifest import unpack_manifest
from headwater.log.object_device import ObjectDevice
from headwater.log.pins import Pin
from headwater.settings import KIB, LogSettings
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.objects import StoreUnsure
from headwater.storage.simulated_store import SimulatedStore
from tests.unit.lake.ledger_entries import TOPIC, begun, landed, verified
from tests.unit.topics.small_engines import engine_of

SMALL = hw.Settings(
    log=LogSettings(segment_size_bytes_max=16 * KIB, write_body_bytes_max=8 * KIB, deletion_grace_s=0.0),
    upkeep_interval_s=0,
)


def bucket(store: SimulatedStore, seed: int = 1) -> BucketFiles:
    """The store as one process sees it."""
    return BucketFiles(store, clock=SystemClock(), entropy=Random(seed).randbytes, threads=False)


def ledger_on(store: SimulatedStore, seed: int = 1) -> Ledger:
    return Ledger(bucket(store, seed), clock=SystemClock(), entropy=Random(seed).randbytes)


def slots(store: SimulatedStore) -> int:
    return sum(name.rpartition("/")[2].isdecimal() for name in store.names() if name.startswith(DIRECTORY))


# The ledger -----------------------------------------------------------------------------------------------------------


def test_a_ledger_stays_claimed_between_records() -> None:
    store = SimulatedStore()
    ledger = ledger_on(store)
    ledger.record([begun("c10")])
    before = (slots(store), store.counters.puts)

    ledger.record([landed(0, 10)])

    assert (slots(store), store.counters.puts) == (before[0] + 1, before[1] + 1)
    assert ledger.state().topic(TOPIC).landed_lsn == 10
    ledger.close()
    assert ledger_on(store, 2).state().topic(TOPIC).landed_lsn == 10


def test_landers_in_turn_take_the_ledger_over_and_no_record_is_lost_or_doubled() -> None:
    store = SimulatedStore()
    ledgers = [ledger_on(store, seed) for seed in (1, 2, 3)]

    for lsn in range(1, 13):
        ledgers[lsn % 3].record([landed(lsn - 1, lsn)])

    for ledger in ledgers:
        assert [record.lsn_to for record in ledger.records()] == list(range(1, 13))  # type: ignore[union-attr]
        assert ledger.state().topic(TOPIC).landed_lsn == 12
        ledger.close()


def test_a_ledger_that_others_take_over_again_and_again_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(log: FrameLog, drafts: Any) -> Any:
        raise Fenced("another lander")

    monkeypatch.setattr(ledger_module, "LOCK_TIMEOUT_S", 0.05)
    monkeypatch.setattr(FrameLog, "append", never)

    with pytest.raises(Unavailable, match="stays locked"):
        ledger_on(SimulatedStore()).record([begun("c10")])


def test_what_is_sealed_of_a_ledger_is_taken_in_by_whoever_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    small = LogSettings(segment_size_bytes_max=4 * KIB, write_body_bytes_max=4 * KIB)
    monkeypatch.setattr(ledger_module, "SETTINGS", small)
    store = SimulatedStore()
    ledger = ledger_on(store)

    for lsn in range(1, 60):
        ledger.record([landed(lsn - 1, lsn)])

    manifest = unpack_manifest(store.contents(f"{DIRECTORY}/trim"))
    assert len(manifest.segments) > 3 and slots(store) < 40
    assert ledger_on(store, 2).state().topic(TOPIC).landed_lsn == 59


def test_a_record_is_not_written_again_because_the_ledger_could_not_be_kept_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = SimulatedStore()
    ledger = ledger_on(store)

    def fenced(device: ObjectDevice) -> None:
        raise Fenced("another lander")

    with monkeypatch.context() as patched:
        patched.setattr(ObjectDevice, "keep", fenced)
        ledger.record([begun("c10")])
    ledger.record([landed(0, 10), verified(10)])

    assert [type(record).__name__ for record in ledger.records()] == ["Begun", "Landed", "Verified"]


# Landing --------------------------------------------------------------------------------------------------------------


def catalog_in(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"}


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> SimulatedStore:
    """A store that tasks of this process find by its url."""
    made = SimulatedStore()
    monkeypatch.setattr(reading, "open_files", lambda where: bucket(made, 9))
    monkeypatch.setattr(Lake, "check_catalog_once", lambda lake: None)  # takes seconds, and is shown elsewhere
    return made


def opened(store: SimulatedStore, folder: Path, seed: int = 1) -> hw.Log:
    return hw.open(bucket(store, seed), catalog=catalog_in(folder), settings=SMALL, entropy=Random(seed).randbytes)


def numbers(topic: hw.Topic) -> list[int]:
    return sorted(topic.scan().to_arrow()["x"].to_pylist())


def test_slots_and_segments_of_a_bucket_land_and_the_log_lets_go_of_them(store: SimulatedStore, tmp_path: Path) -> None:
    with opened(store, tmp_path) as log:
        topic = log.topic("orders", {"x": int, "note": str}, table="lake.orders")
        for each in range(40):
            topic.append([{"x": each, "note": "." * 1000}])
        first = engine_of(log).shard.log.segments()[0]

        report = log.land()

        assert report["orders"].rows == 40
        assert first.name not in {segment.name for segment in engine_of(log).shard.log.segments()}
        topic.append([{"x": 40, "note": ""}])
        assert numbers(topic) == list(range(41))
        assert log.audit(full=True).passed


def test_a_lander_beside_the_owner_leaves_the_log_to_it_and_lands_what_it_has_put(
    store: SimulatedStore, tmp_path: Path
) -> None:
    with opened(store, tmp_path) as owner, opened(store, tmp_path, seed=2) as beside:
        topic = owner.topic("orders", {"x": int, "note": str}, table="lake.orders")
        for each in range(40):
            topic.append([{"x": each, "note": "." * 1000}])

        report = beside.land()

        assert report["orders"].rows == 40 and not engine_of(beside).claimed
        assert "left to the log's owner" in report.cleanup
        assert owner.cleanup().deleted
        # A reader of a bucket sees at once that they have gone: nobody takes the log for nothing.
        assert beside.land().cleanup == "nothing to delete yet"
        topic.append([{"x": 40, "note": ""}])
        assert beside.land()["orders"].rows == 1
        assert numbers(beside["orders"]) == list(range(41))


def test_a_bucket_without_a_catalog_says_what_to_give() -> None:
    with pytest.raises(InvalidRequest, match="catalog="):
        catalog_place(None, directory="s3://bucket/prefix")
    with pytest.raises(InvalidRequest, match="catalog="):
        restore_log("s3://bucket/prefix")


def test_a_bucket_is_reached_by_its_url_and_a_folder_by_its_whole_path() -> None:
    assert reachable("s3://bucket/prefix") == "s3://bucket/prefix"
    assert reachable("data") == str(Path("data").absolute())


# Views ---------------------------------------------------------------------------------------------------------------


def pins(store: SimulatedStore) -> list[str]:
    return [name for name in store.names() if name.startswith("pins/")]


def test_a_scan_that_is_dropped_in_the_middle_of_a_request_lets_go_of_its_pin(tmp_path: Path) -> None:
    store = SimulatedStore()
    with opened(store, tmp_path) as log:
        topic = log.topic("orders", {"x": int})
        topic.append([{"x": 1}])
        dropped = [topic.scan()]
        assert pins(store)

        # As a collection does that begins while the store is asked.
        with store._guard:
            dropped.clear()

        log._views.close()  # type: ignore[union-attr]
        assert not pins(store)


def test_a_scan_that_outlives_its_log_lets_go_of_its_pin(tmp_path: Path) -> None:
    store = SimulatedStore()
    with opened(store, tmp_path) as log:
        log.topic("orders", {"x": int}).append([{"x": 1}])
        scan = log["orders"].scan()
    assert pins(store)

    scan.close()

    assert not pins(store)


def test_a_pin_that_cannot_be_released_is_said_and_the_next_ones_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(pin: Pin) -> None:
        raise StoreUnsure("no reply")

    store = SimulatedStore()
    with opened(store, tmp_path) as log:
        log.topic("orders", {"x": int}).append([{"x": 1}])
        first, second = log["orders"].scan(), log["orders"].scan()
        log._views.close()  # type: ignore[union-attr]
        with monkeypatch.context() as patched:
            patched.setattr(Pin, "release", failing)
            first.close()
        assert "could not be released" in caplog.text
        second.close()
        assert len(pins(store)) == 1


# A lost log -----------------------------------------------------------------------------------------------------------


def restoring(store: SimulatedStore, folder: Path, seed: int = 5) -> FromLake:
    place = catalog_place(catalog_in(folder), directory="unused")
    return FromLake(
        bucket(store, seed),
        store.url,
        place.connect,
        clock=ManualClock(),
        entropy=Random(seed).randbytes,
        settings=SMALL,
    )


@pytest.fixture
def lake(store: SimulatedStore, tmp_path: Path) -> Path:
    """Tables of a log that is lost."""
    with opened(store, tmp_path) as log:
        topic = log.topic("orders", {"x": int}, table="lake.orders")
        topic.append([{"x": each} for each in range(10)])
        log.land()
    return tmp_path


def test_a_lost_log_goes_on_in_a_bucket_where_its_tables_end(
    lake: Path, store: SimulatedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = SimulatedStore(7)
    monkeypatch.setattr(reading, "open_files", lambda where: bucket(found, 9))

    report = restoring(found, lake).restore()

    assert [(topic.name, topic.rows) for topic in report.topics] == [("orders", 10)]
    with opened(found, lake, seed=3) as log:
        topic = log["orders"]
        assert numbers(topic) == list(range(10))
        told = topic.append([{"x": 10}])
        assert (told.offsets[0].first, told.lsn > report.first_lsn) == (10, True)
        assert log.land()["orders"].rows == 1
        assert log.audit(full=True).passed
    with pytest.raises(InvalidRequest, match="holds a log"):
        restoring(found, lake).restore()


def plan_of(store: SimulatedStore, log_id: str | None = None) -> bytes:
    """As a restore has written it that made the log of this store, or was about to make another."""
    made = unpack_manifest(store.contents("log/trim")).log_id.hex()
    plan = RestorePlan(log_id=log_id or made, log_ids_before=(made,), first_lsn=1 << 32, begun_us=1)
    return msgspec.json.encode(plan)


class Died(BaseException):
    """The process ends here."""


def dies_at(name: str) -> Callable[[str, str], None]:
    def before_call(verb: str, asked: str) -> None:
        if asked == name and verb.startswith("put"):
            raise Died

    return before_call


@pytest.mark.parametrize("name", ["ledger/trim", "journal/trim", f"log/{1:020}", "log/trim"])
def test_a_restore_into_a_bucket_that_dies_is_gone_on_with(lake: Path, name: str) -> None:
    found = SimulatedStore(7)
    found.before_call = dies_at(name)
    with pytest.raises(Died):
        restoring(found, lake).restore()
    found.before_call = None
    # The lock of the one that died is passed over once it has given no sign of life for some seconds.
    found.delete("restore.lock")
    if name.startswith("log/"):
        with pytest.raises(LostSegment), opened(found, lake, seed=3):
            pass

    report = restoring(found, lake, seed=6).restore()

    assert report.continued
    with opened(found, lake, seed=3) as log:
        assert numbers(log["orders"]) == list(range(10))


def test_a_restore_that_died_after_the_log_was_there_only_ends(lake: Path) -> None:
    found = SimulatedStore(7)
    restoring(found, lake).restore()
    found.put("restore.json", plan_of(found))

    report = restoring(found, lake, seed=6).restore()

    assert report.continued and "restore.json" not in found.names()


def test_a_restore_into_a_bucket_where_another_log_was_begun_halts(lake: Path) -> None:
    found = SimulatedStore(7)
    restoring(found, lake).restore()
    found.put("restore.json", plan_of(found, log_id="ab" * 16))

    with pytest.raises(Halted, match="another log was begun"):
        restoring(found, lake, seed=6).restore()
