"""What each extra is for, asked for without it: refused, and the message names the extra.

The extras that are not installed are the arguments.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import headwater as hw

POSTGRES = {"type": "sql", "uri": "postgresql+psycopg2://localhost/none", "warehouse": "tables"}


def by_command(*words: str) -> None:
    """What a command says of a missing extra; it is raised, as the library would."""
    ended = subprocess.run(["headwater", *words], capture_output=True, text=True, timeout=180)
    assert ended.returncode == 2 and "Traceback" not in ended.stderr, ended.stderr
    raise hw.errors.InvalidRequest(ended.stderr)


def land_in_postgres() -> None:
    with hw.open("elsewhere", catalog=POSTGRES) as log:
        log.topic("orders", schema={"order_id": int}, table="sales.orders").append([{"order_id": 1}])
        log.land()


with hw.open("missing") as log:
    orders = log.topic("orders", schema={"order_id": int}, table="sales.orders")
    orders.append([{"order_id": 1}])
    asked: dict[str, Callable[[], Any]] = {
        "lake": log.land,
        "duckdb": lambda: log.duckdb("orders"),
        "postgres": land_in_postgres,
        "spark": log.spark_config,
        "objects": lambda: hw.open("s3://bucket/prefix"),
        "server": lambda: by_command("serve", "served", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"),
    }
    for extra in sys.argv[1:]:
        if extra == "postgres" and "lake" in sys.argv:
            continue  # nothing lands at all without `lake`
        try:
            asked[extra]()
        except hw.errors.InvalidRequest as error:
            if f"pip install 'headwater[{extra}]'" not in str(error):
                sys.exit(f"{extra}: {error}")
        else:
            sys.exit(f"{extra} is missing, and was not missed")
print(f"{', '.join(sys.argv[1:])}: each is named")
