"""Opening a journal: newest valid checkpoint, replay from the next operation, a report; and every halt by its name."""

from __future__ import annotations

import errno
from dataclasses import replace
from itertools import product
from random import Random

import msgspec
import pytest

from headwater.clock import ManualClock
from headwater.errors import (
    CheckpointLost,
    CorruptData,
    DamagedLog,
    Halted,
    LostSegment,
    OperationRefused,
    UnknownFormat,
)
from headwater.frames.checksum import crc32c
from headwater.frames.frame import Codec, Kind
from headwater.log import Draft, open_log
from headwater.metadata.checkpoint import (
    HEADER_BYTES,
    Checkpoint,
    CheckpointFile,
    CheckpointKind,
    Checkpoints,
    name_of,
    pack_checkpoint,
)
from headwater.metadata.operations import AddPartitions, Operation, encode_operation
from headwater.metadata.recovery import JournalReport, choose_start, log_start
from headwater.metadata.state import MetadataState
from headwater.storage.simulated import SimulatedFiles
from tests.unit.metadata.small_journals import (
    CHECKPOINTS,
    SETTINGS,
    checkpoint_files,
    create,
    folded,
    group,
    journal_on,
    segment_names,
)


def lived(checkpoints: int, *, tail: int = 1) -> tuple[SimulatedFiles, MetadataState]:
    """A journal with this many checkpoints, one operation each, and `tail` operations after them; closed."""
    files = SimulatedFiles()
    with journal_on(files) as journal:
        for number in range(1, checkpoints + 1):
            journal.append([create(number)])
            journal.checkpoint()
        for number in range(tail):
            journal.append([group(number)])
        return files, journal.state


def checkpoint_path(lsn: int) -> str:
    return f"{CHECKPOINTS}/{name_of(lsn)}"


def damage(files: SimulatedFiles, lsn: int) -> None:
    files.flip_bit(checkpoint_path(lsn), 8 * 70)


def the_checkpoint(files: SimulatedFiles, lsn: int) -> Checkpoint:
    (found,) = [file.checkpoint for file in checkpoint_files(files) if file.lsn == lsn]
    assert found is not None
    return found


def rewrite(files: SimulatedFiles, lsn: int, **changes: object) -> None:
    """Write another checkpoint in the place of the one at this LSN."""
    changed = replace(the_checkpoint(files, lsn), **changes)  # type: ignore[arg-type]
    files.put(checkpoint_path(changed.lsn), pack_checkpoint(changed))


def remove(files: SimulatedFiles, *names: str) -> None:
    for name in names:
        files.unlink(name)


# What is found --------------------------------------------------------------------------------------------------------


def test_a_journal_without_a_checkpoint_is_replayed_from_its_first_operation() -> None:
    files, state = lived(0, tail=3)

    journal = journal_on(files)

    assert journal.state == state
    assert journal.report == JournalReport(found=True, replayed=3, first_lsn=1, last_lsn=4, epoch=1)


def test_a_checkpoint_and_the_operations_after_it_are_the_state_and_nothing_before_it_is_applied() -> None:
    files, state = lived(1, tail=2)

    journal = journal_on(files)

    assert journal.state == state
    assert journal.report == JournalReport(
        found=True,
        checkpoint=name_of(2),
        checkpoint_lsn=2,
        replayed=2,
        skipped=1,
        first_lsn=1,
        last_lsn=4,
        epoch=1,
    )


def test_a_checkpoint_with_no_operation_after_it_goes_on_with_the_next_number() -> None:
    files, state = lived(3, tail=0)

    journal = journal_on(files)

    assert journal.state == state
    assert (journal.last_lsn, journal.report.last_lsn, journal.report.replayed) == (4, 4, 0)
    # 5 is the new owner's epoch.
    assert journal.append([create(4)]).lsn == 6


def test_recovering_twice_changes_nothing() -> None:
    files, state = lived(3, tail=2)

    reports = []
    for _ in range(3):
        with journal_on(files) as journal:
            journal.claim()
            assert journal.state == state
            reports.append(replace(journal.report, epoch=0))

    assert reports == [reports[0]] * 3


def test_a_report_says_what_was_taken_and_what_was_passed_over() -> None:
    files, state = lived(3, tail=2)
    damage(files, 4)

    journal = journal_on(files)

    assert journal.state == state
    assert journal.report == JournalReport(
        found=True,
        checkpoint=name_of(3),
        checkpoint_lsn=3,
        damaged=((name_of(4), "the body does not match its checksum"),),
        replayed=3,
        skipped=0,
        first_lsn=4,
        last_lsn=6,
        epoch=1,
    )


