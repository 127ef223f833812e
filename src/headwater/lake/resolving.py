"""Taking a cut, and finding the parts of topics at one: the order of looks that loses no row and shows none twice.

    1  hold the log as it is        what is in it now stays
    2  read the ledger              how far each table has been verified: above that the log has everything
    3  load the tables              a keyed topic's state before its changes, so that changes are never behind it
    4  read the durable LSN         of a cut of now: at or above every landed LSN that was loaded
    5  hold what the parts need     the tail, and by name the snapshots; let go of the first hold

PROMISE  The tail of every plan is in the log, all of it, and stays for as long as the hold.  Where a table has been set
         back and the log no longer has what it lacks, LandingHalted; nothing is shown.
NOT HERE Which parts there are: view_plan.py.  Reading them: view.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from headwater.clock import Clock
from headwater.errors import CutExpired, InvalidRequest, LandingHalted
from headwater.lake.cut import Cut, TopicCut
from headwater.lake.ledger import LandingLedger
from headwater.lake.mark import FORGOTTEN
from headwater.lake.marks import standing_of
from headwater.lake.shape import landing_table
from headwater.lake.source import Hold
from headwater.lake.tables import Tables
from headwater.lake.view_plan import TableNow, ViewPlan, plan_keyed, plan_rows
from headwater.metadata.operations import TopicRecord

LOADS_MAX = 5
FAR_LSN = 1 << 62
"""Above every LSN that there will be."""


class ViewSource(Protocol):
    """What is asked of the log."""

    @property
    def log_id(self) -> str: ...

    def durable_lsn(self) -> int:
        """How far the log is durable; always the end of a write."""
        ...

    def holds_all(self, topic_number: int, lsn_from: int, lsn_to: int) -> bool:
        """Whether nothing of a topic was ever taken away after one LSN and up to another."""
        ...

    def rows_between(self, topic_number: int, lsn_from: int, lsn_to: int) -> int:
        """How many rows of a topic the log holds after one LSN and up to another."""
        ...

    def hold(self, lsn: int | None, snapshots: Sequence[int] = ()) -> Hold:
        """Hold the log from this LSN on, all of it where none is given, and these snapshots of its tables."""
        ...


@dataclass(frozen=True)
class Resolved:
    """Topics at one cut, held."""

    cut: Cut
    plans: Mapping[int, ViewPlan]
    """By topic number."""
    hold: Hold


@dataclass(frozen=True)
class _Loaded:
    landed: TableNow | None = None
    state: TableNow | None = None


class Resolver:
    def __init__(
        self,
        source: ViewSource,
        lent: Callable[[], AbstractContextManager[Tables]],
        ledger: LandingLedger,
        clock: Clock,
    ) -> None:
        self._source = source
        self._lent = lent
        self._ledger = ledger
        self._clock = clock

    def now(self, topics: Sequence[TopicRecord]) -> Resolved:
        """These topics as they are now."""
        return self._resolve(topics, None, None)

    def at(self, topics: Sequence[TopicRecord], cut: Cut) -> Resolved:
        """These topics at a cut that was taken before; CutExpired where that can no longer be had."""
        if self._source.log_id and cut.log_id != self._source.log_id:
            raise InvalidRequest("this cut is of another log", cut_log_id=cut.log_id, log_id=self._source.log_id)
        for topic in topics:
            cut.topic(topic.topic_id.hex())
        return self._resolve(topics, cut.lsn, cut)

    def at_lsn(self, topics: Sequence[TopicRecord], lsn: int) -> Resolved:
        """These topics at an LSN, which is the end of a write."""
        return self._resolve(topics, lsn, None)

    def _resolve(self, topics: Sequence[TopicRecord], at_lsn: int | None, cut: Cut | None) -> Resolved:
        first = self._source.hold(None)
        try:
            verified = self._verified(topics)
            loaded = self._load(topics)
            durable = self._source.durable_lsn()
            if at_lsn is not None and at_lsn > durable:
                raise InvalidRequest("the log has not come to this point yet", lsn=at_lsn, durable_lsn=durable)
            at = durable if at_lsn is None else at_lsn
            is_now = cut is None and at == durable
            plans = {
                topic.number: self._plan(topic, at, loaded[topic.number], cut, verified[topic.number], is_now)
                for topic in topics
            }
            taken = Cut(
                self._source.log_id,
                at,
                self._clock.now_us() if cut is None else cut.time_us,
                tuple(self._topic_cut(topic, at, loaded[topic.number], cut) for topic in topics),
            )
            return Resolved(taken, plans, self._source.hold(*_needs(plans.values())))
        finally:
            first.release()

    def _verified(self, topics: Sequence[TopicRecord]) -> dict[int, int]:
        if not any(topic.table is not None for topic in topics):
            return {topic.number: 0 for topic in topics}
        state = self._ledger.state()
        return {topic.number: state.topic(topic.topic_id.hex()).verified_lsn for topic in topics}

    # The tables --------------------------------------------------------------------------------

    def _load(self, topics: Sequence[TopicRecord]) -> dict[int, _Loaded]:
        with_table = [topic for topic in topics if topic.table is not None]
        loaded = {topic.number: _Loaded() for topic in topics}
        if with_table:
            with self._lent() as tables:
                for topic in with_table:
                    loaded[topic.number] = self._load_topic(tables, topic)
        return loaded

    def _load_topic(self, tables: Tables, topic: TopicRecord) -> _Loaded:
        assert topic.table is not None
        if not topic.key:
            return _Loaded(self._table_now(tables, topic, topic.table))
        state = landed = None
        for _ in range(LOADS_MAX):
            state = self._table_now(tables, topic, topic.table)
            landed = self._table_now(tables, topic, landing_table(topic))
            if landed is None or landed.forgotten_lsn <= (state.lsn if state is not None else 0):
                break
            # Between the two looks changes were merged, and are past their retention: the state has them by now.
        return _Loaded(landed, state)

    def _table_now(self, tables: Tables, topic: TopicRecord, name: str) -> TableNow | None:
        state = tables.load(name)
        if state is None:
            return None
        standing = standing_of(
            state,
            log_id=self._source.log_id,
            topic_id=topic.topic_id.hex(),
            max_row_lsn=lambda: tables.max_row_lsn(state),
        )
        return TableNow(state, standing.landed_lsn, int(state.properties.get(FORGOTTEN, "0")))

    # One topic ---------------------------------------------------------------------------------

    def _plan(
        self, topic: TopicRecord, at_lsn: int, loaded: _Loaded, cut: Cut | None, verified: int, is_now: bool
    ) -> ViewPlan:
        own = cut.topic(topic.topic_id.hex()) if cut is not None else None
        if topic.key and topic.table is not None:
            plan = plan_keyed(at_lsn, loaded.state, loaded.landed, own)
        else:
            plan = plan_rows(at_lsn, loaded.landed, own)
        self._check_tail(topic, plan, own, verified, is_now)
        return plan

    def _check_tail(
        self, topic: TopicRecord, plan: ViewPlan, own: TopicCut | None, verified: int, is_now: bool
    ) -> None:
        """The log has every row of the tail: by rule above what was verified, and below it only if nothing went."""
        lsn_from, lsn_to = plan.tail
        if topic.table is None:
            if not is_now and not self._holds_alone(topic, lsn_to, own):
                raise CutExpired(
                    f"rows of {topic.name!r} may have been cleaned up since, and it has no table: take a new cut",
                    topic=topic.name,
                )
            return
        if lsn_from >= min(verified, lsn_to) or self._source.holds_all(topic.number, lsn_from, min(verified, lsn_to)):
            return
        raise LandingHalted(
            "gap",
            f"the table of {topic.name!r} holds rows up to lsn {lsn_from}, and the log has let go of rows up to lsn "
            f"{verified} that it once held: it was rolled back or replaced; land with --after-rollback, or restore it",
            topic=topic.name,
            table=topic.table,
        )

    def _holds_alone(self, topic: TopicRecord, lsn_to: int, own: TopicCut | None) -> bool:
        """Whether the log by itself still has all of a topic up to an LSN, by the count that a cut took or by its
        segments."""
        if own is not None and own.log_rows >= 0:
            return self._source.rows_between(topic.number, 0, lsn_to) == own.log_rows
        return self._source.holds_all(topic.number, 0, lsn_to)

    def _topic_cut(self, topic: TopicRecord, at_lsn: int, loaded: _Loaded, cut: Cut | None) -> TopicCut:
        topic_id = topic.topic_id.hex()
        if cut is not None:
            return cut.topic(topic_id)
        if topic.table is None:
            return TopicCut(topic_id, log_rows=self._source.rows_between(topic.number, 0, at_lsn))
        landed, state = _before(loaded.landed, at_lsn), _before(loaded.state, at_lsn)
        return TopicCut(
            topic_id,
            snapshot=_head(landed),
            landed_lsn=landed.lsn if landed is not None else 0,
            state_snapshot=_head(state),
            merged_lsn=state.lsn if state is not None else 0,
        )


def _before(table: TableNow | None, at_lsn: int) -> TableNow | None:
    """The table, if its head shows nothing that is later than this."""
    return table if table is not None and table.lsn <= at_lsn else None


def _head(table: TableNow | None) -> int | None:
    head = table.state.head() if table is not None else None
    return head.snapshot_id if head is not None else None


def _needs(plans: Iterable[ViewPlan]) -> tuple[int | None, list[int]]:
    """The lowest LSN that is read from the log, and the snapshots that are read."""
    plans = list(plans)
    lowest = min((plan.tail[0] + 1 for plan in plans if plan.tail[0] < plan.tail[1]), default=None)
    # Where nothing is read from the log there is still a pin, for the snapshots: of what is not there yet.
    return lowest if lowest is not None else FAR_LSN, [part.snapshot_id for plan in plans for part in plan.parts]
