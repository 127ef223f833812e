"""The state table of a keyed topic against its changes: one row a key, the latest that is no delete.

A state's row carries the partition and the offset of the change that made it, so what is expected is found from the
changes alone, and rows are compared and named by these.

RETENTION  Changes that are past their retention can say nothing: then of rows that they made it is only asked that no
           later change has replaced or deleted them.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.lake.audit_compare import BlockFinding, BlockOwed, compare_block
from headwater.lake.audit_landed import partition_audits
from headwater.lake.audit_measure import (
    LSN,
    OFFSET,
    OPERATION,
    PARTITION,
    Asked,
    BlockRows,
    LocalMeasure,
    Looks,
    Measure,
    SnapshotLook,
    arrow_columns,
    block_rows,
    latest_changes,
    within,
)
from headwater.lake.audit_plan import Blocks, Place, Range, add_blocks
from headwater.lake.audit_report import StateAudit
from headwater.lake.digest import BLOCK_BITS
from headwater.lake.fitting import spelled
from headwater.lake.latest import without_keys
from headwater.lake.mark import FORGOTTEN
from headwater.lake.tables import TableState
from headwater.lake.work import Column
from headwater.metadata.operations import TopicRecord


def audit_state(
    topic: TopicRecord, state: TableState, merged_lsn: int, changes: TableState, looks: Looks, measure: Measure
) -> StateAudit:
    """What is wrong with a state table that is merged up to an LSN."""
    head, changes_head = state.head(), changes.head()
    if head is None or changes_head is None or not merged_lsn:
        return StateAudit(state.name, merged_lsn, 0)
    look = looks.at(state, head.snapshot_id)
    changed = looks.at(changes, changes_head.snapshot_id)
    if look.lost or changed.lost:
        measure = LocalMeasure(looks.at)
    since = int(changes.properties.get(FORGOTTEN, "0"))
    between: Range = since, merged_lsn
    columns = _shared_columns(look, changed)
    found: Blocks = {}
    owed: Blocks = {}
    add_blocks(found, measure.digest(Asked(state, head.snapshot_id, columns, (between,))))
    add_blocks(owed, measure.digest(Asked(changes, changes_head.snapshot_id, columns, (between,), topic.key)))
    places = {place for place in {*found, *owed} if found.get(place) != owed.get(place)}
    findings = [f"lost: {path}" for _, path in look.lost]
    blocks: list[BlockFinding] = []
    if places or since:
        latest = latest_changes(changed, changed.files, columns, (between,), topic.key)
        replaced = _replaced(look, arrow_columns(columns), latest, since, topic.key)
        if replaced:
            named = ", ".join(f"partition {partition} offset {offset}" for partition, offset in replaced[:5])
            findings.append(f"{len(replaced)} rows were replaced or deleted since, and are still there: {named}")
        upserts = latest.filter(pc.equal(latest[OPERATION], "U")).drop_columns([OPERATION])
        blocks = [_compared(look, columns, between, upserts, place) for place in sorted(places)]
    strays = look.outside([(0, merged_lsn)])
    if len(strays.lsns):
        findings.append(f"{len(strays.lsns)} rows have an LSN that is not merged yet, or none of the log's")
    by_partition: dict[int, Blocks] = {}
    for place, block in found.items():
        by_partition.setdefault(place[0], {})[place] = block
    partitions = partition_audits(by_partition, [each for each in blocks if each.found])
    return StateAudit(state.name, merged_lsn, look.live_rows(), partitions, since, tuple(findings))


def _compared(
    look: SnapshotLook, columns: tuple[Column, ...], between: Range, upserts: pa.Table, place: Place
) -> BlockFinding:
    """One block of the state, row by row."""
    of_block = pc.equal(pc.shift_right(upserts[OFFSET], BLOCK_BITS), place[1])
    said = block_rows(upserts.filter(pc.and_(pc.equal(upserts[PARTITION], place[0]), of_block)), words=True)
    rows = look.block(place, columns)
    assert rows.words is not None
    inside = within(rows.lsns, [between])
    kept = BlockRows(rows.lsns[inside], rows.offsets[inside], rows.words[inside])
    return compare_block(BlockOwed(place, (), (), None, ()), kept, log=[(kept, said)])


def _shared_columns(look: SnapshotLook, changed: SnapshotLook) -> tuple[Column, ...]:
    """The state's columns that its changes have too, in the state's types: what was widened in one of them only has the
    same values in both."""
    fields = sorted(look.table.schema().fields, key=lambda field: field.field_id)
    return tuple(
        Column(field.field_id, field.name, spelled(field.field_type)) for field in fields if field.name in changed.names
    )


def _replaced(
    look: SnapshotLook, columns: pa.Schema, latest: pa.Table, since: int, key: tuple[str, ...]
) -> list[tuple[int, int]]:
    """Partition and offset of rows that older changes made, of keys that have changed since."""

    def act(rows: pa.Table) -> pa.Table:
        old = rows.filter(pc.less_equal(rows[LSN], since))
        numbered = old.append_column("_row", pa.array(np.arange(old.num_rows)))
        kept = without_keys(numbered, latest.select(list(key)), key)
        stays = np.isin(np.arange(old.num_rows), kept["_row"].to_numpy())
        return old.filter(pa.array(~stays)).select([PARTITION, OFFSET])

    found = look.rows(look.files, columns, act)
    return sorted(
        place for rows in found for place in zip(rows[PARTITION].to_pylist(), rows[OFFSET].to_pylist(), strict=True)
    )
