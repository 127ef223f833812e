"""Asking a store again, when it did not say what became of a request.

PROMISE  Only StoreUnsure is asked again: every other outcome is an answer.  After TRIES, when about half a minute has
         passed, it is StoreUnavailable: to those who know files an OSError, to those who called us Unavailable.
PUTS     `put_new`, `put_over` and `put_anyway` put on a condition, and when they are refused look at what is there: the
         same bytes are as good as a put.  So a first try whose reply was lost is not taken for somebody else's, and one
         that is done late changes nothing; but it may bring back a name that was removed meanwhile.
SLEEP    `pause` is given, so that a simulation never sleeps.
NOT HERE What an outcome means.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TypeVar

from headwater.clock import Entropy
from headwater.errors import Unavailable
from headwater.storage.files import Buffer
from headwater.storage.objects import Changed, Exists, Found, Objects, StoreUnsure

TRIES = 11
FIRST_PAUSE_S = 0.1
PAUSE_S_MAX = 5.0

Answer = TypeVar("Answer")


class Patience:
    """Asks until the store has answered, or has not answered for long."""

    def __init__(self, entropy: Entropy, pause: Callable[[float], object]) -> None:
        self._entropy = entropy
        self._pause = pause

    def ask(self, request: Callable[[], Answer], *, tries: int = TRIES) -> Answer:
        pause_s = FIRST_PAUSE_S
        for _ in range(tries - 1):
            try:
                return request()
            except StoreUnsure:
                # Between half the pause and all of it, so that those who failed together do not ask together.
                self._pause(pause_s * (0.5 + self._entropy(1)[0] / 510))
                pause_s = min(2 * pause_s, PAUSE_S_MAX)
        try:
            return request()
        except StoreUnsure as error:
            raise StoreUnavailable(f"the store does not answer: {error}") from error


class StoreUnavailable(StoreUnsure, Unavailable):
    """The store did not say what became of a request, however often it was asked."""

    def __init__(self, message: str) -> None:
        Unavailable.__init__(self, message)
        self.errno = errno.EAGAIN


def put_new(patience: Patience, objects: Objects, name: str, data: Buffer) -> str:
    """Put it where nothing is, and give its etag; FileExistsError where the name holds other bytes.  Where it holds the
    same bytes this is done: an earlier try of ours did it, or somebody who wanted the same."""
    for _ in range(TRIES):
        try:
            return patience.ask(lambda: objects.put_if_absent(name, data))
        except Exists as exists:
            found = _find(patience, objects, name)
            if found is None:
                continue  # removed between the two requests
            if found.data == data:
                return found.etag
            raise FileExistsError(errno.EEXIST, "the store holds other bytes under this name", name) from exists
    raise _restless(name)


def put_over(patience: Patience, objects: Objects, name: str, data: Buffer, etag: str) -> str:
    """Put it over what has this etag, and give its own; OSError (ESTALE) where the name holds something else, or
    nothing."""
    try:
        return patience.ask(lambda: objects.put_if_match(name, data, etag))
    except Changed as changed:
        found = _find(patience, objects, name)
        if found is not None and found.data == data:
            return found.etag
        raise OSError(errno.ESTALE, "somebody else has changed or removed this file", name) from changed


def put_anyway(patience: Patience, objects: Objects, name: str, data: Buffer) -> str:
    """Put it over whatever is there, and give its etag.  Each try is bound to what is there now, so that none which is
    done late can undo a later put; one request where nothing is there."""
    found: Found | None = None
    for _ in range(TRIES):
        try:
            return patience.ask(lambda: _put_on(objects, name, data, found))  # noqa: B023 (it is asked before the next)
        except (Exists, Changed):
            found = _find(patience, objects, name)
            if found is not None and found.data == data:
                return found.etag
    raise _restless(name)


def _put_on(objects: Objects, name: str, data: Buffer, found: Found | None) -> str:
    if found is None:
        return objects.put_if_absent(name, data)
    return objects.put_if_match(name, data, found.etag)


def _find(patience: Patience, objects: Objects, name: str) -> Found | None:
    try:
        return patience.ask(lambda: objects.get(name))
    except FileNotFoundError:
        return None


def _restless(name: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"{name} was changed by others between each of {TRIES} looks at it and the put that followed"
    )
