"""Connecting to a server: the same Log, over an engine that asks it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.api.log import Log
from headwater.client.connecting import connect_to
from headwater.client.engine import ClientEngine
from headwater.client.lake import lake_over
from headwater.clock import Clock, Entropy, system_entropy
from headwater.settings import ClientSettings, Settings


def connect(
    where: str,
    *,
    token: str | None = None,
    catalog: str | Mapping[str, Any] | None = None,
    spark_catalog: str | None = None,
    client: ClientSettings | None = None,
    settings: Settings | None = None,
    clock: Clock | None = None,
    entropy: Entropy = system_entropy,
) -> Log:
    """The log behind a server: "hw://127.0.0.1:7070", or "hws://host:7070?token_file=..." with TLS.

    What `hw.open` promises holds here too: an append is durable when it returns, and errors are the same.  A server
    that was restarted, or a connection that broke, is waited for, and what was on its way is sent again, once.
    `catalog` is where the tables are, as this process reaches them: landings, audits and views are done here.
    docs/clients.md says the rest.
    """
    connection = connect_to(where, token=token, settings=client, clock=clock, entropy=entropy)
    connection.hello  # noqa: B018  so that a wrong address or token is told now
    engine = ClientEngine(connection, settings)
    lake = lake_over(connection, catalog=catalog, spark_catalog=spark_catalog, landing=engine.settings.landing)
    return Log(engine, connection.address.text, lake)
