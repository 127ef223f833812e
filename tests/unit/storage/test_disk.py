"""What only a real disk has: descriptors, processes, short system calls and a full file system.

NOT HERE the verbs and their promises: tests/contract/test_files.py.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from headwater.errors import Closed
from headwater.storage import disk
from headwater.storage.disk import DiskFiles
from headwater.storage.files import LockHeld

# The children here do nothing but look at files, so it does not matter which threads they lost.
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")


@pytest.fixture
def files(tmp_path: Path) -> DiskFiles:
    return DiskFiles(tmp_path)


def open_descriptors(path: Path) -> list[int]:
    """The numbers under which this process has this file open."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{number}") == str(path):
                found.append(int(number))
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
    return found


needs_proc = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors are counted in /proc")


def in_child(check: Callable[[], None], forked: Callable[[], None] = lambda: None) -> None:
    """Run this in a forked child and fail if it raises there."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            check()
            code = 0
        finally:
            if code:
                os.write(write_end, traceback.format_exc().encode())
            os._exit(code)
    forked()
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(pid, 0)
    assert status == 0, said


# --------------------------------------------------------------------------------------------------- fork


def test_in_a_forked_child_every_open_file_is_closed(files: DiskFiles) -> None:
    writer = files.create("a")
    writer.append([b"abc"])
    reader = files.open("a")

    def check() -> None:
        for use in (
            lambda: writer.append([b"x"]),
            lambda: writer.write_at(0, b"x"),
            writer.sync_data,
            writer.sync_all,
            lambda: writer.truncate(0),
            lambda: reader.read_at(0, 3),
            lambda: reader.read_into(0, memoryview(bytearray(1))),
            reader.size,
        ):
            with pytest.raises(Closed, match="forked"):
                use()
        writer.close()
        reader.close()
        assert files.open("a").read_at(0, 3) == b"abc"

    in_child(check)

    assert writer.append([b"def"]) == 3
    assert reader.read_at(0, 6) == b"abcdef"


@needs_proc
def test_a_forked_child_keeps_no_descriptor(files: DiskFiles, tmp_path: Path) -> None:
    kept = [files.create("a"), files.lock("lock", "parent")]

    def check() -> None:
        assert open_descriptors(tmp_path / "a") == []
        assert open_descriptors(tmp_path / "lock") == []

    in_child(check)

    assert len(open_descriptors(tmp_path / "a")) == len(open_descriptors(tmp_path / "lock")) == 1
    assert len(kept) == 2


def test_a_forked_child_cannot_release_its_parents_lock(files: DiskFiles) -> None:
    lock = files.lock("lock", "parent")

    def check() -> None:
        with pytest.raises(LockHeld, match="parent"):
            files.lock("lock", "child")
        lock.release()
        with pytest.raises(LockHeld, match="parent"):
            files.lock("lock", "child")

    in_child(check)

    with pytest.raises(LockHeld, match="parent"):
        files.lock("lock", "another")
    lock.release()
    files.lock("lock", "another").release()


def test_a_lock_ends_with_its_release_though_a_child_lives_on(files: DiskFiles) -> None:
    lock = files.lock("lock", "parent")
    go_on, stop = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(stop)
        os.read(go_on, 1)
        os._exit(0)

    try:
        lock.release()
        files.lock("lock", "another").release()
    finally:
        os.close(stop)
        os.close(go_on)
        os.waitpid(pid, 0)


def test_a_child_that_lives_on_does_not_keep_the_lock_of_a_parent_that_ended(files: DiskFiles, tmp_path: Path) -> None:
    program = """
import os, sys
from headwater.storage.disk import DiskFiles
lock = DiskFiles(sys.argv[1]).lock("lock", "parent")
if os.fork() == 0:
    print("child", flush=True)
    sys.stdin.read()
os._exit(0)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        assert parent.stdout.readline() == b"child\n"
        parent.wait()

        files.lock("lock", "another").release()

        parent.stdin.close()


