"""A program on a cluster that shares no disk with the log: it lands, audits and reads through a server.

    python tests/e2e_lake/served_driver.py ADDRESS TOKEN_FILE CA_FILE CATALOG SETTINGS

CATALOG and SETTINGS are JSON: pyiceberg's properties, and a session's settings.  The last line that it prints is JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import headwater as hw
from headwater.errors import HeadwaterError
from headwater.settings import KIB, LandingSettings


def main() -> None:
    server, token_file, ca_file = sys.argv[1:4]
    catalog, settings = json.loads(sys.argv[4]), json.loads(sys.argv[5])
    from pyspark.sql import SparkSession

    address = f"{server}?token_file={token_file}&ca_file={ca_file}"
    landing = hw.Settings(landing=LandingSettings(item_bytes=64 * KIB))
    with hw.connect(address, catalog=catalog, settings=landing) as log:
        builder = SparkSession.builder.appName("headwater-served")
        for name, value in {**log.spark_config(), **settings}.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        told: dict[str, Any] = {}
        landed = log.land("orders", spark=spark)
        told["landed"] = {"outcome": landed["orders"].outcome, "rows": landed["orders"].rows}
        told["messages"] = [each.message for each in landed.topics if each.message]
        log["orders"].append([{"id": 1_000_000 + each, "amount": 1.5} for each in range(50)])
        audited = log.audit("orders", spark=spark)
        told["audit"] = {"passed": audited.passed, "rows": audited.topics[0].rows, "text": str(audited)}
        with log["orders"].scan(where="amount = 1.5") as scan:
            told["scanned"] = scan.count()
        with log["orders"].scan() as scan:
            told["to_spark"] = scan.to_spark(spark).count()

        def source(topic: str, **options: str) -> Any:
            reader = spark.read.format("headwater").option("uri", server).option("topic", topic)
            reader = reader.option("tokenFile", token_file).option("caFile", ca_file)
            for name, value in options.items():
                reader = reader.option(name, value)
            return reader.load()

        rows = source("orders", systemColumns="true", minPartitions="4")
        told["log"] = {"rows": rows.count(), "partitions": rows.rdd.getNumPartitions()}
        told["ids"] = source("orders").selectExpr("sum(id)").first()[0]
        told["view"] = source("orders", read="view", catalog=json.dumps(catalog)).count()
        told["stream"] = streamed(spark, server, token_file, ca_file)
        told["others"] = refused(lambda: source("secrets").count())
        told["lake"] = refused(lambda: log.land("secrets", spark=spark))
        plan = rows._jdf.queryExecution().toString() + str(spark.sparkContext.getConf().getAll())
    spark.stop()
    with open(token_file, encoding="utf-8") as file:
        told["token_shown"] = file.read().strip() in plan
    print(json.dumps(told))


def streamed(spark: Any, server: str, token_file: str, ca_file: str) -> int:
    reader = spark.readStream.format("headwater").option("uri", server).option("topic", "orders")
    rows = reader.option("tokenFile", token_file).option("caFile", ca_file).load()
    query = rows.writeStream.format("memory").queryName("seen").trigger(availableNow=True).start()
    try:
        query.awaitTermination(240)
        return int(spark.table("seen").count())
    finally:
        query.stop()


def refused(ask: Any) -> str:
    try:
        ask()
    except HeadwaterError as error:
        return f"{type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001  Spark wraps what a data source raises in classes of its own
        return str(error)[:2000]
    return ""


if __name__ == "__main__":
    main()
