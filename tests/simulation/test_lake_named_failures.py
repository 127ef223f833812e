"""The failures of others, each by its name: what has lost or doubled rows in other products does not here.

Numbers without a project are issues of apache/iceberg.
"""

from __future__ import annotations

import pytest

from headwater.lake.report import TopicLanding
from headwater.lake.standing import Decisions
from tests.simulation.lake_scene import TABLE, Scene

AGAIN = Decisions(after_rollback=frozenset({"orders"}))


def landed(told: TopicLanding | None, rows: int) -> bool:
    return told is not None and (told.outcome, told.rows) == ("landed", rows)


@pytest.mark.parametrize("place", ["before record Intended", "before commit", "after commit", "after record Landed"])
def test_the_same_rows_are_not_committed_twice_after_a_restart_17340(place: str) -> None:
    scene = Scene()
    scene.append(5)

    died = scene.land(at={"task": "dies"}, dies=place)
    scene.land()
    scene.land()

    assert died is None
    assert scene.holds_everything()
    files = scene.table.head.files if scene.table.head is not None else ()
    assert len(files) == len(set(files))


def test_a_commit_that_is_applied_late_and_one_that_was_made_meanwhile_do_not_both_count_14425_17901() -> None:
    scene = Scene()
    scene.append(5)

    told = scene.land(at={"commit": "late"})
    applied = scene.arrives()

    assert landed(told, 5)
    assert not applied
    assert scene.holds_everything()


def test_a_commit_that_is_applied_late_by_a_dead_lander_is_found_by_the_next_14425_17901() -> None:
    scene = Scene()
    scene.append(5)

    died = scene.land(at={"commit": "late"}, dies="before load 2")
    assert scene.arrives()
    told = scene.land()

    assert died is None
    assert told is not None and told.outcome == "nothing" and told.verified
    assert scene.holds_everything()


def test_a_commit_that_arrives_while_the_next_one_is_on_its_way_wins_alone_14425_17901() -> None:
    scene = Scene()
    scene.append(5)
    arrived: list[bool] = []

    told = scene.land(at={"commit": "late", "before commit 2": lambda: arrived.append(scene.arrives())})

    assert arrived == [True]
    assert told is not None and told.outcome in {"lost", "nothing"}
    assert scene.holds_everything()


def test_the_marker_is_not_lost_with_expired_snapshots_5846() -> None:
    scene = Scene()
    scene.append(5)
    assert landed(scene.land(), 5)

    scene.owner.compact_and_expire(TABLE)
    scene.append(2)
    told = scene.land()

    assert landed(told, 2)
    assert scene.holds_everything()


def test_a_rollback_does_not_lose_rows_in_silence() -> None:
    scene = Scene()
    scene.append(5)
    scene.land()
    scene.append(3)
    scene.land()

    scene.owner.roll_back(TABLE)
    scene.append(1)
    told = scene.land()

    assert told is not None
    assert (told.outcome, told.cause) == ("halted", "gap")
    assert landed(scene.land(decisions=AGAIN), 4)
    assert scene.holds_everything()


def test_a_rollback_after_the_log_has_forgotten_is_named_and_not_landed_over() -> None:
    scene = Scene()
    scene.append(5)
    scene.land()
    scene.append(3)
    scene.land()
    scene.forget()

    scene.owner.roll_back(TABLE)
    scene.append(1)
    told = scene.land(decisions=AGAIN)

    assert told is not None
    assert (told.outcome, told.cause) == ("halted", "gap")
    assert "restore the table" in told.message
    assert scene.violations == []


@pytest.mark.parametrize("fault", ["lost reply", "unavailable", "late", "locked"])
def test_an_unknown_outcome_is_not_cleaned_up_as_a_failure_4686_clickhouse_112081(fault: str) -> None:
    scene = Scene()
    scene.append(5)

    told = scene.land(at={"commit": fault})
    while scene.catalog.late:
        scene.arrives()

    assert landed(told, 5)
    assert scene.catalog.store.gone == set()
    assert scene.holds_everything()


def test_two_jobs_that_read_the_same_rows_do_not_both_commit_them_fluss_2648() -> None:
    scene = Scene()
    scene.append(5)
    other: list[TopicLanding | None] = []

    told = scene.land(at={"before commit": lambda: other.append(scene.land())})

    assert landed(other[0], 5)
    assert told is not None and told.outcome == "lost"
    assert scene.holds_everything()


def test_a_topic_that_was_created_again_under_its_name_is_not_taken_for_the_old_one_12357() -> None:
    scene = Scene()
    scene.append(5)
    scene.land()

    scene.create_topic()
    scene.append(2)
    told = scene.land()

    assert told is not None
    assert (told.outcome, told.cause) == ("halted", "foreign-mark")
    assert len(scene.rows) == 5


