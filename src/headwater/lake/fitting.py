"""How a topic's columns go into a table that is there: by name, in its types, with what the landing's commit changes.

| the topic's column | the table's | |
|---|---|---|
| is not there | | the table gets it, optional |
| the same type, or a narrower one | | it is written as the table has it |
| int64; float64; decimal(p + n, s) | int; float; decimal(p, s) | the table's is widened |
| may be null | required | it becomes optional in a table that a landing made; else halt |
| another type, or another scale | | halt |
| differs in nothing but upper and lower case | | halt: Spark cannot tell the two apart |
| | required, and the topic has none | halt |
| | optional, and the topic has none | it is null in the rows that land |

Fields of structs go by the same rules, wherever they are.

PROMISE  Pure.  A halt is LandingHalted("schema") and names the column; nothing was changed.
         Field ids of the table stay; new ones are above the highest that the table ever had.
"""

from __future__ import annotations

import itertools
import json
from typing import NoReturn

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, _SetFreshIDs, pre_order_visit
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import UnknownTransform
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StructType,
)

from headwater.errors import LandingHalted
from headwater.lake.work import Column

ROOT = -1
"""Stands for the table itself where the parent of a field is named by its id."""


class Fitting:
    """One topic's columns, laid against one table's."""

    def __init__(self, table: str, metadata: TableMetadata, wanted: Schema, *, made_by_landing: bool) -> None:
        self._table = table
        self._made_by_landing = made_by_landing
        self._ids = itertools.count(metadata.last_column_id + 1)
        present = metadata.schema()
        self._identifiers = set(present.identifier_field_ids)
        self.added: dict[int, list[NestedField]] = {}
        """New fields, by the id of the field that they are in."""
        self._ever = {name for schema in metadata.schemas for name in schema.column_names}
        """Columns that the table has, or has had; those inside others by their paths."""
        self._check_spec(metadata.spec(), present)
        fields = self._fields(present.fields, wanted.fields, "", ROOT)
        self._check_partition_names(metadata)
        self.changes_schema = fields != present.fields
        self.schema = present
        """The table's schema after the landing's commit."""
        if self.changes_schema:
            newest = max(schema.schema_id for schema in metadata.schemas)
            self.schema = Schema(*fields, schema_id=newest + 1, identifier_field_ids=present.identifier_field_ids)
        written = {field.name for field in wanted.fields}
        self.columns = tuple(
            Column(field.field_id, field.name, spelled(field.field_type))
            for field in sorted(self.schema.fields, key=lambda field: field.field_id)
            if field.name in written
        )

    def _fields(
        self, present: tuple[NestedField, ...], wanted: tuple[NestedField, ...], path: str, parent: int
    ) -> tuple[NestedField, ...]:
        waiting = {field.name: field for field in wanted}
        fields = [self._field(field, waiting.pop(field.name, None), path + field.name) for field in present]
        by_folded = {field.name.casefold(): field.name for field in present}
        for field in waiting.values():
            other = by_folded.get(field.name.casefold())
            if other is not None:
                self._halt(path + field.name, f"the table's {other!r} differs from it only in case")
            if path + field.name in self._ever:
                # Added anew it would be null in every row that has landed, and nobody would be told.
                self._halt(path + field.name, "its owner dropped or renamed it: rename it back, or add it again")
            new = NestedField(
                field_id=next(self._ids),
                name=field.name,
                field_type=pre_order_visit(field.field_type, _SetFreshIDs(lambda: next(self._ids))),
                required=False,
            )
            fields.append(new)
            self.added.setdefault(parent, []).append(new)
        return tuple(fields)

    def _field(self, present: NestedField, wanted: NestedField | None, path: str) -> NestedField:
        if wanted is None:
            if present.required:
                self._halt(path, "it is required in the table, and the topic does not have it")
            return present
        required = self._required(present.required, wanted.required, present.field_id, path)
        type_ = self._type(present.field_type, wanted.field_type, path, present.field_id)
        if type_ == present.field_type and required == present.required:
            return present
        return present.model_copy(update={"field_type": type_, "required": required})

    def _required(self, present: bool, wanted: bool, field_id: int, path: str) -> bool:
        if present and not wanted and (not self._made_by_landing or field_id in self._identifiers):
            self._halt(path, "it is required in the table, and may be null in the topic: make it optional in the table")
        return present and wanted

    def _type(self, present: IcebergType, wanted: IcebergType, path: str, field_id: int) -> IcebergType:
        match present, wanted:
            case StructType(), StructType():
                return StructType(*self._fields(present.fields, wanted.fields, f"{path}.", field_id))
            case ListType(), ListType():
                inner = f"{path}.element"
                required = self._required(present.element_required, wanted.element_required, present.element_id, inner)
                element = self._type(present.element_type, wanted.element_type, inner, present.element_id)
                return ListType(present.element_id, element, element_required=required)
            case MapType(), MapType():
                if not _is_same(present.key_type, wanted.key_type):
                    self._halt(f"{path}.key", f"it is {present.key_type} in the table and {wanted.key_type} here")
                inner = f"{path}.value"
                required = self._required(present.value_required, wanted.value_required, present.value_id, inner)
                value = self._type(present.value_type, wanted.value_type, inner, present.value_id)
                return MapType(present.key_id, present.key_type, present.value_id, value, value_required=required)
        if present == wanted or _is_wider(present, wanted):
            return present
        if _is_wider(wanted, present):
            return wanted
        self._halt(path, f"it is {present} in the table and {wanted} in the topic")

    def _check_spec(self, spec: PartitionSpec, present: Schema) -> None:
        sources = [field.source_id for field in spec.fields]
        if len(set(sources)) != len(sources) or any(
            isinstance(field.transform, UnknownTransform) for field in spec.fields
        ):
            raise LandingHalted(
                "spec",
                f"{self._table!r} is partitioned in a way that cannot be written here: one column twice, or by a "
                "transform that is not known; replace the partition field, or give the topic another table",
                table=self._table,
                spec=str(spec),
            )
        for source in sources:
            if present.find_column_name(source) is None:
                raise LandingHalted(
                    "spec",
                    f"{self._table!r} is partitioned by a column that it no longer has: replace the partition field",
                )

    def _check_partition_names(self, metadata: TableMetadata) -> None:
        taken = {field.name for spec in metadata.partition_specs for field in spec.fields}
        for field in self.added.get(ROOT, []):
            if field.name in taken:
                self._halt(field.name, "a partition of the table has this name already")

    def _halt(self, column: str, why: str) -> NoReturn:
        raise LandingHalted(
            "schema",
            f"the topic's rows do not fit {self._table!r}: {column}: {why}; change the table back, or give the topic "
            "another one",
            table=self._table,
            column=column,
        )


