"""When the journal makes checkpoints, what they hold, what goes afterwards, and how each stage fails by its name."""

from __future__ import annotations

import errno
from random import Random

import pytest

from headwater.clock import ManualClock
from headwater.errors import (
    CheckpointFailed,
    OutcomeUnknown,
    Poisoned,
    TooLarge,
    Unavailable,
)
from headwater.frames.frame import Kind
from headwater.metadata.journal import EARLY, OPERATIONS_MAX, Dropped, Journal
from headwater.metadata.ring import MARGIN, SLOTS
from headwater.metadata.state import MetadataState
from headwater.settings import LogSettings
from headwater.storage.simulated import SimulatedFiles
from tests.unit.metadata.small_journals import (
    ONE_OF_EACH,
    checkpoint_files,
    create,
    facts,
    group,
    groups,
    journal_on,
    segment_names,
)


def lsns_of(files: SimulatedFiles) -> list[int]:
    return [file.lsn for file in checkpoint_files(files)]


def failing(files: SimulatedFiles, verb: str, ending: str, error: int = errno.EIO, *, first: int = 1) -> None:
    """Let calls of this verb on a name that ends so fail, from the `first` on."""
    left = first

    def before_call(called: str, name: str) -> None:
        nonlocal left
        if called == verb and name.endswith(ending):
            left -= 1
            if left <= 0:
                raise OSError(error, "injected", name)

    files.before_call = before_call


# When checkpoints are made --------------------------------------------------------------------------------------------


def test_a_thousand_topics_are_one_append_whatever_came_before() -> None:
    files = SimulatedFiles()
    journal = journal_on(files)
    journal.append(groups(0, 800))
    assert journal.checkpoint_lsn == 0

    state = journal.append([create(number) for number in range(1, 1_001)])

    assert len(state.topics) == 1_000
    # One checkpoint had to come before it, and one was due after it.
    assert lsns_of(files) == [1_801, 801]
    assert journal.remaining_capacity == SLOTS
    journal.close()
    assert journal_on(files).state == state


def test_the_largest_append_fits_and_one_more_is_too_large() -> None:
    files = SimulatedFiles()
    journal = journal_on(files)

    with pytest.raises(TooLarge, match=f"limit={OPERATIONS_MAX}"):
        journal.append(groups(0, OPERATIONS_MAX + 1))
    assert files.list("") == []
    state = journal.append(groups(0, OPERATIONS_MAX))

    assert state.lsn == SLOTS
    journal.close()
    assert journal_on(files).state == state


def test_a_checkpoint_is_made_after_an_append_while_slots_remain() -> None:
    journal = journal_on(SimulatedFiles())

    # The epoch's frame counts too.
    journal.append(groups(0, SLOTS - EARLY - 1))
    assert (journal.checkpoint_lsn, journal.remaining_capacity) == (0, EARLY)
    journal.append([group(5_000)])

    assert journal.checkpoint_lsn == journal.last_lsn == SLOTS - EARLY + 1
    assert journal.remaining_capacity == SLOTS


def test_a_checkpoint_comes_before_an_append_that_would_leave_fewer_slots_than_the_margin() -> None:
    journal = journal_on(SimulatedFiles())
    journal.append(groups(0, SLOTS - EARLY - 1))
    room = journal.remaining_capacity - MARGIN - 1

    journal.append(groups(2_000, room + 1))

    assert journal.checkpoint_lsn == SLOTS - EARLY


def test_an_append_that_leaves_the_margin_needs_no_checkpoint_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = journal_on(SimulatedFiles())
    journal.append(groups(0, SLOTS - EARLY - 1))
    room = journal.remaining_capacity - MARGIN - 1
    monkeypatch.setattr(Journal, "_checkpoint_early", lambda self: None)

    journal.append(groups(2_000, room))

    assert journal.checkpoint_lsn == 0
    assert journal.remaining_capacity == MARGIN + 1


def test_the_journal_never_holds_more_than_the_ring_without_a_checkpoint() -> None:
    journal = journal_on(SimulatedFiles())
    chance = Random(5)
    number = 0

    for _ in range(60):
        count = chance.choice([1, 2, 63, 64, 65, 127, 128, 300, 960, OPERATIONS_MAX])
        journal.append(groups(number, count))
        number += count
        assert 0 <= journal.last_lsn - journal.checkpoint_lsn <= SLOTS
        assert journal.remaining_capacity >= EARLY


def test_if_the_forced_checkpoint_fails_the_append_is_not_made() -> None:
    files = SimulatedFiles()
    journal = journal_on(files)
    before = journal.append(groups(0, SLOTS - EARLY - 1))
    failing(files, "rename", ".tmp")

    with pytest.raises(CheckpointFailed, match="stage=rename"):
        journal.append(groups(2_000, 100))

    files.before_call = None
    assert journal.state is before
    assert facts(journal_on(files.restart()).state) == facts(before)
    assert journal.append(groups(2_000, 100)).lsn == before.lsn + 100


