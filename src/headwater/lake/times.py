"""The LSN that a time means where the log has let go of it: times rise with LSNs, and landed rows carry both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import CutExpired
from headwater.lake.mark import FORGOTTEN
from headwater.lake.resolving import FAR_LSN
from headwater.lake.shape import SYSTEM_COLUMNS, landing_table
from headwater.lake.table_rows import LSN, PartReading
from headwater.lake.view_plan import TablePart
from headwater.lake.where import Condition
from headwater.metadata.operations import TopicRecord

if TYPE_CHECKING:
    from headwater.lake.view import Views

TIME = "_hw_time"


def oldest_lsn_after(views: Views, topics: Sequence[TopicRecord], time_us: int) -> int:
    """The least LSN of a landed row of these topics, a change of a keyed one, that was appended after this time;
    FAR_LSN where none was.  CutExpired where that is past the retention of changes."""
    parts = [(topic, part) for topic in topics if (part := _landed(views, topic)) is not None]
    oldest = FAR_LSN
    for topic, part in parts:
        forgotten = int(part.state.properties.get(FORGOTTEN, "0"))
        if forgotten and _oldest(views, part, -FAR_LSN) == _oldest(views, part, time_us):
            raise CutExpired(
                f"the changes of {topic.name!r} at this time are past their retention: restore from a later one",
                topic=topic.name,
                changes_since_lsn=forgotten,
            )
        oldest = min(oldest, _oldest(views, part, time_us))
    return oldest


def _landed(views: Views, topic: TopicRecord) -> TablePart | None:
    """All that has landed of a topic."""
    with views.lent() as tables:
        state = tables.load(landing_table(topic))
    head = state.head() if state is not None else None
    return None if state is None or head is None else TablePart(state, head.snapshot_id, 0, FAR_LSN, whole=True)


def _oldest(views: Views, part: TablePart, time_us: int) -> int:
    """Most files lie on one side of the time, by their bounds: only those across it are read."""
    limit = pa.scalar(time_us, pa.int64()).cast(SYSTEM_COLUMNS.field(TIME).type)
    condition = Condition(pc.field(TIME) > limit, frozenset({TIME}))
    reading = PartReading(part, pa.schema([SYSTEM_COLUMNS.field(LSN)]), condition)
    oldest = FAR_LSN
    for live in views.cache.files(part.state, part.snapshot_id).data:
        times, lsns = live.bounds(reading.field_id(TIME)), live.bounds(reading.field_id(LSN))
        if times is not None and times[1] <= time_us:
            continue
        if times is not None and lsns is not None and times[0] > time_us:
            oldest = min(oldest, lsns[0])
            continue
        found = [pc.min(table.column(LSN)).as_py() for table in reading.read(live)]
        oldest = min([oldest, *(each for each in found if each is not None)])
    return oldest
