"""Landing: rows of a topic go into its Iceberg table, each once; here with a catalog in the data directory itself."""

from pyiceberg.catalog.sql import SqlCatalog

import headwater as hw

with hw.open("data_09") as log:
    orders = log.topic("orders", schema={"order_id": int, "amount": float}, table="sales.orders")
    first = orders.offsets()[0].next
    orders.append([{"order_id": number, "amount": 9.5} for number in range(first, first + 100)])

    report = log.land()  # a first landing checks the catalog before it trusts it
    print(report)
    assert report["orders"].verified  # read back, and the same: the log may forget it
    assert log.land().rows == 0  # again is nothing: the table says how far it has come

    # Anything that reads Iceberg reads the table; `_hw_*` says where a row came from.
    place = log.status().directory
    catalog = SqlCatalog("headwater", uri=f"sqlite:///{place}/catalog.db", warehouse=f"{place}/lake")
    rows = catalog.load_table("sales.orders").scan(selected_fields=("order_id", "_hw_offset")).to_arrow()
    numbers = sorted(rows["order_id"].to_pylist())
    assert numbers == list(range(first + 100)), "each once"
    print(f"{len(numbers)} orders in sales.orders, each once")