def test_an_incomplete_last_operation_is_cut_off_and_all_before_it_stays() -> None:
    files, state = lived(1, tail=1)
    with journal_on(files) as journal:
        states: list[SimulatedFiles] = []

        def before_call(verb: str, name: str) -> None:
            if verb == "sync_data" and name.endswith(".seg"):
                states.append(files.restart())

        files.before_call = before_call
        journal.append([create(2)])
        files.before_call = None
    (torn,) = states
    name = f"journal/{segment_names(torn)[-1]}"
    handle = torn.open(name, writable=True)
    handle.truncate(handle.size() - 10)

    with journal_on(torn) as again:
        again.claim()
        assert again.state.topics == state.topics
        assert again.append([create(2)]).topics == journal.state.topics


# Falling back ---------------------------------------------------------------------------------------------------------


def test_a_damaged_newest_checkpoint_falls_back_to_the_older_one_and_the_journal_goes_on() -> None:
    files, state = lived(5, tail=1)
    damage(files, 6)

    with journal_on(files) as journal:
        assert journal.state == state
        assert journal.report.checkpoint_lsn == 5
        journal.append([create(6)])
        assert journal.checkpoint()

    assert [(file.lsn, file.damage) for file in checkpoint_files(files)] == [(9, ""), (5, "")]
    assert journal_on(files).state == journal.state


def test_a_missing_newest_checkpoint_falls_back_to_the_older_one() -> None:
    files, state = lived(5, tail=1)
    remove(files, checkpoint_path(6))

    assert journal_on(files).state == state


def test_damaged_checkpoints_are_not_needed_while_the_journal_reaches_back_to_its_first_operation() -> None:
    files, state = lived(1, tail=1)
    damage(files, 2)

    journal = journal_on(files)

    assert journal.state == state
    assert (journal.report.checkpoint, journal.report.replayed, len(journal.report.damaged)) == ("", 2, 1)


def test_a_checkpoint_whose_state_cannot_be_decoded_is_passed_over_like_a_damaged_one() -> None:
    files, state = lived(3, tail=1)
    rewrite(files, 4, body=b"\xc1")

    journal = journal_on(files)

    assert journal.state == state
    assert "not a state of the metadata" in journal.report.damaged[0][1]


def test_a_checkpoint_whose_state_is_of_another_number_is_passed_over() -> None:
    files, state = lived(3, tail=1)
    rewrite(files, 4, body=the_checkpoint(files, 3).body)

    journal = journal_on(files)

    assert journal.state == state
    assert journal.report.damaged == ((name_of(4), "its state is of lsn 3"),)


def test_after_a_fall_back_an_overfull_ring_is_emptied_before_anything_is_appended() -> None:
    files = SimulatedFiles()
    with journal_on(files) as journal:
        journal.append([create(number) for number in range(1, 901)])
        journal.append([group(number) for number in range(600)])
        journal.append([group(number) for number in range(1_000, 1_880)])
    newest, older = (file.lsn for file in checkpoint_files(files))
    damage(files, newest)

    with journal_on(files) as again:
        assert again.state == journal.state
        assert again.last_lsn - older > 1024
        assert again.remaining_capacity == 0
        again.append([group(9_999)])
        assert again.checkpoint_lsn == journal.last_lsn

    assert journal_on(files).state == again.state


# Halts ----------------------------------------------------------------------------------------------------------------


def test_both_checkpoints_damaged_and_a_compacted_journal_halt_and_name_the_command() -> None:
    files, _ = lived(5)
    damage(files, 6)
    damage(files, 5)

    with pytest.raises(CheckpointLost, match=r"headwater log rebuild.*checksum.*journal_first_lsn=6"):
        journal_on(files)


def test_no_checkpoint_and_a_compacted_journal_halt() -> None:
    files, _ = lived(5)
    remove(files, checkpoint_path(6), checkpoint_path(5))

    with pytest.raises(CheckpointLost, match=r"does not reach back to its first operation.*damaged=none"):
        journal_on(files)


def test_an_older_checkpoint_that_the_journal_does_not_continue_is_not_fallen_back_to() -> None:
    files, _ = lived(5)
    files.put(checkpoint_path(3), pack_checkpoint(replace(the_checkpoint(files, 5), lsn=3, body=_state_at(3))))
    damage(files, 6)
    damage(files, 5)

    with pytest.raises(CheckpointLost, match="begins after the newest checkpoint that can be read"):
        journal_on(files)


def _state_at(lsn: int) -> bytes:
    return MetadataState(lsn=lsn).pack()


