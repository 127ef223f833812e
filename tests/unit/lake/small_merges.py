"""A keyed topic of a SmallLake, merged without Spark.

The MERGE itself is Spark's.  What stands for it is a commit of pyiceberg's into the branch of the plan: the changes
between its two LSNs, which must be upserts of new keys, are appended in one snapshot that has the mark.
"""

from __future__ import annotations

from random import Random

from headwater.lake.merging import Merging
from tests.unit.lake.small_lakes import SmallLake


def merge_new_keys(lake: SmallLake, name: str) -> None:
    """Bring the state table of a topic up to its changes."""
    merging = Merging(lake.place.connect, lake.ledger, clock=lake.clock, entropy=Random(5).randbytes)
    plan = merging.begin(lake.record(name), "copy-on-write", after_rollback=False)
    assert plan is not None
    merging.branch(plan, "copy-on-write")
    with lake.native(f"{name}_changes") as changes:
        between = f"_hw_lsn > {plan.lsn_from} and _hw_lsn <= {plan.lsn_to}"
        rows = changes.scan(between, snapshot_id=plan.changes_snapshot).to_arrow()
    assert set(rows["_hw_op"].to_pylist()) == {"U"}
    mark = plan.mark(rows.num_rows, max(rows["_hw_lsn"].to_pylist()))
    with lake.native(name) as state:
        state.append(rows.select(plan.columns), snapshot_properties=mark.summary(), branch=plan.branch)
    assert merging.finish(plan, mark) is not None
