"""A Spark session for a command: one that is started here, or one of a Spark Connect server.

PROMISE  Without pyspark it is an InvalidRequest that says what to install; a Spark that does not answer is Unavailable.
         The session is ended afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from headwater.errors import InvalidRequest, Unavailable
from headwater.spark.session import INSTALL

NAME = "headwater"


@contextmanager
def new_session(config: Mapping[str, str], *, master: str = "", connect: str = "") -> Iterator[Any]:
    """A session with these settings, on a master or through Spark Connect."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise InvalidRequest(f"Spark is not installed here: {INSTALL}", missing=error.name) from error
    builder = SparkSession.builder.appName(NAME)
    for name, value in config.items():
        builder = builder.config(name, value)
    try:
        spark = builder.remote(connect).getOrCreate() if connect else builder.master(master).getOrCreate()
    except Exception as error:  # pyspark's, py4j's, grpc's: they have nothing in common
        raise Unavailable(f"no Spark session at {connect or master}: {' '.join(str(error).split())[:300]}") from error
    try:
        yield spark
    finally:
        spark.stop()
