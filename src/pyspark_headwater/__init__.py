"""Where Spark finds `format("headwater")`: it looks through the modules named `pyspark_*` for a DefaultSource.

NOT HERE The source itself: headwater.spark.source.
"""

from __future__ import annotations

from headwater.spark.source import HeadwaterSource


class DefaultSource(HeadwaterSource):
    """The source under the name that Spark looks for."""


__all__ = ["DefaultSource"]
