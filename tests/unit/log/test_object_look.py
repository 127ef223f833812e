"""A log in slots, looked at from outside: as files, healthy or damaged, beside an owner at work."""

from __future__ import annotations

import pytest

from headwater.errors import Unavailable
from headwater.log.names import MARK
from headwater.log.object_files import LogsAsFiles
from headwater.log.object_look import look
from headwater.log.slots import slot_name
from headwater.log.verify import verify_log
from headwater.storage.files import ShortRead
from headwater.storage.simulated_store import Fate, SimulatedStore
from tests.unit.log.slot_logs import SlotLog, asking, bucket


def made(*, merged: bool = True) -> tuple[SimulatedStore, SlotLog]:
    """Two segments that trim names, and one on the walk with a fence of a second owner in it."""
    store = SimulatedStore()
    log = SlotLog(store)
    log.fence()
    for _ in range(3):
        log.commit(2)
    log.seal(merged=merged)
    log.commit(1)
    log.commit(1)
    log.seal(merged=merged)
    log.commit(1)
    log.fence()
    log.commit(3)
    return store, log


def as_files(store: SimulatedStore) -> LogsAsFiles:
    return LogsAsFiles(bucket(store), asking(store))


@pytest.mark.parametrize("merged", [True, False])
def test_a_log_in_slots_or_merged_passes_as_files_do(merged: bool) -> None:
    store, log = made(merged=merged)

    report = verify_log(as_files(store).as_files(), "log", log_start=1)

    assert (report.findings, report.notes) == ([], [])
    assert (report.segments, report.first_lsn, report.last_lsn) == (3, 1, log.last_lsn)
    assert (report.durable_lsn, report.epoch) == (log.last_lsn, 2)


def test_a_segment_has_the_same_bytes_in_slots_and_merged() -> None:
    in_slots, merged = as_files(made(merged=False)[0]), as_files(made(merged=True)[0])
    names = [name for name in in_slots.list("log") if name.endswith(".seg")]
    assert names == [name for name in merged.list("log") if name.endswith(".seg")] and len(names) == 3

    for name in names:
        here, there = in_slots.open(f"log/{name}"), merged.open(f"log/{name}")

        assert here.size() == there.size()
        assert here.read_at(0, here.size()) == there.read_at(0, there.size())
        here.close()


def test_a_segment_that_trim_does_not_name_is_no_part_of_the_log() -> None:
    store, _ = made()
    store.put("log/00000000000000000001.1.seg", store.contents("log/00000000000000000001.0.seg"))

    assert "00000000000000000001.1.seg" not in as_files(store).list("log")
    assert verify_log(as_files(store).as_files(), "log", log_start=1).notes == []


def test_a_read_beyond_the_end_is_short() -> None:
    file = as_files(made()[0]).open("log/00000000000000000001.0.seg")
    buffer = bytearray(100)

    with pytest.raises(ShortRead):
        file.read_at(file.size() - 10, 100)
    assert file.read_into(file.size() - 10, memoryview(buffer)) == 10


def test_what_is_not_a_log_is_the_files_own() -> None:
    store, _ = made()
    store.put("checkpoints/x", b"state")
    store.put("log/below/x", b"not a name of the log's own")
    files = as_files(store)

    assert files.list("checkpoints") == ["x"]
    assert not any("below" in name for name in files.list("log"))
    assert files.open("checkpoints/x").read_at(0, 5) == b"state"
    assert files.list("ledger") == []
    with pytest.raises(FileNotFoundError):
        files.open("ledger/mark")


def test_a_log_of_which_all_was_let_go_has_nothing_durable_to_miss() -> None:
    store = SimulatedStore()
    SlotLog(store)

    report = verify_log(as_files(store).as_files(), "log", log_start=1)

    assert report.findings == []
    assert as_files(store).list("log") == [MARK]


def test_slots_behind_the_end_are_in_flight_and_no_loss() -> None:
    store, log = made()
    ahead = log.in_flight(2, durable_lsn=log.last_lsn)

    seen = look(asking(store), "log")

    assert (seen.lost, seen.next_slot) == ([], log.next_slot)
    assert slot_name(ahead) in seen.sizes


