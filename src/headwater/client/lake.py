"""What the lake finds here by name (lake/elsewhere.py), and a client's lake: its own catalog over a server's log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headwater.client.connecting import connect_to
from headwater.client.connection import Connection
from headwater.client.frames import frames_of
from headwater.client.source import ServedSource
from headwater.lake.landing import Lake
from headwater.lake.work import LandWork
from headwater.settings import LandingSettings


def open_log(address: str) -> ServedSource:
    """The log at this address, by a connection of its own."""
    return ServedSource(connect_to(address), owns_connection=True)


def read_frames(work: LandWork) -> Iterator[memoryview]:
    """The frames of a work, by a connection of its own: a task is begun anywhere, with nothing but its work."""
    connection = connect_to(work.directory)
    try:
        yield from frames_of(connection, work)
    finally:
        connection.close()


def lake_over(
    connection: Connection,
    *,
    catalog: str | Mapping[str, Any] | None = None,
    spark_catalog: str | None = None,
    landing: LandingSettings | None = None,
) -> Lake:
    """The lake of whoever is connected: tables of a catalog of its own, rows of the server's log."""
    source = ServedSource(connection)
    return Lake(
        None,
        source.directory,
        clock=connection.clock,
        entropy=connection.entropy,
        catalog=catalog,
        spark_catalog=spark_catalog,
        landing=landing,
        ledger=source.ledger,
        log=source,
    )
