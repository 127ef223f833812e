"""Errors as Flight tells them: gRPC's own word for what any client understands, and all of it beside that.

PROMISE  What is no error of ours does not travel: it is written to the server's log with its stack, and whoever called
         is told only that there was one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyarrow import flight

from headwater.errors import HeadwaterError, Unauthenticated, Unavailable
from headwater.protocol.trailers import status_text, trailer_of
from headwater.server.memory import NO_MEMORY

logger = logging.getLogger("headwater.server")

OWN_ERROR = "the server met an error of its own, and has written it to its log"

Outward = Callable[[HeadwaterError], HeadwaterError]
"""An error as callers are told."""


def flight_error(error: HeadwaterError) -> flight.FlightError:
    kind = flight.FlightServerError
    if isinstance(error, Unauthenticated):
        kind = flight.FlightUnauthenticatedError
    elif isinstance(error, Unavailable):
        kind = flight.FlightUnavailableError
    return kind(status_text(error), trailer_of(error))


@contextmanager
def told(outward: Outward) -> Iterator[None]:
    """Around whatever answers a call."""
    try:
        yield
    except flight.FlightError:
        raise
    except HeadwaterError as error:
        raise flight_error(outward(error)) from error
    except MemoryError as error:
        # Arrow's memory has a ceiling (memory.py), and what was sent did not fit under it.
        raise flight_error(Unavailable(NO_MEMORY)) from error
    except Exception as error:  # whatever it is, it is ours: it is told here, and not to strangers
        logger.exception("a call failed")
        raise flight.FlightInternalError(OWN_ERROR) from error
