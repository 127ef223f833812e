"""Tasks in a real Spark: the same works give the same rows, attempts have numbers of their own, failures have names."""

from __future__ import annotations

from pathlib import Path

import pytest

import headwater as hw
from headwater.errors import Unavailable
from headwater.lake.digest import combine
from headwater.lake.runner import InProcess
from headwater.lake.work import LandDone, ReadBackDone, ReadBackWork
from headwater.spark.run import SparkRunner
from tests.lake_spark.sessions import local_spark
from tests.unit.lake.landing_works import done_for, record_of, rows_in, rows_read, target_for, works_for

pytestmark = [
    # Spark's own sockets are closed by the collector, and say so.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SCHEMA = {"id": int, "name": str | None}


def log_with_rows(folder: Path) -> tuple[hw.Log, list[hw.Topic]]:
    log = hw.open(folder)
    topics = [log.topic(name, schema=SCHEMA, partitions=2) for name in ("orders", "payments")]
    for number in range(100):
        for topic in topics:
            topic.append([{"id": number * 10 + each, "name": None if each % 3 else "x"} for each in range(10)])
    return log, topics


def test_works_in_spark_write_what_they_write_in_this_process(tmp_path: Path) -> None:
    log, topics = log_with_rows(tmp_path / "data")
    with log:
        here = {record_of(topic): target_for(record_of(topic), tmp_path / "here" / topic.name) for topic in topics}
        there = {record_of(topic): target_for(record_of(topic), tmp_path / "there" / topic.name) for topic in topics}

        by_spark = list(SparkRunner(local_spark()).run(works_for(log, there, item_bytes=20_000)))
        by_us = list(InProcess().run(works_for(log, here, item_bytes=20_000)))

        assert len(by_spark) == len(by_us) > 2
        for topic, target in zip(topics, there.values(), strict=True):
            done = done_for([each for each in by_spark if isinstance(each, LandDone)], topic.number)
            same = done_for([each for each in by_us if isinstance(each, LandDone)], topic.number)
            rows = rows_in(target, done)
            assert rows.equals(rows_read(topic, rows.schema))
            assert combine(each.digest for each in done) == combine(each.digest for each in same)
            paths = [file.path for each in done for file in each.files]
            assert len(paths) == len(set(paths)) > 2, "tasks with the same counter write the same names"


def test_files_are_read_back_in_spark(tmp_path: Path) -> None:
    log, (topic, _) = log_with_rows(tmp_path / "data")
    with log:
        target = target_for(record_of(topic), tmp_path / "table")
        written = list(InProcess().run(works_for(log, {record_of(topic): target})))
    (done,) = done_for([each for each in written if isinstance(each, LandDone)], topic.number)
    works = [
        ReadBackWork(target, tuple(file.path for file in done.files), topic.number),
        ReadBackWork(target, (f"file://{tmp_path}/nobody.parquet",), 99),
    ]

    back = {each.number: each for each in SparkRunner(local_spark()).run(works) if isinstance(each, ReadBackDone)}

    assert back[topic.number].digest == done.digest
    assert back[99].error is not None and "nobody.parquet" in back[99].error


def test_no_works_start_no_job() -> None:
    assert list(SparkRunner(local_spark()).run([])) == []


def test_a_spark_that_fails_is_unavailable_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What a task cannot even read fails in the worker, and with it the job.
    monkeypatch.setattr("headwater.spark.run.pack", lambda work: b"this is no work")

    with pytest.raises(Unavailable, match="Spark job") as raised:
        list(SparkRunner(local_spark()).run([ReadBackWork(b"", ())]))

    assert raised.value.__cause__ is not None
    assert "ValidationError" in str(raised.value)
