"""Erasure that meets crashes, other commits, readers, tags and disks: what is left is said, and the next goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from headwater.errors import CorruptData, Forgotten, LandingHalted, Unavailable
from headwater.ids import Lsn
from headwater.lake import erased_snapshots, erasing, log_erasing, table_erasing
from headwater.lake.erased_snapshots import snapshots_showing
from headwater.lake.erasing import ATTEMPTS_MAX
from headwater.lake.file_cache import FileCache
from headwater.lake.iceberg_tables import CommitRequest
from headwater.lake.ledger_records import Kept
from headwater.lake.mark import mark_in_summary
from headwater.lake.offset_runs import OffsetRuns
from headwater.lake.table_erasing import Rewrite, stage_erasure
from headwater.lake.tables import CommitRefused, CommitUncertain
from headwater.lake.work import Digest
from headwater.log.rewrite import rewrite_segment
from tests.unit.lake.erasable_lakes import Crash, Erasable, people
from tests.unit.lake.erased_balance import check_landings_join, expected_less_erased, held
from tests.unit.lake.small_lakes import NoReadBack

MARKED = "marked-7f3a9c"


class Points:
    """Every durable act of an erasure, counted; the process ends before one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        self.seen = 0
        for place, name in [
            (erasing._Erasing, "_record"),
            (erased_snapshots.Expiring, "_note"),
            (erasing, "stage_erasure"),
            (erased_snapshots, "expire"),
            (erased_snapshots, "remove_files"),
            (log_erasing, "rewrite_segment"),
        ]:
            monkeypatch.setattr(place, name, self._met(getattr(place, name)))

    def _met(self, act: Any) -> Any:
        def met(*args: Any, **options: Any) -> Any:
            self.seen += 1
            if self.left is not None:
                if self.left == 0:
                    self.left = None
                    raise Crash
                self.left -= 1
            return act(*args, **options)

        return met


def test_wherever_it_dies_the_next_erasure_of_the_topic_finishes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with people(tmp_path) as lake:
        points = Points(monkeypatch)
        lake.land("kept", MARKED)
        lake.erase(f"name = '{MARKED}'")
        acts = points.seen
        assert acts >= 8
        kept = ["first", "kept"]

        for at in range(acts):
            value = f"{MARKED}-{at}"
            lake.land("kept", value)
            kept.append("kept")
            known = len(lake.receipts())
            points.left = at
            with pytest.raises(Crash):
                lake.erase(f"name = '{value}'")
            assert lake.names() in (kept, sorted([*kept, value])), at

            intended = len(lake.receipts()) > known
            if intended and not lake.receipts()[-1].done:
                assert lake.log.audit("people").passed, at
            report = lake.erase("name = 'nobody'" if intended else f"name = '{value}'")

            assert report.outcome == "complete", (at, report)
            assert bool(report.finished) == intended
            assert lake.files_with(value) == [], at
            assert lake.names() == lake.logged() == kept
            assert lake.receipts()[-1].done == ("table", "snapshots", "log")
        assert expected_less_erased(lake) == held(lake)
        assert lake.log.audit("people", full=True).passed
        check_landings_join(lake)


# Other commits -----------------------------------------------------------------------------------


def test_a_landing_that_comes_between_stays_and_the_erasure_begins_again(tmp_path: Path) -> None:
    with people(tmp_path) as lake:
        lake.land("ann", MARKED)
        lake.hooks["before commit"] = lambda: lake.land("bob", MARKED)

        report = lake.erase(f"name = '{MARKED}'")

        # The row that landed since is a row of after the erasure.
        assert report.outcome == "complete" and report.rows == 1
        assert lake.names() == ["ann", "bob", "first", MARKED]
        check_landings_join(lake)
        assert lake.erase(f"name = '{MARKED}'").outcome == "complete"
        assert lake.files_with(MARKED) == [] and expected_less_erased(lake) == held(lake)


def test_a_snapshot_of_a_landing_that_nobody_has_read_back_stays_until_somebody_has(tmp_path: Path) -> None:
    with people(tmp_path) as lake:
        lake.land("ann", MARKED)

        def land_unread() -> None:
            lake.append("bob")
            lake.lake.land(lake.lake.log_of(lake.engine), "people", runner=NoReadBack())

        lake.hooks["before commit"] = land_unread

        report = lake.erase(f"name = '{MARKED}'")

        assert report.outcome == "incomplete"
        assert "is kept for a landing that nobody has read back yet" in report.left[0]
        assert lake.receipts()[0].done == ("table", "log")
        again = lake.erase("name = 'nobody'")
        assert again.outcome == "complete" and again.finished == (report.erasure_id,)
        assert lake.files_with(MARKED) == [] and lake.names() == ["ann", "bob", "first"]


def test_an_erasure_that_other_commits_come_before_each_time_is_given_up_and_can_be_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with people(tmp_path) as lake:
        lake.land("ann", MARKED)
        tries = []

        def refused(*_: object) -> Any:
            tries.append(1)
            raise CommitRefused("another came first")

        with monkeypatch.context() as patched:
            patched.setattr(erasing, "stage_erasure", refused)
            with pytest.raises(Unavailable, match=r"rows could not be taken out of 'crm\.people'"):
                lake.erase(f"name = '{MARKED}'")

        assert len(tries) == ATTEMPTS_MAX and lake.receipts()[0].done == ()
        assert lake.erase("name = 'nobody'").outcome == "complete"
        assert lake.files_with(MARKED) == []


