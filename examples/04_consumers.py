"""A consumer group: members share the partitions, and go on where the group had come to."""

import headwater as hw

with hw.open("data") as log:
    clicks = log.topic("clicks", schema={"user": str, "page": str}, key="user", partitions=4)
    clicks.append([{"user": f"user-{number % 7}", "page": f"/p/{number}"} for number in range(100)])

    with log.consumer("clicks", group="reports", timeout_s=0.2) as consumer:
        rows = 0
        for batch in consumer:
            rows += batch.num_rows
            consumer.commit()
        print(f"{rows} rows read, lag {consumer.total_lag()}")

    clicks.append({"user": "user-1", "page": "/new"})
    with log.consumer("clicks", group="reports", timeout_s=0.2) as consumer:
        print("and one more:", [batch.to_pylist() for batch in consumer])
