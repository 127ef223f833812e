"""The same trouble for Iceberg's own sink of Spark Structured Streaming: what becomes of its rows, step by step.

Each step has a table, a folder of Parquet files and a checkpoint directory of its own, so that what it does is seen
apart from the others.  Rows are those of the demo's `orders`, and are counted by their numbers.

FAIR     The query is the one that Iceberg's docs show, with their settings; kills are kill -9 of the driver and its
         JVM; compaction, expiry and rollback are the very ones that Headwater's tables get (wreckers.py).  After each
         step the query is started again as its owner would, and has taken in all files before rows are counted.
MID-WAY  A kill between Iceberg's commit and Spark's own line of it (commits/N in the checkpoint directory) comes as
         soon as the catalog shows the new snapshot; one that came too late is tried again.
NOT HERE How it looks: cli/demo_verdict.py.
"""

from __future__ import annotations

import importlib.util
import sqlite3
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.clock import Clock
from headwater.demo.children import Child, ChildTrouble
from headwater.demo.rows import numbers_of, order_columns
from headwater.demo.schedule import Kind, Step
from headwater.demo.spark_told import Beside, SparkStep
from headwater.demo.told import Event, Listener, Outcome, Tone
from headwater.demo.wreckers import Wreckers
from headwater.errors import InvalidRequest
from headwater.lake.catalog import catalog_place
from headwater.spark.session import INSTALL, PACKAGES, spark_config
from headwater.storage.disk import DiskFiles, remove_directory

STARTED_S = 300.0
"""The first start of all may fetch Iceberg's package."""
ANSWER_S = 300.0
SEEN_S = 120.0
TRIES = 4
FILES_BEFORE = 3
TOLD_MAX = 80
FOLDER = "beside_spark"
LANDER_KILLS: tuple[Kind, ...] = (
    "kill before commit",
    "kill after commit",
    "kill anywhere",
    "kill in a race",
    "kill, compact, expire",
)
"""After each of these a lander begins with nothing but the table and the ledger."""


