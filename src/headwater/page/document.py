"""A look at a log as one JSON document: what the page draws, and what GET /v1/page answers (docs/http.md says more).

BOUNDED  Of each list the first so many are in it, and how many there are in all is said beside it.
PROMISE  Nothing is in it of a topic that its reader has no right over: no name, no row in a total, no point of a graph.
         Snapshots are text: they have 64 bits, and many readers of JSON would round them.
NOT HERE Taking the look: looking.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import version

from headwater.lake.ledger_records import Audited
from headwater.page.halts import next_step
from headwater.page.history import EVERY_S, Point, Shown
from headwater.page.ledger_tail import RecentLanding
from headwater.page.looking import Look
from headwater.page.spans import lsn_spans
from headwater.topics.answers import GroupDescription, LandingStatus, Status, TopicStatus

FORMAT = 1
TOPICS_MAX = 200
GROUPS_MAX = 200
LANDINGS_MAX = 100
AUDITS_MAX = 50
HALTS_MAX = 50
NOTES_MAX = 20
TEXT_MAX = 2_000
"""Characters of a message that is shown."""

_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Content = dict[str, object]
Points = Callable[[Shown | None, Shown], list[Point]]
"""The history of all topics, or of some; the lag of those that may be looked at."""


@dataclass(frozen=True)
class Sight:
    """What whoever asks may see."""

    name: str
    everything: bool
    """Every topic, and what is of the log as a whole: where it lies, its disk, its notes."""
    knows: Shown
    """That the topic is there, and how large it is."""
    reads: Shown
    """The groups that read it."""
    looks: Shown
    """Its landings and audits."""


def _any(name: str) -> bool:
    return True


EVERYTHING = Sight("", everything=True, knows=_any, reads=_any, looks=_any)
"""Of whoever may read the files themselves."""

SORTS: dict[str, Callable[[TopicStatus, LandingStatus | None, float], tuple[float, float]]] = {
    "name": lambda topic, landing, rate: (0, 0),
    "rows": lambda topic, landing, rate: (topic.rows, 0),
    "bytes": lambda topic, landing, rate: (topic.bytes, 0),
    "rows_per_s": lambda topic, landing, rate: (rate, 0),
    "lag_s": lambda topic, landing, rate: (landing.lag_s, landing.lag_rows) if landing is not None else (-1, 0),
}


@dataclass(frozen=True)
class Question:
    """Which topics are asked for: those whose names hold `filter`, in the order of `sort`, from the `start`th on."""

    filter: str = ""
    sort: str = "name"
    falling: bool = False
    start: int = 0
    topics_max: int = TOPICS_MAX


FIRST = Question()
"""The first topics by name."""


def page_document(
    look: Look,
    points: Points,
    sight: Sight = EVERYTHING,
    question: Question = FIRST,
    *,
    source: str,
    again_s: float | None,
) -> Content:
    """`again_s` is when to ask again; None for never."""
    status = look.seen.status
    wanted = question.filter.lower()
    known = status.topics if sight.everything else [each for each in status.topics if sight.knows(each.name)]
    matching = [each for each in known if wanted in each.name.lower()] if wanted else known
    names = {each.name for each in matching}
    landing = {each.topic: each for each in status.landing if each.topic in names and sight.looks(each.topic)}
    shown = None if sight.everything and not wanted else names.__contains__
    halted = [each for each in landing.values() if each.halted]
    groups = [each for each in status.groups if each.topic in names and sight.reads(each.topic)]
    landings, audits = _of_ledger(look, shown, sight)
    return {
        "format": FORMAT,
        "headwater": version("headwater"),
        "source": source,
        "at": utc(look.at_us),
        "again_s": again_s,
        "reader": {"name": sight.name, "everything": sight.everything},
        "not_ready": look.seen.not_ready,
        "log": _log(status, sight),
        "place": _place(look, sight),
        "totals": _totals(matching, landing, look.rates),
        "topics": _topics(matching, landing, look, question),
        "halts": _bounded([_halt(each, status, sight) for each in halted[:HALTS_MAX]], len(halted)),
        "landings": _bounded([_landing(each, name) for each, name in landings[:LANDINGS_MAX]], len(landings)),
        "audits": _bounded([_audit(each, name) for each, name in audits[:AUDITS_MAX]], len(audits)),
        "groups": _groups(groups),
        "notes": [each[:TEXT_MAX] for each in status.notes[:NOTES_MAX]] if sight.everything else [],
        "history": {
            "every_s": EVERY_S,
            "points": [
                [each.at_us // 1_000, None if each.rows_per_s is None else round(each.rows_per_s, 1), each.lag_rows,
                 round(each.lag_s, 1)]
                for each in points(shown, sight.looks)
            ],
        },
    }  # fmt: skip


def utc(at_us: int) -> str:
    """A time as every JSON of ours writes it."""
    return (_UNIX_EPOCH + timedelta(microseconds=at_us)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _bounded(items: Sequence[Content], count: int) -> Content:
    return {"count": count, "items": items}


# The log --------------------------------------------------------------------------------------------------------------


def _log(status: Status, sight: Sight) -> Content:
    found: Content = {
        "log_id": status.log_id,
        "epoch": status.epoch,
        "first_lsn": status.first_lsn,
        "durable_lsn": status.durable_lsn,
    }
    if sight.everything:
        found |= {
            "owner": status.owner,
            "directory": status.directory,
            "segments": status.segments,
            "bytes": status.log_bytes,
            "checkpoint_lsn": status.checkpoint_lsn,
            "replay_bytes": status.replay_bytes,
            "journal_lsn": status.journal_lsn,
            "journal_remaining": status.journal_remaining,
            "producers": status.producers,
            "sources": len(status.sources),
            "deleted_topics": status.deleted_topics,
        }
    return found


def _place(look: Look, sight: Sight) -> Content | None:
    if not sight.everything:
        return None
    store = look.seen.status.store
    if store is not None:
        return {"kind": "bucket", **asdict(store)}
    space = look.seen.space
    return None if space is None else {"kind": "disk", "free_bytes": space.free_bytes, "size_bytes": space.size_bytes}


def _totals(topics: Sequence[TopicStatus], landing: dict[str, LandingStatus], rates: dict[str, float]) -> Content:
    return {
        "topics": len(topics),
        "rows": sum(each.rows for each in topics),
        "bytes": sum(each.bytes for each in topics),
        "rows_per_s": round(sum(rates.get(each.name, 0.0) for each in topics), 1),
        "tables": len(landing),
        "lag_rows": sum(each.lag_rows for each in landing.values()),
        "lag_s": round(max((each.lag_s for each in landing.values()), default=0.0), 1),
        "halted": sum(1 for each in landing.values() if each.halted),
    }


# Topics and groups ----------------------------------------------------------------------------------------------------


def _topics(
    topics: Sequence[TopicStatus], landing: dict[str, LandingStatus], look: Look, question: Question
) -> Content:
    ordered = list(topics)
    if question.sort != "name":
        key = SORTS[question.sort]
        ordered.sort(key=lambda each: key(each, landing.get(each.name), look.rates.get(each.name, 0.0)))
    if question.falling:
        ordered.reverse()
    chosen = ordered[question.start : question.start + question.topics_max]
    durable_lsn = look.seen.status.durable_lsn
    return {
        "count": len(topics),
        "start": question.start,
        "items": [_topic(each, landing.get(each.name), look.rates.get(each.name), durable_lsn) for each in chosen],
    }


def _topic(topic: TopicStatus, landing: LandingStatus | None, rate: float | None, durable_lsn: int) -> Content:
    return {
        "name": topic.name,
        "partitions": topic.partitions,
        "rows": topic.rows,
        "bytes": topic.bytes,
        "appended": topic.appended,
        "rows_per_s": None if rate is None else round(rate, 1),
        "key": list(topic.key),
        "cleanup": topic.policy.cleanup,
        "table": topic.table,
        "landing": None if landing is None else _standing(landing, durable_lsn),
    }


def _standing(landing: LandingStatus, durable_lsn: int) -> Content:
    return {
        "landed_lsn": landing.landed_lsn,
        "verified_lsn": landing.verified_lsn,
        "merged_lsn": landing.merged_lsn,
        "audited_lsn": landing.audited_lsn,
        "audited_at": utc(landing.audited_us) if landing.audited_us else None,
        "lag_rows": landing.lag_rows,
        "lag_bytes": landing.lag_bytes,
        "lag_s": round(landing.lag_s, 1),
        "halted": landing.halted,
        "lsns": lsn_spans(landing, durable_lsn),
    }


def _halt(landing: LandingStatus, status: Status, sight: Sight) -> Content:
    step = next_step(landing.halted, landing.topic, status.directory if sight.everything else None)
    return {
        "topic": landing.topic,
        "table": landing.table,
        "cause": landing.halted,
        "message": landing.message[:TEXT_MAX],
        "next": step.text,
        "command": step.command,
    }


def _groups(groups: list[GroupDescription]) -> Content:
    ordered = sorted(groups, key=lambda each: (-each.total_lag, each.group, each.topic))
    return _bounded(
        [
            {
                "group": each.group,
                "topic": each.topic,
                "lag": each.total_lag,
                "members": each.members,
                "partitions": len(each.lag),
            }
            for each in ordered[:GROUPS_MAX]
        ],
        len(groups),
    )


# The ledger -----------------------------------------------------------------------------------------------------------


def _of_ledger(
    look: Look, shown: Shown | None, sight: Sight
) -> tuple[list[tuple[RecentLanding, str]], list[tuple[Audited, str]]]:
    """The latest landings and audits with the names of their topics: those that are there, and may be seen."""
    names = look.seen.names

    def seen(topic_id: str) -> bool:
        name = names.get(topic_id)
        return name is not None and (shown is None or shown(name)) and sight.looks(name)

    return (
        [(each, names[each.topic_id]) for each in look.seen.landings if seen(each.topic_id)],
        [(each, names[each.topic_id]) for each in look.seen.audits if seen(each.topic_id)],
    )


def _landing(landing: RecentLanding, topic: str) -> Content:
    return {
        "at": utc(landing.at_us),
        "topic": topic,
        "table": landing.table,
        "rows": landing.rows,
        "lsn_from": landing.lsn_from,
        "lsn_to": landing.lsn_to,
        "snapshot": str(landing.snapshot),
        "digest": landing.digest,
        "commit_id": landing.commit_id,
        "adopted": landing.adopted,
        "verified_at": None if landing.verified_us is None else utc(landing.verified_us),
    }


def _audit(audit: Audited, topic: str) -> Content:
    return {
        "at": utc(audit.at_us),
        "topic": topic,
        "table": audit.table,
        "rows": audit.rows,
        "lsn_to": audit.lsn_to,
        "snapshot": None if audit.snapshot is None else str(audit.snapshot),
        "full": audit.full,
        "passed": audit.passed,
        "differences": audit.differences,
    }
