"""Log and Topic: what a user has in hand.  Thin: parse, name, hand on to the engine.

    import headwater as hw

    with hw.open("data/") as log:
        orders = log.topic("orders", schema={"order_id": int, "amount": float})
        orders.append([{"order_id": 1, "amount": 9.5}])          # durable when it returns
        orders.read().to_pylist()

NOT HERE What any of it does: topics/engine.py and its neighbours.
"""

from __future__ import annotations

from headwater.api.log import Log
from headwater.api.opening import open
from headwater.api.registry import Registry
from headwater.api.scan import Scan
from headwater.api.topic import Topic
from headwater.lake.cut import Cut
from headwater.lake.report import LandingReport
from headwater.settings import LandingSettings, LogSettings, Settings
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
    "Log",
    "Topic",
    "NewTopic",
    "BYTES",
    "Lsn",
    "Settings",
    "LogSettings",
    "LandingSettings",
    "Appended",
    "LandingReport",
    "Rows",
    "Scan",
    "Cut",
    "Consumer",
    "Producer",
    "Transaction",
    "Registry",
]


def __dir__() -> list[str]:
    return __all__
