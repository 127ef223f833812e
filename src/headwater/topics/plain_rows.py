"""Single rows of plain values, which become columns together with those of other requests.

To make columns of one row takes as long as of twenty, and lets go of the interpreter a dozen times: many threads that
each append one row would spend most of their time waiting for it.  So a row that will surely fit, by the Python types
of its values alone, is kept as it is, and those of all requests of a commit are read at once when it is formed.

PROMISE  Nothing is accepted that the door would refuse: the same RowReader reads it.  What does not fit after all, an
         integer beyond 64 bits or text that UTF-8 cannot hold, is refused alone, with the same words.
         The row is copied and its values cannot change, so that a caller may go on with its dict.
NOT HERE Rows of any other form, and rows that may not fit: rows.py reads them in the caller's thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import NamedTuple

import pyarrow as pa

from headwater.errors import HeadwaterError, RowsRefused
from headwater.metadata.operations import TopicRecord
from headwater.topics.requests import PartitionRows, TopicRequest
from headwater.topics.rows import RowReader

_VALUE_BYTES = 8


class PlainRow(NamedTuple):
    """A row on its way to one partition, not read yet."""

    topic: TopicRecord
    partition: int
    row: dict[str, object]
    reader: RowReader


class PlainCheck:
    """Knows by a row's Python types alone whether it will fit a schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self._types: dict[str, type | None] = {field.name: _python_type(field.type) for field in schema}
        self._required = [field.name for field in schema if not field.nullable]

    def size_of(self, row: dict[str, object]) -> int | None:
        """About how many bytes it takes; nothing where it may not fit, or where its values could change."""
        size = 0
        for name in self._required:
            if row.get(name) is None:
                return None
        types = self._types
        for name, value in row.items():
            wanted = types.get(name)
            if value is None:
                if name not in types:
                    return None
            elif wanted is None or type(value) is not wanted:
                return None
            elif wanted is str or wanted is bytes:
                size += len(value)  # type: ignore[arg-type]
            elif wanted is datetime and value.tzinfo is None:  # type: ignore[attr-defined]
                return None
            size += _VALUE_BYTES
        return size


def _python_type(type_: pa.DataType) -> type | None:
    """The one Python type whose values fit a column without a second look; nothing where there is none."""
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        return datetime
    plain: dict[pa.DataType, type] = {
        pa.int64(): int,
        pa.float64(): float,
        pa.string(): str,
        pa.binary(): bytes,
        pa.bool_(): bool,
        pa.date32(): date,
    }
    return plain.get(type_)


def read_together(requests: Sequence[TopicRequest]) -> None:
    """Read the plain rows of these requests, those of one schema at once; one that does not fit is refused alone."""
    by_schema: dict[tuple[int, int], list[TopicRequest]] = {}
    for request in requests:
        plain = request.plain
        if plain is not None:
            by_schema.setdefault((plain.topic.number, len(plain.topic.schemas)), []).append(request)
    for together in by_schema.values():
        if not _read(together) and len(together) > 1:
            for request in together:
                _read([request])


def _read(requests: list[TopicRequest]) -> bool:
    """True if all of them were read; where there is only one, it is refused."""
    rows = [request.plain for request in requests if request.plain is not None]
    try:
        accepted = rows[0].reader.read([each.row for each in rows])
        if accepted.refused:
            raise RowsRefused(rows[0].topic.name, accepted.refused, accepted.rows)
    except HeadwaterError as error:
        if len(requests) == 1:
            requests[0].refuse(error)
        return False
    for at, (request, each) in enumerate(zip(requests, rows, strict=True)):
        request.rows = [PartitionRows(each.topic, each.partition, accepted.batch.slice(at, 1))]
    return True
