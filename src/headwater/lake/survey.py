"""What the tables of a catalog say of the logs that have landed in them.

A table that was landed in bears the mark of a log, and says which topic it is of (topic_description.py).  A log that
took over the tables of a lost one is of one family with it: a restore that was not finished has left tables of both.

PROMISE  Looking changes nothing.  A table that cannot be loaded is an error and not passed over, because what it would
         have said is not known; `namespaces` leaves out what is not to be asked.
NOT HERE What is made of it: from_lake.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from headwater.errors import InvalidRequest, LandingHalted, Unavailable
from headwater.lake.iceberg_tables import IcebergTables
from headwater.lake.mark import Mark
from headwater.lake.marks import Standing
from headwater.lake.shape import landing_table
from headwater.lake.stamping import own_mark, own_standing
from headwater.lake.tables import TableState
from headwater.lake.topic_description import TOPIC, adoption_of, described_topic
from headwater.metadata.operations import TopicRecord


@dataclass(frozen=True)
class MarkedTable:
    """A table that bears the mark of a log."""

    state: TableState
    mark: Mark
    standing: Standing
    """How far it has come; nothing where it no longer holds what its mark speaks of."""
    topic: TopicRecord | None = None
    """As it says itself; None where it says nothing."""
    log_ids_before: tuple[str, ...] = ()
    """The logs that it was taken over from, by the one whose mark it bears; the last one first."""
    trouble: LandingHalted | None = None
    """Why it cannot be told how far it has come."""

    @property
    def name(self) -> str:
        return self.state.name


@dataclass(frozen=True)
class LakeTopic:
    """A topic of a lost log, with its tables."""

    record: TopicRecord
    landed: MarkedTable
    state: MarkedTable | None = None
    """Of a keyed topic: its merged table, if it was ever merged."""


@dataclass(frozen=True)
class LakeLog:
    """A log, as the tables show it."""

    log_ids: tuple[str, ...]
    """Of its tables' marks, and of the logs that these were taken over from."""
    topics: tuple[LakeTopic, ...]
    passed_over: dict[str, str] = field(default_factory=dict)
    """Tables that bear its mark and bring no topic back, and why."""
    lsn_max: int = 0
    """No row of it that is in a table, and no mark, is above this LSN."""
    number_max: int = 0
    """No topic that any of the tables speaks of has a higher number."""


# ------------------------------------------------------------------------------------------------------ looking


def table_names(tables: IcebergTables, namespaces: Sequence[str] = ()) -> list[str]:
    """Every table of the catalog, or of these namespaces, by name."""
    try:
        wanted = [tuple(each.split(".")) for each in namespaces] or list(_all_namespaces(tables, ()))
        return sorted(".".join(table) for namespace in wanted for table in tables.catalog.list_tables(namespace))
    except Exception as error:  # each catalog has errors of its own, and nothing was changed
        raise Unavailable(
            "the tables of the catalog cannot be listed: name the namespaces that are meant",
            cause=f"{type(error).__name__}: {error}",
        ) from error


