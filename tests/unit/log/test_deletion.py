"""When a segment may go: the pure plan case by case, and what acting on it does to files, pins and crashes."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

import pytest

from headwater.errors import Forgotten, PinExpired, Unavailable
from headwater.frames.frame import Kind
from headwater.ids import Lsn
from headwater.log import Draft, FrameLog, SegmentInfo
from headwater.log.deletion import (
    Deletion,
    DeletionIntent,
    DeletionPlan,
    Release,
    SegmentUse,
    drain,
    past_grace,
    plan_deletion,
)
from headwater.log.device import TopicInSegment
from headwater.log.pins import PinFound, Pins
from headwater.storage.simulated import Choice, SimulatedFiles
from tests.unit.log.small_logs import (
    SETTINGS,
    World,
    crashing_at_every_call,
    fill,
    record,
    rows,
    segment_names,
    simulated,
    stored_in,
    three_segments,
)

NOW_US = 1_700_000_000_000_000
GRACE_S = 600.0
LONG_AGO_US = NOW_US - 3_600_000_000

# The plan -----------------------------------------------------------------------------------------


def use(first: int, last: int, topics: Mapping[int, tuple[int, int]], *, sealed: bool = True) -> SegmentUse:
    """A segment of these LSNs; of each topic its bytes and its last LSN there."""
    segment = SegmentInfo(f"{first}-{last}", Lsn(first), Lsn(last), 0, 1000, LONG_AGO_US, LONG_AGO_US, sealed)
    shares = {topic: TopicInSegment(1, size, 1, Lsn(lsn)) for topic, (size, lsn) in topics.items()}
    return SegmentUse(segment, shares)


def released(up_to: Mapping[int, int], since_us: int = LONG_AGO_US) -> dict[int, Release]:
    return {topic: Release(Lsn(lsn), since_us) for topic, lsn in up_to.items()}


def plan(
    *uses: SegmentUse,
    release: Mapping[int, Release],
    covered: int = 1000,
    pins: tuple[int, ...] = (),
    log_start: int = 1,
    grace_s: float = GRACE_S,
) -> DeletionPlan:
    return plan_deletion(
        uses,
        log_start=Lsn(log_start),
        covered_lsn=Lsn(covered),
        released=release,
        pins=[Lsn(pin) for pin in pins],
        now_us=NOW_US,
        grace_s=grace_s,
    )


ONE = use(1, 10, {1: (100, 10)})
TWO = use(11, 20, {1: (100, 20)})
THREE = use(21, 30, {1: (100, 30)})
ACTIVE = use(31, 40, {1: (100, 40)}, sealed=False)


def test_nothing_released_keeps_everything() -> None:
    made = plan(ONE, TWO, ACTIVE, release={})

    assert made.delete == () and made.drain == () and made.log_start == 1
    assert made.kept == {"1-10": "topics not released: 1", "11-20": "topics not released: 1"}


def test_all_that_is_released_goes_and_the_log_starts_behind_it() -> None:
    made = plan(ONE, TWO, THREE, ACTIVE, release=released({1: 1000}))

    assert made.delete == ("1-10", "11-20", "21-30")
    assert made.log_start == 31
    assert made.kept == {}


def test_the_segment_that_is_being_written_never_goes() -> None:
    made = plan(ACTIVE, release=released({1: 1000}))

    assert made == DeletionPlan(Lsn(1), (), ())


def test_a_segment_goes_only_if_every_topic_in_it_is_released() -> None:
    made = plan(use(1, 10, {1: (60, 9), 2: (60, 10)}), release=released({1: 10}))

    assert made.delete == ()
    assert made.kept == {"1-10": "topics not released: 2"}


def test_a_release_must_reach_the_topics_last_frame_in_the_segment() -> None:
    assert plan(ONE, release=released({1: 9})).delete == ()
    assert plan(ONE, release=released({1: 10})).delete == ("1-10",)


def test_a_release_counts_once_its_grace_is_over() -> None:
    just_over = NOW_US - 600_000_000

    assert plan(ONE, release=released({1: 10}, just_over + 1)).delete == ()
    assert plan(ONE, release=released({1: 10}, just_over)).delete == ("1-10",)


def test_without_grace_a_release_counts_at_once() -> None:
    assert plan(ONE, release=released({1: 10}, NOW_US), grace_s=0).delete == ("1-10",)


def test_only_a_prefix_goes() -> None:
    held_up = use(11, 20, {2: (100, 20)})

    made = plan(ONE, held_up, THREE, release=released({1: 1000}))

    assert made.delete == ("1-10",)
    assert made.log_start == 11
    assert made.kept == {"11-20": "topics not released: 2", "21-30": "an earlier segment is kept"}


def test_what_may_go_behind_a_kept_segment_is_drained() -> None:
    held_up = use(1, 10, {2: (100, 10)})

    made = plan(held_up, TWO, release=released({1: 1000}))

    assert made.delete == ()
    assert made.drain == ("11-20",)


def test_what_was_drained_to_nothing_behind_a_kept_segment_is_not_drained_again() -> None:
    held_up = use(1, 10, {2: (100, 10)})

    made = plan(held_up, use(11, 20, {}), release=released({1: 1000}))

    assert made.drain == ()
    assert made.kept["11-20"] == "an earlier segment is kept"


def test_what_was_drained_to_nothing_goes_with_the_prefix() -> None:
    made = plan(use(1, 10, {}), TWO, release={})

    assert made.delete == ("1-10",)
    assert made.log_start == 11


def test_an_empty_segment_goes_and_moves_the_start_nowhere() -> None:
    made = plan(use(11, 10, {}), log_start=11, release={})

    assert made.delete == ("11-10",)
    assert made.log_start == 11


def test_a_pin_keeps_its_segment_and_all_after_it() -> None:
    made = plan(ONE, TWO, THREE, release=released({1: 1000}), pins=(25, 15))

    assert made.delete == ("1-10",)
    assert made.kept == {"11-20": "pinned from lsn 15", "21-30": "pinned from lsn 15"}


def test_a_pin_on_the_first_lsn_behind_a_segment_lets_it_go() -> None:
    assert plan(ONE, release=released({1: 1000}), pins=(11,)).delete == ("1-10",)
    assert plan(ONE, release=released({1: 1000}), pins=(10,)).delete == ()


def test_a_pin_that_holds_everything_keeps_everything() -> None:
    assert plan(ONE, TWO, release=released({1: 1000}), pins=(0,)).delete == ()


def test_what_is_pinned_is_not_drained_either() -> None:
    half_dead = use(1, 10, {1: (90, 9), 2: (10, 10)})

    assert plan(half_dead, release=released({1: 1000})).drain == ("1-10",)
    assert plan(half_dead, release=released({1: 1000}), pins=(5,)).drain == ()


def test_a_segment_whose_last_lsn_is_not_covered_stays() -> None:
    made = plan(ONE, TWO, release=released({1: 1000}), covered=19)

    assert made.delete == ("1-10",)
    assert made.kept == {"11-20": "covered only up to lsn 19"}


def test_what_is_not_covered_is_not_drained() -> None:
    half_dead = use(1, 10, {1: (90, 9), 2: (10, 10)})

    assert plan(half_dead, release=released({1: 1000}), covered=9).drain == ()


def test_frames_of_no_topic_are_released_by_being_covered() -> None:
    with_state = use(1, 10, {0: (50, 8), 1: (50, 10)})

    assert plan(with_state, release=released({1: 10}), covered=10).delete == ("1-10",)
    assert plan(with_state, release=released({0: 10, 1: 10}), covered=7).delete == ()


def test_a_segment_of_which_less_than_half_is_live_is_drained() -> None:
    def with_live(live: int) -> DeletionPlan:
        return plan(use(1, 10, {1: (100 - live, 9), 2: (live, 10)}), release=released({1: 1000}))

    assert with_live(49).drain == ("1-10",)
    assert with_live(50).drain == ()
    assert with_live(49).kept == {"1-10": "topics not released: 2"}


def test_a_drained_segment_is_not_drained_again_without_a_further_release() -> None:
    after_the_drain = use(1, 10, {2: (30, 9), 3: (19, 10)})

    assert plan(after_the_drain, release=released({1: 1000})).drain == ()
    assert plan(after_the_drain, release=released({1: 1000, 2: 1000})).drain == ("1-10",)


def test_a_topic_within_its_grace_counts_as_live_for_draining() -> None:
    half_dead = use(1, 10, {1: (90, 9), 2: (10, 10)})

    assert plan(half_dead, release=released({1: 1000}, NOW_US)).drain == ()


def test_the_log_start_never_falls() -> None:
    made = plan(ONE, release=released({1: 10}), log_start=50)

    assert made.delete == ("1-10",)
    assert made.log_start == 50


def test_only_releases_past_their_grace_are_ripe() -> None:
    fresh, ripe = Release(Lsn(5), NOW_US), Release(Lsn(6), LONG_AGO_US)

    assert past_grace({1: fresh, 2: ripe}, NOW_US, GRACE_S) == {2: ripe}


# Carrying it out ----------------------------------------------------------------------------------


@dataclass
class Journal:
    """Records intents and knows the log's start, as the metadata journal does."""

    world: World
    intents: list[DeletionIntent] = field(default_factory=list)
    on_intent: Callable[[DeletionIntent], None] = lambda intent: None

    def record(self, intent: DeletionIntent) -> None:
        self.intents.append(intent)
        self.world.log_start = intent.log_start
        self.on_intent(intent)


