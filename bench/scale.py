"""What many megabytes a second over many topics need: the tables of docs/scale.md.

    python -m bench.scale            prints them
    python -m bench.scale --write    writes them into the page

Pure arithmetic, no measuring: MEASURED is what benches here have said, ASSUMED what could not be measured here, PRICES
a public list.  All else follows from them, and is extrapolated.

PROMISE  The page shows these tables and no others: tests/unit/test_scale_page.py.
"""

from __future__ import annotations

import math
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from bench._store_model import (
    CHECKPOINT_GETS,
    CHECKPOINT_LISTS,
    CHECKPOINT_PUTS,
    LEASE_PUTS_PER_S,
    is_merged,
    puts_per_roll,
)
from headwater.log.object_device import SLOTS_MAX
from headwater.log.slots import WINDOW
from headwater.settings import KIB, MIB, bucket_settings

PAGE = Path(__file__).parent.parent / "docs" / "scale.md"
MB = 1e6
MONTH_S = 30 * 86_400
RATES_MB_PER_S = (10, 100, 1_000)
TOPICS = (10, 1_000)
FRESHNESS_S = (60.0, 600.0, 3_600.0)
ENOUGH_BYTES = (bucket_settings().log.slot_bytes_enough, 2 * MIB, 4 * MIB)


@dataclass(frozen=True)
class Figure:
    """A number, and where it comes from."""

    value: float
    unit: str
    what: str
    source: str


# What was measured here: two cores that the S3 server shares -------------------------------------------------------

OWNER_MB_PER_S = Figure(150, "MB/s", "one owner: appends of 1 MB from 8 threads", "bench objects")
OWNER_CPU_S_PER_GB = Figure(3.0, "s/GB", "CPU of that owner's process", "bench objects")
OWNER_ROWS_PER_S = Figure(8_000, "rows/s", "one owner: a row an append, from 64 threads", "bench objects")
LANDING_MB_PER_S = Figure(33, "MB/s", "landing from the bucket by processes on both cores", "bench objects")
TABLE_SHARE = Figure(0.6, "", "bytes of a table's files for a byte of the log (random text)", "bench objects")
TRIM_BYTES = Figure(540, "B", "what `trim` has for each segment that is kept", "bench objects")
LEDGER_GETS = Figure(11, "GET", "of the ledger for each topic that a round lands", "counted, 30 topics")
CATALOG_ROUND_TOPICS = Figure(1_000, "topics", "landed in one round, each commit 300 ms longer", "bench land")
CATALOG_ROUND_S = Figure(57, "s", "that round", "bench land")
MEASURED = (
    OWNER_MB_PER_S,
    OWNER_CPU_S_PER_GB,
    OWNER_ROWS_PER_S,
    LANDING_MB_PER_S,
    TABLE_SHARE,
    TRIM_BYTES,
    LEDGER_GETS,
    CATALOG_ROUND_TOPICS,
    CATALOG_ROUND_S,
)

# What was assumed --------------------------------------------------------------------------------------------------

PLANNED = Figure(0.5, "", "share of what an owner or a core can do that is planned with", "assumed")
IDLE_CORES = Figure(0.1, "cores", "of an owner with little to do", "assumed")
PUT_S = Figure(0.06, "s", "a put of 1 to 4 MiB", "assumed; on loopback 5 to 20 ms")
LAKE_PUTS = Figure(4, "PUT", "of a landing: data file, manifest, manifest list, metadata", "Iceberg's format")
TOPICS_PER_LOG = Figure(1_000, "topics", "in a log", "assumed; tests/e2e/test_scale.py holds so many")
_LIST = "S3 Standard, us-east-1, November 2026"
PUT_USD = Figure(0.005, "$ per 1,000", "PUT and LIST", _LIST)
GET_USD = Figure(0.0004, "$ per 1,000", "GET; DELETE is free", _LIST)
STORED_USD = Figure(0.023, "$ per GB and month", "stored; transfer in is free", _LIST)
CORE_USD = Figure(0.04, "$ per hour", "a core: half of a VM of two, on demand", "November 2026")
ASSUMED = (PLANNED, IDLE_CORES, PUT_S, LAKE_PUTS, TOPICS_PER_LOG, PUT_USD, GET_USD, STORED_USD, CORE_USD)


