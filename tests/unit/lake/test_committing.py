"""One conditional commit, and its outcome by the table: each row of the table in committing.py, on a real catalog."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import StringType

from headwater.errors import Unavailable
from headwater.lake.committing import ATTEMPT_US_MAX, REFUSALS_MAX, Committed, Committing, NotCommitted
from headwater.lake.connections import Connections
from headwater.lake.data_files import DataFileWriter, columns_of
from headwater.lake.mark import Mark
from headwater.lake.marks import Standing
from headwater.lake.shape import table_shape
from headwater.lake.tables import CommitRefused, CommitUncertain, Fit, TableState
from headwater.lake.work import WrittenFile
from tests.unit.lake.small_lakes import Once, SmallLake, lakes, raising

COMMIT_ID = "6b5bd1cf-4b9d-4a4b-9f6d-0c8e0f6a7d11"
OTHER_ID = "00000000-0000-4000-8000-000000000001"
LOG_ID = "0a" * 16


@dataclass
class Prepared:
    """A landing whose files are written."""

    lake: SmallLake
    state: TableState
    fit: Fit
    files: list[WrittenFile]
    mark: Mark
    connections: Connections

    def commit(self, standing: Standing | None = None, begun_us: int | None = None) -> Committed | NotCommitted:
        committing = Committing(self.connections, self.lake.clock)
        return committing.commit(self.state, self.fit, self.files, self.mark, standing or Standing(), begun_us)

    def of(self, commit_id: str, lsn_to: int) -> Prepared:
        """The same rows in files of their own, as another lander has them."""
        files = written(self.fit, commit_id)
        return replace(self, files=files, mark=replace(self.mark, commit_id=commit_id, lsn_to=lsn_to))

    def land_at_once(self) -> None:
        """Commit it, by a connection of its own."""
        tables = self.lake.place.connect()
        state = tables.load("lake.orders")
        assert state is not None
        tables.commit(tables.stage(state, self.fit, self.files, self.mark))
        tables.close()


def written(fit: Fit, commit_id: str) -> list[WrittenFile]:
    values = {"x": 7, "_hw_shard": 0, "_hw_lsn": 3, "_hw_partition": 0, "_hw_offset": 0, "_hw_time": 0}
    columns = columns_of(fit.target)
    rows = pa.Table.from_arrays([pa.array([values[each.name]]).cast(each.type) for each in columns], schema=columns)
    return DataFileWriter(fit.target, commit_id, 1).write(rows)


@pytest.fixture
def prepared(tmp_path: Path) -> Iterator[Prepared]:
    for lake in lakes(tmp_path):
        topic = lake.topic("orders")
        tables = lake.place.connect()
        state = tables.create("lake.orders", table_shape(topic))
        fit = tables.fit(state, table_shape(topic))
        mark = Mark(LOG_ID, topic.topic_id.hex(), COMMIT_ID, 0, 0, 3, 1, "0" * 16, 1, 3)
        connections = Connections(lake.connect, 1)
        yield Prepared(lake, state, fit, written(fit, COMMIT_ID), mark, connections)
        connections.close()
        tables.close()


def referenced(lake: SmallLake) -> int:
    return len(lake.files())


def test_a_commit_that_is_applied_returns_its_snapshot(prepared: Prepared) -> None:
    result = prepared.commit()

    head = prepared.lake.state().head()
    assert head is not None
    assert result == Committed(head.snapshot_id, prepared.state.uuid)
    assert prepared.lake.calls == ["stage", "commit"]


# Found ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [CommitUncertain("no reply"), CommitRefused("refused by its own echo")])
def test_a_commit_that_was_applied_whatever_we_were_told_is_found(prepared: Prepared, error: Exception) -> None:
    # Given a catalog that applies the commit and answers something else: a lost reply; a request sent again.
    prepared.lake.after["commit"] = raising(error)

    result = prepared.commit()

    assert isinstance(result, Committed)
    assert result.adopted
    assert prepared.lake.calls.count("commit") == 1
    assert prepared.lake.values() == [7]


def test_it_is_looked_for_through_a_new_connection_and_the_old_one_is_closed(prepared: Prepared) -> None:
    prepared.lake.after["commit"] = raising(CommitUncertain("no reply"))

    prepared.commit()

    assert [connection.closed for connection in prepared.lake.connections] == [1, 1]


def test_a_commit_that_others_have_gone_on_from_and_expired_is_found_by_the_property(prepared: Prepared) -> None:
    def meanwhile() -> None:
        prepared.lake.foreign_append()
        prepared.lake.expire_all_but_head()
        raise CommitUncertain("no reply")

    prepared.lake.after["commit"] = Once(meanwhile)

    result = prepared.commit()

    assert isinstance(result, Committed)
    assert result.adopted and result.snapshot_id > 0


# Absent and refused ---------------------------------------------------------------------------------------------------


def test_the_same_files_go_onto_the_head_that_another_commit_left(prepared: Prepared) -> None:
    prepared.lake.before["commit"] = Once(prepared.lake.foreign_append)

    result = prepared.commit()

    assert isinstance(result, Committed)
    assert not result.adopted
    assert prepared.lake.calls.count("commit") == 2
    assert prepared.lake.values() == [-1, 7]
    assert sum(COMMIT_ID in str(path) for path in prepared.lake.files()) == 1


def test_files_that_were_written_under_another_schema_are_not_committed(prepared: Prepared) -> None:
    def widen() -> None:
        with prepared.lake.native() as table, table.update_schema() as change:
            change.add_column("note", StringType())

    prepared.lake.before["commit"] = Once(widen)

    assert prepared.commit() is NotCommitted.AGAIN
    assert prepared.lake.calls.count("commit") == 1
    assert prepared.lake.state().head() is None


def test_files_that_were_written_under_another_partitioning_are_not_committed(prepared: Prepared) -> None:
    def partition() -> None:
        with prepared.lake.native() as table, table.update_spec() as change:
            change.add_identity("x")

    prepared.lake.before["commit"] = Once(partition)

    assert prepared.commit() is NotCommitted.AGAIN
    assert prepared.lake.state().head() is None


@pytest.mark.parametrize(
    ("lsn_to", "outcome"), [(3, NotCommitted.LOST), (5, NotCommitted.LOST), (2, NotCommitted.AGAIN)]
)
def test_another_lander_that_won_is_found_by_its_landed_lsn(
    prepared: Prepared, lsn_to: int, outcome: NotCommitted
) -> None:
    other = prepared.of(OTHER_ID, lsn_to)
    prepared.lake.before["commit"] = Once(other.land_at_once)

    assert prepared.commit() is outcome
    assert prepared.lake.values() == [7]
    assert prepared.lake.calls.count("commit") == 1


def test_a_table_that_cannot_say_how_far_it_has_come_any_more_is_read_from_the_start(prepared: Prepared) -> None:
    def meanwhile() -> None:
        prepared.of(OTHER_ID, 2).land_at_once()
        prepared.lake.forget_the_mark()

    prepared.lake.before["commit"] = Once(meanwhile)

    assert prepared.commit() is NotCommitted.AGAIN


@pytest.mark.parametrize("again", [False, True], ids=["gone", "another one"])
def test_a_table_that_is_gone_or_another_one_is_read_from_the_start(prepared: Prepared, again: bool) -> None:
    def meanwhile() -> None:
        prepared.lake.drop()
        if again:
            tables = prepared.lake.place.connect()
            tables.create("lake.orders", table_shape(prepared.lake.record("orders")))
            tables.close()

    prepared.lake.before["commit"] = Once(meanwhile)

    assert prepared.commit() is NotCommitted.AGAIN


def test_another_landing_that_was_undone_is_for_whoever_begins_anew_to_judge(prepared: Prepared) -> None:
    def meanwhile() -> None:
        prepared.lake.foreign_append()
        head = prepared.lake.state().head()
        assert head is not None
        prepared.of(OTHER_ID, 3).land_at_once()
        prepared.lake.rollback(head.snapshot_id)

    prepared.lake.before["commit"] = Once(meanwhile)

    assert prepared.commit() is NotCommitted.AGAIN
    assert prepared.lake.calls.count("commit") == 1
    assert prepared.lake.values() == [-1]


def test_a_table_on_which_others_are_always_faster_is_left_after_some_time(prepared: Prepared) -> None:
    prepared.lake.before["commit"] = raising(CommitRefused("again"), times=10**6)

    assert prepared.commit() is NotCommitted.AGAIN
    assert prepared.lake.calls.count("commit") == REFUSALS_MAX


# Absent, and nobody knows ---------------------------------------------------------------------------------------------


def test_a_commit_of_which_nobody_knows_is_not_sent_again_and_its_files_stay(prepared: Prepared) -> None:
    prepared.lake.before["commit"] = raising(CommitUncertain("the connection broke"))

    assert prepared.commit() is NotCommitted.AGAIN
    assert prepared.lake.calls.count("commit") == 1
    assert all(Path(file.path.removeprefix("file://")).exists() for file in prepared.files)


def test_of_a_late_request_and_a_new_one_at_most_one_is_applied(prepared: Prepared) -> None:
    # Given a request of which nobody knows, held up on its way.
    late: list[Any] = []

    def hold(args: tuple[Any, ...]) -> None:
        if not late:
            late.append(args[0])
            raise CommitUncertain("no reply")

    prepared.lake.before["commit"] = hold
    assert prepared.commit() is NotCommitted.AGAIN

    # When the topic begins anew and lands, and the late request arrives.
    assert isinstance(prepared.of(OTHER_ID, 3).commit(), Committed)
    tables = prepared.lake.place.connect()
    with pytest.raises(CommitRefused):
        tables.commit(late[0])
    tables.close()

    assert prepared.lake.values() == [7]


@pytest.mark.parametrize("error", [Unavailable("503"), OSError("no route"), KeyError("odd")])
@pytest.mark.parametrize("told", [CommitUncertain("no reply"), CommitRefused("no")])
def test_a_table_that_cannot_even_be_asked_is_asked_when_the_topic_begins_anew(
    prepared: Prepared, told: Exception, error: Exception
) -> None:
    prepared.lake.before["commit"] = raising(told)
    prepared.lake.before["load"] = raising(error)

    assert prepared.commit() is NotCommitted.AGAIN


def test_a_process_that_is_told_to_stop_stops(prepared: Prepared) -> None:
    prepared.lake.before["commit"] = raising(CommitUncertain("no reply"))
    prepared.lake.before["load"] = raising(KeyboardInterrupt())

    with pytest.raises(KeyboardInterrupt):
        prepared.commit()


# Before it is sent ----------------------------------------------------------------------------------------------------


def test_a_commit_that_cannot_be_prepared_has_failed_for_certain(prepared: Prepared) -> None:
    prepared.lake.before["stage"] = raising(Unavailable("a manifest could not be written"))

    with pytest.raises(Unavailable, match="manifest"):
        prepared.commit()

    assert prepared.lake.calls == ["stage"]


@pytest.mark.parametrize("late_us", [0, 1])
def test_what_was_written_over_a_day_ago_is_not_committed_any_more(prepared: Prepared, late_us: int) -> None:
    begun_us = prepared.lake.clock.now_us() - ATTEMPT_US_MAX - late_us

    result = prepared.commit(begun_us=begun_us)

    assert (result is NotCommitted.AGAIN) == bool(late_us)
    assert (prepared.lake.calls == []) == bool(late_us)


def test_no_data_file_is_ever_in_the_table_twice(prepared: Prepared) -> None:
    # Given a request that is applied, and refused when a gateway sends it again.
    def again(args: tuple[Any, ...]) -> None:
        tables = prepared.lake.place.connect()
        try:
            tables.commit(args[0])
        finally:
            tables.close()

    prepared.lake.after["commit"] = again

    result = prepared.commit()

    assert isinstance(result, Committed) and result.adopted
    assert referenced(prepared.lake) == 1
