"""A delete file in a real table, as an engine that merges on read leaves it.  pyiceberg reads them and writes none."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.typedef import Record


class _DeleteManifest(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def add_delete_file(
    table: Table,
    place: int = 0,
    *,
    data: str | None = None,
    partition: Record | None = None,
    content: DataFileContent = DataFileContent.POSITION_DELETES,
) -> str:
    """The row at this place of a data file of main's goes; of one of them, if none is named.  Returns the path of the
    delete file."""
    head = table.current_snapshot()
    assert head is not None
    number = head.snapshot_id + 1
    sequence = (head.sequence_number or 0) + 1
    data = data or next(iter(table.scan().plan_files())).file.file_path
    path, manifest_path, list_path = (
        f"{table.location()}/{name}"
        for name in (f"data/{number}-deletes.parquet", f"metadata/{number}-m0.avro", f"metadata/snap-{number}.avro")
    )
    with table.io.new_output(path).create() as stream:
        pq.write_table(pa.table({"file_path": [data], "pos": [place]}), stream)
    file = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition or Record(),
        record_count=1,
        file_size_in_bytes=len(table.io.new_input(path)),
    )
    file.spec_id = table.spec().spec_id
    output = table.io.new_output(manifest_path)
    with _DeleteManifest(table.spec(), table.schema(), output, number, "deflate") as manifest:
        manifest.add_entry(
            ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=number, data_file=file)
        )
    with write_manifest_list(
        2, table.io.new_output(list_path), number, head.snapshot_id, sequence, "deflate"
    ) as listing:
        listing.add_manifests([*head.manifests(table.io), manifest.to_manifest_file()])
    snapshot = Snapshot.model_validate(
        {
            "snapshot-id": number,
            "parent-snapshot-id": head.snapshot_id,
            "sequence-number": sequence,
            "timestamp-ms": head.timestamp_ms + 1,
            "manifest-list": list_path,
            "summary": Summary(Operation.OVERWRITE),
            "schema-id": table.metadata.current_schema_id,
        }
    )
    move = SetSnapshotRefUpdate.model_validate(
        {"ref-name": "main", "type": SnapshotRefType.BRANCH, "snapshot-id": number}
    )
    table.catalog.commit_table(table, (), (AddSnapshotUpdate(snapshot=snapshot), move))
    return path
