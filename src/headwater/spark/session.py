"""The settings of a Spark session that reaches a catalog's tables, and whether a session has them.

    SparkSession.builder.config(map=log.spark_config())        a session that has them
    check_session(spark, place, None)                          the catalog's name in Spark, or an InvalidRequest

PROMISE  A session without the settings is refused before anything is written, and each that is missing is named with
         the value that it needs.  It is the same for Spark Connect, where only settings can be looked at.
         Passwords among a catalog's settings are never shown.
NOT HERE What a catalog's own settings are: headwater.lake.catalog.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headwater.errors import InvalidRequest
from headwater.lake.catalog import CatalogPlace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXTENSIONS = "spark.sql.extensions"
ICEBERG_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
PACKAGES = "spark.jars.packages"
TIME_ZONE = "spark.sql.session.timeZone"
INSTALL = "pip install 'headwater[spark]'"

ICEBERG_PACKAGES = {
    "3.5": "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.12.0",
    "4.0": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
    "4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
}
"""By Spark's version: Iceberg's runtime, for the Scala that pyspark has."""
JDBC_PACKAGES = {
    "jdbc:sqlite:": "org.xerial:sqlite-jdbc:3.50.3.0",
    "jdbc:postgresql:": "org.postgresql:postgresql:42.7.8",
}
"""By how the address of a catalog's database begins: its driver."""

_SECRET = re.compile(r"password|secret|token|credential|key", re.IGNORECASE)


def spark_config(
    place: CatalogPlace, spark_catalog: str | None = None, *, spark_version: str | None = None
) -> dict[str, str]:
    """The settings for a new session; of the pyspark that is installed here, if no version is given."""
    version = _short(spark_version if spark_version is not None else _installed_version())
    catalog = _catalog_settings(place, spark_catalog)
    address = next((value for name, value in catalog.items() if name.endswith(".uri")), "")
    drivers = [package for beginning, package in JDBC_PACKAGES.items() if address.startswith(beginning)]
    return {
        PACKAGES: ",".join([_iceberg_package(version), *drivers]),
        EXTENSIONS: ICEBERG_EXTENSIONS,
        TIME_ZONE: "UTC",
        **catalog,
    }


def check_session(spark: SparkSession, place: CatalogPlace, spark_catalog: str | None = None) -> str:
    """The catalog's name in this session; InvalidRequest names each setting that is missing or says something else.

    Packages are not looked at: a cluster may have them by itself.  A session has them if it has the extensions, because
    Spark ends or warns at its start where it cannot load those.
    """
    missing: list[str] = []
    extensions = _setting(spark, EXTENSIONS) or ""
    if ICEBERG_EXTENSIONS not in [each.strip() for each in extensions.split(",")]:
        missing.append(f"{EXTENSIONS}={ICEBERG_EXTENSIONS}")
    zone = _setting(spark, TIME_ZONE)
    if zone not in {"UTC", "Etc/UTC", "GMT", "+00:00", "Z"}:
        missing.append(f"{TIME_ZONE}=UTC (it is {zone})")
    for name, value in _catalog_settings(place, spark_catalog).items():
        found = _setting(spark, name)
        if found != value and not _is_only_advice(name):
            missing.append(_shown(name, value, found))
    if missing:
        raise InvalidRequest(
            "this Spark session cannot land: it needs " + "; ".join(missing) + ". log.spark_config() gives all of them "
            "for a new session",
            missing=len(missing),
        )
    return spark_catalog or place.name


def catalog_table(spark_catalog: str, table: str) -> str:
    """A table's name in Spark's SQL: "lake", "sales.orders" is `lake`.`sales`.`orders`."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in (spark_catalog, *table.split(".")))


def _catalog_settings(place: CatalogPlace, spark_catalog: str | None) -> dict[str, str]:
    settings = place.spark_properties(spark_catalog)
    # A table that was committed to from Python since must not come from Spark's own memory of it.
    settings.setdefault(f"spark.sql.catalog.{spark_catalog or place.name}.cache-enabled", "false")
    return settings


def _is_only_advice(name: str) -> bool:
    """Settings that a session may have otherwise: it is slower, or waits less long, and nothing is wrong."""
    return name.endswith((".jdbc.busy_timeout",))


def _setting(spark: SparkSession, name: str) -> str | None:
    value = spark.conf.get(name, None)
    return None if value is None else str(value)


def _shown(name: str, value: str, found: str | None) -> str:
    if _SECRET.search(name):
        return f"{name} (another value than the catalog's)" if found is not None else name
    return f"{name}={value}" + (f" (it is {found})" if found is not None else "")


def _installed_version() -> str:
    try:
        from pyspark import __version__
    except ImportError as error:
        raise InvalidRequest(f"Spark is not installed here: {INSTALL}, or say spark_version=") from error
    return str(__version__)


def _short(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _iceberg_package(version: str) -> str:
    package = ICEBERG_PACKAGES.get(version)
    if package is None:
        raise InvalidRequest(
            f"Iceberg's package for Spark {version} is not known here; known are {', '.join(ICEBERG_PACKAGES)}"
        )
    return package
