"""Views in Spark: a scan as a DataFrame shows what it shows without Spark, whatever becomes of table and log."""

from __future__ import annotations

import datetime
import decimal
import gc
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import Closed, InvalidRequest
from tests.lake_spark.sessions import PYSPARK_SOCKETS, local_spark
from tests.lake_spark.view_lakes import ViewLake, from_arrow, from_spark, opened, session_for, view_lake

pytestmark = PYSPARK_SOCKETS

RUNS, VIEWS_A_RUN = 5, 4


def plan_of(frame: Any) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


# At every stage of a row's life -----------------------------------------------------------------------------------


ASKED: tuple[list[str], str] = ["_hw_lsn", "_hw_partition", "_hw_offset", "_hw_shard"], "id > 7 and _hw_offset >= 3"
ASKED_OF_KEYED: tuple[list[str], str] = ["name", "_hw_lsn"], "id >= 12 and name like 'b%'"


def test_a_view_in_spark_is_the_one_without_it_before_and_after_landing_merge_compaction_and_deletion(
    tmp_path: Path,
) -> None:
    with view_lake(tmp_path) as lake:
        cuts: list[tuple[hw.Cut, Any, Any]] = []

        def look() -> None:
            """All that is asked, at this stage, in one job."""
            asked = lake.orders.scan(*ASKED), lake.customers.scan(*ASKED_OF_KEYED)
            scans = lake.scans()
            found = lake.in_spark(*asked, *scans)
            assert found == [*(from_arrow(scan) for scan in asked), *(lake.replayed(scan) for scan in scans)]
            cuts.append((lake.log.cut("orders", "customers"), *scans))

        def write(at: int) -> None:
            lake.append(range(at, at + 10))
            lake.change({each: f"{'ab'[each % 2]}{at}" for each in range(at, at + 10)}, gone=[at - 1, at + 3])

        look()  # nothing at all
        write(10)
        look()  # only in the log
        lake.log.land()
        write(15)
        look()  # landed, not merged, and a tail
        lake.log.merge(spark=lake.spark)
        lake.log.land()
        write(20)
        look()  # state, changes and tail
        lake.log.merge(spark=lake.spark)
        lake.log.land()
        before = [from_arrow(scan) for scan in cuts[-1][1:]]
        for _, orders, customers in cuts:
            orders.close()
            customers.close()
        kept = lake.keep()
        assert any(each.compacted_files for each in kept) and any(each.expired_snapshots for each in kept)
        lake.append(range(100, 110), padding=5000)
        removed = lake.log.cleanup()
        assert removed.deleted, "the log has let go of what has landed"
        look()  # compacted, expired, and gone from the log

        assert lake.in_spark(*lake.scans(as_of=cuts[-2][0])) == before


def test_every_type_is_the_tables_and_every_value_the_same_in_table_and_tail(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("b", pa.bool_()),
            ("i8", pa.int8()),
            ("u32", pa.uint32()),
            ("f16", pa.float16()),
            ("f64", pa.float64()),
            ("d", pa.decimal128(20, 3)),
            ("s", pa.string()),
            ("fixed", pa.binary(3)),
            ("day", pa.date32()),
            ("naive", pa.timestamp("us")),
            ("at", pa.timestamp("ms", "UTC")),
            ("list", pa.list_(pa.int16())),
            ("struct", pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])),
            ("map", pa.map_(pa.string(), pa.float32())),
            ("odd `name`", pa.string()),
        ]
    )
    moment = datetime.datetime(2026, 3, 29, 2, 30, 7, 123000)  # noqa: DTZ001  an hour that some zones do not have
    row = {
        "b": True,
        "i8": -8,
        "u32": 2**32 - 1,
        "f16": 0.5,
        "f64": float("inf"),
        "d": decimal.Decimal("12345678901234567.891"),
        "s": "é",
        "fixed": b"abc",
        "day": datetime.date(1, 1, 1),
        "naive": moment,
        "at": moment.replace(tzinfo=datetime.UTC),
        "list": [1, None, 3],
        "struct": {"x": 7, "y": ["a", None]},
        "map": {"k": 1.5},
        "odd `name`": "'\\",
    }
    with opened(tmp_path) as log:
        spark = session_for(log)
        keyed = log.topic("keyed", schema=schema, key="id", table="t.keyed")
        plain = log.topic("plain", schema=schema, table="t.plain")
        for topic, write in ((plain, plain.append), (keyed, keyed.upsert)):
            write([{"id": 1, **row}, {"id": 2, **dict.fromkeys(row)}])
            log.land()
            write([{"id": 3, **row}, {"id": 4, **dict.fromkeys(row)}])
            scan = topic.scan()
            frame = scan.to_spark(spark)

            assert dict(frame.dtypes) == {
                "id": "bigint",
                "b": "boolean",
                "i8": "int",
                "u32": "bigint",
                "f16": "float",
                "f64": "double",
                "d": "decimal(20,3)",
                "s": "string",
                "fixed": "binary",
                "day": "date",
                "naive": "timestamp_ntz",
                "at": "timestamp",
                "list": "array<int>",
                "struct": "struct<x:int,y:array<string>>",
                "map": "map<string,float>",
                "odd `name`": "string",
            }
            assert from_spark(frame) == from_arrow(scan)


