"""One row of a keyed topic, by its key.

PROMISE  What `scan` would show for this key; no file is opened whose bounds rule the key out.
         A key is taken as an append takes it: what would be refused there is refused here, with the same reason.
NOT HERE How the parts are put together: scan.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import and_
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import InvalidRequest
from headwater.lake.scan import Scan, Wanted
from headwater.lake.shape import lake_schema
from headwater.lake.where import Condition
from headwater.metadata.operations import TopicRecord
from headwater.topics.rows import to_batch
from headwater.topics.schema import unpack_schema

if TYPE_CHECKING:
    from headwater.lake.view import AsOf, Views


def get_row(views: Views, topic: TopicRecord, key: object, *, as_of: AsOf = None) -> dict[str, Any] | None:
    """The row of this key; None where there is none.  `key` is a value, or a mapping of the key's columns."""
    wanted = _OfKey(topic, row=_key_row(topic, key))
    resolved = views.resolve([topic], as_of)
    with Scan(views, wanted, resolved.plans[topic.number], resolved.cut, resolved.hold) as scan:
        rows = scan.to_pylist()
    assert len(rows) <= 1, "a key has one row"
    return rows[0] if rows else None


@dataclass(frozen=True)
class _OfKey(Wanted):
    """All columns, of one key."""

    row: pa.Table = field(kw_only=True)
    """The key's columns in the types of the table, one row."""

    @cached_property
    def conditions(self) -> tuple[Condition | None, Condition | None]:
        names = self.row.column_names
        expression = reduce(and_, (pc.field(name) == self.row[name][0] for name in names))
        # By what files say of themselves they can be chosen; where there is no table there are none.
        parsed = self._parsed() if self.topic.table is not None else None
        found = Condition(expression, frozenset(names), parsed)
        return found, found

    def _parsed(self) -> object:
        from pyiceberg.expressions import And, BooleanExpression, EqualTo, Reference
        from pyiceberg.expressions.literals import literal

        row = self.row.to_pylist()[0]
        equal: list[BooleanExpression] = [EqualTo(term=Reference(name), value=literal(row[name])) for name in row]
        return reduce(And, equal)


def _key_row(topic: TopicRecord, key: object) -> pa.Table:
    if not topic.key:
        raise InvalidRequest(f"{topic.name!r} has no key, so no row is got by one: scan it", topic=topic.name)
    if not isinstance(key, Mapping):
        if len(topic.key) > 1:
            raise InvalidRequest(
                f"the key of {topic.name!r} is {', '.join(topic.key)}: give a value for each, by name", topic=topic.name
            )
        key = {topic.key[0]: key}
    own = unpack_schema(topic.schemas[-1])
    schema = pa.schema([own.field(name) for name in topic.key])
    accepted = to_batch([key], schema)
    if accepted.refused:
        raise InvalidRequest(f"this is no key of {topic.name!r}: {accepted.refused[0].reason}", topic=topic.name)
    return pa.Table.from_batches([accepted.batch]).cast(lake_schema(schema))
