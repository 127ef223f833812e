"""What makes frames one log: each rule of the chain, kept and broken (G2, G3)."""

from __future__ import annotations

from dataclasses import astuple

import pytest

from headwater.frames.bodies import Gap, GapReason, pack_gap
from headwater.frames.frame import Header, Kind, NoFrame, decode_header, salt_crc
from headwater.log.chain import ChainBreak, ChainEnd, ChainWalker, seal_writes
from headwater.log.drafts import Draft
from tests.formats.segments import Laid, SegmentBuilder, frame_at, segment_header

SALTED = salt_crc(b"saltsalt")


def begun(**changes: int) -> SegmentBuilder:
    return SegmentBuilder(segment_header(**changes))


def walker_of(built: SegmentBuilder, **floors: int) -> ChainWalker:
    segment = built.segment
    return ChainWalker(ChainEnd(segment.first_lsn, built.segment_chain, segment.epoch, 0), **floors)


def step(walker: ChainWalker, built: SegmentBuilder, laid: Laid) -> ChainBreak | None:
    met = frame_at(memoryview(built.data), laid.at, built.salted)
    assert not isinstance(met, NoFrame), met
    return walker.step(met.header, met.body)


def steps(built: SegmentBuilder, **floors: int) -> list[ChainBreak | None]:
    walker = walker_of(built, **floors)
    return [step(walker, built, laid) for laid in built.laid]


# Whole writes ---------------------------------------------------------------------------------------------------------


def test_frames_that_follow_each_other_are_taken_and_each_write_alone_is_whole() -> None:
    built = begun()
    laid = [built.add(Kind.DATA, b"a"), built.add(Kind.DATA, b"b")]
    walker = walker_of(built)

    found = [step(walker, built, each) for each in laid]

    assert found == [None, None]
    assert astuple(walker.whole_end) == (3, built.chain, 1, built.time_us)
    assert (walker.next_lsn, walker.chain, walker.append_time_us) == (3, built.chain, built.time_us)


def test_a_write_of_several_frames_is_whole_only_with_its_last() -> None:
    built = begun()
    laid = [built.add(Kind.DATA, b"a", write_index=number, write_count=3) for number in range(3)]
    walker = walker_of(built)

    ends = []
    for each in laid:
        assert step(walker, built, each) is None
        ends.append(walker.whole_end.next_lsn)

    assert ends == [1, 1, 4]


def test_the_time_of_a_chain_never_falls_even_if_that_of_a_frame_does() -> None:
    built = begun()
    built.add(Kind.DATA, b"a", append_time_us=2_000)
    built.add(Kind.DATA, b"b", append_time_us=1_000)
    walker = walker_of(built)

    for each in built.laid:
        step(walker, built, each)

    assert walker.whole_end.append_time_us == 2_000


# Breaks ---------------------------------------------------------------------------------------------------------------


def test_a_frame_that_does_not_name_the_one_before_breaks_the_chain() -> None:
    built = begun()
    built.add(Kind.DATA, b"a")
    built.chain ^= 1
    built.add(Kind.DATA, b"b")

    found = steps(built)

    assert found == [None, ChainBreak.PREV]


def test_a_frame_whose_lsn_does_not_follow_breaks_the_chain() -> None:
    built = begun()
    built.add(Kind.DATA, b"a")
    built.add(Kind.DATA, b"b", lsn=3)

    found = steps(built)

    assert found == [None, ChainBreak.LSN]


def test_a_frame_of_a_lower_epoch_than_one_before_it_breaks_the_chain() -> None:
    built = begun()
    built.add(Kind.DATA, b"a", epoch=5)
    built.add(Kind.DATA, b"b", epoch=4)

    found = steps(built)

    assert found == [None, ChainBreak.EPOCH]


def test_behind_the_floor_of_the_mark_a_frame_of_an_earlier_epoch_is_stale() -> None:
    built = begun()
    built.add(Kind.DATA, b"a")
    built.add(Kind.DATA, b"b")

    assert steps(built, floor_epoch=2, floor_after_lsn=2) == [None, None]
    assert steps(built, floor_epoch=2, floor_after_lsn=1) == [None, ChainBreak.EPOCH]
    assert steps(built, floor_epoch=1, floor_after_lsn=1) == [None, None]


