"""A sealed segment made again without some of its frames: what stays the same, what a gap says, what a crash leaves."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from random import Random

import pytest

from headwater.errors import DamagedLog, Forgotten, InvalidRequest, OutcomeUnknown, Unavailable
from headwater.frames.bodies import Gap, GapReason, unpack_gap
from headwater.frames.frame import Codec, Flag, Header, Kind, chain_value, payload
from headwater.ids import Lsn
from headwater.log import Draft, FrameLog
from headwater.log.rewrite import KEEP, REMOVE, Decide, Rewritten, Sparse, rewrite_segment
from headwater.storage.simulated import Choice, SimulatedFiles
from tests.unit.log.small_logs import (
    HandMade,
    Stored,
    World,
    crashing_at_every_call,
    fill,
    record,
    rows,
    segment_names,
    simulated,
    snapshot,
    spoil,
    stored,
    stored_in,
    three_segments,
)


def without(*lsns: int) -> Decide:
    """Keep all but these."""
    return lambda header, body: REMOVE if header.lsn in lsns else KEEP


def gaps_in(frames: list[Stored]) -> list[Gap]:
    found = [unpack_gap(frame.body) for frame in frames if frame.header.kind == Kind.GAP]
    return [gap for gap in found if gap is not None]


def one_sealed(world: World, writes: list[list[Draft]] | None = None) -> tuple[FrameLog, str]:
    """An open log whose first segment is sealed: the epoch is LSN 1, the writes follow."""
    log = world.open()
    fill(log, [writes if writes is not None else [[rows(topic, 2)] for topic in (1, 2, 1, 3, 1, 2)], [[rows(9)]]])
    return log, log.segments()[0].name


def rewritten(log: FrameLog, name: str, *lsns: int, reason: GapReason = GapReason.DRAINED) -> Rewritten:
    return rewrite_segment(log, name, without(*lsns), reason=reason)


def test_kept_frames_are_copied_byte_for_byte() -> None:
    files, world = simulated()
    log, name = one_sealed(world)
    before = {frame.lsn: frame.data for frame in stored_in(files, f"log/{name}")}

    done = rewritten(log, name, 2, 5)

    after = stored_in(files, f"log/{done.new}")
    assert [frame.lsn for frame in after] == [1, 2, 3, 4, 5, 6, 7]
    assert [gap.next_offsets for gap in gaps_in(after)] == [((1, 0, 2),), ((3, 0, 2),)]
    assert {frame.lsn: frame.data for frame in after if frame.header.kind != Kind.GAP} == {
        lsn: data for lsn, data in before.items() if lsn not in (2, 5)
    }
    assert world.verify().ok


def test_a_rewrite_says_what_it_did() -> None:
    files, world = simulated()
    log, name = one_sealed(world, [[rows(1, 5, body=b"x" * 1000)], [rows(2, 3)]])
    size = len(files.contents(f"log/{name}"))

    done = rewritten(log, name, 2)

    assert done == Rewritten(
        old="00000000000000000001.0.seg",
        new="00000000000000000001.1.seg",
        first_lsn=Lsn(1),
        last_lsn=Lsn(3),
        frames_removed=1,
        rows_removed=5,
        bytes_before=size,
        bytes_after=len(files.contents("log/00000000000000000001.1.seg")),
    )
    assert done.bytes_after < done.bytes_before
    assert log.counters.segments_rewritten == 1
    assert name not in files.list("log") and name.replace("seg", "idx") not in files.list("log")


def test_a_run_of_removed_frames_is_one_gap_that_carries_the_chain_and_the_offsets() -> None:
    files, world = simulated()
    log, name = one_sealed(world)
    before = stored_in(files, f"log/{name}")

    done = rewritten(log, name, 2, 3, 4)

    after = stored_in(files, f"log/{done.new}")
    [gap] = gaps_in(after)
    last = before[3]
    assert gap == Gap(2, 4, 3, GapReason.DRAINED, chain_value(last.header, last.body), ((1, 0, 4), (2, 0, 2)))
    assert after[1].header.lsn == 4 and after[1].header.flags == Flag.REWRITTEN
    assert after[2].header.prev == gap.chain


def test_removing_everything_leaves_the_header_and_one_gap() -> None:
    files, world = simulated()
    log, name = one_sealed(world)

    done = rewritten(log, name, *range(1, 8))

    [frame] = stored_in(files, f"log/{done.new}")
    assert gaps_in([frame])[0].first_lsn == 1 and frame.lsn == 7
    assert [f.lsn for f in log.read()] == [7, 8]
    assert world.verify().ok


def test_a_gap_grows_when_what_is_beside_it_is_removed_for_the_same_reason() -> None:
    files, world = simulated()
    log, name = one_sealed(world)

    first = rewritten(log, name, 3)
    second = rewritten(log, first.new, 2, 4)

    [gap] = gaps_in(stored_in(files, f"log/{second.new}"))
    assert second.new == "00000000000000000001.2.seg"
    assert (gap.first_lsn, gap.last_lsn, gap.frames) == (2, 4, 3)
    assert gap.next_offsets == ((1, 0, 4), (2, 0, 2))
    assert segment_names(files)[0] == second.new
    assert world.verify().ok


def test_gaps_of_different_reasons_stay_apart() -> None:
    files, world = simulated()
    log, name = one_sealed(world)

    first = rewritten(log, name, 3, reason=GapReason.DRAINED)
    second = rewritten(log, first.new, 2, 4, 5, reason=GapReason.ERASED)

    gaps = gaps_in(stored_in(files, f"log/{second.new}"))
    assert [(gap.first_lsn, gap.last_lsn, gap.reason) for gap in gaps] == [
        (2, 2, GapReason.ERASED),
        (3, 3, GapReason.DRAINED),
        (4, 5, GapReason.ERASED),
    ]
    assert world.verify().ok


def test_removing_nothing_makes_an_equal_generation() -> None:
    files, world = simulated()
    log, name = one_sealed(world)
    before = [frame.data for frame in stored_in(files, f"log/{name}")]

    done = rewrite_segment(log, name, lambda header, body: KEEP, reason=GapReason.DRAINED)

    assert [frame.data for frame in stored_in(files, f"log/{done.new}")] == before
    assert done.frames_removed == 0 and world.verify().ok


# Sparse frames ------------------------------------------------------------------------------------


def thinned(body: bytes, row_count: int, codec: int = Codec.NONE) -> Decide:
    return lambda header, _: Sparse(body, row_count, codec) if header.kind in (Kind.DATA, Kind.SPARSE) else KEEP


def test_a_frame_that_loses_rows_is_sparse_and_keeps_its_place_its_offsets_and_its_chain_value() -> None:
    files, world = simulated()
    log, name = one_sealed(world, [[rows(1, 4)], [rows(1, 3)]])
    before = {frame.lsn: frame for frame in stored_in(files, f"log/{name}")}

    done = rewrite_segment(
        log,
        name,
        lambda header, body: Sparse(b"two of four", 2) if header.lsn == 2 else KEEP,
        reason=GapReason.COMPACTED,
    )

    frames = stored_in(files, f"log/{done.new}")
    sparse = frames[1]
    assert done.rows_removed == 2 and done.frames_removed == 0
    assert sparse.header.kind == Kind.SPARSE and sparse.header.flags == Flag.REWRITTEN
    assert (sparse.header.base_offset, sparse.header.row_count, sparse.header.offset_count) == (0, 2, 4)
    assert bytes(payload(sparse.header, memoryview(sparse.body))) == b"two of four"
    assert chain_value(sparse.header, sparse.body) == chain_value(before[2].header, before[2].body)
    assert sparse.header.append_time_us == before[2].header.append_time_us
    assert frames[2].data == before[3].data
    assert world.verify().ok
    found = log.find(1, 0, 3)
    assert found is not None and found.lsn == 2


def test_a_sparse_frame_can_lose_more_rows() -> None:
    files, world = simulated()
    log, name = one_sealed(world, [[rows(1, 4)]])

    first = rewrite_segment(log, name, thinned(b"three", 3), reason=GapReason.COMPACTED)
    second = rewrite_segment(log, first.new, thinned(b"", 0, Codec.ZSTD), reason=GapReason.COMPACTED)

    sparse = stored_in(files, f"log/{second.new}")[1]
    assert (sparse.header.row_count, sparse.header.offset_count) == (0, 4)
    assert sparse.header.codec == Codec.ZSTD
    assert first.rows_removed == 1 and second.rows_removed == 3
    assert world.verify().ok


def test_a_gap_before_a_sparse_frame_is_written_first() -> None:
    files, world = simulated()
    log, name = one_sealed(world, [[rows(1, 1)], [rows(2, 4)]])

    done = rewrite_segment(
        log,
        name,
        lambda header, body: Sparse(b"one", 1) if header.topic_number == 2 else header.kind == Kind.EPOCH,
        reason=GapReason.COMPACTED,
    )

    kinds = [frame.header.kind for frame in stored_in(files, f"log/{done.new}")]
    assert kinds == [Kind.EPOCH, Kind.GAP, Kind.SPARSE]
    assert world.verify().ok


@pytest.mark.parametrize(
    ("draft", "sparse"),
    [
        (rows(1, 2), Sparse(b"more rows than it had", 3)),
        (rows(1, 2), Sparse(b"fewer than none", -1)),
        (rows(1, 2), Sparse(bytes(64 << 20), 1)),
        (record(), Sparse(b"no data frame", 0)),
    ],
    ids=["more rows", "negative", "too large", "no data"],
)
def test_what_is_no_sparse_form_of_the_frame_is_refused_and_nothing_changes(draft: Draft, sparse: Sparse) -> None:
    files, world = simulated()
    log, name = one_sealed(world, [[draft]])
    before = snapshot(files)

    with pytest.raises(InvalidRequest, match="not a sparse form"):
        rewrite_segment(log, name, lambda header, body: sparse if header.lsn == 2 else KEEP, reason=GapReason.COMPACTED)

    assert snapshot(files) == before


# Whole writes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("removed", [(2,), (3,), (4,), (2, 3), (3, 4), (2, 4), (2, 3, 4), (1, 2, 3), (4, 5), (1, 3, 5)])
def test_a_write_is_whole_if_frames_and_gaps_together_cover_it(removed: tuple[int, ...]) -> None:
    _, world = simulated()
    log, name = one_sealed(world, [[rows(1), rows(2), rows(3)], [rows(4)]])

    rewritten(log, name, *removed)
    log.close()

    assert world.verify().ok
    with world.open() as again:
        assert again.append([rows(1)]).first_lsn == 8  # the epoch of this life is 7


# Reading over gaps --------------------------------------------------------------------------------


def test_reading_and_finding_pass_over_gaps() -> None:
    _, world = simulated()
    log, name = one_sealed(world)  # topic 1 has offsets 0-1 at LSN 2, 2-3 at LSN 4, 4-5 at LSN 6
    times = {int(frame.lsn): frame.header.append_time_us for frame in log.read()}

    rewritten(log, name, 2, 4)

    assert [(frame.lsn, Kind(frame.header.kind).name) for frame in log.read(Lsn(2), Lsn(5))] == [
        (2, "GAP"), (3, "DATA"), (4, "GAP"), (5, "DATA"),
    ]  # fmt: skip
    assert [frame.lsn for frame in log.read_partition(1, 0, 0)] == [6]
    assert [getattr(log.find(1, 0, offset), "lsn", None) for offset in (0, 3, 4, 5, 6)] == [6, 6, 6, 6, None]
    assert log.find_time(times[4]) == 4 and log.find_time(times[5]) == 5


def test_a_read_that_begins_inside_a_gap_begins_with_the_gap() -> None:
    _, world = simulated()
    log, name = one_sealed(world)

    rewritten(log, name, 3, 4, 5)

    assert [frame.lsn for frame in log.read(Lsn(4))] == [5, 6, 7, 8]


def test_a_reader_of_the_replaced_file_goes_on_with_it() -> None:
    _, world = simulated()
    log, name = one_sealed(world)
    reader = log.read()
    read = [next(reader).lsn]

    rewritten(log, name, *range(1, 8))
    read += [frame.lsn for frame in reader]

    assert read == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_reader_in_another_process_that_comes_too_late_plans_again() -> None:
    files, world = simulated()
    log, name = one_sealed(world)
    other = world.open(files)

    rewritten(log, name, 2, 3)

    assert [frame.lsn for frame in other.read()] == [1, 3, 4, 5, 6, 7, 8]


def test_what_a_rewritten_segment_holds_is_found_after_opening_again() -> None:
    _, world = simulated()
    log, name = one_sealed(world)
    done = rewritten(log, name, 2, 3)
    expected = [(frame.lsn, bytes(frame.body)) for frame in log.read()]
    log.close()

    with world.open() as again:
        assert [(frame.lsn, bytes(frame.body)) for frame in again.read()] == expected
        assert again.segments()[0].name == done.new and again.segments()[0].generation == 1
        assert again.append([rows(1), rows(2), rows(3)]).base_offsets == (6, 4, 2)


# Refusals -----------------------------------------------------------------------------------------


def test_the_segment_that_is_being_written_is_not_rewritten() -> None:
    _, world = simulated()
    log, _ = one_sealed(world)

    with pytest.raises(InvalidRequest, match="roll first"):
        rewritten(log, log.segments()[-1].name, 8)


def test_a_segment_that_was_replaced_is_not_rewritten_by_its_old_name() -> None:
    _, world = simulated()
    log, name = one_sealed(world)
    rewritten(log, name, 2)

    with pytest.raises(Forgotten, match="plan again"):
        rewritten(log, name, 3)


def test_a_log_that_was_only_opened_is_claimed_by_a_rewrite() -> None:
    _, world = simulated()
    names = three_segments(world)
    log = world.open()

    done = rewritten(log, names[0], 2)

    assert done.frames_removed == 1 and log.recovery_report.owner


def test_a_segment_that_was_forgotten_while_it_was_being_rewritten_stays_forgotten() -> None:
    files, world = simulated()
    names = three_segments(world)
    log = world.open()
    log.claim()

    def forget_meanwhile(header: Header, body: memoryview) -> bool:
        if header.lsn == 1:
            log.exclusively(lambda: log.device.forget(Lsn(5)))
        return KEEP

    with pytest.raises(Forgotten):
        rewrite_segment(log, names[0], forget_meanwhile, reason=GapReason.DRAINED)

    assert not [name for name in files.list("log") if name.startswith("00000000000000000001.")]


def test_a_segment_with_damage_is_not_rewritten() -> None:
    files, world = simulated()
    names = three_segments(world)
    log = world.open()
    log.claim()
    spoil(files, f"log/{names[0]}", stored_in(files, f"log/{names[0]}")[2], body=True)
    before = snapshot(files)

    with pytest.raises(DamagedLog, match="body does not match"):
        rewritten(log, names[0], 2)

    assert snapshot(files) == before


def test_a_segment_whose_chain_is_broken_is_not_rewritten() -> None:
    files, world = simulated()
    HandMade().write().write(rows(1)).put(files).next().put(files)
    broken = HandMade().write().write(rows(1), chain=12345)
    log = world.open()
    log.claim()
    files.put(f"log/{broken.name}", broken.data)

    with pytest.raises(DamagedLog, match="does not name the frame before"):
        rewritten(log, broken.name, 1)


def test_what_the_hook_raises_gives_the_rewrite_up_cleanly() -> None:
    files, world = simulated()
    log, name = one_sealed(world)
    before = snapshot(files)

    def fail(header: Header, body: memoryview) -> bool:
        if header.lsn == 4:
            raise KeyError("a bug in a hook")
        return REMOVE

    with pytest.raises(KeyError):
        rewrite_segment(log, name, fail, reason=GapReason.COMPACTED)

    assert snapshot(files) == before
    assert rewritten(log, name, 4).frames_removed == 1


# Faults -------------------------------------------------------------------------------------------


def without_left_overs(files: SimulatedFiles) -> dict[str, bytes]:
    """Every file but the new generation's index: one without its segment is removed by the next owner."""
    return {name: data for name, data in snapshot(files).items() if ".1.idx" not in name}


