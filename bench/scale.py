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
    CLEAN_UP_LISTS,
    LEASE_PUTS_PER_S,
    is_merged,
    puts_per_roll,
)
from headwater.api.registry import LIST_NAMES
from headwater.log.object_device import SLOTS_MAX
from headwater.log.object_reads import PREFETCH
from headwater.log.slots import WINDOW
from headwater.settings import MIB, bucket_settings
from headwater.topics.upkeep import PAUSE_S

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


def _measured(value: float, unit: str, what: str, figure: str) -> Figure:
    return Figure(value, unit, what, f"bench objects: `{figure}`")


# What was measured here: two cores that the S3 server shares -------------------------------------------------------

OWNER_MB_PER_S = _measured(200, "MB/s", "one owner: appends of 1 MB from 8 threads", "batches_1mb_ours_mb_per_s")
OWNER_CPU_S_PER_GB = _measured(3.6, "s/GB", "CPU of that owner's process", "owner_cpu_s_per_gb")
OWNER_ROWS_PER_S = _measured(4_700, "rows/s", "one owner: a row an append, from 64 threads", "rows_64_threads_per_s")
LANDING_MB_PER_S = _measured(
    91, "MB/s", "landing from the bucket by processes on both cores", "landing_from_bucket_mb_per_s"
)
TABLE_SHARE = _measured(
    0.53, "", "bytes of a table's files for a byte of the log (random text)", "landing_table_bytes_per_byte"
)
TRIM_BYTES = _measured(560, "B", "what `trim` has for each segment that is kept", "trim_bytes_per_segment")
FAR_MB_PER_S = _measured(114, "MB/s", "the same appends, each request 40 ms longer", "far_batches_1mb_ours_mb_per_s")
FAR_OPENING_MS = _measured(
    2_400, "ms", "from `open` to the first row, each request 40 ms longer", "far_opening_first_row_ms"
)
FAR_TAKEOVER_S = _measured(
    2.9, "s", "a log taken over that was asked for, each request 40 ms longer", "far_takeover_asked_for_s"
)
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
    FAR_MB_PER_S,
    FAR_OPENING_MS,
    FAR_TAKEOVER_S,
    LEDGER_GETS,
    CATALOG_ROUND_TOPICS,
    CATALOG_ROUND_S,
)

# What was assumed --------------------------------------------------------------------------------------------------

PLANNED = Figure(0.5, "", "share of what an owner or a core can do that is planned with", "assumed")
IDLE_CORES = Figure(0.1, "cores", "of an owner with little to do", "assumed")
PUT_S = Figure(0.06, "s", "a put of 1 to 4 MiB", "assumed; on loopback 5 to 20 ms")
GET_S = Figure(0.02, "s", "a GET of little", "assumed; on loopback 1 ms")
LAKE_PUTS = Figure(4, "PUT", "of a landing: data file, manifest, manifest list, metadata", "Iceberg's format")
TOPICS_PER_LOG = Figure(1_000, "topics", "in a log", "assumed; tests/e2e/test_scale.py holds so many")
_LIST = "S3 Standard, us-east-1, November 2026"
PUT_USD = Figure(0.005, "$ per 1,000", "PUT and LIST", _LIST)
GET_USD = Figure(0.0004, "$ per 1,000", "GET; DELETE is free", _LIST)
STORED_USD = Figure(0.023, "$ per GB and month", "stored; transfer in is free", _LIST)
CORE_USD = Figure(0.04, "$ per hour", "a core: half of a VM of two, on demand", "November 2026")
ASSUMED = (PLANNED, IDLE_CORES, PUT_S, GET_S, LAKE_PUTS, TOPICS_PER_LOG, PUT_USD, GET_USD, STORED_USD, CORE_USD)


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
    round_s: float
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
    # By upkeep, which rests between two runs, and runs though nothing was sealed.
    clean_ups = min(rolls, 1 / PAUSE_S) + 1 / settings.upkeep_interval_s
    # A round is no shorter than its catalog commits and its looks at the ledger, topic by topic.
    landing_s = CATALOG_ROUND_S.value / CATALOG_ROUND_TOPICS.value + LEDGER_GETS.value * GET_S.value
    rounds = 1 / max(load.freshness_s, load.topics / logs * landing_s)
    landings = rounds * load.topics
    files = max(landings, load.mb_per_s * MB / settings.landing.target_file_bytes)
    # Landing reads every byte once: a request a slot, or a request a mebibyte of what was merged.
    read = each_bytes / MIB if is_merged(slot_bytes) else commits
    kept_s = 1 / rounds + settings.log.deletion_grace_s + settings.log.segment_size_bytes_max / each_bytes
    return Need(
        load=load,
        logs=logs,
        owner_cores=max(load.mb_per_s / 1_000 * OWNER_CPU_S_PER_GB.value / PLANNED.value, IDLE_CORES.value * logs),
        commits_per_s=commits * logs,
        log_puts_per_s=(commits + LEASE_PUTS_PER_S + rolls * puts_per_roll(slot_bytes) + clean_ups * CHECKPOINT_PUTS)
        * logs,
        lake_puts_per_s=landings * (LAKE_PUTS.value - 1) + files,
        gets_per_s=(read + clean_ups * CHECKPOINT_GETS) * logs + landings * LEDGER_GETS.value,
        lists_per_s=clean_ups * (CHECKPOINT_LISTS + CLEAN_UP_LISTS) * logs,
        round_s=1 / rounds,
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
                "rows in the table after, s": [each.round_s for each in needs],
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
                "slot_bytes_enough, MiB": [each.load.enough_bytes / MIB for each in sizes],
                "commits/s": [each.commits_per_s for each in sizes],
                "PUT, million": [each.puts_per_s * MONTH_S / 1e6 for each in sizes],
                "requests, $": [each.request_usd for each in sizes],
                "together, $": [each.usd for each in sizes],
            }
        ),
        "freshness": _table(
            {
                "freshness, s": [each.load.freshness_s for each in fresh],
                "reached, s": [each.round_s for each in fresh],
                "catalog commits/h": [each.catalog_commits_per_hour for each in fresh],
                "PUT/s of log and lake": [each.puts_per_s for each in fresh],
                "log, GB": [each.log_gb for each in fresh],
                "together, $ a month": [each.usd for each in fresh],
            }
        ),
        "breaks": _breaks(),
    }