def test_a_segment_header_inside_a_segment_breaks_the_chain() -> None:
    built = begun()
    built.add(Kind.DATA, b"a")
    laid = built.laid[0]
    walker = walker_of(built)
    step(walker, built, laid)
    met = frame_at(memoryview(built.data), laid.at, built.salted)
    assert not isinstance(met, NoFrame)

    found = walker.step(met.header._replace(kind=Kind.SEGMENT, lsn=2, prev=walker.chain), met.body)

    assert found is ChainBreak.HEADER


@pytest.mark.parametrize(
    ("index", "count"), [(1, 2), (2, 4), (0, 3), (0, 1)], ids=["shorter", "longer", "begins anew", "alone"]
)
def test_a_frame_of_another_write_inside_an_open_one_breaks_the_chain(index: int, count: int) -> None:
    built = begun()
    built.add(Kind.DATA, b"a", write_index=0, write_count=3)
    built.add(Kind.DATA, b"b", write_index=index, write_count=count)

    found = steps(built)

    assert found == [None, ChainBreak.WRITE]


def test_a_write_that_begins_in_its_middle_breaks_the_chain() -> None:
    built = begun()
    built.add(Kind.DATA, b"a", write_index=1, write_count=2)

    found = steps(built)

    assert found == [ChainBreak.WRITE]


# Gaps -----------------------------------------------------------------------------------------------------------------


def gap(first: int, last: int, chain: int = 7) -> Gap:
    return Gap(first, last, last - first + 1, GapReason.DRAINED, chain)


def test_a_gap_hands_on_the_chain_value_and_the_lsn_of_what_it_stands_for() -> None:
    built = begun()
    built.add_gap(gap(1, 9))
    built.add(Kind.DATA, b"a")
    walker = walker_of(built)

    found = [step(walker, built, each) for each in built.laid]

    assert found == [None, None]
    assert built.laid[1].facts["prev"] == 7
    assert walker.whole_end.next_lsn == 11


@pytest.mark.parametrize(("first", "last"), [(2, 9), (0, 9)], ids=["leaves one out", "covers one that is there"])
def test_a_gap_that_does_not_begin_right_after_the_frame_before_breaks_the_chain(first: int, last: int) -> None:
    built = begun()
    built.add_gap(gap(first, last))

    found = steps(built)

    assert found == [ChainBreak.GAP]


def test_a_gap_whose_own_lsn_is_not_the_last_it_stands_for_breaks_the_chain() -> None:
    built = begun()
    body = pack_gap(gap(1, 9))
    built.add(Kind.GAP, body[:-8], replaces=7, lsn=8)

    found = steps(built)

    assert found == [ChainBreak.GAP]


def test_a_gap_that_ends_before_it_begins_breaks_the_chain() -> None:
    built = begun(first_lsn=5)
    built.add(Kind.GAP, pack_gap(gap(5, 4))[:-8], replaces=7, lsn=4)

    found = steps(built)

    assert found == [ChainBreak.GAP]


def test_a_gap_with_a_body_of_another_size_breaks_the_chain() -> None:
    built = begun()
    built.add(Kind.GAP, bytes(40), replaces=7, lsn=1)

    found = steps(built)

    assert found == [ChainBreak.GAP]


def test_the_beginning_of_a_write_may_lie_in_the_gap_right_before_and_not_further_back() -> None:
    inside = begun()
    inside.add_gap(gap(1, 2))
    inside.add(Kind.DATA, b"a", write_index=1, write_count=2)
    before = begun(first_lsn=2)
    before.add_gap(gap(2, 3))
    before.add(Kind.DATA, b"a", write_index=3, write_count=4)

    assert steps(inside) == [None, None]
    assert steps(before) == [None, ChainBreak.WRITE]


