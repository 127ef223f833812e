"""A small data directory as a user's program leaves it, written by whichever version of Headwater is on the path.

    python write_directory.py DIRECTORY STATE       with an earlier version's sources before all else on PYTHONPATH

It says on stdout, as JSON, what was acknowledged: a test holds a later version to that.  STATE is "closed", or
"killed": as a process leaves the directory that was ended by a signal.  It uses only what every version since topics
came has had, and lands where there is landing.

The tables' places are relative, so that the directory can be opened wherever it is unpacked to.

NOT HERE  any import of this repository but `headwater` itself: an earlier version's tests are not on the path.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import headwater as hw

DATA = "data"
CATALOG = {"type": "sql", "uri": "sqlite:///tables.db", "warehouse": "tables"}
ORDERS_TABLE, CUSTOMERS_TABLE = "sales.orders", "crm.customers"


def write(directory: Path, *, killed: bool) -> dict[str, Any]:
    """The directory; what was acknowledged."""
    os.chdir(directory)
    quiet = {"reserve_bytes": 0}
    settings: Any = hw.Settings(log=hw.LogSettings(**quiet), journal=hw.LogSettings(**quiet))
    lands = hasattr(hw.Log, "land")
    places: dict[str, Any] = {"catalog": CATALOG} if lands else {}
    log = hw.open(DATA, settings=settings, **places)
    told = _topics(log, lands=lands)
    told["lands"] = lands
    if killed:
        # Nothing is said to the log: its files are left as they are.
        sys.stdout.write(json.dumps(told))
        sys.stdout.flush()
        os._exit(0)
    log.close()
    return told


def _topics(log: Any, *, lands: bool) -> dict[str, Any]:
    table = {"table": ORDERS_TABLE} if lands else {}
    keyed_table = {"table": CUSTOMERS_TABLE} if lands else {}
    orders = log.topic("orders", schema={"order_id": int, "amount": float}, partitions=2, **table)
    customers = log.topic("customers", schema={"id": int, "name": str | None}, key="id", **keyed_table)
    events = log.topic("events", schema=hw.BYTES)

    orders.append([{"order_id": number, "amount": number / 2} for number in range(6)])
    with log.transaction(producer=log.producer("till")) as tx:
        tx.append("orders", [{"order_id": 6, "amount": 6.5}])
        tx.append("customers", [{"id": 1, "name": "Ada"}, {"id": 2, "name": "Bo"}])
        tx.set_source("pg", {"lsn": 17})
    customers.upsert([{"id": 1, "name": "Ada L."}, {"id": 3, "name": None}])
    customers.delete([{"id": 2}])
    events.append([b"\x00\x01", b"plain"])
    orders.append([{"order_id": "no number", "amount": 1.0}, {"order_id": 7, "amount": 7.0}], rejected="keep")
    landed = _land(log) if lands else 0
    log.checkpoint()

    # What follows is in no checkpoint: it is replayed.
    orders.alter(schema={"order_id": int, "amount": float, "note": str | None})
    orders.append([{"order_id": 8, "amount": 8.0, "note": "a column more"}])
    polled = 0
    with log.consumer("orders", group="billing") as consumer:
        while (some := consumer.poll()) is not None:
            polled += some.batch.num_rows
        consumer.commit()
    orders.append([{"order_id": 9, "amount": 9.0, "note": "not polled"}])
    told = {
        "orders": _rows(orders),
        "customers": _rows(customers),
        "events": [row["value"].hex() for row in events.read().to_pylist()],
        "rejected": log["orders.rejected"].read().to_arrow().num_rows,
        "polled": polled,
        "landed": landed,
        "source": log.source_position("pg").position,
    }
    return told


def _land(log: Any) -> int:
    report = log.land()
    assert not report.halted and not report.failed, report
    return sum(each.rows for each in report)


def _rows(topic: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = topic.read().to_pylist()
    return rows


if __name__ == "__main__":
    print(json.dumps(write(Path(sys.argv[1]), killed=sys.argv[2] == "killed")))
