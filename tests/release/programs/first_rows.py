"""The first ten lines that anybody writes, and the command beside them."""

from __future__ import annotations

import subprocess
import sys

import headwater as hw

with hw.open("data") as log:
    orders = log.topic("orders", schema={"order_id": int, "amount": float})
    orders.append([{"order_id": 1, "amount": 9.5}])
    with log.transaction() as tx:
        tx.append("orders", [{"order_id": 2, "amount": 1.5}])
    assert [row["order_id"] for row in orders.read().to_pylist()] == [1, 2]

said = subprocess.run(["headwater", "--version"], capture_output=True, text=True, check=True).stdout
assert said.startswith(f"headwater {hw.__version__}, log format "), said
shown = subprocess.run(["headwater", "read", "orders", "--data", "data"], capture_output=True, text=True, check=True)
assert shown.stdout.count("order_id") == 2, shown.stdout
print(f"{said.splitlines()[0]}, Python {sys.version.split()[0]}")
