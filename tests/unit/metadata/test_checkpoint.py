"""A checkpoint is whole under its name or not there; every changed bit is found; two are kept."""

from __future__ import annotations

import errno
from dataclasses import replace
from random import Random

import pytest

from headwater.errors import CheckpointFailed
from headwater.frames.checksum import crc32c
from headwater.metadata.checkpoint import (
    HEADER_BYTES,
    Checkpoint,
    CheckpointKind,
    Checkpoints,
    name_of,
    pack_checkpoint,
    unpack_checkpoint,
)
from headwater.storage.simulated import Choice, SimulatedFiles

ONE = Checkpoint(CheckpointKind.SHARD, 17, 0x1122334455667788, 5, 1_700_000_000_000_000, b"a small state")
DIRECTORY = "checkpoints"


def at(lsn: int, body: bytes = b"state") -> Checkpoint:
    return replace(ONE, lsn=lsn, body=body)


def checkpoints_on(files: SimulatedFiles, kind: CheckpointKind = CheckpointKind.SHARD) -> Checkpoints:
    return Checkpoints(files, DIRECTORY, kind)


def with_checkpoints(*lsns: int) -> tuple[SimulatedFiles, Checkpoints]:
    files = SimulatedFiles()
    checkpoints = checkpoints_on(files)
    for lsn in lsns:
        checkpoints.write(at(lsn))
    return files, checkpoints


def path_of(lsn: int) -> str:
    return f"{DIRECTORY}/{name_of(lsn)}"


def fail_at(files: SimulatedFiles, verb: str, ending: str, error: int = errno.EIO) -> None:
    """Let each call of this verb on a name that ends so fail."""

    def before_call(called: str, name: str) -> None:
        if called == verb and name.endswith(ending):
            raise OSError(error, "injected", name)

    files.before_call = before_call


# Reading and writing --------------------------------------------------------------------------------------------------


def test_a_checkpoint_is_read_back_as_it_was_written_also_after_a_power_loss() -> None:
    files, checkpoints = with_checkpoints()

    checkpoints.write(ONE)

    (found,) = checkpoints_on(files.crash(Random(1), choice=Choice.NOTHING)).read()
    assert found.checkpoint == ONE
    assert (found.name, found.lsn, found.damage, found.unknown) == ("00000000000000000017.ckpt", 17, "", False)


def test_the_newest_comes_first_and_what_is_not_ours_is_passed_over() -> None:
    files, checkpoints = with_checkpoints(5, 100, 20)
    files.put(f"{DIRECTORY}/notes.txt", b"mine")
    files.put(f"{DIRECTORY}/7.ckpt", b"not 20 digits")
    files.put(f"{path_of(300)}.tmp", b"left over")

    assert [file.lsn for file in checkpoints.read()] == [100, 20, 5]


def test_no_directory_is_no_checkpoint() -> None:
    assert checkpoints_on(SimulatedFiles()).read() == []


def test_a_checkpoint_written_again_takes_the_place_of_the_first() -> None:
    files, checkpoints = with_checkpoints(17)
    files.put(f"{path_of(17)}.tmp", b"left by an attempt that failed")

    checkpoints.write(at(17, b"another"))

    (found,) = checkpoints.read()
    assert found.checkpoint is not None and found.checkpoint.body == b"another"
    assert files.list(DIRECTORY) == [name_of(17)]


def test_the_largest_numbers_fit() -> None:
    largest = replace(ONE, lsn=2**64 - 1, chain=2**64 - 1, journal_lsn=2**64 - 1, created_us=-1, body=b"")

    assert unpack_checkpoint(pack_checkpoint(largest), CheckpointKind.SHARD) == largest


# Damage ---------------------------------------------------------------------------------------------------------------


def test_every_changed_bit_of_a_checkpoint_is_found() -> None:
    data = pack_checkpoint(ONE)

    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        assert isinstance(unpack_checkpoint(bytes(changed), CheckpointKind.SHARD), str), f"bit {bit}"


def test_every_length_but_the_right_one_is_found() -> None:
    data = pack_checkpoint(ONE)

    for size in range(len(data)):
        assert isinstance(unpack_checkpoint(data[:size], CheckpointKind.SHARD), str), f"{size} bytes"
    assert unpack_checkpoint(data + b"\0", CheckpointKind.SHARD) == "the body has 14 bytes where the header says 13"


