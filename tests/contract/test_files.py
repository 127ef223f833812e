"""What every implementation of Files promises, as far as it shows without a power loss.

Runs over the real disk, over the simulated files, and over files in a bucket: in the memory of one process, and by way
of a store, simulated and real, from one process to another.  Not all sentences hold everywhere (bucket_files.py says
what holds instead):
on_a_disk       directories that are there without a file, a disk that is full, room that is taken beforehand, and what
                would cost a request that no caller needs
in_one_process  open handles that see what is written later, while it is, or see a file that was removed
NOT HERE what a power loss leaves (tests/unit/storage/test_simulated.py), what only a real disk has
(tests/unit/storage/test_disk.py), and what only a bucket has (tests/unit/storage/test_bucket_files.py).
"""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import count
from pathlib import Path

import pytest

from headwater.clock import ManualClock
from headwater.errors import Closed
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.disk import DiskFiles
from headwater.storage.files import Files, LockHeld, ShortRead
from headwater.storage.s3 import S3Objects
from headwater.storage.simulated import SimulatedFiles
from headwater.storage.simulated_store import SimulatedStore
from tests.contract.synced_files import SyncedFiles
from tests.servers.stores import s3_server, store_kinds
from tests.servers.versitygw import S3Server


@dataclass(frozen=True)
class World:
    """Some files, and a way to let writes stop at a size of the file: part of the bytes, then an error."""

    files: Files
    full_at: Callable[[int], AbstractContextManager[None]]


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def disk_world(request: pytest.FixtureRequest) -> World:
    return World(DiskFiles(request.getfixturevalue("tmp_path")), file_size_limit)


def simulated_world(_request: pytest.FixtureRequest) -> World:
    files = SimulatedFiles()

    @contextmanager
    def capacity(size: int) -> Iterator[None]:
        files.capacity_bytes = size
        yield
        files.capacity_bytes = None

    return World(files, capacity)


def bucket_world(_request: pytest.FixtureRequest) -> World:
    return World(BucketFiles(SimulatedStore(), clock=ManualClock(), threads=False), never_full)


def synced_world(_request: pytest.FixtureRequest) -> World:
    return World(SyncedFiles(SimulatedStore()), never_full)


def server_world(kind: str, request: pytest.FixtureRequest) -> World:
    server: S3Server = request.getfixturevalue("servers")(kind)
    with server.in_environment():
        return World(SyncedFiles(S3Objects(server.url(f"files/{next(numbers)}"))), never_full)


def never_full(_size: int) -> AbstractContextManager[None]:
    raise NotImplementedError("a store is never full")


numbers = count()


@pytest.fixture(scope="module")
def servers() -> Iterator[Callable[[str], S3Server]]:
    """S3 servers, each begun when the first of this module asks for it."""
    with ExitStack() as running:
        yield cache(lambda kind: running.enter_context(s3_server(kind)))


DISKS = [pytest.param(disk_world, id="disk"), pytest.param(simulated_world, id="simulated")]
IN_MEMORY = pytest.param(bucket_world, id="bucket")
SERVERS = [pytest.param(partial(server_world, kind), id=kind) for kind in store_kinds()]
STORES = [pytest.param(synced_world, id="synced"), *SERVERS]


@pytest.fixture(params=[*DISKS, IN_MEMORY, *STORES])
def world(request: pytest.FixtureRequest) -> World:
    made: World = request.param(request)
    made.files.make_directory("d")
    return made


on_a_disk = pytest.mark.parametrize("world", DISKS, indirect=True)
in_one_process = pytest.mark.parametrize("world", [*DISKS, IN_MEMORY], indirect=True)


@pytest.fixture
def files(world: World) -> Files:
    return world.files


# ------------------------------------------------------------------------------------ create, open, list


def test_a_created_file_is_empty_and_can_be_found(files: Files) -> None:
    made = files.create("d/a")

    assert made.name == "d/a"
    assert made.size() == 0
    assert files.list("d") == ["a"]
    assert files.open("d/a").size() == 0


def test_creating_a_name_that_is_taken_raises_and_changes_nothing(files: Files) -> None:
    files.create("d/a").append([b"first"])

    with pytest.raises(FileExistsError):
        files.create("d/a")

    assert files.open("d/a").read_at(0, 5) == b"first"


