"""Whether a table holds what landed less what was erased, by columns, partition and block; and L1."""

from __future__ import annotations

import pyarrow.parquet as pq

from headwater.lake.data_files import read_rewritten_file
from headwater.lake.digest import combine, digest_of
from headwater.lake.erasures import eras_of
from headwater.lake.ledger_records import Landed
from headwater.lake.mark import mark_in_summary
from headwater.lake.upkeep import history
from headwater.lake.work import Digest
from tests.unit.lake.erasable_lakes import Erasable

Balance = dict[tuple[int, int, int], tuple[int, int]]


def expected_less_erased(lake: Erasable) -> Balance:
    """What landed, less what the receipts say, by the number of columns, partition and block."""
    found: Balance = {}

    def add(columns: int, digest: Digest | None, sign: int) -> None:
        assert digest is not None
        for block in digest.blocks:
            place = columns, block.partition, block.block
            rows, total = found.get(place, (0, 0))
            found[place] = rows + sign * block.rows, (total + sign * block.total) % (1 << 64)

    for record in lake.lake.ledger.records():
        if isinstance(record, Landed) and record.rows:
            add(len(record.columns), record.digest, 1)
    for receipt in lake.receipts():
        for part in receipt.parts:
            add(len(part.columns), part.digest, -1)
    return {place: each for place, each in found.items() if each[0]}


def held(lake: Erasable) -> Balance:
    """The same of what the table holds."""
    tables, state = lake.lake.place.connect(), lake.state()
    found: dict[int, list[Digest]] = {}
    for era in eras_of(lake.lake.ledger.records(), lake.record.topic_id.hex()):
        target = tables.read_back_target(state, era.snapshot, era.columns)
        for path in tables.files_between(state, era.lsn_from, era.lsn_to):
            # A file without a column of the landing was written by an earlier one.
            if len(pq.read_schema(path.removeprefix("file://")).names) >= len(era.columns):
                pieces = read_rewritten_file(target, path, (era.lsn_from, era.lsn_to))
                found.setdefault(len(era.columns), []).extend(digest_of(piece) for piece in pieces)
    return {
        (columns, block.partition, block.block): (block.rows, block.total)
        for columns, digests in found.items()
        for block in combine(digests).blocks
    }


def check_landings_join(lake: Erasable) -> None:
    """L1, as far as the table's history reaches."""
    state = lake.state()
    head = state.head()
    assert head is not None
    marks = [mark for each in history(state, head.snapshot_id) if (mark := mark_in_summary(each.summary)) is not None]
    assert [newer.lsn_from for newer in marks[:-1]] == [older.lsn_to for older in marks[1:]]
