"""Topics as they are asked for and as they are changed: pure, from a wish to the journal's operations.

PROMISE  A wish that is there already needs no operation: creating is idempotent.  A wish that contradicts what is
         there is a TopicExists that names the difference; nothing is changed by asking.
NOT HERE Applying operations: metadata/state.py.  Making them durable: metadata/journal.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa

from headwater.errors import InvalidRequest, TopicExists
from headwater.metadata.operations import (
    PARTITIONS_MAX,
    AddPartitions,
    AddSchema,
    CreateTopic,
    Operation,
    Policy,
    SetPolicy,
    SetTable,
    TopicRecord,
)
from headwater.metadata.state import MetadataState
from headwater.topics.names import check_topic_name, whole_number
from headwater.topics.policy import policy_of
from headwater.topics.schema import (
    check_evolution,
    check_topic_schema,
    normal_type,
    pack_schema,
    same_schema,
    schema_of,
    unpack_schema,
)
from headwater.topics.table_partitions import checked_parts

Duration = str | float | timedelta


@dataclass(frozen=True)
class NewTopic:
    """A topic to be there.  What is None is not asked for: the default where it is new, whatever there is where not."""

    name: str
    """1 to 249 letters, digits, `.`, `_` and `-`."""
    schema: object = None
    """A dataclass, a pydantic model, a pyarrow schema, or a dict of types by column."""
    partitions: int | None = None
    """1 to 10,000; more can be added later."""
    key: str | Sequence[str] | None = None
    """The columns that say which row replaces which."""
    time: str | None = None
    """A column with the time of the event, by which reads are pruned."""
    table: str | None = None
    """The Iceberg table that its rows land in: `namespace.name`."""
    partition_by: str | Sequence[str] | None = None
    """How that table is partitioned when it is made: `day(created_at)`, `bucket(16, id)`, `region`."""
    cleanup: str | None = None
    """What becomes of rows with time: "delete", "compact" or "both"."""
    retention: Duration | None = None
    """How long rows are kept: "90d", or seconds."""
    retention_bytes: int | str | None = None
    """How many bytes of its rows are kept: "10GB"."""
    tombstones: Duration | None = None
    """How long a delete is kept before a compaction drops it."""
    changes_retention: Duration | None = None
    """How long the change table of a keyed topic keeps its changes."""

    def policy(self, base: Policy) -> Policy:
        """The policy that is asked for, where `base` is what there is."""
        return policy_of(
            self.cleanup,
            self.retention,
            self.retention_bytes,
            self.tombstones,
            self.changes_retention,
            base=base,
        )


def plan_topics(
    state: MetadataState,
    wanted: Sequence[NewTopic],
    *,
    partitions_default: int,
    now_us: int,
    new_id: Callable[[], bytes],
) -> list[CreateTopic]:
    """The operations that make these topics be there; TopicExists where one is there and is another."""
    operations: list[CreateTopic] = []
    names: set[str] = set()
    for each in wanted:
        check_topic_name(each.name)
        if each.name in names:
            raise InvalidRequest(f"the topic {each.name!r} is asked for twice", topic=each.name)
        names.add(each.name)
        there = state.topic_named(each.name)
        if there is not None:
            _check_same(there, each)
            continue
        number = state.next_topic_number + len(operations)
        operations.append(CreateTopic(_record(each, number, partitions_default, now_us, new_id())))
    return operations


def _record(new: NewTopic, number: int, partitions_default: int, now_us: int, topic_id: bytes) -> TopicRecord:
    key = key_columns(new.key) or ()
    schema = check_topic_schema(schema_of(new.schema), key, new.time)
    partitions = _checked_partitions(partitions_default if new.partitions is None else new.partitions)
    policy = new.policy(Policy())
    if policy.cleanup != "delete" and not key:
        raise InvalidRequest(f"{new.name!r} has no key, so it cannot be compacted: give key=", topic=new.name)
    _check_table(new.table)
    partition_by = _partition_by(new.partition_by, schema, new.table) or ()
    return TopicRecord(
        number=number,
        name=new.name,
        topic_id=topic_id,
        created_us=now_us,
        schemas=(pack_schema(schema),),
        partitions=partitions,
        key=key,
        time_column=new.time,
        policy=policy,
        table=new.table,
        partition_by=partition_by,
    )


def _check_same(there: TopicRecord, wanted: NewTopic) -> None:
    """What is asked for is what is there; a schema may be any version that the topic has had."""
    key = key_columns(wanted.key)
    _check_equal(there, "key", key, there.key)
    _check_equal(there, "time", wanted.time, there.time_column)
    _check_equal(there, "table", wanted.table, there.table)
    present = unpack_schema(there.schemas[-1])
    _check_equal(there, "partition_by", _partition_by(wanted.partition_by, present, there.table), there.partition_by)
    if wanted.partitions is not None:
        _check_equal(there, "partitions", _checked_partitions(wanted.partitions), there.partitions)
    policy = wanted.policy(there.policy)
    if policy != there.policy:
        raise TopicExists(
            f"the topic {there.name!r} is there with another policy: change it with alter()",
            topic=there.name,
            present=there.policy,
            wanted=policy,
        )
    if wanted.schema is None:
        return
    schema = check_topic_schema(schema_of(wanted.schema), there.key, there.time_column)
    if not any(same_schema(schema, unpack_schema(version)) for version in there.schemas):
        raise TopicExists(
            f"the topic {there.name!r} is there with another schema ({_difference(there, schema)}): "
            "change it with alter(), or take another name",
            topic=there.name,
        )


def _check_equal(there: TopicRecord, what: str, wanted: object, present: object) -> None:
    if wanted is not None and wanted != present:
        raise TopicExists(
            f"the topic {there.name!r} is there with another {what}", topic=there.name, present=present, wanted=wanted
        )


def _difference(there: TopicRecord, wanted: pa.Schema) -> str:
    present = unpack_schema(there.schemas[-1])
    for name in wanted.names:
        if name not in present.names:
            return f"it has no column {name!r}"
        if present.field(name) != wanted.field(name):
            return f"its {_field_text(present.field(name))} is not {_field_text(wanted.field(name))}"
    missing = [name for name in present.names if name not in wanted.names]
    return f"it has a column {missing[0]!r} more" if missing else "its columns are in another order"


def _field_text(each: pa.Field) -> str:
    return f"{each.name}: {each.type}{'' if each.nullable else ' not null'}"


def plan_alteration(
    there: TopicRecord,
    *,
    schema: object = None,
    add: Mapping[str, object] | None = None,
    widen: Mapping[str, object] | None = None,
    partitions: int | None = None,
    table: str | None = None,
    partition_by: str | Sequence[str] | None = None,
    cleanup: str | None = None,
    retention: Duration | None = None,
    retention_bytes: int | str | None = None,
    tombstones: Duration | None = None,
    changes_retention: Duration | None = None,
) -> list[Operation]:
    """The operations that change a topic so; nothing where it is so already."""
    operations: list[Operation] = []
    present = unpack_schema(there.schemas[-1])
    after = altered_schema(present, there, schema, add, widen)
    if not same_schema(after, present):
        check_evolution(present, after, there.key)
        operations.append(AddSchema(there.number, len(there.schemas) + 1, pack_schema(after)))
    partitions = there.partitions if partitions is None else _checked_partitions(partitions)
    if partitions != there.partitions:
        if partitions < there.partitions:
            raise InvalidRequest(
                f"{there.name!r} has {there.partitions} partitions, and partitions are never taken away",
                topic=there.name,
                partitions=partitions,
            )
        operations.append(AddPartitions(there.number, partitions))
    policy = policy_of(cleanup, retention, retention_bytes, tombstones, changes_retention, base=there.policy)
    if policy != there.policy:
        if policy.cleanup != "delete" and not there.key:
            raise InvalidRequest(f"{there.name!r} has no key, so it cannot be compacted", topic=there.name)
        operations.append(SetPolicy(there.number, policy))
    parts = _partition_by(partition_by, after, table or there.table)
    if table is not None and table != there.table:
        _check_table(table)
        if there.table is not None:
            raise InvalidRequest(
                f"{there.name!r} lands in {there.table!r}, and stays there", topic=there.name, table=table
            )
        operations.append(SetTable(there.number, table, parts or ()))
    elif parts is not None and parts != there.partition_by:
        raise InvalidRequest(
            f"how {there.table!r} is partitioned was said when {there.name!r} got it: change the table itself, with "
            "ALTER TABLE; landings follow it",
            topic=there.name,
            table=there.table,
        )
    return operations


def altered_schema(
    present: pa.Schema,
    there: TopicRecord,
    schema: object,
    add: Mapping[str, object] | None,
    widen: Mapping[str, object] | None,
) -> pa.Schema:
    if schema is not None:
        if add or widen:
            raise InvalidRequest("give the whole new schema, or what is added and widened, not both")
        return check_topic_schema(schema_of(schema), there.key, there.time_column)
    fields = list(present)
    for name, wider in (widen or {}).items():
        at = present.get_field_index(name)
        if at < 0:
            raise InvalidRequest(f"{there.name!r} has no column {name!r} to widen", topic=there.name, column=name)
        fields[at] = fields[at].with_type(normal_type(schema_of({name: wider}).field(0).type, name))
    # A column that is added is null in every row that is there already, so it can only be nullable.
    fields += [each.with_nullable(True) for each in schema_of(add)] if add else []
    return check_topic_schema(pa.schema(fields), there.key, there.time_column)


def key_columns(key: object) -> tuple[str, ...] | None:
    if key is None:
        return None
    columns = (key,) if isinstance(key, str) else tuple(key) if isinstance(key, Sequence) else ()
    if not columns or not all(isinstance(column, str) for column in columns):
        raise InvalidRequest(f"a key is a column's name, or several of them, not {key!r}")
    return columns


def _checked_partitions(given: object) -> int:
    partitions = whole_number(given, "partitions")
    if isinstance(given, bool) or not 1 <= partitions <= PARTITIONS_MAX:
        raise InvalidRequest(f"a topic has 1 to {PARTITIONS_MAX:,} partitions", partitions=partitions)
    return partitions


def _partition_by(given: object, schema: pa.Schema, table: str | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    if table is None:
        raise InvalidRequest("partition_by is of a table: give table= too")
    return checked_parts(given, schema)


def _check_table(table: str | None) -> None:
    if table is not None and (table.count(".") < 1 or not all(table.split("."))):
        raise InvalidRequest(f"a table is named with its namespace, as in 'sales.orders': {table!r} is not")