def test_a_full_disk_gives_the_rewrite_up_cleanly_wherever_it_is_met() -> None:
    files, world = simulated()
    log, name = one_sealed(world)
    before = snapshot(files)
    used = sum(len(data) for data in before.values())
    refused = 0

    for room in range(0, 4096, 128):
        files.capacity_bytes = used + room
        try:
            rewritten(log, name, 2)
            break
        except Unavailable:
            refused += 1
        assert without_left_overs(files) == before
        assert [frame.lsn for frame in log.read()] == list(range(1, 9))
    files.capacity_bytes = None

    assert refused > 10 and log.counters.io_errors == refused
    assert log.counters.segments_rewritten == 1
    assert world.verify().ok


@pytest.mark.parametrize("verb", ["create", "append", "sync_all", "sync_data", "rename", "sync_directory", "read_into"])
def test_a_rewrite_that_meets_an_error_leaves_the_segment_as_it_was(verb: str) -> None:
    files, world = simulated()
    log, name = one_sealed(world)
    before = snapshot(files)

    files.fail(1, errno.EIO, verbs=[verb])
    with pytest.raises(Unavailable, match="is as it was"):
        rewritten(log, name, 2)

    assert without_left_overs(files) == before
    assert log.append([rows(1)]).first_lsn == 9
    assert rewritten(log, name, 2).frames_removed == 1
    log.close()
    assert world.verify().ok


