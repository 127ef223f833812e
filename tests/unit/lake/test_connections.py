"""Connections are kept while they work, and thrown away after any trouble."""

from __future__ import annotations

import threading
from typing import cast

import pytest

from headwater.lake.connections import Connections
from headwater.lake.tables import Tables


class Plug:
    """Something to connect to that only knows whether it was closed."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


class Socket:
    def __init__(self) -> None:
        self.made: list[Plug] = []

    def connect(self) -> Tables:
        plug = Plug()
        self.made.append(plug)
        return cast("Tables", plug)

    @property
    def closed(self) -> list[int]:
        return [plug.closed for plug in self.made]


def test_a_connection_that_worked_is_lent_again() -> None:
    socket = Socket()
    connections = Connections(socket.connect, 1)

    with connections.lent() as first:
        pass
    with connections.lent() as second:
        pass

    assert first is second
    assert socket.closed == [0]


def test_two_who_need_one_at_a_time_get_two() -> None:
    socket = Socket()
    connections = Connections(socket.connect, 1)

    with connections.lent() as first, connections.lent() as second:
        assert first is not second

    assert socket.closed == [0, 0]


@pytest.mark.parametrize("trouble", [OSError("no"), KeyboardInterrupt()])
def test_a_connection_that_failed_is_closed_and_never_lent_again(trouble: BaseException) -> None:
    socket = Socket()
    connections = Connections(socket.connect, 1)

    with pytest.raises(type(trouble)), connections.lent():
        raise trouble
    with connections.lent() as second:
        pass

    assert socket.closed == [1, 0]
    assert cast("object", second) is socket.made[1]


def test_a_new_connection_is_nobodys_before_and_closed_afterwards() -> None:
    socket = Socket()
    connections = Connections(socket.connect, 1)
    with connections.lent() as lent:
        pass

    with connections.new() as new:
        assert new is not lent
    with pytest.raises(OSError, match="no"), connections.new():
        raise OSError("no")

    assert socket.closed == [0, 1, 1]


def test_a_connection_may_be_had_for_good() -> None:
    socket = Socket()
    connections = Connections(socket.connect, 1)

    tables = connections.connect()
    connections.close()

    assert cast("object", tables) is socket.made[0]
    assert socket.closed == [0]


def test_closing_lets_go_of_what_is_free_and_what_comes_next_opens_new_ones() -> None:
    socket = Socket()
    connections = Connections(socket.connect, 1)
    with connections.lent():
        pass

    connections.close()
    connections.close()
    with connections.lent():
        pass

    assert socket.closed == [1, 0]


def test_with_one_thread_everything_happens_in_the_callers() -> None:
    connections = Connections(Socket().connect, 1)

    names = connections.each(lambda _: threading.current_thread(), [1, 2, 3])

    assert set(names) == {threading.current_thread()}


def test_one_item_needs_no_thread() -> None:
    connections = Connections(Socket().connect, 8)

    assert connections.each(lambda _: threading.current_thread(), [1]) == [threading.current_thread()]
    assert connections.each(lambda item: item, []) == []


def test_several_items_go_side_by_side_and_come_back_in_their_order() -> None:
    connections = Connections(Socket().connect, 3)
    meeting = threading.Barrier(3, timeout=20)

    def act(item: int) -> int:
        meeting.wait()
        return item * 10

    assert connections.each(act, [1, 2, 3]) == [10, 20, 30]
