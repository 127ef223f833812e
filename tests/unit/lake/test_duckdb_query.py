"""SELECTs over topics: which topics they see, what comes out, and that nothing else is run."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.errors import InvalidRequest, Unavailable
from headwater.lake.duckdb_query import Selected, named_topics, select
from tests.unit.lake.small_lakes import SmallLake, lakes
from tests.unit.topics.small_engines import engine_of


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[SmallLake]:
    yield from lakes(tmp_path)


def asked(lake: SmallLake, statement: str) -> Selected:
    return select(lake.log._viewed(), statement)


def test_a_statement_sees_table_and_tail_of_the_topics_that_it_names_at_one_cut(lake: SmallLake) -> None:
    for name in ("orders", "web.visits"):
        lake.topic(name)
        lake.append(name, 2)
    lake.round()
    lake.append("orders", 1)

    with asked(lake, 'SELECT (SELECT count(*) FROM Orders) AS o, (SELECT count(*) FROM "web.visits") AS v') as found:
        assert found.to_pylist() == [{"o": 3, "v": 2}]
        assert {each.topic_id for each in found.cut.topics} == {
            lake.record(name).topic_id.hex() for name in ("orders", "web.visits")
        }
        # It can be run again, and what came since is not in it.
        lake.append("orders", 1)
        assert found.to_pylist() == [{"o": 3, "v": 2}]
    gc.collect()
    assert not engine_of(lake.log).pins.read()


def test_a_log_without_topics_can_be_asked_too(lake: SmallLake) -> None:
    assert asked(lake, "SELECT 1 AS one").to_pylist() == [{"one": 1}]


def test_system_columns_are_there_where_the_statement_says_so(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 1)

    assert asked(lake, "FROM orders").schema.names == ["x"]
    assert asked(lake, "SELECT x, _HW_offset FROM orders").to_pylist() == [{"x": 0, "_hw_offset": 0}]


def test_types_that_no_topic_has_come_out_as_text_and_the_order_stays(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 3)

    found = asked(
        lake,
        "SELECT x, TIME '10:00' AS t, INTERVAL 1 DAY AS i, [TIME '10:00'] AS l, {'time': 1} AS s, 'a'::ENUM('a') AS e,"
        " TIMESTAMPTZ '2026-11-15 00:00:00+00' AS m, sum(x) OVER () AS total FROM orders ORDER BY x DESC",
    ).to_arrow()

    assert found.schema.types[1:6] == [
        pa.string(), pa.string(), pa.string(), pa.struct([pa.field("time", pa.int32())]), pa.string(),
    ]  # fmt: skip
    assert found.drop_columns(["m"]).to_pylist() == [
        {"x": x, "t": "10:00:00", "i": "1 day", "l": "['10:00:00']", "s": {"time": 1}, "e": "a", "total": 3}
        for x in (2, 1, 0)
    ]


def test_integers_of_128_bits_are_told(lake: SmallLake) -> None:
    assert asked(lake, "SELECT 1, 2::HUGEINT, sum(3)").wide_integers == {1, 2}


REFUSED = [
    ("SELECT nope FROM orders", 'Binder Error: Referenced column "nope" not found'),
    ("SELECT * FRM orders", "Parser Error: syntax error"),
    ("SELECT * FROM ordrs", "Catalog Error: Table with name ordrs does not exist"),
    ("SELECT * FROM named_topics", "Catalog Error"),
    ("SELECT x::VARCHAR::DATE FROM orders", "Conversion Error"),
    ("SELECT * FROM read_csv('/etc/hosts')", "Permission Error: Cannot access file"),
    ("SELECT * FROM '/etc/hosts'", "Error"),
    ("COPY orders TO 'stolen.csv'", "one SELECT"),
    ("EXPLAIN ANALYZE COPY orders TO 'stolen.csv'", "one SELECT"),
    ("ATTACH 'other.db'", "one SELECT"),
    ("CREATE TABLE held AS SELECT 1", "one SELECT"),
    ("SET memory_limit = '1GB'", "one SELECT"),
    ("SELECT 1; DROP VIEW orders", "one SELECT"),
    ("", "one SELECT"),
]


def test_what_is_no_good_select_is_refused_in_duckdbs_words_and_does_nothing(
    lake: SmallLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lake.topic("orders")
    lake.append("orders", 1)
    lake.round()
    before = sorted(tmp_path.iterdir())

    for statement, message in REFUSED:
        with pytest.raises(InvalidRequest, match=message) as refused:
            asked(lake, statement).to_pylist()
        assert "\n" not in str(refused.value)

    assert sorted(tmp_path.iterdir()) == before


def test_a_file_that_is_gone_is_no_fault_of_the_statement(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 1)
    lake.round()
    found = asked(lake, "SELECT x FROM orders")
    for file in lake.files():
        file.unlink()

    with pytest.raises(Unavailable, match="IO Error"):
        found.to_pylist()


def test_a_table_whose_files_are_elsewhere_may_be_read_there(lake: SmallLake, tmp_path: Path) -> None:
    lake.topic("orders")
    lake.append("orders", 1)
    lake.round()
    with lake.native() as table, table.transaction() as change:
        change.set_properties({"write.data.path": f"file://{tmp_path}/elsewhere"})
    lake.append("orders", 1)
    lake.round()

    assert any("elsewhere" in str(file) for file in lake.files())
    assert asked(lake, "SELECT count(*) AS n FROM orders").to_pylist() == [{"n": 2}]


def test_a_topic_is_named_by_a_word_of_its_own_and_by_its_case_where_another_is_alike(lake: SmallLake) -> None:
    for name in ("orders", "Orders", "orders.rejected", "visits"):
        lake.log.topic(name, schema={"x": int})
    topics = engine_of(lake.log).metadata().topics.values()

    def named(statement: str) -> list[str]:
        return [topic.name for topic in named_topics(topics, statement)]

    assert named("FROM orders") == ["orders"]
    assert named("FROM main.Orders, VISITS") == ["Orders", "visits"]
    assert named('FROM "orders.rejected", visits_2, my_visits') == ["orders", "orders.rejected"]
    with pytest.raises(InvalidRequest, match="'Orders' and 'orders' are one name"):
        named("FROM orders, Orders")
    with pytest.raises(InvalidRequest, match="are one name"):
        named("SHOW TABLES")
