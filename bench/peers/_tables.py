"""Iceberg tables of peers: made with the properties that Headwater gives its own, in a catalog of the same kind.

PROMISE  Nothing is tuned on one side only: every table here has the properties of a landed one, but for the metrics of
         a column that it has not, and its SQLite catalog is opened with the same write-ahead log and the same waits.
         `weigh` counts what the table's newest state needs to be read: not what older snapshots have left on the disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from headwater.lake.catalog import CatalogPlace, catalog_place
from headwater.lake.catalog_connection import open_catalog
from headwater.lake.shape import LSN_METRICS, TABLE_PROPERTIES

NAMESPACE = "bench"
PLAIN_PROPERTIES = {name: value for name, value in TABLE_PROPERTIES.items() if name != LSN_METRICS}


def plain_catalog(directory: Path) -> Catalog:
    """A catalog of a peer's own: SQLite in this directory, tables beside it."""
    directory.mkdir(parents=True, exist_ok=True)
    catalog = open_catalog(catalog_place(None, directory=str(directory)))
    catalog.create_namespace_if_not_exists(NAMESPACE)
    return catalog


def catalog_at(place: CatalogPlace) -> Catalog:
    """A connection of pyiceberg's to a catalog that a log has."""
    return open_catalog(place)


def plain_table(catalog: Catalog, name: str, schema: pa.Schema) -> Table:
    """An empty table of these columns."""
    return catalog.create_table(f"{NAMESPACE}.{name}", schema=schema, properties=PLAIN_PROPERTIES)


def rows_in(table: Table) -> int:
    """What the newest snapshot says."""
    snapshot = table.current_snapshot()
    return 0 if snapshot is None or snapshot.summary is None else int(snapshot.summary["total-records"] or 0)


@dataclass(frozen=True)
class Weight:
    """What a reader of the table's newest state has before it."""

    data_files: int
    data_bytes: int
    snapshots: int
    metadata_json_bytes: int
    manifests: int
    manifest_bytes: int
    """Of the manifests and of the list of them."""


def weigh(table: Table) -> Weight:
    table.refresh()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    manifests = snapshot.manifests(table.io)
    files: Any = table.inspect.files()
    return Weight(
        data_files=files.num_rows,
        data_bytes=sum(files["file_size_in_bytes"].to_pylist()),
        snapshots=len(table.metadata.snapshots),
        metadata_json_bytes=_size(table.metadata_location),
        manifests=len(manifests),
        manifest_bytes=_size(snapshot.manifest_list) + sum(each.manifest_length for each in manifests),
    )


def _size(location: str) -> int:
    return Path(urlsplit(location).path).stat().st_size
