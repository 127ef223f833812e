"""A shop's log for the pictures: invented rows, and all else real: topics, landings, an audit, groups, a halt.

shop = Shop(directory)
shop.begin()                      topics, first rows, first landings, an audit, and a table that somebody dropped
shop.day(server, seconds)         rows come in through the server, groups read, landings go on
"""

from __future__ import annotations

import math
import random
import time
from pathlib import Path

from pyiceberg.catalog import load_catalog

import headwater as hw
from headwater.settings import LogSettings

ROWS = 4_000
WRITES = 8
SMALL = LogSettings(
    segment_size_bytes_max=512 * 1024, write_body_bytes_max=256 * 1024, deletion_grace_s=0, reserve_bytes=0
)
"""So that the log lets go of what has landed within minutes, and not after gigabytes."""
EVERY_S = 0.25


class Shop:
    def __init__(self, data: Path, seed: int = 7) -> None:
        self.data = data
        self._chance = random.Random(seed)
        self._number = 0

    def begin(self) -> None:
        with hw.open(self.data, settings=hw.Settings(log=SMALL)) as log:
            log.topic(
                "orders", schema={"order_id": int, "amount": float, "city": str}, partitions=8, table="sales.orders"
            )
            log.topic("payments", schema={"order_id": int, "cents": int}, partitions=4, table="sales.payments")
            log.topic("clicks", schema={"page": str, "user": int}, partitions=16, table="web.clicks", retention="2d")
            log.topic(
                "customers",
                schema={"id": int, "name": str, "city": str},
                key="id",
                table="sales.customers",
                partitions=2,
            )
            log.topic("sensor.readings", schema={"sensor": int, "celsius": float}, partitions=4, table="plant.readings")
            log.topic("audit-trail", schema={"who": str, "did": str}, retention="1s")
            for _ in range(4):
                for _ in range(WRITES):
                    self._append(log, ROWS // WRITES)
                log.land()
            log.cleanup()
            log.audit()
            for group, topic in (("billing", "orders"), ("search-index", "customers"), ("fraud", "payments")):
                consumer = log.consumer(topic, group=group)
                consumer.poll(max_rows=ROWS, timeout_s=5)
                consumer.commit()
                consumer.close()
        self._drop("sales.payments")
        with hw.open(self.data) as log:
            self._append(log, 500)
            log.land("payments")

    def day(self, address: str, seconds: float) -> None:
        """Rows through the server, in waves, and a landing now and then."""
        ends = time.monotonic() + seconds
        began = time.monotonic()
        lands = began + 11
        with hw.connect(address, catalog=self._catalog) as log, log.consumer("orders", group="billing") as consumer:
            while time.monotonic() < ends:
                passed = time.monotonic() - began
                self._append(log, int(260 * (1.25 + math.sin(passed / 7)) * (0.8 + 0.4 * self._chance.random())))
                consumer.poll(max_rows=150, timeout_s=0.05)
                consumer.commit()
                if time.monotonic() >= lands:
                    log.land(["orders", "clicks", "customers"])
                    lands = time.monotonic() + 16
                time.sleep(EVERY_S)

    def _append(self, log: hw.Log, rows: int) -> None:
        chance = self._chance
        numbers = range(self._number, self._number + rows)
        self._number += rows
        cities = ("Aarhus", "Bergen", "Cork", "Delft", "Évora")
        log["orders"].append(
            [
                {"order_id": each, "amount": round(chance.lognormvariate(3, 0.8), 2), "city": chance.choice(cities)}
                for each in numbers
            ]
        )
        log["clicks"].append([{"page": f"/{chance.choice(cities)}", "user": each % 997} for each in numbers])
        few = numbers[: max(rows // 8, 1)]
        log["payments"].append([{"order_id": each, "cents": chance.randrange(100, 9_000)} for each in few])
        log["customers"].append(
            [{"id": each % 400, "name": f"customer {each % 400}", "city": chance.choice(cities)} for each in few]
        )
        log["sensor.readings"].append([{"sensor": each % 12, "celsius": 20 + chance.gauss(0, 2)} for each in few])
        log["audit-trail"].append([{"who": "admin", "did": f"changed price {each}"} for each in few[:3]])

    def _drop(self, table: str) -> None:
        """As somebody does who did not ask: the next landing finds a table that has less than it had."""
        load_catalog("headwater", **self._catalog).drop_table(table)

    @property
    def _catalog(self) -> dict[str, str]:
        """What a log in a directory has where nothing is said."""
        data = self.data.absolute()
        return {"type": "sql", "uri": f"sqlite:///{data}/catalog.db", "warehouse": f"file://{data}/lake"}