@on_a_disk
def test_a_file_is_not_created_in_a_directory_that_nobody_made(files: Files) -> None:
    with pytest.raises(FileNotFoundError):
        files.create("nowhere/a")

    assert files.list("nowhere") == []


def test_opening_what_is_absent_raises(files: Files) -> None:
    with pytest.raises(FileNotFoundError):
        files.open("d/a")
    with pytest.raises(FileNotFoundError):
        files.open("d/a", writable=True)

    assert files.list("d") == []


@on_a_disk
def test_opening_a_directory_raises(files: Files) -> None:
    with pytest.raises(IsADirectoryError):
        files.open("d")


def test_a_list_is_sorted_and_holds_directories_too(files: Files) -> None:
    for name in ("d/c", "d/a", "d/b"):
        files.create(name)
    files.make_directory("d/aa/below")
    files.create("d/aa/below/file")

    assert files.list("d") == ["a", "aa", "b", "c"]
    assert files.list("") == ["d"]


def test_the_list_of_an_absent_directory_is_empty(files: Files) -> None:
    assert files.list("absent") == []
    assert files.list("d/absent") == []


@on_a_disk
def test_the_list_of_a_file_raises(files: Files) -> None:
    files.create("d/a")

    with pytest.raises(NotADirectoryError):
        files.list("d/a")


# ------------------------------------------------------------------------------------------------ writing


def test_appends_follow_one_another_and_say_where_they_begin(files: Files) -> None:
    log = files.create("d/a")

    begins = [log.append([b"one", b"two"]), log.append([]), log.append([b""]), log.append([b"three"])]

    assert begins == [0, 6, 6, 6]
    assert log.size() == 11
    assert log.read_at(0, 11) == b"onetwothree"


def test_an_append_takes_bytes_bytearrays_and_views_of_any_item_size(files: Files) -> None:
    log = files.create("d/a")
    numbers = memoryview(bytearray(range(16))).cast("I")

    log.append([b"ab", bytearray(b"cd"), memoryview(b"xefx")[1:3], numbers, b"gh"])
    after = log.append([b"!"])

    assert after == 24
    assert log.read_at(0, 25) == b"abcdef" + bytes(range(16)) + b"gh!"


def test_one_append_takes_many_buffers(files: Files) -> None:
    log = files.create("d/a")
    buffers = [number.to_bytes(3, "big") for number in range(2_500)]

    log.append(buffers)
    after = log.append([b"end"])

    assert after == 7_500
    assert log.read_at(0, 7_503) == b"".join(buffers) + b"end"


def test_a_write_in_place_changes_only_its_bytes_and_not_the_end(files: Files) -> None:
    log = files.create("d/a")
    log.append([b"0123456789"])

    log.write_at(3, memoryview(b"abc"))
    log.write_at(4, b"")

    assert log.append([b"!"]) == 10
    assert log.read_at(0, 11) == b"012abc6789!"


def test_a_write_beyond_the_end_moves_the_end_and_leaves_zeroes_between(files: Files) -> None:
    log = files.create("d/a")
    log.append([b"ab"])

    log.write_at(4, b"cd")

    assert log.append([b"!"]) == 6
    assert log.read_at(0, 7) == b"ab\x00\x00cd!"


def test_a_file_that_is_opened_again_is_appended_at_its_end(files: Files) -> None:
    first = files.create("d/a")
    first.append([b"abc"])
    first.close()

    again = files.open("d/a", writable=True)

    assert again.append([b"def"]) == 3
    assert again.read_at(0, 6) == b"abcdef"


def test_a_file_that_was_opened_to_read_refuses_every_write(files: Files) -> None:
    files.create("d/a").append([b"abc"])
    reader = files.open("d/a")

    for write in (
        lambda: reader.append([b"x"]),
        lambda: reader.write_at(0, b"x"),
        lambda: reader.truncate(1),
    ):
        with pytest.raises(OSError, match=r"\["):
            write()

    assert reader.read_at(0, 3) == b"abc"
    assert reader.size() == 3


