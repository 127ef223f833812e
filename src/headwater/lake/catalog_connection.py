"""Opening a catalog so that nothing waits for ever and nothing is sent twice.

| catalog | what pyiceberg does by itself | what is done here |
|---|---|---|
| SQLite | waits 5 s for a lock; readers hold up a commit | waits 30 s; write-ahead logging, so that they do not |
| PostgreSQL | waits for ever for a server or a lock | 10 s to connect, 30 s for a lock, 60 s for a statement |
| REST | no time-out; signed requests are sent up to ten times | 10 s to connect, 60 s for a reply; sent once |

A REST catalog may show no more than the snapshots that branches point to: it is asked for all, because the walk over
a table's history (marks.py) needs them.

NOT HERE Retries by pyiceberg around a commit: iceberg_tables.py goes past them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NotInstalledError

from headwater.errors import InvalidRequest, Unavailable
from headwater.lake.catalog import INSTALL, CatalogPlace

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog

BUSY_TIMEOUT_S = 30
CONNECT_TIMEOUT_S = 10
REPLY_TIMEOUT_S = 60


def open_catalog(place: CatalogPlace) -> Catalog:
    """A new connection to the catalog; InvalidRequest where it cannot be one, Unavailable where it does not answer."""
    try:
        if place.kind == "sql":
            return _open_sql(place)
        if place.kind == "rest":
            return _open_rest(place)
        return load_catalog(place.name, **place.properties)
    except (ImportError, NotInstalledError) as error:
        postgres = str(place.properties.get("uri", "")).startswith("postgresql")
        install = "pip install 'headwater[postgres]'" if postgres else INSTALL
        raise InvalidRequest(
            f"the catalog {place.name!r} needs further packages: {install}", cause=str(error), kind=place.kind
        ) from error
    except Exception as error:  # each kind of catalog has errors of its own, and nothing was changed
        raise Unavailable(
            f"the catalog {place.name!r} cannot be opened", kind=place.kind, cause=f"{type(error).__name__}: {error}"
        ) from error


# -------------------------------------------------------------------------------------------------------- SQL


def _open_sql(place: CatalogPlace) -> Catalog:
    uri = str(place.properties["uri"])
    catalog = _sql_catalog(place, uri)
    if uri.startswith("sqlite"):
        with catalog.engine.connect() as connection:
            mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar()
            if mode != "wal":
                connection.exec_driver_sql("PRAGMA journal_mode=WAL")
    return catalog


def _sql_catalog(place: CatalogPlace, uri: str) -> SqlCatalog:
    """Two that open a new database at once both make its two tables, and of each one of them is refused: so it may take
    three tries."""
    from pyiceberg.catalog.sql import SqlCatalog

    properties = {**place.properties, "uri": _bounded_uri(uri)}
    for told in ("", "already exists"):
        try:
            return SqlCatalog(place.name, **properties)
        except Exception as error:  # each database has errors of its own, and the next try tells
            if told not in str(error):
                raise
            if "startup parameter" in str(error):
                # A pooler between us and PostgreSQL takes no options: then its own limits are all there are.
                properties["uri"] = _bounded_uri(uri, options=False)
    return SqlCatalog(place.name, **properties)


def _bounded_uri(uri: str, *, options: bool = True) -> str:
    """The address with time-outs, where it names none itself."""
    address, _, query = uri.partition("?")
    given = parse_qsl(query, keep_blank_values=True)
    names = {name for name, _ in given}
    if uri.startswith("sqlite"):
        bounds = {"timeout": str(BUSY_TIMEOUT_S)}
    elif uri.startswith(("postgresql:", "postgresql+psycopg")):
        bounds = {"connect_timeout": str(CONNECT_TIMEOUT_S)}
        if options:
            bounds["options"] = f"-c lock_timeout={BUSY_TIMEOUT_S}s -c statement_timeout={REPLY_TIMEOUT_S}s"
    else:
        return uri
    added = [(name, value) for name, value in bounds.items() if name not in names]
    return f"{address}?{urlencode([*given, *added])}"


# ------------------------------------------------------------------------------------------------------- REST


def _open_rest(place: CatalogPlace) -> Catalog:
    from pyiceberg.catalog.rest import RestCatalog

    class BoundedRestCatalog(RestCatalog):
        """Every request of it has a time-out, those that open it too."""

        def _create_session(self) -> Any:
            return _bounded(super()._create_session())

        def _create_legacy_oauth2_auth_manager(self, session: Any) -> Any:
            # It asks for a token at once, through the session as it is here.
            return super()._create_legacy_oauth2_auth_manager(_bounded(session))

    properties = {name: value for name, value in place.properties.items() if name != "snapshot-loading-mode"}
    properties["rest.sigv4.max-retries"] = "0"
    return BoundedRestCatalog(place.name, **properties)


def _bounded(session: Any) -> Any:
    if not isinstance(session.request, partial):
        session.request = partial(session.request, timeout=(CONNECT_TIMEOUT_S, REPLY_TIMEOUT_S))
    return session
