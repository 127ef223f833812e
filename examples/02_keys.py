"""Keyed topics: the latest row of each key, deletes, and compaction."""

import headwater as hw

with hw.open("data") as log:
    customers = log.topic("customers", schema={"id": int, "city": str | None}, key="id", cleanup="compact")
    customers.upsert([{"id": 1, "city": "Basel"}, {"id": 2, "city": "Bern"}])
    customers.upsert({"id": 1, "city": "Chur"})
    customers.delete(2)

    latest: dict[int, str | None] = {}
    for row in customers.read().to_pylist():
        if row["_hw_op"] == "D":
            latest.pop(row["id"], None)
        else:
            latest[row["id"]] = row["city"]
    print(latest)
    print(customers.compact())
