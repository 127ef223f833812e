"""First rows: a topic, an append that is durable when it returns, and reading them back."""

from dataclasses import dataclass

import headwater as hw


@dataclass
class Order:
    order_id: int
    amount: float
    note: str | None = None


with hw.open("data") as log:
    orders = log.topic("orders", schema=Order)
    done = orders.append([{"order_id": 1, "amount": 9.5}, {"order_id": 2, "amount": 120.0, "note": "gift"}])
    print(f"{done.rows} rows are durable, at LSN {done.lsn}")
    orders.append(Order(3, 42.0))
    for row in orders.read().to_pylist():
        print(row)
