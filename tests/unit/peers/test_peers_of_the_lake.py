"""The bench of peers, where it could be wrong without anybody's notice: the same rows on both sides, the same waits."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from bench._keyed import changes_of
from bench._kilobyte_rows import SCHEMA, kilobyte_rows
from bench.peers._slow_catalog import NAME, SlowCatalog
from bench.peers._spark_streams import json_lines
from bench.peers._tables import plain_catalog, plain_table, rows_in, weigh
from bench.peers.small_commits import ENDS, ends


def test_messages_have_the_same_rows_as_batches_and_about_1_kb_each() -> None:
    rows = kilobyte_rows(5, 3)

    found = [json.loads(line) for line in json_lines(rows)]

    assert pa.Table.from_pylist(found, SCHEMA).to_pylist() == rows.to_pylist()
    assert all(1_000 < len(line) < 1_250 for line in json_lines(rows))
    assert kilobyte_rows(5, 3).equals(rows)


def test_no_key_is_changed_twice_and_a_tenth_of_them_is_deleted() -> None:
    rows, deleted = changes_of(10_000, 1)

    changed = rows["id"].to_pylist()
    assert (len(changed), len(deleted)) == (90, 10)
    assert len({*changed, *deleted.to_pylist()}) == 100


def test_the_first_and_the_last_commits_do_not_overlap() -> None:
    assert ends([float(number) for number in range(1, 9)]) == (1.5, 7.5)
    assert ends([1.0] * ENDS + [5.0] * 1_000 + [9.0] * ENDS) == (1.0, 9.0)
    assert ends([3.0]) == (3.0, 3.0)


def test_a_table_is_weighed_by_what_its_newest_snapshot_needs(tmp_path: Path) -> None:
    with closing(plain_catalog(tmp_path)) as catalog:
        table = plain_table(catalog, "t", SCHEMA)
        for number in range(3):
            table.append(pa.Table.from_batches([kilobyte_rows(number, 1)]))
        before = weigh(table)
        table.delete("id = 0")
        after = weigh(table)

        assert (before.data_files, before.snapshots, rows_in(table)) == (3, 3, 2)
        assert (after.data_files, after.snapshots) == (2, 4)
        files = list(tmp_path.rglob("*.parquet"))
        assert before.data_bytes == sum(path.stat().st_size for path in files) > after.data_bytes


def test_each_commit_through_the_slow_catalog_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    properties = {"py-catalog-impl": NAME, "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}"}
    with closing(load_catalog("slow", **properties)) as catalog:
        catalog.create_namespace("bench")
        table = plain_table(catalog, "t", SCHEMA)
        monkeypatch.setattr(SlowCatalog, "delay_s", 0.2)
        begun_s = time.monotonic()
        table.append(pa.Table.from_batches([kilobyte_rows(0, 1)]))

        assert time.monotonic() - begun_s >= 0.2
        assert isinstance(catalog, SlowCatalog)
