"""A walk that goes on behind damage: where it breaks, where it goes on, and what it does not take for a beginning."""

from __future__ import annotations

from headwater.frames.bodies import Gap, GapReason, pack_gap
from headwater.frames.frame import Flag, Kind, NoFrame, body_crc, seal_header
from headwater.log import Draft
from headwater.log.chain import ChainBreak
from headwater.log.mark import Mark
from headwater.log.salvage import Broken, Salvage
from headwater.storage.simulated import SimulatedFiles
from tests.unit.log.small_logs import HandMade, Stored, record, rows, stored_in


def walked(made: HandMade, damage: dict[int, bytes] | None = None, mark: Mark | None = None) -> list[int | Broken]:
    """The LSNs and the breaks of a segment, overwritten at these positions."""
    return [each if isinstance(each, Broken) else each[1].lsn for each in salvage(made, damage, mark)]


def salvage(made: HandMade, damage: dict[int, bytes] | None = None, mark: Mark | None = None) -> Salvage:
    data = bytearray(made.data)
    for position, junk in (damage or {}).items():
        data[position : position + len(junk)] = junk
    files = SimulatedFiles()
    files.put("log/segment", bytes(data))
    return Salvage(files.open("log/segment"), made.opening, len(data), chunk_bytes=4096, mark=mark)


def frames_of(made: HandMade) -> dict[int, Stored]:
    files = SimulatedFiles()
    made.put(files)
    return {frame.lsn: frame for frame in stored_in(files, f"log/{made.name}")}


def gap_frame(made: HandMade, body: bytes, *, lsn: int, prev: int | None = None) -> None:
    """Add a GAP with this body."""
    header, _ = seal_header(
        made.opening.salted, body_crc(body), Kind.GAP, 0, Flag.REWRITTEN, len(body), lsn,
        made.end.chain if prev is None else prev, 0, made.end.epoch, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        made.end.append_time_us, 0, 0,
    )  # fmt: skip
    made.data += header + body + bytes(-len(body) % 128)
    made.end.next_lsn = lsn + 1
    made.end.chain = int.from_bytes(body[-8:], "little")


def five(count: int = 5) -> HandMade:
    made = HandMade()
    for number in range(count):
        made.write(rows(1, body=b"row %d" % number * 40))
    return made


def test_a_healthy_segment_has_no_break() -> None:
    made = five()

    walk = salvage(made)

    assert [each[1].lsn for each in walk if not isinstance(each, Broken)] == [1, 2, 3, 4, 5]
    assert walk.end.next_lsn == 6 and walk.end.chain == made.end.chain


def test_an_empty_segment_has_no_break() -> None:
    assert walked(HandMade()) == []


def test_behind_a_damaged_frame_it_goes_on_with_the_next_write() -> None:
    made = five()
    third = frames_of(made)[3]

    walk = walked(made, {third.position: b"junk"})

    [broken] = [each for each in walk if isinstance(each, Broken)]
    assert walk == [1, 2, broken, 4, 5]
    assert broken.position == third.position and broken.why is NoFrame.MAGIC
    assert broken.end.next_lsn == 3 and broken.lost_to == 3
    assert broken.resume is not None and broken.resume.chain == frames_of(made)[4].header.prev
    assert broken.durable_lsn == 4


def test_one_break_does_not_hide_the_next() -> None:
    made = five()
    frames = frames_of(made)

    walk = walked(made, {frames[2].position: b"junk", frames[4].position + 130: b"junk"})

    breaks = [each for each in walk if isinstance(each, Broken)]
    assert walk == [1, breaks[0], 3, breaks[1], 5]
    assert [(each.why, each.lost_to) for each in breaks] == [(NoFrame.MAGIC, 2), (NoFrame.BODY_CRC, 4)]


def test_two_damaged_frames_side_by_side_are_two_breaks() -> None:
    made = five()
    frames = frames_of(made)

    walk = walked(made, {frames[2].position + 130: b"junk", frames[3].position + 130: b"junk"})

    breaks = [each for each in walk if isinstance(each, Broken)]
    assert walk == [1, *breaks, 4, 5]
    assert [(each.end.next_lsn, each.lost_to) for each in breaks] == [(2, 2), (3, 3)]


