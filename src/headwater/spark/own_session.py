"""A Spark session of our own beside the caller's, on the same Spark: its settings touch nothing of the caller's.

What a session writes can be marked only through its settings, and a caller's own writes must never carry our mark.

PROMISE  The catalogs of the caller's session are known in it by the same names, and nothing of a table is remembered
         from earlier: pyiceberg changes them too.
         What it opened is closed when it is left; a session of Spark would keep a catalog's connections for ever.
NOT HERE Which catalog, and whether the caller's session knows it: session.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from headwater.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SNAPSHOT_PROPERTY = "spark.sql.iceberg.snapshot-property."
_STAGING = ("spark.wap.id", "spark.wap.branch")
"""With these a caller's writes go aside; ours name their branch themselves."""


@contextmanager
def own_session(spark: SparkSession, catalog: str) -> Iterator[SparkSession]:
    """A session of our own; `mark_snapshots` says what its snapshots carry."""
    connected = type(spark).__module__.startswith("pyspark.sql.connect")
    session = _cloned(spark) if connected else _beside(spark)
    session.conf.set(f"spark.sql.catalog.{catalog}.cache-enabled", "false")
    try:
        yield session
    finally:
        if connected:
            # Not `stop`: it looks for what a cloned session of pyspark 4.1 does not have.
            client = cast(Any, session).client
            client.release_session()
            client.close()
        else:
            _close_catalog(session, catalog)


def mark_snapshots(session: SparkSession, marks: Mapping[str, str]) -> None:
    """Every snapshot that this session makes from now on carries these properties."""
    for name, value in marks.items():
        session.conf.set(SNAPSHOT_PROPERTY + name, value)


def _beside(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    for row in spark.sql("SET").collect():
        name = row["key"]
        if name.startswith(SNAPSHOT_PROPERTY):
            continue
        if name.startswith("spark.sql.catalog.") or (name.startswith("spark.sql.") and spark.conf.isModifiable(name)):
            # The value by its name: in a list of settings Spark hides what may be a password.
            session.conf.set(name, str(spark.conf.get(name)))
    return session


def _cloned(spark: SparkSession) -> SparkSession:
    if not hasattr(spark, "cloneSession"):
        raise InvalidRequest("through Spark Connect this needs Spark 4.1 or later, on both sides")
    session: SparkSession = spark.cloneSession()
    for name in _STAGING:
        session.conf.unset(name)
    for row in session.sql("SET").collect():
        if row["key"].startswith(SNAPSHOT_PROPERTY):
            session.conf.unset(row["key"])
    return session


def _close_catalog(session: SparkSession, catalog: str) -> None:
    """Each session has a catalog of its own, with its own connections, and Spark never closes one."""
    plugin = session._jsparkSession.sessionState().catalogManager().catalog(catalog)
    if plugin.getClass().getName().startswith("org.apache.iceberg.spark."):
        inner = plugin.icebergCatalog()
        java = session.sparkContext._jvm
        assert java is not None, "a session that is not Connect's has a JVM"
        if java.java.lang.Class.forName("java.lang.AutoCloseable").isInstance(inner):
            inner.close()