@dataclass
class Stage:
    """A log of three segments that is open, and a deletion over it."""

    files: SimulatedFiles
    world: World
    log: FrameLog
    pins: Pins
    journal: Journal
    deletion: Deletion
    names: list[str]


def stage(seed: int = 0) -> Stage:
    files, world = simulated(seed)
    names = three_segments(world)
    world.clock.advance(3600)
    return on_stage(files, world, names)


def on_stage(files: SimulatedFiles, world: World, names: list[str]) -> Stage:
    log = world.open(files)
    log.claim()
    pins = Pins(files, entropy=Random(7).randbytes)
    journal = Journal(world)
    deletion = Deletion(log, pins=pins, record_intent=journal.record, clock=world.clock, settings=SETTINGS)
    return Stage(files, world, log, pins, journal, deletion, names)


def all_released(world: World, up_to: int = 1000) -> dict[int, Release]:
    return released({1: up_to, 2: up_to}, world.clock.now_us() - 3_600_000_000)


def test_released_segments_are_deleted_with_their_indexes_and_reading_starts_behind_them() -> None:
    on = stage()

    report = on.deletion.run(log_start=Lsn(1), covered_lsn=Lsn(8), released=all_released(on.world))

    assert report.deleted == (on.names[0], on.names[1])
    assert report.plan.log_start == 9 and report.held_by_pins == () and report.drained == ()
    assert on.log.counters.segments_deleted == 2
    assert not [name for name in on.files.list("log") if name.startswith(("00000000000000000001.", on.names[1][:21]))]
    assert [frame.lsn for frame in on.log.read(Lsn(9))] == [9, 10]
    with pytest.raises(Forgotten):
        next(on.log.read(Lsn(8)))


