"""Each record of the ledger in one line, and as plain values."""

from __future__ import annotations

import json

import msgspec
import pytest

from headwater.lake.ledger_describe import record_content, record_name, record_text
from headwater.lake.ledger_records import CheckedCatalog, Kept, LedgerRecord
from headwater.lake.work import Block, Column, Digest
from tests.unit.lake.ledger_entries import (
    audited,
    begun,
    decided,
    ended,
    erased,
    halted,
    intended,
    landed,
    merged,
    restored,
    verified,
)

LINES: list[tuple[LedgerRecord, str]] = [
    (begun("6b5b", epoch=3), "begun sales.orders: epoch 3, commit 6b5b"),
    (intended("6b5b", 10, 20), "intended sales.orders: LSN 11 to 20, 1 file, on an empty table"),
    (landed(10, 20, rows=2000), f"landed sales.orders: LSN 11 to 20, 2,000 rows, digest {'0' * 16}, snapshot 20"),
    (
        landed(10, 20, adopted=True),
        f"landed sales.orders: LSN 11 to 20, 1 row, digest {'0' * 16}, snapshot 20, found in the table",
    ),
    (verified(20), "verified sales.orders: up to LSN 20, snapshot 20, by read-back"),
    (halted("gap", "it was rolled back"), "halted sales.orders: gap: it was rolled back"),
    (ended("6b5b", "lost"), "ended sales.orders: lost, commit 6b5b"),
    (decided(10, before=20), "decided sales.orders: after-rollback, LSN 10 in place of 20"),
    (
        CheckedCatalog(catalog="headwater", passed=True, properties={"raced": True}, at_us=1),
        "checked-catalog headwater: passed",
    ),
    (
        CheckedCatalog(catalog="headwater", passed=False, properties={"raced": False, "late": True}, at_us=1),
        "checked-catalog headwater: failed: raced",
    ),
    (merged(20), "merged sales.orders: LSN 1 to 20, snapshot 1"),
    (
        Kept(table="sales.orders", what="compacted", detail="12 files", at_us=1),
        "kept sales.orders: compacted, 12 files",
    ),
    (Kept(table="sales.orders", what="expired", at_us=1), "kept sales.orders: expired"),
    (erased(9, rows=2), "erased sales.orders: 2 rows up to LSN 9, from nothing yet: asked for"),
    (
        erased(9, rows=1, done=("table", "log")),
        "erased sales.orders: 1 row up to LSN 9, from table, log: asked for",
    ),
    (audited(20, rows=7), "audited sales.orders: PASS, 7 rows up to LSN 20"),
    (audited(20, rows=7, differences=1), "audited sales.orders: FAIL, 1 difference, 7 rows up to LSN 20"),
    (restored(20, rows=3), "restored sales.orders: taken over from log 0a0b, 3 rows"),
]


@pytest.mark.parametrize(("record", "line"), LINES, ids=[line for _, line in LINES])
def test_a_record_is_told_in_one_line(record: LedgerRecord, line: str) -> None:
    assert record_text(record) == line


def test_every_record_has_a_line() -> None:
    assert {type(record) for record, _ in LINES} == set(LedgerRecord.__args__)


def test_an_intent_on_a_table_with_snapshots_names_the_one_it_stands_on() -> None:
    assert record_text(msgspec.structs.replace(intended("6b5b"), base=7)).endswith("1 file, on snapshot 7")


def test_a_record_is_plain_values_by_name() -> None:
    record = landed(0, 10, digest=Digest((Block(0, 1, 5, 9),)), columns=(Column(1, "id", "long"),))

    content = record_content(record)

    assert content["is"] == record_name(record) == "landed"
    assert json.loads(json.dumps(content))["digest"] == [[[0, 1, 5, 9]]]
    assert json.loads(json.dumps(content))["columns"] == [[1, "id", "long"]]
