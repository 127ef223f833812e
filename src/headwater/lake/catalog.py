"""Where a catalog is, as the caller says it: pyiceberg's own names and properties.

| `catalog=` | the catalog |
|---|---|
| nothing | SQLite, `catalog.db` in the data directory, tables in `lake/` beside it, named "headwater" |
| a name | what pyiceberg's own configuration has under that name (.pyiceberg.yaml, PYICEBERG_CATALOG__NAME__URI ...) |
| a mapping | pyiceberg's properties, with the catalog's `name` among them ("headwater" if it is not) |

A log in a bucket, or behind a server, has no folder for SQLite: there a catalog is always named.

PROMISE  A CatalogPlace holds no connection: `connect` opens new ones each time.
         Catalogs that cannot refuse a commit, or that nobody else sees, are refused here by name.
NOT HERE What a connection does: iceberg_tables.py.  Whether the catalog keeps its word: catalog_check.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote, urlsplit

from headwater.errors import InvalidRequest
from headwater.storage.places import is_bucket

if TYPE_CHECKING:
    from headwater.lake.iceberg_tables import IcebergTables

DEFAULT_NAME = "headwater"
INSTALL = "pip install 'headwater[lake]'"  # quoted: brackets mean something to a shell

_REFUSED = {
    "hadoop": "the Hadoop catalog renames files to commit, and two commits can both win",
    "in-memory": "an in-memory catalog is gone with its process, and nobody else sees it",
}


@dataclass(frozen=True)
class CatalogPlace:
    """A catalog that can be connected to."""

    name: str
    properties: Mapping[str, Any] = field(repr=False)
    """pyiceberg's, complete: nothing is looked up elsewhere.  Not shown: there may be passwords in it."""

    @property
    def kind(self) -> str:
        """ "sql", "rest", "glue", "hive", "dynamodb", "bigquery", or "custom" for an implementation by class."""
        if "py-catalog-impl" in self.properties:
            return "custom"
        given = self.properties.get("type")
        if given is not None:
            return str(given).lower()
        scheme = str(self.properties.get("uri", "")).partition(":")[0]
        for beginning, kind in (("http", "rest"), ("thrift", "hive"), ("sqlite", "sql"), ("postgresql", "sql")):
            if scheme.startswith(beginning):
                return kind
        raise InvalidRequest(
            f"the catalog {self.name!r} says neither its type nor a uri that tells it",
            properties=sorted(self.properties),
        )

    def connect(self) -> IcebergTables:
        """A new connection.  InvalidRequest where it cannot be one; Unavailable where it does not answer."""
        try:
            from headwater.lake.catalog_connection import open_catalog
            from headwater.lake.iceberg_tables import IcebergTables
        except ImportError as error:
            raise InvalidRequest(f"landing needs further packages: {INSTALL}", missing=error.name) from error
        return IcebergTables(open_catalog(self))

    def spark_properties(self, spark_name: str | None = None) -> dict[str, str]:
        """The settings of a Spark session in which this catalog is named `spark_name` (its own name if not given)."""
        return _spark_properties(self, spark_name or self.name)


def catalog_place(catalog: str | Mapping[str, Any] | None, *, directory: str) -> CatalogPlace:
    """The catalog that a caller means; InvalidRequest where it cannot be one to land in."""
    if catalog is None:
        place = _in_directory(directory)
    elif isinstance(catalog, str):
        place = CatalogPlace(catalog, _configured(catalog))
    elif isinstance(catalog, Mapping):
        properties = dict(catalog)
        place = CatalogPlace(str(properties.pop("name", DEFAULT_NAME)), properties)
    else:
        raise InvalidRequest(f"a catalog is a name or a mapping of properties, not {catalog!r}")
    _check(place)
    return place


def _in_directory(directory: str) -> CatalogPlace:
    if is_bucket(directory):
        raise InvalidRequest(
            "a bucket, or a server, has no place for an SQLite catalog: say with catalog= where the tables are, by a "
            "name of pyiceberg's configuration or by its properties",
            directory=directory,
        )
    path = str(Path(directory).absolute())
    if any(character in path for character in "?#%"):
        raise InvalidRequest(
            "a path with ?, # or % cannot stand in the address of a catalog: give a catalog=", directory=path
        )
    return CatalogPlace(
        DEFAULT_NAME, {"type": "sql", "uri": f"sqlite:///{path}/catalog.db", "warehouse": f"file://{path}/lake"}
    )