@on_a_disk
@pytest.mark.parametrize("buffers", [[b"x" * 1_000], [b"x" * 10] * 100, [b"x"] * 2_500], ids=["one", "some", "many"])
def test_an_append_that_fails_half_way_does_not_move_the_end(world: World, buffers: list[bytes]) -> None:
    log = world.files.create("d/a")
    log.append([b"good"])

    with world.full_at(904), pytest.raises(OSError, match=r"too large|No space"):
        log.append(buffers)

    assert log.size() == 904, "what fitted was written"
    assert log.append([b"next"]) == 4
    assert log.read_at(0, 8) == b"goodnext"


@on_a_disk
def test_after_an_append_that_failed_the_file_can_be_cut_to_its_last_good_byte(world: World) -> None:
    log = world.files.create("d/a")
    log.append([b"good"])
    with world.full_at(500), pytest.raises(OSError, match=r"too large|No space"):
        log.append([b"x" * 1_000])

    log.truncate(4)

    assert log.size() == 4
    assert log.append([b"next"]) == 4
    assert world.files.open("d/a").read_at(0, 8) == b"goodnext"


@on_a_disk
def test_a_write_in_place_that_fails_half_way_raises_and_does_not_move_the_end(world: World) -> None:
    log = world.files.create("d/a")
    log.append([b"good"])

    with world.full_at(500), pytest.raises(OSError, match=r"too large|No space"):
        log.write_at(2, b"x" * 1_000)

    assert log.append([b"next"]) == 4


# ------------------------------------------------------------------------------------------------ reading


def test_a_read_gives_exactly_what_was_asked_for_or_raises(files: Files) -> None:
    log = files.create("d/a")
    log.append([b"0123456789"])

    assert log.read_at(2, 3) == b"234"
    assert log.read_at(0, 10) == b"0123456789"
    assert log.read_at(10, 0) == b""
    for position, size in ((0, 11), (9, 2), (10, 1), (500, 1)):
        with pytest.raises(ShortRead, match="d/a"):
            log.read_at(position, size)


def test_reading_into_a_buffer_stops_only_where_the_file_ends(files: Files) -> None:
    log = files.create("d/a")
    log.append([b"0123456789"])
    buffer = bytearray(b"........")

    assert log.read_into(0, memoryview(buffer)) == 8
    assert buffer == b"01234567"
    assert log.read_into(7, memoryview(buffer)) == 3
    assert buffer == b"78934567"
    assert log.read_into(10, memoryview(buffer)) == 0
    assert log.read_into(99, memoryview(buffer)) == 0
    assert log.read_into(0, memoryview(bytearray())) == 0
    assert buffer == b"78934567"


@in_one_process
def test_another_handle_reads_what_was_appended_without_a_sync(files: Files) -> None:
    log = files.create("d/a")
    reader = files.open("d/a")

    log.append([b"abc"])

    assert reader.size() == 3
    assert reader.read_at(0, 3) == b"abc"


@in_one_process
def test_many_readers_see_whole_bytes_while_one_writer_appends(files: Files) -> None:
    log = files.create("d/a")
    block = bytes(range(256)) * 4
    known = [0]
    wrong: list[str] = []
    done = threading.Event()

    def read() -> None:
        buffer = bytearray(len(block))
        while not done.is_set():
            end = known[0]
            if end and log.read_at(end - len(block), len(block)) != block:
                wrong.append(f"read_at below {end}")
            if end and (log.read_into(0, memoryview(buffer)) != len(block) or buffer != block):
                wrong.append(f"read_into below {end}")

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for _ in range(300):
        known[0] = log.append([block]) + len(block)
    done.set()
    for reader in readers:
        reader.join()

    assert not wrong
    assert log.size() == 300 * len(block)


# ---------------------------------------------------------------------------------------- truncate, close


def test_a_cut_file_goes_on_at_its_new_end(files: Files) -> None:
    log = files.create("d/a")
    log.append([b"0123456789"])

    log.truncate(4)

    assert log.size() == 4
    assert log.append([b"ab"]) == 4
    assert log.read_at(0, 6) == b"0123ab"
    with pytest.raises(ShortRead):
        log.read_at(0, 7)


def test_a_file_is_never_cut_longer(files: Files) -> None:
    log = files.create("d/a")
    log.append([b"0123"])

    with pytest.raises(ValueError, match="4 bytes"):
        log.truncate(5)
    log.truncate(4)

    assert log.size() == 4


