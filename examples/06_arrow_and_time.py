"""Arrow in and out: batches, columns, times, and following what comes."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa

import headwater as hw

with hw.open("data") as log:
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("station", pa.string()), ("celsius", pa.float64())])
    weather = log.topic("weather", schema=schema, partitions=2, time="at")
    now = datetime.now(UTC)
    batch = pa.RecordBatch.from_pydict(
        {"at": [now, now + timedelta(hours=1)], "station": ["Chur", "Sion"], "celsius": [3.5, 7.25]}, schema=schema
    )
    weather.append(batch)
    since = datetime.now(UTC)
    weather.append({"at": now, "station": "Davos", "celsius": -4.0})

    print(weather.read(columns=["station", "celsius"]).to_arrow())
    print("since a moment ago:", weather.read(start=since, columns=["station"]).to_pylist())
    print("where they are:", weather.read(start=hw.Lsn(1), limit=1, system_columns=True).to_pylist()[0]["_hw_offset"])
    for arrived in weather.read(start="latest", follow=True, timeout_s=0.1):
        print("arrived:", arrived.num_rows)