def test_a_slow_lander_does_not_rewind_what_faster_ones_have_landed_17551() -> None:
    scene = Scene()
    scene.append(5)

    def others_land_further() -> None:
        for _ in range(2):
            scene.append(2)
            assert scene.land() is not None

    told = scene.land(at={"before commit": others_land_further})

    assert told is not None and told.outcome == "lost"
    assert scene.judge.truth(TABLE).landed == scene.log.durable_lsn
    assert scene.holds_everything()


@pytest.mark.parametrize("moment", ["before record Intended", "before stage", "before commit"])
def test_the_removal_of_orphans_spares_files_in_flight_4194(moment: str) -> None:
    scene = Scene()
    scene.append(5)

    told = scene.land(at={moment: scene.remove_orphans})

    assert landed(told, 5)
    assert scene.holds_everything()


def test_the_removal_of_orphans_spares_files_of_a_request_that_is_still_under_way_4194() -> None:
    scene = Scene()
    scene.append(5)

    scene.land(at={"commit": "late"}, dies="before load 2")
    scene.remove_orphans()
    arrived = scene.arrives()
    scene.land()

    assert arrived
    assert scene.holds_everything()


def test_a_database_that_refuses_to_commit_does_not_show_a_landing_that_nobody_else_sees() -> None:
    scene = Scene()
    scene.append(5)

    told = scene.land(at={"commit": "locked"})

    assert landed(told, 5)
    assert len(scene.judge.landings) == 1
    assert scene.holds_everything()


def test_a_request_that_a_gateway_sends_twice_is_one_landing() -> None:
    scene = Scene()
    scene.append(5)

    told = scene.land(at={"commit": "sent twice"})

    assert landed(told, 5)
    assert told is not None and told.adopted
    assert scene.holds_everything()


@pytest.mark.parametrize("act", ["create_or_replace", "drop", "drop_and_create"])
def test_a_table_that_was_replaced_is_not_believed_to_hold_what_its_property_says(act: str) -> None:
    scene = Scene()
    scene.append(5)
    scene.land()

    getattr(scene.owner, act)(TABLE)
    scene.append(1)
    told = scene.land()

    assert told is not None
    assert (told.outcome, told.cause) == ("halted", "gap")
    assert landed(scene.land(decisions=AGAIN), 6)
    assert scene.violations == []


def test_rows_that_their_owner_has_deleted_stay_deleted() -> None:
    scene = Scene()
    scene.append(5)
    scene.land()

    scene.owner.truncate(TABLE)
    scene.append(2)
    told = scene.land()

    assert landed(told, 2)
    assert len(scene.rows) == 2
    assert scene.violations == []


def test_a_property_behind_the_table_is_no_proof() -> None:
    """Main was taken back, marked there, and set forward again to a snapshot whose own marks have expired."""
    scene = Scene()
    scene.append(5)
    scene.land()
    first = scene.table
    scene.append(3)
    scene.land()
    scene.owner.rewrite_data_files(TABLE)
    compacted = scene.table.head
    assert compacted is not None and first.head is not None

    scene.owner.move(TABLE, first.head.snapshot_id)
    scene.append(1)
    scene.land(decisions=AGAIN, dies="before record Intended")
    scene.stamp()
    scene.owner.move(TABLE, compacted.snapshot_id)
    scene.owner.expire_all_but_the_head(TABLE)
    told = scene.land()

    assert told is not None and (told.outcome, told.cause) == ("halted", "mark-unproven")
    assert scene.violations == []


@pytest.mark.parametrize("pause", ["after record Begun", "before durable_lsn 2", "before segments 2", "before task"])
def test_a_paused_lander_does_not_land_over_what_the_log_has_forgotten_meanwhile(pause: str) -> None:
    """Another lands the same rows, the log forgets them, and the table comes back to the head that was read."""
    scene = Scene()
    scene.append(3)
    scene.append(2)

    def meanwhile() -> None:
        assert landed(scene.land(), 5)
        scene.forget()
        scene.owner.replace_by_nothing(TABLE)
        scene.append(1)

    scene.land(at={pause: meanwhile})

    assert scene.violations == []
    assert scene.judge.truth(TABLE).landed == 0


def test_rows_that_their_owner_has_deleted_do_not_come_back_by_a_slow_lander() -> None:
    scene = Scene()
    scene.append(3)

    def meanwhile() -> None:
        assert landed(scene.land(), 3)
        scene.owner.truncate(TABLE)
        scene.owner.expire_and_forget_parents(TABLE)

    scene.land(at={"before commit": meanwhile})

    assert scene.violations == []
    assert scene.rows == []