def test_a_failing_sync_behind_the_unlink_of_the_old_generation_poisons_but_loses_nothing(seed: int) -> None:
    files, world = simulated(seed)
    log, name = one_sealed(world)

    # The first directory syncs are the new names', the index's and the segment's; the next one follows the unlink of
    # the old index.
    files.fail(3, errno.EIO, verbs=["sync_directory"])
    with pytest.raises(OutcomeUnknown):
        rewritten(log, name, 2)

    with world.open(files.crash(Random(seed))) as again:
        assert [frame.lsn for frame in again.read(Lsn(1), Lsn(8))][2:] == [3, 4, 5, 6, 7, 8]


def test_a_crash_at_any_call_of_a_rewrite_leaves_the_old_or_the_new_segment(seed: int) -> None:
    chance = Random(seed)
    whole, world = simulated(seed)
    removed = (2, 3, 5)
    log, _ = one_sealed(world)
    log.close()
    old = {lsn: frame.data for lsn, frame in stored(whole).items()}

    def act(files: SimulatedFiles) -> None:
        log = world.open(files)
        rewritten(log, log.segments()[0].name, *removed)
        log.close()

    def states(files: SimulatedFiles) -> Iterator[SimulatedFiles]:
        yield files.restart()
        yield from files.crash_states(chance, 6)

    seen = set()
    for number, files in crashing_at_every_call(whole.restart, act):
        for after in states(files):
            with world.open(after) as log:
                generation = log.segments()[0].generation
                log.append([rows(1)])
            seen.add(generation)
            frames = stored(after)
            for lsn in range(1, 9):
                kept = lsn not in removed or generation == 0
                assert (lsn in frames and frames[lsn].data == old[lsn]) == kept, (number, lsn)
            report = world.verify(after)
            assert report.ok and not [note for note in report.notes if note.name == "LeftOver"], (number, report)

    assert seen == {0, 1}


