"""Rows, scans and points with one rule broken: each is noticed by the unit test that is named with it.

The rules of which parts there are, and of the order of looks, are broken in view_mutants.py, for schedules to notice.
`python -m tests.simulation.view_row_mutants` prints for all of them by how many seeds each is killed.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from headwater.lake import cut, engine_log, file_cache, scan, table_rows, times, view, view_source
from tests.simulation.patches import Patch
from tests.simulation.view_mutants import MUTANTS, Test, ViewMutant, edited, kills
from tests.unit.lake import test_cut, test_file_cache, test_scan, test_table_rows, test_times, test_view

ROW_MUTANTS: list[ViewMutant] = []


def _edit(name: str, what: str, owner: Any, function: str, *changes: tuple[str, str], test: Test) -> None:
    ROW_MUTANTS.append(edited(name, what, owner, function, *changes, test=test))


# Rows of a snapshot --------------------------------------------------------------------------------------------------


def _filter(name: str, what: str, change: tuple[str, str], test: Test) -> None:
    """The condition of a part is a cached property: its function is what is edited."""

    def apply(patch: Patch) -> None:
        holder = type("Holder", (), {"_filter": vars(table_rows.PartReading)["_filter"].func})
        patch.edit(holder, "_filter", change)
        patch.set(table_rows.PartReading, "_filter", property(vars(holder)["_filter"].func))

    ROW_MUTANTS.append(ViewMutant(name, what, apply, test=test))


_filter(
    "lsn-from-included",
    "rows of the LSN that a part begins behind are read",
    ("lsn > self.part.lsn_from", "lsn >= self.part.lsn_from"),
    test_table_rows.test_of_a_file_with_many_lsns_the_rows_between_are_read,
)
_filter(
    "lsn-to-left-out",
    "rows of the last LSN of a part are not read",
    ("lsn <= self.part.lsn_to", "lsn < self.part.lsn_to"),
    test_table_rows.test_of_a_file_with_many_lsns_the_rows_between_are_read,
)
_filter(
    "unmarked-left-out",
    "rows that no landing brought are not read",
    ("between |= lsn.is_null()", "pass"),
    test_table_rows.test_rows_of_the_owner_are_in_the_first_part_alone,
)
_filter(
    "zero-in-every-part",
    "rows that somebody gave LSN 0 are in every part",
    ("between &= lsn > self.part.lsn_from", "between |= lsn == 0"),
    test_table_rows.test_rows_that_somebody_gave_lsn_zero_are_in_the_first_part_alone,
)
_edit(
    "deletes-not-applied",
    "rows that were deleted by position are read",
    table_rows.PartReading,
    "_tables",
    ("gone = _deleted_positions(io, live)", "gone = np.array([], np.int64)"),
    test=test_table_rows.test_deleted_rows_are_gone_before_anything_is_asked_of_them,
)
_edit(
    "deletes-of-the-first-batch",
    "places are counted anew in every batch",
    table_rows.PartReading,
    "_tables",
    ("position += batch.num_rows", "pass"),
    test=test_table_rows.test_deletes_are_found_by_their_place_in_the_file_across_its_row_groups,
)
_edit(
    "condition-before-deletes",
    "places are counted among the rows that fulfil the condition",
    table_rows.PartReading,
    "_tables",
    ("asked is not None and not live.deletes and", "asked is not None and"),
    test=test_table_rows.test_deleted_rows_are_gone_before_anything_is_asked_of_them,
)
_edit(
    "deletes-of-other-files",
    "a delete file takes its places from every file",
    table_rows,
    "_deleted_positions",
    ("if path == live.path", "if True"),
    test=test_table_rows.test_a_delete_file_that_speaks_of_another_file_takes_nothing,
)
_edit(
    "counted-by-file",
    "every file that may hold rows of a part counts whole",
    table_rows.PartReading,
    "is_within",
    ("return False", "return True"),
    test=test_table_rows.test_of_a_file_with_many_lsns_the_rows_between_are_read,
)
_edit(
    "bounds-off-by-one",
    "a file whose newest row is the part's oldest is not opened",
    table_rows.PartReading,
    "_may_hold",
    ("bounds[1] > self.part.lsn_from", "bounds[1] > self.part.lsn_from + 1"),
    test=test_table_rows.test_a_whole_part_is_every_row_and_a_part_by_lsn_only_those_between,
)
_edit(
    "columns-by-name",
    "a column is what has its name",
    table_rows._StoredColumns,
    "__init__",
    ("self._by_id = {int", "self._by_id = {} and {int"),
    test=test_table_rows.test_names_that_were_exchanged_are_not_taken_for_each_other,
)
_edit(
    "dropped-column-is-null",
    "a column that the owner dropped is null without a word",
    table_rows.PartReading,
    "_check_not_dropped",
    ("if any(", "if False and any("),
    test=test_table_rows.test_a_column_that_the_owner_dropped_is_named,
)
_edit(
    "asked-of-another-column",
    "a condition is asked of what has the column's name in a file",
    table_rows.PartReading,
    "_may_ask_file",
    ("if found is None or found.name != name or not", "if found is None or not"),
    test=test_table_rows.test_names_that_were_exchanged_are_not_taken_for_each_other,
)
_edit(
    "deletes-of-later-rows",
    "a delete file applies to rows that were written after it",
    file_cache.FileCache,
    "_read",
    ("entry.sequence_number or 0", "0"),
    test=test_file_cache.test_a_delete_file_is_with_the_files_that_it_applies_to,
)
_edit(
    "equality-deletes-passed-by",
    "deletes that cannot be applied are left out",
    file_cache.FileCache,
    "_read",
    ("raise Unavailable(", "continue\n                raise Unavailable("),
    test=test_file_cache.test_equality_deletes_are_refused,
)

# Scans ---------------------------------------------------------------------------------------------------------------

_edit(
    "filter-below-latest",
    "the whole condition is asked of changes before the latest are taken",
    scan.Scan,
    "_latest",
    ("self._rows(part, read, of_key)", "self._rows(part, read, whole)"),
    test=test_scan.test_a_condition_on_a_keyed_topic_never_shows_what_a_later_change_replaced,
)
_edit(
    "filter-below-latest-of-the-tail",
    "the whole condition is asked of the tail before the latest are taken",
    scan.Scan,
    "_latest",
    ("_kept(self.tail(read), of_key)", "_kept(self.tail(read), whole)"),
    test=test_scan.test_a_condition_on_a_keyed_topic_never_shows_what_a_later_change_replaced,
)
_edit(
    "latest-unfiltered",
    "of a keyed topic every latest change is shown",
    scan.Scan,
    "_latest",
    ("yield _kept(rows, whole)", "yield rows"),
    test=test_scan.test_a_condition_on_a_keyed_topic_never_shows_what_a_later_change_replaced,
)
_edit(
    "state-left-out",
    "of a keyed topic only the changes are shown",
    scan.Scan,
    "_latest",
    ("if base is not None else iter(())", "if False else iter(())"),
    test=test_scan.test_a_keyed_topic_is_its_state_its_changes_and_its_tail,
)
_edit(
    "tail-begins-too-early",
    "the frame at the landed LSN is read again",
    engine_log.EngineLog,
    "tail",
    ("start=AtLsn(lsn_from + 1)", "start=AtLsn(max(lsn_from, 1))"),
    test=test_scan.test_rows_are_seen_once_while_they_go_from_the_log_into_the_table,
)
_edit(
    "tail-ends-too-early",
    "the last frame of the cut is left out",
    engine_log.EngineLog,
    "tail",
    ("stop=AtLsn(lsn_to + 1)", "stop=AtLsn(lsn_to)"),
    test=test_scan.test_rows_are_seen_once_while_they_go_from_the_log_into_the_table,
)
_edit(
    "tail-has-no-end",
    "the tail is read beyond the cut",
    engine_log.EngineLog,
    "tail",
    ("stop=AtLsn(lsn_to + 1)", "stop=None"),
    test=test_view.test_a_cut_gives_the_same_rows_after_landings_a_rewrite_expiry_and_deletion,
)
_edit(
    "tail-unfiltered",
    "the condition is not asked of the tail",
    scan.Scan,
    "_tables",
    ("yield _kept(tail, whole)", "yield tail"),
    test=test_scan.test_a_condition_holds_for_table_and_tail,
)
_edit(
    "count-without-tail",
    "only landed rows are counted",
    scan.Scan,
    "count",
    ("return landed + self._views", "return landed or self._views"),
    test=test_scan.test_rows_are_seen_once_while_they_go_from_the_log_into_the_table,
)
_edit(
    "no-pin",
    "a scan lets go at once of what it is going to read",
    scan.Scan,
    "__init__",
    (
        "self._let_go = weakref.finalize(self, hold.release)",
        "self._let_go = weakref.finalize(self, hold.release); hold.release()",
    ),
    test=test_scan.test_what_a_scan_reads_stays_while_the_log_forgets,
)
_edit(
    "pin-outlives-its-scan",
    "the pin of a scan that nobody has stays",
    scan.Scan,
    "__init__",
    ("weakref.finalize(self, hold.release)", "weakref.finalize(hold, hold.release)"),
    test=test_scan.test_the_pin_of_a_scan_that_nobody_has_any_more_is_gone,
)
_edit(
    "one-lsn-for-all-topics-held",
    "the log is held from where it begins, whatever is read",
    view_source.EngineViewSource,
    "_pin",
    ("max(self._log_start(), lsn or 0)", "self._log_start()"),
    test=test_scan.test_a_scan_holds_what_it_reads_until_it_is_closed,
)

# Points --------------------------------------------------------------------------------------------------------------


def _parse(name: str, what: str, *changes: tuple[str, str]) -> None:
    """Reading a token is a method of the class: its function is what is edited."""

    def apply(patch: Patch) -> None:
        holder = type("Holder", (), {"parse": vars(cut.Cut)["parse"].__func__})
        patch.edit(holder, "parse", *changes)
        patch.set(cut.Cut, "parse", vars(holder)["parse"])

    test = test_cut.test_a_token_that_was_changed_by_one_character_is_refused
    ROW_MUTANTS.append(ViewMutant(name, what, apply, test=test))


_parse(
    "checksum-ignored",
    "a token with another checksum is read",
    (' or crc32c(body[4:]).to_bytes(4, "little") != body[:4]', ""),
    ("if str(cut) != token:", "if False:"),
)
_parse(
    "other-spellings-accepted",
    "a token with characters that mean nothing is read",
    ("if str(cut) != token:", "if False:"),
)
_edit(
    "half-a-write",
    "an LSN inside a write is taken as it is",
    view.Views,
    "_at_a_writes_end",
    ("else min(lsn, found[1] - 1)", "else lsn"),
    test=test_view.test_an_lsn_inside_a_write_means_the_end_of_the_write_before,
)
_edit(
    "time-of-what-is-left",
    "a time means the frames that the log still has",
    view.Views,
    "_lsn_at",
    ("if not lsn or self._is_held(lsn):", "if True:"),
    test=test_view.test_a_time_means_the_rows_that_were_appended_until_then_before_and_after_the_log_forgets,
)
_edit(
    "time-excludes-its-moment",
    "what was appended at the very time is left out",
    view.Views,
    "_lsn_at",
    ("source.find_time(time_us + 1)", "source.find_time(time_us)"),
    test=test_view.test_a_time_means_the_rows_that_were_appended_until_then_before_and_after_the_log_forgets,
)
_edit(
    "time-across-a-file",
    "a file that lies across a time counts as after it",
    times,
    "_oldest",
    ("times[0] > time_us", "times[1] > time_us"),
    test=test_times.test_the_first_landed_row_after_a_time_is_found,
)


ALL_MUTANTS = (*MUTANTS, *ROW_MUTANTS)


def main() -> int:
    """Print by how many seeds each mutant is killed, or whether its test notices it."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.view_row_mutants", description=main.__doc__)
    parser.add_argument("--seeds", type=int, default=60)
    parser.add_argument("--only", help="one mutant")
    given = parser.parse_args()
    lives = 0
    for mutant in ALL_MUTANTS:
        if given.only in {None, mutant.name}:
            seeds = 1 if mutant.test is not None else given.seeds
            killed = [told for seed in range(seeds) if (told := kills(mutant, seed)) is not None]
            lives += not killed
            print(
                f"{mutant.name:<40} {len(killed):>4} of {seeds}  {killed[0][:100] if killed else 'LIVES'}", flush=True
            )
    return 1 if lives else 0


if __name__ == "__main__":
    sys.exit(main())
