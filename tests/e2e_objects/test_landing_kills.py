"""A lander of a log in a bucket dies at each of the fourteen points of a landing; whoever lands next makes it whole.

By processes of this machine: each is forked from one that has imported everything and opened nothing.
HEADWATER_OBJECT_SPARK_KILLS says how many die on Spark besides (0 in CI, 14 in torture).
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e_lake.killed_driver import land_by_processes
from tests.e2e_lake.killed_landings import POINTS, Catalog, lands_although_it_dies
from tests.e2e_lake.test_spark_kills import killed_on_spark
from tests.e2e_objects.bucket_lakes import catalog_on_disk
from tests.servers.versitygw import S3Server, versitygw

SPARK_KILLS = int(os.environ.get("HEADWATER_OBJECT_SPARK_KILLS", "0"))
KILLED_WITHIN_S = 60


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with versitygw() as started, started.in_environment():
        yield started


def killed_among_processes(point: str, directory: str, catalog: Catalog) -> int:
    forking = multiprocessing.get_context("forkserver")
    forking.set_forkserver_preload(["tests.e2e_lake.killed_driver", "headwater.api", "headwater.lake.task"])
    process = forking.Process(target=land_by_processes, args=(point, directory, catalog, dict(os.environ)))
    process.start()
    process.join(KILLED_WITHIN_S)
    if process.exitcode is None:
        process.kill()
        raise AssertionError(f"a lander that was to die at {point} still lives")
    return process.exitcode


@pytest.mark.timeout(120)
@pytest.mark.parametrize("point", POINTS)
def test_a_lander_that_dies_leaves_nothing_that_the_next_does_not_make_whole(
    point: str, server: S3Server, tmp_path: Path
) -> None:
    catalog = catalog_on_disk(tmp_path)

    lands_although_it_dies(point, server.url(f"local-{point}"), catalog, killed_among_processes, rows=1000)


@pytest.mark.timeout(300)
@pytest.mark.skipif(not SPARK_KILLS, reason="drivers on Spark die in the long runs: HEADWATER_OBJECT_SPARK_KILLS")
@pytest.mark.parametrize("number", range(max(SPARK_KILLS, 1)))
def test_a_driver_that_dies_on_spark_leaves_nothing_either(number: int, server: S3Server, tmp_path: Path) -> None:
    point = POINTS[number % len(POINTS)]

    lands_although_it_dies(point, server.url(f"spark-{number}"), catalog_on_disk(tmp_path), killed_on_spark)
