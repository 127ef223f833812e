"""A Spark session for a command: one that is started here, or one of a Spark Connect server.

PROMISE  Without pyspark it is an InvalidRequest that says what to install; a Spark that does not answer is Unavailable.
         The session is ended afterwards.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from headwater.errors import InvalidRequest, Unavailable
from headwater.spark.session import INSTALL

NAME = "headwater"
_OF_A_SESSION = ("spark.sql.catalog.", "spark.sql.session.")


@contextmanager
def new_session(config: Mapping[str, str], *, master: str = "", connect: str = "") -> Iterator[Any]:
    """A session with these settings, on a master or through Spark Connect."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise InvalidRequest(f"Spark is not installed here: {INSTALL}", missing=error.name) from error
    builder = SparkSession.builder.appName(NAME)
    if master.startswith("local"):
        # Its tasks run on this machine: with this interpreter, which has the packages that they need.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for name, value in config.items():
        # What a server is made of, its packages and extensions, it must have by itself.
        if not connect or name.startswith(_OF_A_SESSION):
            builder = builder.config(name, value)
    try:
        spark = builder.remote(connect).getOrCreate() if connect else builder.master(master).getOrCreate()
    except Exception as error:  # pyspark's, py4j's, grpc's: they have nothing in common
        raise Unavailable(f"no Spark session at {connect or master}: {' '.join(str(error).split())[:300]}") from error
    try:
        yield spark
    finally:
        spark.stop()
