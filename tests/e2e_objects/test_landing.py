"""Landing, views, audits, erasures and restores of a log that lies in a bucket, on a real S3 server.

Tasks are local processes: they open the bucket themselves, by its url and their environment, and no server of ours is
between them and the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import InvalidRequest
from headwater.lake.catalog import catalog_place
from headwater.lake.from_lake import restore_log
from headwater.lake.runner import LocalProcesses
from headwater.storage.places import open_files
from tests.e2e_lake.same_rows import check_history, compare
from tests.e2e_objects.bucket_lakes import (
    ORDER,
    SETTINGS,
    append_orders,
    catalog_in_bucket,
    catalog_on_disk,
    scanned,
    seen_elsewhere,
)
from tests.servers.versitygw import S3Server, versitygw


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with versitygw() as started, started.in_environment():
        yield started


def test_every_row_of_a_log_in_a_bucket_lands_once_and_is_served_to_a_process_that_only_reads(
    server: S3Server, tmp_path: Path
) -> None:
    url, catalog = server.url("landed"), catalog_on_disk(tmp_path)
    with hw.open(url, catalog=catalog, settings=SETTINGS) as log:
        topic = log.topic("orders", ORDER, table="sales.orders", partitions=3)
        append_orders(topic, range(4000))
        rows = [topic.read(system_columns=True).to_arrow()]

        # By processes of their own, though there is little to do; then here, on top of that.
        with LocalProcesses(2, in_process_bytes_max=0) as processes:
            assert log._beside().land(log._viewed().source, None, runner=processes)["orders"].rows == 4000
        start = hw.Lsn(log.status().durable_lsn + 1)
        append_orders(topic, range(4000, 5000))
        rows.append(topic.read(start, system_columns=True).to_arrow())
        assert log.land()["orders"].rows == 1000

        tables = catalog_place(catalog, directory=url).connect()
        table = tables.catalog.load_table("sales.orders")
        compare(pa.concat_tables(rows), table)
        assert len(check_history(table)) == 2
        tables.close()

        # What is verified has gone from the log; table and tail are one, now and at a cut.
        append_orders(topic, range(5000, 5500))
        assert log.status().first_lsn > 1
        everything = scanned(topic)
        assert sorted(row[2] for row in everything) == list(range(5500))
        cut = log.cut("orders")
        append_orders(topic, range(5500, 5600))
        assert log.land()["orders"].outcome == "landed"
        assert scanned(topic, as_of=cut) == everything
        assert log.audit(full=True).passed

        told = seen_elsewhere(url, catalog, str(cut))["topics"]["orders"]
        assert [tuple(row) for row in told["scan"]] == everything
        assert sorted(row[2] for row in told["log"]) == list(range(5600))


def test_the_tables_may_lie_in_the_bucket_too(server: S3Server, tmp_path: Path) -> None:
    url, catalog = server.url("both"), catalog_in_bucket(server, tmp_path)
    with hw.open(url, catalog=catalog, settings=SETTINGS) as log:
        topic = log.topic("orders", ORDER, table="sales.orders", partitions=2)
        append_orders(topic, range(1500))
        with LocalProcesses(2, in_process_bytes_max=0) as processes:
            assert log._beside().land(log._viewed().source, None, runner=processes)["orders"].rows == 1500
        append_orders(topic, range(1500, 2000))

        assert sorted(row[2] for row in scanned(topic)) == list(range(2000))
        assert log.audit(full=True).passed

    told = seen_elsewhere(url, catalog)
    assert sorted(row[2] for row in told["topics"]["orders"]["scan"]) == list(range(2000))
    assert not told["owner"]


def test_rows_are_erased_from_slots_segments_and_tables(server: S3Server, tmp_path: Path) -> None:
    url, catalog = server.url("erased"), catalog_on_disk(tmp_path)
    with hw.open(url, catalog=catalog, settings=SETTINGS) as log:
        topic = log.topic("orders", ORDER, table="sales.orders")
        append_orders(topic, range(1000))
        log.land()
        append_orders(topic, range(1000, 3000))

        report = log.erase("orders", "id = 700 or id = 1500 or id = 2999", reason="asked for")

        left = [number for number in range(3000) if number not in {700, 1500, 2999}]
        assert report.rows == 3
        assert sorted(row[2] for row in scanned(topic)) == left
        assert log.land()["orders"].outcome == "nothing"
        assert log.audit(full=True).passed
    files = open_files(url)
    for name in files.list("log"):
        file = files.open(f"log/{name}")
        assert b"order 1500 " not in file.read_at(0, file.size()), name
    told = seen_elsewhere(url, catalog)["topics"]["orders"]
    assert sorted(row[2] for row in told["scan"]) == left


def test_a_log_whose_bucket_is_lost_goes_on_in_another_from_its_tables(server: S3Server, tmp_path: Path) -> None:
    catalog = catalog_on_disk(tmp_path)
    with hw.open(server.url("lost"), catalog=catalog, settings=SETTINGS) as log:
        topic = log.topic("orders", ORDER, table="sales.orders", partitions=2)
        append_orders(topic, range(2000))
        log.land()
        append_orders(topic, range(2000, 2100))
        before = scanned(topic)
    url = server.url("found")

    report = restore_log(url, catalog=catalog, settings=SETTINGS)

    assert [(each.name, each.rows) for each in report.topics] == [("orders", 2000)]
    with pytest.raises(InvalidRequest, match="holds a log"):
        restore_log(url, catalog=catalog, settings=SETTINGS)
    with hw.open(url, catalog=catalog, settings=SETTINGS) as log:
        topic = log["orders"]
        assert set(scanned(topic)) < set(before)
        append_orders(topic, range(5000, 5500))
        assert log.land()["orders"].rows == 500
        assert log.audit(full=True).passed
    told = seen_elsewhere(url, catalog)["topics"]["orders"]
    assert sorted(row[2] for row in told["scan"]) == [*range(2000), *range(5000, 5500)]


def test_a_bucket_has_no_catalog_of_its_own(server: S3Server) -> None:
    with hw.open(server.url("no-catalog"), settings=SETTINGS) as log:
        log.topic("orders", ORDER, table="sales.orders").append({"id": 1, "note": "one"})

        with pytest.raises(InvalidRequest, match="say with catalog="):
            log.land()
        assert log.status().landing[0].lag_rows == 1
