"""One SELECT over topics by their names, all of them at one cut.

    select(views, 'select region, sum(amount) from orders join "web.visits" using (id) group by all')

TOPICS   Those whose names stand in the statement as words of their own, in any case; all of them where none does.  A
         name with a dot or a dash is quoted, as everywhere in SQL.
COLUMNS  A topic's own.  The system's as well, where the statement says `_hw_` anywhere.
SAFE     One statement, a SELECT as DuckDB itself sorts statements: none that writes, attaches or sets anything is run.
         Nor does one read: when it runs, DuckDB may open no file but those of the tables, and this cannot be set back.
ERRORS   What is wrong with the statement is InvalidRequest in DuckDB's own words; a file that cannot be read, or want
         of memory, is Unavailable.
NOT HERE What a topic is in DuckDB: duckdb_view.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from headwater.errors import InvalidRequest, Unavailable
from headwater.lake.cut import Cut
from headwater.lake.duckdb_sql import folders_of, quoted, text
from headwater.lake.duckdb_view import connect, scans_at_one_cut, with_topics
from headwater.metadata.operations import TopicRecord
from headwater.topics.reading import Rows

import duckdb  # isort: skip  after duckdb_view, which says what to install
from duckdb.sqltypes import DuckDBPyType  # isort: skip

if TYPE_CHECKING:
    from headwater.lake.scan import Scan
    from headwater.lake.view import AsOf, Views

_BATCH_ROWS = 65_536
_SYSTEM = "_hw_"
_PASSING = ("IO Error", "HTTP Error", "Out of Memory Error", "Invalid Input Error: arrow_scan")
"""How the messages begin of what is not the statement's fault: the last is trouble of our own reader."""

_NESTED = frozenset({"struct", "list", "map", "array"})
_AS_TEXT = frozenset({"time", "time with time zone", "interval", "enum", "bit", "union", "variant"})
"""Types that no column of a topic has: they come out as text."""


class Selected(Rows):
    """What a statement gives.  It may be run again, and gives the same rows; close it to let go of them."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, statement: str, cut: Cut) -> None:
        self._connection = connection
        self._statement = statement
        self.cut = cut
        """Where all topics were read."""
        with _told():
            relation = self._relation()
            self.schema: pa.Schema = relation.limit(0).to_arrow_table().schema
            self.wide_integers = frozenset(
                place for place, type_ in enumerate(relation.types) if str(type_) in ("HUGEINT", "UHUGEINT")
            )
            """Columns of integers of 128 bits, which Arrow has as decimals: what a sum of integers is."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        # What goes wrong while rows are streamed comes as an OSError of Arrow's, with DuckDB's message.
        with _told(OSError):
            yield from self._relation().to_arrow_reader(_BATCH_ROWS)

    def _relation(self) -> duckdb.DuckDBPyRelation:
        relation = self._connection.sql(self._statement)
        assert relation is not None, "a SELECT has rows"
        as_text = [_is_shown_as_text(type_) for type_ in relation.types]
        if not any(as_text):
            return relation
        columns = [
            f"CAST(#{place} AS VARCHAR) AS {quoted(name)}" if cast else f"#{place}"
            for place, (name, cast) in enumerate(zip(relation.columns, as_text, strict=True), start=1)
        ]
        return relation.project(", ".join(columns))

    def close(self) -> None:
        """Twice is nothing."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def select(views: Views, statement: str, as_of: AsOf = None) -> Selected:
    """The rows of a SELECT over the topics that it names, as they are now or were at some point."""
    connection = connect()
    with _told():
        _check_statement(connection, statement)
    topics = named_topics(views.source.topics(), statement)
    scans = scans_at_one_cut(views, topics, as_of, system_columns=_SYSTEM in statement.lower())
    with _told():
        with_topics(connection, scans)
        _lock(connection, scans)
    return Selected(connection, statement, scans[0].cut if scans else views.cut([]))


def named_topics(topics: Iterable[TopicRecord], statement: str) -> list[TopicRecord]:
    """The topics that the statement may name, by name; InvalidRequest where DuckDB cannot tell two of them apart."""
    known = sorted(topics, key=lambda topic: topic.name)
    found = [topic for topic in known if _stands_in(topic.name, statement, re.IGNORECASE)]
    by_name: dict[str, list[TopicRecord]] = {}
    for topic in found or known:
        by_name.setdefault(topic.name.lower(), []).append(topic)
    return [_only(alike, statement) for alike in by_name.values()]


def _only(alike: Sequence[TopicRecord], statement: str) -> TopicRecord:
    exact = [topic for topic in alike if _stands_in(topic.name, statement, re.NOFLAG)] or alike
    if len(exact) > 1:
        names = " and ".join(repr(topic.name) for topic in exact)
        raise InvalidRequest(f"in SQL {names} are one name: ask for one of them, spelled as it is", topics=names)
    return exact[0]


def _stands_in(name: str, statement: str, flags: re.RegexFlag) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", statement, flags) is not None


def _check_statement(connection: duckdb.DuckDBPyConnection, statement: str) -> None:
    found = connection.extract_statements(statement)
    if len(found) != 1 or found[0].type != duckdb.StatementType.SELECT:
        raise InvalidRequest("a query is one SELECT: nothing else is run here")


def _lock(connection: duckdb.DuckDBPyConnection, scans: Sequence[Scan]) -> None:
    folders = {folder for scan in scans for part in scan.plan.parts for folder in folders_of(part)}
    connection.execute(f"SET allowed_directories = [{', '.join(text(each) for each in sorted(folders))}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _is_shown_as_text(type_: DuckDBPyType) -> bool:
    if type_.id in _NESTED:
        return any(_is_shown_as_text(each) for _, each in type_.children if isinstance(each, DuckDBPyType))
    return type_.id in _AS_TEXT


@contextmanager
def _told(*also: type[Exception]) -> Iterator[None]:
    """Trouble in DuckDB, by what the caller should do next, in one line."""
    caught: tuple[type[Exception], ...] = (duckdb.Error, *also)
    try:
        yield
    except caught as error:
        message = " ".join(str(error).partition("\n\nLINE ")[0].split())
        raise (Unavailable if message.startswith(_PASSING) else InvalidRequest)(message) from error
