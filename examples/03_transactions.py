"""A transaction: rows of two topics and the position of an outside source, all of them or none."""

import headwater as hw

with hw.open("data") as log:
    log.topic("payments", schema={"order_id": int, "paid": float})
    log.topic("shipments", schema={"order_id": int, "parcel": str})

    position = log.source_position("shop-database")
    print("the source was taken in up to:", position.position if position else "nothing yet")
    with log.transaction() as tx:
        tx.append("payments", {"order_id": 1, "paid": 9.5})
        tx.append("shipments", {"order_id": 1, "parcel": "P-77"})
        tx.set_source("shop-database", {"file": "binlog.000003", "position": 4711})
    print("committed:", tx.result)

    try:
        with log.transaction() as tx:
            tx.append("payments", {"order_id": 2, "paid": 120.0})
            raise RuntimeError("the parcel service did not answer")
    except RuntimeError as error:
        print(f"aborted ({error}); payments: {log['payments'].read().to_arrow().num_rows} row")
