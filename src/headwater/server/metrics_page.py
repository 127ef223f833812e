"""The metrics page: what a server knows of itself and its log, as Prometheus reads it (docs/metrics.md has the list).

WHEN     Everything is worked out when the page is asked for, from the log's counters and its status; nothing is counted
         for a label while rows go in.
LABELS   Topics, groups, outcomes and causes.  Never a partition, a principal, an address: what anybody could make many
         of, or what nobody else should know.
PROMISE  A page is told even where a part of it cannot be known now: the ledger out of reach leaves out what it knows,
         and says so with headwater_status_complete 0.  The names are those of docs/metrics.md, held by a test.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Iterable, Iterator
from importlib.metadata import version

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from headwater.errors import HeadwaterError
from headwater.metrics import DURATION_BOUNDS_S, Histogram
from headwater.server.counters import RequestCounters
from headwater.server.health import Health
from headwater.server.served import Served
from headwater.topics.answers import LandingStatus, Status
from headwater.topics.describing import describe
from headwater.topics.names import REJECTED_SUFFIX

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
US_PER_S = 1_000_000

logger = logging.getLogger("headwater.http")


def metrics_page(served: Served | None, health: Health, http: RequestCounters, http_bytes: int) -> bytes:
    """The whole page; a small one where there is no log yet."""
    registry = CollectorRegistry()
    registry.register(_Page(served, health, http, http_bytes))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _Page(Collector):
    def __init__(self, served: Served | None, health: Health, http: RequestCounters, http_bytes: int) -> None:
        self._served = served
        self._health = health
        self._http = http
        self._http_bytes = http_bytes

    def collect(self) -> Iterator[Metric]:
        info = GaugeMetricFamily("headwater_build_info", "The release that runs.", labels=["version", "python"])
        info.add_metric([version("headwater"), platform.python_version()], 1)
        yield info
        yield _gauge("headwater_ready", "1: it is ready for work, as /readyz says.", not self._health.not_ready())
        yield from self._doors()
        if self._served is None:
            return
        yield from _log(self._served)
        space = self._health.space()
        if space is not None:
            yield _gauge("headwater_disk_free_bytes", "Free on the disk under the log.", space.free_bytes)
            yield _gauge("headwater_disk_size_bytes", "Size of the disk under the log.", space.size_bytes)
        yield from _of_status(self._served)

    def _doors(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "headwater_http_requests",
            "Requests over HTTP, by what was asked and the status.",
            labels=["route", "status"],
        )
        for (route, status), count in sorted(self._http.read().items()):
            requests.add_metric([route, status], count)
        yield requests
        yield _counter("headwater_http_request_bytes", "Bytes of bodies that came over HTTP.", self._http_bytes)
        if self._served is not None:
            streams = self._served.streams
            yield _gauge("headwater_streams", "Streams and requests that are open now.", streams.open_now)
            yield _counter("headwater_streams_refused", "Streams refused because there were enough.", streams.refused)
            yield _counter("headwater_moved_bytes", "Bytes of rows and calls, in and out.", streams.moved_bytes)
            calls = CounterMetricFamily(
                "headwater_flight_requests", "Calls and streams of Flight, by how they ended.", labels=["outcome"]
            )
            for (_, outcome), count in sorted(self._served.calls.read().items()):
                calls.add_metric([outcome], count)
            yield calls


def _log(served: Served) -> Iterator[Metric]:
    counted = served.engine.shard.log.counters
    yield _counter("headwater_append_rows", "Rows made durable since the server began.", counted.append_rows)
    yield _counter("headwater_append_bytes", "Bytes of frames made durable.", counted.append_bytes)
    yield _counter("headwater_appends", "Requests acknowledged.", counted.appends)
    yield _counter("headwater_requests_refused", "Requests that the log refused or could not make durable.",
                   counted.requests_refused)  # fmt: skip
    yield _counter("headwater_commits", "Commits: writes made durable by one sync.", counted.commits)
    yield _counter("headwater_io_errors", "Errors of the disk or the store.", counted.io_errors)
    yield _counter("headwater_segments_deleted", "Segments that the log has let go of.", counted.segments_deleted)
    yield _histogram(
        "headwater_append_duration_seconds", "From the queue to the acknowledgement.", counted.append_durations
    )
    yield _histogram(
        "headwater_sync_duration_seconds", "Of each sync, or of each commit to the store.", counted.sync_durations
    )


def _of_status(served: Served) -> Iterator[Metric]:
    status: Status | None
    try:
        found = served.status()
        status, outcomes = found, _outcomes(served)
        complete = not any(note.startswith("the ledger cannot be read") for note in found.notes)
    except (HeadwaterError, OSError) as error:
        logger.warning("a part of the metrics could not be worked out: %s", error)
        status, outcomes = _without_ledger(served), {}
        complete = False
    yield _gauge("headwater_status_complete", "0: a part of this page could not be known.", complete)
    if status is None:
        return
    yield _gauge("headwater_durable_lsn", "The last LSN that is durable.", status.durable_lsn)
    yield _gauge("headwater_epoch", "The owner's epoch.", status.epoch)
    yield _gauge("headwater_log_bytes", "Bytes of the log's segments.", status.log_bytes)
    yield _gauge("headwater_segments", "Segments of the log.", status.segments)
    yield _gauge("headwater_replay_bytes", "What the next opening would have to fold.", status.replay_bytes)
    yield _gauge("headwater_journal_remaining", "Operations that fit before the journal is checkpointed.",
                 status.journal_remaining)  # fmt: skip
    yield from _topics(status)
    yield from _landing(served, status.landing, outcomes)


def _without_ledger(served: Served) -> Status | None:
    """The log's own, where that can be read."""
    try:
        return describe(served.engine, served.directory)
    except (HeadwaterError, OSError):
        # It is logged already what is wrong, and the page says that it is not whole.
        return None


