"""A consumer group: members share the partitions, and go on where the group had come to."""

import headwater as hw


def read_all(log: hw.Log) -> None:
    """What the group has not read yet, committed batch by batch."""
    rows = 0
    with log.consumer("clicks", group="reports", timeout_s=0.2) as consumer:
        for batch in consumer:
            rows += batch.num_rows  # the work: what is done here is done again if the program dies before the commit
            consumer.commit()
        print(f"{rows} new, lag {consumer.total_lag()}")


with hw.open("data") as log:
    clicks = log.topic("clicks", schema={"user": str, "page": str}, key="user", partitions=4)
    clicks.append([{"user": f"user-{number % 7}", "page": f"/p/{number}"} for number in range(100)])
    read_all(log)

    clicks.append({"user": "user-1", "page": "/new"})
    read_all(log)  # one: the group has committed the others

    for group in log.groups():
        print(f"{group.group} has read {sum(group.committed.values())} rows of {group.topic}")