def test_syncs_change_nothing_that_a_process_can_see(files: Files) -> None:
    log = files.create("d/a")
    log.append([b"abc"])

    log.sync_data()
    log.sync_all()
    files.sync_directory("d")
    files.sync_directory("")
    files.open("d/a").sync_data()

    assert files.list("d") == ["a"]
    assert log.append([b"d"]) == 3
    assert log.read_at(0, 4) == b"abcd"


def test_a_closed_file_refuses_every_use_but_a_second_close(files: Files) -> None:
    log = files.create("d/a")
    log.append([b"abc"])
    log.close()

    for use in (
        lambda: log.append([b"x"]),
        lambda: log.write_at(0, b"x"),
        lambda: log.read_at(0, 1),
        lambda: log.read_into(0, memoryview(bytearray(1))),
        log.sync_data,
        log.sync_all,
        lambda: log.truncate(0),
        log.size,
    ):
        with pytest.raises(Closed, match="d/a"):
            use()
    log.close()

    assert files.open("d/a").read_at(0, 3) == b"abc"


# ------------------------------------------------------------------------------------------------- names


def test_a_rename_moves_the_file_and_replaces_what_has_the_new_name(files: Files) -> None:
    files.create("d/old").append([b"new bytes"])
    files.create("d/name").append([b"old bytes"])

    files.rename("d/old", "d/name")

    assert files.list("d") == ["name"]
    assert files.open("d/name").read_at(0, 9) == b"new bytes"


def test_a_handle_follows_its_file_through_a_rename(files: Files) -> None:
    log = files.create("d/old")
    replaced = files.create("d/name")
    replaced.append([b"replaced"])

    files.rename("d/old", "d/name")
    log.append([b"abc"])

    assert files.open("d/name").read_at(0, 3) == b"abc"
    assert replaced.read_at(0, 8) == b"replaced"


def test_a_rename_onto_itself_changes_nothing(files: Files) -> None:
    files.create("d/a").append([b"abc"])

    files.rename("d/a", "d/a")

    assert files.open("d/a").read_at(0, 3) == b"abc"


def test_a_rename_of_what_is_absent_or_into_another_directory_raises(files: Files) -> None:
    files.make_directory("e")
    files.create("d/a")

    with pytest.raises(FileNotFoundError):
        files.rename("d/b", "d/c")
    with pytest.raises(ValueError, match="one directory"):
        files.rename("d/a", "e/a")

    assert files.list("d") == ["a"]
    assert files.list("e") == []


@in_one_process
def test_a_removed_file_is_still_read_and_written_by_open_handles(files: Files) -> None:
    log = files.create("d/a")
    log.append([b"abc"])
    reader = files.open("d/a")

    files.unlink("d/a")
    log.append([b"def"])

    assert files.list("d") == []
    assert reader.read_at(0, 6) == b"abcdef"
    with pytest.raises(FileNotFoundError):
        files.open("d/a")


def test_a_removed_name_can_be_made_anew_and_is_another_file(files: Files) -> None:
    old = files.create("d/a")
    old.append([b"old"])

    files.unlink("d/a")
    files.create("d/a").append([b"new"])

    assert old.read_at(0, 3) == b"old"
    assert files.open("d/a").read_at(0, 3) == b"new"


@on_a_disk
def test_removing_what_is_absent_raises(files: Files) -> None:
    with pytest.raises(FileNotFoundError):
        files.unlink("d/a")


@on_a_disk
def test_a_directory_is_made_with_its_parents_and_making_it_again_is_nothing(files: Files) -> None:
    files.make_directory("x/y/z")
    files.create("x/y/z/a")
    files.make_directory("x/y/z")
    files.make_directory("x")
    files.make_directory("")

    assert files.list("x/y") == ["z"]
    assert files.list("x/y/z") == ["a"]


@on_a_disk
def test_a_directory_is_not_made_where_a_file_is(files: Files) -> None:
    files.create("d/a")

    with pytest.raises(NotADirectoryError):
        files.make_directory("d/a")
    with pytest.raises(NotADirectoryError):
        files.make_directory("d/a/b")


