"""The numbers that things are known by.  An LSN counts frames, an offset rows, a position bytes."""

from __future__ import annotations

from typing import NewType

Lsn = NewType("Lsn", int)
"""The number of a frame in its log, dense from the log's first; 0 means none."""

Offset = NewType("Offset", int)
"""The number of a row in its partition, dense from 0 when appended."""

Position = NewType("Position", int)
"""A place in a file, in bytes."""

Epoch = NewType("Epoch", int)
"""Which life of the writer: it rises each time a writer claims the log."""

TopicNumber = NewType("TopicNumber", int)
"""A topic's number in its shard, never reused; 0 means none."""

Partition = NewType("Partition", int)

FIRST_LSN = Lsn(1)
NO_TOPIC = TopicNumber(0)
