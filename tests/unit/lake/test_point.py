"""One row of a keyed topic by its key: what a scan shows, and no file that cannot hold it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import InvalidRequest
from headwater.lake import table_rows
from headwater.lake.file_cache import LiveFile
from headwater.lake.point import get_row
from tests.unit.lake.small_lakes import SmallLake, lakes
from tests.unit.lake.small_merges import merge_new_keys
from tests.unit.topics.small_engines import engine_of

CUSTOMER = {"id": int, "name": str}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[SmallLake]:
    yield from lakes(tmp_path)


def test_a_key_is_found_in_the_state_in_the_changes_and_in_the_tail_or_nowhere(lake: SmallLake) -> None:
    lake.topic("customers", CUSTOMER, key="id")
    topic = lake.log["customers"]
    topic.upsert([{"id": number, "name": "state"} for number in range(5)])
    lake.round()
    merge_new_keys(lake, "customers")
    topic.upsert([{"id": number, "name": "changes"} for number in (1, 2, 5)])
    topic.delete([{"id": 3}])
    lake.round()
    cut = lake.log.cut("customers")
    topic.upsert([{"id": number, "name": "tail"} for number in (2, 6)])
    topic.delete([{"id": 4}])

    found = {number: topic.get(number) for number in range(8)}

    assert {number: row["name"] if row else None for number, row in found.items()} == {
        0: "state", 1: "changes", 2: "tail", 3: None, 4: None, 5: "changes", 6: "tail", 7: None,
    }  # fmt: skip
    assert found[0] == {"id": 0, "name": "state"}
    assert topic.get({"id": 2}, as_of=cut) == {"id": 2, "name": "changes"}
    assert topic.get(4, as_of=cut) == {"id": 4, "name": "state"}
    assert not engine_of(lake.log).pins.read()


def test_files_whose_bounds_rule_the_key_out_are_not_opened(lake: SmallLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.topic("customers", CUSTOMER, key="id")
    topic = lake.log["customers"]
    for first in (0, 10):
        topic.upsert([{"id": first + place, "name": "x"} for place in range(3)])
        lake.round()
        merge_new_keys(lake, "customers")
    for first in (20, 30):
        topic.upsert([{"id": first + place, "name": "y"} for place in range(3)])
        lake.round()
    opened: list[str] = []
    read = table_rows.PartReading.read

    def watched(reading: table_rows.PartReading, live: LiveFile) -> list[pa.Table]:
        opened.append(live.path)
        return read(reading, live)

    monkeypatch.setattr(table_rows.PartReading, "read", watched)

    assert [topic.get(number) is not None for number in (11, 31, 15, 99)] == [True, True, False, False]
    assert len(opened) == 2


KEYS: list[tuple[pa.DataType, Any]] = [
    (pa.bool_(), True),
    (pa.int8(), -7),
    (pa.uint32(), 2**32 - 1),
    (pa.int64(), -(2**63)),
    (pa.string(), "é'\0"),
    (pa.binary(), b"\xff\0"),
    (pa.binary(4), b"abcd"),
    (pa.decimal128(5, 2), Decimal("9.50")),
    (pa.decimal128(38, 0), Decimal(10**38 - 1)),
    (pa.date32(), date(1, 1, 1)),
    (pa.timestamp("us"), datetime.fromisoformat("2026-11-15T01:02:03.000004")),
    (pa.timestamp("us", "UTC"), datetime(9999, 12, 31, tzinfo=UTC)),
]


def test_a_key_may_be_of_every_type_that_keys_have(lake: SmallLake) -> None:
    names = [f"k.{place}" for place in range(len(KEYS))]
    schema = pa.schema([pa.field(name, type_) for name, (type_, _) in zip(names, KEYS, strict=True)])
    lake.topic("every", schema, key=tuple(names))
    row = {name: value for name, (_, value) in zip(names, KEYS, strict=True)}
    lake.log["every"].upsert([row])

    in_the_tail = lake.log["every"].get(row)
    lake.round()
    in_the_table = lake.log["every"].get(row)

    assert in_the_tail == in_the_table == row
    assert lake.log["every"].get({**row, "k.1": 8}) is None


def test_a_topic_without_a_table_needs_none(lake: SmallLake) -> None:
    topic = lake.log.topic("bare", schema=CUSTOMER, key="id")
    topic.upsert([{"id": 1, "name": "a"}])

    assert topic.get(1) == {"id": 1, "name": "a"}


def test_what_is_no_key_of_the_topic_is_refused_with_its_reason(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.topic("customers", CUSTOMER, key="id")
    lake.topic("pairs", CUSTOMER, key=("id", "name"))
    views = lake.log._viewed()

    with pytest.raises(InvalidRequest, match="has no key"):
        get_row(views, lake.record("orders"), 1)
    with pytest.raises(InvalidRequest, match="the key of 'pairs' is id, name"):
        get_row(views, lake.record("pairs"), 1)
    for key in ("one", None, {}, {"id": 1, "other": 2}):
        with pytest.raises(InvalidRequest, match=r"this is no key of 'customers': (id|other)"):
            get_row(views, lake.record("customers"), key)
