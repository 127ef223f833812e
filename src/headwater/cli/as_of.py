"""The option `--as-of`: the point at which topics are read.

hwcut1.…                     the token of a cut
lsn:7                        an LSN
15min, 2h, 7d                so long ago
2026-11-15T02:55:13Z         a moment, by append time; one without a zone is UTC
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

import typer

from headwater.cli.read_range import parse_place
from headwater.errors import InvalidRequest

if TYPE_CHECKING:
    from headwater.clock import Clock
    from headwater.lake.view import AsOf

AsOfOption = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        metavar="POINT",
        help="As it was at a cut (its token), lsn:7, 15min (ago), or 2026-11-15T02:55:13Z. Without it: now.",
        show_default=False,
    ),
]


def parse_as_of(text: str | None, clock: Clock) -> AsOf:
    """The point that the text names; InvalidRequest lists what it may be."""
    if text is None or text.startswith("hwcut"):
        return text
    try:
        found = parse_place(text, 0, clock)
    except InvalidRequest:
        found = text
    if isinstance(found, str | dict) or type(found) is int:
        raise InvalidRequest(
            f"{text!r} is no point to read at; one is: the token of a cut, lsn:7, 15min (ago), or 2026-11-15T02:55:13Z"
        )
    return cast("AsOf", found)
