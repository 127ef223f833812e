"""`headwater.open` on a bucket: what differs from a directory, as a caller sees it."""

from __future__ import annotations

from pathlib import Path

import pytest

import headwater as hw
from headwater.clock import ManualClock
from headwater.errors import Fenced, InvalidRequest, LogLocked
from headwater.log.log_lease import Lease, pack_lease
from headwater.settings import MIB, bucket_settings
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.simulated_store import SimulatedStore
from headwater.topics import store_status


def bucket(store: SimulatedStore, **options: object) -> BucketFiles:
    """Nothing happens in the background, and nothing waits."""
    return BucketFiles(store, clock=ManualClock(), threads=False, **options)  # type: ignore[arg-type]


def begun(store: SimulatedStore, **options: object) -> hw.Log:
    log = hw.open(bucket(store, **options), clock=ManualClock())
    log.topic("orders", schema={"id": int}).append({"id": 1})
    return log


def test_an_open_bucket_says_where_it_is() -> None:
    store = SimulatedStore(seed=7)
    with begun(store) as log:
        assert log.directory == log.status().directory == "simulated://store-7"
        assert repr(log) == "Log('simulated://store-7')"


def test_another_process_reads_all_of_it_with_no_file_of_the_first() -> None:
    store = SimulatedStore()
    begun(store).close()

    with hw.open(bucket(store.restart()), clock=ManualClock()) as log:
        assert log["orders"].read().to_pylist() == [{"id": 1}]


def test_a_bucket_has_defaults_of_its_own_and_given_settings_count() -> None:
    assert bucket_settings().log.segment_size_bytes_max == 64 * MIB
    given = hw.Settings(log=hw.LogSettings(segment_size_bytes_max=128 * MIB))

    with hw.open(bucket(SimulatedStore())) as log, hw.open(bucket(SimulatedStore()), settings=given) as other:
        assert log._engine.settings == bucket_settings()
        assert other._engine.settings == given


def test_taking_over_is_for_buckets(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="the lock of a directory is this machine's"):
        hw.open(tmp_path / "data", take_over=True)
    with pytest.raises(InvalidRequest, match="take_over is for buckets"):
        hw.open(":memory:", take_over=True)


def test_a_live_owner_is_named_and_is_fenced_only_if_asked_to() -> None:
    store = SimulatedStore()
    first = begun(store, host="one")

    second = hw.open(bucket(store, host="two"), clock=ManualClock())
    with pytest.raises(LogLocked, match=r"on one, which is alive.*take_over=True"):
        second["orders"].append({"id": 2})
    with hw.open(bucket(store, host="two"), take_over=True, clock=ManualClock()) as third:
        third["orders"].append({"id": 3})

        with pytest.raises(Fenced, match="another process has taken the log over"):
            first["orders"].append({"id": 4})
        with pytest.raises(Fenced):
            first.topic("more", schema={"id": int})
        told = first.status()
        assert not told.owner
        assert told.notes[-1].startswith("fenced, close it, and open it again if it should go on here")
        first.close()
        assert [row["id"] for row in third["orders"].read().to_pylist()] == [1, 3]


def test_status_counts_what_lies_in_the_store_and_what_was_asked_of_it() -> None:
    store = SimulatedStore()
    with begun(store, host="one") as log:
        found = log.status().store
        assert found is not None and found.owner is not None

        assert (found.url, found.window, found.kept_segments) == (store.url, 8, 0)
        assert found.slots == len([name for name in store.names() if name.startswith("log/0")])
        assert (found.owner.host, found.owner.alive) == ("one", True)
        assert found.requests["puts"] > 0 and found.requests["bytes_put"] > 0
        before = found.requests["puts"]
        log["orders"].append({"id": 2})
        after = log.status().store
        assert after is not None and after.requests["puts"] == before + 1, "one commit, one request"


def test_a_directory_has_no_store() -> None:
    with hw.open(":memory:") as log:
        assert log.status().store is None


# Who is alive --------------------------------------------------------------------------------------


def test_an_owner_that_gives_signs_of_life_is_alive_to_others() -> None:
    store = SimulatedStore()
    watch = store_status.StoreWatch(bucket(store), ManualClock())

    def signs(counter: int, *, released: bool = False) -> bool | None:
        lease = Lease("00" * 16, "one", 7, 5, counter, released)
        store.put("log/lease", pack_lease(lease))
        owner = watch.look(owner_here=False).owner
        return None if owner is None else owner.alive

    assert watch.look(owner_here=False).owner is None, "nobody has written yet"
    assert signs(1) is False, "nothing was seen to change"
    assert signs(2) is True
    assert signs(2) is False
    assert signs(3, released=True) is None


def test_a_first_look_waits_for_a_sign_of_life() -> None:
    store, clock = SimulatedStore(), ManualClock()
    leases = iter([1, 1, 2])

    def renew(verb: str, name: str) -> None:
        if (verb, name) == ("get", "log/lease"):
            store.before_call = None
            store.put("log/lease", pack_lease(Lease("00" * 16, "one", 7, 5, next(leases))))
            store.before_call = renew

    store.before_call = renew
    files = BucketFiles(store, clock=clock, pause=clock.advance)
    owner = store_status.StoreWatch(files, clock).look(owner_here=False).owner

    assert owner is not None and owner.alive


@pytest.mark.parametrize("ends", ["silence", "a release", "a lease that is gone"])
def test_a_first_look_does_not_wait_for_long(ends: str) -> None:
    store, clock = SimulatedStore(), ManualClock()
    began_s = clock.monotonic_s()
    lease = Lease("00" * 16, "one", 7, 5)
    store.put("log/lease", pack_lease(lease))

    def pause(seconds: float) -> None:
        clock.advance(seconds)
        if ends == "a release":
            store.put("log/lease", pack_lease(lease.given_up()))
        elif ends != "silence":
            store.delete("log/lease")

    files = BucketFiles(store, clock=clock, pause=pause)
    owner = store_status.StoreWatch(files, clock).look(owner_here=False).owner

    assert owner is not None and not owner.alive
    assert clock.monotonic_s() - began_s < 2


def test_a_long_walk_is_counted_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    store = SimulatedStore()
    with begun(store) as log:
        for number in range(5):
            log["orders"].append({"id": number})
        real = store.list_after
        monkeypatch.setattr(store, "list_after", lambda prefix, after="", *, limit=1000: real(prefix, after, limit=3))
        found = log.status().store

    assert found is not None
    assert found.slots == len([name for name in store.names() if name.startswith("log/0")])
