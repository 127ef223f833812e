"""Views of an open log's topics: now, at a cut, at an LSN or at a time.

A time means append times.  An LSN inside a write is taken down to the end of the write before it, for a write is shown
whole or not at all; where the log has let go of it, it is taken as it is, because every landing ends where a write does
and what lies between can no longer be told.

PROMISE  Topics that are asked for together are at one cut.
NOT HERE Which parts there are: resolving.py, view_plan.py.  Their rows: scan.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from headwater.errors import InvalidRequest
from headwater.lake.connections import Connections
from headwater.lake.cut import PREFIX, Cut
from headwater.lake.extra import from_the_extra
from headwater.lake.landing import Lake
from headwater.lake.resolving import FAR_LSN, Resolved, Resolver
from headwater.lake.scan import Scan, Wanted
from headwater.lake.source import OpenLog
from headwater.lake.tables import Tables
from headwater.metadata.operations import TopicRecord
from headwater.topics.positions import Lsn, time_of, time_us_of

if TYPE_CHECKING:
    from headwater.lake.file_cache import FileCache

AsOf = Cut | Lsn | datetime | str | None
"""A cut, hw.Lsn(n), a time with its zone, or the text of a cut or of a time; nothing means now."""

AnyScan = TypeVar("AnyScan", bound=Scan)


class Views:
    """The views of one open log.  They keep a connection to the catalog and what they know of immutable files."""

    def __init__(self, lake: Lake, log: OpenLog) -> None:
        self.lake = lake
        self.source = log
        self._connections = Connections(self._connect, threads=1)
        self._cache: FileCache | None = None
        self._resolver = Resolver(self.source, self.lent, lake.ledger, lake.clock)

    def _connect(self) -> Tables:
        return self.lake.place.connect()

    @property
    def cache(self) -> FileCache:
        if self._cache is None:
            with from_the_extra():
                from headwater.lake.file_cache import FileCache
            self._cache = FileCache()
        return self._cache

    @contextmanager
    def lent(self) -> Iterator[Tables]:
        """A connection to the catalog for a while."""
        with from_the_extra():
            import pyiceberg.catalog  # noqa: F401  so that what is missing is named
        with self._connections.lent() as tables:
            yield tables

    def resolve(self, topics: Sequence[TopicRecord], as_of: AsOf = None) -> Resolved:
        """The parts of these topics at one point, held until the hold is released."""
        if as_of is None:
            return self._resolver.now(topics)
        if isinstance(as_of, str) and as_of.startswith(PREFIX):
            as_of = Cut.parse(as_of)
        if isinstance(as_of, Cut):
            return self._resolver.at(topics, as_of)
        return self._resolver.at_lsn(topics, self.lsn_as_of(topics, as_of))

    def cut(self, topics: Sequence[TopicRecord]) -> Cut:
        """The topics as they are now, to be read again later."""
        resolved = self.resolve(topics)
        resolved.hold.release()
        return resolved.cut

    def scan(
        self,
        topic: TopicRecord,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        as_of: AsOf = None,
    ) -> Scan:
        """The topic at one point, to be read."""
        return self.scan_as(Scan, topic, columns, where, as_of)

    def scan_as(
        self,
        kind: type[AnyScan],
        topic: TopicRecord,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        as_of: AsOf = None,
    ) -> AnyScan:
        """The same as a scan of this kind, which may have further forms."""
        wanted = Wanted(topic, columns, where)
        resolved = self.resolve([topic], as_of)
        return kind(self, wanted, resolved.plans[topic.number], resolved.cut, resolved.hold)

    # Where ---------------------------------------------------------------------------------------

    def lsn_as_of(self, topics: Sequence[TopicRecord], as_of: Lsn | datetime | str) -> int:
        """The LSN that a point means: of a time, that of the last row that was appended at it or before."""
        if isinstance(as_of, Lsn):
            return self._at_a_writes_end(int(as_of))
        if isinstance(as_of, str):
            try:
                as_of = datetime.fromisoformat(as_of)
            except ValueError:
                raise _no_point(as_of) from None
        if not isinstance(as_of, datetime):
            raise _no_point(as_of)
        return self._lsn_at(topics, time_us_of(as_of))

    def _at_a_writes_end(self, lsn: int) -> int:
        """This LSN, or the one before the write that it lies in: the next frame that is left says where that began."""
        if lsn < 0:
            raise InvalidRequest("an LSN is at least 0", lsn=lsn)
        found = self.source.next_write(lsn + 1)
        return lsn if found is None else min(lsn, found[1] - 1)

    def _lsn_at(self, topics: Sequence[TopicRecord], time_us: int) -> int:
        """The last LSN of a row that was appended at this time or before.  Times rise with LSNs."""
        now_us = self.lake.clock.now_us()
        if time_us > now_us:
            # It would be other rows at each look, until then.
            raise InvalidRequest("the log has not come to this time yet", time=time_of(time_us), now=time_of(now_us))
        later = self.source.find_time(time_us + 1)
        lsn = self.source.durable_lsn() if later is None else later - 1
        if not lsn or self._is_held(lsn):
            return lsn
        # What came after the time may have landed and be gone from the log: in the tables it has its time.
        return min(lsn, self._oldest_landed_after(topics, time_us) - 1)

    def _is_held(self, lsn: int) -> bool:
        found = self.source.next_write(lsn)
        return found is not None and found[0] == lsn

    def _oldest_landed_after(self, topics: Sequence[TopicRecord], time_us: int) -> int:
        with_tables = [topic for topic in topics if topic.table is not None]
        if not with_tables:
            return FAR_LSN
        with from_the_extra():
            from headwater.lake.times import oldest_lsn_after
        return oldest_lsn_after(self, with_tables, time_us)

    def close(self) -> None:
        self.source.close()
        self._connections.close()


def _no_point(given: object) -> InvalidRequest:
    return InvalidRequest(
        f"{given!r} is no point to read at: give a cut, hw.Lsn(n), or a time with its zone", as_of=str(given)[:80]
    )
