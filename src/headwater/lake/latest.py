"""A keyed topic from its state and what changed since: the latest row of each key.

    latest_of      changes            → of each key the last one, deletes included
    without_keys   rows, keys         → the rows whose key is none of these
    latest_rows    state, changes     → the state without the keys that changed, then the changes that are no deletes

Only keys and row numbers are compared and joined; the rows themselves are passed over by a mask, chunk by chunk.  So
every type of column can stand beside the key, and no column of text meets Arrow's limit of 2 GiB.

PROMISE  Equal keys are equal values: every type that a key may have has one form for each (topics/schema.py).
         The last change is the one with the greatest (`_hw_lsn`, `_hw_offset`), in whatever order changes are given.
         A row of a change table that no landing brought has no LSN above 0: it is no change, as it is none for a merge.
MEMORY   The changes, and of the state no more rows at once than there are keys that changed, or one table of it.
NOT HERE Which state and which changes: view_plan.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_ROW = "row"
_OPERATION = "_hw_op"
_UPSERT = "U"

Numbers = npt.NDArray[np.int64]


def latest_of(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """The last change of each key, in the order in which they were given."""
    landed = pc.fill_null(pc.greater(changes["_hw_lsn"], 0), False)
    if not pc.all(landed).as_py():
        changes = changes.filter(landed)
    order = _order(changes)
    if order is None:
        ranks = np.arange(changes.num_rows)
    else:
        ranks = np.empty(changes.num_rows, np.int64)
        ranks[order] = np.arange(changes.num_rows)
    keys = _keys(changes, key)
    names = keys.column_names
    last: Numbers = (
        keys.append_column(_ROW, pa.array(ranks)).group_by(names).aggregate([(_ROW, "max")])[f"{_ROW}_max"].to_numpy()
    )
    return _only(changes, last if order is None else order[last])


def without_keys(rows: pa.Table, keys: pa.Table, key: Sequence[str]) -> pa.Table:
    """The rows whose key is none of those in `keys`, in their order."""
    if not rows.num_rows or not keys.num_rows:
        return rows
    left = _keys(rows, key)
    numbered = left.append_column(_ROW, pa.array(np.arange(rows.num_rows)))
    kept = numbered.join(_keys(keys, key), keys=left.column_names, join_type="left anti")
    return _only(rows, kept[_ROW].to_numpy())


def latest_rows(state: Iterable[pa.Table], changes: pa.Table, key: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of a keyed topic: its state, then what was put in or put anew since.  Without `_hw_op`."""
    latest = latest_of(changes, key)
    keys = latest.select(list(key))
    # What an anti-join costs is mostly to take in the keys: it is done once for as many rows as there are of them.
    for rows in _gathered(state, latest.num_rows):
        kept = without_keys(rows, keys, key)
        if kept.num_rows:
            yield kept
    upserts = latest.filter(pc.equal(latest[_OPERATION], _UPSERT)).drop_columns([_OPERATION])
    if upserts.num_rows:
        yield upserts


def _gathered(tables: Iterable[pa.Table], rows_min: int) -> Iterator[pa.Table]:
    """The same rows in tables of at least so many, but for the last."""
    waiting: list[pa.Table] = []
    count = 0
    for table in tables:
        waiting.append(table)
        count += table.num_rows
        if count >= rows_min:
            yield pa.concat_tables(waiting)
            waiting, count = [], 0
    if waiting:
        yield pa.concat_tables(waiting)


def _order(changes: pa.Table) -> Numbers | None:
    """The row numbers by LSN and offset; None where the rows stand in that order already."""
    lsns: Numbers = changes["_hw_lsn"].to_numpy()
    offsets: Numbers = changes["_hw_offset"].to_numpy()
    in_order = (lsns[1:] > lsns[:-1]) | ((lsns[1:] == lsns[:-1]) & (offsets[1:] >= offsets[:-1]))
    return None if in_order.all() else np.lexsort((offsets, lsns))


def _keys(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """The key's columns under names of our own: in a join Arrow takes ".a" for a path."""
    return pa.table([rows[name] for name in key], names=[f"key{place}" for place in range(len(key))])


def _only(rows: pa.Table, numbers: Numbers) -> pa.Table:
    """The rows of these numbers, in their order."""
    mask = np.zeros(rows.num_rows, bool)
    mask[numbers] = True
    return rows.filter(pa.array(mask))