def test_the_intent_is_recorded_before_the_first_unlink() -> None:
    on = stage()
    unlinked_at_intent: list[int] = []
    on.journal.on_intent = lambda intent: unlinked_at_intent.append(
        sum(verb == "unlink" and "seg" in name for verb, name in on.files.calls)
    )

    on.deletion.run(log_start=Lsn(1), covered_lsn=Lsn(8), released=all_released(on.world))

    assert unlinked_at_intent == [0]
    assert on.journal.intents == [DeletionIntent(Lsn(9), (on.names[0], on.names[1]))]


def test_nothing_to_delete_records_no_intent() -> None:
    on = stage()

    report = on.deletion.run(log_start=Lsn(1), covered_lsn=Lsn(8), released={})

    assert on.journal.intents == [] and report.deleted == ()
    assert segment_names(on.files) == on.names


def test_an_intent_that_cannot_be_recorded_deletes_nothing() -> None:
    on = stage()

    def refuse(intent: DeletionIntent) -> None:
        raise OSError(errno.ENOSPC, "no room in the journal")

    on.journal.on_intent = refuse
    with pytest.raises(OSError, match="no room"):
        on.deletion.run(log_start=Lsn(1), covered_lsn=Lsn(8), released=all_released(on.world))

    assert segment_names(on.files) == on.names