def _configured(name: str) -> dict[str, Any]:
    try:
        from pyiceberg.utils.config import Config
    except ImportError as error:
        raise InvalidRequest(f"landing needs further packages: {INSTALL}", missing=error.name) from error
    found = Config().get_catalog_config(name)
    if not found:
        raise InvalidRequest(
            f"pyiceberg's configuration has no catalog {name!r}: write it into .pyiceberg.yaml, set "
            f"PYICEBERG_CATALOG__{name.upper()}__URI, or give the properties as a mapping"
        )
    return dict(found)


def _check(place: CatalogPlace) -> None:
    reason = _REFUSED.get(place.kind)
    if place.kind == "sql":
        uri = str(place.properties.get("uri", ""))
        if not uri:
            raise InvalidRequest(f"the catalog {place.name!r} has no uri")
        if uri.startswith("sqlite") and (not _sqlite_path(uri) or ":memory:" in uri or "mode=memory" in uri):
            reason = _REFUSED["in-memory"]
    if reason is not None:
        raise InvalidRequest(f"the catalog {place.name!r} cannot be landed in: {reason}", kind=place.kind)


def _sqlite_path(uri: str) -> str:
    """Of "sqlite:////absolute/path" and "sqlite:///relative/path": the path; empty for a database in memory."""
    return uri.partition("://")[2].partition("?")[0].removeprefix("/")


# ------------------------------------------------------------------------------------------------------ Spark

# What Java's catalogs call by another name, or do not know.
_NOT_FOR_JAVA = ("type", "uri", "py-", "pool_pre_ping", "echo", "init_catalog_tables", "schema_version", "s3.region")


def _spark_properties(place: CatalogPlace, spark_name: str) -> dict[str, str]:
    kind = place.kind
    settings = {
        name: str(value)
        for name, value in place.properties.items()
        if not name.startswith(_NOT_FOR_JAVA) and isinstance(value, str | int | bool)
    }
    if kind == "sql":
        if spark_name != place.name:
            raise InvalidRequest(
                f"an SQL catalog keeps its name with each table: in Spark it must be named {place.name!r} too",
                spark_name=spark_name,
            )
        settings.update(_jdbc(str(place.properties["uri"])))
    elif kind in {"rest", "hive", "glue"}:
        settings["type"] = kind
        if "uri" in place.properties:
            settings["uri"] = str(place.properties["uri"])
    else:
        raise InvalidRequest(f"Spark's settings for a catalog of kind {kind!r} are not known here", catalog=place.name)
    region = place.properties.get("s3.region")
    if region is not None:
        settings["client.region"] = str(region)
    if settings.get("warehouse", "").startswith(("s3:", "s3a:")):
        settings.setdefault("io-impl", "org.apache.iceberg.aws.s3.S3FileIO")
    prefix = f"spark.sql.catalog.{spark_name}"
    named = {f"{prefix}.{name}": value for name, value in sorted(settings.items())}
    return {prefix: "org.apache.iceberg.spark.SparkCatalog", **named}


def _jdbc(uri: str) -> dict[str, str]:
    """The settings of Java's JDBC catalog on the database that SQLAlchemy knows by this address."""
    settings = {"type": "jdbc", "jdbc.schema-version": "V1"}
    if uri.startswith("sqlite"):
        path = Path(_sqlite_path(uri)).absolute()
        return {**settings, "uri": f"jdbc:sqlite:{path}", "jdbc.busy_timeout": "30000"}
    parts = urlsplit(uri)
    if not parts.scheme.startswith("postgresql"):
        raise InvalidRequest("the address of this database is not known in Java's form", scheme=parts.scheme)
    settings["uri"] = f"jdbc:postgresql://{_host(parts)}{parts.path}"
    if parts.username is not None:
        settings["jdbc.user"] = unquote(parts.username)
    if parts.password is not None:
        settings["jdbc.password"] = unquote(parts.password)
    return settings


def _host(parts: SplitResult) -> str:
    """Host and port without the user."""
    return parts.netloc.rpartition("@")[2]