def test_if_the_checkpoint_after_an_append_fails_the_append_stands() -> None:
    files = SimulatedFiles()
    journal = journal_on(files)
    failing(files, "rename", ".tmp")

    state = journal.append(groups(0, 1_000))

    files.before_call = None
    assert (journal.checkpoint_lsn, journal.checkpoints_failed) == (0, 1)
    assert journal_on(files.restart()).state == state
    # The ring has no room for more: nothing goes in until a checkpoint was made.
    assert journal.remaining_capacity == SLOTS - 1_001
    journal.append([group(5_000)])
    assert journal.checkpoint_lsn == 1_001


def test_a_full_ring_lets_nothing_in_while_checkpoints_fail() -> None:
    files = SimulatedFiles()
    journal = journal_on(files)
    failing(files, "rename", ".tmp")
    journal.append(groups(0, 1_000))

    for number in range(5):
        with pytest.raises(CheckpointFailed):
            journal.append([group(5_000 + number)])

    assert journal.last_lsn == 1_001
    assert len(journal.headers_from(1)) == 1_001


# What a checkpoint does -----------------------------------------------------------------------------------------------


def test_with_nothing_new_there_is_no_checkpoint() -> None:
    files = SimulatedFiles()
    journal = journal_on(files)
    assert not journal.checkpoint()
    journal.append([create(1)])

    assert journal.checkpoint()
    assert not journal.checkpoint()

    assert lsns_of(files) == [2]


def test_a_checkpoint_holds_the_state_at_the_committed_number_with_its_chain_value() -> None:
    files = SimulatedFiles()
    journal = journal_on(files)
    state = journal.append(ONE_OF_EACH)
    last = journal.header(state.lsn)

    journal.checkpoint()

    (file,) = checkpoint_files(files)
    assert file.checkpoint is not None and last is not None
    assert MetadataState.unpack(file.checkpoint.body) == state
    assert file.checkpoint.lsn == file.checkpoint.journal_lsn == state.lsn
    assert file.checkpoint.chain == last.header_crc << 32 | last.body_crc
    assert file.checkpoint.created_us == ManualClock().now_us()


def test_the_journal_lets_go_of_what_two_checkpoints_cover_and_says_so() -> None:
    files = SimulatedFiles()
    journal = journal_on(files)
    journal.append([create(1)])
    journal.checkpoint()
    dropped_first = journal.dropped
    journal.append([create(2)])
    journal.checkpoint()
    assert dropped_first is None
    # The older one of two covers LSN 1 and 2.
    assert journal.dropped == Dropped(1, 2, ("00000000000000000001.0.seg",))
    size = sum(len(files.contents(f"journal/{name}")) for name in segment_names(files))

    for number in range(3, 30):
        journal.append([create(number)])
        journal.checkpoint()

    assert journal.dropped == Dropped(29, 29, ("00000000000000000029.0.seg",))
    assert lsns_of(files) == [30, 29]
    assert segment_names(files) == ["00000000000000000030.0.seg", "00000000000000000031.0.seg"]
    assert sum(len(files.contents(f"journal/{name}")) for name in segment_names(files)) <= size
    assert journal.header(29) is None and journal.header(30) is not None
    state = journal.append([group(1)])
    journal.close()
    again = journal_on(files)
    assert again.state == state
    assert again.report.replayed == 1 and again.report.skipped == 1


def test_the_mark_rises_only_after_the_compaction() -> None:
    files = SimulatedFiles()
    journal = journal_on(files)
    journal.append([create(1)])
    journal.checkpoint()
    journal.append([create(2)])
    failing(files, "unlink", ".seg")
    journal.checkpoint()  # a failing unlink is only counted: the next compaction tries again
    files.before_call = None
    assert journal.checkpoint_lsn == 3
    journal.append([create(3)])
    failing(files, "sync_directory", "journal")

    with pytest.raises(CheckpointFailed):
        journal.checkpoint()

    assert journal.checkpoint_lsn == 3
    assert journal.remaining_capacity == SLOTS - 1


def test_a_segment_that_could_not_be_unlinked_goes_with_the_next_compaction() -> None:
    files = SimulatedFiles()
    journal = journal_on(files)
    failing(files, "unlink", ".seg")
    for number in (1, 2, 3):
        journal.append([create(number)])
        journal.checkpoint()
    assert len(segment_names(files)) == 4
    files.before_call = None
    assert journal_on(files.restart()).state == journal.state

    journal.append([create(4)])
    journal.checkpoint()

    assert segment_names(files) == ["00000000000000000005.0.seg", "00000000000000000006.0.seg"]


STAGES = [
    ("roll", "sync_all", ".seg", True),
    ("roll", "create", ".seg", False),
    ("roll", "append", ".seg", False),
    ("roll", "sync_directory", "journal", True),
    ("roll", "write_at", "mark", True),
    ("write", "make_directory", "checkpoints", False),
    ("write", "create", ".ckpt.tmp", False),
    ("write", "append", ".ckpt.tmp", False),
    ("sync", "sync_all", ".ckpt.tmp", False),
    ("rename", "rename", ".ckpt.tmp", False),
    ("sync directory", "sync_directory", "checkpoints", True),
]


