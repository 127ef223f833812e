"""A protocol's generator, played by hand: given replies go in, and what it asked and how it ended come out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headwater.log.asks import Asking, Reply


@dataclass
class Played:
    asked: list[Any]
    """Every question, in order."""
    ended: bool
    result: Any = None


def play(asking: Asking[Any], *replies: Reply) -> Played:
    """Answer its questions in order; it may end sooner or later than the replies do."""
    played = Played([], ended=False)
    try:
        played.asked.append(next(asking))
        for reply in replies:
            played.asked.append(asking.send(reply))
    except StopIteration as end:
        played.ended = True
        played.result = end.value
    return played
