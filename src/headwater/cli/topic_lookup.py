"""The topic that a command names; where there is none, the names that are near it and how to make one."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from headwater.errors import UnknownTopic

if TYPE_CHECKING:
    from headwater.api import Log, Topic


def topic_named(log: Log, name: str) -> Topic:
    try:
        return log.topic(name)
    except UnknownTopic as error:
        raise _unknown(log, name) from error


def _unknown(log: Log, name: str) -> UnknownTopic:
    near = get_close_matches(name, [each.name for each in log.topics()], n=3)
    hint = f"; did you mean {' or '.join(near)}?" if near else "."
    return UnknownTopic(
        f'there is no topic {name!r}{hint} To make it: headwater topic create {name} --schema "id:int64,note:string?"'
    )
