"""Files in a bucket: what only a bucket has.  What every Files has is in tests/contract/test_files.py.

Two BucketFiles on one store stand for two processes; the requests of each verb are counted, because they cost money.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable

import pytest

from headwater.clock import ManualClock
from headwater.errors import Closed, Unavailable
from headwater.storage.bucket_files import HEAD_BYTES, LIST_LIMIT, BucketFiles
from headwater.storage.files import ShortRead
from headwater.storage.objects import StoreUnsure
from headwater.storage.simulated_store import Fate, SimulatedStore, StoreFaults
from headwater.storage.store_patience import TRIES, StoreUnavailable


@pytest.fixture
def store() -> SimulatedStore:
    return SimulatedStore()


def files_of(store: SimulatedStore) -> BucketFiles:
    return BucketFiles(store, clock=ManualClock(), threads=False)


@pytest.fixture
def files(store: SimulatedStore) -> BucketFiles:
    return files_of(store)


@pytest.fixture
def others(store: SimulatedStore) -> BucketFiles:
    """Those of another process."""
    return files_of(store)


def requests(store: SimulatedStore, act: Callable[[], object]) -> list[str]:
    before = len(store.calls)
    act()
    return [verb for verb, _ in store.calls[before:]]


def write(files: BucketFiles, name: str, data: bytes) -> None:
    file = files.create(name)
    file.append([data])
    file.sync_all()
    file.close()


def read(files: BucketFiles, name: str) -> bytes:
    file = files.open(name)
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


# ---------------------------------------------------------------------------------------- what others see


def test_it_says_where_it_is(files: BucketFiles, store: SimulatedStore) -> None:
    assert files.url == store.url
    assert store.url in repr(files)
    assert files.host
    assert not files.take_over


def test_others_see_a_file_when_it_is_synced_and_not_before(files: BucketFiles, others: BucketFiles) -> None:
    file = files.create("d/a")
    file.append([b"abc"])
    assert others.list("d") == []
    with pytest.raises(FileNotFoundError):
        others.open("d/a")

    file.sync_data()

    assert others.list("d") == ["a"]
    assert read(others, "d/a") == b"abc"


def test_an_empty_file_that_is_synced_is_an_object(files: BucketFiles, others: BucketFiles) -> None:
    files.create("d/a").sync_all()

    assert others.list("d") == ["a"]
    assert read(others, "d/a") == b""


def test_what_was_closed_without_a_sync_is_seen_here_and_nowhere_else(
    files: BucketFiles, others: BucketFiles, store: SimulatedStore
) -> None:
    file = files.create("d/a")
    file.append([b"abc"])
    file.close()

    assert read(files, "d/a") == b"abc"
    assert store.names() == []
    again = files.open("d/a", writable=True)
    again.sync_all()
    assert read(others, "d/a") == b"abc"


def test_a_sync_without_a_change_asks_for_nothing(files: BucketFiles, store: SimulatedStore) -> None:
    file = files.create("d/a")
    file.append([b"abc"])

    assert requests(store, file.sync_data) == ["put_if_absent"]
    assert requests(store, file.sync_all) == []
    file.append([b"d"])
    assert requests(store, file.sync_all) == ["put_if_match"]
    assert store.contents("d/a") == b"abcd"


def test_of_two_who_create_one_name_the_second_to_sync_is_told(files: BucketFiles, others: BucketFiles) -> None:
    one, two = files.create("d/a"), others.create("d/a")
    one.append([b"one"])
    two.append([b"two"])

    one.sync_all()

    with pytest.raises(FileExistsError):
        two.sync_all()
    assert read(files, "d/a") == b"one"
    with pytest.raises(FileExistsError):
        others.create("d/a")


def test_a_file_that_another_process_has_is_not_created(files: BucketFiles, others: BucketFiles) -> None:
    write(files, "d/a", b"abc")

    with pytest.raises(FileExistsError):
        others.create("d/a")


def test_a_file_that_was_changed_by_another_is_not_written_over(files: BucketFiles, others: BucketFiles) -> None:
    write(files, "d/a", b"abc")
    here, there = files.open("d/a", writable=True), others.open("d/a", writable=True)
    here.append([b"here"])
    there.append([b"there"])

    there.sync_data()

    with pytest.raises(OSError, match="d/a") as caught:
        here.sync_data()
    assert caught.value.errno == errno.ESTALE
    assert read(files_of(files.objects), "d/a") == b"abcthere"  # type: ignore[arg-type]


def test_a_file_that_was_removed_by_another_does_not_come_back(files: BucketFiles, others: BucketFiles) -> None:
    write(files, "d/a", b"abc")
    file = files.open("d/a", writable=True)
    file.append([b"d"])

    others.unlink("d/a")

    with pytest.raises(OSError, match="d/a") as caught:
        file.sync_data()
    assert caught.value.errno == errno.ESTALE


def test_a_file_that_lost_its_name_is_not_put(files: BucketFiles, store: SimulatedStore) -> None:
    file = files.create("d/a")
    file.append([b"abc"])
    files.unlink("d/a")

    assert requests(store, file.sync_all) == []
    assert store.names() == []


def test_what_is_durable_and_closed_is_no_longer_kept_in_memory(files: BucketFiles, others: BucketFiles) -> None:
    write(files, "d/a", b"abc")
    others.unlink("d/a")
    write(others, "d/a", b"another")

    assert read(files, "d/a") == b"another"


def test_a_file_that_nobody_closed_is_let_go_with_its_handle(files: BucketFiles, others: BucketFiles) -> None:
    file = files.create("d/a")
    file.sync_all()
    del file
    others.unlink("d/a")

    assert files.list("d") == []
    with pytest.raises(FileNotFoundError):
        files.open("d/a")


# ------------------------------------------------------------------------------------------------ reading


@pytest.mark.parametrize(
    ("name", "size", "request_made"),
    [("d/a.idx", 3 << 20, "get"), ("d/a", 0, "get"), ("d/a.seg", HEAD_BYTES - 1, "get_range")],
)
def test_all_but_a_large_segment_is_read_whole_by_one_request(
    files: BucketFiles, others: BucketFiles, store: SimulatedStore, name: str, size: int, request_made: str
) -> None:
    data = os.urandom(size)
    write(files, name, data)

    def read_all() -> None:
        file = others.open(name)
        assert file.size() == len(data)
        assert file.read_at(0, len(data)) == data
        assert file.read_at(len(data) // 2, 0) == b""
        assert file.read_into(max(0, len(data) - 3), memoryview(bytearray(10))) == min(3, size)
        with pytest.raises(ShortRead):
            file.read_at(len(data), 1)

    assert requests(store, read_all) == [request_made]


@pytest.mark.parametrize("more", [0, 1, 1000])
def test_of_a_large_segment_one_request_a_read_is_made(
    files: BucketFiles, others: BucketFiles, store: SimulatedStore, more: int
) -> None:
    data = os.urandom(HEAD_BYTES + more)
    write(files, "d/a.seg", data)

    file = others.open("d/a.seg")

    assert requests(store, lambda: file.read_at(0, HEAD_BYTES)) == []
    assert requests(store, file.size) == ["size"]
    assert requests(store, file.size) == []
    assert file.size() == len(data)
    assert requests(store, lambda: file.read_into(HEAD_BYTES - 10, memoryview(bytearray(20)))) == ["get_range"]
    buffer = bytearray(20)
    assert file.read_into(HEAD_BYTES - 10, memoryview(buffer)) == min(20, 10 + more)
    assert bytes(buffer).startswith(data[HEAD_BYTES - 10 : HEAD_BYTES + 10])


def test_what_is_not_a_segment_is_read_as_it_was_when_it_was_opened(files: BucketFiles, others: BucketFiles) -> None:
    write(files, "d/a.idx", b"old")
    file = others.open("d/a.idx")

    files.create("d/a.idx.tmp").append([b"newer"])
    files.rename("d/a.idx.tmp", "d/a.idx")

    assert file.read_at(0, file.size()) == b"old"


def test_a_removed_segment_is_not_read_any_more_where_it_was_not_fetched(
    files: BucketFiles, others: BucketFiles
) -> None:
    write(files, "d/a.seg", bytes(HEAD_BYTES + 10))
    file = others.open("d/a.seg")

    files.unlink("d/a.seg")

    assert file.read_at(0, 10) == bytes(10)
    with pytest.raises(FileNotFoundError):
        file.read_at(HEAD_BYTES, 10)


def test_a_file_of_another_process_is_continued(files: BucketFiles, others: BucketFiles) -> None:
    write(files, "d/a", b"abc")

    again = others.open("d/a", writable=True)
    assert again.append([b"def"]) == 3
    again.write_at(0, b"A")
    again.truncate(5)
    again.sync_all()
    again.close()

    assert read(files, "d/a") == b"Abcde"


def test_a_file_is_not_opened_to_be_continued_where_there_is_none(files: BucketFiles, store: SimulatedStore) -> None:
    with pytest.raises(FileNotFoundError):
        files.open("d/a", writable=True)
    with pytest.raises(FileNotFoundError):
        files.open("d/a.tmp", writable=True)

    assert store.calls == [("get", "d/a")]


# -------------------------------------------------------------------------------------------------- names


def test_a_temporary_file_is_never_an_object(files: BucketFiles, others: BucketFiles, store: SimulatedStore) -> None:
    file = files.create("d/a.ckpt.tmp")
    file.append([b"abc"])
    file.sync_all()
    file.close()

    assert read(files, "d/a.ckpt.tmp") == b"abc"
    assert files.open("d/a.ckpt.tmp", writable=True).append([b"d"]) == 3
    with pytest.raises(FileExistsError):
        files.create("d/a.ckpt.tmp")
    with pytest.raises(FileNotFoundError):
        others.open("d/a.ckpt.tmp")
    files.unlink("d/a.ckpt.tmp")
    with pytest.raises(FileNotFoundError):
        files.unlink("d/a.ckpt.tmp")
    assert store.calls == []


def test_a_renamed_temporary_is_an_object_by_one_request(
    files: BucketFiles, others: BucketFiles, store: SimulatedStore
) -> None:
    for name in ("d/a.ckpt", "d/b.seg"):
        file = files.create(f"{name}.tmp")
        file.append([b"abc"])
        file.close()

        assert requests(store, lambda name=name: files.rename(f"{name}.tmp", name)) == ["put_if_absent"]  # type: ignore[misc]

        assert read(others, name) == b"abc"
        with pytest.raises(FileNotFoundError):
            files.open(f"{name}.tmp")
    assert files.list("d") == others.list("d") == ["a.ckpt", "b.seg"]


def test_a_renamed_segment_never_replaces_another(files: BucketFiles, others: BucketFiles) -> None:
    for where, data in ((files, b"the owner's"), (others, b"a late one's")):
        where.create("d/a.seg.tmp").append([data])
    files.rename("d/a.seg.tmp", "d/a.seg")

    with pytest.raises(FileExistsError):
        others.rename("d/a.seg.tmp", "d/a.seg")

    assert read(others, "d/a.seg") == b"the owner's"
    others.unlink("d/a.seg.tmp")
    others.create("d/a.seg.tmp").append([b"the owner's"])
    others.rename("d/a.seg.tmp", "d/a.seg")


def test_a_renamed_checkpoint_replaces_what_is_there(
    files: BucketFiles, others: BucketFiles, store: SimulatedStore
) -> None:
    write(others, "d/a.ckpt", b"old")
    files.create("d/a.ckpt.tmp").append([b"new"])

    assert requests(store, lambda: files.rename("d/a.ckpt.tmp", "d/a.ckpt")) == [
        "put_if_absent",
        "get",
        "put_if_match",
    ]

    assert read(others, "d/a.ckpt") == b"new"


def test_a_handle_goes_on_under_the_name_that_its_file_was_given(files: BucketFiles, others: BucketFiles) -> None:
    file = files.create("d/a.tmp")
    file.append([b"abc"])
    files.rename("d/a.tmp", "d/a")

    file.append([b"def"])
    file.sync_all()

    assert read(others, "d/a") == b"abcdef"


def test_a_handle_whose_file_was_replaced_is_not_put(files: BucketFiles, store: SimulatedStore) -> None:
    replaced = files.create("d/a")
    replaced.append([b"old"])
    files.create("d/a.tmp").append([b"new"])
    files.rename("d/a.tmp", "d/a")

    assert requests(store, replaced.sync_all) == []
    assert replaced.read_at(0, 3) == b"old"
    assert store.contents("d/a") == b"new"


def test_an_object_is_renamed_by_writing_it_under_its_new_name(
    files: BucketFiles, others: BucketFiles, store: SimulatedStore
) -> None:
    write(others, "d/a", b"abc")

    assert requests(store, lambda: files.rename("d/a", "d/b")) == ["get", "put_if_absent", "delete"]

    assert store.names() == ["d/b"]
    assert read(others, "d/b") == b"abc"


def test_a_rename_is_refused_where_it_would_be_lost(files: BucketFiles, store: SimulatedStore) -> None:
    write(files, "d/a", b"abc")

    with pytest.raises(ValueError, match="temporary"):
        files.rename("d/a", "d/a.tmp")
    with pytest.raises(FileNotFoundError):
        files.rename("d/b.tmp", "d/b")
    with pytest.raises(FileNotFoundError):
        files.rename("d/b", "d/b")

    assert store.names() == ["d/a"]


def test_what_is_not_there_is_unlinked_by_one_request(files: BucketFiles, store: SimulatedStore) -> None:
    assert requests(store, lambda: files.unlink("d/a")) == ["delete"]


def test_directories_and_room_cost_no_request(files: BucketFiles, store: SimulatedStore) -> None:
    files.make_directory("d/e")
    files.sync_directory("d")
    files.allocate("d/reserve", 1 << 20)

    assert store.calls == []
    assert files.list("d") == []


def test_a_list_is_paged_through(files: BucketFiles, store: SimulatedStore) -> None:
    names = [f"{number:08}" for number in range(2 * LIST_LIMIT)]
    for name in names:
        store.put(f"d/{name}", b"")

    assert requests(store, lambda: files.list("d")) == ["list_after"] * 3
    assert files.list("d") == names


def test_a_list_passes_over_what_lies_in_directories_below(files: BucketFiles, store: SimulatedStore) -> None:
    for number in range(5 * LIST_LIMIT):
        store.put(f"log/{number:020}", b"")
    for name in ("a", "log.x", "log/~", "log0", "x/y", "z"):
        store.put(name, b"")
    files.create("here.tmp")

    assert requests(store, lambda: files.list("")) == ["list_after"] * 2
    assert files.list("") == ["a", "here.tmp", "log", "log.x", "log0", "x", "z"]


def test_a_list_gets_through_a_directory_whose_names_sort_after_all_of_ours(
    files: BucketFiles, store: SimulatedStore
) -> None:
    for number in range(2 * LIST_LIMIT):
        store.put(f"d/~{number:08}", b"")
    store.put("e", b"")

    assert files.list("") == ["d", "e"]


# -------------------------------------------------------------------------------------- a store that is unsure


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.LATE, Fate.FAILED, Fate.CONFLICT, Fate.THROTTLED])
def test_no_verb_minds_a_request_of_which_nobody_knows_what_became(
    store: SimulatedStore, files: BucketFiles, fate: Fate
) -> None:
    def once(verb: str) -> None:
        store.next_fate(fate, verb=verb)

    once("size")
    file = files.create("d/a")
    file.append([b"abc"])
    once("put_if_absent")
    file.sync_all()
    file.append([b"d"])
    once("put_if_match")
    file.sync_all()
    file.close()
    once("get")
    files.open("d/a", writable=True).close()
    once("get")
    assert read(files, "d/a") == b"abcd"
    write(files, "e/a.seg", bytes(HEAD_BYTES))
    once("get_range")
    once("size")
    assert read(files, "e/a.seg") == bytes(HEAD_BYTES)
    once("list_after")
    assert files.list("d") == ["a"]
    for old, new in ((b"1", b"2"), (b"3", b"4")):
        files.create("d/b.tmp").append([old])
        once("put_if_absent")
        files.rename("d/b.tmp", "d/b")
        assert read(files, "d/b") == old
        files.create("d/b.tmp").append([new])
        once("put_if_match")
        files.rename("d/b.tmp", "d/b")
        assert read(files, "d/b") == new
    once("delete")
    files.unlink("d/a")
    assert files.list("d") == ["b"]


def test_a_rename_whose_reply_was_lost_is_known_again(files: BucketFiles, store: SimulatedStore) -> None:
    for name in ("d/a.ckpt", "d/a.seg"):
        files.create(f"{name}.tmp").append([b"abc"])
        store.next_fate(Fate.LOST)

        made = requests(store, lambda name=name: files.rename(f"{name}.tmp", name))  # type: ignore[misc]

        assert made == ["put_if_absent", "put_if_absent", "get"]


def test_a_put_that_is_done_late_does_not_undo_a_later_one(files: BucketFiles, store: SimulatedStore) -> None:
    store.faults = StoreFaults(late_arrives=0.0, late_vanishes=0.0)
    for data in (b"first", b"second", b"third"):
        store.next_fate(Fate.LATE, name="d/a")
        files.create("d/a.tmp").append([data])
        files.rename("d/a.tmp", "d/a")
    assert len(store.late_requests()) == 3

    store.deliver_late()

    assert read(files, "d/a") == b"third"


def test_a_store_that_does_not_answer_is_asked_again_for_a_while_and_then_named(store: SimulatedStore) -> None:
    pauses: list[float] = []
    files = BucketFiles(store, clock=ManualClock(), threads=False, pause=pauses.append)
    store.faults = StoreFaults(failed=1.0)

    with pytest.raises(StoreUnavailable, match=r"the store does not answer: .* d/a") as caught:
        files.open("d/a")

    # Who knows files takes it for a failed request, and whoever called for something to be tried again.
    assert {StoreUnsure, Unavailable} <= set(StoreUnavailable.__mro__)
    assert (caught.value.errno, caught.value.facts) == (errno.EAGAIN, {})
    assert len(store.calls) == TRIES
    assert len(pauses) == TRIES - 1
    assert 12 < sum(pauses) < 30
    assert pauses[0] < 0.11 and max(pauses) <= 5.0


def test_threads_wait_between_two_tries(store: SimulatedStore) -> None:
    files = BucketFiles(store, entropy=bytes)
    write(files, "d/a", b"abc")
    store.next_fate(Fate.FAILED)

    assert read(files, "d/a") == b"abc"


def test_a_name_that_comes_and_goes_is_given_up(files: BucketFiles, store: SimulatedStore) -> None:
    def flicker(verb: str, name: str) -> None:
        # Others put it before each of our puts, and remove it, or change it, before each look.
        store.before_call = None
        if verb in ("put_if_absent", "put_if_match"):
            store.put(name, os.urandom(8))
        elif name.endswith(".seg"):
            store.delete(name)
        else:
            store.put(name, os.urandom(8))
        store.before_call = flicker

    for name in ("d/a.seg", "d/a.ckpt"):
        files.create(f"{name}.tmp").append([b"abc"])
        store.before_call = flicker
        with pytest.raises(StoreUnavailable, match=name):
            files.rename(f"{name}.tmp", name)
        store.before_call = None
        assert read(files, f"{name}.tmp") == b"abc"


@pytest.mark.parametrize("seed", range(30))
def test_files_are_what_was_synced_on_any_unsure_store(seed: int) -> None:
    store = SimulatedStore(seed, faults=StoreFaults(0.05, 0.05, 0.05, 0.05, 0.05))
    files = files_of(store)
    kept: dict[str, bytes] = {}

    for number in range(30):
        name = f"d/{number % 7}.{('ckpt', 'idx', 'seg')[number % 3]}"
        data = f"{seed} {number}".encode()
        files.create(f"{name}.tmp").append([data])
        try:
            files.rename(f"{name}.tmp", name)
            kept[name] = data
        except FileExistsError:
            assert name.endswith(".seg") and name in kept
            files.unlink(f"{name}.tmp")

    assert {name: read(files_of(store), name) for name in kept} == kept
    assert files.list("d") == sorted(name.removeprefix("d/") for name in kept)


# ---------------------------------------------------------------------------------------- threads and forks


def test_two_threads_that_create_one_name_get_one_file(files: BucketFiles, store: SimulatedStore) -> None:
    outcomes: list[str] = []
    both = threading.Barrier(2)

    def meet(_verb: str, _name: str) -> None:
        both.wait(10)

    def create() -> None:
        try:
            files.create("d/a").append([b"abc"])
            outcomes.append("made")
        except FileExistsError:
            outcomes.append("taken")

    store.before_call = meet
    threads = [threading.Thread(target=create) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(outcomes) == ["made", "taken"]
    assert read(files, "d/a") == b"abc"


def test_a_handle_that_is_collected_under_the_guard_closes_itself(files: BucketFiles) -> None:
    file = files.create("d/a")
    file.sync_all()

    with files._guard:
        del file

    assert not files._drafts


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_child_has_none_of_its_parents_files(files: BucketFiles, store: SimulatedStore) -> None:
    write(files, "d/a", b"abc")
    file = files.open("d/a", writable=True)
    file.append([b"d"])
    reader = files.open("d/a")
    held, forked = threading.Event(), threading.Event()

    def hold() -> None:
        with files._guard:
            held.set()
            forked.wait(30)

    # A thread of the parent may hold the guard at the moment of the fork.
    holding = threading.Thread(target=hold)
    holding.start()
    assert held.wait(30)
    pid = os.fork()
    if not pid:
        os._exit(_look_as_child(files, file, reader))
    forked.set()
    holding.join()
    assert os.waitpid(pid, 0)[1] == 0
    file.sync_all()
    assert store.contents("d/a") == b"abcd"


def _look_as_child(files: BucketFiles, *handles: object) -> int:
    for handle in handles:
        try:
            handle.size()  # type: ignore[attr-defined]
            return 1
        except Closed as error:
            if "forked" not in str(error):
                return 2
        handle.close()  # type: ignore[attr-defined]
    return 0 if read(files, "d/a") == b"abc" else 3
