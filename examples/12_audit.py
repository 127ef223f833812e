"""An audit: somebody changes a table by hand, and the rows are named, by partition and offset."""

from pyiceberg.catalog.sql import SqlCatalog

import headwater as hw

with hw.open("data_12") as log:
    orders = log.topic("orders", schema={"order_id": int, "amount": float}, table="sales.orders")
    first = orders.offsets()[0].next
    orders.append([{"order_id": first + n, "amount": 9.5} for n in range(100)])
    log.land()
    print(log.audit())

    # The owner of the table, in whatever reads and writes Iceberg.
    place = log.status().directory
    catalog = SqlCatalog("headwater", uri=f"sqlite:///{place}/catalog.db", warehouse=f"{place}/lake")
    table = catalog.load_table("sales.orders")
    before = table.current_snapshot()
    assert before is not None
    table.delete(f"order_id = {first + 42}")
    table.append(table.scan(row_filter=f"order_id = {first + 7}").to_arrow())

    report = log.audit()  # reads only what has changed since the last one that passed
    print(report)
    [partition] = report["orders"].partitions
    assert partition.missing.ranges == ((first + 42, first + 42),)
    assert partition.doubled.ranges == ((first + 7, first + 7),)

    table.refresh().manage_snapshots().rollback_to_snapshot(before.snapshot_id).commit()
    log.audit().raise_for_status()
    print("set back, and whole again")
