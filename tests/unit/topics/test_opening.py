"""Opening: who owns the log and when, what is recovered by whoever comes first, and that no lock is left behind."""

from __future__ import annotations

import errno

import pytest

from headwater.api import Log
from headwater.errors import DamagedLog, LogLocked
from tests.unit.topics.small_engines import PLAIN, World, engine_of, values


def a_log(world: World, rows: int = 3) -> Log:
    log = world.log()
    log.topic("a", PLAIN)
    for number in range(rows):
        log["a"].append({"x": number})
    return log


# Owning -------------------------------------------------------------------------------------------


def test_opening_and_looking_claim_nothing_and_make_no_file() -> None:
    world = World()
    log = world.log()

    assert log.topics() == [] and log.groups() == [] and "a" not in log
    assert log.source_position("pg") is None
    assert log.status().owner is False
    log.flush()

    assert world.files.list("") == []
    assert not engine_of(log).claimed


def test_the_first_change_claims_the_journal_and_then_the_log() -> None:
    world = World()
    log = world.log()
    log.topic("a", PLAIN)

    assert engine_of(log).claimed
    with pytest.raises(LogLocked, match="pid"):
        world.log().topic("b", PLAIN)


def test_another_opener_reads_while_the_owner_lives_and_claims_nothing() -> None:
    world = World()
    owner = a_log(world)

    reader = world.log()
    assert values(reader) == [0, 1, 2]
    owner["a"].append({"x": 3})

    assert values(reader) == [0, 1, 2, 3]
    assert not engine_of(reader).claimed
    with pytest.raises(LogLocked):
        reader["a"].append({"x": 9})
    owner["a"].append({"x": 4})
    assert values(reader) == [0, 1, 2, 3, 4]


def test_whoever_comes_after_a_close_may_own_the_log() -> None:
    world = World()
    reader = world.log()
    a_log(world).close()

    reader["a"].append({"x": 3})

    assert values(reader) == [0, 1, 2, 3]


def test_an_owner_that_could_not_take_the_log_can_try_again() -> None:
    world = World()
    owner = a_log(world)
    second = world.log()
    for _ in range(2):
        with pytest.raises(LogLocked):
            second["a"].append({"x": 9})
    owner.close()

    second["a"].append({"x": 3})

    assert values(second) == [0, 1, 2, 3]


# What a power loss leaves -------------------------------------------------------------------------


@pytest.mark.parametrize("lost", range(12))
def test_after_a_power_loss_a_reader_sees_every_row_that_was_acknowledged(lost: int) -> None:
    world = World()
    a_log(world, rows=8)

    reader = world.lose_power(lost).log()

    assert values(reader) == list(range(8))
    assert not engine_of(reader).claimed, "it recovered as the owner, and is none"


def test_a_log_that_was_left_open_is_recovered_once_and_then_closed() -> None:
    world = World()
    a_log(world)
    after = world.kill()

    first = after.log()
    calls = len(after.files.calls)
    second = after.log()

    recovered = [
        call for call in after.files.calls[calls:] if call[0] in ("write_at", "sync_data", "append", "truncate")
    ]
    assert recovered == []
    assert values(first) == values(second) == [0, 1, 2]
    second["a"].append({"x": 3})


def test_after_a_clean_close_nothing_is_recovered_by_an_opening() -> None:
    world = World()
    a_log(world).close()
    calls = len(world.files.calls)

    log = world.log()

    assert values(log) == [0, 1, 2]
    changing = {"create", "append", "write_at", "sync_data", "sync_all", "truncate", "rename", "unlink", "lock"}
    assert [call for call in world.files.calls[calls:] if call[0] in changing] == []


def test_while_another_owner_is_alive_an_opener_recovers_nothing() -> None:
    world = World()
    owner = a_log(world)
    calls = len(world.files.calls)

    world.log()

    changing = {"append", "write_at", "sync_data", "truncate"}
    assert [call for call in world.files.calls[calls:] if call[0] in changing] == []
    owner["a"].append({"x": 3})


def test_a_place_that_cannot_be_written_is_read_up_to_the_mark(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    a_log(world)
    after = world.kill()
    after.files.fail(1, errno.EROFS, verbs=["lock", "make_directory", "create"], for_ever=True)

    log = after.log()

    assert values(log) == [0, 1, 2]
    assert "cannot be written here" in caplog.text


def test_an_opening_that_fails_leaves_no_lock_behind() -> None:
    world = World()
    a_log(world)
    after = world.kill()
    (segment,) = [name for name in after.files.list("log") if name.endswith(".seg")]
    in_its_header = 8 * (128 + 20)
    after.files.flip_bit(f"log/{segment}", in_its_header)
    with pytest.raises(DamagedLog):
        after.log()

    after.files.flip_bit(f"log/{segment}", in_its_header)
    again = after.log()
    again["a"].append({"x": 3})

    assert values(again) == [0, 1, 2, 3]
