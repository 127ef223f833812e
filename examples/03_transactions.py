"""A transaction: rows of two topics and the position of an outside source, all of them or none."""

import headwater as hw

SHOP = [
    {"order_id": 1, "paid": 9.5, "parcel": "P-77"},
    {"order_id": 2, "paid": 120.0, "parcel": "P-78"},
]  # stands for a database whose rows are numbered by their place


def rows_in(topic: hw.Topic) -> str:
    count = topic.read().to_arrow().num_rows
    return f"{count} row" if count == 1 else f"{count} rows"


with hw.open("data") as log:
    payments = log.topic("payments", schema={"order_id": int, "paid": float})
    shipments = log.topic("shipments", schema={"order_id": int, "parcel": str})

    source = log.source_position("shop-database")
    taken = source.position["orders"] if source else 0
    print(f"taken in before: {taken} orders")
    for number, order in enumerate(SHOP[taken:], start=taken + 1):
        with log.transaction() as tx:
            tx.append("payments", {"order_id": order["order_id"], "paid": order["paid"]})
            tx.append("shipments", {"order_id": order["order_id"], "parcel": order["parcel"]})
            tx.set_source("shop-database", {"orders": number})
    print(f"payments: {rows_in(payments)}, shipments: {rows_in(shipments)}")

    try:
        with log.transaction() as tx:
            tx.append("payments", {"order_id": 3, "paid": 17.0})
            raise RuntimeError("the parcel service did not answer")
    except RuntimeError as error:
        print(f"aborted ({error}); payments: {rows_in(payments)}")