def _topics(status: Status) -> Iterator[Metric]:
    rows = CounterMetricFamily("headwater_topic_rows", "Rows that were ever appended to a topic.", labels=["topic"])
    size = GaugeMetricFamily("headwater_topic_bytes", "Bytes of a topic in the log.", labels=["topic"])
    rejected = CounterMetricFamily(
        "headwater_rejected_rows", "Rows that did not fit a topic and were kept beside it.", labels=["topic"]
    )
    names = {each.name for each in status.topics}
    for each in status.topics:
        rows.add_metric([each.name], each.appended)
        size.add_metric([each.name], each.bytes)
        whose = each.name.removesuffix(REJECTED_SUFFIX)
        if whose != each.name and whose in names:
            rejected.add_metric([whose], each.appended)
        elif each.name + REJECTED_SUFFIX not in names:
            # A counter that begins at its first rejected row would hide that row from whoever looks at its increase.
            rejected.add_metric([each.name], 0)
    lag = GaugeMetricFamily(
        "headwater_consumer_lag_rows", "Rows of a topic that a group has not committed.", labels=["group", "topic"]
    )
    for group in status.groups:
        lag.add_metric([group.group, group.topic], group.total_lag)
    yield from (rows, size, rejected, lag)


def _landing(served: Served, landing: Iterable[LandingStatus], outcomes: dict[str, dict[str, int]]) -> Iterator[Metric]:
    seconds = GaugeMetricFamily(
        "headwater_landing_lag_seconds", "Age of the oldest row that is not in the table.", labels=["topic"]
    )
    rows = GaugeMetricFamily(
        "headwater_landing_lag_rows", "About how many rows are not in the table.", labels=["topic"]
    )
    halted = GaugeMetricFamily("headwater_landing_halted", "1: a person is needed.", labels=["topic", "cause"])
    audited = GaugeMetricFamily(
        "headwater_audit_last_pass_timestamp_seconds", "When the last audit passed; 0: never.", labels=["topic"]
    )
    pinned = GaugeMetricFamily(
        "headwater_disk_pinned_bytes",
        "Bytes of segments that the log keeps because rows of this topic are not verified in its table.",
        labels=["topic"],
    )
    landings = CounterMetricFamily(
        "headwater_landings", "Landings by how they ended, over the life of the ledger.", labels=["topic", "outcome"]
    )
    for each in landing:
        seconds.add_metric([each.topic], each.lag_s)
        rows.add_metric([each.topic], each.lag_rows)
        audited.add_metric([each.topic], each.audited_us / US_PER_S)
        pinned.add_metric([each.topic], _pinned_bytes(served, each))
        if each.halted:
            halted.add_metric([each.topic, each.halted], 1)
        for outcome, count in sorted(outcomes.get(each.topic, {}).items()):
            landings.add_metric([each.topic, outcome], count)
    yield from (seconds, rows, halted, audited, pinned, landings)


def _outcomes(served: Served) -> dict[str, dict[str, int]]:
    """How landings of each topic ended, by topic and word."""
    if served.lake is None:
        return {}
    ledger = served.lake.ledger.state()
    topics = served.engine.metadata().topics.values()
    return {each.name: {"landed": 0, **ledger.topic(each.topic_id.hex()).outcomes} for each in topics if each.table}


def _pinned_bytes(served: Served, landing: LandingStatus) -> int:
    topic = served.engine.metadata().topic_named(landing.topic)
    if topic is None:
        return 0
    log = served.engine.shard.log
    held = 0
    for segment in log.segments():
        share = log.device.topics_in(segment).get(topic.number)
        if share is not None and share.rows and share.last_lsn > landing.verified_lsn:
            held += segment.bytes
    return held


def _gauge(name: str, what: str, value: float) -> Metric:
    return GaugeMetricFamily(name, what, value=float(value))


def _counter(name: str, what: str, value: float) -> Metric:
    return CounterMetricFamily(name, what, value=float(value))


def _histogram(name: str, what: str, found: Histogram) -> Metric:
    counts = list(found.buckets)
    buckets: list[tuple[str, float]] = []
    below = 0
    for bound, count in zip((*map(str, DURATION_BOUNDS_S), "+Inf"), counts, strict=True):
        below += count
        buckets.append((bound, float(below)))
    return HistogramMetricFamily(name, what, buckets=buckets, sum_value=found.seconds)
