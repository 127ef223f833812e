"""What a topic may be called.

PROMISE  A name that passes here passes in Kafka too, and can stand in a URL, a metric's label and a shell word
         without quotes.
NOT HERE Files: no file or directory is ever named by a topic, so no name can lead out of a data directory.
"""

from __future__ import annotations

import re

from headwater.errors import InvalidRequest

NAME_LENGTH_MAX = 249
REJECTED_SUFFIX = ".rejected"

_ALLOWED = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Kafka's rule: 1 to 249 of a-z A-Z 0-9 . _ - and neither "." nor ".."; raises InvalidRequest."""
    if not isinstance(name, str):
        raise InvalidRequest(f"a topic's name is a string, not {type(name).__name__}")
    if not name:
        raise InvalidRequest("a topic's name may not be empty")
    if len(name) > NAME_LENGTH_MAX:
        raise InvalidRequest(
            f"a topic's name has at most {NAME_LENGTH_MAX} characters", length=len(name), name=name[:40] + "..."
        )
    if name in {".", ".."}:
        raise InvalidRequest(f"a topic may not be named {name!r}")
    if _ALLOWED.fullmatch(name) is None:
        raise InvalidRequest(f"a topic's name is made of letters a-z A-Z, digits, '.', '_' and '-': {name!r} is not")


def rejected_name(name: str) -> str:
    """The topic that keeps the rows that do not fit `name`; InvalidRequest if there is no room for the suffix."""
    rejected = name + REJECTED_SUFFIX
    if len(rejected) > NAME_LENGTH_MAX:
        raise InvalidRequest(
            f"{name!r} is too long to keep rejected rows: {REJECTED_SUFFIX!r} would take it above "
            f"{NAME_LENGTH_MAX} characters"
        )
    return rejected