def test_a_fork_waits_until_an_opening_file_is_noted_down(files: DiskFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    opening, forked = threading.Event(), threading.Event()
    real_open = os.open
    descriptors: list[int] = []

    def slow_open(path: str, flags: int, mode: int = 0o777) -> int:
        descriptors.append(real_open(path, flags, mode))
        opening.set()
        assert not forked.wait(0.2), "the fork did not wait"
        return descriptors[-1]

    monkeypatch.setattr(os, "open", slow_open)
    kept: list[object] = []
    opener = threading.Thread(target=lambda: kept.append(files.create("a")))
    opener.start()
    opening.wait()

    def check() -> None:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptors[0])

    in_child(check, forked=forked.set)
    opener.join()

    assert len(kept) == 1


# -------------------------------------------------------------------------------------------- descriptors


@needs_proc
def test_every_descriptor_is_closed_on_exec(files: DiskFiles, tmp_path: Path) -> None:
    kept = [files.create("a"), files.open("a"), files.open("a", writable=True), files.lock("lock", "me")]

    numbers = open_descriptors(tmp_path / "a") + open_descriptors(tmp_path / "lock")

    assert len(numbers) == len(kept)
    assert not any(os.get_inheritable(number) for number in numbers)


@needs_proc
def test_a_closed_or_forgotten_file_gives_its_descriptor_back(files: DiskFiles, tmp_path: Path) -> None:
    closed, forgotten = files.create("a"), files.open("a")
    assert len(open_descriptors(tmp_path / "a")) == 2

    closed.close()
    del forgotten
    gc.collect()

    assert open_descriptors(tmp_path / "a") == []


@needs_proc
def test_calls_that_fail_leave_no_descriptor_open(files: DiskFiles, tmp_path: Path) -> None:
    files.make_directory("d")
    lock = files.lock("lock", "me")
    before = len(os.listdir("/proc/self/fd"))

    for call in (
        lambda: files.open("d"),
        lambda: files.open("absent"),
        lambda: files.lock("lock", "other"),
        lambda: files.allocate("lock", 1),
        lambda: files.allocate("huge", 1 << 62),
        lambda: files.sync_directory("lock"),
    ):
        with pytest.raises(OSError, match=r"."):
            call()
    files.sync_directory("d")
    files.make_directory("d/e")
    files.allocate("reserve", 10)

    assert len(os.listdir("/proc/self/fd")) == before
    assert sorted(os.listdir(tmp_path)) == ["d", "lock", "reserve"]
    lock.release()


