"""A log that does not begin at LSN 1: what it goes on with, and where it is refused."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.clock import ManualClock
from headwater.errors import InvalidRequest, LostSegment
from headwater.metadata.operations import TopicRecord
from headwater.settings import LogSettings
from headwater.storage.simulated import SimulatedFiles
from headwater.topics.beginning import Beginning, begin_log, files_of_a_log
from headwater.topics.schema import pack_schema

LOG = LogSettings(reserve_bytes=0)
SETTINGS = hw.Settings(log=LOG, journal=LOG, upkeep_interval_s=0)
FIRST = 1 << 32
NARROW, WIDE = (
    pa.schema([pa.field("x", pa.int64())]),
    pa.schema([pa.field("x", pa.int64()), pa.field("y", pa.string())]),
)


def topic(number: int, name: str, **options: Any) -> TopicRecord:
    schemas = (pack_schema(NARROW), pack_schema(WIDE))
    return TopicRecord(
        number=number, name=name, topic_id=bytes([number]) * 16, created_us=5, schemas=schemas, partitions=2, **options
    )


def begun(files: SimulatedFiles, **options: Any) -> None:
    beginning = Beginning(b"\x09" * 16, FIRST, [topic(2, "orders", table="lake.orders"), topic(4, "notes")], **options)
    begin_log(files, beginning, settings=SETTINGS, clock=ManualClock(), entropy=Random(1).randbytes)


def test_a_log_goes_on_from_the_lsn_and_the_offsets_that_it_was_given() -> None:
    files = SimulatedFiles()

    begun(files, next_offsets={(2, 0): 10, (2, 1): 7}, groups={"billing": 3}, time_us=4)

    for times in range(2):
        with hw.open(files, settings=SETTINGS) as log:
            told = log["orders"].append([{"x": 1}], partition=0)
            assert told.offsets[0].first == 10 + times and told.first_lsn > FIRST
            assert log["notes"].append([{"x": 1, "y": "a"}], partition=1).offsets[1].first == times
            assert [each.committed for each in log.groups()] == [{0: 10, 1: 7}]
            assert log._engine.topic("orders") == topic(2, "orders", table="lake.orders")


def test_numbers_between_and_above_are_never_given_out_again() -> None:
    files = SimulatedFiles()

    begun(files, number_max=6)

    with hw.open(files, settings=SETTINGS) as log:
        assert [each.name for each in log.topics()] == ["notes", "orders"]
        log.topic("new", schema={"x": int})
        assert log._engine.topic("new").number == 7


def test_a_log_begins_only_where_there_is_none() -> None:
    files = SimulatedFiles()
    with hw.open(files, settings=SETTINGS) as log:
        log.topic("orders", schema={"x": int})

    with pytest.raises(InvalidRequest, match="a log can only begin where there is none"):
        begun(files)


def test_what_is_left_of_it_while_it_is_taken_away_can_never_be_opened() -> None:
    files = SimulatedFiles()
    begun(files, next_offsets={(2, 0): 10})
    paths = files_of_a_log(files)

    for gone in range(1, len(paths)):
        files = SimulatedFiles()
        begun(files, next_offsets={(2, 0): 10})
        for path in paths[:gone]:
            files.unlink(path)
        with pytest.raises(hw.errors.Halted), hw.open(files, settings=SETTINGS) as log:
            log.topic("orders")


def test_a_log_without_its_segment_halts_by_name() -> None:
    files = SimulatedFiles()
    begun(files)
    files.unlink(f"log/{FIRST:020}.0.seg")

    with pytest.raises(LostSegment):
        hw.open(files, settings=SETTINGS)
