"""The metadata journal with one rule broken, to show that its tests would notice: each mutant names what kills it.

HOW      As in mutants.py: a function of the product is replaced in memory by its source with a change.
CHECKS   Directed tests, and the life of tests/faults/journal_life.py crashed at every call.

Rules that no mutant here breaks, because another rule holds without them:
    the order of compaction, checkpoints first      a checkpoint that comes back from a lost unlink is passed over where
                                                    the journal no longer continues it (recovery.log_start)
    the sync of the directory after old             as above
    checkpoints were unlinked
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from headwater.errors import Conflict, InvalidRequest
from headwater.metadata import checkpoint, journal, operations, recovery, ring, state
from tests.faults.journal_life import crash_at_every_call, live, with_two_checkpoints
from tests.simulation.patches import Patch
from tests.unit.metadata import (
    test_checkpoint,
    test_journal,
    test_journal_checkpoints,
    test_journal_readers,
    test_journal_recovery,
    test_operations,
    test_ring,
    test_state,
)

Check = Callable[[], None]


def crashes() -> None:
    crash_at_every_call(with_two_checkpoints(), live, mixes=5)


@dataclass(frozen=True)
class JournalMutant:
    name: str
    what: str
    owner: object
    function: str
    changes: tuple[tuple[str, str], ...]
    killed_by: Check

    @contextmanager
    def __call__(self) -> Iterator[None]:
        patch = Patch()
        try:
            before = getattr(self.owner, self.function)
            patch.edit(self.owner, self.function, *self.changes)
            if vars(test_checkpoint).get(self.function) is before:
                # A function of a module, which this test has imported by its name.
                patch.set(test_checkpoint, self.function, getattr(self.owner, self.function))
            yield
        finally:
            patch.undo()


def _mutant(name: str, what: str, owner: object, function: str, old: str, new: str, check: Check) -> JournalMutant:
    return JournalMutant(name, what, owner, function, ((old, new),), check)


_JOURNAL = journal.Journal
_RING = ring.Ring
_STATE = state.MetadataState
_CHECKPOINTS = checkpoint.Checkpoints
_FORGET_FIRST = "self._log.exclusively(lambda: self._log.device.forget(Lsn(state.lsn + 1)))"

MUTANTS = [
    # The ring
    _mutant(
        "any-header", "a lookup answers with whatever its slot holds", _RING, "header",
        "header.lsn == lsn", "True", test_ring.test_a_lookup_answers_only_if_the_slot_holds_that_very_number,
    ),
    _mutant(
        "one-slot-too-many", "the ring counts one slot more than it has", _RING, "remaining_capacity",
        "len(self._slots) -", "len(self._slots) + 1 -",
        test_ring.test_the_capacity_is_what_no_checkpoint_covers_less_than_the_ring,
    ),
    _mutant(
        "mark-falls", "the checkpoint's mark may fall", _RING, "cover",
        "self._checkpoint_lsn <= lsn <= self._last_lsn", "lsn <= self._last_lsn",
        test_ring.test_the_checkpoint_only_rises_and_never_beyond_what_is_durable,
    ),
    # When checkpoints are made
    _mutant(
        "evicts", "nothing is asked before an append that evicts what no checkpoint covers", _JOURNAL, "_make_room",
        "not self._ring.has_room(frames, margin=MARGIN)", "False",
        test_journal_checkpoints.test_a_full_ring_lets_nothing_in_while_checkpoints_fail,
    ),
    _mutant(
        "no-epoch-frame", "the frame that begins an epoch is not counted", _JOURNAL, "_make_room",
        "operations + 1", "operations",
        test_journal_checkpoints
        .test_a_checkpoint_comes_before_an_append_that_would_leave_fewer_slots_than_the_margin,
    ),
    _mutant(
        "never-early", "no checkpoint is made while slots remain", _JOURNAL, "_checkpoint_early",
        "self._ring.has_room(EARLY)", "True",
        test_journal_checkpoints.test_a_checkpoint_is_made_after_an_append_while_slots_remain,
    ),
    _mutant(
        "unlimited", "an append may be larger than the ring", _JOURNAL, "append",
        "len(operations) > OPERATIONS_MAX", "False",
        test_journal_checkpoints.test_the_largest_append_fits_and_one_more_is_too_large,
    ),
    # The steps of a checkpoint
    _mutant(
        "mark-first", "the mark rises before the checkpoint is made", _JOURNAL, "_checkpoint",
        "    try:\n", "    self._ring.cover(state.lsn)\n    try:\n",
        test_journal_checkpoints.test_the_mark_rises_only_after_the_compaction,
    ),
    _mutant(
        "forgets-first", "segments go before the checkpoint that covers them is there", _JOURNAL, "_checkpoint",
        "        self._write(", f"        {_FORGET_FIRST}\n        self._write(", crashes,
    ),
    _mutant(
        "no-roll", "the journal's segment does not end at the checkpoint", _JOURNAL, "_checkpoint",
        "self._log.roll()", "pass", crashes,
    ),
    _mutant(
        "forgets-too-much", "the newest checkpoint decides which segments go", _JOURNAL, "_compact",
        "valid[KEPT - 1]", "valid[0]",
        test_journal_recovery
        .test_a_damaged_newest_checkpoint_falls_back_to_the_older_one_and_the_journal_goes_on,
    ),
    _mutant(
        "keeps-all", "the journal is never compacted", _JOURNAL, "_compact",
        "len(valid) < KEPT", "True",
        test_journal_checkpoints.test_the_journal_lets_go_of_what_two_checkpoints_cover_and_says_so,
    ),
    _mutant(
        "lying-directory-sync", "after a failed sync of its directory the journal goes on", _JOURNAL, "_write",
        '== "sync directory"', '== "never"',
        lambda: test_journal_checkpoints.test_each_stage_of_a_checkpoint_fails_by_its_name(
            "sync directory", "sync_directory", "checkpoints", True
        ),
    ),
    # Checkpoint files
    _mutant(
        "checkpoint-unsynced", "a checkpoint is renamed before it is synced", _CHECKPOINTS, "write",
        "file.sync_all()", "pass",
        test_checkpoint.test_no_crash_while_a_checkpoint_is_written_harms_the_older_one_or_shows_half_of_it,
    ),
    _mutant(
        "checkpoint-in-place", "a checkpoint is written under its name", _CHECKPOINTS, "write",
        "temporary = path + TEMPORARY", "temporary = path",
        test_checkpoint.test_no_crash_while_a_checkpoint_is_written_harms_the_older_one_or_shows_half_of_it,
    ),
    _mutant(
        "checkpoint-name-unsynced", "the name of a checkpoint is not synced", _CHECKPOINTS, "write",
        "self._files.sync_directory(self._directory)", "pass", crashes,
    ),
    _mutant(
        "body-unchecked", "the body of a checkpoint is not checked", checkpoint, "unpack_checkpoint",
        "crc32c(body) != body_crc", "False", test_checkpoint.test_every_changed_bit_of_a_checkpoint_is_found,
    ),
    _mutant(
        "header-unchecked", "the header of a checkpoint is not checked", checkpoint, "unpack_checkpoint",
        "!= header_crc", "< 0", test_checkpoint.test_every_changed_bit_of_a_checkpoint_is_found,
    ),
    _mutant(
        "length-unchecked", "what follows a checkpoint is not looked at", checkpoint, "unpack_checkpoint",
        "len(data) != HEADER_BYTES + body_size", "len(data) < HEADER_BYTES + body_size",
        test_checkpoint.test_every_length_but_the_right_one_is_found,
    ),
    _mutant(
        "damaged-counts", "a damaged checkpoint is kept in the place of a valid one", _CHECKPOINTS, "keep_newest",
        "valid = [file.lsn for file in found if file.checkpoint is not None]", "valid = [file.lsn for file in found]",
        test_checkpoint.test_a_damaged_one_does_not_count_and_goes_once_a_newer_valid_one_is_there,
    ),
    # Appending
    _mutant(
        "published-early", "the state is published before it is durable", _JOURNAL, "append",
        "    receipt = ", "    self.state = state; receipt = ",
        test_journal_checkpoints.test_after_a_failed_sync_the_outcome_is_unknown_and_the_state_stays,
    ),
    _mutant(
        "shared-state", "operations are applied to the published state itself", _JOURNAL, "append",
        "state = self.state.copy()", "state = self.state", test_journal.test_a_published_state_is_never_changed,
    ),
    _mutant(
        "wrong-number", "the state does not count the frame that begins an epoch", _JOURNAL, "append",
        "state.lsn = receipt.last_lsn", "pass", test_journal.test_opening_again_goes_on_with_the_next_number,
    ),
    _mutant(
        "stale-owner", "a new owner does not take in what it has missed", _JOURNAL, "_own",
        "self._catch_up()", "pass",
        test_journal.test_a_reader_that_becomes_the_owner_first_takes_in_what_it_has_missed,
    ),
    _mutant(
        "half-an-owner", "an owner that could not read what it missed believes that it has", _JOURNAL, "_own",
        "    self._log.claim()\n", "    self._log.claim()\n    self._current = True\n",
        test_journal.test_an_owner_that_could_not_read_what_it_missed_tries_again,
    ),
    _mutant(
        "lost-reader", "a reader whose next operation was compacted halts", _JOURNAL, "_catch_up",
        "except (Forgotten, LostSegment)", "except ZeroDivisionError",
        test_journal.test_a_reader_that_slept_through_compactions_begins_at_the_newest_checkpoint,
    ),
    _mutant(
        "looks-once", "a reader halts on what an owner compacts while it looks", _JOURNAL, "_recover",
        "if self._look() == seen and looks <= 0:", "if True:",
        lambda: test_journal_readers.test_opening_is_not_disturbed_by_a_compaction_at_any_of_its_calls(2),
    ),
    _mutant(
        "lists-once", "a checkpoint that is gone when it is opened is an error", _CHECKPOINTS, "read",
        "except FileNotFoundError:", "except ZeroDivisionError:",
        test_checkpoint.test_a_file_that_is_gone_when_it_is_opened_is_looked_for_again,
    ),
    # Recovery
    _mutant(
        "replays-covered", "the operation at the checkpoint's number is applied again", _JOURNAL, "_replay",
        "frame.lsn <= covered_lsn", "frame.lsn < covered_lsn",
        test_journal_recovery
        .test_a_checkpoint_and_the_operations_after_it_are_the_state_and_nothing_before_it_is_applied,
    ),
    _mutant(
        "ahead", "a checkpoint may be ahead of the journal", _JOURNAL, "_check_continues",
        "checkpoint.lsn > durable_lsn", "False",
        test_journal_recovery.test_a_checkpoint_ahead_of_the_journal_halts,
    ),
    _mutant(
        "any-history", "a checkpoint may be of another history", _JOURNAL, "_check_continues",
        "chain != checkpoint.chain", "False",
        lambda: test_journal_recovery.test_a_checkpoint_of_another_history_halts(1),
    ),
    _mutant(
        "unreached", "a checkpoint need not be continued by the journal", recovery, "choose_start",
        "file.lsn + 1 < first_lsn", "False",
        test_journal_recovery.test_an_older_checkpoint_that_the_journal_does_not_continue_is_not_fallen_back_to,
    ),
    _mutant(
        "begins-anywhere", "a journal without a checkpoint need not begin at 1", recovery, "choose_start",
        "first_lsn is not None and first_lsn > 1", "False",
        test_journal_recovery.test_no_checkpoint_and_a_compacted_journal_halt,
    ),
    _mutant(
        "begins-again", "damaged checkpoints without a journal are an empty start", recovery, "choose_start",
        "first_lsn is None and damaged", "False",
        test_journal_recovery.test_only_damaged_checkpoints_and_no_journal_halt,
    ),
    _mutant(
        "needs-the-oldest", "a checkpoint that comes back decides what the journal must hold", recovery, "log_start",
        "file.lsn + 1 >= first_lsn", "True",
        test_journal_recovery.test_a_checkpoint_that_the_journal_no_longer_needs_does_not_halt_it,
    ),
    _mutant(
        "skips-refused", "an operation that is refused in replay is skipped", recovery, "apply_frame",
        "except Refused as refused:\n", "except Refused as refused:\n            return\n",
        test_journal_recovery.test_an_operation_that_the_state_refuses_halts_by_its_number,
    ),
    _mutant(
        "epochs-uncounted", "the frame that begins an epoch does not raise the state's number", recovery, "apply_frame",
        "state.lsn = header.lsn", "pass",
        test_journal_recovery.test_a_frame_that_any_version_may_skip_is_skipped_and_counted_in_the_numbers,
    ),
    _mutant(
        "later-is-damage", "an operation of a later version counts as damage", operations, "_what_is_unknown",
        "not in _TAGS", "in ()", test_operations.test_an_operation_of_a_later_version_is_refused_as_such,
    ),
    # The state
    _mutant(
        "number-reused", "a deleted topic's number is given out again", _STATE, "_create_topic",
        "self.next_topic_number += 1", "self.next_topic_number = len(self.topics) + 1",
        test_state.test_a_deleted_topics_name_is_free_again_and_its_number_never,
    ),
    _mutant(
        "half-forgotten", "a refused operation leaves a trace", _STATE, "_forget",
        "if number not in self.deleted:", "if self.deleted.pop(number, None) is None:",
        lambda: test_state.test_what_is_refused_changes_nothing(
            operations.ForgetTopics((3, 1)), InvalidRequest, "topic 1 was not deleted"
        ),
    ),
    _mutant(
        "start-falls", "the log's start may fall", _STATE, "_set_log_start",
        "operation.lsn < self.log_start", "False",
        lambda: test_state.test_what_is_refused_changes_nothing(
            operations.SetLogStart(9, ()), Conflict, "never falls"
        ),
    ),
    _mutant(
        "unsorted", "a packed state depends on the order of its making", _STATE, "pack",
        "sorted(self.groups)", "self.groups",
        test_state.test_equal_states_are_equal_bytes_whatever_order_they_were_made_in,
    ),
    _mutant(
        "shallow-copy", "a copy shares its topics with the state it was made from", _STATE, "copy",
        "dict(self.topics)", "self.topics", test_state.test_a_copy_is_not_changed_with_what_it_was_made_from,
    ),
]  # fmt: skip
