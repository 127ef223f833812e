"""Rows of many partitions by one pass over the log, for a consumer that holds many with a few rows in each.

Read one by one, each partition is a look into the index, a read and, behind a server, a message; rows that were
appended together lie together in the log, whichever partitions they are of.

PROMISE  Of each partition that is given, its rows in order from the first that is there on, and none left out: a pass
         that ends early has given the first of them.  Whether that is the offset that was asked for is for the reader
         to see.  A partition of which nothing is given is read by itself, as ever: that its rows have gone, or are in a
         table, is found and told there.
COST     A pass goes over at most PASSED_MAX frames for each partition that it is for, and over PASSED_BYTES_MAX in all,
         so one that lags far behind, or had its last row long ago, does not make it read the log again for the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from headwater.errors import Forgotten, UnknownTopic
from headwater.ids import Lsn
from headwater.log.frame_log import FrameLog
from headwater.topics.ahead import PLACE
from headwater.topics.older import OlderRows
from headwater.topics.positions import Lsn as PlaceLsn
from headwater.topics.positions import Place, check_partition
from headwater.topics.read_shape import ReadShape
from headwater.topics.reading import Rows, TopicNow, Wanted, read_rows

PASSED_MAX = 64
PASSED_BYTES_MAX = 64 * 1024 * 1024
ROWS_MAX = 65_536
BYTES_MAX = 16 * 1024 * 1024


def gather(log: FrameLog, topic_now: TopicNow, offsets: Mapping[int, int], older: OlderRows | None = None) -> Rows:
    """Rows of these partitions, each from its offset on, in the order of the log; of some perhaps none.  With them
    comes by what a row's place is known: its partition and its offset."""
    topic = topic_now()
    if topic is None:
        raise UnknownTopic("the topic was deleted")
    for partition in offsets:
        check_partition(topic, partition)
    log.durable_lsn()
    begins: dict[int, int] = {}
    for partition, offset in offsets.items():
        found = log.device.find(topic.number, partition, offset)
        if found is not None:
            begins[partition] = found.lsn
    chosen, first, last = side_by_side(begins)
    if not chosen:
        return Rows(ReadShape(topic, None, system_columns=PLACE).schema, lambda: iter(()))
    place = Place(Lsn(first), {partition: offsets[partition] for partition in chosen})
    wanted = Wanted(
        start=PlaceLsn(first), limit=ROWS_MAX, system_columns=PLACE, up_to_lsn=last, bytes_max=PASSED_BYTES_MAX
    )
    rows = read_rows(log, topic_now, wanted, older, at=place)
    return Rows(rows.schema, lambda: _first_of(rows))


def side_by_side(begins: Mapping[int, int]) -> tuple[list[int], int, int]:
    """Which partitions are worth one pass, by the LSN at which each begins; from which LSN to which it goes.

    As many as there are from the earliest on with no more than PASSED_MAX frames between one and the next, by the mean;
    and where they all have begun it goes on for as many frames again.
    """
    order = sorted(begins, key=lambda partition: begins[partition])
    if not order:
        return [], 0, 0
    first = begins[order[0]]
    count = max(at + 1 for at, partition in enumerate(order) if begins[partition] - first <= PASSED_MAX * (at + 1))
    return order[:count], first, begins[order[count - 1]] + PASSED_MAX * count


def _first_of(rows: Rows) -> Iterator[pa.RecordBatch]:
    size = 0
    try:
        for batch in rows:
            yield batch
            size += batch.nbytes
            if size >= BYTES_MAX:
                return
    except Forgotten:
        # Rows went while they were read.  Those that were given are right; of which the next are gone is told to
        # whoever reads on.
        return