def test_gaps_that_follow_each_other_count_as_one() -> None:
    built = begun()
    built.add_gap(gap(1, 1))
    built.add_gap(gap(2, 2))
    built.add(Kind.DATA, b"a", write_index=2, write_count=3)

    found = steps(built)

    assert found == [None, None, None]


def test_a_gap_does_not_excuse_a_write_that_begins_in_its_middle_later_on() -> None:
    built = begun()
    built.add_gap(gap(1, 1))
    built.add(Kind.DATA, b"a")
    built.add(Kind.DATA, b"b", write_index=2, write_count=3)

    found = steps(built)

    assert found == [None, None, ChainBreak.WRITE]


def test_a_write_whose_last_frames_are_in_a_gap_is_whole_with_the_gap() -> None:
    built = begun()
    built.add(Kind.DATA, b"a", write_index=0, write_count=3)
    built.add_gap(gap(2, 3))
    walker = walker_of(built)

    ends = []
    for each in built.laid:
        assert step(walker, built, each) is None
        ends.append(walker.whole_end.next_lsn)

    assert ends == [1, 4]


def test_a_gap_inside_a_write_leaves_it_open_until_its_last_frame() -> None:
    built = begun()
    built.add(Kind.DATA, b"a", write_index=0, write_count=4)
    built.add_gap(gap(2, 2))
    built.add(Kind.DATA, b"b", write_index=2, write_count=4)
    built.add(Kind.DATA, b"c", write_index=3, write_count=4)
    walker = walker_of(built)

    ends = []
    for each in built.laid:
        assert step(walker, built, each) is None
        ends.append(walker.whole_end.next_lsn)

    assert ends == [1, 1, 1, 5]


# Sealing --------------------------------------------------------------------------------------------------------------


def sealed_headers(data: bytes) -> list[Header]:
    found = []
    at = 0
    while at < len(data):
        header = decode_header(memoryview(data), at, SALTED)
        assert isinstance(header, Header)
        found.append(header)
        at += header.frame_size
    return found


def test_sealed_writes_continue_the_chain_and_are_numbered_within_each_write() -> None:
    end = ChainEnd(10, 0xABC, 3, 500)
    first = [Draft(Kind.DATA, b"x" * 130, topic_number=2, partition=7, row_count=3), Draft(Kind.SCHEMA, b"")]
    second = [Draft(Kind.DATA, bytes(128), topic_number=2, partition=7, row_count=1)]

    sealed = seal_writes([(first, [40, 0]), (second, [43])], end, SALTED, durable_lsn=9, epoch=4, append_time_us=600)

    data = b"".join(bytes(buffer) for buffer in sealed.buffers)
    found = sealed_headers(data)
    assert sealed.size == len(data) == 384 + 128 + 256
    assert [(h.lsn, h.write_index, h.write_count) for h in found] == [(10, 0, 2), (11, 1, 2), (12, 0, 1)]
    assert [(h.base_offset, h.row_count, h.offset_count) for h in found] == [(40, 3, 3), (0, 0, 0), (43, 1, 1)]
    assert {(h.durable_lsn, h.epoch, h.append_time_us) for h in found} == {(9, 4, 600)}
    assert [at for at, _, _ in sealed.frames] == [0, 384, 512]
    assert [base for _, _, base in sealed.frames] == [40, 0, 43]
    walker = ChainWalker(end)
    for header in found:
        assert walker.step(header, memoryview(b"")) is None
    assert astuple(sealed.end) == astuple(walker.whole_end) == (13, walker.chain, 4, 600)


def test_the_times_of_a_frame_are_its_drafts_or_the_append_time() -> None:
    drafts = [Draft(Kind.DATA, b""), Draft(Kind.DATA, b"", time_min_us=-5, time_max_us=70)]

    sealed = seal_writes([(drafts, [0, 0])], ChainEnd(1, 0, 1, 0), SALTED, durable_lsn=0, epoch=1, append_time_us=600)

    found = sealed_headers(b"".join(bytes(buffer) for buffer in sealed.buffers))
    assert [(h.time_min_us, h.time_max_us) for h in found] == [(600, 600), (-5, 70)]