def check_spark() -> None:
    """InvalidRequest, with what to install, where the other side cannot run."""
    if importlib.util.find_spec("pyspark") is None:
        raise InvalidRequest(f"--beside-spark needs pyspark, and Java: {INSTALL}", missing="pyspark")
    try:
        subprocess.run(["java", "-version"], capture_output=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise InvalidRequest("--beside-spark needs Java 17 or later on the path", missing="java") from error


class Stream:
    """One step's table, source and checkpoint."""

    def __init__(self, folder: str, number: int) -> None:
        self.number = number
        self.table = f"spark.step_{number}"
        self.source = f"{folder}/{number}/source"
        self.checkpoint = f"{folder}/{number}/checkpoint"
        self.files = 0
        DiskFiles(self.source).make_directory("")

    def write(self, files: int = 1) -> None:
        """So many files more, each there at once and whole."""
        for _ in range(files):
            name = f"{self.files:04}.parquet"
            rows = pa.table(order_columns(self._numbers(self.files)))
            pq.write_table(rows, f"{self.source}/_{name}")
            DiskFiles(self.source).rename(f"_{name}", name)
            self.files += 1

    def _numbers(self, file: int) -> list[int]:
        return [number for request in range(file * 10, file * 10 + 10) for number in numbers_of(self.number, request)]

    @property
    def written(self) -> set[int]:
        return {number for file in range(self.files) for number in self._numbers(file)}

    @property
    def query(self) -> dict[str, str]:
        return {"source": self.source, "checkpoint": self.checkpoint, "table": self.table}

    def marked_batches(self) -> list[str]:
        """What Spark's own checkpoint has as done."""
        return [name for name in DiskFiles(self.checkpoint).list("commits") if name.isdecimal()]

    def data_files(self, lake: str) -> int:
        """Files that writers of the table have begun, whether or not a snapshot names them."""
        return len(DiskFiles(f"{lake}/{self.table.replace('.', '/')}").list("data"))


class BesideSpark:
    def __init__(
        self,
        directory: str,
        ours: Outcome,
        schedule: Sequence[Step],
        *,
        clock: Clock,
        listener: Listener | None = None,
    ) -> None:
        self._directory = str(Path(directory).absolute() / FOLDER)
        self._ours = ours
        self._kinds = Counter(step.kind for step in schedule[: ours.steps_taken])
        self._clock = clock
        self._listener = listener
        self._begun_s = clock.monotonic_s()
        place = catalog_place(None, directory=self._directory)
        self._wreckers = Wreckers(place.properties)
        self._started: list[Child] = []
        self._driver: Child | None = None
        self._nobody = threading.Event()
        package = spark_config(place)[PACKAGES].split(",")[0]
        self._found = Beside(
            spark_version="", iceberg=package.rpartition(":")[0].rpartition(":")[2] + " " + package.rpartition(":")[2]
        )

    def __enter__(self) -> Self:
        DiskFiles(self._directory).make_directory("lake")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill every driver that still runs."""
        with ExitStack() as closing_all:
            for child in self._started:
                if child.is_running:
                    closing_all.callback(self._kill, child)

    def run(self) -> Beside:
        """Every step, each with what it left."""
        steps: list[tuple[str, tuple[Kind, ...], Callable[[Stream], str]]] = [
            ("compaction and expiry, while it runs", ("compact", "expire"), self._compact_expire),
            ("rollback of the table", ("roll back",), self._roll_back),
            ("the machine is lost, with what it kept", LANDER_KILLS, self._lose_checkpoint),
            ("kill -9 before the commit", ("kill before commit",), self._kill_before),
            ("kill -9 behind the commit", ("kill after commit",), self._kill_after),
            ("the same, and compacted and expired before it is back", ("kill, compact, expire",), self._kill_wreck),
            ("started twice", ("race", "kill in a race"), self._two_at_once),
            ("held up, and goes on when another has taken over", ("late commit",), self._late),
        ]
        for number, (name, kinds, act) in enumerate(steps, start=1):
            try:
                self._step(number, name, kinds, act)
            except ChildTrouble as error:
                # A machine that is too busy for a JVM says nothing about the sink: better no number than a wrong one.
                self._found.steps.append(SparkStep(name, self._our_side(kinds), f"not counted: {error}"[:TOLD_MAX]))
                self._tell(f"Spark's sink: {name}: not counted: {error}", "others")
                self.close()
        self._found.seconds = self._since()
        return self._found

    def _step(self, number: int, name: str, kinds: tuple[Kind, ...], act: Callable[[Stream], str]) -> None:
        stream = Stream(self._directory, number)
        driver = self._ready()
        driver.send(table=stream.table)
        driver.answer("made", within_s=ANSWER_S)
        stream.write(FILES_BEFORE)
        self._begin(driver, stream)
        self._caught_up(driver)
        note = act(stream)
        if self._driver is not None and self._driver.is_running:
            self._driver.send(stop=True)
            self._driver.answer("stopped", "trouble", within_s=ANSWER_S)
        with self._wreckers.table(stream.table) as table:
            held = Counter(table.scan(selected_fields=("id",)).to_arrow().column("id").to_pylist())
        lost = len(stream.written - held.keys())
        doubled = sum(times > 1 for times in held.values())
        told = f"lost {lost:,}, doubled {doubled:,} of {len(stream.written):,}" + (f"; {note}" if note else "")
        self._found.steps.append(SparkStep(name, self._our_side(kinds), told, lost, doubled))
        self._found.written += len(stream.written)
        self._found.in_table += held.total()
        self._found.lost += lost
        self._found.doubled += doubled
        self._tell(f"Spark's sink: {name}: {told}", "bad" if lost or doubled else "good")

    def _our_side(self, kinds: tuple[Kind, ...]) -> str:
        times = sum(self._kinds[kind] for kind in kinds)
        if not times:
            return "not in this schedule"
        how_often = "once" if times == 1 else f"{times} times"
        return f"{how_often}: lost 0, doubled 0" if self._ours.passed else f"{how_often}: see FAIL above"

    # Steps -------------------------------------------------------------------------------------

    def _compact_expire(self, stream: Stream) -> str:
        self._wreckers.compact(stream.table)
        self._wreckers.expire(stream.table, 1)
        stream.write()
        self._caught_up(self._ready())
        return ""

    def _roll_back(self, stream: Stream) -> str:
        self._wreckers.roll_back(stream.table, 2)
        stream.write()
        self._caught_up(self._ready())
        return "nothing said so"

    def _lose_checkpoint(self, stream: Stream) -> str:
        driver = self._ready()
        driver.send(stop=True)
        driver.answer("stopped", within_s=ANSWER_S)
        remove_directory(stream.checkpoint)
        self._begin(driver, stream)
        self._caught_up(driver)
        return "nothing said so"

    def _kill_before(self, stream: Stream) -> str:
        driver, before = self._ready(), stream.data_files(self._lake)
        stream.write()
        self._seen(lambda: stream.data_files(self._lake) > before, "a data file is begun")
        self._kill(driver)
        return self._again(stream)

    def _kill_after(self, stream: Stream) -> str:
        note = self._killed_behind_commit(stream)
        return self._again(stream) or note

    def _kill_wreck(self, stream: Stream) -> str:
        note = self._killed_behind_commit(stream)
        self._wreckers.compact(stream.table)
        self._wreckers.expire(stream.table, 1)
        return self._again(stream) or note

    def _two_at_once(self, stream: Stream) -> str:
        first, second = self._ready(), self._start()
        second.answer("ready", within_s=STARTED_S)
        self._begin(second, stream)
        stream.write(3)
        ended = 0
        for driver in (first, second):
            driver.send(catch_up=True)
        for driver in (first, second):
            ended += "trouble" in driver.answer("caught_up", "trouble", within_s=ANSWER_S)
        self._kill(second)
        self._kill(first)
        return self._again(stream) or (f"{ended} of the two ended with an error" if ended else "both went on")

    def _late(self, stream: Stream) -> str:
        first, before = self._ready(), stream.data_files(self._lake)
        second = self._start()
        second.answer("ready", within_s=STARTED_S)
        stream.write()
        self._seen(lambda: stream.data_files(self._lake) > before, "a data file is begun")
        _signal(first, "STOP")
        self._begin(second, stream)
        self._caught_up(second)
        _signal(first, "CONT")
        first.send(catch_up=True)
        answer = first.answer("caught_up", "trouble", within_s=ANSWER_S)
        self._kill(first)
        self._driver = second
        stream.write()
        second.send(catch_up=True)
        ended = "trouble" in second.answer("caught_up", "trouble", within_s=ANSWER_S)
        if ended:
            self._kill(second)
            self._again(stream)
        return "the first ended with an error" if "trouble" in answer else "both went on"

    def _killed_behind_commit(self, stream: Stream) -> str:
        """Kill it between Iceberg's commit and Spark's line of it; what is said where that was never hit."""
        for _ in range(TRIES):
            driver, marked = self._ready(), len(stream.marked_batches())
            shown = self._shown(stream)
            stream.write()
            self._seen(lambda: self._shown(stream) != shown, "the table has a new snapshot")  # noqa: B023  called here
            _signal(driver, "KILL")
            if len(stream.marked_batches()) == marked:
                self._kill(driver)
                return ""
            self._kill(driver)
            self._again(stream)
        return f"killed {TRIES} times, each time a moment too late"

    # Parts -------------------------------------------------------------------------------------

    @property
    def _lake(self) -> str:
        return f"{self._directory}/lake"

    def _start(self) -> Child:
        child = Child("Spark's driver", "headwater.demo.spark_sink", self._directory)
        self._started.append(child)
        return child

    def _ready(self) -> Child:
        if self._driver is None or not self._driver.is_running:
            self._driver = self._start()
            self._found.spark_version = self._driver.answer("ready", within_s=STARTED_S)["version"]
        return self._driver

    def _begin(self, driver: Child, stream: Stream) -> None:
        driver.send(stream=stream.query)
        answer = driver.answer("begun", "trouble", within_s=ANSWER_S)
        if "trouble" in answer:
            raise ChildTrouble(f"Spark's query did not begin: {answer['trouble']}")

    def _caught_up(self, driver: Child) -> None:
        driver.send(catch_up=True)
        answer = driver.answer("caught_up", "trouble", within_s=ANSWER_S)
        if "trouble" in answer:
            raise ChildTrouble(f"Spark's query failed where nobody troubled it: {answer['trouble']}")

    def _again(self, stream: Stream) -> str:
        """It is started again, as whoever watches over it does, and takes in what is there."""
        driver = self._ready()
        self._begin(driver, stream)
        stream.write()
        driver.send(catch_up=True)
        answer = driver.answer("caught_up", "trouble", within_s=ANSWER_S)
        return f"it does not start again: {answer['trouble']}" if "trouble" in answer else ""

    def _kill(self, child: Child) -> None:
        _signal(child, "KILL")
        child.kill()
        if child is self._driver:
            self._driver = None

    def _shown(self, stream: Stream) -> str:
        """What the catalog says is the table now."""
        with closing(sqlite3.connect(f"{self._directory}/catalog.db", timeout=30)) as database:
            asked = "SELECT metadata_location FROM iceberg_tables WHERE table_name = ?"
            return str(database.execute(asked, [stream.table.rpartition(".")[2]]).fetchone()[0])

    def _seen(self, holds: Callable[[], bool], what: str) -> None:
        until_s = self._clock.monotonic_s() + SEEN_S
        while not holds():
            if self._clock.monotonic_s() > until_s:
                raise ChildTrouble(f"Spark's query: not within {SEEN_S:.0f} s: {what}")
            self._nobody.wait(0.001)

    def _since(self) -> float:
        return self._clock.monotonic_s() - self._begun_s

    def _tell(self, text: str, tone: Tone) -> None:
        if self._listener is not None:
            self._listener(Event(self._since(), text, tone))


def _signal(child: Child, name: str) -> None:
    """To a driver and to its JVM, which are one process group."""
    subprocess.run(["kill", f"-{name}", "--", f"-{child.pid}"], check=False, capture_output=True)
