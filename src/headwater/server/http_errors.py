"""Errors over HTTP: a status by kind, and what is known as JSON.

    {"error": "RowsRefused", "message": "...", "facts": {...}, "refused": [{"row": 0, "reason": "..."}]}

status   kind
400      InvalidRequest (RowsRefused names the rows), and what is no HTTP
401      Unauthenticated
403      NotAllowed
404      UnknownTopic, UnknownPartition, and a path that is not there
405      a method that the path does not have
409      Conflict
413      TooLarge
415      a content type that is not known
429      a principal that is ahead of its rate, or has too many streams
503      Unavailable, OutcomeUnknown, Poisoned, Halted, Closed: what may work later, or elsewhere; with Retry-After
500      anything else: a bug, told here without details and in the server's log with them

PROMISE  Nothing but a HeadwaterError is told to a caller in its own words.
"""

from __future__ import annotations

import logging

import msgspec
from starlette.responses import Response

from headwater.errors import (
    Closed,
    Conflict,
    HeadwaterError,
    InvalidRequest,
    LogLocked,
    NotAllowed,
    RowsRefused,
    TooLarge,
    Unauthenticated,
    Unavailable,
    UnknownPartition,
    UnknownTopic,
)
from headwater.protocol.failures import failure_of

logger = logging.getLogger("headwater.http")

RETRY_AFTER_S = 1


class UnsupportedMediaType(InvalidRequest):
    """A body of a type that no door here reads."""


class TooMany(Unavailable):
    """This principal asks for more than it may have at a time."""


_STATUS: tuple[tuple[type[HeadwaterError], int], ...] = (
    (Unauthenticated, 401),
    (NotAllowed, 403),
    (UnknownTopic, 404),
    (UnknownPartition, 404),
    (TooLarge, 413),
    (UnsupportedMediaType, 415),
    (Closed, 503),
    (InvalidRequest, 400),
    (LogLocked, 503),
    (Conflict, 409),
    (TooMany, 429),
    (HeadwaterError, 503),
)
"""The first that is a kind of the error says it."""


def status_of(error: HeadwaterError) -> int:
    return next(status for kind, status in _STATUS if isinstance(error, kind))


def json_response(content: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """As JSON; a number that is none is null there."""
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")


def error_response(error: HeadwaterError) -> Response:
    failure = failure_of(error)
    status = status_of(error)
    content: dict[str, object] = {
        "error": type(error).__name__,
        "message": failure.message,
        "facts": failure.facts,
    }
    if isinstance(error, RowsRefused):
        content["rows"] = failure.rows
        content["refused_count"] = failure.refused_count
        content["refused"] = [{"row": number, "reason": reason} for number, reason in failure.refused]
    headers = {}
    if status in (429, 503):
        headers["retry-after"] = str(RETRY_AFTER_S)
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return json_response(content, status, headers)


def bug_response(error: BaseException, what: str) -> Response:
    """Something that nobody meant: the log has all of it, the caller nothing."""
    logger.error("%s ended in a bug", what, exc_info=error)
    content = {"error": "InternalError", "message": "the server met a bug of its own: its log says more", "facts": {}}
    return json_response(content, 500)
