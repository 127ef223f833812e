"""A program as a user types it: `mypy --strict` must find nothing to say."""

from __future__ import annotations

from dataclasses import dataclass

import headwater as hw


@dataclass
class Order:
    order_id: int
    amount: float


def total(log: hw.Log) -> float:
    rows: hw.Rows = log["orders"].read()
    amounts: list[float] = [row["amount"] for row in rows.to_pylist()]
    return sum(amounts)


def main() -> None:
    with hw.open("data") as log:
        orders: hw.Topic = log.topic("orders", schema=Order, partitions=2)
        appended: hw.Appended = orders.append([Order(1, 9.5)])
        lsn: int = appended.lsn
        with log.transaction() as tx:
            tx.append("orders", [{"order_id": 2, "amount": 1.5}])
        try:
            log["nothing"]
        except hw.errors.UnknownTopic as error:
            print(error.facts, lsn)
        print(total(log))


if __name__ == "__main__":
    main()
