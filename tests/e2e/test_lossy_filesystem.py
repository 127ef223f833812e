"""The file system of the power-loss suite does what it says: what is synced stays, what is not can go.

A power loss that lost nothing would prove nothing; one that lost synced bytes would accuse the innocent.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.lossy_filesystem import SECTOR_SIZE, LossyMount, Order
from tests.e2e.machine import require_fuse

KEPT = ("nothing", "some", "everything")


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    require_fuse()
    return tmp_path / "backing", tmp_path / "mounted"


@pytest.fixture
def mounted(places: tuple[Path, Path]) -> Iterator[tuple[LossyMount, Path]]:
    with LossyMount(*places) as mount:
        yield mount, places[1]


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(descriptor)
    os.close(descriptor)


def write_synced(path: Path, data: bytes) -> None:
    with path.open("wb", buffering=0) as file:
        file.write(data)
        os.fdatasync(file.fileno())
    sync_directory(path.parent)


@pytest.mark.parametrize("kept", KEPT)
def test_what_was_synced_survives_and_nothing_else_has_to(places: tuple[Path, Path], seed: int, kept: str) -> None:
    synced, unsynced = random.Random(seed).randbytes(5_000), random.Random(seed + 1).randbytes(5_000)
    with LossyMount(*places) as mount:
        (places[1] / "log").mkdir()
        sync_directory(places[1])
        write_synced(places[1] / "log" / "file", synced)
        with (places[1] / "log" / "file").open("ab", buffering=0) as file:
            file.write(unsynced)

        loss = mount.lose_power(seed=seed, kept=kept)

    with LossyMount(*places):
        data = (places[1] / "log" / "file").read_bytes()
    assert data[:5_000] == synced
    if kept == "nothing":
        assert data == synced
        assert loss.sectors_dropped == 11, "the ten that are new, and the one that both share"
    elif kept == "everything":
        assert data == synced + unsynced
    else:
        assert loss.sectors_dropped + loss.sectors_kept == 11


@pytest.mark.parametrize("synced_name", [True, False])
def test_syncing_a_file_does_not_sync_its_name(places: tuple[Path, Path], seed: int, synced_name: bool) -> None:
    with LossyMount(*places) as mount:
        with (places[1] / "file").open("wb", buffering=0) as file:
            file.write(b"here")
            os.fsync(file.fileno())
        if synced_name:
            sync_directory(places[1])

        mount.lose_power(seed=seed, kept="nothing")

    with LossyMount(*places):
        assert (places[1] / "file").exists() == synced_name


@pytest.mark.parametrize("synced_name", [True, False])
def test_a_rename_and_an_unlink_count_from_the_sync_of_the_directory(
    places: tuple[Path, Path], seed: int, synced_name: bool
) -> None:
    root = places[1]
    with LossyMount(*places) as mount:
        write_synced(root / "new.tmp", b"new")
        write_synced(root / "old", b"old")
        write_synced(root / "gone", b"gone")
        (root / "new.tmp").rename(root / "old")
        (root / "gone").unlink()
        assert sorted(os.listdir(root)) == ["old"]
        if synced_name:
            sync_directory(root)

        mount.lose_power(seed=seed, kept="nothing")

    with LossyMount(*places):
        names = sorted(os.listdir(root))
        contents = {name: (root / name).read_bytes() for name in names}
    if synced_name:
        assert contents == {"old": b"new"}
    else:
        assert contents == {"new.tmp": b"new", "old": b"old", "gone": b"gone"}


def test_a_truncation_counts_from_the_sync_of_the_file(places: tuple[Path, Path], seed: int) -> None:
    with LossyMount(*places) as mount:
        write_synced(places[1] / "cut", b"x" * 3_000)
        write_synced(places[1] / "cut and synced", b"x" * 3_000)
        for name in ("cut", "cut and synced"):
            os.truncate(places[1] / name, 1_000)
            assert (places[1] / name).stat().st_size == 1_000
        with (places[1] / "cut and synced").open("rb+") as file:
            os.fdatasync(file.fileno())

        mount.lose_power(seed=seed, kept="nothing")

    with LossyMount(*places):
        assert (places[1] / "cut").read_bytes() == b"x" * 3_000
        assert (places[1] / "cut and synced").read_bytes() == b"x" * 1_000


def test_a_partial_loss_mixes_old_new_zero_and_garbage_by_whole_sectors(places: tuple[Path, Path], seed: int) -> None:
    sectors = 400
    with LossyMount(*places) as mount:
        write_synced(places[1] / "file", b"o" * (sectors * SECTOR_SIZE))
        with (places[1] / "file").open("rb+", buffering=0) as file:
            file.write(b"n" * (2 * sectors * SECTOR_SIZE))

        loss = mount.lose_power(seed=seed, kept="some")

    with LossyMount(*places):
        data = (places[1] / "file").read_bytes()
    found = [data[at : at + SECTOR_SIZE] for at in range(0, len(data), SECTOR_SIZE)]
    old, new = b"o" * SECTOR_SIZE, b"n" * SECTOR_SIZE
    assert set(found[:sectors]) == {old, new}, "what was durable is old or new"
    assert loss.sectors_dropped > 0
    assert loss.sectors_kept == found.count(new)
    assert old not in found[sectors:]


def test_the_same_seed_loses_the_same_bytes(tmp_path: Path, seed: int) -> None:
    require_fuse()
    results = []
    for attempt in ("first", "second"):
        places = (tmp_path / attempt / "backing", tmp_path / attempt / "mounted")
        with LossyMount(*places) as mount:
            write_synced(places[1] / "file", b"o" * 20_000)
            with (places[1] / "file").open("rb+", buffering=0) as file:
                file.write(b"n" * 60_000)
            mount.lose_power(seed=seed, kept="some")
        with LossyMount(*places):
            results.append((places[1] / "file").read_bytes())

    assert results[0] == results[1]


def test_a_loss_can_come_in_the_middle_and_everything_after_it_fails(places: tuple[Path, Path], seed: int) -> None:
    with LossyMount(*places) as mount:
        write_synced(places[1] / "file", b"first")
        with (places[1] / "file").open("ab", buffering=0) as file:
            mount.arm(Order(seed, "nothing", after_changes=3))

            file.write(b"second")
            os.fdatasync(file.fileno())
            with pytest.raises(OSError, match="Input/output error"):
                file.write(b"third")
            loss = mount.wait_for_loss(timeout_s=10.0)
            with pytest.raises(OSError, match="Input/output error"):
                os.fdatasync(file.fileno())

    assert loss is not None
    with LossyMount(*places):
        assert (places[1] / "file").read_bytes() == b"firstsecond"


def test_a_loss_can_wait_for_a_name(places: tuple[Path, Path], seed: int) -> None:
    with LossyMount(*places) as mount:
        write_synced(places[1] / "file", b"first")
        with (places[1] / "file").open("ab", buffering=0) as file:
            mount.arm(Order(seed, "nothing", after_changes=2, from_next_name=True))

            for _ in range(10):
                file.write(b"more")
                os.fdatasync(file.fileno())
            (places[1] / "file").rename(places[1] / "renamed")
            with pytest.raises(OSError, match="Input/output error"):
                file.write(b"never")

    with LossyMount(*places):
        assert os.listdir(places[1]) == ["file"]
        assert (places[1] / "file").read_bytes() == b"first" + 10 * b"more"


def test_it_is_a_file_system_that_the_log_can_live_on(mounted: tuple[LossyMount, Path]) -> None:
    _, root = mounted
    (root / "log").mkdir()
    descriptor = os.open(root / "log" / "file", os.O_RDWR | os.O_CREAT | os.O_EXCL)
    with pytest.raises(FileExistsError):
        os.open(root / "log" / "file", os.O_RDWR | os.O_CREAT | os.O_EXCL)

    assert os.pwritev(descriptor, [b"a" * 3_000_000, b"b" * 1_000], 100) == 3_001_000
    assert os.pread(descriptor, 4_000_000, 0) == bytes(100) + b"a" * 3_000_000 + b"b" * 1_000
    os.posix_fallocate(descriptor, 0, 4_000_000)
    assert os.fstat(descriptor).st_size == 4_000_000
    assert os.path.samestat(os.fstat(descriptor), (root / "log" / "file").stat())
    os.unlink(root / "log" / "file")
    assert os.pread(descriptor, 3, 100) == b"aaa", "an open file outlives its name"
    assert os.listdir(root / "log") == [], "and has no other"
    os.close(descriptor)
    many = [f"{number:020}.0.seg" for number in range(500)]
    for name in many:
        (root / "log" / name).touch()
    assert sorted(os.listdir(root / "log")) == many
    with (root / "lock").open("wb") as first, (root / "lock").open("wb") as second:
        fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(BlockingIOError):
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with pytest.raises(OSError, match="cross-device") as caught:
        (root / "lock").rename(root / "log" / "lock")
    assert caught.value.errno == errno.EXDEV


def test_nothing_stays_mounted_when_the_one_who_started_it_is_done(places: tuple[Path, Path]) -> None:
    with LossyMount(*places):
        assert os.path.ismount(places[1])

    assert not os.path.ismount(places[1])
