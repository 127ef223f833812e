"""Cleanup, compaction, checkpoints, status, flush, close.  How it is run: log_api.py."""

from __future__ import annotations

import pytest

import headwater as hw
from headwater.clock import ManualClock
from headwater.errors import Closed, InvalidRequest, UnknownTopic
from tests.contract.log_api import ORDER, SMALL_SEGMENTS, Place, numbers, order

DAY_S = 86_400.0
LONG = "x" * 1_000


def fill(topic: hw.Topic, numbers_: range) -> None:
    """Rows of a size, each a write of its own, so that segments fill."""
    for number in numbers_:
        topic.append(order(number, 1.5, LONG))


def latest(topic: hw.Topic) -> dict[int, float | None]:
    """The latest row of each key, as a reader finds it; None: it was deleted."""
    return {row["order_id"]: row["amount"] for row in topic.read().to_pylist()}


class Upkeep:
    # By age and size ------------------------------------------------------------------------------

    def test_rows_go_when_they_are_older_than_the_policy_says_and_offsets_stay(self, place: Place) -> None:
        clock = ManualClock()
        with place.open(SMALL_SEGMENTS, clock) as log:
            topic = log.topic("orders", schema=ORDER, retention="1d")
            fill(topic, range(30))
            clock.advance(0.9 * DAY_S)
            fill(topic, range(30, 60))

            early = log.cleanup()
            clock.advance(0.2 * DAY_S)
            late = log.cleanup()

            assert early.rows_removed == 0
            assert late.rows_removed > 15
            assert late.bytes_saved > late.rows_removed * len(LONG)
            left = numbers(topic)
            assert left == list(range(late.rows_removed, 60)), "a prefix went, of what was old enough"
            assert late.rows_removed <= 30
            assert topic.offsets() == {0: (late.rows_removed, 60)}
            assert topic.describe().rows == len(left)
            assert topic.append(order(60)).offsets == {0: (60, 61)}

    def test_rows_go_while_there_are_more_bytes_than_the_policy_says(self, place: Place) -> None:
        clock = ManualClock()
        with place.open(SMALL_SEGMENTS, clock) as log:
            topic = log.topic("orders", schema=ORDER, retention_bytes="30KiB")
            fill(topic, range(100))
            clock.advance(1)

            report = log.cleanup()

            left = numbers(topic)
            assert report.rows_removed > 50
            assert left == list(range(100 - len(left), 100))
            assert 15 <= len(left) <= 40, "a write of one row has some hundred bytes of its own, by a client more"
            assert log.cleanup().rows_removed == 0

    def test_rows_are_kept_for_ever_where_no_policy_says_otherwise(self, place: Place) -> None:
        clock = ManualClock()
        with place.open(SMALL_SEGMENTS, clock) as log:
            topic = log.topic("orders", schema=ORDER)
            fill(topic, range(30))
            clock.advance(1_000 * DAY_S)

            assert log.cleanup().rows_removed == 0
            assert numbers(topic) == list(range(30))

    def test_a_topics_rows_stay_however_old_others_are(self, place: Place) -> None:
        clock = ManualClock()
        with place.open(SMALL_SEGMENTS, clock) as log:
            short = log.topic("short", schema=ORDER, retention="1d")
            kept = log.topic("kept", schema=ORDER)
            for number in range(30):
                short.append(order(number, 1.5, LONG))
                kept.append(order(number))
            clock.advance(2 * DAY_S)
            fill(short, range(30, 40))

            log.cleanup()

            assert numbers(kept) == list(range(30))
            assert numbers(short)[-10:] == list(range(30, 40))
            assert len(numbers(short)) < 30, "a segment that is mostly not wanted is made again without it"

    def test_a_read_of_what_is_gone_begins_with_what_is_left(self, place: Place) -> None:
        clock = ManualClock()
        with place.open(SMALL_SEGMENTS, clock) as log:
            topic = log.topic("orders", schema=ORDER, retention="1d")
            fill(topic, range(30))
            clock.advance(2 * DAY_S)
            fill(topic, range(30, 40))
            log.cleanup()
            first = topic.offsets()[0].first

            assert first > 0
            assert [row["order_id"] for row in topic.read({0: 0}).to_pylist()] == list(range(first, 40))
            assert [row["order_id"] for row in topic.read({0: first + 2}).to_pylist()] == list(range(first + 2, 40))

    def test_a_consumer_that_comes_too_late_goes_on_with_what_is_left_and_says_so(self, place: Place) -> None:
        clock = ManualClock()
        with place.open(SMALL_SEGMENTS, clock) as log:
            topic = log.topic("orders", schema=ORDER, retention="1d")
            fill(topic, range(30))
            consumer = log.consumer("orders", group="billing")
            consumer.poll(max_rows=1)
            consumer.commit()
            clock.advance(2 * DAY_S)
            fill(topic, range(30, 40))
            log.cleanup()
            first = topic.offsets()[0].first

            polled = consumer.poll()

            assert polled is not None
            assert polled.offset == first
            assert consumer.skipped == {0: first - 1}

    # Compaction -----------------------------------------------------------------------------------

    def test_compaction_keeps_the_latest_row_of_each_key_and_says_what_it_saved(self, place: Place) -> None:
        with place.open(SMALL_SEGMENTS, ManualClock()) as log:
            topic = log.topic("orders", schema=ORDER, key="order_id", cleanup="compact")
            for amount in range(20):
                for number in range(3):
                    topic.upsert(order(number, float(amount), LONG))
            before, size = latest(topic), topic.describe().bytes

            compacted = topic.compact()

            rows = topic.read(system_columns=True).to_pylist()
            assert compacted.topic == "orders"
            assert compacted.rows_removed == 60 - len(rows) > 30
            assert compacted.bytes_saved > 30 * len(LONG)
            assert topic.describe().bytes < size
            assert latest(topic) == before == {0: 19.0, 1: 19.0, 2: 19.0}
            assert [row["amount"] * 3 + row["order_id"] for row in rows] == [row["_hw_offset"] for row in rows]
            assert topic.append(order(9)).offsets == {0: (60, 61)}

    def test_all_topics_whose_policy_says_so_are_compacted_or_those_that_are_named(self, place: Place) -> None:
        with place.open(SMALL_SEGMENTS, ManualClock()) as log:
            for name, cleanup in (("a", "compact"), ("b", "both"), ("c", "delete"), ("d", "compact")):
                topic = log.topic(name, schema=ORDER, key="order_id", cleanup=cleanup)
                for _ in range(20):
                    topic.upsert(order(1, 1.5, LONG))

            named = log.compact("a")
            rest = log.compact()

            assert [each.topic for each in named.compacted] == ["a"]
            assert sorted(each.topic for each in rest.compacted) == ["a", "b", "d"]
            assert all(each.rows_removed > 5 for each in rest.compacted if each.topic != "a")
            assert len(log["c"].read().to_pylist()) == 20

    def test_cleanup_compacts_what_its_policy_says(self, place: Place) -> None:
        with place.open(SMALL_SEGMENTS, ManualClock()) as log:
            topic = log.topic("orders", schema=ORDER, key="order_id", cleanup="compact")
            for amount in range(40):
                topic.upsert(order(1, float(amount), LONG))

            report = log.cleanup()

            assert [each.topic for each in report.compacted] == ["orders"]
            assert report.rows_removed > 20
            assert latest(topic) == {1: 39.0}

    def test_a_delete_stays_for_its_time_and_then_goes(self, place: Place) -> None:
        clock = ManualClock()
        with place.open(SMALL_SEGMENTS, clock) as log:
            topic = log.topic("orders", schema=ORDER, key="order_id", cleanup="compact", tombstones="1d")
            filler = log.topic("filler", schema=ORDER)
            topic.upsert(order(1, 1.5, LONG))
            topic.delete(1)
            topic.upsert(order(2, 2.5))
            fill(filler, range(20))

            topic.compact()
            soon = topic.read().to_pylist()
            clock.advance(2 * DAY_S)
            fill(filler, range(20, 40))
            topic.compact()
            late = topic.read().to_pylist()

            assert [(row["order_id"], row["_hw_op"]) for row in soon] == [(1, "D"), (2, "U")]
            assert [(row["order_id"], row["_hw_op"]) for row in late] == [(2, "U")]

    def test_a_topic_that_cannot_be_compacted_says_why(self, log: hw.Log) -> None:
        log.topic("plain", schema=ORDER)
        log.topic("kept", schema=ORDER, key="order_id")

        with pytest.raises(InvalidRequest, match="key"):
            log["plain"].compact()
        with pytest.raises(InvalidRequest, match="policy"):
            log["kept"].compact()
        with pytest.raises(InvalidRequest):
            log.compact("plain")
        with pytest.raises(UnknownTopic):
            log.compact("nothing")

    def test_a_topic_with_a_table_loses_nothing_that_is_not_in_it(self, place: Place) -> None:
        clock = ManualClock()
        with place.open(SMALL_SEGMENTS, clock) as log:
            topic = log.topic(
                "orders", schema=ORDER, key="order_id", cleanup="both", retention="1d", table="sales.orders"
            )
            for _ in range(3):
                fill(topic, range(10))
            clock.advance(10 * DAY_S)
            fill(topic, range(10))

            assert log.cleanup().rows_removed == 0
            assert topic.compact().rows_removed == 0
            assert len(topic.read().to_pylist()) == 40

    def test_a_deleted_topics_rows_are_let_go_of_and_it_is_forgotten(self, place: Place) -> None:
        clock = ManualClock()
        with place.open(SMALL_SEGMENTS, clock) as log:
            gone = log.topic("gone", schema=ORDER)
            fill(gone, range(30))
            log.delete_topic("gone")
            clock.advance(SMALL_SEGMENTS.log.segment_age_s_max + 1)  # so that no segment has rows of both
            kept = log.topic("kept", schema=ORDER)
            fill(kept, range(30))
            size = log.status().log_bytes
            assert log.status().deleted_topics == 1
            clock.advance(1)

            for _ in range(3):
                log.cleanup()

            assert log.status().deleted_topics == 0
            assert log.status().log_bytes < size - 20 * len(LONG)
            assert numbers(kept) == list(range(30))

    # Status, checkpoints, flush, close ------------------------------------------------------------

    def test_a_status_says_what_there_is(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER, partitions=2)
        appended = topic.append([order(1), order(2)], partition=1)
        producers = log.status().producers  # a client of a server has some of its own
        log.producer("loader")
        with log.consumer("orders", group="billing") as consumer:
            consumer.poll()
            consumer.commit()

        status = log.status()

        assert status.owner
        assert status.epoch >= 1
        assert len(status.log_id) == 32
        assert status.first_lsn == 1
        assert status.durable_lsn > appended.lsn
        assert status.segments == 1
        assert status.log_bytes > 0
        assert status.journal_lsn > 0
        assert status.journal_remaining > 0
        assert status.producers == producers + 1
        assert [(each.name, each.rows, each.appended) for each in status.topics] == [("orders", 2, 2)]
        assert [(each.group, each.committed, each.total_lag) for each in status.groups] == [("billing", {1: 2}, 0)]
        assert status.counters["syncs"] >= 1

    def test_an_empty_log_has_a_status_too(self, log: hw.Log) -> None:
        status = log.status()

        assert (status.durable_lsn, status.topics, status.groups) == (0, [], [])

    def test_a_checkpoint_is_made_where_something_is_new(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)
        topic.append(order(1))

        assert log.checkpoint()
        assert log.status().checkpoint_lsn == log.status().durable_lsn
        assert log.status().replay_bytes == 0
        assert not log.checkpoint()
        topic.append(order(2))
        assert log.checkpoint()

    def test_a_flush_returns_when_all_that_was_asked_for_is_durable(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)
        futures = [topic.append_future(order(number)) for number in range(50)]

        log.flush()

        assert all(future.done() for future in futures)
        assert numbers(topic) == list(range(50))

    def test_a_close_serves_what_is_queued(self, place: Place) -> None:
        log = place.open()
        topic = log.topic("orders", schema=ORDER)
        futures = [topic.append_future(order(number)) for number in range(50)]

        log.close()

        assert [future.result(timeout=1).offsets[0].first for future in futures] == list(range(50))

    def test_a_log_can_be_closed_twice(self, place: Place) -> None:
        log = place.open()
        log.topic("orders", schema=ORDER).append(order(1))

        log.close()
        log.close()

    def test_a_log_that_was_never_written_can_be_closed(self, place: Place) -> None:
        place.open().close()

    def test_a_closed_log_says_that_it_is_closed(self, place: Place) -> None:
        log = place.open()
        topic = log.topic("orders", schema=ORDER, key="order_id")
        topic.append(order(1))
        producer = log.producer("loader")
        consumer = log.consumer("orders", group="billing")
        open_transaction = log.transaction()
        open_transaction.append("orders", order(2))
        log.close()

        for use in (
            lambda: topic.append(order(3)),
            lambda: topic.append_future(order(3)).result(timeout=5),
            lambda: topic.upsert(order(3)),
            lambda: topic.delete(3),
            lambda: topic.read().to_pylist(),
            lambda: topic.alter(partitions=2),
            topic.describe,
            topic.offsets,
            topic.compact,
            lambda: producer.append("orders", order(3)),
            consumer.poll,
            open_transaction.commit,
            lambda: log.topic("other", schema=ORDER),
            lambda: log.delete_topic("orders"),
            lambda: log.producer("other"),
            lambda: log.consumer("orders", group="other"),
            lambda: log.source_position("pg"),
            log.topics,
            log.groups,
            log.cleanup,
            log.compact,
            log.checkpoint,
            log.flush,
            log.status,
        ):
            with pytest.raises(Closed):
                use()

    def test_a_closed_log_is_not_entered_again(self, place: Place) -> None:
        log = place.open()
        log.close()

        with pytest.raises(Closed), log:
            pass