def test_if_the_offsets_of_what_goes_cannot_be_saved_no_intent_is_recorded() -> None:
    on = stage()
    for name in on.files.list("log"):
        if name.endswith(".idx"):
            on.files.unlink(f"log/{name}")
    on.files.fail(1, errno.ENOSPC, verbs=["create"])

    with pytest.raises(Unavailable, match="could not be saved"):
        on.deletion.run(log_start=Lsn(1), covered_lsn=Lsn(8), released=all_released(on.world))
    refused = list(on.journal.intents)
    report = on.deletion.run(log_start=Lsn(1), covered_lsn=Lsn(8), released=all_released(on.world))

    assert refused == []
    assert report.deleted == (on.names[0], on.names[1])


def test_a_pin_made_before_the_intent_is_seen_and_nothing_goes() -> None:
    on = stage()
    made = []
    # Its look at the log's start came before the intent.
    on.journal.on_intent = lambda intent: made.append(on.pins.hold(Lsn(2), lambda: 1))

    report = on.deletion.run(log_start=Lsn(1), covered_lsn=Lsn(8), released=all_released(on.world))

    assert [pin.lsn for pin in report.held_by_pins] == [2]
    assert report.deleted == () and segment_names(on.files) == on.names
    assert [frame.lsn for frame in on.log.read(Lsn(2), Lsn(4))] == [2, 3, 4]


def test_a_pin_made_after_the_intent_is_expired() -> None:
    on = stage()

    def pin_too_late(intent: DeletionIntent) -> None:
        with pytest.raises(PinExpired):
            on.pins.hold(Lsn(2), lambda: on.world.log_start)

    on.journal.on_intent = pin_too_late

    report = on.deletion.run(log_start=Lsn(1), covered_lsn=Lsn(8), released=all_released(on.world))

    assert report.held_by_pins == () and len(report.deleted) == 2


def test_what_a_pin_held_goes_at_the_next_run_once_the_pin_is_gone() -> None:
    on = stage()
    made = []
    on.journal.on_intent = lambda intent: made.append(on.pins.hold(Lsn(2), lambda: 1))
    on.deletion.run(log_start=Lsn(1), covered_lsn=Lsn(8), released=all_released(on.world))
    on.journal.on_intent = lambda intent: None

    assert on.deletion.run(log_start=Lsn(9), covered_lsn=Lsn(8), released=all_released(on.world)).deleted == ()
    for pin in made:
        pin.release()
    report = on.deletion.run(log_start=Lsn(9), covered_lsn=Lsn(8), released=all_released(on.world))

    assert report.deleted == (on.names[0], on.names[1])
    assert report.plan.log_start == 9


def test_a_failing_unlink_is_counted_and_tried_again_from_the_intent() -> None:
    on = stage()
    on.files.fail(2, errno.EIO, verbs=["unlink"])  # the index goes, the segment does not

    first = on.deletion.run(log_start=Lsn(1), covered_lsn=Lsn(8), released=all_released(on.world))
    failed = on.log.counters.unlinks_failed
    second = on.deletion.run(log_start=on.journal.intents[0].log_start, covered_lsn=Lsn(8), released={})

    assert first.deleted == () and failed == 1
    assert second.deleted == (on.names[0], on.names[1])
    assert len(on.journal.intents) == 1
    assert segment_names(on.files) == on.names[2:]


def test_a_failing_unlink_is_tried_again_by_the_next_owner() -> None:
    on = stage()
    on.files.fail(1, errno.EIO, verbs=["unlink"], for_ever=True)
    on.deletion.run(log_start=Lsn(1), covered_lsn=Lsn(8), released=all_released(on.world))
    on.files.heal()
    on.log.close()

    again = on_stage(on.files, on.world, on.names)
    report = again.deletion.run(log_start=Lsn(9), covered_lsn=Lsn(8), released={})

    assert report.deleted == (on.names[0], on.names[1])
    assert again.world.verify(log_start=9).ok


def mostly_of_topic_1(world: World) -> list[str]:
    """A first segment of which topic 2 has little, topic 3 nothing but a frame, and topic 1 the rest."""
    with world.open() as log:
        fill(
            log,
            [
                [[rows(1, 9, body=b"x" * 4000)], [rows(2, 2)], [record()], [rows(3, 1)], [rows(1, 1)]],
                [[rows(2, 1)]],
            ],
        )
        return [segment.name for segment in log.segments()]