def test_damage_at_the_very_end_has_nothing_to_go_on_with() -> None:
    made = five()
    last = frames_of(made)[5]

    walk = salvage(made, {last.position: b"junk"})
    [broken] = [each for each in walk if isinstance(each, Broken)]

    assert broken.resume is None and broken.lost_to is None
    assert broken.durable_lsn == 0
    assert walk.end.next_lsn == 5


def test_a_write_that_lost_its_middle_is_lost_whole() -> None:
    made = HandMade().write(record()).write(rows(1), rows(2), rows(3)).write(record())
    frames = frames_of(made)

    walk = walked(made, {frames[3].position: b"junk"})

    [broken] = [each for each in walk if isinstance(each, Broken)]
    assert walk == [1, 2, broken, 5]  # frame 4 is valid, and belongs to a write that is not whole
    assert broken.end.next_lsn == 2 and broken.lost_to == 4


def test_a_write_that_is_cut_off_by_the_end_of_the_file_is_a_break() -> None:
    made = HandMade().write(record()).write(rows(1), rows(2))
    frames = frames_of(made)
    made.data = made.data[: frames[3].position]

    walk = salvage(made)
    [broken] = [each for each in walk if isinstance(each, Broken)]

    assert broken.why is ChainBreak.WRITE and broken.position == len(made.data)
    assert walk.end.next_lsn == 2


def test_a_frame_of_another_history_is_a_break_of_the_chain() -> None:
    made = HandMade().write().write(chain=99).write()

    [one, broken, three] = walked(made)

    assert (one, three) == (1, 3)
    assert isinstance(broken, Broken) and broken.why is ChainBreak.PREV


def test_a_frame_of_an_earlier_life_is_stale_and_not_gone_on_with() -> None:
    made = HandMade(epoch=5).write().write(epoch=4, chain=HandMade(epoch=5).write().end.chain).write(epoch=3)

    [one, broken] = walked(made)

    assert one == 1
    assert isinstance(broken, Broken) and broken.why is ChainBreak.EPOCH and broken.resume is None


def test_what_lies_behind_the_mark_must_be_of_its_epoch() -> None:
    made = five(3)
    mark = Mark(1, made.header.log_id, durable_lsn=2, segment=1, position=0, epoch=7)

    walk = walked(made, mark=mark)

    assert walk[:2] == [1, 2]
    assert isinstance(walk[2], Broken) and walk[2].why is ChainBreak.EPOCH


def test_a_frame_with_an_lsn_that_was_seen_before_is_not_gone_on_with() -> None:
    made = five(3)
    frames = frames_of(made)
    second, end = frames[2], made.end
    made.data += second.data  # a copy of an old frame behind the end
    made.end = end
    made.write(record())

    walk = walked(made)

    [broken] = [each for each in walk if isinstance(each, Broken)]
    assert walk == [1, 2, 3, broken, 4]
    assert broken.lost_to == 3  # nothing is lost


def test_it_goes_on_with_a_gap_from_the_lsn_at_which_the_gap_begins() -> None:
    made = five(2)
    gap_frame(made, pack_gap(Gap(3, 6, 4, GapReason.DRAINED, 1234)), lsn=6)
    made.write(record())
    second = frames_of(made)[2]

    walk = walked(made, {second.position: b"junk"})

    [broken] = [each for each in walk if isinstance(each, Broken)]
    assert walk == [1, broken, 6, 7]
    assert broken.lost_to == 2


def test_a_gap_that_cannot_be_read_is_not_gone_on_with() -> None:
    made = five(2)
    gap_frame(made, pack_gap(Gap(3, 6, 4, GapReason.DRAINED, 1234)), lsn=6)
    made.write(record())
    frames = frames_of(made)

    walk = walked(made, {frames[2].position: b"junk", frames[6].position + 130: b"junk"})

    [broken] = [each for each in walk if isinstance(each, Broken)]
    assert walk == [1, broken, 7]
    assert broken.lost_to == 6


def test_a_gap_whose_body_is_no_gap_is_not_gone_on_with() -> None:
    made = five(2)
    gap_frame(made, b"not a gap at all", lsn=3)
    made.write(Draft(Kind.METADATA, b"on"))
    second = frames_of(made)[2]

    walk = walked(made, {second.position: b"junk"})

    [broken] = [each for each in walk if isinstance(each, Broken)]
    assert walk == [1, broken, 4]
