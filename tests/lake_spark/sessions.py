"""Real Spark for tests: one local session, a standalone cluster, a Connect server, and an environment with Spark 3.5.

    lake = SqliteLake(tmp_path)                      a catalog and a warehouse in a folder, for Spark and for pyiceberg
    spark = session_on(lake)                         a session on this process's one Spark, which knows that catalog
    with standalone_cluster(tmp_path) as cluster     a master and two workers, each a process of its own
    with connect_server(tmp_path, lake) as url       a Spark Connect server with that catalog
    spark35_python()                                 the Python of an environment with Spark 3.5 and this package

PROMISE  Loopback and free ports only; whatever a `with` started has ended when it is left, with its executors.
         Environments are made once and kept in `~/.cache/headwater-tests`, or where HEADWATER_TEST_CACHE says.
NOT HERE A driver on a cluster or on a Connect server: a process has one Spark, so those run in children (`run_driver`).
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headwater.spark.session import ICEBERG_PACKAGES, JDBC_PACKAGES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).resolve().parents[2]
STARTED_WITHIN_S = 120.0
LOOPBACK = "127.0.0.1"

PYSPARK_SOCKETS = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
"""For every module that collects rows in this process: pyspark leaves each result's socket to the garbage collector."""


# A lake -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SqliteLake:
    """A SQLite catalog and a warehouse in a folder: the same tables for pyiceberg and for Spark."""

    folder: Path
    name: str = "lake"

    @property
    def warehouse(self) -> str:
        return f"file://{self.folder}/lake"

    @property
    def pyiceberg_properties(self) -> dict[str, str]:
        return {
            "name": self.name,
            "type": "sql",
            "uri": f"sqlite:///{self.folder}/catalog.db",
            "warehouse": self.warehouse,
        }

    @property
    def spark_settings(self) -> dict[str, str]:
        catalog = f"spark.sql.catalog.{self.name}"
        return {
            catalog: "org.apache.iceberg.spark.SparkCatalog",
            f"{catalog}.type": "jdbc",
            f"{catalog}.uri": f"jdbc:sqlite:file:{self.folder}/catalog.db?busy_timeout=30000",
            f"{catalog}.warehouse": self.warehouse,
            f"{catalog}.jdbc.schema-version": "V1",
            # A table that pyiceberg has changed since must not be taken from Spark's own memory.
            f"{catalog}.cache-enabled": "false",
        }


# This process's Spark ---------------------------------------------------------------------------------------------


def settings_of_every_session(version: str = "4.1") -> dict[str, str]:
    return {
        "spark.jars.packages": ",".join((ICEBERG_PACKAGES[version], *JDBC_PACKAGES.values())),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.sql.shuffle.partitions": "2",
    }


@functools.cache
def local_spark() -> SparkSession:
    """The one Spark of this process: local[2], with Iceberg and the JDBC drivers.  It ends with the process."""
    from pyspark.sql import SparkSession

    os.environ["SPARK_LOCAL_IP"] = LOOPBACK
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("headwater-tests")
    for name, value in settings_of_every_session().items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    atexit.register(spark.stop)
    return spark


def session_on(*lakes: SqliteLake, **settings: str) -> SparkSession:
    """A session of its own on this process's Spark, with these catalogs: one name may stand for another in the next."""
    session = local_spark().newSession()
    for lake in lakes:
        for name, value in lake.spark_settings.items():
            session.conf.set(name, value)
    for name, value in settings.items():
        session.conf.set(name.replace("__", "."), value)
    return session


# Processes --------------------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as asked:
        asked.bind((LOOPBACK, 0))
        return int(asked.getsockname()[1])