def spelled(type_: IcebergType) -> str:
    """As Iceberg spells it; a nested type in JSON, because names inside it may hold anything."""
    return str(type_) if type_.is_primitive else type_.model_dump_json()


def field_of(column: Column) -> NestedField:
    """A column again, from how it was spelled."""
    nested = column.type.startswith("{")
    return NestedField.model_validate(
        {
            "id": column.field_id,
            "name": column.name,
            "type": json.loads(column.type) if nested else column.type,
            "required": False,
        }
    )


def _is_same(a: IcebergType, b: IcebergType) -> bool:
    """Equal but for field ids, which a topic's columns do not have."""
    if isinstance(a, StructType) and isinstance(b, StructType):
        return len(a.fields) == len(b.fields) and all(
            x.name == y.name and x.required == y.required and _is_same(x.field_type, y.field_type)
            for x, y in zip(a.fields, b.fields, strict=True)
        )
    if isinstance(a, ListType) and isinstance(b, ListType):
        return a.element_required == b.element_required and _is_same(a.element_type, b.element_type)
    if isinstance(a, MapType) and isinstance(b, MapType):
        return (
            a.value_required == b.value_required
            and _is_same(a.key_type, b.key_type)
            and _is_same(a.value_type, b.value_type)
        )
    return a == b


def _is_wider(wide: IcebergType, narrow: IcebergType) -> bool:
    match wide, narrow:
        case (LongType(), IntegerType()) | (DoubleType(), FloatType()):
            return True
        case DecimalType(), DecimalType():
            return wide.scale == narrow.scale and wide.precision > narrow.precision
    return False
