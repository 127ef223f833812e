"""Once, however often it is sent: a producer with sequence numbers, and an idempotency key."""

import headwater as hw

with hw.open("data") as log:
    log.topic("meter", schema={"sensor": str, "value": float})

    producer = log.producer("gateway-7")
    first = producer.append("meter", {"sensor": "a", "value": 20.5})
    again = producer.append("meter", {"sensor": "a", "value": 20.5}, sequence=producer.next_sequence - 1)
    print("the same answer:", again.lsn == first.lsn, "duplicate:", again.duplicate)

    row = {"sensor": "b", "value": 3.0}
    answers = [log["meter"].append(row, idempotency_key="upload-2026-11-15") for _ in range(3)]
    print("duplicates:", [answer.duplicate for answer in answers])

    newer = log.producer("gateway-7")
    try:
        producer.append("meter", {"sensor": "a", "value": 99.0})
    except hw.errors.Fenced as error:
        print(f"fenced: {error}")
    print(newer)
