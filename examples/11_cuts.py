"""A cut over two topics: the same rows later, and no order without its items."""

import headwater as hw

with hw.open("data_11") as log:
    orders = log.topic("orders", schema={"order_id": int, "amount": float}, table="shop.orders")
    items = log.topic("items", schema={"order_id": int, "what": str}, table="shop.items")

    def sell(order_id: int) -> None:
        with log.transaction() as tx:
            tx.append("orders", {"order_id": order_id, "amount": 9.5})
            tx.append("items", [{"order_id": order_id, "what": what} for what in ("pen", "ink")])

    begin = orders.scan().count()
    sell(begin)
    log.land("orders")  # the items are still in the log alone: a cut does not mind
    sell(begin + 1)
    token = str(log.cut("orders", "items"))  # a small text, to be kept beside a report or a model

    sell(begin + 2)
    log.land()
    print(f"now {orders.scan().count()} orders, at the cut {orders.scan(as_of=token).count()}")
    assert orders.scan(as_of=token).count() == begin + 2
    assert items.scan(as_of=token).count() == 2 * (begin + 2)
    of_items = set(items.scan(["order_id"], as_of=token).to_arrow()["order_id"].to_pylist())
    assert of_items == set(orders.scan(["order_id"], as_of=token).to_arrow()["order_id"].to_pylist())
    print(f"{token[:40]}... is {len(token)} characters")
