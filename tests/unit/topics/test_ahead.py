"""Rows of many partitions that came at once: cut by partition, handed out in turn."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headwater.topics.ahead import Ahead

SCHEMA = pa.schema(
    [("n", pa.int64()), ("text", pa.string()), ("_hw_partition", pa.int32()), ("_hw_offset", pa.int64())]
)


def rows(*places: tuple[int, int]) -> pa.RecordBatch:
    """A row of each of these partitions and offsets; its number says which it is."""
    partitions, offsets = [each for each, _ in places], [each for _, each in places]
    numbers = [100 * partition + offset for partition, offset in places]
    return pa.record_batch([numbers, [str(each) for each in numbers], partitions, offsets], schema=SCHEMA)


def taken(ahead: Ahead, rows_max: int = 100) -> list[tuple[int, int, int, list[int]]]:
    found = []
    while (each := ahead.take(rows_max)) is not None:
        partition, offset, after, batch = each
        assert batch.schema.names == ["n", "text"]
        found.append((partition, offset, after, batch.column("n").to_pylist()))
    return found


def test_rows_come_by_partition_in_the_order_in_which_those_were_asked_for() -> None:
    ahead = Ahead()

    found = ahead.put({7: 0, 2: 5, 4: 0}, [rows((2, 5), (7, 0)), rows((2, 6)), rows((7, 1), (4, 0))])

    assert found == {7, 2, 4}
    assert taken(ahead) == [(7, 0, 2, [700, 701]), (2, 5, 7, [205, 206]), (4, 0, 1, [400])]
    assert not ahead


def test_nothing_came() -> None:
    ahead = Ahead()

    assert ahead.put({1: 0}, []) == set()
    assert not ahead
    assert ahead.take(1) is None


def test_a_partition_whose_first_row_is_another_one_is_left_out() -> None:
    ahead = Ahead()

    assert ahead.put({1: 3, 2: 0}, [rows((1, 4), (2, 0))]) == {2}
    assert taken(ahead) == [(2, 0, 1, [200])]


def test_a_part_of_a_partition_ends_after_its_last_row_and_the_rest_has_another_turn() -> None:
    ahead = Ahead()
    ahead.put({1: 0, 2: 0}, [rows((1, 0), (1, 3), (1, 4), (2, 0))])

    assert taken(ahead, rows_max=2) == [(1, 0, 4, [100, 103]), (2, 0, 1, [200]), (1, 4, 5, [104])]


def test_what_is_dropped_is_not_handed_out() -> None:
    ahead = Ahead()
    ahead.put({1: 0, 2: 0, 3: 0}, [rows((1, 0), (2, 0), (3, 0))])

    ahead.drop(2)

    assert taken(ahead) == [(1, 0, 1, [100]), (3, 0, 1, [300])]


@given(
    st.lists(st.integers(0, 5), max_size=60),
    st.integers(1, 7),
    st.lists(st.integers(1, 10), max_size=20),
)
def test_each_row_comes_once_and_in_order_however_it_is_cut(of: list[int], rows_max: int, cuts: list[int]) -> None:
    following = dict.fromkeys(range(6), 0)
    places = []
    for partition in of:
        places.append((partition, following[partition]))
        following[partition] += 1
    batches, at = [], 0
    for cut in [*cuts, len(places)]:
        if places[at : at + cut]:
            batches.append(rows(*places[at : at + cut]))
        at += cut
    ahead = Ahead()

    ahead.put(dict.fromkeys(range(6), 0), batches)

    given_rows: dict[int, list[int]] = {number: [] for number in range(6)}
    position = dict.fromkeys(range(6), 0)
    for partition, offset, after, numbers in taken(ahead, rows_max):
        assert offset == position[partition] and len(numbers) <= rows_max
        position[partition] = after
        given_rows[partition] += numbers
    assert position == following
    assert given_rows == {number: [100 * number + at for at in range(following[number])] for number in range(6)}
