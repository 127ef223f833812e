"""The judge of histories: true ones pass, each broken one fails by the rule that it breaks, and where a history is so
small that every order can be tried, the judge agrees with trying."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations

import pytest

from tests.histories.history import Append, History, Outcome, Read, Tail
from tests.histories.linearizable import FOR_EVER_NS, NO_MOMENT, NotLinearizable, check


def played(seed: int, operations: int = 200, clients: int = 5) -> History:
    """A history that did happen: each operation has its call, its moment and its answer drawn at random."""
    rng = random.Random(seed)
    moments = sorted((rng.randrange(operations * 10), client % clients) for client in range(operations))
    free_ns = [0] * clients
    rows_so_far: list[int] = []
    history = History()
    next_row = 0
    for position, (moment, client) in enumerate(moments):
        at_ns = moment * 100 + position
        began_ns = max(free_ns[client], at_ns - rng.randrange(2_000))
        if began_ns > at_ns:
            continue
        ended_ns = at_ns + rng.randrange(2_000)
        free_ns[client] = ended_ns + 1
        kind = rng.random()
        if kind < 0.6:
            rows = tuple(range(next_row, next_row + rng.choice((1, 1, 3))))
            next_row += len(rows)
            offset = len(rows_so_far)
            expected = rng.choice((None, None, offset, max(offset - 1, 0)))
            if expected not in (None, offset):
                history.appends.append(Append(client, began_ns, ended_ns, rows, Outcome.MISMATCH, expected, offset))
                continue
            outcome = rng.choice((Outcome.DONE, Outcome.DONE, Outcome.DONE, Outcome.UNKNOWN))
            told = offset if outcome is Outcome.DONE else None
            history.appends.append(Append(client, began_ns, ended_ns, rows, outcome, expected, told))
            if outcome is Outcome.DONE or rng.random() < 0.5:
                rows_so_far += rows
        elif kind < 0.8:
            offset = rng.randint(0, len(rows_so_far) + 1)
            history.reads.append(Read(client, began_ns, ended_ns, offset, tuple(rows_so_far[offset:])))
        elif rows_so_far:
            offset = rng.randrange(len(rows_so_far))
            end = rng.randint(offset + 1, len(rows_so_far))
            history.tails.append(Tail(client, ended_ns, offset, tuple(rows_so_far[offset:end])))
    history.final = tuple(rows_so_far)
    return history


@pytest.mark.parametrize("seed", range(50))
def test_what_did_happen_is_linearizable(seed: int) -> None:
    history = played(seed)

    check(history)

    assert len(history.appends) > 50 and len(history.reads) > 10 and len(history.tails) > 10


# Broken ones ----------------------------------------------------------------------------------------------------------


def done(history: History) -> list[Append]:
    return [each for each in history.appends if each.outcome is Outcome.DONE]


def without(rows: tuple[int, ...], gone: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(row for row in rows if row not in gone)


def lost(history: History, rng: random.Random) -> None:
    """The last of the acknowledged is gone, and nobody had seen it."""
    last = max(done(history), key=lambda each: each.offset or 0)
    history.final = without(history.final, last.rows)
    history.reads = [replace(each, rows=without(each.rows, last.rows)) for each in history.reads]
    history.tails = [replace(each, rows=without(each.rows, last.rows)) for each in history.tails]


def doubled(history: History, rng: random.Random) -> None:
    history.final += rng.choice(done(history)).rows


def invented(history: History, rng: random.Random) -> None:
    history.final += (1_000_000,)


def torn(history: History, rng: random.Random) -> None:
    """An append whose outcome is unknown is there by half."""
    history.appends.append(Append(0, 0, 1, (2_000_000, 2_000_001), Outcome.UNKNOWN))
    history.final += (2_000_000,)


def refused_appears(history: History, rng: random.Random) -> None:
    history.appends.append(Append(0, 0, 1, (2_000_000,), Outcome.REFUSED))
    history.final += (2_000_000,)


def answered_wrongly(history: History, rng: random.Random) -> None:
    index = history.appends.index(rng.choice(done(history)))
    each = history.appends[index]
    assert each.offset is not None
    history.appends[index] = replace(each, offset=each.offset + 1, expected=None)


def expectation_ignored(history: History, rng: random.Random) -> None:
    index = history.appends.index(rng.choice(done(history)))
    each = history.appends[index]
    assert each.offset is not None
    history.appends[index] = replace(each, expected=each.offset + 1)


def refused_for_nothing(history: History, rng: random.Random) -> None:
    index = next(n for n, each in enumerate(history.appends) if each.outcome is Outcome.MISMATCH)
    history.appends[index] = replace(history.appends[index], expected=history.appends[index].offset)


def stale(history: History, rng: random.Random) -> None:
    """A read that began after all had ended does not see the last append."""
    end_ns = max(each.ended_ns for each in history.appends) + 10
    last = max(done(history), key=lambda each: each.offset or 0)
    assert last.offset is not None
    history.reads.append(Read(0, end_ns, end_ns + 5, 0, history.final[: last.offset]))


def stale_and_empty(history: History, rng: random.Random) -> None:
    """A read that began after all had ended finds nothing where the last append's rows are."""
    end_ns = max(each.ended_ns for each in history.appends) + 10
    last = max(done(history), key=lambda each: each.offset or 0)
    assert last.offset is not None
    history.reads.append(Read(0, end_ns, end_ns + 5, last.offset, ()))


