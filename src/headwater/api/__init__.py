"""Log and Topic: what a user has in hand.  Thin: parse, name, hand on to the engine.

    import headwater as hw

    with hw.open("data/") as log:
        orders = log.topic("orders", schema={"order_id": int, "amount": float})
        orders.append([{"order_id": 1, "amount": 9.5}])          # durable when it returns
        orders.read().to_pylist()

NOT HERE What any of it does: topics/engine.py and its neighbours.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.api.async_consumer import AsyncConsumer
    from headwater.api.async_writing import AsyncTransaction
    from headwater.api.asynchronous import AsyncLog, AsyncTopic, connect_async
    from headwater.api.connecting import connect
    from headwater.api.log import Log
    from headwater.api.opening import open
    from headwater.api.registry import Registry
    from headwater.api.scan import Scan
    from headwater.api.topic import Topic
    from headwater.lake.cut import Cut
    from headwater.lake.report import LandingReport
    from headwater.settings import ClientSettings, LandingSettings, LogSettings, Settings
    from headwater.topics.answers import Appended
    from headwater.topics.consumer import Consumer
    from headwater.topics.positions import Lsn
    from headwater.topics.producers import Producer
    from headwater.topics.reading import Rows
    from headwater.topics.schema import BYTES
    from headwater.topics.topic import NewTopic
    from headwater.topics.transactions import Transaction

__all__ = [
    "open",
    "connect",
    "connect_async",
    "Log",
    "Topic",
    "NewTopic",
    "BYTES",
    "Lsn",
    "Settings",
    "LogSettings",
    "LandingSettings",
    "ClientSettings",
    "Appended",
    "LandingReport",
    "Rows",
    "Scan",
    "Cut",
    "Consumer",
    "Producer",
    "Transaction",
    "Registry",
    "AsyncLog",
    "AsyncTopic",
    "AsyncConsumer",
    "AsyncTransaction",
]

# Where each is: it is loaded when it is first asked for, so that a client loads no engine.
_HOMES = {
    "open": "headwater.api.opening",
    "connect": "headwater.api.connecting",
    "connect_async": "headwater.api.asynchronous",
    "Log": "headwater.api.log",
    "Topic": "headwater.api.topic",
    "NewTopic": "headwater.topics.topic",
    "BYTES": "headwater.topics.schema",
    "Lsn": "headwater.topics.positions",
    "Settings": "headwater.settings",
    "LogSettings": "headwater.settings",
    "LandingSettings": "headwater.settings",
    "ClientSettings": "headwater.settings",
    "Appended": "headwater.topics.answers",
    "LandingReport": "headwater.lake.report",
    "Rows": "headwater.topics.reading",
    "Scan": "headwater.api.scan",
    "Cut": "headwater.lake.cut",
    "Consumer": "headwater.topics.consumer",
    "Producer": "headwater.topics.producers",
    "Transaction": "headwater.topics.transactions",
    "Registry": "headwater.api.registry",
    "AsyncLog": "headwater.api.asynchronous",
    "AsyncTopic": "headwater.api.asynchronous",
    "AsyncConsumer": "headwater.api.async_consumer",
    "AsyncTransaction": "headwater.api.async_writing",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'headwater.api' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return __all__
