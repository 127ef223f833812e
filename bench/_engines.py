"""The engine of a log that is open in this process, for figures that only it has."""

from __future__ import annotations

import headwater as hw
from headwater.topics.engine import Engine


def engine_of(log: hw.Log) -> Engine:
    engine = log._engine
    assert isinstance(engine, Engine)
    return engine
