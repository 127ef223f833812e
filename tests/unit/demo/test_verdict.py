"""The demo's verdict finds what it must: real tables, really changed, read by plain pyiceberg."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from headwater.demo.acknowledged import Account, Acknowledged
from headwater.demo.rows import (
    CHANGES_TABLE,
    KEYS,
    ORDERS_TABLE,
    account_columns,
    deleted_keys,
    deletes,
    numbers_of,
    order_columns,
)
from headwater.demo.verdict import Found, judge_changes, judge_orders
from headwater.demo.wreckers import Wreckers

REQUESTS = 6


def _account(writer: int, how: str) -> Account:
    account = Account(writer, how)
    for request in range(REQUESTS):
        account.take({"sending": request})
        account.take({"acknowledged": request})
    return account


@pytest.fixture
def properties(tmp_path: Path) -> dict[str, str]:
    return {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/lake"}


@pytest.fixture
def catalog(properties: dict[str, str]) -> Iterator[SqlCatalog]:
    catalog = SqlCatalog("headwater", **properties)
    catalog.create_namespace("shop")
    yield catalog
    catalog.close()


@pytest.fixture
def known() -> Acknowledged:
    return Acknowledged([_account(1, "producer"), _account(4, "keyed")])


@pytest.fixture
def orders(catalog: SqlCatalog) -> Table:
    rows = pa.table(order_columns(number for request in range(REQUESTS) for number in numbers_of(1, request)))
    table = catalog.create_table(ORDERS_TABLE, rows.schema)
    table.append(rows)
    return table


@pytest.fixture
def changes(catalog: SqlCatalog) -> Table:
    schema = pa.schema(
        [("account", pa.int64()), ("change", pa.int64()), ("balance", pa.int64()), ("_hw_op", pa.string())]
    )
    table = catalog.create_table(CHANGES_TABLE, schema)
    for request in range(REQUESTS):
        if deletes(request):
            keys = deleted_keys(request)
            gone = {"account": keys, "change": [None] * len(keys), "balance": [None] * len(keys)}
            table.append(pa.table({**gone, "_hw_op": ["D"] * len(keys)}, schema=schema))
        else:
            numbers = numbers_of(4, request)
            table.append(pa.table({**account_columns(numbers), "_hw_op": ["U"] * len(numbers)}, schema=schema))
    return table


def _judged(orders: Table, known: Acknowledged) -> Found:
    return judge_orders(ORDERS_TABLE, orders.refresh().scan().to_arrow(), known)


def _only(found: Found) -> tuple[int, int, int, int]:
    return len(found.missing), len(found.doubled), len(found.altered), len(found.never_sent)


FIRST = numbers_of(1, 0)[0]


def test_a_table_with_every_row_once_passes(orders: Table, changes: Table, known: Acknowledged) -> None:
    found = [_judged(orders, known), judge_changes(CHANGES_TABLE, changes.scan().to_arrow(), known)]

    assert all(each.passed and each.rows == each.expected for each in found), found
    assert not [told for each in found for told in each.told()]


def test_a_missing_row_is_found(orders: Table, known: Acknowledged) -> None:
    orders.delete(f"id == {FIRST}")

    found = _judged(orders, known)

    assert _only(found) == (1, 0, 0, 0)
    assert found.told() == [f"shop.orders: 1 lost: {FIRST:,}"]


def test_a_doubled_row_is_found(orders: Table, known: Acknowledged) -> None:
    orders.append(orders.scan(row_filter=f"id == {FIRST}").to_arrow())

    assert _only(_judged(orders, known)) == (0, 1, 0, 0)


@pytest.mark.parametrize(("column", "value"), [("amount", pa.array([0.5])), ("note", pa.array(["another"]))])
def test_an_altered_row_is_found(column: str, value: pa.Array, orders: Table, known: Acknowledged) -> None:
    row = orders.scan(row_filter=f"id == {FIRST}").to_arrow()
    changed = row.set_column(row.schema.get_field_index(column), column, value)
    orders.overwrite(changed, overwrite_filter=f"id == {FIRST}")

    assert _only(_judged(orders, known)) == (0, 0, 1, 0)


def test_a_row_that_was_never_sent_is_found(orders: Table, known: Acknowledged) -> None:
    orders.append(pa.table(order_columns([numbers_of(1, REQUESTS)[0]])))

    assert _only(_judged(orders, known)) == (0, 0, 0, 1)


def test_a_request_that_nobody_heard_of_may_be_there_once_and_not_twice(orders: Table, known: Acknowledged) -> None:
    known.accounts[0].take({"sending": REQUESTS})
    assert _judged(orders, known).passed

    unsure = pa.table(order_columns(numbers_of(1, REQUESTS)))
    orders.append(unsure)
    assert _judged(orders, known).passed

    orders.append(unsure)
    assert _only(_judged(orders, known))[1] == unsure.num_rows


@pytest.mark.parametrize("number", [numbers_of(4, 0)[0], numbers_of(4, 5)[3]])
def test_a_change_that_is_missing_or_doubled_is_found(number: int, changes: Table, known: Acknowledged) -> None:
    changes.append(changes.scan(row_filter=f"change == {number}").to_arrow())
    assert _only(judge_changes(CHANGES_TABLE, changes.refresh().scan().to_arrow(), known)) == (0, 1, 0, 0)

    changes.delete(f"change == {number}")
    assert _only(judge_changes(CHANGES_TABLE, changes.refresh().scan().to_arrow(), known)) == (1, 0, 0, 0)


def test_a_deletion_that_is_missing_or_doubled_is_found(changes: Table, known: Acknowledged) -> None:
    key = deleted_keys(4)[0]
    where = f"account == {key} and _hw_op == 'D'"
    changes.append(changes.scan(row_filter=where).to_arrow())
    assert _only(judge_changes(CHANGES_TABLE, changes.refresh().scan().to_arrow(), known)) == (0, 1, 0, 0)

    changes.delete(where)
    assert _only(judge_changes(CHANGES_TABLE, changes.refresh().scan().to_arrow(), known)) == (1, 0, 0, 0)


def test_a_deletion_of_a_key_that_nobody_deleted_is_found(changes: Table, known: Acknowledged) -> None:
    key = next(each for each in range(KEYS) if each not in deleted_keys(4))
    row = changes.scan(row_filter="_hw_op == 'D'").to_arrow().slice(0, 1)
    changes.append(row.set_column(0, "account", pa.array([key], pa.int64())))

    assert _only(judge_changes(CHANGES_TABLE, changes.refresh().scan().to_arrow(), known)) == (0, 1, 0, 0)


# What others do must change no row, or the demo would accuse the product of it ----------------------------------


def test_compaction_and_expiry_by_others_change_no_row(
    properties: dict[str, str], changes: Table, known: Acknowledged
) -> None:
    wreckers = Wreckers(properties)

    before, after = wreckers.compact(CHANGES_TABLE)
    gone = wreckers.expire(CHANGES_TABLE, 1)

    assert (before, after) == (REQUESTS, 1) and gone >= REQUESTS
    assert len(changes.refresh().snapshots()) == 1
    assert judge_changes(CHANGES_TABLE, changes.scan().to_arrow(), known).passed


def test_a_rollback_by_others_goes_to_an_earlier_whole_snapshot(properties: dict[str, str], changes: Table) -> None:
    wreckers = Wreckers(properties)
    wreckers.compact(CHANGES_TABLE)
    whole = changes.refresh().scan().to_arrow().num_rows

    wreckers.roll_back(CHANGES_TABLE, 1)
    assert changes.refresh().scan().to_arrow().num_rows == whole  # before the compaction, with all rows

    wreckers.roll_back(CHANGES_TABLE, 2)
    assert 0 < changes.refresh().scan().to_arrow().num_rows < whole


def test_there_is_nothing_to_go_back_to_where_all_but_the_head_expired(
    properties: dict[str, str], changes: Table
) -> None:
    wreckers = Wreckers(properties)
    wreckers.expire(CHANGES_TABLE, 1)

    assert wreckers.roll_back(CHANGES_TABLE, 3) == 0


def test_damage_by_hand_is_undone_by_setting_the_table_back(
    properties: dict[str, str], orders: Table, known: Acknowledged
) -> None:
    wreckers = Wreckers(properties)

    whole = wreckers.damage(ORDERS_TABLE, "id", FIRST, FIRST + 1)
    assert _only(_judged(orders, known)) == (1, 1, 0, 0)

    wreckers.set_back(ORDERS_TABLE, whole)
    assert _judged(orders, known).passed
