"""Which settings a session needs, and what is said of one that lacks them."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.errors import InvalidRequest
from headwater.lake.catalog import CatalogPlace, catalog_place
from headwater.spark.session import catalog_table, check_session, spark_config
from tests.lake_spark.sessions import PYSPARK_SOCKETS, session_on

pytestmark = PYSPARK_SOCKETS
POSTGRES = {"name": "lake", "uri": "postgresql+psycopg2://hw:hidden@db:5432/lake", "warehouse": "file:///lake"}


def session_with(settings: dict[str, str], but: tuple[str, ...] = ()) -> object:
    return session_on(**{name.replace(".", "__"): value for name, value in settings.items() if name not in but})


def sql_settings(place: CatalogPlace) -> dict[str, str]:
    """Those that can be given to a session that is there; the others are of Spark's start."""
    return {name: value for name, value in spark_config(place).items() if name.startswith("spark.sql.catalog.")}


def test_a_session_with_the_settings_reads_what_pyiceberg_wrote(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyiceberg.catalog import load_catalog

    place = catalog_place(None, directory=str(tmp_path))
    catalog = load_catalog(place.name, **dict(place.properties))
    try:
        catalog.create_namespace("sales")
        rows = pa.table({"id": [1, 2, 3]})
        catalog.create_table("sales.orders", rows.schema).append(rows)
    finally:
        catalog.close()
    spark = session_with(sql_settings(place))

    name = check_session(spark, place)  # type: ignore[arg-type]

    assert name == "headwater"
    found = spark.table(catalog_table(name, "sales.orders"))  # type: ignore[attr-defined]
    assert sorted(row.id for row in found.collect()) == [1, 2, 3]


def test_a_session_without_the_settings_is_refused_and_each_is_named(tmp_path: Path) -> None:
    place = catalog_place(None, directory=str(tmp_path))
    settings = sql_settings(place)
    bare = session_on(spark__sql__session__timeZone="Europe/Berlin")
    elsewhere = session_with({**settings, "spark.sql.catalog.headwater.warehouse": "file:///elsewhere"})

    with pytest.raises(InvalidRequest) as of_bare:
        check_session(bare, place)
    with pytest.raises(InvalidRequest) as of_other:
        check_session(elsewhere, place)  # type: ignore[arg-type]

    for name in ("spark.sql.session.timeZone=UTC", *settings):
        if "busy_timeout" not in name:
            assert name in str(of_bare.value)
    assert "file:///elsewhere" in str(of_other.value) and str(tmp_path) in str(of_other.value)
    assert "uri" not in str(of_other.value), "what is right is not named"


def test_a_password_is_never_shown() -> None:
    place = catalog_place(POSTGRES, directory="unused")

    with pytest.raises(InvalidRequest) as refused:
        check_session(session_on(), place)

    assert "jdbc.password" in str(refused.value)
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize(
    ("version", "runtime"),
    [
        ("3.5.8", "iceberg-spark-runtime-3.5_2.12:"),
        ("4.0.1", "iceberg-spark-runtime-4.0_2.13:"),
        ("4.1.4", "iceberg-spark-runtime-4.1_2.13:"),
    ],
)
def test_the_packages_are_those_of_sparks_version_and_of_the_catalogs_database(version: str, runtime: str) -> None:
    postgres = spark_config(catalog_place(POSTGRES, directory="unused"), spark_version=version)
    rest = catalog_place({"name": "lake", "type": "rest", "uri": "http://127.0.0.1:1"}, directory="unused")

    assert runtime in postgres["spark.jars.packages"]
    assert "org.postgresql:postgresql:" in postgres["spark.jars.packages"]
    assert "," not in spark_config(rest, "elsewhere", spark_version=version)["spark.jars.packages"]
    assert "spark.sql.catalog.elsewhere.uri" in spark_config(rest, "elsewhere", spark_version=version)


def test_a_version_of_spark_that_is_not_known_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"Spark 3\.3"):
        spark_config(catalog_place(POSTGRES, directory="unused"), spark_version="3.3.0")


def test_the_name_of_a_table_is_quoted_part_by_part() -> None:
    assert catalog_table("lake", "sales.orders") == "`lake`.`sales`.`orders`"
    assert catalog_table("my lake", "a.b`c") == "`my lake`.`a`.`b``c`"
