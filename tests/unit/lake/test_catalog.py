"""Which catalog a caller means, and what Spark is told of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pyiceberg.catalog.sql
import pytest

from headwater.errors import InvalidRequest, Unavailable
from headwater.lake.catalog import CatalogPlace, catalog_place
from headwater.lake.catalog_connection import _bounded_uri
from headwater.lake.iceberg_tables import IcebergTables
from tests.e2e_lake.tables_contract import at_once
from tests.unit.lake.scratch_tables import TABLE, connected, land, loaded, sqlite_place

SQLITE = {"type": "sql", "uri": "sqlite:////data/lake.db", "warehouse": "file:///data/lake"}


def test_without_a_catalog_there_is_one_in_the_data_directory(tmp_path: Path) -> None:
    place = catalog_place(None, directory=str(tmp_path))

    assert place.name == "headwater" and place.kind == "sql"
    with connected(place) as tables:
        land(tables)
    assert (tmp_path / "catalog.db").exists() and (tmp_path / "lake" / "sales" / "orders").is_dir()


def test_a_mapping_is_pyicebergs_properties_with_the_name_among_them() -> None:
    place = catalog_place({"name": "lake", **SQLITE}, directory="elsewhere")

    assert place.name == "lake" and place.properties == SQLITE


def test_a_name_is_looked_up_in_pyicebergs_own_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__SALES__URI", f"sqlite:///{tmp_path}/sales.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__SALES__WAREHOUSE", f"file://{tmp_path}/wh")

    place = catalog_place("sales", directory="elsewhere")

    assert place.kind == "sql"
    with connected(place) as tables:
        land(tables)
    assert (tmp_path / "wh" / "sales" / "orders").is_dir()


def test_a_name_that_nobody_has_configured_is_refused_with_a_way_out() -> None:
    with pytest.raises(InvalidRequest, match="PYICEBERG_CATALOG__NOWHERE__URI"):
        catalog_place("nowhere", directory="x")


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"type": "hadoop", "warehouse": "file:///x"}, "Hadoop"),
        ({"type": "in-memory"}, "in-memory"),
        ({"type": "sql", "uri": "sqlite://"}, "in-memory"),
        ({"uri": "sqlite:///:memory:"}, "in-memory"),
        ({"uri": "sqlite:///file:x?mode=memory&uri=true"}, "in-memory"),
        ({"type": "sql"}, "no uri"),
        ({"warehouse": "file:///x"}, "neither its type nor a uri"),
    ],
    ids=str,
)
def test_a_catalog_that_cannot_be_landed_in_is_refused_by_name(properties: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        catalog_place(properties, directory="x")


def test_a_catalog_that_is_no_name_and_no_mapping_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="a name or a mapping"):
        catalog_place(7, directory="x")  # type: ignore[arg-type]


def test_a_path_that_an_address_cannot_hold_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="give a catalog="):
        catalog_place(None, directory="/data/a?b")


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        ({"uri": "http://lake:8181"}, "rest"),
        ({"uri": "https://lake"}, "rest"),
        ({"uri": "thrift://lake:9083"}, "hive"),
        ({"uri": "postgresql+psycopg2://lake/db"}, "sql"),
        ({"type": "GLUE"}, "glue"),
        ({"py-catalog-impl": "ours.Catalog"}, "custom"),
    ],
    ids=str,
)
def test_the_kind_is_what_is_said_or_what_the_address_tells(properties: dict[str, str], kind: str) -> None:
    assert catalog_place(properties, directory="x").kind == kind


def test_a_place_does_not_show_its_passwords() -> None:
    place = catalog_place({"uri": "postgresql://hw:secret@lake/db"}, directory="x")

    assert "secret" not in repr(place)


def test_every_connection_is_a_new_one(tmp_path: Path) -> None:
    place = sqlite_place(tmp_path)

    with connected(place) as one, connected(place) as other:
        land(one)

        assert one.catalog is not other.catalog
        assert loaded(other).head() == loaded(one).head() is not None


def test_many_may_open_a_new_catalog_at_once(tmp_path: Path) -> None:
    place = sqlite_place(tmp_path)

    opened = at_once(*[place.connect] * 6)

    for tables in opened:
        assert isinstance(tables, IcebergTables)
        assert tables.load(TABLE) is None
        tables.close()


def test_a_postgres_catalog_waits_for_nothing_without_an_end() -> None:
    given = "postgresql+psycopg2://hw@lake/db?sslmode=require"

    assert _bounded_uri(given) == (
        f"{given}&connect_timeout=10&options=-c+lock_timeout%3D30s+-c+statement_timeout%3D60s"
    )
    assert _bounded_uri(given, options=False) == f"{given}&connect_timeout=10"
    assert _bounded_uri("postgresql://lake/db?connect_timeout=3&options=x") == (
        "postgresql://lake/db?connect_timeout=3&options=x"
    )
    assert _bounded_uri("mysql://lake/db") == "mysql://lake/db"


def test_a_sqlite_catalog_lets_readers_and_a_commit_go_on_together_and_waits_for_locks(tmp_path: Path) -> None:
    with connected(sqlite_place(tmp_path)) as tables:
        engine = tables.catalog.engine  # type: ignore[attr-defined]
        with engine.connect() as connection:
            mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar()
            wait_ms = connection.exec_driver_sql("PRAGMA busy_timeout").scalar()

    assert mode == "wal" and wait_ms == 30_000


def test_a_catalog_that_cannot_be_reached_is_unavailable(tmp_path: Path) -> None:
    place = catalog_place({"uri": f"sqlite:///{tmp_path}/no/such/folder/x.db", "warehouse": "file:///x"}, directory="x")

    with pytest.raises(Unavailable, match="cannot be opened"):
        place.connect()


def test_a_catalog_of_a_class_of_its_own_is_opened_as_pyiceberg_does(tmp_path: Path) -> None:
    given = {"py-catalog-impl": "pyiceberg.catalog.sql.SqlCatalog", **sqlite_place(tmp_path).properties}
    del given["type"]
    place = catalog_place(given, directory="x")

    with connected(place) as tables:
        land(tables)

    assert place.kind == "custom"
    with connected(sqlite_place(tmp_path)) as tables:
        assert loaded(tables).head() is not None


def test_a_catalog_whose_client_is_not_installed_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog.hive", None)
    place = catalog_place({"uri": "thrift://127.0.0.1:9"}, directory="x")

    with pytest.raises(InvalidRequest, match=r"needs further packages: pip install 'headwater\[lake\]'"):
        place.connect()


def test_a_pooler_before_postgres_that_takes_no_options_is_asked_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given what stands between us and the database, in its own words.
    asked: list[str] = []

    class Pooled:
        def __init__(self, _name: str, **properties: str) -> None:
            asked.append(properties["uri"])
            if "options=" in properties["uri"]:
                raise OSError("FATAL: unsupported startup parameter: options")

    monkeypatch.setattr(pyiceberg.catalog.sql, "SqlCatalog", Pooled)
    place = catalog_place({"uri": "postgresql://lake/db", "warehouse": "file:///x"}, directory="x")

    opened = place.connect()

    assert isinstance(opened.catalog, Pooled)
    assert asked[1:] == ["postgresql://lake/db?connect_timeout=10"] and "lock_timeout" in asked[0]


def test_a_rest_catalog_that_does_not_listen_is_unavailable() -> None:
    place = catalog_place({"uri": "http://127.0.0.1:9", "warehouse": "file:///x"}, directory="x")

    with pytest.raises(Unavailable, match="cannot be opened"):
        place.connect()


@pytest.mark.parametrize(
    "program", ["catalog_place(None, directory='x').connect()", "catalog_place('x', directory='x')"]
)
def test_without_pyiceberg_the_package_to_install_is_named(program: str) -> None:
    hidden = (
        "import sys\nsys.modules['pyiceberg'] = None\nfrom headwater.errors import InvalidRequest\n"
        "from headwater.lake.catalog import catalog_place\n"
        f"try:\n    {program}\n"
        "except InvalidRequest as error:\n    assert 'headwater[lake]' in str(error)\n"
        "else:\n    raise SystemExit('nothing was refused')\n"
    )

    done = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr


# ------------------------------------------------------------------------------------------------------ Spark


def spark(properties: Mapping[str, str], spark_name: str | None = None) -> dict[str, str]:
    name = "lake" if spark_name is None else spark_name
    prefix = f"spark.sql.catalog.{name}"
    found = CatalogPlace("lake", properties).spark_properties(spark_name)
    assert found.pop(prefix) == "org.apache.iceberg.spark.SparkCatalog"
    return {key.removeprefix(f"{prefix}."): value for key, value in found.items()}


def test_spark_reads_a_sqlite_catalog_by_jdbc() -> None:
    assert spark(SQLITE) == {
        "type": "jdbc",
        "uri": "jdbc:sqlite:/data/lake.db",
        "jdbc.schema-version": "V1",
        "jdbc.busy_timeout": "30000",
        "warehouse": "file:///data/lake",
    }


def test_spark_is_given_user_and_password_of_a_postgres_catalog_apart_from_its_address() -> None:
    uri = "postgresql+psycopg2://h%40w:p%2Fw@lake:5433/db?connect_timeout=3"

    assert spark({"uri": uri, "warehouse": "s3://bucket/wh", "s3.region": "eu-1", "pool_pre_ping": "true"}) == {
        "type": "jdbc",
        "uri": "jdbc:postgresql://lake:5433/db",
        "jdbc.schema-version": "V1",
        "jdbc.user": "h@w",
        "jdbc.password": "p/w",
        "warehouse": "s3://bucket/wh",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "client.region": "eu-1",
    }


def test_spark_is_given_a_rest_catalog_with_its_credentials() -> None:
    properties = {"uri": "http://lake:8181", "warehouse": "wh", "credential": "a:b", "py-io-impl": "x.Y"}

    assert spark(properties, "other") == {
        "type": "rest",
        "uri": "http://lake:8181",
        "warehouse": "wh",
        "credential": "a:b",
    }


def test_spark_is_told_no_user_where_a_postgres_catalogs_address_names_none() -> None:
    told = {"type": "jdbc", "jdbc.schema-version": "V1"}

    assert spark({"uri": "postgresql://lake/db"}) == {**told, "uri": "jdbc:postgresql://lake/db"}
    assert spark({"uri": "postgresql://hw@lake/db"}) == {
        **told,
        "uri": "jdbc:postgresql://lake/db",
        "jdbc.user": "hw",
    }


def test_spark_is_told_no_address_of_a_catalog_that_has_none() -> None:
    assert spark({"type": "glue", "warehouse": "s3://bucket/wh"}) == {
        "type": "glue",
        "warehouse": "s3://bucket/wh",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
    }


def test_the_address_of_a_database_that_java_spells_otherwise_is_not_guessed() -> None:
    with pytest.raises(InvalidRequest, match="not known in Java's form"):
        CatalogPlace("lake", {"type": "sql", "uri": "mysql://lake/db"}).spark_properties()


def test_a_sql_catalog_has_the_same_name_in_spark() -> None:
    with pytest.raises(InvalidRequest, match="must be named 'lake' too"):
        CatalogPlace("lake", SQLITE).spark_properties("other")


@pytest.mark.parametrize("properties", [{"type": "dynamodb"}, {"uri": "sqlite+x://", "type": "bigquery"}], ids=str)
def test_what_spark_is_to_be_told_is_not_guessed(properties: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest, match="not known here"):
        CatalogPlace("lake", properties).spark_properties()


def test_a_table_is_found_by_its_namespace_and_name(tmp_path: Path) -> None:
    with connected(sqlite_place(tmp_path)) as tables:
        assert tables.load(TABLE) is None
        land(tables)
        assert loaded(tables).name == TABLE


@pytest.mark.parametrize(
    ("told", "tries"),
    [
        (["table iceberg_tables already exists", "table iceberg_namespace_properties already exists"], 3),
        (["table iceberg_tables already exists", "the disk is full"], 2),
        (["nobody answers", "nobody answers"], 2),
        (["table iceberg_tables already exists"] * 3, 3),
    ],
)
def test_who_opens_a_new_database_beside_another_tries_until_both_its_tables_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: list[str], tries: int
) -> None:
    tried: list[str] = []

    class Raced(pyiceberg.catalog.sql.SqlCatalog):
        def __init__(self, name: str, **properties: str) -> None:
            tried.append(name)
            if len(tried) <= len(told):
                raise OSError(told[len(tried) - 1])
            super().__init__(name, **properties)

    monkeypatch.setattr(pyiceberg.catalog.sql, "SqlCatalog", Raced)
    if tries > len(told):
        sqlite_place(tmp_path).connect().close()
    else:
        with pytest.raises(Unavailable, match="cannot be opened"):
            sqlite_place(tmp_path).connect()

    assert len(tried) == tries