def test_one_topic_that_is_held_up_does_not_hold_the_disk() -> None:
    files, world = simulated()
    names = mostly_of_topic_1(world)
    world.clock.advance(3600)
    on = on_stage(files, world, names)
    release = released({1: 1000}, world.clock.now_us() - 3_600_000_000)

    report = on.deletion.run(log_start=Lsn(1), covered_lsn=Lsn(6), released=release)

    [done] = report.drained
    assert done.old == names[0] and done.new == names[0].replace(".0.", ".1.")
    assert (done.first_lsn, done.last_lsn) == (1, 6)
    assert done.frames_removed == 4 and done.rows_removed == 10  # the epoch, the record, two frames of topic 1
    assert done.bytes_after < done.bytes_before / 2
    assert on.journal.intents == []
    assert [(f.header.topic_number, f.header.lsn) for f in stored_in(files, f"log/{done.new}")] == [
        (0, 2), (2, 3), (0, 4), (3, 5), (0, 6),
    ]  # fmt: skip
    assert world.verify().ok


def test_a_segment_is_drained_once_a_halving() -> None:
    files, world = simulated()
    names = mostly_of_topic_1(world)
    world.clock.advance(3600)
    on = on_stage(files, world, names)
    release = released({1: 1000}, world.clock.now_us() - 3_600_000_000)

    first = on.deletion.run(log_start=Lsn(1), covered_lsn=Lsn(6), released=release)
    second = on.deletion.run(log_start=Lsn(1), covered_lsn=Lsn(6), released=release)

    assert len(first.drained) == 1 and second.drained == ()


def test_a_drain_keeps_what_is_still_within_its_grace() -> None:
    files, world = simulated()
    names = mostly_of_topic_1(world)
    world.clock.advance(3600)
    on = on_stage(files, world, names)
    release = released({1: 1000}, world.clock.now_us() - 3_600_000_000) | released({3: 1000}, world.clock.now_us())

    report = on.deletion.run(log_start=Lsn(1), covered_lsn=Lsn(6), released=release)

    [done] = report.drained
    assert 3 in {frame.header.topic_number for frame in stored_in(files, f"log/{done.new}")}


def test_a_drain_keeps_what_lies_behind_the_release_and_behind_the_cover() -> None:
    files, world = simulated()
    names = mostly_of_topic_1(world)
    on = on_stage(files, world, names)

    done = drain(on.log, names[0], released=released({1: 4, 2: 1}), covered_lsn=Lsn(3))

    kept = [(frame.header.lsn, Kind(frame.header.kind).name) for frame in stored_in(files, f"log/{done.new}")]
    # The epoch and the first rows of topic 1 are gone; the state of LSN 4 is not covered.
    assert kept == [(2, "GAP"), (3, "DATA"), (4, "METADATA"), (5, "DATA"), (6, "DATA")]


@pytest.mark.parametrize(("up_to", "kept"), [(5, [2, 4, 6]), (6, [])], ids=["rows are kept", "all may go"])
def test_a_drain_keeps_the_schemas_of_a_topic_whose_later_rows_it_keeps(up_to: int, kept: list[int]) -> None:
    files, world = simulated()
    with world.open() as log:
        schema = Draft(Kind.SCHEMA, b"columns", topic_number=1)
        fill(log, [[[schema, rows(1)], [schema, rows(1)], [rows(1)]], [[rows(2)]]])
        names = [segment.name for segment in log.segments()]

        done = drain(log, names[0], released=released({1: up_to}), covered_lsn=Lsn(1000))

    left = [frame.lsn for frame in stored_in(files, f"log/{done.new}") if frame.header.topic_number == 1]
    assert left == kept


