"""Restoring: a table as it was at a cut, an LSN or a time, as a new table; read back and compared."""

from datetime import UTC, datetime

import headwater as hw

with hw.open("data_13") as log:
    prices = log.topic("prices", schema={"item": str, "price": float}, table="shop.prices")
    begin = prices.scan().count()
    prices.append([{"item": "pen", "price": 1.5}, {"item": "ink", "price": 4.0}])
    log.land()
    before = datetime.now(UTC)

    prices.append([{"item": "pen", "price": -1.0}])  # a bad feed
    log.land()

    name = f"shop.prices_{before:%H%M%S%f}"
    report = log.restore("prices", as_of=before, to=name)  # a cut or hw.Lsn(n) as well; with spark=, by Spark
    report.raise_for_status()
    print(f"{report.rows} rows in the restored table, {prices.scan().count()} in the topic")
    assert report.rows == begin + 2