@dataclass(frozen=True)
class Load:
    mb_per_s: float
    topics: int
    freshness_s: float = FRESHNESS_S[0]
    enough_bytes: int = ENOUGH_BYTES[0]
    """`slot_bytes_enough`: with so much a commit does not wait for more."""


@dataclass(frozen=True)
class Need:
    """What a load needs; rates are of all logs together."""

    load: Load
    logs: int
    owner_cores: float
    commits_per_s: float
    log_puts_per_s: float
    lake_puts_per_s: float
    gets_per_s: float
    lists_per_s: float
    catalog_commits_per_hour: float
    spark_cores: float
    log_gb: float
    table_gb_per_month: float

    @property
    def puts_per_s(self) -> float:
        return self.log_puts_per_s + self.lake_puts_per_s

    @property
    def request_usd(self) -> float:
        written = (self.puts_per_s + self.lists_per_s) * PUT_USD.value
        return (written + self.gets_per_s * GET_USD.value) / 1_000 * MONTH_S

    @property
    def core_usd(self) -> float:
        return (self.owner_cores + self.spark_cores) * CORE_USD.value * MONTH_S / 3_600

    @property
    def log_usd(self) -> float:
        return self.log_gb * STORED_USD.value

    @property
    def usd(self) -> float:
        """A month of it, without the tables that it fills."""
        return self.request_usd + self.core_usd + self.log_usd

    @property
    def table_usd(self) -> float:
        """A month of keeping what one month has filled."""
        return self.table_gb_per_month * STORED_USD.value


def planned_mb_per_s() -> float:
    """What one log is given: a share of what an owner reached."""
    return OWNER_MB_PER_S.value * PLANNED.value


def need(load: Load) -> Need:
    settings = bucket_settings()
    logs = max(math.ceil(load.mb_per_s / planned_mb_per_s()), math.ceil(load.topics / TOPICS_PER_LOG.value))
    each_bytes = load.mb_per_s / logs * MB
    # A log that is busy all the time: a commit an interval, or whenever enough has come and the window has room; never
    # fewer than its bytes fill.
    at_once = min(each_bytes / load.enough_bytes, WINDOW / PUT_S.value)
    commits = max(1 / settings.log.commit_interval_s, at_once, each_bytes / settings.log.slot_bytes_target)
    slot_bytes = each_bytes / commits
    rolls = max(each_bytes / settings.log.segment_size_bytes_max, commits / SLOTS_MAX)
    rounds = 1 / max(load.freshness_s, load.topics / logs * CATALOG_ROUND_S.value / CATALOG_ROUND_TOPICS.value)
    landings = rounds * load.topics
    files = max(landings, load.mb_per_s * MB / settings.landing.target_file_bytes)
    # Landing reads every byte once: a request a slot, or a request a mebibyte of what was merged.
    read = each_bytes / MIB if is_merged(slot_bytes) else commits
    kept_s = load.freshness_s + settings.log.deletion_grace_s + settings.log.segment_size_bytes_max / each_bytes
    return Need(
        load=load,
        logs=logs,
        owner_cores=max(load.mb_per_s / 1_000 * OWNER_CPU_S_PER_GB.value / PLANNED.value, IDLE_CORES.value * logs),
        commits_per_s=commits * logs,
        log_puts_per_s=(commits + LEASE_PUTS_PER_S + rolls * (puts_per_roll(slot_bytes) + CHECKPOINT_PUTS)) * logs,
        lake_puts_per_s=landings * (LAKE_PUTS.value - 1) + files,
        gets_per_s=(read + rolls * CHECKPOINT_GETS) * logs + landings * LEDGER_GETS.value,
        lists_per_s=(rolls * CHECKPOINT_LISTS + 2 / settings.upkeep_interval_s) * logs,
        catalog_commits_per_hour=landings * 3_600,
        spark_cores=load.mb_per_s / (LANDING_MB_PER_S.value / 2) / PLANNED.value,
        log_gb=load.mb_per_s * kept_s / 1_000,
        table_gb_per_month=load.mb_per_s * MONTH_S / 1_000 * TABLE_SHARE.value,
    )


