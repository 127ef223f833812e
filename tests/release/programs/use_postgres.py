"""`postgres`: the driver is there, and a catalog that does not answer is named."""

from __future__ import annotations

import psycopg2  # type: ignore[import-untyped]

import headwater as hw

POSTGRES = {"type": "sql", "uri": "postgresql+psycopg2://nobody@127.0.0.1:1/none", "warehouse": "tables"}

if __name__ == "__main__":
    with hw.open("postgres", catalog=POSTGRES) as log:
        log.topic("orders", schema={"order_id": int}, table="sales.orders").append([{"order_id": 1}])
        try:
            log.land()
        except hw.errors.Unavailable as error:
            print(error)
        else:
            raise SystemExit("nobody answers there, and it landed")
    print(f"psycopg2 {psycopg2.__version__.split()[0]} asks; a catalog that does not answer is named")
