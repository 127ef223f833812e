"""Rows that are copied into a new table by many tasks: what each does, and what they did together.

    write_rows(target, commit_id, attempt, batches)     data files, their digest and their offsets
    together(dones)                                     what the copied rows are

PROMISE  What is told of the rows is told of them as they came; what the files hold is for whoever reads them back.
         No more than BYTES_AT_ONCE of rows are held, and one batch.
NOT HERE The table: new_table.py.  Running tasks: headwater.spark.restore.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from headwater.lake.data_files import DataFileWriter, columns_of
from headwater.lake.digest import combine
from headwater.lake.fitting import spelled
from headwater.lake.new_table import BYTES_AT_ONCE, NewTable
from headwater.lake.restoring import Contents, contents_of
from headwater.lake.retyping import as_type
from headwater.lake.tables import TableState
from headwater.lake.work import Column, LandDone, TopicDone, WrittenFile
from headwater.lake.write_target import encode_target


class CopiedTable(NewTable):
    """A new table whose data files tasks write."""

    @property
    def target(self) -> bytes:
        """What they need to know."""
        metadata = self._staged.metadata
        return encode_target(
            metadata, metadata.schema(), self._staged.io.properties, columns_of_schema(metadata.schema())
        )

    def add(self, files: Iterable[WrittenFile]) -> None:
        self._files.extend(files)


def write_rows(target: bytes, commit_id: str, attempt: int, batches: Iterable[pa.RecordBatch]) -> LandDone:
    """All of these rows in data files of a target; in its columns, in whatever order and Arrow types they come."""
    writer = DataFileWriter(target, commit_id, attempt)
    files: list[WrittenFile] = []

    def written() -> Iterator[pa.Table]:
        waiting: list[pa.Table] = []
        for rows in _shaped(target, batches):
            waiting.append(rows)
            if sum(each.nbytes for each in waiting) >= BYTES_AT_ONCE:
                files.extend(writer.write(pa.concat_tables(waiting)))
                waiting = []
            yield rows
        if waiting:
            files.extend(writer.write(pa.concat_tables(waiting)))

    given = contents_of(written())
    offsets = tuple((partition, *ends) for partition, ends in sorted(given.offsets.items()))
    return LandDone((TopicDone(0, tuple(files), given.digest, offsets=offsets),))


def together(dones: Iterable[LandDone]) -> tuple[list[WrittenFile], Contents]:
    """The files and the rows of all tasks."""
    told = [topic for done in dones for topic in done.topics]
    offsets: dict[int, tuple[int, int]] = {}
    for partition, first, last in (each for topic in told for each in topic.offsets):
        known = offsets.get(partition, (first, last))
        offsets[partition] = min(first, known[0]), max(last, known[1])
    return [file for topic in told for file in topic.files], Contents(combine(each.digest for each in told), offsets)


def columns_by_id(state: TableState) -> tuple[Column, ...]:
    """The columns that a table has, for its digest."""
    assert isinstance(state.native, Table), "a table of pyiceberg"
    return columns_of_schema(state.native.schema())


def columns_of_schema(schema: Schema) -> tuple[Column, ...]:
    return tuple(Column(each.field_id, each.name, spelled(each.field_type)) for each in schema.fields)


def _shaped(target: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    columns = columns_of(target)
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        yield pa.table(
            [as_type(rows.column(field.name), field.type) for field in columns], schema=columns.remove_metadata()
        )
