"""Rows into the data files of a table, and out again: Parquet by pyiceberg's own writer, for any partition spec.

COLUMNS  `columns_of` is the one Arrow schema of a landing: the columns that it writes, in order of field id, in plain
         types (no large, view or dictionary variants: mixed in one table they break pyiceberg's reads).
PROMISE  What is written is what was given, value for value.  pyiceberg's projection is passed by: it makes empty lists
         and maps of null ones where they hold structs.
         Names are unique over works, retries and rounds: they carry the commit's id and the attempt's number.
         Nothing is deleted, also not after an error: upkeep does that, when it is known what was committed.
NOT HERE What a target is, and how data files travel: write_target.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io.fileformat import FileFormatFactory
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.table import TableProperties
from pyiceberg.table.locations import LocationProvider, load_location_provider
from pyiceberg.typedef import Record
from pyiceberg.types import IcebergType
from pyiceberg.utils.properties import property_as_int

from headwater.errors import CorruptData
from headwater.lake.retyping import as_type, relabelled
from headwater.lake.work import WrittenFile
from headwater.lake.write_target import WriteTarget, decode_target, written_file

FILES_PER_ATTEMPT_MAX = 1_000_000
_FIELD_ID = b"PARQUET:field_id"

# ------------------------------------------------------------------------------------------------------ columns


@lru_cache(maxsize=256)
def columns_of(target: bytes) -> pa.Schema:
    """The columns that a landing writes, by field id, with the names that the table has for them."""
    return _arrow_schema(_written_schema(decode_target(target)), field_ids=False)


def _written_schema(target: WriteTarget) -> Schema:
    schema = target.metadata.schema()
    return Schema(*(schema.find_field(column.field_id) for column in target.columns), schema_id=schema.schema_id)


def _arrow_schema(schema: Schema, *, field_ids: bool) -> pa.Schema:
    return pa.schema([_plain_field(field) for field in schema_to_pyarrow(schema, include_field_ids=field_ids)])


def arrow_type(type_: IcebergType) -> pa.DataType:
    """The plain Arrow type of a column of a table."""
    return _plain(schema_to_pyarrow(type_, include_field_ids=False))


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(_plain(field.type))


def _plain(type_: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_large_string(type_):
        return pa.string()
    if types.is_large_binary(type_):
        return pa.binary()
    if types.is_large_list(type_) or types.is_list(type_):
        return pa.list_(_plain_field(type_.value_field))
    if types.is_map(type_):
        return pa.map_(_plain_field(type_.key_field), _plain_field(type_.item_field))
    if types.is_struct(type_):
        return pa.struct([_plain_field(field) for field in type_])
    return type_


# -------------------------------------------------------------------------------------------------------- write


class DataFileWriter:
    """Writes the data files of one attempt at one work of one landing."""

    def __init__(self, target: bytes, commit_id: str, attempt: int) -> None:
        self._target = decode_target(target)
        metadata = self._target.metadata
        self._commit_id = commit_id
        self._number = attempt * FILES_PER_ATTEMPT_MAX
        self._locations: LocationProvider = load_location_provider(metadata.location, metadata.properties)
        # Names that Avro could not spell are written as Iceberg spells them; readers go by field id.
        named = _written_schema(self._target)
        self._schema = sanitize_column_names(named)
        self._arrow = _arrow_schema(self._schema, field_ids=True)
        size_max = property_as_int(
            metadata.properties,
            TableProperties.WRITE_TARGET_FILE_SIZE_BYTES,
            TableProperties.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT,
        )
        assert size_max is not None
        self._size_bytes_max = size_max

    def write(self, rows: pa.Table) -> list[WrittenFile]:
        """All of these rows, which are in the columns of `columns_of`, in data files."""
        return [
            written_file(self._write(piece, key))
            for part, key in self._partitions(rows)
            for piece in self._pieces(part)
        ]

    def _pieces(self, rows: pa.Table) -> Iterator[pa.Table]:
        """As many equal pieces as the table's file size asks for, counted before compression, as pyiceberg does."""
        pieces = max(1, -(-rows.nbytes // self._size_bytes_max))
        size = -(-rows.num_rows // pieces)
        for start in range(0, rows.num_rows, max(size, 1)):
            yield rows.slice(start, size)

    def _write(self, rows: pa.Table, key: PartitionKey | None) -> DataFile:
        metadata = self._target.metadata
        path = self._new_path(key)
        model = FileFormatFactory.get(FileFormat.PARQUET)
        output = self._target.io.new_output(path)
        labelled = pa.Table.from_batches(
            [relabelled(batch, self._arrow) for batch in rows.to_batches()], schema=self._arrow
        )
        writer = model.create_writer(output, self._schema, {**metadata.properties, **self._without_bounds(rows)})
        with writer:
            writer.write(labelled)
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=key.partition if key is not None else Record(),
            file_size_in_bytes=len(output),
            sort_order_id=None,
            spec_id=metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **writer.result().to_serialized_dict(),
        )

    def _new_path(self, key: PartitionKey | None) -> str:
        name = f"00000-{self._number}-{self._commit_id}.parquet"
        self._number += 1
        try:
            return self._locations.new_data_location(name, key)
        except (OverflowError, ValueError):
            # A day that Python cannot spell: the path is for people, and no reader goes by it.
            return self._locations.new_data_location(name)

    def _without_bounds(self, rows: pa.Table) -> dict[str, str]:
        """Columns with days or times that Python has no dates for, and so pyiceberg no bounds: such a file is read
        whatever is sought."""
        return {
            f"{TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX}.{field.name}": "counts"
            for column, field in zip(rows.columns, self._arrow, strict=True)
            if _has_days_beyond_python(column)
        }

    # Partitions ------------------------------------------------------------------------------------------------

    def _partitions(self, rows: pa.Table) -> Iterator[tuple[pa.Table, PartitionKey | None]]:
        """The rows of each partition of the table, in the order in which they came."""
        spec = self._target.metadata.spec()
        if not rows.num_rows:
            return
        if spec.is_unpartitioned():
            yield rows, None
            return
        schema = self._target.metadata.schema()
        groups = np.zeros(rows.num_rows, np.int64)
        fields = []
        for field in spec.fields:
            source = schema.find_field(field.source_id)
            column = field.transform.pyarrow_transform(source.field_type)(self._source(rows, field.source_id))
            encoded = _combined(column).dictionary_encode(null_encoding="encode")
            places = encoded.indices.to_numpy()
            fields.append((field, places, _numbers_for_times(encoded.dictionary).to_pylist()))
            # Numbered anew with each field: the product of many fields' values would not fit a number.
            groups = np.unique(groups * len(encoded.dictionary) + places, return_inverse=True)[1]
        _, firsts, counts = np.unique(groups, return_index=True, return_counts=True)
        keys = [
            PartitionKey(
                [PartitionFieldValue(field, values[own[first]]) for field, own, values in fields], spec, schema
            )
            for first in firsts
        ]
        starts = firsts
        if np.count_nonzero(groups[1:] != groups[:-1]) >= len(keys):
            # They do not lie together as they came, as days do in rows that came in the order of time.
            rows = rows.combine_chunks().take(pa.array(np.argsort(groups, kind="stable")))
            starts = np.cumsum(counts) - counts
        for start, count, key in zip(starts.tolist(), counts.tolist(), keys, strict=True):
            yield rows.slice(start, count), key

    def _source(self, rows: pa.Table, field_id: int) -> pa.Array:
        """The column that a partition field is made from; nulls where the landing does not write it."""
        schema = self._target.metadata.schema()
        name = schema.find_column_name(field_id)
        assert name is not None
        if name in rows.column_names:
            return _combined(rows.column(name))
        first, *inside = name.split(".")
        if first not in rows.column_names:
            return pa.nulls(rows.num_rows, _plain(schema_to_pyarrow(schema.find_field(field_id).field_type)))
        column = _combined(rows.column(first))
        for part in inside:
            column = pc.struct_field(column, part)
        return column


# Python's dates are of the years 1 to 9999; those of Arrow, Iceberg and Spark go further.
_DAYS = (-719_162, 2_932_896)
_MICROSECONDS = (_DAYS[0] * 86_400_000_000, (_DAYS[1] + 1) * 86_400_000_000 - 1)


def _numbers_for_times(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Days and times as the numbers that they are; anything else as it is."""
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32())
    return values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values


def _has_days_beyond_python(column: pa.ChunkedArray) -> bool:
    if not (pa.types.is_date32(column.type) or pa.types.is_timestamp(column.type)):
        return False
    low, high = _DAYS if pa.types.is_date32(column.type) else _MICROSECONDS
    least, most = pc.min_max(_numbers_for_times(column)).as_py().values()
    return least is not None and (least < low or most > high)


def _combined(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


# --------------------------------------------------------------------------------------------------------- read


def read_data_file(target: bytes, path: str) -> Iterator[pa.Table]:
    """The rows of a data file that this landing wrote, in the columns of `columns_of`, a row group at a time."""
    columns = columns_of(target)
    opened = decode_target(target)
    expected = _arrow_schema(sanitize_column_names(_written_schema(opened)), field_ids=True)
    with opened.io.new_input(path).open() as stream, pq.ParquetFile(stream) as file:
        stored = file.schema_arrow
        # Not cast: a cast goes by names, and gives nulls for fields of structs that are named otherwise in the file.
        if _field_ids(stored) != _field_ids(expected) or not stored.equals(expected):
            raise CorruptData("a data file has other columns than were written to it: audit the table", path=path)
        for group in range(file.num_row_groups):
            batches = file.read_row_group(group).to_batches()
            yield pa.Table.from_batches([relabelled(batch, columns) for batch in batches], schema=columns)


def read_rewritten_file(target: bytes, path: str, between: tuple[int, int]) -> Iterator[pa.Table]:
    """Rows after one LSN and up to another in a data file that anybody may have written since, as a compaction does."""
    columns = columns_of(target)
    opened = decode_target(target)
    ids = _field_ids(_arrow_schema(_written_schema(opened), field_ids=True))
    with opened.io.new_input(path).open() as stream, pq.ParquetFile(stream) as file:
        stored = _field_ids(file.schema_arrow)
        if not set(ids) <= set(stored):
            raise CorruptData("a data file lacks columns that were landed: audit the table", path=path)
        places = [stored.index(field_id) for field_id in ids]
        for group in range(file.num_row_groups):
            read = file.read_row_group(group)
            lsns = read.column(places[columns.names.index("_hw_lsn")])
            # Cast only once they are chosen: rows beside them may be of a wider type, and not fit the one of these.
            rows = read.filter(pc.and_(pc.greater(lsns, between[0]), pc.less_equal(lsns, between[1])))
            yield pa.table(
                [as_type(rows.column(place), field.type) for place, field in zip(places, columns, strict=True)],
                schema=columns.remove_metadata(),
            )


def _field_ids(schema: pa.Schema) -> list[bytes | None]:
    return [(field.metadata or {}).get(_FIELD_ID) for field in schema]
