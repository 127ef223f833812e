"""An open log and a session of Spark: land, merge and maintain as a user calls them."""

from __future__ import annotations

from pathlib import Path

import pytest

import headwater as hw
from headwater.errors import InvalidRequest
from tests.lake_spark.sessions import PYSPARK_SOCKETS, local_spark

pytestmark = PYSPARK_SOCKETS


def test_a_log_lands_merges_and_is_maintained_with_the_session_that_it_has_said(tmp_path: Path) -> None:
    with hw.open(tmp_path) as log:
        orders = log.topic("orders", {"id": int, "amount": float}, table="sales.orders", partition_by="bucket(2, id)")
        customers = log.topic("customers", {"id": int, "name": str}, key="id", table="crm.customers")
        orders.append([{"id": number, "amount": 0.5} for number in range(100)])
        customers.upsert([{"id": 1, "name": "Ada"}, {"id": 2, "name": "Grace"}])
        customers.upsert([{"id": 1, "name": "Ada L."}])
        customers.delete(2)

        # Landing needs nothing of Iceberg in the session; merging and upkeep do, and say what they lack.
        bare = local_spark().newSession()
        assert [(each.topic, each.outcome, each.rows, each.verified) for each in log.land(spark=bare)] == [
            ("customers", "landed", 4, True),
            ("orders", "landed", 100, True),
        ]
        for act in (log.merge, log.maintain):
            with pytest.raises(InvalidRequest, match=r"spark\.sql\.catalog\.headwater"):
                act(spark=bare)
        with pytest.raises(InvalidRequest, match="a merge is made by Spark"):
            log.merge(spark=None)

        spark = local_spark().newSession()
        for name, value in log.spark_config().items():
            if name.startswith("spark.sql.catalog."):
                spark.conf.set(name, value)
        (merged,) = log.merge(spark=spark)
        assert (merged.topic, merged.outcome, merged.changes) == ("customers", "merged", 4)
        assert spark.sql("SELECT id, name FROM headwater.crm.customers").collect() == [(1, "Ada L.")]
        assert spark.sql("SELECT count(*), sum(amount) FROM headwater.sales.orders").collect() == [(100, 50.0)]

        kept = log.maintain(spark=spark)
        assert [each.table for each in kept] == ["crm.customers_changes", "crm.customers", "sales.orders"]
        assert not kept.halted and repr(kept) == "Maintained(nothing to do)"
        assert [each.table for each in log.maintain("orders", spark=spark)] == ["sales.orders"]
        assert log.merge(["customers"], spark=spark)[0].outcome == "nothing"
        assert log.status().landing[0].merged_lsn == log.status().durable_lsn
