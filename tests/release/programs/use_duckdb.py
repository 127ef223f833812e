"""`duckdb`: SQL over table and tail."""

from __future__ import annotations

import headwater as hw

if __name__ == "__main__":  # landing starts processes, which import this file
    with hw.open("duckdb") as log:
        orders = log.topic("orders", schema={"order_id": int, "amount": float}, table="sales.orders")
        orders.append([{"order_id": 1, "amount": 1.5}])
        log.land()
        orders.append([{"order_id": 2, "amount": 2.5}])
        rows = log.query("SELECT count(*) AS rows, sum(amount) AS amount FROM orders").to_pylist()
    assert rows == [{"rows": 2, "amount": 4.0}], rows
    print("queried table and tail")
