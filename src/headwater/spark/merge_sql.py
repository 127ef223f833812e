"""The MERGE of a keyed topic's changes into its state, as SQL.  Pure.

The source is cut to one row a key, the latest by (`_hw_lsn`, `_hw_offset`): rows of one frame share an LSN, and a MERGE
whose source has a key twice is refused.  There is always a WHEN MATCHED clause: two MERGEs that only insert do not see
each other as a conflict.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.lake.merging import MergePlan
from headwater.spark.session import catalog_table


def quoted(name: str) -> str:
    """A column, whatever characters are in its name."""
    return "`" + name.replace("`", "``") + "`"


def count_statement(plan: MergePlan, catalog: str) -> str:
    """How many changes there are, and the newest one's LSN."""
    return f"SELECT count(*) AS changes, max(_hw_lsn) AS newest FROM {_changes(plan, catalog)}"


def merge_statement(plan: MergePlan, catalog: str) -> str:
    key = [quoted(name) for name in plan.topic.key]
    columns = [quoted(name) for name in plan.columns]
    newer = (
        "(s._hw_lsn > coalesce(t._hw_lsn, -1) OR (s._hw_lsn = t._hw_lsn AND s._hw_offset > coalesce(t._hw_offset, -1)))"
    )
    latest = f"row_number() OVER (PARTITION BY {', '.join(key)} ORDER BY _hw_lsn DESC, _hw_offset DESC)"
    return f"""
        MERGE INTO {catalog_table(catalog, f"{plan.table}.branch_{plan.branch}")} AS t
        USING (
            SELECT * FROM (SELECT *, {latest} AS _hw_age FROM {_changes(plan, catalog)}) WHERE _hw_age = 1
        ) AS s
        ON {_equal("t", "s", key)}
        WHEN MATCHED AND s._hw_op = 'D' AND {newer} THEN DELETE
        WHEN MATCHED AND s._hw_op = 'U' AND {newer}
            THEN UPDATE SET {", ".join(f"t.{name} = s.{name}" for name in columns)}
        WHEN NOT MATCHED AND s._hw_op = 'U'
            THEN INSERT ({", ".join(columns)}) VALUES ({", ".join(f"s.{name}" for name in columns)})
        """


def _changes(plan: MergePlan, catalog: str) -> str:
    return (
        f"(SELECT * FROM {catalog_table(catalog, plan.changes)} VERSION AS OF {plan.changes_snapshot} "
        f"WHERE _hw_lsn > {plan.lsn_from} AND _hw_lsn <= {plan.lsn_to})"
    )


def _equal(left: str, right: str, columns: Sequence[str]) -> str:
    return " AND ".join(f"{left}.{name} = {right}.{name}" for name in columns)