def refused_by_a_stale_length(history: History, rng: random.Random) -> None:
    end_ns = max(each.ended_ns for each in history.appends) + 10
    last = max(done(history), key=lambda each: each.offset or 0)
    history.appends.append(Append(0, end_ns, end_ns + 5, (2_000_000,), Outcome.MISMATCH, 7_000, last.offset))


def early(history: History, rng: random.Random) -> None:
    """A read had ended before the last append began, and has its rows."""
    began_ns = max(each.ended_ns for each in history.reads) + 1_000
    history.appends.append(Append(0, began_ns, began_ns + 5, (2_000_000,), Outcome.DONE, offset=len(history.final)))
    history.final += (2_000_000,)
    history.reads.append(Read(1, began_ns - 20, began_ns - 10, 0, history.final))


def tailed_early(history: History, rng: random.Random) -> None:
    early(history, rng)
    read = history.reads.pop()
    history.tails.append(Tail(1, read.ended_ns, len(history.final) - 1, history.final[-1:]))


def changed(history: History, rng: random.Random) -> None:
    read = next(each for each in history.reads if each.rows)
    index = history.reads.index(read)
    history.reads[index] = replace(read, rows=(*read.rows[:-1], 3_000_000))


def gap_in_a_tail(history: History, rng: random.Random) -> None:
    index = next(n for n, each in enumerate(history.tails) if len(each.rows) > 2)
    tail = history.tails[index]
    history.tails[index] = replace(tail, rows=(tail.rows[0], *tail.rows[2:]))


def half_seen(history: History, rng: random.Random) -> None:
    append = next(each for each in done(history) if len(each.rows) == 3)
    assert append.offset is not None
    history.reads.append(Read(0, append.began_ns, FOR_EVER_NS - 1, 0, history.final[: append.offset + 1]))


def reordered(history: History, rng: random.Random) -> None:
    """Of two appends the second began after the first had ended, and stands before it."""
    end_ns = max(each.ended_ns for each in history.appends) + 10
    offset = len(history.final)
    history.appends.append(Append(0, end_ns, end_ns + 1, (2_000_000,), Outcome.DONE, offset=offset + 1))
    history.appends.append(Append(1, end_ns + 5, end_ns + 6, (2_000_001,), Outcome.DONE, offset=offset))
    history.final += (2_000_001, 2_000_000)


def gone_back(history: History, rng: random.Random) -> None:
    """Two reads, one after the other; the second sees less.  The append is under way during both."""
    ends_ns = [each.ended_ns for each in history.appends] + [each.ended_ns for each in history.reads]
    end_ns = max(ends_ns) + 10
    before = history.final
    history.appends.append(Append(0, end_ns, end_ns + 100, (2_000_000,), Outcome.DONE, offset=len(before)))
    history.final += (2_000_000,)
    history.reads.append(Read(1, end_ns + 10, end_ns + 20, 0, history.final))
    history.reads.append(Read(2, end_ns + 30, end_ns + 40, 0, before))


def unknown_seen_then_gone(history: History, rng: random.Random) -> None:
    end_ns = max(each.ended_ns for each in history.appends) + 10
    history.appends.append(Append(0, end_ns, end_ns + 1, (2_000_000,), Outcome.UNKNOWN))
    history.reads.append(Read(1, end_ns + 2, end_ns + 3, 0, (*history.final, 2_000_000)))


