"""Questions to a store, asked for real, and asked again for so long."""

from __future__ import annotations

import pytest

from headwater.log.asks import (
    Absent,
    Ask,
    Asking,
    Done,
    Get,
    PutIfAbsent,
    PutIfMatch,
    Refused,
    Reply,
    Unsure,
    Waits,
    ask,
    carry_out,
)
from headwater.storage.objects import Found, StoreUnsure
from headwater.storage.simulated_store import Fate, SimulatedStore


def two_questions() -> Asking[list[Reply]]:
    first = yield Get("a")
    second = yield PutIfAbsent("a", b"1")
    return [first, second]


def test_each_answer_of_a_store_is_a_reply() -> None:
    store = SimulatedStore()

    assert ask(store, Get("a")) == Absent()
    first = ask(store, PutIfAbsent("a", b"1"))
    assert isinstance(first, Done)
    assert ask(store, PutIfAbsent("a", b"2")) == Refused()
    second = ask(store, PutIfMatch("a", b"2", first.etag))
    assert isinstance(second, Done)
    assert ask(store, PutIfMatch("a", b"3", first.etag)) == Refused()
    assert ask(store, Get("a")) == Found(b"2", second.etag)


@pytest.mark.parametrize("question", [Get("a"), PutIfAbsent("a", b""), PutIfMatch("a", b"", "e")])
def test_a_store_that_says_nothing_is_a_reply_too(question: Ask) -> None:
    store = SimulatedStore()
    store.next_fate(Fate.FAILED)

    assert isinstance(ask(store, question), Unsure)


def test_a_protocol_is_carried_out_to_its_end_and_told_of_each_reply_that_said_nothing() -> None:
    store = SimulatedStore()
    store.next_fate(Fate.LOST, verb="get")
    heard: list[object] = []

    first, second = carry_out(two_questions(), store, heard.append)

    assert isinstance(first, Unsure)
    assert isinstance(second, Done)
    assert heard == ["get a: no reply"]


def test_a_protocol_that_is_given_up_is_closed() -> None:
    store = SimulatedStore()
    store.next_fate(Fate.LOST)
    asking = two_questions()

    with pytest.raises(StoreUnsure):
        carry_out(asking, store, Waits(lambda _: None, tries=1).unsure)
    with pytest.raises(StopIteration):
        next(asking)


def test_who_waits_waits_longer_each_time_and_in_the_end_no_more() -> None:
    waited: list[float] = []
    waits = Waits(waited.append, tries=12)

    for _ in range(11):
        waits.unsure("no reply")
    with pytest.raises(StoreUnsure, match="no reply"):
        waits.unsure("no reply")

    assert waited == sorted(waited)
    assert waited[1] == 2 * waited[0]
    assert waited[-1] == waited[-2]
