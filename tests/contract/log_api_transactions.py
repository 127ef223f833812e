"""Expected offsets, idempotency keys, producers, transactions, sources.  How it is run: log_api.py."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import headwater as hw
from headwater.clock import ManualClock
from headwater.errors import (
    Conflict,
    Duplicate,
    Fenced,
    InvalidRequest,
    OffsetMismatch,
    OutOfSequence,
    RowsRefused,
    TooLarge,
    UnknownProducer,
    UnknownTopic,
)
from headwater.settings import LogSettings
from tests.contract.log_api import KIB, ORDER, Place, next_offsets, numbers, order, orders

NOON = datetime(2024, 5, 1, 12, 0, tzinfo=UTC)
SMALL_WRITES = hw.Settings(
    log=LogSettings(reserve_bytes=0, write_body_bytes_max=16 * KIB), upkeep_interval_s=0.0, frame_bytes_max=64 * KIB
)


def nested(levels: int) -> object:
    value: list[object] = []
    for _ in range(levels):
        value = [value]
    return value


class Transactions:
    # Expected offsets -----------------------------------------------------------------------------

    def test_rows_are_appended_only_if_the_partition_is_where_the_caller_thinks(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER, partitions=2)

        topic.append(orders(3), partition=1, expect_offset=0)
        with pytest.raises(OffsetMismatch) as caught:
            topic.append(order(9), partition=1, expect_offset=0)
        topic.append(order(3), partition=1, expect_offset=3)

        assert caught.value.facts["next_offset"] == 3
        assert caught.value.facts["expected"] == 0
        assert numbers(topic) == [0, 1, 2, 3]

    def test_an_expected_offset_means_one_partition(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER, key="order_id", partitions=4)

        with pytest.raises(InvalidRequest):
            topic.append(orders(50), expect_offset=0)

        assert numbers(topic) == []

    def test_of_futures_that_expect_the_same_offset_one_wins(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)

        futures = [topic.append_future(order(n), expect_offset=0) for n in range(10)]
        errors = [future.exception(timeout=30) for future in futures]

        assert errors[0] is None
        assert all(isinstance(error, OffsetMismatch) for error in errors[1:])
        assert numbers(topic) == [0]

    # Idempotency keys -----------------------------------------------------------------------------

    def test_a_request_with_a_key_that_was_applied_is_given_the_first_answer(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)

        first = topic.append(orders(2), idempotency_key="upload-1")
        again = topic.append(orders(2), idempotency_key="upload-1")
        other = topic.append(orders(2), idempotency_key=b"upload-2")

        assert (first.duplicate, again.duplicate, other.duplicate) == (False, True, False)
        assert (again.offsets, again.lsn, again.time) == (first.offsets, first.lsn, first.time)
        assert again.rows == first.rows == 2
        assert next_offsets(topic) == {0: 4}

    def test_a_key_belongs_to_its_topic(self, log: hw.Log) -> None:
        one, two = log.topic("one", schema=ORDER), log.topic("two", schema=ORDER)

        one.append(order(1), idempotency_key="2024-05-01")
        second = two.append(order(2), idempotency_key="2024-05-01")

        assert not second.duplicate
        assert (numbers(one), numbers(two)) == ([1], [2])

    def test_repeats_that_are_under_way_together_are_applied_once(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)

        futures = [topic.append_future(order(1), idempotency_key="same") for _ in range(20)]
        answers = [future.result(timeout=30) for future in futures]

        assert [answer.duplicate for answer in answers] == [False] + [True] * 19
        assert {answer.offsets[0] for answer in answers} == {(0, 1)}
        assert numbers(topic) == [1]

    def test_a_refused_request_does_not_use_up_its_key(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)

        with pytest.raises(RowsRefused):
            topic.append({"order_id": "x"}, idempotency_key="k")
        with pytest.raises(OffsetMismatch):
            topic.append(order(1), idempotency_key="k", expect_offset=7)
        appended = topic.append(order(1), idempotency_key="k")

        assert not appended.duplicate
        assert numbers(topic) == [1]

    def test_upserts_and_deletes_take_a_key_too(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER, key="order_id")

        topic.upsert(order(1), idempotency_key="u")
        assert topic.upsert(order(1), idempotency_key="u").duplicate
        topic.delete(1, idempotency_key="d")
        assert topic.delete(1, idempotency_key="d").duplicate

        assert next_offsets(topic) == {0: 2}

    def test_a_key_is_remembered_for_a_day(self, place: Place) -> None:
        clock = ManualClock()
        with place.open(clock=clock) as log:
            topic = log.topic("orders", schema=ORDER)
            topic.append(order(1), idempotency_key="k")

            clock.advance(23 * 3_600)
            soon = topic.append(order(1), idempotency_key="k")
            clock.advance(2 * 3_600)
            late = topic.append(order(1), idempotency_key="k")

            assert (soon.duplicate, late.duplicate) == (True, False)
            assert numbers(topic) == [1, 1]

    @pytest.mark.parametrize("key", ["", b"", "x" * 256, "ä" * 128])
    def test_a_key_that_is_empty_or_too_long_is_refused(self, log: hw.Log, key: str | bytes) -> None:
        with pytest.raises(InvalidRequest):
            log.topic("orders", schema=ORDER).append(order(1), idempotency_key=key)

    # Producers ------------------------------------------------------------------------------------

    def test_a_producers_requests_are_numbered_from_zero(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)
        producer = log.producer("loader")

        assert (producer.name, producer.epoch, producer.next_sequence) == ("loader", 1, 0)
        producer.append("orders", order(1))
        producer.append("orders", order(2), sequence=1)

        assert producer.next_sequence == 2
        assert numbers(topic) == [1, 2]

    def test_a_repeat_of_a_producers_request_gets_the_first_answer(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)
        producer = log.producer("loader")

        first = producer.append("orders", orders(3), sequence=0)
        again = producer.append("orders", orders(3), sequence=0)

        assert (first.duplicate, again.duplicate) == (False, True)
        assert (again.offsets, again.lsn) == (first.offsets, first.lsn)
        assert producer.next_sequence == 1
        assert numbers(topic) == [0, 1, 2]

    def test_a_number_that_was_used_for_another_topic_is_refused(self, log: hw.Log) -> None:
        log.topic("orders", schema=ORDER)
        other = log.topic("other", schema=ORDER)
        producer = log.producer("loader")
        producer.append("orders", order(1))

        with pytest.raises(Conflict, match="orders"):
            producer.append("other", order(1), sequence=0)
        producer.append("other", order(2))

        assert numbers(other) == [2]

    def test_a_request_before_which_another_is_missing_is_refused(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)
        producer = log.producer("loader")
        producer.append("orders", order(1))

        with pytest.raises(OutOfSequence) as caught:
            producer.append("orders", order(3), sequence=2)
        producer.append("orders", order(2), sequence=1)

        assert caught.value.facts["next_sequence"] == 1
        assert numbers(topic) == [1, 2]

    def test_a_request_whose_answer_is_forgotten_is_still_not_applied_twice(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)
        producer = log.producer("loader")
        for number in range(100):
            producer.append("orders", order(number))

        with pytest.raises(Duplicate):
            producer.append("orders", order(0), sequence=0)
        assert producer.append("orders", order(99), sequence=99).duplicate

        assert numbers(topic) == list(range(100))

    def test_a_producer_that_was_opened_again_fences_the_one_before(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)
        old = log.producer("loader")
        old.append("orders", order(1))

        new = log.producer("loader")
        with pytest.raises(Fenced):
            old.append("orders", order(2))
        with pytest.raises(Fenced), log.transaction(producer=old) as tx:
            tx.append("orders", order(2))
        new.append("orders", order(3))

        assert (new.epoch, new.next_sequence) == (2, 2)
        assert numbers(topic) == [1, 3]

    def test_a_refused_request_uses_no_number(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)
        producer = log.producer("loader")

        with pytest.raises(RowsRefused):
            producer.append("orders", {"order_id": "x"})
        with pytest.raises(UnknownTopic):
            producer.append("nothing", order(1))
        producer.append("orders", order(1))

        assert producer.next_sequence == 1
        assert numbers(topic) == [1]

    def test_producers_do_not_know_each_other(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)
        one, two = log.producer("one"), log.producer("two")

        one.append("orders", order(1), sequence=0)
        two.append("orders", order(2), sequence=0)

        assert one.producer_id != two.producer_id
        assert numbers(topic) == [1, 2]
        assert log.status().producers == 2

    def test_a_producer_that_was_idle_for_a_week_is_forgotten_and_can_begin_again(self, place: Place) -> None:
        clock = ManualClock()
        with place.open(clock=clock) as log:
            topic = log.topic("orders", schema=ORDER)
            producer = log.producer("loader")
            producer.append("orders", order(1))
            clock.advance(8 * 86_400)
            topic.append(order(2))
            log.checkpoint()

            with pytest.raises(UnknownProducer):
                producer.append("orders", order(3))
            again = log.producer("loader")
            again.append("orders", order(3))

            assert again.next_sequence == 1
            assert numbers(topic) == [1, 2, 3]

    def test_a_producer_deletes_once_too(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER, key="order_id")
        producer = log.producer("loader")
        producer.append("orders", order(1))

        producer.delete("orders", 1, sequence=1)
        assert producer.delete("orders", 1, sequence=1).duplicate

        assert [row["_hw_op"] for row in topic.read().to_pylist()] == ["U", "D"]

    @pytest.mark.parametrize("name", ["", "x" * 100_000])
    def test_a_producer_needs_a_name_of_some_length(self, log: hw.Log, name: str) -> None:
        with pytest.raises(InvalidRequest):
            log.producer(name)

    # Transactions ---------------------------------------------------------------------------------

    def test_a_transaction_is_one_write_over_topics_and_partitions(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER, partitions=2)
        stock = log.topic("stock", schema={"item": str, "count": int}, key="item")

        with log.transaction() as tx:
            tx.append("orders", orders(2), partition=1)
            tx.append("orders", order(2), partition=0)
            tx.upsert("stock", {"item": "a", "count": 5})
            tx.delete("stock", "b")
            assert numbers(topic) == [], "nothing shows before it is committed"

        assert tx.state == "committed"
        assert tx.result is not None
        assert tx.result.rows == 5
        assert tx.result.offsets == {"orders": {0: (0, 1), 1: (0, 2)}, "stock": {0: (0, 2)}}
        assert sorted(numbers(topic)) == [0, 1, 2]
        assert [(row["item"], row["_hw_op"]) for row in stock.read().to_pylist()] == [("a", "U"), ("b", "D")]
        lsns = [row["_hw_lsn"] for each in (topic, stock) for row in each.read(system_columns=True).to_pylist()]
        assert tx.result.first_lsn <= min(lsns) <= max(lsns) <= tx.result.lsn

    def test_rows_for_a_partition_that_come_in_parts_keep_their_order(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)

        with log.transaction() as tx:
            for number in range(10):
                tx.append("orders", order(number))

        assert tx.result is not None
        assert tx.result.offsets == {"orders": {0: (0, 10)}}
        assert numbers(topic) == list(range(10))

    def test_an_exception_leaves_nothing_of_a_transaction(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)

        def fail(tx: hw.Transaction) -> None:
            with tx:
                tx.append("orders", order(1))
                tx.set_source("pg", 7)
                raise ZeroDivisionError

        tx = log.transaction()
        with pytest.raises(ZeroDivisionError):
            fail(tx)

        assert (tx.state, tx.result) == ("aborted", None)
        assert numbers(topic) == []
        assert log.source_position("pg") is None

    def test_an_aborted_transaction_leaves_nothing_and_takes_nothing_more(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)

        with log.transaction() as tx:
            tx.append("orders", order(1))
            tx.abort()
        for use in (lambda: tx.append("orders", order(2)), tx.commit, tx.abort, lambda: tx.set_source("pg", 1)):
            with pytest.raises(InvalidRequest):
                use()

        assert numbers(topic) == []

    def test_a_committed_transaction_takes_nothing_more(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)
        tx = log.transaction()
        tx.append("orders", order(1))

        assert tx.commit() is tx.result
        for use in (lambda: tx.append("orders", order(2)), tx.commit, tx.abort):
            with pytest.raises(InvalidRequest):
                use()

        assert numbers(topic) == [1]

    def test_a_row_that_does_not_fit_is_refused_when_it_is_added_and_the_transaction_can_go_on(
        self, log: hw.Log
    ) -> None:
        topic = log.topic("orders", schema=ORDER)

        with log.transaction() as tx:
            tx.append("orders", order(1))
            with pytest.raises(RowsRefused):
                tx.append("orders", [order(2), {"order_id": "x"}])
            tx.append("orders", order(3))

        assert numbers(topic) == [1, 3]

    def test_rejected_rows_are_kept_by_the_transactions_own_write(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)

        with log.transaction() as tx:
            tx.append("orders", [order(1), {"order_id": "x"}], rejected="keep")

        assert numbers(topic) == [1]
        assert len(log["orders.rejected"].read().to_pylist()) == 1

    def test_an_empty_transaction_writes_nothing(self, log: hw.Log) -> None:
        log.topic("orders", schema=ORDER).append(order(1))
        durable_lsn = log.status().durable_lsn

        with log.transaction() as tx:
            tx.append("orders", [])

        assert (tx.state, tx.result) == ("committed", None)
        assert log.status().durable_lsn == durable_lsn

    def test_a_transaction_for_a_topic_that_is_deleted_before_it_commits_is_refused_whole(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)
        log.topic("gone", schema=ORDER)
        tx = log.transaction()
        tx.append("orders", order(1))
        tx.append("gone", order(1))

        log.delete_topic("gone")
        with pytest.raises(UnknownTopic):
            tx.commit()

        assert tx.state == "aborted"
        assert numbers(topic) == []

    def test_a_transaction_above_the_limit_of_a_write_is_refused_whole_and_names_the_limit(self, place: Place) -> None:
        with place.open(SMALL_WRITES) as log:
            topic = log.topic("orders", schema=ORDER)

            tx = log.transaction()
            for number in range(20):
                tx.append("orders", order(number, 1.5, "x" * 1_000))
            with pytest.raises(TooLarge) as caught:
                tx.commit()

            assert caught.value.facts["limit_bytes"] == 16 * KIB
            assert tx.state == "aborted"
            assert numbers(topic) == []
            topic.append(order(1))
            assert numbers(topic) == [1]

    def test_a_transaction_with_a_key_that_was_committed_is_given_the_first_answer(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)
        results = []

        for _ in range(2):
            with log.transaction(idempotency_key="import-7") as tx:
                tx.append("orders", orders(2))
                tx.set_source("pg", 7)
            results.append(tx.result)

        first, again = results
        assert first is not None and again is not None
        assert (first.duplicate, again.duplicate) == (False, True)
        assert (again.offsets, again.lsn) == (first.offsets, first.lsn)
        assert numbers(topic) == [0, 1]

    def test_a_producers_transactions_are_numbered_with_its_other_requests(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)
        producer = log.producer("loader")

        producer.append("orders", order(1))
        with log.transaction(producer=producer) as tx:
            tx.append("orders", order(2))
        producer.append("orders", order(3))

        assert producer.next_sequence == 3
        assert numbers(topic) == [1, 2, 3]

    # Sources --------------------------------------------------------------------------------------

    @pytest.mark.parametrize("position", [0, "0/16B3748", {"lsn": 5, "table": "a"}, [1, 2.5, None], b"\x00\xff", 2**63])
    def test_the_position_of_a_source_is_given_back_as_it_was_set(self, log: hw.Log, position: object) -> None:
        log.topic("orders", schema=ORDER)
        assert log.source_position("pg") is None

        with log.transaction() as tx:
            tx.append("orders", order(1))
            tx.set_source("pg", position)

        found = log.source_position("pg")
        assert found is not None and tx.result is not None
        assert found.position == position
        assert found.watermark is None
        assert tx.result.first_lsn <= found.lsn <= tx.result.lsn
        assert found.time == tx.result.time

    def test_a_later_watermark_wins_and_an_absent_one_changes_nothing(self, log: hw.Log) -> None:
        found = []
        for position, watermark in [(1, None), (2, NOON), (3, None), (4, NOON + timedelta(hours=1)), (5, None)]:
            with log.transaction() as tx:
                tx.set_source("pg", position, watermark=watermark)
            at = log.source_position("pg")
            assert at is not None
            found.append((at.position, at.watermark))

        later = NOON + timedelta(hours=1)
        assert found == [(1, None), (2, NOON), (3, NOON), (4, later), (5, later)]

    def test_sources_do_not_know_each_other_and_the_last_position_of_a_transaction_counts(self, log: hw.Log) -> None:
        with log.transaction() as tx:
            tx.set_source("a", 1)
            tx.set_source("b", 2)
            tx.set_source("a", 3)

        assert {name: each.position for name, each in log.status().sources.items()} == {"a": 3, "b": 2}

    @pytest.mark.parametrize(
        ("name", "position", "watermark"),
        [
            ("", 1, None),
            ("x" * 100_000, 1, None),
            ("pg", object(), None),
            ("pg", "x" * 100_000, None),
            ("pg", nested(200), None),
            ("pg", 2**64, None),
            ("pg", 1, NOON.replace(tzinfo=None)),
        ],
    )
    def test_a_position_that_cannot_be_kept_is_refused(
        self, log: hw.Log, name: str, position: object, watermark: datetime | None
    ) -> None:
        with log.transaction() as tx, pytest.raises(InvalidRequest):
            tx.set_source(name, position, watermark=watermark)

        assert log.status().sources == {}


class TransactionsKept:
    def test_keys_producers_and_sources_are_remembered_over_a_close(self, place: Place) -> None:
        with place.open() as log:
            topic = log.topic("orders", schema=ORDER)
            first = topic.append(order(1), idempotency_key="k")
            producer = log.producer("loader")
            sent = producer.append("orders", order(2))
            with log.transaction() as tx:
                tx.append("orders", order(3))
                tx.set_source("pg", {"lsn": 9}, watermark=NOON)

        with place.open() as log:
            topic = log["orders"]
            again = topic.append(order(1), idempotency_key="k")
            producer = log.producer("loader")
            resent = producer.append("orders", order(2), sequence=0)
            source = log.source_position("pg")
            producer.append("orders", order(4))
            found = numbers(topic)

        assert again.duplicate and resent.duplicate
        assert (again.offsets, again.lsn) == (first.offsets, first.lsn)
        assert (resent.offsets, resent.lsn) == (sent.offsets, sent.lsn)
        assert producer.epoch == 2
        assert source is not None
        assert (source.position, source.watermark) == ({"lsn": 9}, NOON)
        assert found == [1, 2, 3, 4]

    def test_a_repeat_is_known_whether_or_not_a_checkpoint_was_made(self, place: Place) -> None:
        with place.open() as log:
            topic = log.topic("orders", schema=ORDER)
            for number in range(5):
                topic.append(order(number), idempotency_key=f"k{number}")
                if number == 2:
                    log.checkpoint()

        with place.open() as log:
            assert all(log["orders"].append(order(n), idempotency_key=f"k{n}").duplicate for n in range(5))
            assert numbers(log["orders"]) == [0, 1, 2, 3, 4]
