"""Logs in a bucket with tables beside them, and a process that only reads both.

    catalog = catalog_on_disk(tmp_path)              SQLite and a warehouse in a folder
    catalog = catalog_in_bucket(server, tmp_path)    SQLite in a folder, the warehouse in the bucket
    told = seen_elsewhere(url, catalog)              what another process, with no file of this one, finds there

python -m tests.e2e_objects.bucket_lakes URL CATALOG     is that process; it claims nothing
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import headwater as hw
from headwater.settings import KIB, LogSettings
from tests.servers.versitygw import S3Server

ROOT = Path(__file__).resolve().parents[2]
ORDER = {"id": int, "note": str}
SETTINGS = hw.Settings(
    log=LogSettings(segment_size_bytes_max=64 * KIB, write_body_bytes_max=32 * KIB, deletion_grace_s=0.0),
    upkeep_interval_s=0,
)
"""A few thousand rows fill some segments, and what may be deleted goes at once."""

Catalog = dict[str, str]
Place = tuple[int, int, int]
"""Partition, offset and id of a row."""


def catalog_on_disk(folder: Path) -> Catalog:
    return {
        "name": "lake",
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"file://{folder}/lake",
    }


def catalog_in_bucket(server: S3Server, folder: Path) -> Catalog:
    return {
        **catalog_on_disk(folder),
        "warehouse": server.url("lake"),
        "s3.endpoint": server.endpoint,
        "s3.access-key-id": server.access_key,
        "s3.secret-access-key": server.secret_key,
        "s3.region": "us-east-1",
    }


def orders(numbers: range) -> list[dict[str, Any]]:
    return [{"id": number, "note": f"order {number} " + "." * 30} for number in numbers]


def append_orders(topic: hw.Topic, numbers: range, *, rows: int = 100) -> None:
    """Many small writes: each is a slot, or some of them are."""
    for first in range(numbers.start, numbers.stop, rows):
        topic.append(orders(range(first, min(first + rows, numbers.stop))))


def places(rows: Any) -> list[Place]:
    """The rows of a read or of a scan, by partition and offset; the same row twice is there twice."""
    found = rows.to_arrow().select(["_hw_partition", "_hw_offset", "id"]).to_pydict()
    return sorted(zip(found["_hw_partition"], found["_hw_offset"], found["id"], strict=True))


PLACE = ("_hw_partition", "_hw_offset", "id")


def scanned(topic: hw.Topic, *, as_of: Any = None) -> list[Place]:
    return places(topic.scan(PLACE, as_of=as_of))


def seen_elsewhere(url: str, catalog: Mapping[str, str], cut: str = "") -> dict[str, Any]:
    """What a new process finds: the view of each topic, what the log holds of it, and whether an audit passes."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.e2e_objects.bucket_lakes", url, json.dumps(catalog), cut],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def main() -> None:
    url, catalog, cut = sys.argv[1:]
    with hw.open(url, catalog=json.loads(catalog), settings=SETTINGS) as log:
        told = {
            each.name: {
                "scan": scanned(log[each.name], as_of=cut or None),
                "log": places(log[each.name].read(system_columns=True)),
            }
            for each in log.topics()
        }
        status = log.status()
        print(json.dumps({"topics": told, "owner": status.owner, "segments": status.segments}))


if __name__ == "__main__":
    main()