CONDITIONS = [
    "f > 1.5",
    "f >= 2.5 or f < -1",
    "f != 2.5",
    "not (f > 1.5)",
    "not f <= 1.5",
    "f is nan",
    "f is not nan",
    "not (f is nan)",
    "f32 = 0.1",
    "f32 in (0.1, 2.5)",
    "n = 3",
    "n in (1, 3, 9223372036854775807)",
    "n not in (1, 3)",
    "not (n in (1, 3))",
    "n is null",
    "n is not null and n between 2 and 4",
    "small > 99999999999",
    "s = 'it''s'",
    "s like 'a\\%%'",
    "s not like 'a%'",
    "s = 'back\\slash'",
    "s in ('eu', 'it''s', 'back\\slash')",
    "d > 1.25",
    "d = 1.25",
    "day >= '2026-03-01'",
    "naive < '2026-03-29T02:30:00'",
    "at > '2026-03-29T02:29:59.5+00:00'",
    "ok = true",
    "not (ok = true)",
    "inner.x > 3 and inner.y is not null",
    "(n = 1 or s is null) and not (f < 0)",
]


def test_a_condition_keeps_the_same_rows_in_spark_as_without_it(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("n", pa.int64()),
            ("small", pa.int16()),
            ("f", pa.float64()),
            ("f32", pa.float32()),
            ("s", pa.string()),
            ("d", pa.decimal128(9, 2)),
            ("day", pa.date32()),
            ("naive", pa.timestamp("us")),
            ("at", pa.timestamp("us", "UTC")),
            ("ok", pa.bool_()),
            ("inner", pa.struct([("x", pa.int32()), ("y", pa.string())])),
        ]
    )
    moment = datetime.datetime(2026, 3, 29, 2, 30)  # noqa: DTZ001  a time without a zone is meant
    texts = ["it's", "back\\slash", "a%b", "ab", "eu", None]
    rows = [
        {
            "n": [None, 1, 2, 3, 2**63 - 1][each % 5],
            "small": each,
            "f": [None, float("nan"), 1.0, 2.5, -3.0][each % 5],
            "f32": [0.1, 2.5, None][each % 3],
            "s": texts[each % 6],
            "d": [decimal.Decimal("1.25"), decimal.Decimal("7.00"), None][each % 3],
            "day": datetime.date(2026, 2, 27) + datetime.timedelta(each) if each % 4 else None,
            "naive": moment + datetime.timedelta(minutes=each - 6),
            "at": (moment + datetime.timedelta(minutes=each - 6)).replace(tzinfo=datetime.UTC),
            "ok": [True, False, None][each % 3],
            "inner": {"x": each, "y": texts[each % 6]} if each % 5 else None,
        }
        for each in range(12)
    ]
    with opened(tmp_path) as log:
        topic = log.topic("t", schema=schema, table="t.t")
        topic.append(rows[::2])
        log.land()
        topic.append(rows[1::2])
        spark = session_for(log, **{"spark.sql.parser.escapedStringLiterals": "true", "spark.sql.ansi.enabled": "true"})
        expected, found = {}, None
        for number, where in enumerate(CONDITIONS):
            scan = topic.scan(["small"], where)
            expected[number] = sorted(scan.to_arrow().column("small").to_pylist())
            frame = scan.to_spark(spark).selectExpr(f"{number} AS condition", "small")
            # One query for all of them: each by itself is mostly waiting.
            found = frame if found is None else found.union(frame)
        assert found is not None
        kept: dict[int, list[int]] = {number: [] for number in expected}
        for number, small in found.collect():
            kept[number].append(small)

        assert {CONDITIONS[each]: sorted(kept[each]) for each in kept} == {
            CONDITIONS[each]: expected[each] for each in expected
        }
        assert len({tuple(each) for each in expected.values()}) > 15, "they tell rows apart"


def test_filters_and_columns_reach_icebergs_scan_and_a_keyed_state_is_not_sorted(tmp_path: Path) -> None:
    with view_lake(tmp_path) as lake:
        lake.append(range(10))
        lake.change(dict.fromkeys(range(10), "a"))
        lake.log.land()
        lake.log.merge(spark=lake.spark)
        lake.append(range(10, 12))
        lake.change({3: "b"})

        narrow = lake.orders.scan(["id"], "amount > 1 and note = 'x'").to_spark(lake.spark).where("id < 5")
        keyed = lake.customers.scan(where="id > 2 and name = 'a'").to_spark(lake.spark).where("name >= 'a'")

        plan = plan_of(narrow)
        assert "filters=amount > 1.0, note = 'x', id < 5" in plan
        (scanned,) = [line for line in plan.splitlines() if "BatchScan" in line]
        assert scanned.partition("[")[2].partition("]")[0].count(",") == 2, "three columns are read, of eight"
        plan = plan_of(keyed)
        state = plan.partition("LeftAnti")[2].partition("BroadcastExchange")[0]
        assert "id > 2, name = 'a', runtimeFilters" in state
        assert "BatchScan" in state and "Sort" not in state and "Exchange" not in state


