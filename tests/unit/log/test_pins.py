"""Pins: a reader's hold on the log dies with the reader, and with nothing else.

The race of a pin with a deletion, both ways round, is in test_deletion.py.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from headwater.errors import PinExpired
from headwater.ids import Lsn
from headwater.log.pins import Pins
from headwater.storage.disk import DiskFiles
from headwater.storage.simulated import SimulatedFiles

HOLDER = """
import sys
from headwater.ids import Lsn
from headwater.log.pins import Pins
from headwater.storage.disk import DiskFiles
pin = Pins(DiskFiles(sys.argv[1])).hold(Lsn(7), lambda: 1)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def holder(root: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds LSN 7 until it is ended."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


@pytest.fixture
def pins(files: SimulatedFiles) -> Pins:
    return Pins(files, entropy=Random(0).randbytes)


def test_a_pin_that_is_held_is_found_with_its_holder_and_its_lsn(pins: Pins) -> None:
    pin = pins.hold(Lsn(42), lambda: 1)

    found = pins.read()

    assert [(each.lsn, each.holder) for each in found] == [(42, f"pid {os.getpid()} lsn 42")]
    assert pin.lsn == 42


def test_no_directory_is_no_pins(pins: Pins) -> None:
    assert pins.read() == []


def test_a_pin_ends_with_its_with_block(files: SimulatedFiles, pins: Pins) -> None:
    with pins.hold(Lsn(3), lambda: 3) as pin:
        assert pin.lsn == 3 and len(pins.read()) == 1

    assert pins.read() == []
    assert files.list("pins") == []


def test_releasing_a_pin_twice_is_nothing(files: SimulatedFiles, pins: Pins) -> None:
    pin = pins.hold(Lsn(3), lambda: 1)
    other = pins.hold(Lsn(4), lambda: 1)

    pin.release()
    pin.release()

    assert [each.lsn for each in pins.read()] == [4]
    other.release()


def test_a_pin_on_what_the_log_has_let_go_of_is_expired_and_leaves_nothing(files: SimulatedFiles, pins: Pins) -> None:
    with pytest.raises(PinExpired, match="take a new cut") as raised:
        pins.hold(Lsn(9), lambda: 10)

    assert raised.value.facts == {"lsn": 9, "log_start": 10}
    assert files.list("pins") == []


def test_the_log_start_is_read_only_after_the_pin_can_be_seen(pins: Pins) -> None:
    seen: list[int] = []

    def log_start() -> int:
        seen.extend(each.lsn for each in pins.read())
        return 1

    pins.hold(Lsn(5), log_start)

    assert seen == [5]


def test_the_pin_of_a_process_that_was_killed_holds_nothing_and_is_removed(tmp_path: Path) -> None:
    pins = Pins(DiskFiles(tmp_path))
    with holder(tmp_path) as process:
        [found] = pins.read()
        assert found.lsn == 7 and found.holder == f"pid {process.pid} lsn 7"

        process.send_signal(signal.SIGKILL)
        process.wait()

        assert pins.read() == []
        assert os.listdir(tmp_path / "pins") == []


def test_a_pin_whose_note_cannot_be_read_holds_everything(files: SimulatedFiles, pins: Pins) -> None:
    files.make_directory("pins")
    files.lock("pins/" + "a" * 32, "scribbled")

    assert [(each.lsn, each.holder) for each in pins.read()] == [(0, "scribbled")]


def test_files_that_are_no_pins_are_left_alone(files: SimulatedFiles, pins: Pins) -> None:
    files.put("pins/README", b"hands off")
    files.put("pins/" + "A" * 32, b"not lower case")

    assert pins.read() == []

    assert files.list("pins") == ["A" * 32, "README"]


def test_a_name_that_a_deletion_looks_at_right_now_is_not_used(files: SimulatedFiles) -> None:
    names = [b"\x01" * 16, b"\x02" * 16]
    files.make_directory("pins")
    files.lock("pins/" + "01" * 16, "a deletion that looks for dead pins")
    pins = Pins(files, entropy=lambda size: names.pop(0))

    pins.hold(Lsn(6), lambda: 1)

    assert [each.name for each in pins.read() if each.lsn == 6] == ["02" * 16]


def test_a_pin_whose_directory_was_removed_is_let_go_of(tmp_path: Path) -> None:
    pin = Pins(DiskFiles(tmp_path)).hold(Lsn(7), lambda: 1)
    shutil.rmtree(tmp_path / "pins")

    pin.release()

    assert Pins(DiskFiles(tmp_path)).read() == []


def test_a_pin_says_what_else_it_was_told_to(files: SimulatedFiles, pins: Pins) -> None:
    with pins.hold(Lsn(7), lambda: 1, note="snapshots 5,6"), pins.hold(Lsn(8), lambda: 1):
        found = pins.read()

    assert sorted((pin.lsn, pin.note) for pin in found) == [(7, "snapshots 5,6"), (8, "")]


def test_a_pin_lets_its_lock_go_even_if_its_file_cannot_be_removed(files: SimulatedFiles, pins: Pins) -> None:
    pin = pins.hold(Lsn(6), lambda: 1)
    files.fail(1, errno.EROFS, verbs=["unlink"])

    with pytest.raises(OSError, match="Read-only"):
        pin.release()

    assert pins.read() == []


def test_a_dead_pin_that_cannot_be_removed_is_not_left_locked(files: SimulatedFiles, pins: Pins) -> None:
    files.put("pins/" + "b" * 32, b"")
    files.fail(1, errno.EROFS, verbs=["unlink"])

    with pytest.raises(OSError, match="Read-only"):
        pins.read()

    assert pins.read() == []
    assert files.list("pins") == []


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_child_cannot_end_its_parents_pin(tmp_path: Path) -> None:
    pins = Pins(DiskFiles(tmp_path))
    pin = pins.hold(Lsn(8), lambda: 1)

    child = os.fork()
    if child == 0:
        pin.release()
        os._exit(0)
    os.waitpid(child, 0)

    assert [each.lsn for each in pins.read()] == [8]
    pin.release()
