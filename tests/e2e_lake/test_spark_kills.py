"""A real Spark driver dies at each of the fourteen points of a landing; whoever lands next makes it whole.

HEADWATER_SPARK_KILLS says how many die (14 in CI).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e_lake.killed_landings import POINTS, Catalog, lands_although_it_dies

ROOT = Path(__file__).resolve().parents[2]
KILLS = int(os.environ.get("HEADWATER_SPARK_KILLS", "14"))


def killed_on_spark(point: str, directory: str, catalog: Catalog) -> int:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.e2e_lake.killed_driver", point, directory, json.dumps(catalog)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
    )
    print(ended.stderr[-2000:])
    return ended.returncode


@pytest.mark.timeout(300)
@pytest.mark.parametrize("point", [POINTS[number % len(POINTS)] for number in range(KILLS)])
def test_a_driver_that_dies_leaves_nothing_that_the_next_lander_does_not_make_whole(point: str, tmp_path: Path) -> None:
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/lake",
    }

    lands_although_it_dies(point, str(tmp_path / "data"), catalog, killed_on_spark)
