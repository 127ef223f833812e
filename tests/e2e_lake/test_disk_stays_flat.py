"""The log forgets what has landed: its disk stays flat under load, whatever becomes of one topic among many.

Landings are real, on a SQLite catalog; time is not: a round is minutes, and takes a second or two.

BOUND    After a cleanup the log holds no more than what was appended within the grace and two rounds, what has not
         landed at all, two segments that are not full yet, and as much again as a topic that is held up has in them:
         a segment is rewritten when less than half of it is wanted.
"""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

import headwater as hw
from headwater.clock import ManualClock
from headwater.lake.catalog import catalog_place
from headwater.settings import LandingSettings, LogSettings, Settings
from headwater.storage.disk import DiskFiles
from tests.e2e_lake.same_rows import check_history

KIB = 1024
SEGMENT_BYTES = 128 * KIB
GRACE_S = 600.0
SETTINGS = Settings(
    log=LogSettings(
        segment_size_bytes_max=SEGMENT_BYTES,
        write_body_bytes_max=SEGMENT_BYTES,
        reserve_bytes=0,
        deletion_grace_s=GRACE_S,
    ),
    landing=LandingSettings(commit_threads=2),
    upkeep_interval_s=0,
)
ROW = {"x": int, "note": str}


def batch(seed: int, rows: int) -> list[dict[str, object]]:
    note = random.Random(seed).randbytes(100).hex()
    return [{"x": number, "note": note} for number in range(rows)]


def segment_bytes(path: Path) -> int:
    return sum(each.stat().st_size for each in (path / "log").glob("*.seg"))


def test_one_of_twenty_topics_halted_for_an_hour_under_load_does_not_hold_the_disk(tmp_path: Path) -> None:
    clock = ManualClock()
    round_s, rounds = 300.0, 13
    with hw.open(tmp_path, settings=SETTINGS, clock=clock) as log:
        topics = [log.topic(f"t{number:02}", ROW, table=f"lake.t{number:02}") for number in range(20)]
        stuck = topics[7]
        stuck.append(batch(0, 1))
        log.land()
        # Somebody drops its table: a halt, until a person says what is to be done.
        log._beside().place.connect().catalog.drop_table("lake.t07")
        sizes, appended, outcomes = [], [], set()
        for number in range(rounds):
            before = log.status().counters["append_bytes"]
            for topic in topics:
                # Less than a segment each, so that every segment holds rows of the topic that is held up.
                topic.append(batch(number, 60))
            appended.append(log.status().counters["append_bytes"] - before)
            report = log.land()
            outcomes |= {(each.topic == "t07", each.outcome, each.cause) for each in report}
            clock.advance(round_s)
            sizes.append(segment_bytes(tmp_path))

        assert outcomes == {(True, "halted", "gap"), (False, "landed", "")}
        held = stuck.describe().bytes
        per_round = max(appended)
        bound = (GRACE_S / round_s + 2) * per_round + 2 * SEGMENT_BYTES + 2 * held
        print(
            f"log at the end {sizes[-1]:,} B of {sum(appended):,.0f} B appended, bound {bound:,.0f} B, held {held:,} B"
        )
        assert max(sizes) < bound < 0.6 * sum(appended)
        # All that the halted topic was ever given is still there, its first row too, which had landed; and it lands
        # when a person has decided.
        assert stuck.read().to_arrow().num_rows == 60 * rounds + 1
        decided = log.land(after_rollback="t07")
        assert (decided["t07"].outcome, decided["t07"].rows) == ("landed", 60 * rounds + 1)
        clock.advance(GRACE_S + 1)
        log.land()
        assert segment_bytes(tmp_path) < 2 * SEGMENT_BYTES


def test_after_two_hundred_landings_the_log_is_as_small_as_after_twenty(tmp_path: Path) -> None:
    clock = ManualClock()
    round_s = 60.0
    with hw.open(tmp_path, settings=SETTINGS, clock=clock) as log:
        topic = log.topic("t", ROW, table="lake.t")
        sizes, appended = [], []
        for number in range(200):
            before = log.status().counters["append_bytes"]
            topic.append(batch(number, 200))
            appended.append(log.status().counters["append_bytes"] - before)
            assert log.land().rows == 200
            clock.advance(round_s)
            sizes.append(segment_bytes(tmp_path))

        bound = (GRACE_S / round_s + 2) * max(appended) + 2 * SEGMENT_BYTES
        print(
            f"log after 20 landings {sizes[19]:,} B, after 200 {sizes[-1]:,} B, bound {bound:,.0f} B, "
            f"{sum(appended):,.0f} B appended"
        )
        assert max(sizes) <= bound < sum(appended) / 5
        tables = catalog_place(None, directory=str(tmp_path)).connect()
        assert len(check_history(tables.catalog.load_table("lake.t"))) == 200
        assert log.status().landing[0].verified_lsn == log.status().durable_lsn


def test_unlinks_that_fail_are_tried_again_until_they_succeed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    failing, failed = False, 0
    unlink = DiskFiles.unlink

    def sometimes(self: DiskFiles, name: str) -> None:
        nonlocal failed
        if failing and name.endswith(".seg"):
            failed += 1
            raise OSError(errno.EIO, "Input/output error", name)
        unlink(self, name)

    monkeypatch.setattr(DiskFiles, "unlink", sometimes)
    with hw.open(tmp_path, settings=SETTINGS, clock=clock) as log:
        topic = log.topic("t", ROW, table="lake.t")
        for number in range(8):
            topic.append(batch(number, 500))
        log.land()
        full = segment_bytes(tmp_path)
        clock.advance(GRACE_S + 1)
        topic.append(batch(9, 1))
        log.checkpoint()

        failing = True
        log.land()
        log.land()
        assert failed >= 2 and segment_bytes(tmp_path) >= full
        assert log.status().counters["unlinks_failed"] == failed
        start = log.status().first_lsn

        failing = False
        log.land()
        assert segment_bytes(tmp_path) < full / 2
        assert log.status().first_lsn >= start > 1
