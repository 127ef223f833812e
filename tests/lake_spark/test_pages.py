"""Pages of the docs with blocks that need Spark: run whole, with a session that knows the tables of the page's log."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

import headwater as hw
from tests.docs.blocks import ROOT, blocks_of, pages
from tests.docs.running import said_and_shown
from tests.lake_spark.sessions import PYSPARK_SOCKETS, session_on

pytestmark = PYSPARK_SOCKETS
PAGES = [page for page in pages() if any("spark" in block.run for block in blocks_of((ROOT / page).read_text("utf-8")))]


@pytest.mark.parametrize("page", PAGES)
def test_every_program_of_a_page_runs_with_spark_and_says_what_the_page_shows(page: str, tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path), hw.open("data") as log:
        wanted = {name: value for name, value in log.spark_config().items() if name.startswith("spark.sql.catalog.")}
    spark = session_on(**{name.replace(".", "__"): value for name, value in wanted.items()})

    # A session is shared by many tests, so its JVM stands elsewhere than a reader's; /srv is the page's directory.
    text = (ROOT / page).read_text("utf-8").replace('"uri", "data/"', '"uri", "/srv/data/"')

    said, shown = said_and_shown(text, tmp_path, spark=spark)

    assert said == shown
