"""What travels to a task and back: targets and data files, as plain bytes."""

from __future__ import annotations

import datetime as dt
import decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from headwater.errors import CorruptData
from headwater.lake.iceberg_tables import IcebergTables
from headwater.lake.shape import LSN_METRICS
from headwater.lake.work import WrittenFile
from headwater.lake.write_target import data_file, decode_target, encode_target, written_file
from tests.unit.lake.scratch_tables import ORDERS, TABLE, connected, land, loaded, native, shape_of, sqlite_place


def a_file(*partition: object, **other: Any) -> DataFile:
    values: dict[str, Any] = {
        "column_sizes": {1: 100, 2: 7},
        "value_counts": {1: 3, 2: 3},
        "null_value_counts": {1: 0, 2: 3},
        "nan_value_counts": {},
        "lower_bounds": {1: b"\x01\x00\x00\x00"},
        "upper_bounds": {1: b"\xff\x00\x00\x00"},
        "split_offsets": [4, 9_000_000_000],
        "sort_order_id": None,
        **other,
    }
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path="file:///lake/a b/é.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        record_count=3,
        file_size_in_bytes=1234,
        key_metadata=None,
        equality_ids=None,
        **values,
    )


def everything(file: DataFile) -> list[object]:
    """All that a data file says; DataFile's own equality looks at the path alone."""
    return [file[place] for place in range(len(file))]


@pytest.mark.parametrize(
    "partition",
    [
        (),
        (None,),
        (True, 7, -(2**62), 0.5, "é", b"\x00\xff"),
        (decimal.Decimal("-12.340"), UUID(int=7)),
    ],
    ids=str,
)
def test_a_data_file_comes_back_with_all_that_it_said(partition: tuple[object, ...]) -> None:
    file = a_file(*partition)

    travelled = msgspec.msgpack.decode(msgspec.msgpack.encode(written_file(file)), type=WrittenFile)

    assert (travelled.path, travelled.rows, travelled.size_bytes) == (file.file_path, 3, 1234)
    assert everything(data_file(travelled)) == everything(file)


def test_statistics_that_are_not_there_stay_away() -> None:
    file = a_file(nan_value_counts=None, split_offsets=None, lower_bounds=None, upper_bounds=None, sort_order_id=4)

    assert everything(data_file(written_file(file))) == everything(file)


@pytest.mark.parametrize("stats", [b"", b"\x00", msgspec.msgpack.encode([[["tuple", "x"]], *[None] * 8])], ids=repr)
def test_statistics_that_cannot_be_read_are_named(stats: bytes) -> None:
    with pytest.raises(CorruptData, match="statistics"):
        data_file(WrittenFile("file:///lake/x.parquet", 1, 1, stats))


def test_partition_values_of_every_type_reach_the_manifest(tmp_path: Path) -> None:
    shape = shape_of(
        pa.field("price", pa.decimal128(9, 2)),
        pa.field("fixed", pa.binary(4)),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("share", pa.float64()),
        pa.field("label", pa.string()),
        partition_by=("price", "fixed", "day", "at", "share", "label"),
    )
    at = dt.datetime(2026, 11, 15, 8, 30, 1, 5, dt.UTC)
    values: dict[str, Any] = {
        "price": [decimal.Decimal("1.50"), None],
        "fixed": [b"abcd", None],
        "day": [dt.date(2026, 11, 15), None],
        "at": [at, None],
        "share": [0.25, None],
        "label": ["a/b=c d", None],
    }
    with connected(sqlite_place(tmp_path)) as tables:
        land(tables, shape=shape, rows=2, **values)

        for column, (value, _) in values.items():
            found = native(loaded(tables)).scan(row_filter=f"{column} is not null").to_arrow()
            assert found.column(column).to_pylist() == [value]


# ---------------------------------------------------------------------------------------------------- targets


def target(tables: IcebergTables) -> bytes:
    state = tables.load(TABLE) or tables.create(TABLE, ORDERS)
    return tables.fit(state, ORDERS).target


def test_a_target_is_the_table_without_its_history(tmp_path: Path) -> None:
    with connected(sqlite_place(tmp_path)) as tables:
        first = target(tables)
        for lsn in range(1, 4):
            land(tables, lsn=lsn, rows=0)

        assert target(tables) != first  # the table's last sequence number is another
        found = decode_target(target(tables))

    metadata = found.metadata
    assert metadata.snapshots == [] and metadata.refs == {} and metadata.current_snapshot_id is None
    assert metadata.snapshot_log == [] and metadata.metadata_log == []
    assert metadata.properties[LSN_METRICS] == "full"
    assert not any(name.startswith("headwater.") for name in metadata.properties)
    assert [column.name for column in found.columns] == ORDERS.schema.names
    assert found.arrow_schema.names == ORDERS.schema.names
    assert len(target_size := first) < 4096, len(target_size)


def test_a_target_is_read_once(tmp_path: Path) -> None:
    with connected(sqlite_place(tmp_path)) as tables:
        packed = target(tables)

    assert decode_target(packed) is decode_target(bytes(bytearray(packed)))


def test_a_target_opens_files_and_not_the_catalog(tmp_path: Path) -> None:
    with connected(sqlite_place(tmp_path)) as tables:
        state = tables.create(TABLE, ORDERS)
        metadata = native(state).metadata
    given = {
        "uri": "postgresql://hw:secret@lake/db",
        "token": "secret",
        "credential": "secret",
        "auth-manager": object(),
        "s3.endpoint": "http://store",
        "client.region": "eu-1",
        "adls.account-key": "k",
    }

    plain = encode_target(metadata, metadata.schema(), given, ())
    signing = encode_target(metadata, metadata.schema(), {**given, "s3.signer": "S3V4RestSigner"}, ())

    assert b"secret" not in plain
    opened = decode_target(plain).io.properties
    assert {"s3.endpoint", "client.region", "adls.account-key"} <= set(opened)
    assert decode_target(signing).io.properties["token"] == "secret"


def test_files_are_parquet_whatever_the_tables_default_is(tmp_path: Path) -> None:
    with connected(sqlite_place(tmp_path)) as tables:
        tables.catalog.create_namespace("sales")
        tables.catalog.create_table(TABLE, ORDERS.schema, properties={"write.format.default": "orc"})

        land(tables, rows=2)

        assert native(loaded(tables)).scan().to_arrow().num_rows == 2


@pytest.mark.parametrize("packed", [b"", b"\x93\xa1x\x80\x90", msgspec.msgpack.encode({"metadata": "{}", "io": {}})])
def test_a_target_that_cannot_be_read_is_named(packed: bytes) -> None:
    with pytest.raises(CorruptData, match="write to"):
        decode_target(packed)
