"""The state table of a keyed topic: one row a key, as the changes up to an LSN have left it.

It has the topic's columns, then `_hw_shard`, `_hw_lsn`, `_hw_partition`, `_hw_offset`, `_hw_time` of the change that a
row came by.  Like a change table it has every column but the key optional.
"""

from __future__ import annotations

from typing import Literal, get_args

import pyarrow as pa

from headwater.errors import InvalidRequest
from headwater.lake.shape import OPERATION_COLUMN, table_shape
from headwater.lake.tables import TableShape
from headwater.metadata.operations import TopicRecord

MergeMode = Literal["copy-on-write", "merge-on-read"]
"""
copy-on-write   a merge writes every file anew that a changed key is in: reading stays fast
merge-on-read   a merge writes the changed rows and which old ones they replace: it is cheap, and reading joins the two
"""

_MODES = ("write.merge.mode", "write.update.mode", "write.delete.mode")


def mode_properties(mode: MergeMode) -> dict[str, str]:
    if mode not in get_args(MergeMode):
        raise InvalidRequest(f"a merge is {' or '.join(get_args(MergeMode))}, not {mode!r}")
    return dict.fromkeys(_MODES, mode)


def state_shape(topic: TopicRecord, mode: MergeMode = "copy-on-write") -> TableShape:
    """The state table as the topic's newest schema wants it."""
    changes = table_shape(topic)
    return TableShape(
        schema=pa.schema([field for field in changes.schema if field.name != OPERATION_COLUMN.name]),
        key=topic.key,
        partition_by=changes.partition_by,
        properties={**changes.properties, **mode_properties(mode)},
    )