def resealed(data: bytes, position: int, value: bytes) -> bytes:
    """The same header with other bytes at a position, and a checksum that fits."""
    changed = data[:position] + value + data[position + len(value) :]
    return changed[:4] + crc32c(changed[8:HEADER_BYTES]).to_bytes(4, "little") + changed[8:]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "shorter than a header"),
        (pack_checkpoint(ONE)[:63], "shorter than a header"),
        (b"XXXX" + pack_checkpoint(ONE)[4:], "does not begin as a checkpoint does"),
        (bytes(200), "does not begin as a checkpoint does"),
        (b"\xff" * 200, "does not begin as a checkpoint does"),
        (pack_checkpoint(ONE)[:20] + b"\1" + pack_checkpoint(ONE)[21:], "header does not match its checksum"),
        (pack_checkpoint(ONE)[:-1], "the body has 12 bytes where the header says 13"),
        (pack_checkpoint(ONE)[:-1] + b"x", "the body does not match its checksum"),
        (pack_checkpoint(replace(ONE, kind=CheckpointKind.JOURNAL)), "of kind 1, and one of kind 2 belongs here"),
        (resealed(pack_checkpoint(ONE), 56, b"\1"), "its reserved bytes are not zero"),
        (pack_checkpoint(replace(ONE, lsn=18)), "its name is not its own: it is of lsn 18"),
    ],
    ids=["empty", "short", "magic", "zeroes", "ones", "header", "cut", "body", "kind", "reserved", "renamed"],
)
def test_damage_is_named_and_the_file_stays(data: bytes, reason: str) -> None:
    files, checkpoints = with_checkpoints(5)
    files.put(path_of(17), data)

    damaged, valid = checkpoints.read()

    assert damaged.checkpoint is None and reason in damaged.damage and not damaged.unknown
    assert valid.checkpoint is not None
    assert files.contents(path_of(17)) == data


def test_a_whole_header_of_another_version_is_unknown_and_not_damage() -> None:
    files, checkpoints = with_checkpoints(5)
    files.put(path_of(17), resealed(pack_checkpoint(ONE), 8, b"\2"))

    newest, _ = checkpoints.read()

    assert newest.checkpoint is None and newest.unknown
    assert newest.damage == "it was written in format version 2, and this one reads 1"


def test_a_file_that_cannot_be_read_is_an_error_and_not_damage() -> None:
    files, checkpoints = with_checkpoints(5)
    files.fail(1, errno.EIO, verbs=["read_at"])

    with pytest.raises(OSError, match="Input/output error"):
        checkpoints.read()


def test_a_file_that_is_gone_when_it_is_opened_is_looked_for_again() -> None:
    files, checkpoints = with_checkpoints(5, 6)
    files.fail(2, errno.ENOENT, verbs=["open"])

    assert [file.lsn for file in checkpoints.read()] == [6, 5]


def test_a_file_that_is_listed_and_always_gone_is_passed_over() -> None:
    files, checkpoints = with_checkpoints(5)
    files.fail(1, errno.ENOENT, verbs=["open"], for_ever=True)

    assert not checkpoints.read()


# Every stage by its name ----------------------------------------------------------------------------------------------

STAGES = [
    ("write", "make_directory", ""),
    ("write", "create", ".tmp"),
    ("write", "append", ".tmp"),
    ("sync", "sync_all", ".tmp"),
    ("rename", "rename", ".tmp"),
    ("sync directory", "sync_directory", DIRECTORY),
]


@pytest.mark.parametrize(("stage", "verb", "ending"), STAGES, ids=[f"{stage}: {verb}" for stage, verb, _ in STAGES])
def test_each_stage_fails_by_its_own_name_and_the_older_one_stands(stage: str, verb: str, ending: str) -> None:
    files, checkpoints = with_checkpoints(5)
    fail_at(files, verb, ending)

    with pytest.raises(CheckpointFailed) as failed:
        checkpoints.write(ONE)
    files.before_call = None

    assert failed.value.facts == {"stage": stage, "lsn": 17}
    assert isinstance(failed.value.__cause__, OSError)
    lost = checkpoints_on(files.crash(Random(3), choice=Choice.NOTHING)).read()
    assert [(file.lsn, file.damage) for file in lost] == [(5, "")]
    assert not any(name.endswith(".tmp") for name in files.list(DIRECTORY))