@dataclass
class Part:
    """A process of a test, with all that it starts, and the file that its words go to."""

    name: str
    process: subprocess.Popen[bytes]
    output: Path

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """At once, as a machine dies: it and its children."""
        self._signal(signal.SIGKILL)
        self.process.wait(30)

    def end(self) -> None:
        self._signal(signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            pass  # it is told once more below, without a choice
        self._signal(signal.SIGKILL)
        self.process.wait(30)

    def words(self, lines: int = 40) -> str:
        return "\n".join(self.output.read_text(errors="replace").splitlines()[-lines:])

    def _signal(self, number: int) -> None:
        end_group(self.process, number)


def start_part(
    name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str], port: int | None = None
) -> Part:
    """A process in a session of its own; with `port`, returned once something listens there."""
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / f"{name}.log"
    with output.open("ab") as file:
        process = subprocess.Popen(
            list(command),
            stdout=file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=dict(environment),
            cwd=folder,
            start_new_session=True,
        )
    part = Part(name, process, output)
    try:
        if port is not None:
            _wait_for_port(part, port)
    except BaseException:
        part.end()
        raise
    return part


def _wait_for_port(part: Part, port: int) -> None:
    until = time.monotonic() + STARTED_WITHIN_S
    while time.monotonic() < until:
        if not part.is_running:
            raise AssertionError(f"{part.name} ended while it was starting:\n{part.words()}")
        try:
            with socket.create_connection((LOOPBACK, port), timeout=1):
                return
        except OSError:
            time.sleep(0.1)  # a JVM has no other sign of being ready
    raise AssertionError(f"{part.name} does not listen on {port}:\n{part.words()}")


