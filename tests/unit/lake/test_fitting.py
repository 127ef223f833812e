"""How a topic's columns go into a table that is there."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import parse_transform

from headwater.errors import LandingHalted
from headwater.lake.fitting import Fitting

INT, LONG, TEXT = pa.int32(), pa.int64(), pa.string()


def iceberg(*fields: pa.Field) -> Schema:
    return assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(pa.schema(fields)))


def table(
    *fields: pa.Field, spec: Sequence[tuple[str, str, str]] = (), identifiers: Sequence[int] = ()
) -> TableMetadata:
    schema = iceberg(*fields)
    schema = Schema(*schema.fields, identifier_field_ids=list(identifiers))
    parts = [
        PartitionField(schema.find_field(column).field_id, 1000 + place, parse_transform(transform), name)
        for place, (column, transform, name) in enumerate(spec)
    ]
    return new_table_metadata(schema, PartitionSpec(*parts), UNSORTED_SORT_ORDER, "file:///lake", {})


def fitting(present: TableMetadata, *wanted: pa.Field, ours: bool = True) -> Fitting:
    return Fitting("sales.orders", present, iceberg(*wanted), made_by_landing=ours)


def field(name: str, type_: pa.DataType, *, required: bool = False) -> pa.Field:
    return pa.field(name, type_, nullable=not required)


def ids_by_name(present: TableMetadata) -> dict[str, int]:
    return {name: number for number, name in present.schema()._lazy_id_to_name.items()}


def shown(schema: Schema) -> list[tuple[int, str, str, bool]]:
    return [(each.field_id, each.name, str(each.field_type), each.required) for each in schema.fields]


def test_columns_that_are_the_same_change_nothing() -> None:
    present = table(field("id", LONG, required=True), field("name", TEXT))

    found = fitting(present, field("name", TEXT), field("id", LONG, required=True))

    assert not found.changes_schema and found.schema is present.schema()
    assert [(column.field_id, column.name, column.type) for column in found.columns] == [
        (1, "id", "long"),
        (2, "name", "string"),
    ]


def test_a_new_column_is_optional_and_its_ids_were_never_used() -> None:
    present = table(field("id", LONG)).model_copy(update={"last_column_id": 40})
    new = field("tags", pa.list_(pa.struct([field("t", TEXT, required=True)])), required=True)

    found = fitting(present, field("id", LONG), new)

    assert found.changes_schema and found.schema.schema_id == 1
    added = found.schema.find_field("tags")
    assert added.field_id == 41 and not added.required
    assert sorted(found.schema._lazy_id_to_name)[1:] == [41, 42, 43]


@pytest.mark.parametrize(
    ("present", "wanted", "becomes"),
    [
        (INT, LONG, "long"),
        (LONG, INT, "long"),
        (pa.float32(), pa.float64(), "double"),
        (pa.float64(), pa.float32(), "double"),
        (pa.decimal128(9, 2), pa.decimal128(11, 2), "decimal(11, 2)"),
        (pa.decimal128(11, 2), pa.decimal128(9, 2), "decimal(11, 2)"),
    ],
    ids=str,
)
def test_the_wider_of_two_types_is_the_tables(present: pa.DataType, wanted: pa.DataType, becomes: str) -> None:
    found = fitting(table(field("x", present)), field("x", wanted))

    assert str(found.schema.find_type("x")) == becomes == found.columns[0].type
    assert found.schema.find_field("x").field_id == 1
    assert found.changes_schema == (str(table(field("x", present)).schema().find_type("x")) != becomes)


@pytest.mark.parametrize(
    ("present", "wanted"),
    [
        (TEXT, LONG),
        (LONG, TEXT),
        (TEXT, pa.binary()),
        (LONG, pa.float64()),
        (INT, pa.float64()),
        (pa.decimal128(11, 2), pa.decimal128(11, 3)),
        (pa.decimal128(11, 2), pa.decimal128(9, 3)),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.date32(), pa.timestamp("us")),
        (pa.binary(4), pa.binary(5)),
        (pa.list_(TEXT), TEXT),
        (pa.list_(TEXT), pa.list_(LONG)),
        (pa.map_(TEXT, LONG), pa.map_(LONG, LONG)),
        (pa.map_(INT, LONG), pa.map_(LONG, LONG)),
        (pa.struct([field("a", TEXT)]), pa.struct([field("a", LONG)])),
    ],
    ids=str,
)
def test_another_type_is_a_halt_that_names_the_column(present: pa.DataType, wanted: pa.DataType) -> None:
    with pytest.raises(LandingHalted, match=r"'sales.orders': x.*: it is .* in the table") as halted:
        fitting(table(field("x", present)), field("x", wanted))

    assert halted.value.cause == "schema"


def test_a_map_with_the_same_keys_fits_whatever_is_in_them() -> None:
    key = pa.struct([field("a", pa.list_(TEXT)), field("b", pa.map_(TEXT, LONG))])

    found = fitting(table(field("m", pa.map_(key, INT))), field("m", pa.map_(key, LONG)))

    assert found.changes_schema and "long" in found.columns[0].type


def test_fields_inside_go_by_the_same_rules() -> None:
    present = table(
        field("s", pa.struct([field("a", INT), field("theirs", TEXT)])),
        field("l", pa.list_(pa.struct([field("a", INT)]))),
        field("m", pa.map_(TEXT, pa.struct([field("a", INT)]))),
    )
    inner = pa.struct([field("a", LONG), field("b", TEXT)])

    found = fitting(present, field("s", inner), field("l", pa.list_(inner)), field("m", pa.map_(TEXT, inner)))

    assert all(found.schema.find_column_name(number) == name for name, number in ids_by_name(present).items())
    for path in ("s.a", "l.element.a", "m.value.a"):
        assert str(found.schema.find_type(path)) == "long"
    assert [found.schema.find_field(path).field_id for path in ("s.b", "l.element.b", "m.value.b")] == [11, 12, 13]
    assert found.schema.find_field("s.theirs").field_id == ids_by_name(present)["s.theirs"]
    assert set(found.added) == {1, 6, 9}


def test_a_column_that_the_topic_lacks_is_null_if_it_may_be() -> None:
    found = fitting(table(field("id", LONG), field("theirs", TEXT)), field("id", LONG))

    assert not found.changes_schema and [column.name for column in found.columns] == ["id"]
    with pytest.raises(LandingHalted, match="theirs: it is required in the table, and the topic does not have it"):
        fitting(table(field("id", LONG), field("theirs", TEXT, required=True)), field("id", LONG))


def test_a_field_inside_that_the_topic_lacks_is_a_halt_if_it_is_required() -> None:
    present = table(field("s", pa.struct([field("a", LONG), field("theirs", TEXT, required=True)])))

    with pytest.raises(LandingHalted, match=r"s\.theirs: it is required"):
        fitting(present, field("s", pa.struct([field("a", LONG)])))


def test_a_column_may_become_optional_in_a_table_that_a_landing_made() -> None:
    present = table(field("id", LONG, required=True), field("l", pa.list_(field("element", LONG, required=True))))

    found = fitting(present, field("id", LONG), field("l", pa.list_(LONG)))

    assert found.changes_schema and not found.schema.find_field("id").required
    assert not found.schema.find_field("l.element").required


@pytest.mark.parametrize(("ours", "identifiers"), [(False, []), (True, [1])])
def test_what_an_owner_requires_stays_required(ours: bool, identifiers: list[int]) -> None:
    present = table(field("id", LONG, required=True), identifiers=identifiers)

    with pytest.raises(LandingHalted, match="make it optional in the table"):
        fitting(present, field("id", LONG), ours=ours)


def test_an_optional_column_stays_so_though_the_topic_requires_it() -> None:
    assert not fitting(table(field("id", LONG)), field("id", LONG, required=True)).changes_schema


def test_identifier_fields_stay() -> None:
    present = table(field("id", LONG, required=True), identifiers=[1])

    found = fitting(present, field("id", LONG, required=True), field("name", TEXT), ours=False)

    assert found.schema.identifier_field_ids == [1]


def test_names_that_differ_only_in_case_are_a_halt() -> None:
    with pytest.raises(LandingHalted, match="the table's 'ID' differs from it only in case"):
        fitting(table(field("ID", LONG)), field("id", LONG))


def test_a_column_that_was_dropped_or_renamed_is_not_added_as_another_one() -> None:
    """What has landed under its old id would be null from then on, and nobody would be told."""
    before = table(field("id", LONG), field("amount", LONG))
    now = Schema(*(each for each in before.schema().fields if each.name != "amount"), schema_id=1)
    renamed = before.model_copy(update={"schemas": [before.schema(), now], "current_schema_id": 1})

    with pytest.raises(LandingHalted, match="amount: its owner dropped or renamed it") as halted:
        fitting(renamed, field("id", LONG), field("amount", LONG))

    assert halted.value.cause == "schema"


def test_a_new_column_cannot_have_the_name_of_a_partition() -> None:
    present = table(field("at", pa.timestamp("us")), spec=[("at", "day", "at_day")])

    with pytest.raises(LandingHalted, match="at_day: a partition of the table has this name"):
        fitting(present, field("at", pa.timestamp("us")), field("at_day", TEXT))


@pytest.mark.parametrize(
    "spec", [[("id", "bucket[4]", "a"), ("id", "truncate[4]", "b")], [("id", "zorder", "a")]], ids=str
)
def test_a_partitioning_that_cannot_be_written_is_a_halt(spec: list[tuple[str, str, str]]) -> None:
    with pytest.raises(LandingHalted) as halted:
        fitting(table(field("id", LONG), spec=spec), field("id", LONG))

    assert halted.value.cause == "spec"


def test_a_partitioning_by_a_column_that_is_gone_is_a_halt() -> None:
    present = table(field("id", LONG), field("day", TEXT), spec=[("day", "identity", "day")])
    dropped = Schema(present.schema().find_field("id"), schema_id=present.current_schema_id)

    with pytest.raises(LandingHalted, match="by a column that it no longer has") as halted:
        fitting(present.model_copy(update={"schemas": [dropped]}), field("id", LONG))

    assert halted.value.cause == "spec"


def test_nested_types_are_spelled_so_that_any_name_can_be_told_apart() -> None:
    found = fitting(
        table(field("s", pa.struct([field("a, b: int>", LONG)]))), field("s", pa.struct([field("a, b: int>", LONG)]))
    )

    assert found.columns[0].type.startswith('{"type":"struct"')


def test_the_schema_of_a_fit_is_shown_whole() -> None:
    found = fitting(table(field("id", INT, required=True)), field("id", LONG, required=True), field("name", TEXT))

    assert shown(found.schema) == [(1, "id", "long", True), (2, "name", "string", False)]
