"""What a task needs to write data files of a table, and what the commit needs to know of each: as plain bytes.

    WriteTarget     the table's metadata without its history, with the schema that the landing's commit will make,
                    the way to its files, and the columns that are digested
    WrittenFile     a data file, by path, with its statistics and its partition as msgpack

PROMISE  decode_target(encode_target(...)) writes into the same table, and data_file(written_file(f)) is f, with every
         statistic and partition value.  Nothing is pickled: bytes that come back from a worker can only be values.
         A target holds what opens files and nothing that opens the catalog: its address and password stay here.
NOT HERE Which columns, and which schema: fitting.py.  Writing: task.py.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Any

import msgspec
import pyarrow as pa
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.typedef import Record

from headwater.errors import CorruptData
from headwater.lake.mark import PREFIX
from headwater.lake.work import Column, WrittenFile

_FILE_IO_PROPERTIES = ("s3.", "client.", "gcs.", "adls.", "hdfs.", "hf.", "py-io-impl")
# Signing each request of an object store through the catalog needs the way to the catalog too.
_SIGNER_PROPERTIES = ("uri", "token", "credential")

# ---------------------------------------------------------------------------------------------------- targets


@dataclass(frozen=True)
class WriteTarget:
    """Where a task's rows go."""

    metadata: TableMetadata
    """Without snapshots and logs; its one schema is the table's after the landing's commit."""
    io: FileIO
    columns: tuple[Column, ...]
    """The columns that the landing writes, by field id: of these is the digest.  Others of the table are null."""

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """Every column of the table, in its order, in the one encoding that its files have."""
        return schema_to_pyarrow(self.metadata.schema(), include_field_ids=False)


class _PackedTarget(msgspec.Struct, frozen=True):
    metadata: str
    io: dict[str, str]
    columns: tuple[Column, ...]


_target_encoder = msgspec.msgpack.Encoder()
_target_decoder = msgspec.msgpack.Decoder(_PackedTarget)


def encode_target(
    metadata: TableMetadata, schema: Schema, io_properties: Mapping[str, object], columns: tuple[Column, ...]
) -> bytes:
    """The target of a table with this metadata whose schema is, or will be, this one."""
    # A mark is new with each landing, and no task has a use for it.
    properties = {name: value for name, value in metadata.properties.items() if not name.startswith(PREFIX)}
    bare = metadata.model_copy(
        update={
            "schemas": [schema],
            "current_schema_id": schema.schema_id,
            "last_column_id": max(metadata.last_column_id, schema.highest_field_id),
            "partition_specs": [metadata.spec()],
            "properties": properties,
            "snapshots": [],
            "snapshot_log": [],
            "metadata_log": [],
            "refs": {},
            "statistics": [],
            "partition_statistics": [],
            "current_snapshot_id": None,
        }
    )
    packed = _PackedTarget(bare.model_dump_json(), _for_files(io_properties), columns)
    return _target_encoder.encode(packed)


def _for_files(properties: Mapping[str, object]) -> dict[str, str]:
    wanted = _FILE_IO_PROPERTIES + (_SIGNER_PROPERTIES if "s3.signer" in properties else ())
    return {name: value for name, value in properties.items() if name.startswith(wanted) and isinstance(value, str)}


@lru_cache(maxsize=256)
def decode_target(target: bytes) -> WriteTarget:
    """The target again.  Kept, because the works of one round name the same few tables again and again."""
    try:
        packed = _target_decoder.decode(target)
        metadata = TableMetadataUtil.parse_raw(packed.metadata)
    except (msgspec.DecodeError, ValueError) as error:
        raise CorruptData("what a task was given to write to cannot be read", cause=str(error)) from error
    io = load_file_io({**packed.io, **metadata.properties}, metadata.location)
    return WriteTarget(metadata, io, packed.columns)


# ------------------------------------------------------------------------------------------------- data files


class _Tagged(msgspec.Struct, frozen=True, array_like=True):
    """A partition's value that has no form of its own beside the others."""

    kind: str
    text: str


class _Stats(msgspec.Struct, frozen=True, array_like=True):
    """A data file, as a manifest's entry tells it."""

    partition: list[bool | int | float | str | _Tagged | None]
    column_sizes: dict[int, int] | None
    value_counts: dict[int, int] | None
    null_value_counts: dict[int, int] | None
    nan_value_counts: dict[int, int] | None
    lower_bounds: dict[int, bytes] | None
    upper_bounds: dict[int, bytes] | None
    split_offsets: list[int] | None
    sort_order_id: int | None


_stats_encoder = msgspec.msgpack.Encoder()
_stats_decoder = msgspec.msgpack.Decoder(_Stats)


def written_file(file: DataFile) -> WrittenFile:
    """A data file that pyiceberg's writer made, as a value that travels."""
    assert file.content == DataFileContent.DATA and file.file_format == FileFormat.PARQUET, "a task writes rows"
    assert file.key_metadata is None and file.equality_ids is None, "a task writes plain data files"
    stats = _Stats(
        [_packed(file.partition[place]) for place in range(len(file.partition))],
        file.column_sizes,
        file.value_counts,
        file.null_value_counts,
        file.nan_value_counts,
        file.lower_bounds,
        file.upper_bounds,
        file.split_offsets,
        file.sort_order_id,
    )
    return WrittenFile(file.file_path, file.record_count, file.file_size_in_bytes, _stats_encoder.encode(stats))


def data_file(written: WrittenFile) -> DataFile:
    """The data file again, for a manifest."""
    try:
        stats = _stats_decoder.decode(written.stats)
        partition = [_unpacked(value) for value in stats.partition]
    except (msgspec.DecodeError, ValueError, ArithmeticError) as error:
        raise CorruptData("the statistics of a data file cannot be read", path=written.path) from error
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=written.path,
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        record_count=written.rows,
        file_size_in_bytes=written.size_bytes,
        column_sizes=stats.column_sizes,
        value_counts=stats.value_counts,
        null_value_counts=stats.null_value_counts,
        nan_value_counts=stats.nan_value_counts,
        lower_bounds=stats.lower_bounds,
        upper_bounds=stats.upper_bounds,
        key_metadata=None,
        split_offsets=stats.split_offsets,
        equality_ids=None,
        sort_order_id=stats.sort_order_id,
    )


def _packed(value: Any) -> bool | int | float | str | _Tagged | None:
    if isinstance(value, bytes):
        return _Tagged("bytes", value.hex())
    if isinstance(value, Decimal):
        return _Tagged("decimal", str(value))
    if isinstance(value, uuid.UUID):
        return _Tagged("uuid", str(value))
    assert value is None or isinstance(value, bool | int | float | str), f"a partition's value: {value!r}"
    return value


def _unpacked(value: bool | int | float | str | _Tagged | None) -> object:
    if not isinstance(value, _Tagged):
        return value
    if value.kind == "bytes":
        return bytes.fromhex(value.text)
    if value.kind == "decimal":
        return Decimal(value.text)
    if value.kind == "uuid":
        return uuid.UUID(value.text)
    raise ValueError(f"a partition's value of an unknown kind: {value.kind}")