BROKEN: dict[str, tuple[Callable[[History, random.Random], None], str]] = {
    "an acknowledged append is lost": (lost, "what was acknowledged is there"),
    "a row is there twice": (doubled, "no row is there twice"),
    "a row that nobody sent": (invented, "a row that nobody sent is not there"),
    "an append by half": (torn, "an append is there whole and in its order"),
    "a refused append appears": (refused_appears, "what was refused is not there"),
    "an answer names another offset": (answered_wrongly, "an answer stays true"),
    "an expected offset is ignored": (expectation_ignored, "rows stand at the offset that was expected"),
    "refused although it was as expected": (refused_for_nothing, "a refusal names another offset than was expected"),
    "a stale read": (stale, NO_MOMENT),
    "a stale read that finds nothing": (stale_and_empty, NO_MOMENT),
    "a refusal by a stale length": (
        refused_by_a_stale_length,
        NO_MOMENT,
    ),
    "a read of what was not yet sent": (early, NO_MOMENT),
    "a tail of what was not yet sent": (tailed_early, NO_MOMENT),
    "a read of another row": (changed, "what was read stays as it was"),
    "a tail leaves a row out": (gap_in_a_tail, "what was read stays as it was"),
    "a read sees half an append": (half_seen, "no read sees a part of an append"),
    "two appends in the wrong order": (reordered, NO_MOMENT),
    "a later read sees less": (gone_back, NO_MOMENT),
    "what was seen is gone": (unknown_seen_then_gone, "what was read stays as it was"),
}


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize("seed", range(5))
def test_a_broken_history_fails_by_the_rule_that_it_breaks(seed: int, how: str) -> None:
    history = played(seed)
    break_it, rule = BROKEN[how]

    break_it(history, random.Random(seed))

    with pytest.raises(NotLinearizable) as caught:
        check(history)
    # A row that is lost from the middle moves those behind it, so the first rule that notices may be another.
    assert caught.value.rule == rule or how == "an acknowledged append is lost"


# Trying every order ---------------------------------------------------------------------------------------------------


def drawn(rng: random.Random) -> History:
    """A small history in which each answer is made up, so that most are false and some are true."""
    history = History()
    rows = 0
    length = rng.randint(1, 3)
    for client in range(rng.randint(2, 5)):
        began_ns = rng.randrange(12)
        ended_ns = began_ns + rng.randrange(1, 8)
        kind = rng.random()
        if kind < 0.55:
            outcome = rng.choice((Outcome.DONE, Outcome.DONE, Outcome.UNKNOWN, Outcome.MISMATCH))
            expected = rng.choice((None, rng.randrange(length + 1))) if outcome is not Outcome.MISMATCH else 9
            told = None if outcome is Outcome.UNKNOWN else rng.randrange(length + 1)
            history.appends.append(Append(client, began_ns, ended_ns, (rows,), outcome, expected, told))
            rows += 1
        else:
            seen = tuple(rng.sample(range(rows), rng.randint(0, rows)))
            offset = 0 if seen else rng.randrange(length + 2)
            history.reads.append(Read(client, began_ns, ended_ns, offset, seen))
    there = [each.rows[0] for each in history.appends if each.outcome is not Outcome.MISMATCH]
    there = [row for row in there if history.appends[row].outcome is Outcome.DONE or rng.random() < 0.5]
    rng.shuffle(there)
    history.final = tuple(there)
    return history


def can_be_true(history: History) -> bool:
    """By trying every order of all that has happened, in which nobody overtakes who had ended before it began."""
    happened: list[Append | Read] = [
        *(each for each in history.appends if each.outcome is not Outcome.UNKNOWN or each.rows[0] in history.final),
        *history.reads,
    ]
    return any(_explains(order, history) for order in permutations(happened))


def _explains(order: tuple[Append | Read, ...], history: History) -> bool:
    for index, each in enumerate(order):
        for later in order[index + 1 :]:
            ended_ns = FOR_EVER_NS if _unknown(later) else later.ended_ns
            if ended_ns < each.began_ns:
                return False
    rows: list[int] = []
    for each in order:
        if isinstance(each, Read):
            if tuple(rows[each.offset :]) != each.rows:
                return False
        elif each.outcome is Outcome.MISMATCH:
            if each.offset != len(rows) or each.expected == len(rows):
                return False
        else:
            if each.expected not in (None, len(rows)) or (not _unknown(each) and each.offset != len(rows)):
                return False
            rows += each.rows
    return tuple(rows) == history.final


def _unknown(each: Append | Read) -> bool:
    return isinstance(each, Append) and each.outcome is Outcome.UNKNOWN


def test_the_judge_agrees_with_trying_every_order(seed: int) -> None:
    rng = random.Random(seed)
    true = false = 0

    for number in range(6_000):
        history = drawn(rng)
        expected = can_be_true(history)
        try:
            check(history)
            found = True
        except NotLinearizable:
            found = False
        assert found == expected, (number, history)
        true += expected
        false += not expected

    assert true > 100 and false > 1_000