def test_the_commit_is_conditional_on_the_head_the_schema_and_the_partitioning_that_were_read(tmp_path: Path) -> None:
    with people(tmp_path) as lake:
        lake.land("ann")
        state = lake.state()
        head = state.head()
        assert head is not None
        mark = mark_in_summary(head.summary)
        assert mark is not None

        staged = stage_erasure(state, Rewrite(), mark)

        assert isinstance(staged.native, CommitRequest)
        told = [each.model_dump(mode="json", by_alias=True) for each in staged.native.requirements]
        assert told == [
            {"type": "assert-table-uuid", "uuid": state.uuid},
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": head.snapshot_id},
            {"type": "assert-current-schema-id", "current-schema-id": state.schema_id},
            {"type": "assert-default-spec-id", "default-spec-id": state.spec_id},
        ]


def test_a_commit_of_which_nobody_knows_is_looked_for_in_the_table(tmp_path: Path) -> None:
    with people(tmp_path) as lake:
        lake.land("ann", MARKED)

        def lose_the_reply() -> None:
            raise CommitUncertain("nobody knows")

        lake.hooks["after commit"] = lose_the_reply

        report = lake.erase(f"name = '{MARKED}'")

        assert report.outcome == "complete"
        assert lake.files_with(MARKED) == [] and lake.names() == ["ann", "first"]


def test_a_commit_that_cannot_be_prepared_sends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with people(tmp_path) as lake:
        lake.land("ann", MARKED)
        monkeypatch.setattr(table_erasing._Erasure, "_existing_manifests", lambda _: 1 / 0)

        with pytest.raises(Unavailable, match="cannot be prepared"):
            lake.erase(f"name = '{MARKED}'")

        assert lake.names() == ["ann", "first", MARKED]


def test_a_file_that_does_not_hold_what_was_written_is_never_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with people(tmp_path) as lake:
        lake.land("ann", MARKED)
        monkeypatch.setattr(table_erasing, "combine", lambda _: Digest())

        with pytest.raises(CorruptData, match="does not hold what was written"):
            lake.erase(f"name = '{MARKED}'")

        assert lake.names() == ["ann", "first", MARKED]


# Those who hold something ------------------------------------------------------------------------


def test_a_tag_of_the_tables_owner_is_named_and_when_it_is_gone_the_next_erasure_finishes(tmp_path: Path) -> None:
    with people(tmp_path) as lake:
        lake.land("ann", MARKED)
        table = lake.native()
        table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "audited").create_branch(
            table.current_snapshot().snapshot_id, "trial"
        ).commit()

        report = lake.erase(f"name = '{MARKED}'")

        assert report.outcome == "incomplete" and lake.names() == ["ann", "first"]
        assert "is kept for the branch 'trial' of the table's owner" in report.left[0]
        assert "not finished: crm.people: snapshot" in str(report)
        # What the owner keeps is whole.
        tagged = table.scan(snapshot_id=table.current_snapshot().snapshot_id).to_arrow()
        assert sorted(tagged["name"].to_pylist()) == ["ann", "first", MARKED]
        lake.native().manage_snapshots().remove_branch("trial").commit()
        again = lake.erase(f"name = '{MARKED}'")
        assert again.outcome == "incomplete" and "the tag 'audited'" in again.left[0] and not again.finished
        lake.native().manage_snapshots().remove_tag("audited").commit()
        assert lake.erase(f"name = '{MARKED}'").finished == (report.erasure_id,)
        assert lake.files_with(MARKED) == []


def test_what_a_reader_holds_stays_until_it_lets_go(tmp_path: Path) -> None:
    with people(tmp_path) as lake:
        lake.land("ann", MARKED)
        head = lake.native().current_snapshot().snapshot_id
        pin = lake.engine.pins.hold(Lsn(1), lambda: 1, note=f"snapshots {head}")
        plain = lake.engine.pins.hold(Lsn(1), lambda: 1)

        report = lake.erase(f"name = '{MARKED}'")

        assert report.outcome == "incomplete"
        assert f"snapshot {head} is kept for a reader" in report.left[0]
        assert "a reader holds it (pid" in report.left[1] and report.segments == ()
        assert lake.names() == ["ann", "first"] and MARKED in lake.logged()
        pin.release()
        plain.release()
        assert lake.erase("name = 'nobody'").outcome == "complete"
        assert lake.files_with(MARKED) == [] and lake.logged() == ["ann", "first"]


def test_a_table_whose_files_are_shared_keeps_them_and_it_is_said(tmp_path: Path) -> None:
    with people(tmp_path) as lake:
        lake.land("ann", MARKED)
        with lake.native().transaction() as change:
            change.set_properties({"gc.enabled": "false"})

        report = lake.erase(f"name = '{MARKED}'")

        assert report.left == ("crm.people: its property gc.enabled says that its files are shared",)
        assert lake.names() == ["ann", "first"]


