"""Real catalogs for tests, started and stopped by them on loopback: SQLite, PostgreSQL, and REST over PostgreSQL.

    with lake_catalog("rest", tmp_path) as properties:      properties for `catalog=`
    with postgres_server() as server: ...                   for a suite that starts it once
    with rest_server(server, warehouse) as uri: ...

PostgreSQL is the machine's own (Debian: postgresql-15).  The REST catalog is Iceberg's reference server; its jars come
by Maven, once, into `HEADWATER_CACHE` (or ~/.cache/headwater).
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

START_S_MAX = 60.0
USER = "hw"

_JARS = (
    ("org.apache.iceberg", "iceberg-core", "1.10.0", None),
    ("org.apache.iceberg", "iceberg-core", "1.10.0", "tests"),
    ("org.apache.iceberg", "iceberg-open-api", "1.10.0", "test-fixtures"),
    ("org.eclipse.jetty", "jetty-server", "11.0.25", None),
    ("org.eclipse.jetty", "jetty-servlet", "11.0.25", None),
    ("org.apache.hadoop", "hadoop-client-api", "3.4.2", None),
    ("org.apache.hadoop", "hadoop-client-runtime", "3.4.2", None),
    ("org.postgresql", "postgresql", "42.7.8", None),
    ("org.slf4j", "slf4j-simple", "2.0.17", None),
)


@contextmanager
def lake_catalog(kind: str, folder: Path) -> Iterator[dict[str, str]]:
    """The properties of a new catalog of this kind ("sqlite", "postgres" or "rest") with its tables in the folder."""
    warehouse = f"file://{folder}/lake"
    if kind == "sqlite":
        yield {
            "name": "lake",
            "type": "sql",
            "uri": f"sqlite:///{folder}/lake.db",
            "warehouse": warehouse,
        }
        return
    with postgres_server() as server:
        if kind == "postgres":
            yield {"name": "lake", "type": "sql", "uri": server.uri, "warehouse": warehouse}
        else:
            assert kind == "rest", kind
            with rest_server(server, warehouse) as uri:
                yield {"name": "lake", "type": "rest", "uri": uri, "warehouse": warehouse}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# -------------------------------------------------------------------------------------------------- PostgreSQL


@dataclass(frozen=True)
class PostgresServer:
    port: int
    database: str = "postgres"

    @property
    def uri(self) -> str:
        return f"postgresql+psycopg2://{USER}@127.0.0.1:{self.port}/{self.database}"

    @property
    def jdbc(self) -> str:
        return f"jdbc:postgresql://127.0.0.1:{self.port}/{self.database}"


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A new PostgreSQL with an empty database, gone afterwards."""
    programs = postgres_programs()
    # Not below a test's own folder: the server runs as another user, who may not enter it.
    home = Path(tempfile.mkdtemp(prefix="headwater-postgres-"))
    as_user: list[str] = []
    if os.geteuid() == 0:
        shutil.chown(home, "postgres", "postgres")
        as_user = ["runuser", "-u", "postgres", "--"]
    data = home / "data"
    port = free_port()
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={home}"
    control = [*as_user, str(programs / "pg_ctl"), "-D", str(data), "-w", "-t", str(int(START_S_MAX))]
    try:
        _run([*as_user, str(programs / "initdb"), "-D", str(data), "-A", "trust", "-U", USER])
        _run([*control, "-o", options, "-l", str(home / "server.log"), "start"])
        try:
            yield PostgresServer(port)
        finally:
            _run([*control, "-m", "immediate", "stop"])
    finally:
        shutil.rmtree(home, ignore_errors=True)


def postgres_programs() -> Path:
    """The folder of initdb and pg_ctl, which Debian keeps off the path."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    assert folders, "PostgreSQL is not installed"
    return folders[-1].parent


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd="/", timeout=2 * START_S_MAX)
    assert done.returncode == 0, f"{command}: {done.stderr.decode(errors='replace')[-2000:]}"


# -------------------------------------------------------------------------------------------------------- REST


@contextmanager
def rest_server(server: PostgresServer, warehouse: str, environment: Mapping[str, str] | None = None) -> Iterator[str]:
    """A REST catalog over this database; its address."""
    port = free_port()
    settings = {
        "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
        "CATALOG_URI": server.jdbc,
        "CATALOG_JDBC_USER": USER,
        "CATALOG_JDBC_PASSWORD": "",
        "CATALOG_JDBC_SCHEMA__VERSION": "V1",
        "CATALOG_WAREHOUSE": warehouse,
        "CATALOG_REST_PORT": str(port),
        **(environment or {}),
    }
    command = ["java", "-Xmx512m", "-cp", f"{rest_jars()}/*", "org.apache.iceberg.rest.RESTCatalogServer"]
    with tempfile.TemporaryFile() as told:
        process = subprocess.Popen(
            command, env={**os.environ, **settings}, stdin=subprocess.DEVNULL, stdout=told, stderr=told
        )
        try:
            uri = f"http://127.0.0.1:{port}"
            if not _answers(f"{uri}/v1/config", process):
                told.seek(0)
                raise AssertionError(f"the REST catalog did not start: {told.read()[-4000:].decode(errors='replace')}")
            yield uri
        finally:
            process.kill()
            process.wait(30)


def _answers(address: str, process: subprocess.Popen[bytes]) -> bool:
    begun = time.monotonic()
    while time.monotonic() - begun < START_S_MAX and process.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    return False


def rest_jars() -> Path:
    """The folder of the REST catalog's jars; fetched if they are not there yet."""
    cache = Path(os.environ.get("HEADWATER_CACHE") or Path.home() / ".cache" / "headwater")
    jars = cache / "rest-catalog" / "lib"
    if jars.is_dir():
        return jars
    jars.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=jars.parent) as work:
        pom = Path(work) / "pom.xml"
        pom.write_text(_pom(), encoding="utf-8")
        fetched = Path(work) / "lib"
        command = ["mvn", "-B", "-q", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={fetched}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        try:
            fetched.rename(jars)
        except OSError:
            assert jars.is_dir()  # another process was faster
    return jars


def _pom() -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        + (f"<classifier>{classifier}</classifier>" if classifier else "")
        + "</dependency>"
        for group, name, version, classifier in _JARS
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>headwater</groupId><artifactId>rest-catalog</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