class UpkeepKept:
    def test_what_cleanup_left_is_there_after_a_close_and_no_more(self, place: Place) -> None:
        clock = ManualClock()
        with place.open(SMALL_SEGMENTS, clock) as log:
            topic = log.topic("orders", schema=ORDER, retention="1d")
            state = log.topic("state", schema=ORDER, key="order_id", cleanup="compact")
            for number in range(30):
                topic.append(order(number, 1.5, LONG))
                state.upsert(order(number % 3, float(number), LONG))
            clock.advance(1.5 * DAY_S)
            fill(topic, range(30, 40))
            for _ in range(2):
                log.cleanup()
            before = (topic.read(system_columns=True).to_pylist(), state.read(system_columns=True).to_pylist())
            assert len(before[0]) < 40
            assert len(before[1]) < 30

        with place.open(SMALL_SEGMENTS, clock) as log:
            topic, state = log["orders"], log["state"]
            after = (topic.read(system_columns=True).to_pylist(), state.read(system_columns=True).to_pylist())
            assert after == before
            assert latest(state) == {0: 27.0, 1: 28.0, 2: 29.0}
            assert topic.append(order(40)).offsets == {0: (40, 41)}

    def test_a_clean_close_leaves_nothing_to_replay(self, place: Place) -> None:
        with place.open() as log:
            fill(log.topic("orders", schema=ORDER), range(20))

        with place.open() as log:
            status = log.status()
            assert status.replay_bytes == 0
            assert status.checkpoint_lsn == status.durable_lsn

    def test_after_a_jump_of_the_clock_nothing_expires_for_an_hour_and_the_status_says_so(self, place: Place) -> None:
        clock = ManualClock()
        with place.open(SMALL_SEGMENTS, clock) as log:
            fill(log.topic("orders", schema=ORDER, retention="1d"), range(40))
        clock.set_wall_clock(clock.now_us() + 10 * 86_400 * 1_000_000)

        with place.open(SMALL_SEGMENTS, clock) as log:
            assert log.cleanup().rows_removed == 0
            assert log.status().notes
            clock.advance(3_601)
            assert log.cleanup().rows_removed > 20
            assert not log.status().notes


class Unclaimed:
    """For a log in this process: a server claims its log before it lets anybody in."""

    def test_an_empty_log_has_no_owner(self, place: Place) -> None:
        with place.open() as log:
            assert not log.status().owner

    def test_looking_claims_nothing(self, place: Place) -> None:
        with place.open() as log:
            log.topic("orders", schema=ORDER).append([order(number) for number in range(10)])

        with place.open() as log:
            assert len(log["orders"].read().to_pylist()) == 10
            log["orders"].describe()
            log.topics()
            log.groups()
            assert not log.status().owner
            log["orders"].append(order(10))
            assert log.status().owner
