"""`lake`: rows land in an Iceberg table, and every one of them is there."""

from __future__ import annotations

import headwater as hw

if __name__ == "__main__":  # landing starts processes, which import this file
    with hw.open("lake") as log:
        orders = log.topic("orders", schema={"order_id": int, "amount": float}, table="sales.orders")
        orders.append([{"order_id": number, "amount": number / 2} for number in range(1_000)])
        landed = log.land()
        log.audit(full=True).raise_for_status()
        orders.append([{"order_id": 1_000, "amount": 0.0}])
        assert orders.scan(where="order_id >= 998").to_arrow().num_rows == 3
    print(f"landed {landed.rows} rows, and audited them")
