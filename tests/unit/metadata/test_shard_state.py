"""The fold of the log: what each kind of frame does to the state, what is forgotten, and that it matters not when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import CorruptData
from headwater.frames.bodies import Gap, GapReason, pack_gap
from headwater.frames.frame import Header, Kind
from headwater.log.device import Frame
from headwater.log.index import partition_key
from headwater.metadata import shard_state
from headwater.metadata.records import (
    CommittedOffset,
    OffsetsRecord,
    Part,
    ProducerRecord,
    SequenceEntry,
    SourceRecord,
    pack_record,
)
from headwater.metadata.shard_state import (
    ANSWERS_KEPT,
    KEY_AGE_US_MAX,
    PRODUCER_IDLE_US_MAX,
    Answer,
    Committed,
    Producer,
    ShardState,
    Source,
    fold_frames,
)

HOUR_US = 3_600 * 1_000_000
PARTS = (Part(1, 0, 5, 2),)


def frame(
    kind: Kind,
    body: bytes = b"",
    *,
    lsn: int,
    time_us: int = 0,
    write: tuple[int, int] = (0, 1),
    topic: int = 0,
    partition: int = 0,
    base_offset: int = 0,
    rows: int = 0,
) -> Frame:
    """A frame as the log would give it out, with the fields that the fold looks at."""
    index, count = write
    header = Header(
        b"", lsn, lsn * 3, 1, kind, 0, 0, len(body), 0, 0, lsn, 0, 0, 1, index, count, topic, partition, base_offset,
        rows, rows, 1, 0, 0, 0, time_us, time_us, time_us,
    )  # fmt: skip
    return Frame(header, memoryview(body), "segment", 0)


def sequences(lsn: int, *entries: SequenceEntry, time_us: int = 0, write: tuple[int, int] = (0, 1)) -> Frame:
    return frame(Kind.SEQUENCES, pack_record(entries), lsn=lsn, time_us=time_us, write=write)


def registration(lsn: int, producer_id: int, epoch: int, name: str, time_us: int = 0) -> Frame:
    return frame(Kind.PRODUCER, pack_record(ProducerRecord(producer_id, epoch, name)), lsn=lsn, time_us=time_us)


def keyed(lsn: int, key: bytes, time_us: int = 0) -> Frame:
    return sequences(lsn, SequenceEntry(0, 0, 0, key, PARTS), time_us=time_us)


def sequenced(lsn: int, producer_id: int, sequence: int, time_us: int = 0, epoch: int = 1) -> Frame:
    return sequences(lsn, SequenceEntry(producer_id, epoch, sequence, b"", PARTS), time_us=time_us)


def fold(*given: Frame) -> ShardState:
    return fold_frames(ShardState(), given)


# What each kind does ------------------------------------------------------------------------------


def test_rows_move_the_next_offset_of_their_partition() -> None:
    state = fold(
        frame(Kind.DATA, lsn=1, topic=1, partition=2, base_offset=10, rows=5),
        frame(Kind.SPARSE, lsn=2, topic=3, partition=0, base_offset=0, rows=4),
    )

    assert state.next_offsets == {partition_key(1, 2): 15, partition_key(3, 0): 4}
    assert state.lsn == 2


def test_a_gap_moves_the_offsets_of_the_partitions_whose_rows_are_gone() -> None:
    gap = Gap(1, 9, 9, GapReason.COMPACTED, chain=77, next_offsets=((1, 0, 50), (2, 1, 6)))

    state = fold(frame(Kind.GAP, pack_gap(gap), lsn=9))

    assert state.next_offsets == {partition_key(1, 0): 50, partition_key(2, 1): 6}
    assert state.lsn == 9


def test_the_state_stands_where_its_last_frame_is() -> None:
    first, last = frame(Kind.EPOCH, lsn=1, time_us=100), frame(Kind.SCHEMA, lsn=2, time_us=90)

    state = fold(first, last)

    assert state.lsn == 2
    assert state.chain == last.header.header_crc << 32 | last.header.body_crc
    assert state.time_us == 100, "the log's time never falls"


def test_a_schema_changes_nothing_but_the_place() -> None:
    before = fold(frame(Kind.EPOCH, lsn=1))
    after = fold(frame(Kind.EPOCH, lsn=1), frame(Kind.SCHEMA, b"anything", lsn=2))

    before.move_to(after.lsn, after.chain, after.time_us)
    assert before.pack() == after.pack()


def test_a_producer_is_known_by_its_name_and_goes_on_over_its_epochs() -> None:
    state = fold(registration(1, 4, 1, "loader", 10), sequenced(2, 4, 0, 20), registration(3, 4, 2, "loader", 30))

    assert state.producer_ids == {"loader": 4}
    assert state.next_producer_id == 5
    assert state.producers[4] == Producer(4, "loader", 2, 30, 1, {0: Answer(2, 2, 20, PARTS)})


def test_an_answer_names_the_whole_write_that_its_sequences_frame_is_in() -> None:
    state = fold(registration(1, 1, 1, "p"), sequences(7, SequenceEntry(1, 1, 0, b"k", PARTS), write=(2, 5)))

    assert state.producers[1].answers[0] == Answer(5, 9, 0, PARTS)
    assert state.keys[b"k"] == Answer(5, 9, 0, PARTS)


def test_a_producer_has_its_last_64_answers() -> None:
    state = fold(registration(1, 1, 1, "p"), *(sequenced(2 + number, 1, number) for number in range(ANSWERS_KEPT + 3)))

    assert list(state.producers[1].answers) == list(range(3, ANSWERS_KEPT + 3))
    assert state.producers[1].next_sequence == ANSWERS_KEPT + 3


def test_a_producer_whose_registration_was_lost_is_known_by_its_number() -> None:
    state = fold(sequenced(5, 9, 12, time_us=3, epoch=4))

    assert state.producers[9] == Producer(9, "", 4, 3, 13, {12: Answer(5, 5, 3, PARTS)})
    assert state.producer_ids == {}
    assert state.next_producer_id == 10
    assert ShardState.unpack(state.pack()).producer_ids == {}


def test_a_group_has_the_last_offset_that_it_committed_in_each_partition() -> None:
    def commit(lsn: int, *offsets: CommittedOffset) -> Frame:
        return frame(Kind.OFFSETS, pack_record(OffsetsRecord("g", 1, offsets)), lsn=lsn)

    state = fold(
        commit(1, CommittedOffset(0, 5, 1, 1), CommittedOffset(1, 7, 1, 2)), commit(2, CommittedOffset(0, 9, 2, 3))
    )

    assert state.groups == {("g", 1): {0: Committed(9, 2, 3, 2), 1: Committed(7, 1, 2, 1)}}


def test_a_source_keeps_its_watermark_until_another_is_given() -> None:
    def at(lsn: int, position: object, watermark_us: int | None) -> Frame:
        return frame(Kind.SOURCE, pack_record(SourceRecord("pg", position, watermark_us)), lsn=lsn, time_us=lsn)

    assert fold(at(1, "a", None)).sources["pg"] == Source("a", None, 1, 1)
    assert fold(at(1, "a", 50), at(2, ["b"], None)).sources["pg"] == Source(["b"], 50, 2, 2)
    assert fold(at(1, "a", 50), at(2, "b", 60)).sources["pg"] == Source("b", 60, 2, 2)


# What is forgotten --------------------------------------------------------------------------------


def test_a_producer_is_forgotten_after_more_than_a_week_of_the_logs_time() -> None:
    def after(idle_us: int) -> ShardState:
        state = fold(registration(1, 1, 1, "p", 10), frame(Kind.EPOCH, lsn=2, time_us=10 + idle_us))
        state.prune()
        return state

    assert after(PRODUCER_IDLE_US_MAX).producers.keys() == {1}
    assert after(PRODUCER_IDLE_US_MAX + 1).producers == {}
    assert after(PRODUCER_IDLE_US_MAX + 1).producer_ids == {}
    assert after(PRODUCER_IDLE_US_MAX + 1).next_producer_id == 2, "its number is not given out again"


def test_forgetting_a_producer_leaves_its_name_to_the_one_that_has_it_now() -> None:
    later = PRODUCER_IDLE_US_MAX + 11
    state = fold(
        registration(1, 1, 1, "p", 10), registration(2, 2, 1, "p", later), frame(Kind.EPOCH, lsn=3, time_us=later)
    )

    state.prune()

    assert state.producers.keys() == {2}
    assert state.producer_ids == {"p": 2}


def test_a_key_is_forgotten_after_more_than_a_day_of_the_logs_time() -> None:
    state = fold(
        keyed(1, b"old", 0),
        keyed(2, b"a day", 1),
        keyed(3, b"new", 2),
        frame(Kind.EPOCH, lsn=4, time_us=KEY_AGE_US_MAX + 1),
    )

    state.prune()

    assert list(state.keys) == [b"a day", b"new"]


def test_a_key_that_is_used_again_counts_from_then_on() -> None:
    state = fold(keyed(1, b"a", 0), keyed(2, b"b", 5), keyed(3, b"a", KEY_AGE_US_MAX + 6))

    state.prune()

    assert list(state.keys) == [b"a"]
    assert state.keys[b"a"].first_lsn == 3


def test_the_oldest_keys_go_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_state, "KEYS_MAX", 3)
    state = fold(*(keyed(1 + number, bytes([number])) for number in range(5)), keyed(6, bytes([2])))

    state.prune()

    assert list(state.keys) == [bytes([3]), bytes([4]), bytes([2])]


# Saving -------------------------------------------------------------------------------------------


def a_full_state() -> ShardState:
    return fold(
        frame(Kind.DATA, lsn=1, topic=2, partition=1, base_offset=0, rows=3),
        frame(Kind.DATA, lsn=2, topic=1, partition=0, base_offset=0, rows=3),
        registration(3, 2, 1, "b"),
        registration(4, 1, 1, "a"),
        sequenced(5, 1, 0, 40),
        keyed(6, b"z" * 16, 50),
        keyed(7, b"a" * 16, 60),
        frame(Kind.OFFSETS, pack_record(OffsetsRecord("h", 1, (CommittedOffset(3, 1, 1, 1),))), lsn=8),
        frame(Kind.OFFSETS, pack_record(OffsetsRecord("g", 2, (CommittedOffset(1, 1, 1, 1),))), lsn=9),
        frame(Kind.SOURCE, pack_record(SourceRecord("pg", {"a": [None, b"x"]}, 7)), lsn=10),
    )


def test_a_state_is_unpacked_as_it_was_packed() -> None:
    state = a_full_state()

    again = ShardState.unpack(state.pack())

    assert vars(again) == vars(state)
    assert again.pack() == state.pack()


def test_equal_states_give_equal_bytes_whatever_the_order_of_their_making() -> None:
    one = fold(
        frame(Kind.DATA, lsn=1, topic=1, base_offset=0, rows=1), frame(Kind.DATA, lsn=2, topic=2, base_offset=0, rows=1)
    )
    other = fold(
        frame(Kind.DATA, lsn=1, topic=2, base_offset=0, rows=1), frame(Kind.DATA, lsn=2, topic=1, base_offset=0, rows=1)
    )

    assert one.pack() == other.pack()


def test_a_state_that_is_folded_on_after_a_checkpoint_is_the_one_that_was_folded_in_one_go() -> None:
    more = [sequenced(11, 1, 1, 70), keyed(12, b"a" * 16, 80), registration(13, 3, 1, "c", 90)]

    again = fold_frames(ShardState.unpack(a_full_state().pack()), more)

    assert again.pack() == fold_frames(a_full_state(), more).pack()


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x80"])
def test_a_body_that_is_no_state_is_corrupt_data(body: bytes) -> None:
    with pytest.raises(CorruptData, match="checkpoint"):
        ShardState.unpack(body)


# Forgetting does not depend on when ---------------------------------------------------------------


@dataclass
class Owner:
    """An owner in short: it makes only frames that a real one would, by a state which it prunes whenever it likes."""

    state: ShardState = field(default_factory=ShardState)
    made: list[Frame] = field(default_factory=list)
    time_us: int = 1

    def add(self, kind: Kind, body: bytes) -> None:
        made = frame(kind, body, lsn=self.state.lsn + 1, time_us=self.time_us)
        self.made.append(made)
        self.state.fold(made)

    def register(self, name: str) -> None:
        producer_id = self.state.producer_ids.get(name, self.state.next_producer_id)
        known = self.state.producers.get(producer_id)
        epoch = 1 if known is None else known.epoch + 1
        self.add(Kind.PRODUCER, pack_record(ProducerRecord(producer_id, epoch, name)))

    def append(self, name: str, key: bytes) -> None:
        producer = self.state.producers.get(self.state.producer_ids.get(name, 0))
        number = (0, 0, 0) if producer is None else (producer.producer_id, producer.epoch, producer.next_sequence)
        self.add(Kind.SEQUENCES, pack_record((SequenceEntry(*number, key, PARTS),)))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.sampled_from([1, 13, 25, 24 * 8])),
        st.tuples(st.just("register"), st.integers(0, 2)),
        st.tuples(st.just("append"), st.integers(0, 5)),
        st.tuples(st.just("prune"), st.just(0)),
    ),
    max_size=40,
)


def play(owner: Owner, steps: Iterable[tuple[str, int]]) -> Owner:
    for step, number in steps:
        if step == "wait":
            owner.time_us += number * HOUR_US
        elif step == "register":
            owner.register(f"producer-{number}")
        elif step == "append":
            owner.append(f"producer-{number % 3}", bytes([number]))
        else:
            owner.state.prune()
    return owner


@given(STEPS)
@settings(max_examples=150)
def test_pruning_early_often_or_once_makes_no_difference_in_the_end(steps: list[tuple[str, int]]) -> None:
    owner = play(Owner(), steps)

    once = fold_frames(ShardState(), owner.made)
    once.prune()
    owner.state.prune()

    assert owner.state.pack() == once.pack()


@given(STEPS, st.integers(0, 2**32))
@settings(max_examples=100)
def test_a_fold_that_begins_at_any_checkpoint_ends_as_the_owners_own(steps: list[tuple[str, int]], seed: int) -> None:
    """A checkpoint holds the owner's pruned state; whoever goes on from it, or from an older one, comes to the same."""
    cut = Random(seed).randint(0, len(steps))
    before = play(Owner(), steps[:cut])
    before.state.prune()

    owner = play(Owner(ShardState.unpack(before.state.pack()), list(before.made), before.time_us), steps[cut:])

    once = fold_frames(ShardState(), owner.made)
    once.prune()
    owner.state.prune()

    assert owner.state.pack() == once.pack()
