"""Tables that are whole pass, whatever honest owners, compactions, landers and schemas did to them: no false alarm.

A seed is the whole repro.  HEADWATER_AUDIT_SEEDS=200 runs more of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform

from headwater.lake.ledger_records import Landed
from tests.unit.lake.audited_lakes import DAY, AuditedLake, audited_lakes, without
from tests.unit.lake.delete_files import add_delete_file
from tests.unit.lake.test_audit_damage import alter_ledger, erase

SEEDS = int(os.environ.get("HEADWATER_AUDIT_SEEDS", "20"))
NARROW = pa.schema(
    [
        pa.field("small", pa.int16()),
        pa.field("ratio", pa.float32()),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("inner", pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.list_(pa.string()))])),
    ]
)
WIDER: list[dict[str, Any]] = [
    {"widen": {"small": pa.int64()}},
    {"widen": {"ratio": pa.float64()}},
    {"widen": {"price": pa.decimal128(38, 2)}},
    {"add": {"note": pa.string()}},
    {"add": {"flag": pa.bool_()}},
]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[AuditedLake]:
    yield from audited_lakes(tmp_path)


class Schedule:
    """What happens to one table, drawn from a seed."""

    def __init__(self, lake: AuditedLake, seed: int) -> None:
        self.lake = lake
        self.random = Random(seed)
        self.wider = list(WIDER)
        self.random.shuffle(self.wider)
        self.erased = 0
        self.acts = (
            self.land,
            self.land,
            self.compact,
            self.widen,
            self.repartition,
            self.expire,
            self.erase,
            self.adopt,
            self.rename,
            self.delete_by_position,
        )
        self.lake.topic("orders", NARROW, partitions=3)

    def run(self, steps: int = 9) -> None:
        self.land()
        for _ in range(steps):
            act = self.random.choice(self.acts)
            act()
            if self.random.random() < 0.5:
                self.check(act.__name__)
        self.check("at the end")
        self.check("at the end", full=True)

    def check(self, after: str, *, full: bool = False) -> None:
        self.lake.forgetful = self.random.random() < 0.5
        report = self.lake.report(full=full or self.random.random() < 0.3)
        assert report.passed, f"after {after}: {report}"

    def land(self) -> None:
        for _ in range(self.random.randrange(1, 4)):
            count = self.random.randrange(1, 6)
            rows = [self.row() for _ in range(count)]
            self.lake.log["orders"].append(rows, partition=self.random.randrange(3))
        assert self.lake.round()["orders"].outcome == "landed"

    def row(self) -> dict[str, Any]:
        draw = self.random
        given = {
            "small": draw.choice([None, 0, -1, 32_767]),
            "ratio": draw.choice([None, float("nan"), -0.0, 0.0, 1.5, float("inf")]),
            "price": draw.choice([None, Decimal("0.00"), Decimal("-12345678.90"), Decimal("0.01")]),
            "at": DAY,
            "inner": draw.choice([None, {"a": None, "b": None}, {"a": 1, "b": []}, {"a": 2, "b": ["x", None]}]),
            "note": draw.choice([None, "", "ü"]),
            "flag": draw.choice([None, True]),
        }
        return {name: given[name] for name in self.lake.log["orders"].describe().schema.names}

    def compact(self) -> None:
        self.lake.compact()

    def widen(self) -> None:
        if self.wider:
            self.lake.log["orders"].alter(**self.wider.pop())
            self.land()

    def repartition(self) -> None:
        with self.lake.native() as table, table.update_spec() as update:
            names = {field.name for field in table.spec().fields}
            parts: list[tuple[str, Any, str]] = [
                ("small", IdentityTransform(), "by_small"),
                ("_hw_lsn", BucketTransform(4), "by_lsn"),
                ("at", DayTransform(), "by_day"),
            ]
            part = self.random.choice(parts)
            if part[2] not in names:
                update.add_field(*part)

    def expire(self) -> None:
        self.lake.expire_all_but_head()

    def erase(self) -> None:
        rows = self.lake.rows()
        if rows.num_rows >= 3 and not self.has_adopted:
            place = self.random.randrange(rows.num_rows)
            self.erased += 1
            erase(self.lake, rows, place, number=self.erased)
            self.lake.change(without(place))

    @property
    def has_adopted(self) -> bool:
        """Of a landing that was found there are no columns to make a receipt with."""
        return any(isinstance(each, Landed) and each.adopted for each in self.lake.records())

    def adopt(self) -> None:
        """A lander died after its commit: another found the landing in the table."""
        landings = [each for each in self.lake.records() if isinstance(each, Landed)]
        if self.erased or not landings:
            return
        alter_ledger(
            self.lake,
            lambda landed: msgspec.structs.replace(
                landed,
                digest=None,
                adopted=True,
                offsets=(),
                columns=tuple(msgspec.structs.replace(each, name="", type="") for each in landed.columns),
            ),
            self.random.randrange(len(landings)),
        )

    def rename(self) -> None:
        """The owner gives a column another name, and takes that back before the next landing would halt."""
        for names in (("inner", "inner_before"), ("inner_before", "inner")):
            with self.lake.native() as table, table.update_schema() as update:
                update.rename_column(*names)
            self.check("rename", full=True)

    def delete_by_position(self) -> None:
        """A merge on read takes a row out, and its owner has said so."""
        before = self.lake.rows()
        with self.lake.native() as table:
            if table.spec().fields or before.num_rows < 3 or self.has_adopted:
                return
            add_delete_file(table, 0)
        after = {(row["_hw_partition"], row["_hw_offset"]) for row in self.lake.rows().to_pylist()}
        names = [(row["_hw_partition"], row["_hw_offset"]) for row in before.to_pylist()]
        for gone in [place for place, name in enumerate(names) if name not in after]:
            self.erased += 1
            erase(self.lake, before, gone, number=self.erased)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_an_honest_schedule_gives_no_false_alarm(lake: AuditedLake, seed: int) -> None:
    Schedule(lake, seed).run()
