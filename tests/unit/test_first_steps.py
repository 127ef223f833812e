"""What somebody meets who tries Headwater for the first time, and makes the usual mistakes."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pandas as pd
import pytest

import headwater as hw
from headwater.testing import CrashableLog


def test_a_place_that_is_no_directory_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")

    for where, why in (("", "which directory"), ("gs://bucket/log", "s3://"), (tmp_path / "file", "a file")):
        with pytest.raises(hw.errors.InvalidRequest, match=why):
            hw.open(where)


def test_a_home_directory_is_meant_by_its_sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    with hw.open("~/data") as log:
        log.topic("a", schema={"x": int}).append({"x": 1})

    assert (tmp_path / "data" / "log").is_dir()


def test_a_second_log_of_one_process_is_told_that_the_first_one_writes(tmp_path: Path) -> None:
    with hw.open(tmp_path) as log, hw.open(tmp_path) as other:
        log.topic("a", schema={"x": int}).append({"x": 1})

        with pytest.raises(hw.errors.LogLocked, match="this process has it open already") as locked:
            other["a"].append({"x": 2})

        assert locked.value.facts == {"directory": str(tmp_path), "pid": str(os.getpid())}
        assert other["a"].read().to_pylist() == [{"x": 1}]


def test_a_place_that_cannot_be_written_is_said_to_be_so_and_is_read() -> None:
    world = CrashableLog()
    world.log.topic("a", schema={"x": int}).append({"x": 1})
    log = world.reopen()
    world.files.fail(1, errno.EROFS, for_ever=True, verbs=["lock"])

    with pytest.raises(hw.errors.InvalidRequest, match="cannot be written"):
        log["a"].append({"x": 2})

    assert log["a"].read().to_pylist() == [{"x": 1}]


def test_a_closed_log_and_a_deleted_topic_can_still_be_shown() -> None:
    with hw.open(":memory:") as log:
        topic = log.topic("a", schema={"x": int})
        gone = log.topic("b", schema={"x": int})
        log.delete_topic("b")
        assert repr(gone) == "Topic('b')" and gone._repr_html_() is None

    assert repr(topic) == "Topic('a')" and repr(log) == "Log(':memory:')"
    assert topic._repr_html_() is None and log._repr_html_() is None


def test_the_front_door_shows_what_is_meant_for_users() -> None:
    assert set(hw.__all__) < set(dir(hw)) and "Any" not in dir(hw)
    assert hw.__version__
    with pytest.raises(AttributeError):
        hw.no_such_thing  # noqa: B018


def test_a_poisoned_log_can_be_looked_at_and_says_what_to_do() -> None:
    world = CrashableLog()
    topic = world.log.topic("a", schema={"x": int})
    topic.append({"x": 1})
    world.files.fail(1, errno.EIO, verbs=["sync_data"])
    with pytest.raises(hw.errors.OutcomeUnknown):
        topic.append({"x": 2})

    status = world.log.status()

    assert "close it and open it again" in status.notes[0]
    assert status.counters["io_errors"] == 1 and status.topics[0].rows == 1


def test_what_an_opening_would_replay_is_the_same_for_its_owner_and_for_a_reader(tmp_path: Path) -> None:
    with hw.open(tmp_path) as log, hw.open(tmp_path) as reader:
        topic = log.topic("a", schema=hw.BYTES)
        topic.append(bytes(1_000_000))
        log.checkpoint()
        for _ in range(20):
            topic.append(b"x")

        assert reader.status().replay_bytes == log.status().replay_bytes < 20_000


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (pd.DataFrame([[1, 2.0]], columns=["a", "a"]), "the same name"),
        (pd.DataFrame({"a": [1, 1], "b": [1.0, 2.0]}).groupby("a").sum(), "'a' is the frame's index"),
    ],
    ids=["two columns of one name", "a column that has become the index"],
)
def test_a_frame_of_pandas_whose_values_would_be_lost_is_refused(frame: pd.DataFrame, why: str) -> None:
    with hw.open(":memory:") as log:
        topic = log.topic("g", schema={"a": int | None, "b": float | None})

        with pytest.raises(hw.errors.InvalidRequest, match=why):
            topic.append(frame)