def _breaks() -> str:
    log = bucket_settings().log
    most = need(Load(RATES_MB_PER_S[-1], TOPICS[0]))
    ledger_s = TOPICS_PER_LOG.value * LEDGER_GETS.value * GET_S.value
    trim_mb = 1e12 / log.segment_size_bytes_max * TRIM_BYTES.value / MB
    walk_s = SLOTS_MAX / PREFETCH * GET_S.value
    rows = [
        (
            "an owner, batches",
            "the CPU of one process, and its way to the store",
            f"measured: {_short(OWNER_MB_PER_S.value)} MB/s",
            "more logs",
        ),
        (
            "an owner, single rows",
            "the interpreter's lock",
            f"measured: {_short(OWNER_ROWS_PER_S.value)} rows/s",
            "append batches; more logs",
        ),
        (
            "callers that wait for each row",
            "a put, and while others are on their way up to `commit_interval_s`",
            f"extrapolated: {_short(1 / (log.commit_interval_s + PUT_S.value))} rows/s for each caller",
            "append batches, or futures; more callers",
        ),
        (
            "commits of a log",
            f"{WINDOW} in flight, each as long as a put takes",
            f"extrapolated: {_short(WINDOW / PUT_S.value)} a second; full ones, "
            f"{_short(WINDOW / PUT_S.value * log.slot_bytes_target / MB)} MB/s",
            "nothing: CPU comes first",
        ),
        (
            "the journal",
            "one operation in flight, a put each",
            f"extrapolated: {_short(1 / PUT_S.value)} changes of topics a second",
            "`create_topics` makes many in one write",
        ),
        (
            "topics in a log",
            "memory, and the time to open",
            "measured on a disk: 1,000 topics of 10,000 partitions open in 0.2 s; above that not measured",
            "more logs",
        ),
        (
            "the catalog",
            "8 commits at a time, each as long as it takes",
            f"measured: {_short(CATALOG_ROUND_TOPICS.value)} topics in {_short(CATALOG_ROUND_S.value)} s at 300 ms: a "
            "freshness of 60 s is all that a log of so many can keep",
            "a freshness of minutes; more logs",
        ),
        (
            "the ledger",
            "a few looks at the store for each topic, one after the other",
            f"extrapolated: {_short(ledger_s)} s a round of {_short(TOPICS_PER_LOG.value)} topics: before the catalog",
            "a freshness of minutes; more logs",
        ),
        (
            "`trim`",
            "names every segment that is kept, and is put anew at every roll",
            f"extrapolated: {_short(trim_mb)} MB where the log keeps 1 TB",
            "land, and let the log forget; larger segments; more logs",
        ),
        (
            "opening and taking over",
            f"walks the newest segment, at most {_short(SLOTS_MAX)} slots, {PREFETCH} at a time",
            f"extrapolated: {_short(walk_s)} s; measured with few slots, 40 ms away: "
            f"{_short(FAR_OPENING_MS.value / 1_000)} s and {_short(FAR_TAKEOVER_S.value)} s",
            "larger commits fill a segment with fewer slots",
        ),
        (
            "landing",
            "cores",
            f"measured with processes: {_short(LANDING_MB_PER_S.value)} MB/s on two cores; the tasks are Spark's too",
            "more executors: tasks share nothing",
        ),
        (
            "the store",
            "requests a second below one prefix, on S3 3,500 PUT and 5,500 GET (its documentation)",
            f"extrapolated: {_short(most.log_puts_per_s / most.logs)} PUT/s a log at "
            f"{_short(most.load.mb_per_s)} MB/s in all",
            "nothing: each log is a prefix of its own",
        ),
        (
            "logs with little to do",
            "a lease a second, for each",
            f"extrapolated: {_short(LEASE_PUTS_PER_S * MONTH_S / 1_000 * PUT_USD.value)} $ a month",
            "not a log for each topic",
        ),
        (
            "followers in other processes",
            "two requests a look",
            f"extrapolated: {_short(2 / log.follow_poll_s * MONTH_S / 1_000 * GET_USD.value)} $ a month for each",
            "a larger `follow_poll_s`",
        ),
        (
            "the registry",
            "lists all that was placed before it places the next",
            f"extrapolated: {_short(_registry_lists(10_000))} LIST for 10,000 topics, "
            f"{_short(_registry_lists(10_000) / 1_000 * PUT_USD.value)} $",
            "with `log=` it lists nothing",
        ),
    ]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(["| part | its limit | reached at | what to do |", "|---|---|---|---|", *lines])


def _registry_lists(topics: int) -> int:
    """Of all that place them one by one: logs and what was placed are each listed by pages."""
    return sum(1 + placed // LIST_NAMES + 1 for placed in range(topics))


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