def spark_home(python: str = sys.executable) -> Path:
    """Where the pyspark of an environment keeps its jars and its scripts."""
    found = subprocess.run(
        [python, "-c", "import pyspark, sys; sys.stdout.write(pyspark.__path__[0])"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return Path(found.stdout)


def spark_environment(python: str = sys.executable) -> dict[str, str]:
    """The environment of a process of Spark: loopback, this Python, and nothing of a Spark around it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return {
        **kept,
        "SPARK_HOME": str(spark_home(python)),
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_NO_DAEMONIZE": "1",
        "PYTHONUNBUFFERED": "1",
    }


def run_driver(
    arguments: Sequence[str | Path],
    *,
    python: str = sys.executable,
    timeout_s: float = 420.0,
    settings: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a Python file, with its arguments, as a Spark driver of its own; its words are in the failure if it fails."""
    child = start_driver(arguments, python=python, settings=settings)
    try:
        printed, said = child.communicate(timeout=timeout_s)
    finally:
        end_group(child, signal.SIGKILL)
    assert child.returncode == 0, f"the driver ended with {child.returncode}:\n{printed[-4000:]}\n{said[-8000:]}"
    return subprocess.CompletedProcess(child.args, child.returncode, printed, said)


def start_driver(
    arguments: Sequence[str | Path], *, python: str = sys.executable, settings: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """The same without waiting; whoever starts it ends it, by `end_group`."""
    return subprocess.Popen(
        [python, *map(str, arguments)],
        env={**spark_environment(python), "PYTHONPATH": str(REPOSITORY), **(settings or {})},
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def end_group(process: subprocess.Popen[Any], number: int) -> None:
    """Signal a process that was started in a session of its own, and all that it started."""
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        pass  # all of it has ended already


# A standalone cluster ---------------------------------------------------------------------------------------------


@dataclass
class Cluster:
    """A master and workers, each a process with its own group: killing a worker takes its executors along."""

    url: str
    master: Part
    workers: list[Part]
    python: str
    settings: dict[str, str] = field(default_factory=dict)
    """A driver's, for tasks alone; with `settings_of_every_session()` it has Iceberg's jars besides."""

    def kill_worker(self, number: int) -> None:
        self.workers[number].kill()


@contextmanager
def standalone_cluster(folder: Path, *, workers: int = 2, python: str = sys.executable) -> Iterator[Cluster]:
    """A master and workers of one core each; `run_driver` with `cluster.url` is how to use it."""
    home = folder / "cluster"
    environment = spark_environment(python)
    spark_class = str(Path(environment["SPARK_HOME"]) / "bin" / "spark-class")
    port = free_port()
    parts: list[Part] = []
    try:
        command = [spark_class, "org.apache.spark.deploy.master.Master", "--host", LOOPBACK, "--port", str(port)]
        master = start_part("master", [*command, "--webui-port", str(free_port())], home, environment, port)
        parts.append(master)
        url = f"spark://{LOOPBACK}:{port}"
        for number in range(workers):
            own = free_port()
            command = [spark_class, "org.apache.spark.deploy.worker.Worker", "--host", LOOPBACK, "--port", str(own)]
            command += ["--cores", "1", "--memory", "2g", "--work-dir", str(home / f"work{number}")]
            command += ["--webui-port", str(free_port()), url]
            parts.append(start_part(f"worker{number}", command, home, environment, own))
        settings = {
            "spark.master": url,
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.ui.enabled": "false",
            "spark.cores.max": str(workers),
            "spark.executor.cores": "1",
            "spark.executor.memory": "1g",
            "spark.executorEnv.SPARK_LOCAL_IP": LOOPBACK,
        }
        yield Cluster(url, master, parts[1:], python, settings)
    finally:
        for part in reversed(parts):
            part.end()


# Spark Connect ----------------------------------------------------------------------------------------------------


@contextmanager
def connect_server(folder: Path, *lakes: SqliteLake, master: str = "local[2]") -> Iterator[str]:
    """A Connect server that knows these catalogs; its URL is for `SparkSession.builder.remote` in a child."""
    environment = spark_environment(connect_python())
    port = free_port()
    settings = {"spark.ui.enabled": "false", "spark.sql.session.timeZone": "UTC"}
    for lake in lakes:
        settings.update({**settings_of_every_session(), **lake.spark_settings})
    settings["spark.connect.grpc.binding.address"] = LOOPBACK
    settings["spark.connect.grpc.binding.port"] = str(port)
    command = [str(Path(environment["SPARK_HOME"]) / "bin" / "spark-submit"), "--master", master]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    part = start_part("connect", [*command, "spark-internal"], folder / "connect", environment, port)
    try:
        yield f"sc://{LOOPBACK}:{port}"
    finally:
        part.end()


# Environments -----------------------------------------------------------------------------------------------------

CONNECT_CLIENT = ("grpcio>=1.76", "grpcio-status>=1.76", "googleapis-common-protos>=1.71", "zstandard>=0.25")
SPARK35 = ("pyspark==3.5.*", "pandas<3", "pyarrow>=23.0.1")
LAKE = ("pyiceberg[sql-sqlite,sql-postgres,pyiceberg-core]==0.12.0", "polars-hash==0.9.*", "polars", "numpy")


def connect_python() -> str:
    """A Python whose pyspark can speak Connect: this one, if it has what that needs."""
    if all(importlib.util.find_spec(name) for name in ("grpc", "grpc_status", "zstandard")):
        return sys.executable
    import pyspark

    return environment_with("connect", (f"pyspark[connect]=={pyspark.__version__}", *CONNECT_CLIENT, *LAKE))


def spark35_python() -> str:
    """A Python with Spark 3.5, what the lake needs, and this package as it stands here."""
    return environment_with("spark35", (*SPARK35, *LAKE))


def environment_with(name: str, requirements: Sequence[str]) -> str:
    """The Python of an environment with these and this package, editable; made once, then kept."""
    cache = Path(os.environ.get("HEADWATER_TEST_CACHE", str(Path.home() / ".cache" / "headwater-tests")))
    wanted = "\n".join((sys.version, str(REPOSITORY), *requirements))
    folder = cache / f"{name}-{hashlib.sha256(wanted.encode()).hexdigest()[:12]}"
    python = folder / "bin" / "python"
    ready = folder / "ready"
    if ready.exists():
        return str(python)
    shutil.rmtree(folder, ignore_errors=True)  # one that was not finished
    cache.mkdir(parents=True, exist_ok=True)
    _must_run([sys.executable, "-m", "venv", str(folder)])
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    _must_run([*pip, "hatchling>=1.27", *requirements])
    _must_run([*pip, "--no-build-isolation", "-e", str(REPOSITORY)])
    ready.touch()
    return str(python)


def _must_run(command: Sequence[str]) -> None:
    done = subprocess.run(list(command), capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