def test_a_checkpoint_that_the_journal_no_longer_needs_does_not_halt_it() -> None:
    # Its unlinking was lost in a crash, after the segments behind it had gone.
    files, state = lived(5)
    files.put(checkpoint_path(3), pack_checkpoint(replace(the_checkpoint(files, 5), lsn=3, body=_state_at(3))))

    with journal_on(files) as journal:
        assert journal.state == state
        journal.append([create(6)])
        journal.checkpoint()

    assert [file.lsn for file in checkpoint_files(files)] == [9, 6]


@pytest.mark.parametrize("mark", [True, False], ids=["with its mark", "without"])
def test_a_checkpoint_without_any_journal_halts_and_numbering_does_not_begin_again(mark: bool) -> None:
    files, _ = lived(2)
    remove(files, *(f"journal/{name}" for name in files.list("journal") if name.endswith((".seg", ".idx"))))
    if not mark:
        remove(files, "journal/mark")

    with pytest.raises(LostSegment):
        journal_on(files)


def test_only_damaged_checkpoints_and_no_journal_halt() -> None:
    files, _ = lived(1, tail=0)
    damage(files, 2)
    remove(files, *(f"journal/{name}" for name in files.list("journal") if name.endswith((".seg", ".idx"))))
    remove(files, "journal/mark")

    with pytest.raises(CheckpointLost, match="only damaged checkpoints, and no journal"):
        journal_on(files)


def test_a_lost_segment_after_the_checkpoint_halts() -> None:
    files, _ = lived(2)
    newest = segment_names(files)[-1]
    remove(files, f"journal/{newest}")

    with pytest.raises(LostSegment):
        journal_on(files)


def test_a_lost_segment_before_the_checkpoint_halts_only_where_it_is_needed() -> None:
    files, state = lived(3)
    remove(files, f"journal/{segment_names(files)[0]}")

    assert journal_on(files).state == state
    damage(files, 4)
    with pytest.raises(CheckpointLost):
        journal_on(files)


def test_a_checkpoint_ahead_of_the_journal_halts() -> None:
    files, state = lived(2, tail=0)
    other, _ = lived(2, tail=4)
    with journal_on(other) as longer:
        longer.checkpoint()
    files.put(checkpoint_path(7), other.contents(checkpoint_path(7)))

    with pytest.raises(CheckpointLost, match=r"ahead of the journal.*checkpoint_lsn=7, journal_lsn=3"):
        journal_on(files)
    assert state.lsn == 3


@pytest.mark.parametrize("tail", [0, 1], ids=["at its end", "inside it"])
def test_a_checkpoint_of_another_history_halts(tail: int) -> None:
    files, _ = lived(2, tail=tail)
    rewrite(files, 3, chain=12345)

    with pytest.raises(CheckpointLost, match=r"another history.*checkpoint_lsn=3"):
        journal_on(files)


def test_a_checkpoint_in_the_middle_of_a_segment_is_checked_against_the_frame_itself() -> None:
    files, state = lived(0, tail=3)
    with journal_on(files) as journal:
        frame = journal.header(3)
        assert frame is not None
        body = folded([group(0), group(1)])
        body.lsn = 3
        chain = frame.header_crc << 32 | frame.body_crc
    written = Checkpoint(CheckpointKind.JOURNAL, 3, chain, 3, 0, body.pack())
    Checkpoints(files, CHECKPOINTS, CheckpointKind.JOURNAL).write(written)

    journal = journal_on(files)

    assert journal.state == state
    assert (journal.report.replayed, journal.report.skipped) == (1, 2)
    rewrite(files, 3, chain=chain + 1)
    with pytest.raises(CheckpointLost, match="another history"):
        journal_on(files)


def test_a_checkpoint_of_a_later_version_halts_and_nothing_older_is_taken() -> None:
    files, _ = lived(3)
    data = pack_checkpoint(the_checkpoint(files, 4))
    changed = data[:8] + b"\2" + data[9:]
    files.put(checkpoint_path(4), changed[:4] + crc32c(changed[8:HEADER_BYTES]).to_bytes(4, "little") + changed[8:])

    with pytest.raises(UnknownFormat, match=r"format version 2"):
        journal_on(files)


# Operations that replay cannot take -----------------------------------------------------------------------------------


def hand_written(*drafts: Draft) -> SimulatedFiles:
    files = SimulatedFiles()
    with open_log(
        files, "journal", settings=SETTINGS, clock=ManualClock(), entropy=Random(1).randbytes, known_offsets=dict
    ) as log:
        for draft in drafts:
            log.append([draft])
    return files


def metadata(operation: Operation) -> Draft:
    return Draft(Kind.METADATA, encode_operation(operation))


def test_an_operation_that_the_state_refuses_halts_by_its_number() -> None:
    files = hand_written(metadata(create(1)), metadata(AddPartitions(7, 2)), metadata(create(2)))

    with pytest.raises(OperationRefused, match=r"no topic of number 7.*lsn=3"):
        journal_on(files)


