"""What a topic may be called.

PROMISE  A name that passes here passes in Kafka too, and can stand in a URL, a metric's label and a shell word
         without quotes.
NOT HERE Files: no file or directory is ever named by a topic, so no name can lead out of a data directory.
"""

from __future__ import annotations

import operator
import re

from headwater.errors import InvalidRequest

NAME_LENGTH_MAX = 249
OTHER_NAME_BYTES_MAX = 255
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


def checked_name(name: object, what: str) -> str:
    """The name of a producer, a source or a group: any text of 1 to 255 bytes."""
    if not isinstance(name, str):
        raise InvalidRequest(f"the name of a {what} is a string, not {type(name).__name__}")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidRequest(f"the name of a {what} is text that UTF-8 can hold: {name!r} is not") from None
    if not 1 <= size <= OTHER_NAME_BYTES_MAX:
        raise InvalidRequest(f"the name of a {what} has 1 to {OTHER_NAME_BYTES_MAX} bytes", bytes=size)
    return name


def whole_number(value: object, what: str) -> int:
    """A number that was given by a caller, as Python's own: numpy's and others' are taken, floats are not."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidRequest(f"{what} is a whole number, not {value!r}") from None
