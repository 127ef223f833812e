"""Appends on their way to a server that misbehaves: each is acknowledged once, in order, whatever breaks."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Thread

import pytest

from headwater.client.connecting import connect_to
from headwater.client.connection import ServerLost
from headwater.client.engine import ClientEngine
from headwater.client.pipe import Pipe
from headwater.client.requests import Item, Message
from headwater.errors import Closed, OutcomeUnknown, TooLarge, Unavailable
from headwater.settings import ClientSettings
from headwater.topics.answers import Appended
from tests.unit.client.scripted_server import Fate, ScriptedServer

QUICK = ClientSettings(retry_s=5.0, silence_s=0.5, in_flight_max=4, batch_rows=3)
COMMON = [Fate.ANSWERED] * 6 + [
    Fate.LOST_ANSWER,
    Fate.LOST,
    Fate.REFUSED,
    Fate.UNAVAILABLE,
    Fate.UNKNOWN,
    Fate.UNKNOWN_APPLIED,
    Fate.FORGOTTEN,
    Fate.STOPPING,
]


@contextmanager
def scripted(
    fate: Callable[[int], Fate] = lambda _: Fate.ANSWERED, settings: ClientSettings = QUICK
) -> Iterator[tuple[ScriptedServer, ClientEngine]]:
    with ScriptedServer(fate) as server:
        engine = ClientEngine(connect_to(server.address, settings=settings))
        engine.topic("rows")
        try:
            yield server, engine
        finally:
            server.over.set()
            engine.close()


def at(number: int, fate: Fate) -> Callable[[int], Fate]:
    return lambda message: fate if message == number else Fate.ANSWERED


def outcomes(futures: list[Future[Appended]]) -> list[str]:
    return ["done" if each.exception(timeout=30) is None else type(each.exception()).__name__ for each in futures]


@pytest.mark.parametrize("seed", range(12))
def test_rows_are_there_once_and_in_order_whatever_becomes_of_their_messages(seed: int) -> None:
    draw = random.Random(seed)
    last_bad = draw.randrange(10, 25)
    fates = [draw.choice(COMMON) for _ in range(last_bad)]

    with scripted(lambda message: fates[message] if message < last_bad else Fate.ANSWERED) as (server, engine):
        futures = [engine.append_future(1, {"n": number}) for number in range(60)]
        told = outcomes(futures)
        kept = list(server.rows)

    acknowledged = [number for number, outcome in enumerate(told) if outcome == "done"]
    assert kept == sorted(kept) and len(set(kept)) == len(kept), (seed, fates)
    assert kept == acknowledged, (seed, fates)
    assert set(told) <= {"done", "TooLarge"}, (seed, fates)
    assert sorted(set(range(60)) - set(acknowledged)) == sorted(set(server.refused) - set(kept)), (seed, fates)
    for number in acknowledged:
        ((_, offsets),) = futures[number].result().offsets.items()
        assert kept[offsets.first] == number and offsets.next == offsets.first + 1


def breaks_while_made(monkeypatch: pytest.MonkeyPatch, does: Callable[[], bool]) -> None:
    """The stream breaks between the taking of items and the sending of their message, wherever `does` says so."""
    made_of = Pipe._made_of

    def broken_meanwhile(pipe: Pipe, items: list[Item]) -> Message | None:
        stream = pipe._stream
        if stream is not None and does():
            pipe._broke(stream, ServerLost("cut by the test"))
            time.sleep(0.02)  # the next stream is there, and would take what stands behind
        return made_of(pipe, items)

    monkeypatch.setattr(Pipe, "_made_of", broken_meanwhile)


def test_an_append_that_blocks_ends_although_its_stream_broke_while_its_message_was_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with scripted() as (server, engine):
        engine.append(1, {"n": 0})
        cuts = [True, False]
        breaks_while_made(monkeypatch, lambda: cuts.pop(0) if cuts else False)
        caller = Thread(target=lambda: engine.append(1, {"n": 1}), daemon=True)
        caller.start()
        caller.join(timeout=10)

        assert not caller.is_alive(), "it waits for an answer to what was never sent"
        assert server.rows == [0, 1]


@pytest.mark.parametrize("seed", range(8))
def test_rows_keep_their_order_although_streams_break_while_their_messages_are_made(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    fates = [draw.choice([*COMMON, Fate.REFUSED, Fate.FORGOTTEN]) for _ in range(12)]
    breaks_while_made(monkeypatch, lambda: draw.random() < 0.25)

    with scripted(lambda message: fates[message] if message < len(fates) else Fate.ANSWERED) as (server, engine):
        futures = [engine.append_future(1, {"n": number}) for number in range(60)]
        told = outcomes(futures)

        assert server.rows == [number for number, outcome in enumerate(told) if outcome == "done"], (seed, fates)
        assert set(told) <= {"done", "TooLarge"}, (seed, fates)


def test_an_item_that_cannot_be_made_into_a_message_is_told_so_and_the_pipe_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with scripted() as (server, engine):
        with monkeypatch.context() as patched:

            def unmakable(*_: object) -> Message:
                raise MemoryError("no room for it")

            patched.setattr("headwater.client.pipe.message_of", unmakable)
            with pytest.raises(MemoryError):
                engine.append(1, {"n": 0})

        assert engine.append(1, {"n": 1}).rows == 1
        assert server.rows == [1]


@pytest.mark.parametrize("fate", [Fate.LOST_ANSWER, Fate.UNKNOWN_APPLIED, Fate.LOST, Fate.SILENT, Fate.STOPPING])
def test_an_append_that_blocks_is_sent_again_and_applied_once(fate: Fate) -> None:
    with scripted(at(1, fate)) as (server, engine):
        for number in range(4):
            assert engine.append(1, {"n": number}).rows == 1

        assert server.rows == [0, 1, 2, 3]


def test_what_is_refused_is_told_and_those_behind_it_are_numbered_anew() -> None:
    with scripted(at(2, Fate.REFUSED), ClientSettings(in_flight_max=8, batch_rows=1)) as (server, engine):
        futures = [engine.append_future(1, {"n": number}) for number in range(10)]

        assert outcomes(futures) == ["done"] * 2 + ["TooLarge"] + ["done"] * 7
        assert server.rows == [0, 1, 3, 4, 5, 6, 7, 8, 9]
        with pytest.raises(TooLarge, match="refused for good"):
            futures[2].result()


def test_small_appends_travel_together_and_each_is_told_of_its_own_rows() -> None:
    gate = at(0, Fate.ANSWERED)
    with scripted(gate, ClientSettings(linger_s=0.2, in_flight_max=1)) as (server, engine):
        futures = [engine.append_future(1, [{"n": number}, {"n": number}]) for number in range(200)]
        told = [each.result(timeout=30) for each in futures]

        assert server.messages < 150
        assert [each.rows for each in told] == [2] * 200
        assert [each.offsets[0].first for each in told] == list(range(0, 400, 2))


def test_without_a_server_what_was_sent_is_unknown_and_what_was_not_is_unavailable() -> None:
    settings = ClientSettings(retry_s=0.6, silence_s=0.2, in_flight_max=1, batch_rows=1)
    with scripted(lambda _: Fate.SILENT, settings) as (_, engine):
        futures = [engine.append_future(1, {"n": number}) for number in range(3)]

        assert outcomes(futures) == ["OutcomeUnknown", "Unavailable", "Unavailable"]
        assert isinstance(futures[0].exception(), OutcomeUnknown)
        assert isinstance(futures[1].exception(), Unavailable)


def test_a_pipe_goes_on_after_it_had_given_up() -> None:
    settings = ClientSettings(retry_s=0.5, silence_s=0.2, in_flight_max=1)
    silent = [True]
    with scripted(lambda _: Fate.SILENT if silent[0] else Fate.ANSWERED, settings) as (server, engine):
        with pytest.raises(OutcomeUnknown):
            engine.append(1, {"n": 0})
        silent[0] = False

        assert engine.append(1, {"n": 1}).rows == 1
        assert server.rows == [1]


def test_closing_waits_for_what_is_queued_and_then_nothing_is_taken() -> None:
    with scripted() as (server, engine):
        futures = [engine.append_future(1, {"n": number}) for number in range(100)]
        engine.close()

        assert outcomes(futures) == ["done"] * 100
        assert server.rows == list(range(100))
        with pytest.raises(Closed):
            engine.append(1, {"n": 100})


def test_many_threads_append_at_once_and_each_row_is_there_once() -> None:
    with scripted(at(5, Fate.LOST_ANSWER), ClientSettings(in_flight_max=4)) as (server, engine):

        def append(first: int) -> None:
            for number in range(first, first + 50):
                engine.append(1, {"n": number})

        threads = [Thread(target=append, args=(first,)) for first in range(0, 400, 50)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

        assert sorted(server.rows) == list(range(400))
