"""Is there one order of these operations that a single list, used by one client at a time, could have shown?

MODEL    A list of rows.  An append adds its rows to the end, all together, or is refused because the list is not as
         long as it expected.  A read takes all from an offset on.  Each happens at one moment between its call and its
         answer; what nobody knows the outcome of happens at one moment after its call, or never.
WHY IT IS QUICK  In general such an order must be searched for.  Here the offsets give it: the list at the end names
         the order of the appends, and each read says by what it saw after which append, and before which, it stands.
         What is left is to find a moment for each, in that order: each gets the earliest that it can have, and if that
         is after its answer, then no choice would have been better.
TAILS    A tail that was given rows up to an offset shows that the append of the last of them had happened by then.

    1  the list at the end: each acknowledged append where its answer said, whole, once; refused ones nowhere
    2  what any read or tail was given is what stands at these offsets in the list at the end
    3  no read ends in the middle of an append
    4  `expect_offset` that was taken is where the rows are; one that was refused names another length
    5  a moment for each
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from tests.histories.history import Append, History, Outcome

FOR_EVER_NS = 1 << 63
NO_MOMENT = "each has a moment between its call and its answer, in the order of the offsets"


class NotLinearizable(AssertionError):
    """A promise that this history breaks."""

    def __init__(self, rule: str, *facts: object) -> None:
        self.rule = rule
        super().__init__(f"{rule}: {', '.join(map(str, facts))}")


@dataclass
class _Step:
    """An append that is in the list, and the looks at the list between it and the one before it."""

    append: Append | None
    """None: the end of the list."""
    begin: int
    end: int
    by_ns: int
    """It had happened by then."""
    since_ns: int = -1
    """It had not happened before."""
    looks: list[tuple[int, int, str]] = field(default_factory=list)
    """(from, to, what): the list was exactly `begin` long at a moment between them."""


def check(history: History) -> None:
    """NotLinearizable, with the rule that is broken, unless such an order exists."""
    steps = _steps(history)
    lengths = [step.begin for step in steps]
    for read in history.reads:
        end = read.offset + len(read.rows)
        if not read.rows:
            # The list was not longer than this at a moment of the read: what made it longer happened after it began.
            longer = bisect_left(lengths, end + 1) - 1
            steps[longer].since_ns = max(steps[longer].since_ns, read.began_ns)
            continue
        _same(history, read.offset, read.rows, f"a read of client {read.client}")
        place = bisect_left(lengths, end)
        if lengths[place] != end:
            raise NotLinearizable("no read sees a part of an append", read, steps[place - 1].append)
        steps[place].looks.append((read.began_ns, read.ended_ns, f"{read.client} read up to {end}"))
    for tail in history.tails:
        _same(history, tail.offset, tail.rows, f"a tail of client {tail.client}")
        # A follower may be given an append in pieces: it has happened by the time of the first.
        last = bisect_left(lengths, tail.offset + len(tail.rows)) - 1
        if tail.rows:
            steps[last].by_ns = min(steps[last].by_ns, tail.ended_ns)
    for append in history.appends:
        if append.outcome is Outcome.MISMATCH:
            _look_of_mismatch(append, steps, lengths)
    _moments(steps)


def _steps(history: History) -> list[_Step]:
    """The list at the end, append by append."""
    by_row: dict[int, Append] = {}
    for append in history.appends:
        for row in append.rows:
            assert row not in by_row, f"the history itself has two rows {row}"
            by_row[row] = append
    steps: list[_Step] = []
    seen: set[int] = set()
    offset = 0
    while offset < len(history.final):
        row = history.final[offset]
        found = by_row.get(row)
        if found is None:
            raise NotLinearizable("a row that nobody sent is not there", offset, row)
        if row in seen:
            raise NotLinearizable("no row is there twice", offset, row)
        end = offset + len(found.rows)
        if history.final[offset:end] != found.rows:
            raise NotLinearizable("an append is there whole and in its order", offset, found)
        if found.outcome in (Outcome.MISMATCH, Outcome.REFUSED):
            raise NotLinearizable("what was refused is not there", offset, found)
        if found.outcome is Outcome.DONE and found.offset != offset:
            raise NotLinearizable("an answer stays true", offset, found)
        if found.expected is not None and found.expected != offset:
            raise NotLinearizable("rows stand at the offset that was expected", offset, found)
        by_ns = found.ended_ns if found.outcome is Outcome.DONE else FOR_EVER_NS
        steps.append(_Step(found, offset, end, by_ns))
        seen.update(found.rows)
        offset = end
    for append in history.appends:
        if append.outcome is Outcome.DONE and append.rows[0] not in seen:
            raise NotLinearizable("what was acknowledged is there", append)
    steps.append(_Step(None, offset, offset, FOR_EVER_NS))
    return steps


def _same(history: History, offset: int, rows: tuple[int, ...], who: str) -> None:
    if history.final[offset : offset + len(rows)] != rows:
        raise NotLinearizable("what was read stays as it was", who, offset, rows)


def _look_of_mismatch(append: Append, steps: list[_Step], lengths: list[int]) -> None:
    """A refusal says how long the list was: that is a look at it."""
    assert append.offset is not None
    if append.offset == append.expected:
        raise NotLinearizable("a refusal names another offset than was expected", append)
    place = bisect_left(lengths, append.offset)
    if place == len(lengths) or lengths[place] != append.offset:
        raise NotLinearizable("a refusal names an offset at which an append begins", append)
    steps[place].looks.append((append.began_ns, append.ended_ns, f"{append.client} was told {append.offset}"))


def _moments(steps: list[_Step]) -> None:
    now_ns = -1
    for step in steps:
        earliest_ns = now_ns
        for began_ns, ended_ns, what in step.looks:
            at_ns = max(now_ns, began_ns)
            if at_ns > ended_ns:
                raise NotLinearizable(NO_MOMENT, what, step.append)
            earliest_ns = max(earliest_ns, at_ns)
        now_ns = earliest_ns
        if step.append is not None:
            now_ns = max(now_ns, step.append.began_ns, step.since_ns)
            if now_ns > step.by_ns:
                raise NotLinearizable(NO_MOMENT, step.append)