@pytest.mark.parametrize("why", ["a window ahead", "it says so", "a fence"])
def test_a_slot_that_is_missing_is_lost_where_a_later_one_shows_that_it_was_acknowledged(why: str) -> None:
    store = SimulatedStore()
    log = SlotLog(store)
    log.fence()
    first = log.commit()
    slots = {"a window ahead": 6, "it says so": 3, "a fence": 2}[why]
    gone = log.commit()
    for _ in range(slots - 2):
        # An owner that knows of nothing but the first slot.
        log.commit(durable_lsn=2 if why == "a window ahead" else None)
    if why == "a fence":
        log.fence()
    store.delete(f"log/{slot_name(gone)}")

    seen = look(asking(store), "log")

    assert seen.lost == [(gone, gone)]
    assert gone == first + 1
    assert seen.next_slot == log.next_slot


def test_one_that_cannot_be_read_shows_nothing() -> None:
    store, log = made()
    ahead = log.in_flight(1, durable_lsn=log.last_lsn + 5)
    store.flip_bit(f"log/{slot_name(ahead)}", 8 * 40)

    assert look(asking(store), "log").lost == []


def test_a_look_during_which_trim_moves_begins_anew() -> None:
    store, log = made()
    moved: list[str] = []

    def owner(verb: str, name: str) -> None:
        if verb == "list_after" and not moved:
            moved.append(name)
            log.seal()

    store.before_call = owner
    seen = look(asking(store), "log")

    assert len(seen.kept) == 3 and seen.runs == []


def test_an_owner_that_never_rests_makes_it_try_again() -> None:
    store, log = made()

    def owner(verb: str, name: str) -> None:
        if verb == "list_after":
            store.before_call = None
            log.commit()
            log.seal()
            store.before_call = owner

    store.before_call = owner
    with pytest.raises(Unavailable):
        look(asking(store), "log")


def test_what_the_store_does_not_say_is_asked_again() -> None:
    store, log = made()
    for verb in ("get", "list_after", "size"):
        store.next_fate(Fate.THROTTLED, verb=verb)
    store.delete("log/00000000000000000001.0.seg")

    seen = look(asking(store), "log")

    assert seen.missing(seen.kept[0]) == ["00000000000000000001.0.seg"]
    assert seen.next_slot == log.next_slot


def test_a_list_that_is_behind_says_nothing_of_what_is_lost() -> None:
    store, _ = made()
    late = SimulatedStore()
    for name in store.names():
        if not name.endswith("0001.0.seg"):
            late.put(name, store.contents(name))
    real = late.list_after
    late.put("log/00000000000000000001.0.seg", store.contents("log/00000000000000000001.0.seg"))

    def behind(prefix: str, after: str = "", *, limit: int = 1000) -> list[object]:
        return [each for each in real(prefix, after, limit=limit) if not each.name.endswith("0001.0.seg")]

    late.list_after = behind  # type: ignore[method-assign, assignment]
    seen = look(asking(late), "log")

    assert all(seen.missing(each) == [] for each in seen.kept)


def test_a_segment_that_has_grown_is_read_as_it_is_now() -> None:
    store, log = made()
    files = as_files(store)
    name = f"log/{files.look('log').runs[-1].name}"
    before = files.open(name)
    content = before.read_at(0, before.size())

    log.commit()
    files.list("log")
    after = files.open(name)

    assert after.size() > len(content)
    assert after.read_at(0, len(content)) == content
    assert len(after.read_at(0, after.size())) == after.size()


def test_a_segment_that_goes_after_the_look_makes_it_try_again() -> None:
    store, _ = made()
    files = as_files(store)
    files.list("log")
    file = files.open("log/00000000000000000001.0.seg")
    store.delete("log/00000000000000000001.0.seg")

    with pytest.raises(Unavailable, match="its owner is at work"):
        file.read_at(0, 256)


def test_slots_are_asked_for_once_over_many_looks() -> None:
    store, log = made()
    files = as_files(store)
    files.list("log")
    store.calls.clear()

    log.commit()
    files.list("log")

    slots = [name for verb, name in store.calls if verb == "get" and name != "log/trim"]
    assert slots == [f"log/{slot_name(log.next_slot - 1)}", f"log/{slot_name(log.next_slot)}"]
