"""What a round of landing did, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.cli.output import counted, lsn_range, printable, remarks, results, say, size_text, utc_text
from headwater.cli.plain_table import Column, print_table, size_cell
from headwater.clock import SystemClock

if TYPE_CHECKING:
    from headwater.lake.report import LandingReport, TopicLanding
    from headwater.topics.answers import LandingStatus

_WHAT_TO_DO = "docs/landing.md says what to do"


def as_content(report: LandingReport, lags: Sequence[LandingStatus]) -> dict[str, object]:
    """A round for programs."""
    by_topic = {each.topic: each for each in lags}
    return {
        "rows": report.rows,
        "lsn_to": report.lsn_to,
        "bytes_read": report.bytes_read,
        "seconds": round(report.seconds, 6),
        "verify_s": round(report.verify_s, 6),
        "cleanup": report.cleanup,
        "topics": [_topic_content(each, by_topic.get(each.topic)) for each in report],
    }


def _topic_content(topic: TopicLanding, lag: LandingStatus | None) -> dict[str, object]:
    return {
        "topic": topic.topic,
        "table": topic.table,
        "outcome": topic.outcome,
        "rows": topic.rows,
        "lsn_from": topic.lsn_from,
        "lsn_to": topic.lsn_to,
        "files": topic.files,
        "bytes": topic.bytes,
        # 64 bits: many readers of JSON would round the number.
        "snapshot": str(topic.snapshot) if topic.snapshot is not None else None,
        "commit_s": round(topic.commit_s, 6),
        "adopted": topic.adopted,
        "verified": topic.verified,
        "cause": topic.cause,
        "message": topic.message,
        "lag_rows": lag.lag_rows if lag is not None else None,
        "lag_s": round(lag.lag_s, 3) if lag is not None else None,
    }


def landing_content(found: Sequence[LandingStatus]) -> list[dict[str, object]]:
    """How far each table has come, for programs."""
    return [
        {
            "topic": each.topic,
            "table": each.table,
            "landed_lsn": each.landed_lsn,
            "verified_lsn": each.verified_lsn,
            "merged_lsn": each.merged_lsn,
            "lag_rows": each.lag_rows,
            "lag_bytes": each.lag_bytes,
            "lag_s": round(each.lag_s, 3),
            "log_first_lsn": each.log_first_lsn,
            "audited_lsn": each.audited_lsn,
            "audited_at": utc_text(each.audited_us) if each.audited_us else None,
            "halted": each.halted,
            "message": each.message,
        }
        for each in found
    ]


def show_round(report: LandingReport, lags: Sequence[LandingStatus], *, once: bool) -> None:
    """A round for people: a table where it is the only one, else a line a topic with the time before it."""
    by_topic = {each.topic: each for each in lags}
    shown = list(report)
    if once and shown:
        print_table(results(), _COLUMNS, [_cells(each, by_topic.get(each.topic)) for each in shown])
    elif not once:
        now = utc_text(SystemClock().now_us())
        for each in shown:
            if each.outcome != "nothing":
                say(results(), f"{now}  {_line(each, by_topic.get(each.topic))}")
    for each in shown:
        if each.message:
            style = "red" if each.outcome == "halted" else "yellow"
            told = f" ({each.cause}; {_WHAT_TO_DO})" if each.outcome == "halted" else ""
            say(remarks(), f"{each.topic} {each.outcome}{told}: {printable(each.message)}", style)
    if once or report.rows:
        say(remarks(), _summary(report), "dim")


_COLUMNS = [
    Column("TOPIC", keep=True, style="bold"),
    Column("TABLE"),
    Column("OUTCOME", keep=True),
    Column("ROWS", right=True),
    Column("LSN", right=True),
    Column("FILES", right=True),
    Column("BYTES", right=True),
    Column("COMMIT", right=True),
    Column("LAG", right=True),
]


def _cells(topic: TopicLanding, lag: LandingStatus | None) -> list[str]:
    landed = topic.outcome == "landed"
    return [
        printable(topic.topic),
        printable(topic.table),
        f"{topic.outcome}, not verified" if landed and not topic.verified else topic.outcome,
        f"{topic.rows:,}" if landed else "-",
        lsn_range(topic.lsn_from + 1, topic.lsn_to) if landed else "-",
        f"{topic.files:,}" if landed else "-",
        size_cell(topic.bytes) if landed else "-",
        f"{topic.commit_s * 1000:.0f} ms" if landed else "-",
        lag_text(lag),
    ]


def _line(topic: TopicLanding, lag: LandingStatus | None) -> str:
    if topic.outcome != "landed":
        return f"{topic.topic}: {topic.outcome}, lag {lag_text(lag)}"
    return (
        f"{topic.topic}: {counted(topic.rows, 'row')} into {topic.table}, LSN "
        f"{lsn_range(topic.lsn_from + 1, topic.lsn_to)}, {counted(topic.files, 'file')}, {size_cell(topic.bytes)}, "
        f"commit {topic.commit_s * 1000:.0f} ms{'' if topic.verified else ', not verified'}, lag {lag_text(lag)}"
    )


def lag_text(lag: LandingStatus | None) -> str:
    """`-`, or how old the oldest row is that the table has not, and how many there are."""
    if lag is None or not lag.lag_rows:
        return "-"
    return f"{lag.lag_s:,.0f} s, {counted(lag.lag_rows, 'row')}"


def _summary(report: LandingReport) -> str:
    landing_s = max(report.seconds - report.verify_s, 1e-9)
    parts = [f"{counted(report.rows, 'row')} landed"]
    if report.rows:
        parts.append(
            f"{size_text(report.bytes_read)} of the log in {landing_s:.1f} s "
            f"({report.bytes_read / landing_s / 1e6:,.1f} MB/s), read back in {report.verify_s:.1f} s"
        )
    if report.cleanup:
        parts.append(f"log: {report.cleanup}")
    return "; ".join(parts)
