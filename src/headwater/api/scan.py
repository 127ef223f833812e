"""A scan as a user has it in hand: of the lake, and for Spark too."""

from __future__ import annotations

from typing import Any

from headwater.lake.scan import Scan as LakeScan


class Scan(LakeScan):
    """Rows of a topic at a cut, table and tail as one: `to_arrow()`, `to_pandas()`, `to_polars()`, `to_pylist()`,
    `to_duckdb()`, `to_spark(spark)`, `count()`, or iterate over it for batches."""

    def to_spark(self, spark: Any) -> Any:
        """A DataFrame of this Spark session: the table's part is read by Iceberg, at the cut's snapshot."""
        from headwater.spark.scan import to_spark

        return to_spark(self, spark)
