"""Which Spark a command works with: `--spark MASTER`, `--connect URL`, or none.

PROMISE  pyspark is loaded only where one of them is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from headwater.errors import InvalidRequest

SparkMaster = Annotated[
    str | None,
    typer.Option(
        "--spark",
        metavar="MASTER",
        help="Let Spark do the work, at this master: local[4], spark://host:7077, yarn.",
        show_default=False,
    ),
]
SparkConnect = Annotated[
    str | None,
    typer.Option(
        "--connect", metavar="URL", help="Let Spark do the work, through Spark Connect: sc://host.", show_default=False
    ),
]


@contextmanager
def spark_session(
    master: str | None, connect: str | None, config: Callable[[], Mapping[str, str]] | None = None
) -> Iterator[Any]:
    """The session that was asked for, with these settings, or None."""
    if master is not None and connect is not None:
        raise InvalidRequest("give --spark or --connect, not both")
    if master is None and connect is None:
        yield None
        return
    from headwater.spark.new_session import new_session

    with new_session(config() if config is not None else {}, master=master or "", connect=connect or "") as spark:
        yield spark