def test_a_file_that_is_closed_while_it_is_read_is_read_to_the_end(
    files: DiskFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = files.create("a")
    file.append([b"abc"])
    real_pread = os.pread
    others = []

    def pread_after_a_close(fd: int, size: int, position: int) -> bytes:
        file.close()
        other = files.create("other")
        other.append([b"xyz"])
        others.append(other)
        return real_pread(fd, size, position)

    monkeypatch.setattr(os, "pread", pread_after_a_close)

    assert file.read_at(0, 3) == b"abc"


# ------------------------------------------------------------------------------------ short system calls


@pytest.fixture
def three_bytes_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a system that reads and writes at most three bytes in a call."""
    pwrite, pread = os.pwrite, os.pread

    def pwritev(fd: int, buffers: list[bytes], position: int) -> int:
        return pwrite(fd, b"".join(buffers)[:3], position)

    def preadv(fd: int, buffers: list[memoryview], position: int) -> int:
        data = pread(fd, 3, position)[: buffers[0].nbytes]
        buffers[0].cast("B")[: len(data)] = data
        return len(data)

    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: pwrite(fd, bytes(data)[:3], position))
    monkeypatch.setattr(os, "pwritev", pwritev)
    monkeypatch.setattr(os, "pread", lambda fd, size, position: pread(fd, min(size, 3), position))
    monkeypatch.setattr(os, "preadv", preadv)


@pytest.mark.usefixtures("three_bytes_at_a_time")
def test_short_writes_and_reads_are_continued(files: DiskFiles, tmp_path: Path) -> None:
    file = files.create("a")

    assert file.append([b"ab", b"", b"cdefghi", bytearray(b"j"), memoryview(b"klmn")]) == 0
    assert file.append([b"opqrstuvwxyz"]) == 14
    file.write_at(2, b"CDEFGH")

    assert (tmp_path / "a").read_bytes() == b"abCDEFGHijklmnopqrstuvwxyz"
    assert file.read_at(1, 20) == b"bCDEFGHijklmnopqrstu"
    buffer = bytearray(40)
    assert file.read_into(20, memoryview(buffer)) == 6
    assert file.read_into(0, memoryview(buffer).cast("I")[:2]) == 8
    assert buffer[:8] == b"abCDEFGH"


def test_a_system_that_writes_nothing_is_an_error_and_no_endless_loop(
    files: DiskFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = files.create("a")
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, position: 0)
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: 0)

    with pytest.raises(OSError, match="wrote nothing"):
        file.append([b"abc"])
    with pytest.raises(OSError, match="wrote nothing"):
        file.write_at(0, b"abc")


def test_an_append_makes_one_call_for_each_thousand_buffers(files: DiskFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    file = files.create("a")
    counts = []
    pwritev = os.pwritev

    def counted(fd: int, buffers: list[bytes], position: int) -> int:
        counts.append(len(buffers))
        return pwritev(fd, buffers, position)

    monkeypatch.setattr(os, "pwritev", counted)
    file.append([b"x"] * 2_500)
    file.append([b"x" * (1 << 20)])

    assert counts == [1_000, 1_000, 500, 1]


# -------------------------------------------------------------------------------------------------- syncs


def synced_paths(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every path that is given to fsync from now on."""
    paths: list[str] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        paths.append(os.readlink(f"/proc/self/fd/{fd}"))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noted)
    return paths


@needs_proc
def test_new_directories_are_synced_in_their_parents_up_to_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = synced_paths(monkeypatch)

    DiskFiles(tmp_path / "new" / "root").make_directory("x/y")

    assert (tmp_path / "new/root/x/y").is_dir()
    assert paths == [str(tmp_path / below) for below in ("", "new", "new/root", "new/root/x")]