@pytest.mark.parametrize(
    ("stage", "verb", "ending", "poisoned"), STAGES, ids=[f"{s}: {v} {e}" for s, v, e, _ in STAGES]
)
def test_each_stage_of_a_checkpoint_fails_by_its_name(stage: str, verb: str, ending: str, poisoned: bool) -> None:
    files = SimulatedFiles()
    journal = journal_on(files)
    for number in (1, 2):
        journal.append([create(number)])
        journal.checkpoint()
    state = journal.append([create(3)])
    failing(files, verb, ending)

    with pytest.raises(CheckpointFailed) as failed:
        journal.checkpoint()

    files.before_call = None
    assert failed.value.facts == {"stage": stage, "lsn": state.lsn}
    assert (journal.checkpoint_lsn, journal.checkpoints_failed) == (3, 1)
    assert journal.state is state
    if poisoned:
        with pytest.raises(Poisoned):
            journal.append([create(4)])
        with pytest.raises(Poisoned):
            journal.checkpoint()
        journal.close()
        journal = journal_on(files.restart(), seed=2)
        assert journal.refresh() == state
    journal.append([create(4)])
    assert journal.checkpoint()


def test_a_compaction_that_fails_is_named_and_the_next_one_succeeds() -> None:
    files = SimulatedFiles()
    journal = journal_on(files)
    for number in (1, 2):
        journal.append([create(number)])
        journal.checkpoint()
    journal.append([create(3)])
    # The first sync of the directory is the checkpoint's, the second that of the one that goes.
    failing(files, "sync_directory", "checkpoints", first=2)

    with pytest.raises(CheckpointFailed, match="stage=compact"):
        journal.checkpoint()

    files.before_call = None
    assert journal.checkpoint_lsn == 3
    assert journal.checkpoint()
    assert journal.checkpoint_lsn == 4
    assert lsns_of(files) == [4, 3]


def test_on_a_full_disk_the_reserve_is_given_up_for_a_checkpoint() -> None:
    files = SimulatedFiles()
    settings = LogSettings(mark_sync_idle_s=0.0, reserve_bytes=64 * 1024, scan_chunk_bytes=4096)
    journal = journal_on(files, settings=settings)
    state = journal.append([create(number, schemas=(b"s" * 300,)) for number in range(1, 40)])
    assert "reserve" in files.list("journal")
    used = sum(len(files.contents(f"journal/{name}")) for name in files.list("journal"))
    # Room for the roll and its index, and for no checkpoint.
    files.capacity_bytes = used + 2_000

    assert journal.checkpoint()

    assert "reserve" not in files.list("journal")
    assert journal_on(files.restart()).state == state


def test_on_a_full_disk_where_the_reserve_cannot_be_given_up_the_checkpoint_fails_at_its_write() -> None:
    files = SimulatedFiles()
    journal = journal_on(files)
    journal.append([create(1)])

    def full_from_here_on(verb: str, name: str) -> None:
        if verb == "append" and name.endswith(".ckpt.tmp"):
            files.fail(1, errno.ENOSPC, for_ever=True, verbs=["list"])
            raise OSError(errno.ENOSPC, "the disk is full")

    files.before_call = full_from_here_on

    with pytest.raises(CheckpointFailed, match="stage=write"):
        journal.checkpoint()


def test_on_a_full_disk_without_a_reserve_the_checkpoint_fails_at_its_write() -> None:
    files = SimulatedFiles()
    journal = journal_on(files)
    state = journal.append([create(1)])
    failing(files, "append", ".ckpt.tmp", errno.ENOSPC)

    with pytest.raises(CheckpointFailed, match="stage=write"):
        journal.checkpoint()

    files.before_call = None
    assert journal.append([create(2)]).lsn == state.lsn + 1


def test_after_a_failed_sync_the_outcome_is_unknown_and_the_state_stays() -> None:
    files = SimulatedFiles()
    journal = journal_on(files)
    before = journal.append([create(1)])
    files.fail(1, errno.EIO, verbs=["sync_data"])

    with pytest.raises(OutcomeUnknown):
        journal.append([create(2)])

    assert journal.state is before
    with pytest.raises(Poisoned):
        journal.append([create(2)])


def test_a_write_that_failed_is_taken_back_and_the_next_one_begins_an_epoch() -> None:
    files = SimulatedFiles()
    journal = journal_on(files)
    before = journal.append([create(1)])
    files.fail(1, errno.EIO, verbs=["append"], short=True)

    with pytest.raises(Unavailable):
        journal.append([create(2)])
    assert journal.state is before
    state = journal.append([create(2)])

    assert state.lsn == before.lsn + 2
    epoch = journal.header(before.lsn + 1)
    assert epoch is not None and epoch.kind == Kind.EPOCH
    journal.close()
    assert journal_on(files).state == state
