"""Merging and keeping the tables of an open log: which topics, with which session.

    merge_tables    keyed topics' changes into their state tables (merge.py)
    keep_tables     the tables of all topics (maintain.py; without Spark what needs none)

PROMISE  A session that does not know the catalog is refused before anything is done, and what it lacks is named.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headwater.errors import InvalidRequest
from headwater.lake.landing import Lake
from headwater.lake.maintenance import MaintenanceReport
from headwater.lake.source import OpenLog
from headwater.lake.state_table import MergeMode
from headwater.lake.upkeep import UpkeepSettings
from headwater.metadata.operations import TopicRecord
from headwater.spark.maintain import maintain
from headwater.spark.merge import TopicMerge, merge_topic
from headwater.spark.session import check_session


def merge_tables(
    spark: Any, lake: Lake, topics: Iterable[TopicRecord], *, mode: MergeMode, after_rollback: str | Iterable[str]
) -> tuple[TopicMerge, ...]:
    """One merge for each keyed topic among these."""
    if spark is None:
        raise InvalidRequest("a merge is made by Spark: give a session, spark=")
    catalog = check_session(spark, lake.place, lake.spark_catalog)
    decided = {after_rollback} if isinstance(after_rollback, str) else set(after_rollback)
    return tuple(
        merge_topic(
            spark,
            catalog,
            lake.place,
            topic,
            lake.ledger,
            lake.clock,
            lake.entropy,
            mode,
            after_rollback=topic.name in decided,
        )
        for topic in topics
        if topic.key
    )


def keep_tables(
    spark: Any, lake: Lake, log: OpenLog, topics: Iterable[TopicRecord], settings: UpkeepSettings
) -> MaintenanceReport:
    """Compaction if there is a session, and all else."""
    catalog = check_session(spark, lake.place, lake.spark_catalog) if spark is not None else ""
    return maintain(
        spark, catalog, lake.place, topics, lake.ledger, lake.clock, lake.entropy, settings, pinned=log.pinned
    )