@on_a_disk
def test_syncing_a_directory_that_is_absent_raises(files: Files) -> None:
    with pytest.raises(FileNotFoundError):
        files.sync_directory("absent")


# ---------------------------------------------------------------------------------------------- allocate


@on_a_disk
@pytest.mark.parametrize("size", [0, 1, 512, 3_000_001])
def test_an_allocated_file_has_its_size_in_zeroes(files: Files, size: int) -> None:
    files.allocate("d/reserve", size)

    reserve = files.open("d/reserve", writable=True)
    assert reserve.size() == size
    assert reserve.read_at(0, size) == bytes(size)
    assert reserve.append([b"x"]) == size


@on_a_disk
def test_allocating_a_name_that_is_taken_raises_and_changes_nothing(files: Files) -> None:
    files.create("d/a").append([b"abc"])

    with pytest.raises(FileExistsError):
        files.allocate("d/a", 10)

    assert files.open("d/a").read_at(0, 3) == b"abc"
    assert files.open("d/a").size() == 3


@on_a_disk
def test_an_allocation_that_does_not_fit_leaves_no_file_behind(world: World) -> None:
    with world.full_at(1_000), pytest.raises(OSError, match=r"too large|No space") as caught:
        world.files.allocate("d/reserve", 1_001)

    assert caught.value.errno in (errno.EFBIG, errno.ENOSPC)
    assert world.files.list("d") == []
    world.files.allocate("d/reserve", 1_001)


# ------------------------------------------------------------------------------------------------- locks


def test_a_second_lock_is_refused_and_names_the_holder(files: Files) -> None:
    held = files.lock("d/lock", "pid 1234, a writer")

    for _ in range(2):
        with pytest.raises(LockHeld, match=r"d/lock is locked by pid 1234, a writer$") as caught:
            files.lock("d/lock", "pid 99")
        assert (caught.value.name, caught.value.holder) == ("d/lock", "pid 1234, a writer")

    held.release()


def test_a_released_lock_can_be_taken_and_names_its_new_holder(files: Files) -> None:
    files.lock("d/lock", "the first holder, with a long note").release()

    held = files.lock("d/lock", "the second")

    with pytest.raises(LockHeld, match=r"locked by the second$"):
        files.lock("d/lock", "the third")
    held.release()
    files.lock("d/lock", "the third").release()


def test_releasing_twice_does_not_take_the_lock_from_its_next_holder(files: Files) -> None:
    first = files.lock("d/lock", "first")
    first.release()
    second = files.lock("d/lock", "second")

    first.release()

    with pytest.raises(LockHeld, match="second"):
        files.lock("d/lock", "third")
    second.release()


def test_locks_of_two_names_do_not_meet(files: Files) -> None:
    a = files.lock("d/a", "one")
    b = files.lock("d/b", "two")

    a.release()

    with pytest.raises(LockHeld, match="two"):
        files.lock("d/b", "three")
    b.release()
    assert files.list("d") == ["a", "b"]


def test_a_lock_file_that_was_removed_is_locked_anew(files: Files) -> None:
    old = files.lock("d/pin", "old")
    files.unlink("d/pin")

    new = files.lock("d/pin", "new")
    old.release()

    with pytest.raises(LockHeld, match="new"):
        files.lock("d/pin", "other")
    new.release()


@on_a_disk
def test_a_lock_is_not_taken_in_a_directory_that_nobody_made(files: Files) -> None:
    with pytest.raises(FileNotFoundError):
        files.lock("nowhere/lock", "me")


LOCK_IN_ANOTHER_PROCESS = """
import sys
from headwater.storage.disk import DiskFiles
from headwater.storage.files import LockHeld
try:
    DiskFiles(sys.argv[1]).lock("lock", "the other process")
except LockHeld as error:
    print("held by", error.holder)
else:
    print("taken")
"""


def test_a_lock_on_disk_holds_against_another_process(tmp_path: Path) -> None:
    def try_elsewhere() -> str:
        command = [sys.executable, "-c", LOCK_IN_ANOTHER_PROCESS, str(tmp_path)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()

    held = DiskFiles(tmp_path).lock("lock", f"pid {os.getpid()}")

    assert try_elsewhere() == f"held by pid {os.getpid()}"
    held.release()
    assert try_elsewhere() == "taken"