# What an owner does ------------------------------------------------------------------------------------------------


def test_a_column_is_found_by_what_it_is_and_not_by_its_name_in_a_snapshot(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        spark = session_for(log)
        topic = log.topic("t", schema=pa.schema([("n", pa.int32()), ("s", pa.string())]), table="t.t")
        topic.append([{"n": 1, "s": "a"}])
        log.land()
        cut = log.cut("t")
        topic.alter(add={"new": str}, widen={"n": pa.int64()})
        topic.append([{"n": 2**40, "s": "b", "new": "x"}])
        scan = topic.scan()
        assert from_spark(scan.to_spark(spark)) == from_arrow(scan)  # the table lacks the column yet
        log.land()
        scan = topic.scan(where="new is null")
        assert from_spark(scan.to_spark(spark)) == from_arrow(scan) == [{"n": 1, "s": "a", "new": None}]
        spark.sql("ALTER TABLE headwater.t.t RENAME COLUMN s TO other")
        spark.sql("ALTER TABLE headwater.t.t ADD COLUMN s string")

        for as_of in (None, cut):
            scan = topic.scan(as_of=as_of)
            assert from_spark(scan.to_spark(spark)) == from_arrow(scan)
        spark.sql("ALTER TABLE headwater.t.t DROP COLUMN s")
        with pytest.raises(InvalidRequest, match="no longer has the column 's'"):
            topic.scan().to_spark(spark)
        assert topic.scan(["n"]).to_spark(spark).agg({"n": "sum"}).collect() == [(2**40 + 1,)]


# A scan's life -----------------------------------------------------------------------------------------------------


def test_a_frame_and_what_is_made_from_it_hold_what_they_read(tmp_path: Path) -> None:
    with view_lake(tmp_path) as lake:
        lake.append(range(10))
        lake.log.land()
        lake.append(range(10, 12))
        pins = tmp_path / "pins"

        frame = lake.orders.scan().to_spark(lake.spark).where("id > 3").groupBy("amount").count()
        gc.collect()
        held = len(list(pins.iterdir()))
        assert frame.count() == 8
        del frame
        gc.collect()

        assert (held, len(list(pins.iterdir()))) == (1, 0)
        with lake.orders.scan() as scan:
            pass
        with pytest.raises(Closed):
            scan.to_spark(lake.spark)


def test_a_session_that_does_not_know_the_catalog_is_refused_only_where_it_is_needed(tmp_path: Path) -> None:
    with view_lake(tmp_path) as lake:
        lake.append(range(3))
        bare = local_spark().newSession()

        assert lake.orders.scan().to_spark(bare).count() == 3, "the log alone needs no catalog"
        lake.log.land()
        with pytest.raises(InvalidRequest, match=r"spark\.sql\.catalog\.headwater"):
            lake.orders.scan().to_spark(bare)


# Everything at once ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", range(RUNS))
def test_every_view_is_the_log_replayed_while_others_land_merge_compact_expire_and_delete(
    tmp_path: Path, seed: int, run: int
) -> None:
    drawn = random.Random(seed)
    with view_lake(tmp_path) as lake:
        ended = threading.Event()
        trouble: list[BaseException] = []

        def on_and_on(act: Callable[[], object]) -> threading.Thread:
            def acting() -> None:
                try:
                    while not ended.is_set():
                        act()
                except BaseException as error:  # noqa: BLE001  told below, whatever it is
                    trouble.append(error)

            return threading.Thread(target=acting)

        def land() -> None:
            lake.log.land()
            ended.wait(0.05)

        def merge_and_keep() -> None:
            lake.log.merge(spark=lake.spark)
            lake.keep()

        threads = [on_and_on(land), on_and_on(merge_and_keep)]
        _write_some(lake, drawn)
        for thread in threads:
            thread.start()
        try:
            cuts: list[hw.Cut] = []
            for _ in range(VIEWS_A_RUN):
                _write_some(lake, drawn)
                scans = [*lake.scans(), *(lake.scans(drawn.choice(cuts)) if cuts else ())]
                assert lake.in_spark(*scans) == [lake.replayed(scan) for scan in scans], [each.plan for each in scans]
                cuts.append(lake.log.cut("orders", "customers"))
        finally:
            ended.set()
            for thread in threads:
                thread.join()
        assert not trouble, trouble
        scans = [*lake.scans(), *lake.scans(cuts[0])]
        assert lake.in_spark(*scans) == [lake.replayed(scan) for scan in scans]


def _write_some(lake: ViewLake, drawn: random.Random) -> None:
    for _ in range(drawn.randrange(1, 6)):
        if drawn.random() < 0.5:
            lake.append(range(drawn.randrange(100)), padding=drawn.choice([1, 60]))
        else:
            names = {drawn.randrange(40): f"n{drawn.randrange(1000)}" for _ in range(drawn.randrange(8))}
            lake.change(names, gone=[drawn.randrange(40) for _ in range(drawn.randrange(3))])
