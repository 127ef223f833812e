"""Merging a keyed topic's changes into its state table, with Spark.

    merge_topic(spark, "lake", place, topic, ledger, clock, entropy)  ->  TopicMerge

The steps and what they promise are lake/merging.py's; here is the MERGE itself, in a session of our own whose snapshots
carry the mark, and what becomes of it.

PROMISE  Trouble is in the report: a merge that halts, fails or loses a race has changed nothing on main.
         A merge never holds up a landing: it reads the change table as of one snapshot, and writes another table.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from headwater.clock import Clock, Entropy
from headwater.errors import HeadwaterError, InvalidRequest, LandingHalted
from headwater.lake.care import Care, TableUpkeep
from headwater.lake.catalog import CatalogPlace
from headwater.lake.ledger import LakeLedger
from headwater.lake.merging import MergePlan, Merging
from headwater.lake.shape import landing_table
from headwater.lake.state_table import MergeMode
from headwater.lake.tables import CommitRefused, CommitUncertain
from headwater.lake.upkeep import UpkeepSettings
from headwater.metadata.operations import TopicRecord
from headwater.spark.merge_sql import count_statement, merge_statement
from headwater.spark.own_session import mark_snapshots, own_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("headwater.spark")

ATTEMPTS_MAX = 3
"""How often a merge begins anew when another commit came first."""

MergeOutcome = Literal["merged", "nothing", "halted", "failed", "lost"]
"""
merged    the state table holds the changes up to `lsn_to`
nothing   there were no changes to merge
halted    a person is needed: `cause` and `message` say why
failed    it did not work this time, and the state is as it was: the next merge tries again
lost      other commits came first each time: what they did not merge, the next merge does
"""


@dataclass(frozen=True)
class TopicMerge:
    """What a merge did."""

    topic: str
    table: str
    outcome: MergeOutcome
    changes: int = 0
    """Rows of the change table that it took in."""
    lsn_from: int = 0
    lsn_to: int = 0
    snapshot: int | None = None
    seconds: float = 0.0
    forgotten_files: int = 0
    """Files of the change table that went because their rows are merged and past `changes_retention`."""
    cause: str = ""
    message: str = ""

    def __str__(self) -> str:
        if self.outcome == "merged":
            return f"{self.topic}: {self.changes} changes merged, lsn {self.lsn_from + 1}..{self.lsn_to}"
        return f"{self.topic}: {self.outcome}" + (f" ({self.cause or self.message})" if self.message else "")


def merge_topic(
    spark: SparkSession,
    spark_catalog: str,
    place: CatalogPlace,
    topic: TopicRecord,
    ledger: LakeLedger,
    clock: Clock,
    entropy: Entropy,
    mode: MergeMode = "copy-on-write",
    *,
    after_rollback: bool = False,
    settings: UpkeepSettings | None = None,
) -> TopicMerge:
    """Bring the topic's state table up to its change table, then let go of changes past their retention."""
    if not topic.key or topic.table is None:
        raise InvalidRequest(f"{topic.name!r} has no state table: only a keyed topic with a table is merged")
    begun_s = clock.monotonic_s()
    merging = Merging(place.connect, ledger, clock=clock, entropy=entropy)
    forgotten = TableUpkeep(topic.name, landing_table(topic))
    try:
        told = _merged(spark, spark_catalog, merging, topic, mode, after_rollback)
        if told.outcome in {"merged", "nothing"}:
            care = Care(place.connect, ledger, clock=clock, entropy=entropy, settings=settings or UpkeepSettings())
            care.let_go_of_changes(topic, forgotten)
    except LandingHalted as halt:
        told = TopicMerge(topic.name, topic.table, "halted", cause=halt.cause, message=halt.message)
    except HeadwaterError as error:
        told = TopicMerge(topic.name, topic.table, "failed", message=str(error))
    except Exception as error:  # noqa: BLE001  Spark raises what any of its parts raised; main is as it was
        message = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        told = TopicMerge(topic.name, topic.table, "failed", message=message)
    if told.outcome in {"halted", "failed"}:
        logger.warning("merge of %s %s: %s", topic.name, told.outcome, told.message)
    return TopicMerge(
        told.topic,
        told.table,
        told.outcome,
        told.changes,
        told.lsn_from,
        told.lsn_to,
        told.snapshot,
        clock.monotonic_s() - begun_s,
        forgotten.forgotten_files,
        told.cause,
        told.message,
    )


def _merged(
    spark: SparkSession,
    catalog: str,
    merging: Merging,
    topic: TopicRecord,
    mode: MergeMode,
    after_rollback: bool,
) -> TopicMerge:
    table = topic.table or ""
    raced = False
    for _ in range(ATTEMPTS_MAX):
        try:
            plan = merging.begin(topic, mode, after_rollback=after_rollback)
        except (CommitRefused, CommitUncertain):
            raced = True
            continue
        if plan is None:
            # What there was to merge has been merged by whoever came first.
            return TopicMerge(topic.name, table, "lost" if raced else "nothing")
        told = _attempt(spark, catalog, merging, plan, mode)
        if told is not None:
            return told
        raced = True
    return TopicMerge(topic.name, table, "lost", message="other commits came first each time")


def _attempt(
    spark: SparkSession, catalog: str, merging: Merging, plan: MergePlan, mode: MergeMode
) -> TopicMerge | None:
    """One merge; None where another commit came first."""
    with own_session(spark, catalog) as session:
        counted = session.sql(count_statement(plan, catalog)).collect()[0]
        if not counted["changes"]:
            return TopicMerge(plan.topic.name, plan.table, "nothing")
        mark = plan.mark(counted["changes"], counted["newest"])
        mark_snapshots(session, mark.summary())
        try:
            merging.branch(plan, mode)
            trouble = _run(merge_statement(plan, catalog), session, plan)
            snapshot = merging.finish(plan, mark, trouble)
        except (CommitRefused, CommitUncertain):
            snapshot = None
        finally:
            merging.drop(plan)
    if snapshot is None:
        return None
    return TopicMerge(plan.topic.name, plan.table, "merged", mark.rows, mark.lsn_from, mark.lsn_to, snapshot)


def _run(statement: str, session: SparkSession, plan: MergePlan) -> str:
    """Run the MERGE; what it raised, if it did.  The branch says whether its commit was made."""
    try:
        session.sql(statement).collect()
    except Exception as error:  # noqa: BLE001  Spark raises what any of its parts raised; the table decides
        logger.warning("the MERGE into %s raised %s: %s", plan.table, type(error).__name__, str(error)[:500])
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return ""
