"""Topics: create, get, list, describe, alter, delete.  How it is run: log_api.py."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

import headwater as hw
from headwater.clock import ManualClock
from headwater.errors import (
    HeadwaterError,
    InvalidRequest,
    RowsUnlanded,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
)
from tests.contract.log_api import ORDER, SETTINGS, Place, next_offsets, numbers, order, orders

NAMES_REFUSED = ["", ".", "..", "a b", "a/b", "a\\b", "ä", "a\n", "a" * 250, "a:b", "a\x00"]
NAMES_TAKEN = ["a", "A.b_c-9", "a" * 249, "...", "0", "_", "-", "con", "a.rejected"]


class Topics:
    """What is promised of topics themselves, wherever the log is."""

    # Creating -------------------------------------------------------------------------------------

    def test_a_topic_is_created_by_asking_for_it_with_its_schema(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)

        assert topic.name == "orders"
        assert topic.schema == pa.schema(
            [
                pa.field("order_id", pa.int64(), nullable=False),
                pa.field("amount", pa.float64(), nullable=False),
                pa.field("note", pa.string()),
            ]
        )
        assert topic.key == ()
        assert "orders" in log
        assert log["orders"].topic_id == topic.topic_id

    def test_asking_again_for_what_is_there_gives_the_same_topic_and_writes_nothing(self, log: hw.Log) -> None:
        first = log.topic("orders", schema=ORDER, partitions=2, retention="7d")
        journal_lsn = log.status().journal_lsn

        again = log.topic("orders", schema=ORDER, partitions=2, retention="7d")
        plainly = log.topic("orders")

        assert again.topic_id == first.topic_id == plainly.topic_id
        assert again.number == first.number
        assert log.status().journal_lsn == journal_lsn

    @pytest.mark.parametrize(
        ("wish", "named"),
        [
            ({"schema": {"order_id": int, "amount": str, "note": "string"}}, "amount"),
            ({"schema": {"order_id": int, "amount": float}}, "note"),
            ({"schema": {**ORDER, "more": str}}, "more"),
            ({"partitions": 3}, "partitions"),
            ({"key": "order_id"}, "key"),
            ({"table": "sales.orders"}, "table"),
            ({"retention": "1d"}, "policy"),
        ],
    )
    def test_asking_for_another_topic_of_that_name_is_refused_and_names_the_difference(
        self, log: hw.Log, wish: dict[str, object], named: str
    ) -> None:
        log.topic("orders", schema=ORDER, partitions=2)

        with pytest.raises(TopicExists, match=named) as caught:
            log.topic("orders", **{"schema": ORDER, **wish})  # type: ignore[arg-type]

        assert caught.value.facts["topic"] == "orders"
        assert log["orders"].partitions == 2
        assert log["orders"].schema.names == ["order_id", "amount", "note"]

    @pytest.mark.parametrize("name", NAMES_REFUSED)
    def test_a_name_that_breaks_the_rule_is_refused(self, log: hw.Log, name: str) -> None:
        with pytest.raises(InvalidRequest):
            log.topic(name, schema=ORDER)

        assert log.topics() == []

    def test_every_name_that_keeps_the_rule_is_taken(self, log: hw.Log) -> None:
        for name in NAMES_TAKEN:
            log.topic(name, schema=ORDER).append(order(1))

        assert [topic.name for topic in log.topics()] == sorted(NAMES_TAKEN)
        assert all(numbers(log[name]) == [1] for name in NAMES_TAKEN)

    @pytest.mark.parametrize("partitions", [0, -1, 10_001])
    def test_a_number_of_partitions_that_cannot_be_is_refused(self, log: hw.Log, partitions: int) -> None:
        with pytest.raises(InvalidRequest):
            log.topic("orders", schema=ORDER, partitions=partitions)

        assert "orders" not in log

    @pytest.mark.parametrize(
        ("schema", "options"),
        [
            ({"_hw_lsn": int}, {}),
            ({}, {}),
            ({"a": pa.uint64()}, {}),
            ({"a": pa.time64("us")}, {}),
            ({"a": int}, {"key": "b"}),
            ({"a": int}, {"time": "a"}),
            ({"a": int}, {"cleanup": "compact"}),
            ({"a": int}, {"cleanup": "sometimes"}),
            ({"a": int}, {"retention": "soon"}),
            ({"a": int}, {"retention_bytes": 0}),
            ({"a": int}, {"table": "no_namespace"}),
            ("int", {}),
        ],
    )
    def test_a_schema_or_an_option_that_makes_no_sense_is_refused_and_nothing_is_created(
        self, log: hw.Log, schema: object, options: dict[str, object]
    ) -> None:
        with pytest.raises(InvalidRequest):
            log.topic("a", schema=schema, **options)  # type: ignore[arg-type]

        assert "a" not in log

    def test_many_topics_are_created_together(self, log: hw.Log) -> None:
        made = log.create_topics([hw.NewTopic(f"t{n:03}", ORDER, partitions=2) for n in range(200)])

        assert [topic.name for topic in made] == [f"t{n:03}" for n in range(200)]
        assert len({topic.topic_id for topic in made}) == 200
        assert [topic.name for topic in log.topics()] == [topic.name for topic in made]

    def test_where_one_of_many_topics_cannot_be_created_none_is(self, log: hw.Log) -> None:
        with pytest.raises(InvalidRequest):
            log.create_topics([hw.NewTopic("a", ORDER), hw.NewTopic("b c", ORDER)])
        with pytest.raises(InvalidRequest):
            log.create_topics([hw.NewTopic("a", ORDER), hw.NewTopic("a", ORDER)])

        assert log.topics() == []

    def test_an_unknown_topic_is_an_error_that_names_it(self, log: hw.Log) -> None:
        for ask in (log.topic, log.__getitem__, log.delete_topic):
            with pytest.raises(UnknownTopic, match="orders") as caught:
                ask("orders")
            assert caught.value.facts["topic"] == "orders"

        assert "orders" not in log

    def test_an_unknown_partition_is_an_error_that_names_it(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER, partitions=2)

        with pytest.raises(UnknownPartition) as appending:
            topic.append(order(1), partition=2)
        with pytest.raises(UnknownPartition) as reading:
            topic.read(partition=2)

        assert appending.value.facts["partition"] == reading.value.facts["partition"] == 2
        assert numbers(topic) == []

    # Looking --------------------------------------------------------------------------------------

    def test_a_description_says_all_there_is_to_say(self, log: hw.Log) -> None:
        topic = log.topic(
            "orders",
            schema={"order_id": int, "at": pa.timestamp("us", "UTC")},
            partitions=2,
            key="order_id",
            time="at",
            table="sales.orders",
            cleanup="both",
            retention="7d",
            retention_bytes="1GiB",
            tombstones="1h",
            changes_retention="2d",
        )
        topic.append([{"order_id": n, "at": datetime(2024, 1, 1, tzinfo=UTC)} for n in range(10)])

        found = topic.describe()

        assert (found.name, found.number, found.topic_id) == ("orders", topic.number, topic.topic_id)
        assert (found.key, found.time_column, found.table) == (("order_id",), "at", "sales.orders")
        assert (found.partitions, found.schema_version, found.rows) == (2, 1, 10)
        assert found.schema == topic.schema
        assert found.policy.cleanup == "both"
        assert found.policy.retention_s == 7 * 86_400
        assert found.policy.retention_bytes == 2**30
        assert found.policy.tombstones_s == 3_600
        assert found.policy.changes_retention_s == 2 * 86_400
        assert sum(offsets.next - offsets.first for offsets in found.offsets.values()) == 10
        assert found.bytes > 0
        assert found.created.tzinfo is not None

    def test_topics_are_listed_by_name_with_what_they_hold(self, log: hw.Log) -> None:
        log.topic("b", schema=ORDER).append(orders(3))
        log.topic("a", schema=ORDER, partitions=4)

        found = log.topics()

        assert [(each.name, each.partitions, each.rows, each.appended) for each in found] == [
            ("a", 4, 0, 0),
            ("b", 1, 3, 3),
        ]

    # Altering -------------------------------------------------------------------------------------

    def test_a_column_can_be_added_and_old_rows_have_none_of_it(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)
        topic.append(order(1))

        topic.alter(add={"colour": str})
        topic.append({**order(2), "colour": "red"})

        assert topic.schema.field("colour").nullable
        assert topic.describe().schema_version == 2
        assert [(row["order_id"], row["colour"]) for row in topic.read().to_pylist()] == [(1, None), (2, "red")]

    def test_a_type_can_be_widened_and_old_rows_come_in_the_wider_one(self, log: hw.Log) -> None:
        topic = log.topic("readings", schema={"n": "int32", "x": "float32"})
        topic.append({"n": 1, "x": 0.5})

        topic.alter(widen={"n": "int64", "x": "float64"})
        topic.append({"n": 2**40, "x": 1e300})

        table = topic.read().to_arrow()
        assert table.schema.field("n").type == pa.int64()
        assert table.schema.field("x").type == pa.float64()
        assert table.to_pylist() == [{"n": 1, "x": 0.5}, {"n": 2**40, "x": 1e300}]

    @pytest.mark.parametrize(
        "change",
        [
            {"widen": {"order_id": "int32"}},
            {"widen": {"order_id": "string"}},
            {"widen": {"nothing": "int64"}},
            {"add": {"amount": float}},
            {"add": {"_hw_x": float}},
            {"schema": {"order_id": int}},
            {"schema": {"order_id": int, "amount": float, "remark": "string"}},
            {"partitions": 1},
            {"partitions": 10_001},
            {"cleanup": "compact"},
            {"retention": "-1d"},
            {"table": "nothing"},
        ],
    )
    def test_a_change_that_would_lose_rows_or_makes_no_sense_is_refused_and_changes_nothing(
        self, log: hw.Log, change: dict[str, object]
    ) -> None:
        topic = log.topic("orders", schema=ORDER, partitions=2)
        topic.append(order(1))
        before = topic.describe()

        with pytest.raises(InvalidRequest):
            topic.alter(**change)  # type: ignore[arg-type]

        assert topic.describe() == before

    def test_partitions_can_be_added_while_in_use_and_old_rows_stay_where_they_are(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER, partitions=2)
        topic.append(order(1), partition=1)

        topic.alter(partitions=4)
        topic.append(order(2), partition=3)
        topic.append(order(3), partition=1)

        assert topic.partitions == 4
        assert next_offsets(topic) == {0: 0, 1: 2, 2: 0, 3: 1}
        assert numbers(topic) == [1, 2, 3]

    def test_altering_to_what_is_there_writes_nothing(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER, partitions=2, retention="7d")
        journal_lsn = log.status().journal_lsn

        topic.alter(partitions=2, retention="7d")

        assert log.status().journal_lsn == journal_lsn

    def test_a_policy_can_be_changed_in_part_and_a_limit_taken_away(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER, key="order_id", retention="7d", retention_bytes=1_000)

        topic.alter(retention="forever", cleanup="both")

        policy = topic.describe().policy
        assert (policy.cleanup, policy.retention_s, policy.retention_bytes) == ("both", None, 1_000)

    def test_a_table_can_be_named_once(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)

        topic.alter(table="sales.orders")
        with pytest.raises(InvalidRequest):
            topic.alter(table="sales.others")

        assert topic.describe().table == "sales.orders"

    def test_a_program_that_knows_an_older_schema_still_gets_the_topic(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)
        topic.alter(add={"colour": str})

        again = log.topic("orders", schema=ORDER)

        assert again.topic_id == topic.topic_id
        assert again.schema.names == ["order_id", "amount", "note", "colour"]

    # Deleting -------------------------------------------------------------------------------------

    def test_a_deleted_topic_is_gone_at_once_for_whoever_holds_it(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER)
        topic.append(order(1))

        log.delete_topic("orders")

        assert "orders" not in log
        assert log.topics() == []
        for use in (lambda: topic.append(order(2)), topic.read, topic.describe, topic.offsets, topic.alter):
            with pytest.raises(UnknownTopic):
                use()

    def test_a_new_topic_of_a_deleted_ones_name_is_another_and_has_none_of_its_rows(self, log: hw.Log) -> None:
        old = log.topic("orders", schema=ORDER, partitions=2)
        old_id, old_number = old.topic_id, old.number
        old.append(orders(5), partition=1)
        log.delete_topic("orders")

        new = log.topic("orders", schema={"other": str}, partitions=2)
        appended = new.append({"other": "x"}, partition=1)

        assert new.topic_id != old_id
        assert new.number != old_number
        assert appended.offsets == {1: (0, 1)}
        assert new.read().to_pylist() == [{"other": "x"}]
        with pytest.raises(UnknownTopic):
            old.append(order(6))

    def test_a_topic_with_a_table_is_not_deleted_while_rows_are_not_in_it_unless_forced(self, log: hw.Log) -> None:
        topic = log.topic("orders", schema=ORDER, table="sales.orders")
        log.topic("empty", schema=ORDER, table="sales.empty")
        topic.append(order(1))

        with pytest.raises(RowsUnlanded) as caught:
            log.delete_topic("orders")
        log.delete_topic("empty")

        assert caught.value.facts["topic"] == "orders"
        assert numbers(topic) == [1]
        log.delete_topic("orders", force=True)
        assert log.topics() == []

    def test_every_error_of_a_topic_is_one_of_headwaters(self, log: hw.Log) -> None:
        for wrong in (5, None, b"orders", ["orders"]):
            with pytest.raises(HeadwaterError):
                log.topic(wrong, schema=ORDER)  # type: ignore[arg-type]


class TopicsKept:
    """What is promised of topics over a close."""

    def test_topics_are_there_after_a_close_as_they_were(self, place: Place) -> None:
        with place.open() as log:
            topic = log.topic("orders", schema=ORDER, partitions=2, key="order_id", retention="7d")
            topic.append(orders(10))
            topic.alter(add={"colour": str}, partitions=4)
            log.topic("gone", schema=ORDER).append(order(1))
            log.delete_topic("gone")
            before = topic.describe()

        with place.open() as log:
            after = log["orders"].describe()
            found = [each.name for each in log.topics()]

        assert after == before
        assert found == ["orders"]

    def test_a_topics_creation_time_is_kept_whatever_is_changed(self, place: Place) -> None:
        clock = ManualClock(1_700_000_000_000_000)
        with place.open(clock=clock) as log:
            log.topic("orders", schema=ORDER)
        clock.advance(1_000)

        with place.open(clock=clock) as log:
            log.topic("orders", schema=ORDER).alter(partitions=2, add={"colour": str}, retention="1d")
            log.checkpoint()
        clock.advance(1_000)

        with place.open(clock=clock) as log:
            assert log["orders"].describe().created == datetime.fromtimestamp(1_700_000_000, UTC)

    def test_a_topic_has_as_many_partitions_as_the_settings_say_where_nobody_does(self, place: Place) -> None:
        with place.open(hw.Settings(log=SETTINGS.log, upkeep_interval_s=0.0, partitions_default=3)) as log:
            assert log.topic("a", schema=ORDER).partitions == 3
            assert log.topic("b", schema=ORDER, partitions=2).partitions == 2

        with place.open() as log:
            assert log.topic("a", schema=ORDER).partitions == 3, "what is there stays"
            assert log.topic("c", schema=ORDER).partitions == 1

    def test_a_deleted_topic_never_comes_back(self, place: Place) -> None:
        ids = set()
        for life in range(4):
            with place.open() as log:
                assert "orders" not in log
                topic = log.topic("orders", schema=ORDER)
                ids.add(topic.topic_id)
                assert numbers(topic) == []
                topic.append(order(life))
                log.checkpoint()
            with place.open() as log:
                assert numbers(log["orders"]) == [life]
                log.delete_topic("orders")

        assert len(ids) == 4