@pytest.mark.parametrize(("stage", "verb", "ending"), STAGES, ids=[f"{stage}: {verb}" for stage, verb, _ in STAGES])
def test_after_a_failed_stage_the_next_attempt_succeeds(stage: str, verb: str, ending: str) -> None:
    files, checkpoints = with_checkpoints(5)
    fail_at(files, verb, ending)
    with pytest.raises(CheckpointFailed):
        checkpoints.write(ONE)
    files.before_call = None

    checkpoints.write(ONE)

    after = checkpoints_on(files.crash(Random(3), choice=Choice.NOTHING)).read()
    assert [file.checkpoint for file in after] == [ONE, at(5)]


def test_a_write_that_fails_half_way_and_cannot_be_taken_back_is_no_checkpoint() -> None:
    files, checkpoints = with_checkpoints(5)
    files.fail(1, errno.EIO, verbs=["append"], short=True)
    files.fail(1, errno.EIO, verbs=["unlink"])

    with pytest.raises(CheckpointFailed, match="stage=write"):
        checkpoints.write(ONE)

    assert [file.lsn for file in checkpoints.read()] == [5]
    assert checkpoints.unlinks_failed == 1
    assert checkpoints.keep_newest() == [f"{name_of(17)}.tmp"]


def test_no_crash_while_a_checkpoint_is_written_harms_the_older_one_or_shows_half_of_it() -> None:
    files, checkpoints = with_checkpoints(5)
    chance = Random(11)
    states: list[SimulatedFiles] = []
    files.before_call = lambda verb, name: states.extend([files.restart(), *files.crash_states(chance, 12)])

    checkpoints.write(at(17, bytes(range(256)) * 8))

    files.before_call = None
    assert len(states) > 25
    for state in states:
        found = checkpoints_on(state).read()
        assert found[-1].checkpoint == at(5)
        assert [file.damage for file in found] == [""] * len(found)


# Keeping two ----------------------------------------------------------------------------------------------------------


def test_the_two_newest_valid_ones_are_kept_and_it_is_durable() -> None:
    files, checkpoints = with_checkpoints(1, 2, 3, 4)

    assert checkpoints.keep_newest() == [name_of(2), name_of(1)]

    left = checkpoints_on(files.crash(Random(1), choice=Choice.NOTHING)).read()
    assert [file.lsn for file in left] == [4, 3]


def test_with_two_or_fewer_nothing_goes() -> None:
    files, checkpoints = with_checkpoints(1, 2)
    calls = len(files.calls)

    assert checkpoints.keep_newest() == []

    assert {verb for verb, _ in files.calls[calls:]} == {"list", "open", "size", "read_at"}
    assert [file.lsn for file in checkpoints.read()] == [2, 1]


def test_a_damaged_one_does_not_count_and_goes_once_a_newer_valid_one_is_there() -> None:
    files, checkpoints = with_checkpoints(1, 2, 3, 4, 5)
    files.flip_bit(path_of(5), 100)
    files.flip_bit(path_of(3), 100)

    gone = checkpoints.keep_newest()

    # 5 is newer than every valid one: a person may want to see it.
    assert gone == [name_of(3), name_of(1)]
    assert [file.lsn for file in checkpoints.read()] == [5, 4, 2]


def test_where_all_are_damaged_none_goes() -> None:
    files, checkpoints = with_checkpoints(1)
    files.flip_bit(path_of(1), 100)

    assert checkpoints.keep_newest() == []


def test_one_of_a_later_version_is_never_removed() -> None:
    files, checkpoints = with_checkpoints(1, 3)
    files.put(path_of(2), resealed(pack_checkpoint(at(2)), 8, b"\2"))

    assert checkpoints.keep_newest(1) == [name_of(1)]


def test_left_over_temporaries_go_and_what_is_not_ours_stays() -> None:
    files, checkpoints = with_checkpoints(1)
    files.put(f"{path_of(9)}.tmp", b"half")
    files.put(f"{DIRECTORY}/draft.tmp", b"mine")

    assert checkpoints.keep_newest() == [f"{name_of(9)}.tmp"]
    assert files.list(DIRECTORY) == [name_of(1), "draft.tmp"]


def test_what_cannot_be_unlinked_is_counted_and_tried_again() -> None:
    files, checkpoints = with_checkpoints(1, 2, 3)
    files.fail(1, errno.EACCES, verbs=["unlink"])

    assert checkpoints.keep_newest() == []
    assert checkpoints.unlinks_failed == 1

    assert checkpoints.keep_newest() == [name_of(1)]
