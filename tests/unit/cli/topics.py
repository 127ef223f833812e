"""A data directory with topics on a real disk, and the commands called on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

import headwater as hw
from headwater.cli.main import app
from headwater.cli.schema_text import parse_schema
from headwater.settings import LogSettings

# Nothing is kept in reserve: these directories are small, and there are many of them.
SETTINGS = hw.Settings(log=LogSettings(reserve_bytes=0), journal=LogSettings(reserve_bytes=0))
ORDERS = "order_id:int64,amount:double?,note:string?"


def make_topics(data: Path) -> Path:
    """`orders` with three rows, `customers` with a key, and `raw` of bytes."""
    with hw.open(data, settings=SETTINGS) as log:
        orders = log.topic("orders", schema=parse_schema(ORDERS), partitions=2)
        log.topic("customers", schema=parse_schema("id:int64,name:string?"), key="id", cleanup="compact")
        log.topic("raw", schema=hw.BYTES)
        orders.append([{"order_id": 1, "amount": 9.5}, {"order_id": 2, "note": "second"}], partition=0)
        orders.append([{"order_id": 3}], partition=1)
    return data


def rows_of(data: Path, topic: str, **options: Any) -> list[dict[str, Any]]:
    with hw.open(data, settings=SETTINGS) as log:
        return log[topic].read(**options).to_pylist()


def run(data: Path | str, *arguments: str | Path, given: str | bytes | None = None, **environment: str) -> Result:
    """The command on this data directory, or on a server; `given` is what is piped in."""
    variables = {"HEADWATER_DATA": str(data), **environment}
    return CliRunner().invoke(app, [str(each) for each in arguments], env=variables, input=given)


def run_json(data: Path | str, *arguments: str | Path, given: str | bytes | None = None) -> dict[str, Any]:
    result = run(data, *arguments, "--json", given=given)
    told = json.loads(result.stdout)
    assert isinstance(told, dict)
    assert told["version"] == 1
    assert told["command"] == " ".join(str(each) for each in arguments[: len(told["command"].split())])
    return told
