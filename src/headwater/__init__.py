"""A durable, partitioned, transactional event log for Python.

    import headwater as hw

    with hw.open("data/") as log:
        orders = log.topic("orders", schema={"order_id": int, "amount": float})
        orders.append([{"order_id": 1, "amount": 9.5}])          # durable when it returns
        orders.read().to_pylist()

Everything but the errors is loaded when it is first asked for: `import headwater.log` loads no pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater import errors
from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from headwater.api import (
        BYTES,
        Appended,
        AsyncConsumer,
        AsyncLog,
        AsyncTopic,
        AsyncTransaction,
        ClientSettings,
        Consumer,
        Cut,
        LandingReport,
        LandingSettings,
        Log,
        LogSettings,
        Lsn,
        NewTopic,
        Producer,
        Registry,
        Rows,
        Scan,
        Settings,
        Topic,
        Transaction,
        connect,
        connect_async,
        open,
    )

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
    "HeadwaterError",
    "errors",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("headwater")
    if name in __all__:
        from headwater import api

        return getattr(api, name)
    raise AttributeError(f"module 'headwater' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__", "__doc__", "__file__", "__name__", "__path__"])
