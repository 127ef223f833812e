"""Data files of a part of a view, as bytes that travel to whoever reads them.

    pack_files(part, files)     with the way to the files, and nothing that opens the catalog
    unpack_files(data)          the part and its files again, as far as reading goes by them

PROMISE  Nothing is pickled: what comes back can only be values.  Reading `unpack_files(pack_files(part, files))` by
         table_rows.PartReading gives the rows of these files, deletes applied.
NOT HERE Which files: whoever packs them has chosen, because what files say of themselves stays where it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import StaticTable, Table

from headwater.errors import CorruptData
from headwater.lake.file_cache import LiveFile
from headwater.lake.tables import TableState
from headwater.lake.view_plan import TablePart
from headwater.lake.write_target import decode_target, encode_target


class _File(msgspec.Struct, frozen=True, array_like=True):
    path: str
    deletes: tuple[tuple[str, str], ...]
    """Path and format of each."""


class _Packed(msgspec.Struct, frozen=True, array_like=True):
    target: bytes
    table: str
    snapshot_id: int
    lsn_from: int
    lsn_to: int
    whole: bool
    unmarked: bool
    files: tuple[_File, ...]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Packed)


def pack_files(part: TablePart, files: Sequence[LiveFile]) -> bytes:
    """These files of a part."""
    table = part.state.native
    assert isinstance(table, Table), "a table of pyiceberg"
    return _encoder.encode(
        _Packed(
            encode_target(table.metadata, table.schema(), table.io.properties, ()),
            part.state.name,
            part.snapshot_id,
            part.lsn_from,
            part.lsn_to,
            part.whole,
            part.unmarked,
            tuple(
                _File(live.path, tuple((each.file_path, each.file_format.value) for each in live.deletes))
                for live in files
            ),
        )
    )


def unpack_files(data: bytes) -> tuple[TablePart, tuple[LiveFile, ...]]:
    """The part and the files again."""
    try:
        packed = _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise CorruptData("what a task was given to read cannot be read", cause=str(error)) from error
    target = decode_target(packed.target)
    state = TableState(
        name=packed.table,
        uuid=str(target.metadata.table_uuid),
        format_version=target.metadata.format_version,
        schema_id=target.metadata.current_schema_id,
        spec_id=target.metadata.default_spec_id,
        properties={},
        branches={},
        snapshots={},
        native=StaticTable(
            tuple(packed.table.split(".")),
            target.metadata,
            metadata_location="",
            io=target.io,
            catalog=NoopCatalog("headwater"),
        ),
    )
    part = TablePart(state, packed.snapshot_id, packed.lsn_from, packed.lsn_to, packed.whole, packed.unmarked)
    return part, tuple(
        LiveFile(
            _file(each.path, "PARQUET", DataFileContent.DATA),
            tuple(_file(path, format_, DataFileContent.POSITION_DELETES) for path, format_ in each.deletes),
        )
        for each in packed.files
    )


def _file(path: str, format_: str, content: DataFileContent) -> DataFile:
    return DataFile.from_args(content=content, file_path=path, file_format=FileFormat(format_))
