"""Schemas of topics: which there are, how one becomes another, and rows of an older one in a newer.

A schema in normal form holds only types that Spark and pyiceberg both read, so that a landing cannot meet a column
it has no place for.  Other encodings of the same values are taken and cast at the door; the rest is refused by the
column's name.

| given | kept as |
|---|---|
| bool, int8 to int64, uint8 to uint32, float16 to float64, string, binary, fixed binary, date32 | the same |
| large and view strings and binaries, dictionaries | the plain type of their values |
| decimal32, 64, 128, and 256 of at most 38 digits | decimal128 |
| timestamps of any unit; any zone | microseconds; UTC, or none if there was none |
| date64 | date32 |
| list, large list, list of fixed size; struct; map | list, struct, map, of normal types |
| the uuid extension | fixed binary of 16 bytes |
| uint64, time32, time64, duration, interval, union, null, other extensions, list views, run-end encoding | refused |

PROMISE  normal_schema(normal_schema(s)) = normal_schema(s), and metadata is not kept: a schema is its fields.
         Every change that check_evolution lets through can be read back: adapt never fails on rows of an older
         version, and no key's hash changes (partitioning.py).
NOT HERE Python classes as schemas: annotations.py.  Rows: rows.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headwater.errors import CorruptData, InvalidRequest
from headwater.topics.annotations import schema_of_annotations

BYTES = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.map_(pa.string(), pa.binary())),
    ]
)

DECIMAL_DIGITS_MAX = 38
SYSTEM_PREFIX = "_hw_"
# Iceberg's own columns of every table: a column of ours with such a name cannot be read back.
_ICEBERG_NAMES = frozenset({"_partition", "_pos", "_file", "_deleted", "_spec_id", "_row_id"})


# ------------------------------------------------------------------------------------------------ normal form


def schema_of(given: object) -> pa.Schema:
    """What a caller may give as a schema, in normal form: see docs/schemas.md."""
    if isinstance(given, pa.Schema):
        return normal_schema(given)
    if hasattr(given, "__arrow_c_schema__"):
        return normal_schema(pa.schema(given))
    fields = schema_of_annotations(given)
    if fields is None:
        raise InvalidRequest(
            "a schema is a pyarrow Schema, a dataclass, a pydantic model, or a dict of column names and types, "
            f"not {given!r}"
        )
    return normal_schema(fields)


def normal_schema(schema: pa.Schema) -> pa.Schema:
    """The schema in normal form, without metadata; InvalidRequest names the column that has none."""
    _check_names([field.name for field in schema], "the schema")
    return pa.schema([_normal_field(field, field.name) for field in schema])


def normal_type(type_: pa.DataType, column: str = "the column") -> pa.DataType:
    """The type in normal form; InvalidRequest, naming the column, if it has none."""
    if isinstance(type_, pa.UuidType):
        return pa.binary(16)
    if isinstance(type_, pa.BaseExtensionType):
        raise _refused(type_, column, "use its storage type")
    types = pa.types
    if types.is_dictionary(type_):
        return normal_type(type_.value_type, column)
    if types.is_large_string(type_) or types.is_string_view(type_):
        return pa.string()
    if types.is_large_binary(type_) or types.is_binary_view(type_):
        return pa.binary()
    if types.is_fixed_size_binary(type_):
        if type_.byte_width < 1:
            raise _refused(type_, column, "it holds nothing")
        return type_
    if types.is_decimal(type_):
        if type_.precision > DECIMAL_DIGITS_MAX:
            raise _refused(type_, column, f"a decimal has at most {DECIMAL_DIGITS_MAX} digits")
        if not 0 <= type_.scale <= type_.precision:
            raise _refused(type_, column, "its scale is from 0 to its precision")
        return pa.decimal128(type_.precision, type_.scale)
    if types.is_timestamp(type_):
        return pa.timestamp("us", tz=None if type_.tz is None else "UTC")
    if types.is_date64(type_):
        return pa.date32()
    if types.is_map(type_):
        return pa.map_(
            normal_type(type_.key_type, f"{column}.key"),
            _normal_field(type_.item_field.with_name("value"), f"{column}.value"),
        )
    if types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_):
        return pa.list_(_normal_field(type_.value_field.with_name("item"), f"{column}.item"))
    if types.is_struct(type_):
        _check_names([field.name for field in type_], column)
        return pa.struct([_normal_field(field, f"{column}.{field.name}") for field in type_])
    if types.is_uint64(type_):
        raise _refused(type_, column, "Iceberg has no unsigned 64 bits: use int64, or decimal128(20, 0)")
    if (
        types.is_boolean(type_)
        or types.is_integer(type_)
        or types.is_floating(type_)
        or types.is_string(type_)
        or types.is_binary(type_)
        or types.is_date32(type_)
    ):
        return type_
    if types.is_time(type_):
        raise _refused(type_, column, "one such column makes a table unreadable for Spark: use int64 or string")
    raise _refused(type_, column, "Spark and pyiceberg do not both read it")


def _normal_field(field: pa.Field, column: str) -> pa.Field:
    return pa.field(field.name, normal_type(field.type, column), nullable=field.nullable)


def _refused(type_: pa.DataType, column: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"{column}: {type_} cannot be a column's type: {why}")


def _check_names(names: Sequence[str], where: str) -> None:
    """Spark reads names without regard to case, so two that differ in nothing else cannot be told apart."""
    if not names:
        raise InvalidRequest(f"{where}: at least one column is needed")
    seen: dict[str, str] = {}
    for name in names:
        if not name:
            raise InvalidRequest(f"{where}: a column's name may not be empty")
        other = seen.get(name.casefold())
        if other == name:
            raise InvalidRequest(f"{where}: there are two columns named {name!r}")
        if other is not None:
            raise InvalidRequest(
                f"{where}: {other!r} and {name!r} differ only in case, and Spark cannot tell them apart"
            )
        seen[name.casefold()] = name


# ------------------------------------------------------------------------------------------------ of a topic


def check_topic_schema(schema: pa.Schema, key: tuple[str, ...], time_column: str | None) -> pa.Schema:
    """The schema as the topic keeps it: in normal form, its key columns not nullable; else InvalidRequest."""
    schema = normal_schema(schema)
    for name in schema.names:
        if name.casefold().startswith(SYSTEM_PREFIX):
            raise InvalidRequest(f"{name}: names that begin with {SYSTEM_PREFIX!r} are Headwater's own")
        if name.casefold() in _ICEBERG_NAMES:
            raise InvalidRequest(f"{name}: Iceberg has a column of this name in every table")
    if len(set(key)) != len(key):
        raise InvalidRequest("a column can be in the key once", key=key)
    for name in key:
        place = _place(schema, name, "the key")
        if not is_key_type(schema.field(place).type):
            raise InvalidRequest(
                f"{name}: a column of {schema.field(place).type} cannot be a key: its values have no one form to hash"
            )
        schema = schema.set(place, schema.field(place).with_nullable(False))
    if time_column is not None:
        place = _place(schema, time_column, "the time column")
        if not pa.types.is_timestamp(schema.field(place).type):
            raise InvalidRequest(f"{time_column}: a time column is a timestamp, not {schema.field(place).type}")
    return schema


def is_key_type(type_: pa.DataType) -> bool:
    """Whether equal values of a type in normal form have equal bytes: floats (-0.0, NaN) and nested ones do not."""
    types = pa.types
    return bool(
        types.is_boolean(type_)
        or types.is_integer(type_)
        or types.is_date32(type_)
        or types.is_timestamp(type_)
        or types.is_decimal(type_)
        or types.is_string(type_)
        or types.is_binary(type_)
        or types.is_fixed_size_binary(type_)
    )


def _place(schema: pa.Schema, name: str, role: str) -> int:
    place: int = schema.get_field_index(name)
    if place < 0:
        raise InvalidRequest(f"{name}: {role} names a column that the schema does not have", columns=schema.names)
    return place


# ------------------------------------------------------------------------------------------------- evolution


def check_evolution(old: pa.Schema, new: pa.Schema, key: tuple[str, ...]) -> None:
    """InvalidRequest, naming the column, unless every row of `old` is a row of `new` with the same meaning."""
    _check_fields(list(old), list(new), "")
    for name in key:
        if new.field(name).nullable:
            raise InvalidRequest(f"{name}: a key may not be null")


def _check_fields(old: list[pa.Field], new: list[pa.Field], path: str) -> None:
    names = [field.name for field in new]
    for place, field in enumerate(old):
        column = path + field.name
        if field.name not in names:
            raise InvalidRequest(f"{column}: a column cannot be dropped or renamed")
        if names[place] != field.name:
            raise InvalidRequest(f"{column}: columns keep their places; new ones come last")
        _check_field(field, new[place], column)
    for field in new[len(old) :]:
        if not field.nullable:
            raise InvalidRequest(
                f"{path}{field.name}: a new column must be nullable: rows that are there have no value"
            )


def _check_field(old: pa.Field, new: pa.Field, column: str) -> None:
    if old.nullable and not new.nullable:
        raise InvalidRequest(f"{column}: it may be null already, and rows that are there may be")
    types = pa.types
    before, after = old.type, new.type
    if types.is_struct(before) and types.is_struct(after):
        _check_fields(list(before), list(after), f"{column}.")
    elif types.is_map(before) and types.is_map(after) and before.key_type.equals(after.key_type):
        _check_field(before.item_field, after.item_field, f"{column}.value")
    elif types.is_list(before) and types.is_list(after):
        _check_field(before.value_field, after.value_field, f"{column}.item")
    elif not (before.equals(after) or _is_wider(before, after)):
        raise InvalidRequest(f"{column}: {before} cannot become {after}: types can only be widened")


def _is_wider(before: pa.DataType, after: pa.DataType) -> bool:
    types = pa.types
    if types.is_signed_integer(before):
        return bool(types.is_signed_integer(after) and after.bit_width > before.bit_width)
    if types.is_unsigned_integer(before):
        return bool(types.is_integer(after) and after.bit_width > before.bit_width)
    if types.is_floating(before):
        return bool(types.is_floating(after) and after.bit_width > before.bit_width)
    if types.is_decimal(before):
        return bool(types.is_decimal(after) and after.scale == before.scale and after.precision > before.precision)
    return False


def adapt(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows of an older version in a newer schema: columns they lack are null, narrower ones are cast."""
    if batch.schema.equals(schema):
        return batch
    columns = []
    for field in schema:
        place = batch.schema.get_field_index(field.name)
        if place < 0:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        column = batch.column(place)
        columns.append(column if column.type.equals(field.type) else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def same_schema(a: pa.Schema, b: pa.Schema) -> bool:
    """Equal names, types and nullability, in order; metadata is not looked at."""
    return bool(a.equals(b, check_metadata=False))


# ----------------------------------------------------------------------------------------------------- bytes


def pack_schema(schema: pa.Schema) -> bytes:
    """The schema as an Arrow IPC schema message."""
    return bytes(schema.serialize().to_pybytes())


def unpack_schema(data: bytes | memoryview) -> pa.Schema:
    """The reverse; CorruptData if these bytes are no schema."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(data))
    except (pa.ArrowException, OSError) as error:
        raise CorruptData("a stored schema cannot be read", cause=str(error)) from error