def test_a_generation_without_a_valid_header_does_not_win_over_the_one_before() -> None:
    files, world = simulated()
    log, _ = one_sealed(world)
    log.close()
    files.put("log/00000000000000000001.1.seg", b"rot" * 200)

    with world.open() as again:
        assert [frame.lsn for frame in again.read()] == list(range(1, 9))
        assert again.segments()[0].generation == 0


@pytest.mark.parametrize("nth", [1, 2])
def test_nothing_survives_of_a_new_generation_whose_name_could_not_be_synced(nth: int, seed: int) -> None:
    files, world = simulated(seed)
    log, name = one_sealed(world)

    files.fail(nth, errno.EIO, verbs=["sync_directory"])
    with pytest.raises(Unavailable):
        rewritten(log, name, 2)

    assert segment_names(files) == [name, log.segments()[-1].name]
    with world.open(files.crash(Random(seed), choice=Choice.EVERYTHING)) as again:
        assert [frame.lsn for frame in again.read(Lsn(1), Lsn(8))] == list(range(1, 9))


def test_a_new_generation_that_can_neither_be_synced_nor_unlinked_keeps_its_index(seed: int) -> None:
    files, world = simulated(seed)
    log, name = one_sealed(world)

    files.fail(2, errno.EIO, verbs=["sync_directory"])
    files.fail(1, errno.EIO, verbs=["unlink"])
    with pytest.raises(Unavailable):
        rewritten(log, name, 2)

    assert [frame.lsn for frame in log.read(Lsn(1), Lsn(8))] == list(range(1, 9))
    left = [each for each in files.list("log") if ".1." in each]
    assert [each.rpartition(".")[2] for each in left] == ["idx", "seg"]
    with world.open(files.crash(Random(seed), choice=Choice.EVERYTHING)) as again:
        assert again.claim().indexes_rebuilt == []
        assert [frame.lsn for frame in again.read(Lsn(3), Lsn(8))] == list(range(3, 9))


def test_a_drain_makes_one_gap_of_what_a_compaction_had_left_gaps_for() -> None:
    files, world = simulated()
    log, name = one_sealed(world)

    compacted = rewritten(log, name, 2, 4, reason=GapReason.COMPACTED)
    drained = rewritten(log, compacted.new, 3)

    gaps = gaps_in(stored_in(files, f"log/{drained.new}"))
    assert [(gap.first_lsn, gap.last_lsn, gap.frames, gap.reason) for gap in gaps] == [(2, 4, 3, GapReason.DRAINED)]
    assert drained.frames_removed == 1 and world.verify().ok


def test_a_compaction_leaves_the_gaps_of_a_drain_as_they_are() -> None:
    files, world = simulated()
    log, name = one_sealed(world)

    drained = rewritten(log, name, 2)
    compacted = rewritten(log, drained.new, 3, reason=GapReason.COMPACTED)

    gaps = gaps_in(stored_in(files, f"log/{compacted.new}"))
    assert [(gap.last_lsn, gap.reason) for gap in gaps] == [(2, GapReason.DRAINED), (3, GapReason.COMPACTED)]
