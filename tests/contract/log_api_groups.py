"""Consumer groups.  How it is run: log_api.py."""

from __future__ import annotations

import threading

import pytest

import headwater as hw
from headwater.clock import ManualClock
from headwater.errors import Closed, Fenced, InvalidRequest, UnknownTopic
from tests.contract.log_api import ORDER, SETTINGS, Place, numbers, order, orders


def take_all(consumer: hw.Consumer) -> list[int]:
    """The order numbers of all that is there for this consumer now."""
    found = []
    while (polled := consumer.poll()) is not None:
        found += polled.batch.column("order_id").to_pylist()
    return found


def filled(log: hw.Log, partitions: int = 4, count: int = 40) -> hw.Topic:
    topic = log.topic("orders", schema=ORDER, partitions=partitions)
    for number in range(count):
        topic.append(order(number), partition=number % partitions)
    return topic


class Groups:
    def test_one_member_reads_everything_from_the_earliest_row(self, log: hw.Log) -> None:
        filled(log)

        with log.consumer("orders", group="billing") as consumer:
            assert sorted(take_all(consumer)) == list(range(40))
            assert consumer.assignment == (0, 1, 2, 3)

    def test_rows_of_a_partition_come_in_order_and_say_where_they_are_from(self, log: hw.Log) -> None:
        filled(log, partitions=2)

        with log.consumer("orders", group="billing") as consumer:
            seen: dict[int, int] = {}
            while (polled := consumer.poll(max_rows=3)) is not None:
                assert polled.batch.num_rows <= 3
                assert polled.offset == seen.get(polled.partition, 0)
                expected = [2 * n + polled.partition for n in range(polled.offset, polled.next_offset)]
                assert polled.batch.column("order_id").to_pylist() == expected
                seen[polled.partition] = polled.next_offset

        assert seen == {0: 20, 1: 20}

    def test_a_poll_gives_a_few_megabytes_however_many_rows_it_may_take(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)
        for first in range(0, 12, 3):
            topic.append([order(number, note="x" * 1_000_000) for number in range(first, first + 3)])

        with log.consumer("orders", group="billing") as consumer:
            found: list[int] = []
            while (polled := consumer.poll()) is not None:
                assert polled.batch.nbytes <= 4 * 1024 * 1024 and polled.offset == len(found)
                found += polled.batch.column("order_id").to_pylist()
                assert polled.next_offset == len(found)

        assert found == list(range(12))

    def test_many_partitions_with_a_few_rows_each_come_whole_in_order_and_in_turn(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER, partitions=30)
        for first in range(0, 90, 45):
            with log.transaction() as tx:
                for number in range(first, first + 45):
                    tx.append("orders", order(number), partition=number % 30)
        with log.consumer("orders", group="billing") as consumer:
            turns: list[int] = []
            seen: dict[int, list[int]] = {}
            while (polled := consumer.poll(max_rows=2)) is not None:
                rows = seen.setdefault(polled.partition, [])
                assert polled.offset == len(rows)
                rows += polled.batch.column("order_id").to_pylist()
                assert polled.next_offset == len(rows)
                turns.append(polled.partition)
            assert consumer.commit() == dict.fromkeys(range(30), 3)
            for number in range(90, 120):
                topic.append(order(number), partition=number % 30)
            later = take_all(consumer)

        assert seen == {partition: [partition, partition + 30, partition + 60] for partition in range(30)}
        assert turns == [*range(30), *range(30)]
        assert sorted(later) == list(range(90, 120))

    def test_two_members_share_the_partitions_and_no_row_is_read_twice(self, log: hw.Log) -> None:
        filled(log)
        one = log.consumer("orders", group="billing")
        two = log.consumer("orders", group="billing")

        one.heartbeat()
        two.heartbeat()
        found = [*take_all(one), *take_all(two)]

        assert len(one.assignment) == len(two.assignment) == 2
        assert {*one.assignment, *two.assignment} == {0, 1, 2, 3}
        assert sorted(found) == list(range(40))

    def test_a_member_that_leaves_hands_on_what_it_did_not_commit(self, log: hw.Log) -> None:
        filled(log)
        one = log.consumer("orders", group="billing")
        two = log.consumer("orders", group="billing")
        one.heartbeat()
        two.heartbeat()
        committed = take_all(one)
        one.commit()
        two.poll()

        two.close()
        found = take_all(one)

        assert sorted([*committed, *found]) == list(range(40))

    def test_groups_do_not_know_each_other(self, log: hw.Log) -> None:
        filled(log)

        for group in ("billing", "shipping"):
            with log.consumer("orders", group=group) as consumer:
                assert sorted(take_all(consumer)) == list(range(40))
                consumer.commit()

        assert [each.group for each in log.groups()] == ["billing", "shipping"]

    def test_a_group_goes_on_where_it_committed(self, log: hw.Log) -> None:
        topic = filled(log, partitions=1, count=10)
        with log.consumer("orders", group="billing") as consumer:
            consumer.poll(max_rows=4)
            assert consumer.commit() == {0: 4}
            consumer.poll(max_rows=4)

        with log.consumer("orders", group="billing") as consumer:
            assert take_all(consumer) == [4, 5, 6, 7, 8, 9]
            consumer.commit()
            topic.append(order(10))
            assert take_all(consumer) == [10]

    def test_lag_is_what_is_durable_and_not_committed(self, log: hw.Log) -> None:
        topic = filled(log, partitions=2, count=10)
        with log.consumer("orders", group="billing") as consumer:
            assert consumer.lag() == {0: 5, 1: 5}
            take_all(consumer)
            assert consumer.total_lag() == 10
            consumer.commit()
            assert consumer.lag() == {0: 0, 1: 0}
            topic.append(orders(3), partition=1)
            assert consumer.lag() == {0: 0, 1: 3}

            [described] = log.groups()
            assert (described.group, described.topic, described.members) == ("billing", "orders", 1)
            assert described.committed == {0: 5, 1: 5}
            assert described.lag == {0: 0, 1: 3}
            assert described.total_lag == 3
        assert log.groups()[0].members == 0

    def test_a_consumer_that_begins_at_latest_gets_what_comes_after_it(self, log: hw.Log) -> None:
        topic = filled(log, partitions=1, count=10)

        with log.consumer("orders", group="billing", start="latest") as consumer:
            assert consumer.poll() is None
            topic.append(order(10))
            assert take_all(consumer) == [10]

    def test_iterating_gives_batches_until_nothing_came_for_its_time(self, log: hw.Log) -> None:
        filled(log, partitions=1, count=10)

        with log.consumer("orders", group="billing", batch_rows=4, timeout_s=0.0) as consumer:
            found = [batch.column("order_id").to_pylist() for batch in consumer]

        assert found == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]

    def test_a_consumer_that_waits_gets_what_comes_and_ends_when_it_is_closed(self, log: hw.Log) -> None:
        topic = filled(log, partitions=2, count=2)
        consumer = log.consumer("orders", group="billing")
        found: list[int] = []
        enough = threading.Event()

        def consume() -> None:
            for batch in consumer:
                found.extend(batch.column("order_id").to_pylist())
                if len(found) >= 4:
                    enough.set()

        waiting = threading.Thread(target=consume, daemon=True)
        waiting.start()
        topic.append(order(2), partition=0)
        topic.append(order(3), partition=1)
        assert enough.wait(30)
        consumer.close()
        waiting.join(30)

        assert not waiting.is_alive()
        assert sorted(found) == [0, 1, 2, 3]

    def test_a_consumer_can_go_elsewhere_and_back(self, log: hw.Log) -> None:
        filled(log, partitions=1, count=10)

        with log.consumer("orders", group="billing") as consumer:
            consumer.heartbeat()
            consumer.seek(0, 7)
            assert take_all(consumer) == [7, 8, 9]
            consumer.rewind()
            assert take_all(consumer) == list(range(10))
            with pytest.raises(InvalidRequest):
                consumer.seek(0, 11)
            with pytest.raises(InvalidRequest):
                consumer.seek(1, 0)

    def test_output_and_offsets_are_committed_together_or_not_at_all(self, log: hw.Log) -> None:
        filled(log, partitions=1, count=10)
        out = log.topic("copied", schema=ORDER)

        with log.consumer("orders", group="billing") as consumer:
            polled = consumer.poll(max_rows=4)
            assert polled is not None
            with log.transaction() as tx:
                tx.append("copied", polled.batch)
                tx.commit_offsets(consumer)
            polled = consumer.poll(max_rows=4)
            assert polled is not None
            tx = log.transaction()
            tx.append("copied", polled.batch)
            tx.commit_offsets(consumer)
            tx.abort()
            # What was handed out for the transaction is handed out again.
            polled = consumer.poll()
            assert polled is not None
            with log.transaction() as tx:
                tx.append("copied", polled.batch)
                tx.commit_offsets(consumer)
            assert consumer.total_lag() == 0

        assert numbers(out) == list(range(10))
        assert log.groups()[0].committed == {0: 10}

    @pytest.mark.parametrize("in_a_transaction", [True, False])
    def test_a_member_whose_lease_went_to_another_cannot_commit(self, place: Place, in_a_transaction: bool) -> None:
        clock = ManualClock()
        with place.open(clock=clock) as log:
            filled(log, partitions=1, count=10)
            out = log.topic("copied", schema=ORDER)
            slow = log.consumer("orders", group="billing")
            polled = slow.poll(max_rows=4)
            assert polled is not None
            clock.advance(SETTINGS.lease_s + 1)
            quick = log.consumer("orders", group="billing")
            assert take_all(quick) == list(range(10))

            if in_a_transaction:
                tx = log.transaction()
                tx.append("copied", polled.batch)
                tx.commit_offsets(slow)
                with pytest.raises(Fenced):
                    tx.commit()
            else:
                with pytest.raises(Fenced):
                    slow.commit()
            quick.commit()

            assert numbers(out) == []
            assert log.groups()[0].committed == {0: 10}

    def test_partitions_that_are_added_are_shared_too(self, log: hw.Log) -> None:
        topic = filled(log, partitions=1, count=1)
        with log.consumer("orders", group="billing", start="latest") as consumer:
            assert consumer.poll() is None
            topic.alter(partitions=3)
            topic.append(order(7), partition=2)
            assert take_all(consumer) == [7]
            assert consumer.assignment == (0, 1, 2)

    def test_deletes_are_handed_out_as_such(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER, key="order_id")
        topic.upsert(order(1))
        topic.delete(1)

        with log.consumer("orders", group="billing") as consumer:
            polled = consumer.poll()

        assert polled is not None
        assert polled.batch.column("_hw_op").to_pylist() == ["U", "D"]

    def test_a_closed_consumer_can_no_longer_be_used(self, log: hw.Log) -> None:
        filled(log, partitions=1, count=1)
        consumer = log.consumer("orders", group="billing")

        consumer.close()
        consumer.close()

        for use in (consumer.poll, consumer.commit, consumer.heartbeat, consumer.rewind):
            with pytest.raises(Closed):
                use()
        assert list(consumer) == []

    def test_a_consumer_that_makes_no_sense_is_refused(self, log: hw.Log) -> None:
        filled(log, partitions=1, count=1)

        with pytest.raises(UnknownTopic):
            log.consumer("nothing", group="billing")
        with pytest.raises(InvalidRequest):
            log.consumer("orders", group="billing", start="middle")  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest):
            log.consumer("orders", group="billing", batch_rows=0)
        with pytest.raises(InvalidRequest):
            log.consumer("orders", group="")


class GroupsKept:
    def test_committed_offsets_are_there_after_a_close(self, place: Place) -> None:
        with place.open() as log:
            filled(log, partitions=2, count=10)
            with log.consumer("orders", group="billing") as consumer:
                consumer.poll(max_rows=2)
                consumer.commit()

        with place.open() as log:
            assert log.groups()[0].committed == {0: 2}
            with log.consumer("orders", group="billing") as consumer:
                assert sorted(take_all(consumer)) == [1, 3, 4, 5, 6, 7, 8, 9]