# Tables ------------------------------------------------------------------------------------------------------------


def tables() -> dict[str, str]:
    """Every table of the page, by its name there."""
    needs = [need(Load(rate, topics)) for rate in RATES_MB_PER_S for topics in TOPICS]
    sizes = [need(Load(100, 10, enough_bytes=enough)) for enough in ENOUGH_BYTES]
    fresh = [need(Load(100, 1_000, seconds)) for seconds in FRESHNESS_S]
    return {
        "measured": _figures(MEASURED),
        "assumed": _figures(ASSUMED),
        "needs": _table(
            {
                "MB/s": [each.load.mb_per_s for each in needs],
                "topics": [each.load.topics for each in needs],
                "logs": [each.logs for each in needs],
                "owners' cores": [each.owner_cores for each in needs],
                "Spark cores": [each.spark_cores for each in needs],
                "commits/s": [each.commits_per_s for each in needs],
                "PUT/s": [each.puts_per_s for each in needs],
                "GET/s": [each.gets_per_s for each in needs],
                "LIST/s": [each.lists_per_s for each in needs],
                "catalog commits/h": [each.catalog_commits_per_hour for each in needs],
                "log, GB": [each.log_gb for each in needs],
            }
        ),
        "money": _table(
            {
                "MB/s": [each.load.mb_per_s for each in needs],
                "topics": [each.load.topics for each in needs],
                "PUT, million": [each.puts_per_s * MONTH_S / 1e6 for each in needs],
                "GET, million": [each.gets_per_s * MONTH_S / 1e6 for each in needs],
                "LIST, million": [each.lists_per_s * MONTH_S / 1e6 for each in needs],
                "requests, $": [each.request_usd for each in needs],
                "cores, $": [each.core_usd for each in needs],
                "log stored, $": [each.log_usd for each in needs],
                "together, $": [each.usd for each in needs],
                "table grows by, GB": [each.table_gb_per_month for each in needs],
                "keeping that, $": [each.table_usd for each in needs],
            }
        ),
        "commits": _table(
            {
                "slot_bytes_enough, KiB": [each.load.enough_bytes / KIB for each in sizes],
                "commits/s": [each.commits_per_s for each in sizes],
                "PUT, million": [each.puts_per_s * MONTH_S / 1e6 for each in sizes],
                "requests, $": [each.request_usd for each in sizes],
                "together, $": [each.usd for each in sizes],
            }
        ),
        "freshness": _table(
            {
                "freshness, s": [each.load.freshness_s for each in fresh],
                "catalog commits/h": [each.catalog_commits_per_hour for each in fresh],
                "PUT/s of log and lake": [each.puts_per_s for each in fresh],
                "log, GB": [each.log_gb for each in fresh],
                "together, $ a month": [each.usd for each in fresh],
            }
        ),
    }


def _figures(figures: tuple[Figure, ...]) -> str:
    lines = [f"| {each.what} | {_short(each.value)} {each.unit}".rstrip() + f" | {each.source} |" for each in figures]
    return "\n".join(["| figure | value | from |", "|---|---|---|", *lines])


def _table(columns: dict[str, list[float]]) -> str:
    rows = zip(*columns.values(), strict=True)
    lines = ["| " + " | ".join(_short(value) for value in row) + " |" for row in rows]
    return "\n".join(["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns), *lines])


def _short(value: float) -> str:
    """Two digits say all that such figures know; thousands and more as they are counted."""
    if value >= 1_000:
        digits = 1 - math.floor(math.log10(value))
        return f"{round(value, digits):,.0f}"
    return f"{float(f'{value:.2g}'):g}"


def with_tables(page: str) -> str:
    """The page with each table between its marks."""
    for name, text in tables().items():
        mark = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        assert mark.search(page), f"the page has no place for the table {name!r}"
        page = mark.sub(lambda found, text=text: found[1] + text + "\n" + found[2], page)  # type: ignore[misc]
    return page


def main(arguments: list[str]) -> None:
    if arguments == ["--write"]:
        PAGE.write_text(with_tables(PAGE.read_text()))
        return
    for name, text in tables().items():
        print(f"{name}\n\n{text}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
