"""Anything that a user may do to a log, in any order, with kills and power losses between: a plain model agrees.

HEADWATER_STATEFUL_RUNS and HEADWATER_STATEFUL_STEPS say how often and how long: 1,000 runs of 50 steps in CI, 20,000 of
100 in torture.  Hypothesis makes a run that fails as short as it can, and prints it as a program.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from headwater.clock import ManualClock
from headwater.errors import Forgotten
from headwater.frames.frame import Kind
from headwater.ids import Lsn
from headwater.log import Draft, FrameLog, open_log
from headwater.log.deletion import Deletion, DeletionIntent, Release, drain
from headwater.log.pins import Pins
from headwater.settings import LogSettings
from headwater.storage.simulated import Choice, SimulatedFiles
from tests.simulation.invariants import quiet
from tests.simulation.plain_model import PlainLog, body_of, read_from_start
from tests.simulation.workload import commit_together

RUNS = int(os.environ.get("HEADWATER_STATEFUL_RUNS", "1000"))
STEPS = int(os.environ.get("HEADWATER_STATEFUL_STEPS", "50"))

SETTINGS = LogSettings(
    segment_size_bytes_max=4096,
    write_body_bytes_max=4096,
    mark_sync_idle_s=0.0,
    reserve_bytes=0,
    deletion_grace_s=0.0,
    scan_chunk_bytes=4096,
)
TOPICS = (1, 2, 3)

partitions = st.tuples(st.sampled_from(TOPICS), st.integers(0, 1))
sizes = st.sampled_from([0, 60, 120, 400, 1200])
frames = st.tuples(partitions, st.integers(1, 3), sizes)


class LogMachine(RuleBasedStateMachine):
    """One log on simulated files, and the list of what it must hold."""

    @initialize(seed=st.integers(0, 2**16))
    def begin(self, seed: int) -> None:
        self.files = SimulatedFiles(seed)
        self.chance = Random(seed)
        self.clock = ManualClock()
        self.model = PlainLog()
        self.log: FrameLog | None = None
        self.number = 0

    def teardown(self) -> None:
        """However a run has ended, the log opens and holds what it must; twice."""
        if hasattr(self, "model"):
            self._close()
            self.reopen()
            self._check_all(self._opened())
            self.files = self.files.crash(self.chance, choice=Choice.NOTHING)
            self.log = None
            self.reopen()
            self._check_all(self._opened())

    # Opening and ending -----------------------------------------------------------------------

    def _open(self) -> FrameLog:
        return open_log(
            self.files,
            settings=SETTINGS,
            clock=self.clock,
            entropy=self.chance.randbytes,
            log_start=lambda: self.model.log_start,
        )

    def _opened(self) -> FrameLog:
        if self.log is None:
            self.reopen()
        assert self.log is not None
        return self.log

    @precondition(lambda self: self.log is None)
    @rule()
    def reopen(self) -> None:
        self.log = self._open()
        self.log.claim()
        self.model.recovered(read_from_start(self.log))

    def _close(self) -> None:
        if self.log is not None:
            self.log.close()
            self.log = None

    @precondition(lambda self: self.log is not None)
    @rule()
    def close(self) -> None:
        self._close()

    @precondition(lambda self: self.log is not None)
    @rule()
    def kill(self) -> None:
        self.files = self.files.restart()
        self.log = None

    @rule(choice=st.sampled_from(Choice))
    def lose_power(self, choice: Choice) -> None:
        self.files = self.files.crash(self.chance, choice=choice)
        self.log = None

    @rule(data=st.data())
    def lose_power_in_an_append(self, data: st.DataObject) -> None:
        """Nobody hears whether the write has happened."""
        log = self._opened()
        drafts = self._drafts(data.draw(st.lists(frames, min_size=1, max_size=3)))
        verb = data.draw(st.sampled_from(["append", "sync_data", "write_at"]))
        self.model.leave_open(drafts)
        states: list[SimulatedFiles] = []

        def before_call(called: str, name: str) -> None:
            if called == verb and not states:
                states.append(self.files.crash(self.chance))

        self.files.before_call = before_call
        log.append(drafts)
        self.files = states[0]
        self.log = None

    # Writing ----------------------------------------------------------------------------------

    def _drafts(self, drawn: Sequence[tuple[tuple[int, int], int, int]]) -> list[Draft]:
        drafts = []
        for (topic, partition), rows, size in drawn:
            self.number += 1
            body = body_of(self.number, size)
            drafts.append(Draft(Kind.DATA, body, topic_number=topic, partition=partition, row_count=rows))
        return drafts

    @rule(frame=frames)
    def append_one(self, frame: tuple[tuple[int, int], int, int]) -> None:
        drafts = self._drafts([frame])
        self.model.acknowledge(drafts, self._opened().append(drafts))

    @rule(drawn=st.lists(frames, min_size=2, max_size=3))
    def append_many(self, drawn: list[tuple[tuple[int, int], int, int]]) -> None:
        drafts = self._drafts(drawn)
        self.model.acknowledge(drafts, self._opened().append(drafts))

    @rule(drawn=st.lists(st.lists(frames, min_size=1, max_size=2), min_size=2, max_size=3))
    def append_together(self, drawn: list[list[tuple[tuple[int, int], int, int]]]) -> None:
        writes = [self._drafts(each) for each in drawn]
        futures = commit_together(self._opened(), writes)
        for drafts, future in zip(writes, futures, strict=True):
            self.model.acknowledge(drafts, future.result(0))

    @rule(seconds=st.sampled_from([-5.0, 0.001, 1.0, 4000.0]))
    def time_passes(self, seconds: float) -> None:
        if seconds < 0:
            self.clock.set_wall_clock(self.clock.now_us() + round(seconds * 1_000_000))
        else:
            self.clock.advance(seconds)

    @rule()
    def roll(self) -> None:
        self._opened().roll()

    @rule(data=st.data(), topics=st.sets(st.sampled_from(TOPICS), min_size=1))
    def drain(self, data: st.DataObject, topics: set[int]) -> None:
        log = self._opened()
        sealed = [segment for segment in log.segments() if segment.sealed]
        if sealed:
            segment = data.draw(st.sampled_from(sealed))
            self.model.loosen(topics, segment.last_lsn)
            released = {topic: Release(segment.last_lsn, 0) for topic in topics}
            done = drain(log, segment.name, released=released, covered_lsn=Lsn(0))
            held = [lsn for lsn in range(segment.first_lsn, segment.last_lsn + 1) if lsn in self.model.kept]
            gone = [lsn for lsn in held if self.model.kept[lsn].partition[0] in topics]
            assert done.frames_removed <= len(gone)
            found = {
                frame.lsn for frame in log.read(segment.first_lsn, segment.last_lsn) if frame.header.kind == Kind.DATA
            }
            assert found.isdisjoint(gone)

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        log = self._opened()
        last = data.draw(st.sampled_from([segment.last_lsn for segment in log.segments()]))
        self.model.loosen(TOPICS, last)
        deletion = Deletion(log, pins=Pins(self.files), record_intent=self._record, clock=self.clock, settings=SETTINGS)
        deletion.run(
            log_start=Lsn(self.model.log_start),
            covered_lsn=last,
            released={topic: Release(last, 0) for topic in TOPICS},
        )
        assert not log.device.to_be_forgotten

    def _record(self, intent: DeletionIntent) -> None:
        self.model.forget(intent.log_start)

    # Reading ----------------------------------------------------------------------------------

    def _held(self, log: FrameLog) -> list[int]:
        """The LSNs of rows that must be there."""
        first = log.segments()[0].first_lsn if log.segments() else 1
        return [lsn for lsn in self.model.kept if lsn >= first and lsn not in self.model.loose]

    @rule(partition=partitions, offset=st.integers(0, 40))
    def find(self, partition: tuple[int, int], offset: int) -> None:
        log = self._opened()
        wanted = [
            lsn
            for lsn in self._held(log)
            if (kept := self.model.kept[lsn]).partition == partition and kept.base_offset + kept.row_count > offset
        ]
        found = log.find(*partition, offset)
        if found is None:
            assert not wanted, f"offset {offset} of {partition} is at {wanted[0]}, and was not found"
            return
        kept = self.model.kept[found.lsn]
        assert kept.partition == partition and kept.base_offset + kept.row_count > offset
        assert not wanted or found.lsn <= wanted[0]
        read = next(log.read_partition(*partition, offset))
        assert read.lsn == found.lsn and bytes(read.body) == kept.body

    @rule(data=st.data())
    def find_time(self, data: st.DataObject) -> None:
        log = self._opened()
        held = self._held(log)
        if held:
            lsn = data.draw(st.sampled_from(held))
            found = log.find_time(self.model.times[lsn])
            # The first of that time may be a row that was asked for together with it, or the epoch's beginning.
            assert found is not None and found <= lsn
            assert all(self.model.times[each] < self.model.times[lsn] for each in held if each < found)
        assert log.find_time(2**62) is None

    @rule(from_lsn=st.integers(1, 60), count=st.integers(0, 20))
    def read(self, from_lsn: int, count: int) -> None:
        log = self._opened()
        first = log.segments()[0].first_lsn
        try:
            found = list(log.read(Lsn(from_lsn), Lsn(from_lsn + count)))
        except Forgotten:
            assert from_lsn < first
            return
        wanted = [lsn for lsn in self._held(log) if from_lsn <= lsn <= from_lsn + count]
        by_lsn = {int(frame.lsn): bytes(frame.body) for frame in found}
        assert all(by_lsn.get(lsn) == self.model.kept[lsn].body for lsn in wanted)

    @rule()
    def read_in_another_process(self) -> None:
        """A reader sees all that was acknowledged, while the owner goes on; an open write may be missing."""
        reader = self._open()
        if self.log is not None:
            self.model.check(read_from_start(reader))
        else:
            list(read_from_start(reader))

    @rule()
    def read_everything(self) -> None:
        self._check_all(self._opened())

    def _check_all(self, log: FrameLog) -> None:
        self.model.check(read_from_start(log))

    @invariant()
    def durable_is_what_was_acknowledged(self) -> None:
        log = getattr(self, "log", None)
        if log is not None:
            assert log.durable_lsn() >= max(self.model.kept, default=0)


@pytest.mark.timeout(600 + RUNS * STEPS / 50)  # a run that fails is made shorter for up to five minutes
def test_whatever_is_done_to_a_log_it_holds_what_a_plain_list_holds() -> None:
    with quiet():
        run_state_machine_as_test(
            LogMachine,
            settings=settings(
                max_examples=RUNS,
                stateful_step_count=STEPS,
                suppress_health_check=list(HealthCheck),
            ),
        )
