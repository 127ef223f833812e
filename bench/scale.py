"""What many megabytes a second over many topics need: python -m bench.scale prints the tables of docs/scale.md.

Pure arithmetic, no measuring: MEASURED is what benches here have said, ASSUMED what nobody here could measure, PRICES a
public list.  Everything else follows from them, and is extrapolated.

PROMISE  The page shows these tables and no others: tests/unit/test_scale_page.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from bench._store_model import LEASE_PUTS_PER_S, puts_per_roll
from headwater.log.object_device import SLOTS_MAX
from headwater.settings import LandingSettings, bucket_settings

MB = 1e6
MONTH_S = 30 * 86_400
RATES_MB_PER_S = (10, 100, 1_000)
TOPICS = (10, 1_000)


@dataclass(frozen=True)
class Figure:
    """A number, and where it comes from."""

    value: float
    unit: str
    what: str
    source: str


# --------------------------------------------------------------------------------- what was measured here

OWNER_MB_PER_S = Figure(
    150, "MB/s", "one owner, appends of 1 MB from 8 threads, server on the same two cores", "bench objects"
)
OWNER_CPU_S_PER_GB = Figure(3.0, "s/GB", "CPU of the owner's process", "bench objects")
LANDING_MB_PER_S = Figure(60, "MB/s", "landing from the bucket by processes, two cores", "bench objects")
LANDED_BYTES_SHARE = Figure(0.6, "", "bytes of the table's files per byte of the log", "bench objects")
CATALOG_TOPICS = Figure(1_000, "topics", "in one round, each commit 300 ms longer, 8 at a time", "bench land")
CATALOG_ROUND_S = Figure(57, "s", "for that round", "bench land")
OPENING_MS = Figure(100, "ms", "from `open` to the first row, 64 segments", "bench objects")
TAKEOVER_S = Figure(3.5, "s", "from an owner's death to the next one's first acknowledged row", "bench objects")
MEASURED = (
    OWNER_MB_PER_S,
    OWNER_CPU_S_PER_GB,
    LANDING_MB_PER_S,
    LANDED_BYTES_SHARE,
    CATALOG_TOPICS,
    CATALOG_ROUND_S,
    OPENING_MS,
    TAKEOVER_S,
)

# ------------------------------------------------------------------------------------- what was assumed

PUT_S = Figure(0.06, "s", "a put of 4 MiB to S3, of 1 KB half of it", "assumed")
HEADROOM = Figure(0.5, "", "share of what an owner or a core can do that is planned with", "assumed")
TOPICS_PER_LOG = Figure(1_000, "topics", "in one log", "assumed; tests/e2e/test_scale.py holds so many")
ASSUMED = (PUT_S, HEADROOM, TOPICS_PER_LOG)

# ---------------------------------------------------------------------------------------------- prices

PUT_USD_PER_1000 = Figure(0.005, "$/1,000", "PUT, LIST", "S3 Standard, us-east-1, November 2026")
GET_USD_PER_1000 = Figure(0.0004, "$/1,000", "GET", "S3 Standard, us-east-1, November 2026")
STORED_USD_PER_GB_MONTH = Figure(
    0.023, "$/GB-month", "stored; transfer in is free", "S3 Standard, us-east-1, November 2026"
)
CORE_USD_PER_HOUR = Figure(0.04, "$/h", "a core: half of a VM of two", "on demand, November 2026")
PRICES = (PUT_USD_PER_1000, GET_USD_PER_1000, STORED_USD_PER_GB_MONTH, CORE_USD_PER_HOUR)


@dataclass(frozen=True)
class Load:
    mb_per_s: float
    topics: int


@dataclass(frozen=True)
class Need:
    """What a load needs; rates are of all logs together."""

    load: Load
    logs: int
    owner_cores: float
    commits_per_s: float
    puts_per_s: float
    gets_per_s: float
    lists_per_s: float
    catalog_commits_per_hour: float
    landers: int
    spark_cores: float
    log_gb: float
    table_gb_per_month: float

    @property
    def request_usd(self) -> float:
        puts = (self.puts_per_s + self.lists_per_s) * PUT_USD_PER_1000.value
        return (puts + self.gets_per_s * GET_USD_PER_1000.value) / 1_000 * MONTH_S

    @property
    def core_usd(self) -> float:
        return (self.owner_cores + self.spark_cores) * CORE_USD_PER_HOUR.value * MONTH_S / 3_600

    @property
    def log_usd(self) -> float:
        return self.log_gb * STORED_USD_PER_GB_MONTH.value

    @property
    def usd(self) -> float:
        """A month of it, without the tables that it fills."""
        return self.request_usd + self.core_usd + self.log_usd

    @property
    def table_usd(self) -> float:
        """A month of keeping what one month has filled."""
        return self.table_gb_per_month * STORED_USD_PER_GB_MONTH.value


def planned_mb_per_s() -> float:
    """What one log is given: a share of what an owner reached here."""
    return OWNER_MB_PER_S.value * HEADROOM.value


def need(load: Load) -> Need:
    settings = bucket_settings()
    landing: LandingSettings = settings.landing
    logs = max(math.ceil(load.mb_per_s / planned_mb_per_s()), math.ceil(load.topics / TOPICS_PER_LOG.value))
    each = load.mb_per_s / logs
    # A log that is busy all the time: a commit an interval, or as many as its bytes fill.
    commits = max(1 / settings.log.commit_interval_s, each * MB / settings.log.slot_bytes_target)
    rolls = max(each * MB / settings.log.segment_size_bytes_max, commits / SLOTS_MAX)
    slot_bytes = each * MB / commits
    puts = commits + LEASE_PUTS_PER_S + rolls * puts_per_roll(slot_bytes)
    # Landing reads every byte once: a request a slot, or a request a mebibyte of what was merged.
    gets = min(commits, each * MB / (1 << 20)) if slot_bytes < 1 << 20 else commits
    rounds_per_hour = 3_600 / max(
        landing.freshness_s, load.topics / logs * CATALOG_ROUND_S.value / CATALOG_TOPICS.value
    )
    kept_s = landing.freshness_s + settings.log.deletion_grace_s + settings.log.segment_size_bytes_max / (each * MB)
    return Need(
        load=load,
        logs=logs,
        owner_cores=max(load.mb_per_s / 1_000 * OWNER_CPU_S_PER_GB.value / HEADROOM.value, 0.1 * logs),
        commits_per_s=commits * logs,
        puts_per_s=puts * logs,
        gets_per_s=gets * logs,
        lists_per_s=logs / settings.upkeep_interval_s,
        catalog_commits_per_hour=rounds_per_hour * load.topics,
        landers=logs,
        spark_cores=load.mb_per_s / (LANDING_MB_PER_S.value / 2) / HEADROOM.value,
        log_gb=load.mb_per_s * kept_s / 1_000,
        table_gb_per_month=load.mb_per_s * MONTH_S / 1_000 * LANDED_BYTES_SHARE.value,
    )


def needs() -> list[Need]:
    return [need(Load(rate, topics)) for rate in RATES_MB_PER_S for topics in TOPICS]


# ---------------------------------------------------------------------------------------------- tables


def tables() -> dict[str, str]:
    """Every table of the page, by its name there."""
    return {
        "measured": _figures(MEASURED),
        "assumed": _figures((*ASSUMED, *PRICES)),
        "needs": _needs(),
        "money": _money(),
    }


def _figures(figures: tuple[Figure, ...]) -> str:
    return _table(
        ("figure", "value", "from"),
        [(each.what, f"{_short(each.value)} {each.unit}".strip(), each.source) for each in figures],
    )


def _needs() -> str:
    heads = (
        "MB/s", "topics", "logs", "owners' cores", "commits/s", "PUT/s", "GET/s", "LIST/s", "catalog commits/h",
        "Spark cores", "log, GB",
    )  # fmt: skip
    return _table(
        heads,
        [
            (
                _short(each.load.mb_per_s),
                _short(each.load.topics),
                _short(each.logs),
                _short(each.owner_cores),
                _short(each.commits_per_s),
                _short(each.puts_per_s),
                _short(each.gets_per_s),
                _short(each.lists_per_s),
                _short(each.catalog_commits_per_hour),
                _short(each.spark_cores),
                _short(each.log_gb),
            )
            for each in needs()
        ],
    )


def _money() -> str:
    heads = ("MB/s", "topics", "PUT, million/month", "requests, $", "cores, $", "log stored, $", "together, $/month",
             "table filled, GB/month", "keeping that, $/month")  # fmt: skip
    return _table(
        heads,
        [
            (
                _short(each.load.mb_per_s),
                _short(each.load.topics),
                _short(each.puts_per_s * MONTH_S / 1e6),
                _short(each.request_usd),
                _short(each.core_usd),
                _short(each.log_usd),
                _short(each.usd),
                _short(each.table_gb_per_month),
                _short(each.table_usd),
            )
            for each in needs()
        ],
    )


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _short(value: float) -> str:
    """Three digits say all that such figures know."""
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    rounded = round(value, digits)
    return f"{rounded:,.0f}" if digits <= 0 or rounded == int(rounded) else f"{rounded:,.{digits}f}".rstrip("0")


if __name__ == "__main__":
    for name, text in tables().items():
        print(f"{name}\n\n{text}\n")