def test_an_operation_that_cannot_be_decoded_halts() -> None:
    with pytest.raises(DamagedLog, match=r"cannot be decoded.*lsn=2"):
        journal_on(hand_written(Draft(Kind.METADATA, b"\xc1")))


def test_an_operation_of_a_later_version_halts() -> None:
    body = msgspec.msgpack.encode({"op": "split_topic"})

    with pytest.raises(UnknownFormat, match=r"'split_topic'.*lsn=2"):
        journal_on(hand_written(Draft(Kind.METADATA, body)))


@pytest.mark.parametrize(
    "draft",
    [Draft(Kind.SCHEMA, b"rows"), Draft(Kind.METADATA, b"\0\0\0\0", codec=Codec.ZSTD)],
    ids=["kind", "codec"],
)
def test_a_frame_that_is_no_operation_halts(draft: Draft) -> None:
    with pytest.raises(DamagedLog, match=r"a frame that is no operation.*lsn=2"):
        journal_on(hand_written(draft))


def test_a_frame_that_any_version_may_skip_is_skipped_and_counted_in_the_numbers() -> None:
    future = Draft(200, b"from the future")
    files = hand_written(metadata(create(1)), future, metadata(create(2)), future)

    journal = journal_on(files)

    assert list(journal.state.topics) == [1, 2]
    assert (journal.state.lsn, journal.report.replayed) == (5, 2)


def test_an_error_of_reading_is_an_error_and_never_the_end() -> None:
    files, state = lived(2, tail=3)
    before = len(files.calls)
    journal_on(files)
    reads = len(files.calls) - before

    for number in range(1, reads + 1):
        files.fail(number, errno.EIO)
        with pytest.raises((OSError, CorruptData)):
            journal_on(files)
        files.heal()

    assert journal_on(files).state == state


def test_every_changed_bit_of_the_newest_checkpoint_is_found_and_the_state_is_the_same() -> None:
    files, state = lived(2, tail=1)
    bits = 8 * len(files.contents(checkpoint_path(3)))

    for bit in range(0, bits, 7):
        files.flip_bit(checkpoint_path(3), bit)
        journal = journal_on(files)
        assert journal.state == state
        assert [name for name, _ in journal.report.damaged] == [name_of(3)]
        files.flip_bit(checkpoint_path(3), bit)


# The table ------------------------------------------------------------------------------------------------------------


def file_at(lsn: int, kind: str) -> CheckpointFile:
    if kind == "valid":
        return CheckpointFile(name_of(lsn), lsn, Checkpoint(CheckpointKind.JOURNAL, lsn, 0, lsn, 0, _state_at(lsn)))
    return CheckpointFile(name_of(lsn), lsn, None, "damaged", unknown=kind == "unknown")


@pytest.mark.parametrize("first_lsn", [None, 1, 11, 12, 21, 22, 50])
@pytest.mark.parametrize("kinds", list(product(("valid", "damaged", "unknown", ""), repeat=2)), ids="-".join)
def test_every_combination_of_checkpoints_and_journal_meets_one_case(
    kinds: tuple[str, str], first_lsn: int | None
) -> None:
    found = [file_at(lsn, kind) for lsn, kind in zip((20, 10), kinds, strict=True) if kind]

    outcome: type[Halted] | int
    try:
        outcome = choose_start(found, first_lsn).state.lsn
    except Halted as halt:
        outcome = type(halt)

    assert outcome == wanted(found, first_lsn)
    if isinstance(outcome, int) and first_lsn is not None:
        # Replay begins in what the journal must hold.
        assert first_lsn <= log_start(found, first_lsn) <= outcome + 1


def wanted(found: list[CheckpointFile], first_lsn: int | None) -> type[Halted] | int:
    """The table of recovery.py, said once more."""
    for file in found:
        if file.unknown:
            return UnknownFormat
        if file.checkpoint is not None:
            reaches = first_lsn is None or first_lsn <= file.lsn + 1
            return file.lsn if reaches else CheckpointLost
    if first_lsn == 1 or (first_lsn is None and not found):
        return 0
    return CheckpointLost


def test_the_log_must_hold_what_comes_after_the_oldest_checkpoint_that_it_continues() -> None:
    both = [file_at(20, "valid"), file_at(10, "valid")]

    assert log_start(both, 1) == 1
    assert log_start(both, 11) == 11
    assert log_start(both, 12) == 21
    assert log_start(both, None) == 11
    assert log_start([file_at(20, "damaged"), file_at(10, "valid")], 5) == 11
    assert log_start([], None) == 1
    assert log_start([], 7) == 1