def _all_namespaces(tables: IcebergTables, within: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for namespace in tables.catalog.list_namespaces(within):
        yield namespace
        yield from _all_namespaces(tables, namespace)


def marked_tables(tables: IcebergTables, names: Iterable[str]) -> list[MarkedTable]:
    """Of these tables, those that bear a mark."""
    found = [marked(tables, state) for state in map(tables.load, names) if state is not None]
    return [each for each in found if each is not None]


def marked(tables: IcebergTables, state: TableState) -> MarkedTable | None:
    """A table with what it says; None where it says nothing of any log."""
    mark = own_mark(state)
    if mark is None:
        return None
    adoption = adoption_of(state.properties, state.name)
    before = adoption.log_ids_before if adoption is not None and adoption.log_id == mark.log_id else ()
    value = state.properties.get(TOPIC)
    topic = described_topic(value, state.name) if value is not None else None
    try:
        standing = own_standing(tables, state, mark.topic_id if topic is None else topic.topic_id.hex())
    except LandingHalted as halt:
        return MarkedTable(state, mark, Standing(), topic, before, halt)
    return MarkedTable(state, mark, standing, topic, before)


# ----------------------------------------------------------------------------------------------------- choosing


def log_in(found: Sequence[MarkedTable], log_ids: Collection[str] = ()) -> LakeLog:
    """The log that has one of these ids, the only one where none is given; InvalidRequest where there is none, or
    several and nothing says which."""
    families = _families(found)
    if log_ids:
        of_them = [family for family in families if family & set(log_ids)]
        if not of_them:
            raise InvalidRequest(f"no table of the catalog bears a mark of the log {', '.join(log_ids)}")
        families = [frozenset().union(*of_them)]
    if not families:
        raise InvalidRequest("no table of the catalog bears the mark of a log: there is nothing to restore from")
    if len(families) > 1:
        told = "; ".join(
            f"{min(family)} ({', '.join(each.name for each in found if each.mark.log_id in family)})"
            for family in families
        )
        raise InvalidRequest(f"several logs have landed in this catalog, say which is meant with --log-id: {told}")
    own = [each for each in found if each.mark.log_id in families[0]]
    for each in own:
        if each.trouble is not None:
            raise each.trouble
    return _log(own, families[0])


def _families(found: Sequence[MarkedTable]) -> list[frozenset[str]]:
    """Log ids that belong together, because one took tables over from the other."""
    families: list[frozenset[str]] = []
    for each in found:
        joined = frozenset({each.mark.log_id, *each.log_ids_before})
        apart = [family for family in families if not family & joined]
        families = [*apart, joined.union(*(family for family in families if family & joined))]
    return sorted(families, key=min)


def _log(own: Sequence[MarkedTable], family: frozenset[str]) -> LakeLog:
    passed_over: dict[str, str] = {}
    by_name = {each.name: each for each in own}
    chosen: dict[str, MarkedTable] = {}
    for each in sorted(own, key=lambda one: one.topic.number if one.topic is not None else 0):
        why = _why_not(each, by_name)
        if why:
            passed_over[each.name] = why
        elif each.topic is not None and each.name == landing_table(each.topic):
            before = chosen.pop(each.topic.name, None)
            if before is not None:
                passed_over[before.name] = f"a later topic has the name of its own, {each.topic.name!r}"
            chosen[each.topic.name] = each
    numbers = [each.topic.number for each in own if each.topic is not None]
    topics: list[LakeTopic] = []
    for landed in sorted(chosen.values(), key=lambda one: one.topic.number if one.topic is not None else 0):
        assert landed.topic is not None
        record = landed.topic
        if any(record.number == topic.record.number for topic in topics):
            # Of a log that had taken over only some of the tables, and given the number anew.
            numbers.append(max(numbers) + 1)
            record = replace(record, number=numbers[-1])
        merged = by_name.get(record.table or "") if record.key and record.table not in passed_over else None
        topics.append(LakeTopic(record, landed, merged))
    lsns = [max(each.mark.lsn_to, each.mark.max_row_lsn, each.standing.landed_lsn) for each in own]
    return LakeLog(tuple(sorted(family)), tuple(topics), passed_over, max(lsns), max(numbers, default=0))


def _why_not(table: MarkedTable, by_name: dict[str, MarkedTable]) -> str:
    """Why a table brings no topic back; nothing where it does, or is the state of one that does."""
    topic = table.topic
    if topic is None or topic.table is None:
        return "it does not say of which topic it is"
    if table.name not in {topic.table, landing_table(topic)}:
        return f"it says that it is {landing_table(topic)!r}: it was renamed or copied"
    if table.standing.mark is None:
        return "nothing is landed in it any more: it was rolled back or replaced"
    if table.name != landing_table(topic) and landing_table(topic) not in by_name:
        return f"its changes, {landing_table(topic)!r}, are not there"
    return ""