@needs_proc
def test_a_directory_that_was_there_is_synced_too(
    files: DiskFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d").mkdir()
    paths = synced_paths(monkeypatch)

    files.make_directory("d")

    assert paths == [str(tmp_path.parent), str(tmp_path)]


def test_a_root_whose_parent_we_may_not_read_is_taken_as_it_is(
    files: DiskFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_open = os.open

    def refuse(path: str, flags: int, mode: int = 0o777) -> int:
        if path == str(tmp_path.parent):
            raise PermissionError(errno.EACCES, "Permission denied")
        return real_open(path, flags, mode)

    monkeypatch.setattr(os, "open", refuse)
    files.make_directory("d")

    assert (tmp_path / "d").is_dir()


@pytest.mark.parametrize("verb", ["sync_data", "sync_all", "sync_directory", "make_directory"])
def test_a_sync_that_fails_is_not_hidden_and_not_repeated(
    verb: str, files: DiskFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = files.create("a")
    calls = []

    def fail(fd: int) -> NoReturn:
        calls.append(fd)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    monkeypatch.setattr(os, "fdatasync", fail)
    verbs: dict[str, Callable[[], None]] = {
        "sync_data": file.sync_data,
        "sync_all": file.sync_all,
        "sync_directory": lambda: files.sync_directory(""),
        "make_directory": lambda: files.make_directory("d"),
    }

    with pytest.raises(OSError, match="Input/output"):
        verbs[verb]()

    assert len(calls) == 1


# ---------------------------------------------------------------------------------------------- full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[DiskFiles]:
    """A file system of 1 MiB."""
    mounted = tmp_path / "small"
    mounted.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mounted)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"needs the right to mount a small tmpfs: {error}")
    try:
        yield DiskFiles(mounted)
    finally:
        gc.collect()
        subprocess.run(["umount", str(mounted)], check=True)


def test_a_full_disk_refuses_an_append_and_takes_the_next_after_a_cut(small_disk: DiskFiles) -> None:
    file = small_disk.create("a")
    file.append([b"good"])

    with pytest.raises(OSError, match="No space") as caught:
        file.append([b"x" * (1 << 20)] * 2)
    assert caught.value.errno == errno.ENOSPC
    assert file.size() > 4
    file.truncate(4)
    file.sync_data()

    assert file.append([b"next"]) == 4
    assert file.read_at(0, 8) == b"goodnext"
    file.close()


def test_an_allocation_on_a_full_disk_leaves_no_file_and_takes_no_room(small_disk: DiskFiles) -> None:
    with pytest.raises(OSError, match="No space"):
        small_disk.allocate("reserve", 2 << 20)

    assert small_disk.list("") == []
    small_disk.allocate("reserve", 1 << 20)
    with pytest.raises(OSError, match="No space"):
        small_disk.allocate("more", 4_096)
    assert small_disk.list("") == ["reserve"]


def test_a_lock_file_that_is_there_can_be_locked_on_a_full_disk(small_disk: DiskFiles) -> None:
    small_disk.lock("lock", "before").release()
    file = small_disk.create("a")
    with pytest.raises(OSError, match="No space"):
        file.append([bytes(2 << 20)])

    lock = small_disk.lock("lock", "after, with a note that is longer")

    with pytest.raises(LockHeld, match="after, with a note that is longer"):
        small_disk.lock("lock", "another")
    lock.release()
    file.close()


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL])
def test_where_blocks_cannot_be_reserved_zeroes_are_written(
    number: int, files: DiskFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(fd: int, position: int, size: int) -> NoReturn:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", unsupported)
    size = disk.ZEROES_PER_WRITE_BYTES * 2 + 5
    files.allocate("reserve", size)

    assert (tmp_path / "reserve").read_bytes() == bytes(size)
    assert (tmp_path / "reserve").stat().st_blocks * 512 >= size


def test_an_allocation_takes_its_blocks(files: DiskFiles, tmp_path: Path) -> None:
    files.allocate("reserve", 1 << 20)

    assert (tmp_path / "reserve").stat().st_blocks * 512 >= 1 << 20


# -------------------------------------------------------------------------------------------------- locks


def test_a_lock_file_that_is_removed_while_we_wait_for_it_is_not_the_lock(
    files: DiskFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_flock = fcntl.flock
    removals = [tmp_path / "pin", tmp_path / "pin"]

    def flock_after_a_removal(fd: int, operation: int) -> None:
        if removals:
            removals.pop().unlink()
        real_flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", flock_after_a_removal)
    lock = files.lock("pin", "me")

    assert not removals
    with pytest.raises(LockHeld, match="me"):
        files.lock("pin", "another")
    lock.release()


def test_a_lock_that_is_forgotten_is_released(files: DiskFiles) -> None:
    lock = files.lock("lock", "first")
    del lock
    gc.collect()

    files.lock("lock", "second").release()


def test_a_note_is_cut_to_the_length_of_a_lock_file(files: DiskFiles, tmp_path: Path) -> None:
    lock = files.lock("lock", "n" * 500)

    with pytest.raises(LockHeld) as caught:
        files.lock("lock", "another")

    assert caught.value.holder == "n" * (disk.NOTE_SIZE_BYTES - 1)
    assert (tmp_path / "lock").stat().st_size == disk.NOTE_SIZE_BYTES
    lock.release()


def test_a_root_given_relatively_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files = DiskFiles("root")
    monkeypatch.chdir("/")

    files.make_directory("d")

    assert (tmp_path / "root/d").is_dir()
    assert repr(files) == f"DiskFiles('{tmp_path}/root')"