@pytest.mark.parametrize("pinned", [1, 6])
def test_a_pin_that_comes_between_the_plan_and_the_drain_keeps_the_rows(pinned: int) -> None:
    files, world = simulated()
    names = mostly_of_topic_1(world)
    world.clock.advance(3600)
    on = on_stage(files, world, names)
    release = released({1: 1000}, world.clock.now_us() - 3_600_000_000)
    looks: list[list[PinFound]] = []
    read = on.pins.read

    def read_and_then_pin() -> list[PinFound]:
        found = read()
        if not looks:
            on.pins.hold(Lsn(pinned), lambda: 1)
        looks.append(found)
        return found

    on.pins.read = read_and_then_pin  # type: ignore[method-assign]
    report = on.deletion.run(log_start=Lsn(1), covered_lsn=Lsn(6), released=release)

    assert len(looks) == 2 and report.plan.drain == (names[0],)
    assert report.drained == ()
    assert segment_names(files) == names


def test_a_pin_behind_a_segment_does_not_keep_it_from_being_drained() -> None:
    files, world = simulated()
    names = mostly_of_topic_1(world)
    world.clock.advance(3600)
    on = on_stage(files, world, names)
    on.pins.hold(Lsn(7), lambda: 1)
    release = released({1: 1000}, world.clock.now_us() - 3_600_000_000)

    report = on.deletion.run(log_start=Lsn(1), covered_lsn=Lsn(6), released=release)

    assert len(report.drained) == 1


# Crashes ------------------------------------------------------------------------------------------


def test_a_crash_anywhere_in_a_deletion_leaves_a_log_that_opens_at_its_recorded_start(seed: int) -> None:
    chance = Random(seed)
    before: dict[int, bytes] = {}
    worlds: list[World] = []

    def prepare() -> SimulatedFiles:
        files, world = simulated(seed)
        names = three_segments(world)
        worlds.append(world)
        world.clock.advance(3600)
        before.update({f.lsn: f.data for name in names for f in stored_in(files, f"log/{name}")})
        return files

    def act(files: SimulatedFiles) -> None:
        on = on_stage(files, worlds[-1], [])
        on.deletion.run(log_start=Lsn(1), covered_lsn=Lsn(8), released=all_released(worlds[-1]))
        on.log.close()

    crashes = 0
    for number, files in crashing_at_every_call(prepare, act):
        world = worlds[-1]
        for after in (
            files.restart(),
            files.crash(chance),
            files.crash(chance, choice=Choice.NOTHING),
            files.crash(chance, choice=Choice.EVERYTHING),
        ):
            with world.open(after) as log:
                first = log.append([rows(1)])
                kept = [frame.lsn for frame in log.read(Lsn(world.log_start))]
            crashes += 1
            assert set(range(world.log_start, 11)) <= set(kept), number
            assert first.base_offsets == (11,), number
            report = world.verify(after, log_start=world.log_start)
            assert report.ok, (number, report.findings)

    assert crashes > 40


def test_no_offset_is_given_out_twice_after_everything_older_is_gone_and_the_process_is_killed(seed: int) -> None:
    files, world = simulated(seed)
    with world.open() as log:
        fill(log, [[[rows(1, 7)], [rows(2, 5, partition=3)]], [[rows(9, 1)]]])
    world.clock.advance(3600)
    on = on_stage(files, world, [])
    everything = released({1: 1000, 2: 1000}, world.clock.now_us() - 3_600_000_000)
    on.deletion.run(log_start=Lsn(1), covered_lsn=Lsn(3), released=everything)

    after = files.crash(Random(seed), choice=Choice.NOTHING)
    with world.open(after) as log:
        receipt = log.append([rows(1), rows(2, 1, partition=3), rows(9)])

    assert world.log_start == 4 and len(segment_names(after)) == 1
    assert receipt.base_offsets == (7, 5, 1)


def test_no_offset_is_given_out_twice_after_a_drain_and_a_power_loss(seed: int) -> None:
    files, world = simulated(seed)
    with world.open() as log:
        fill(log, [[[rows(1, 7)], [rows(2, 5)]], [[rows(2, 1)]]])
    log = world.open()
    first = log.segments()[0].name
    drain(log, first, released=released({1: 1000}), covered_lsn=Lsn(0))

    after = files.crash(Random(seed), choice=Choice.NOTHING)
    after.unlink("log/00000000000000000001.1.idx")
    with world.open(after) as log:
        receipt = log.append([rows(1), rows(2)])

    assert receipt.base_offsets == (7, 6)