# Disks and files ---------------------------------------------------------------------------------


def test_files_that_cannot_be_removed_are_removed_by_the_next_erasure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with people(tmp_path) as lake:
        lake.land("ann", MARKED)

        def refuse(*_: object) -> None:
            raise PermissionError("read only")

        with monkeypatch.context() as patched:
            patched.setattr(PyArrowFileIO, "delete", refuse)
            patched.setattr(erased_snapshots, "FILES_PER_RECORD", 2)
            report = lake.erase(f"name = '{MARKED}'")

        assert report.outcome == "incomplete" and "files could not be removed" in report.left[0]
        lake.lake.ledger.record([Kept(table="crm.people", what="expired", detail="3 snapshots, 4 files", at_us=1)])
        assert lake.files_with(MARKED) != []
        assert lake.erase("name = 'nobody'").outcome == "complete"
        assert lake.files_with(MARKED) == []


def test_a_table_that_is_gone_before_its_files_are_removed_keeps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with people(tmp_path) as lake:
        lake.land("ann", MARKED)
        remove = erased_snapshots.Expiring.remove

        def drop_first(self: erased_snapshots.Expiring, *args: Any) -> None:
            lake.native().catalog.drop_table("crm.people")
            remove(self, *args)

        monkeypatch.setattr(erased_snapshots.Expiring, "remove", drop_first)

        with pytest.raises(Unavailable, match=r"'crm\.people' is gone: its files stay"):
            lake.erase(f"name = '{MARKED}'")


def test_snapshots_whose_manifests_cannot_be_read_are_not_guessed_about(tmp_path: Path) -> None:
    with people(tmp_path) as lake:
        lake.land("ann")
        lake.land("bob")
        state = lake.state()
        old = lake.native().snapshots()[0].manifest_list
        Path(old.removeprefix("file://")).unlink()

        with pytest.raises(Unavailable, match=r"manifests of 'crm\.people' cannot be read"):
            snapshots_showing(state, OffsetRuns(((0, 0, 9),)), FileCache())


# The log -----------------------------------------------------------------------------------------


def test_a_frame_that_is_too_large_to_lose_single_rows_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with people(tmp_path, table=None) as lake:
        lake.append("ann", MARKED)
        monkeypatch.setattr(log_erasing, "BODY_SIZE_BYTES_MAX", 10)

        report = lake.erase(f"name = '{MARKED}'")

        assert report.outcome == "incomplete" and "cannot lose single rows" in report.left[0]
        monkeypatch.undo()
        assert lake.erase("name = 'nobody'").outcome == "complete" and lake.logged() == ["ann"]


def test_a_segment_that_is_replaced_while_it_is_made_again_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with people(tmp_path, table=None) as lake:
        lake.append("ann", MARKED)
        with failing(monkeypatch, times=1):
            assert lake.erase(f"name = '{MARKED}'").outcome == "complete"
        lake.append(MARKED)

        with failing(monkeypatch, times=ATTEMPTS_MAX):
            report = lake.erase(f"name = '{MARKED}'")

        assert report.left == ("the log: its segments were replaced each time while they were made again",)
        assert lake.erase("name = 'nobody'").outcome == "complete" and lake.logged() == ["ann"]


@contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, times: int) -> Iterator[None]:
    left = [times]

    def replaced(*args: Any, **options: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise Forgotten("this segment was forgotten or replaced: plan again")
        return rewrite_segment(*args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(log_erasing, "rewrite_segment", replaced)
        yield


# Landing first -----------------------------------------------------------------------------------


def test_a_topic_whose_table_is_gone_or_whose_landing_is_halted_is_not_erased(tmp_path: Path) -> None:
    with people(tmp_path) as lake:
        lake.land("ann", MARKED)
        lake.native().catalog.drop_table("crm.people")

        with pytest.raises(LandingHalted, match="is gone or holds less than the ledger says"):
            lake.erase(f"name = '{MARKED}'")
        lake.append("bob")
        with pytest.raises(LandingHalted, match="is gone: if that was meant, land with --after-rollback"):
            lake.erase(f"name = '{MARKED}'")

        assert lake.receipts() == [] and MARKED in lake.logged()


def test_a_topic_that_cannot_be_read_back_is_not_erased(tmp_path: Path) -> None:
    with people(tmp_path) as lake:
        lake.append("ann", MARKED)
        lake.runner = NoReadBack()

        with pytest.raises(Unavailable, match="could not be landed and read back, so nothing is erased"):
            lake.erase(f"name = '{MARKED}'")

        assert lake.receipts() == [] and MARKED in lake.names()


def test_a_topic_that_nothing_was_ever_appended_to_has_nothing_to_erase(tmp_path: Path) -> None:
    with people(tmp_path) as lake:
        lake.log.topic("empty", schema=pa.schema([pa.field("x", pa.int64())]), table="crm.empty")
        empty = Erasable(lake.folder, lake.log, topic="empty")

        assert empty.erase("x = 1").outcome == "nothing"
        with closing(lake.lake.place.connect()):
            assert empty.receipts() == []
