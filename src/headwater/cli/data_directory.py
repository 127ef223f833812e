"""The argument DATA of every `log` command: the data directory, which holds the log in `log/`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from headwater.errors import InvalidRequest
from headwater.log.names import sort_names
from headwater.storage.disk import DiskFiles

LOG = "log"

Data = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        exists=True,
        file_okay=False,
        help="The data directory: the one that holds `log/`.",
        show_default=False,
    ),
]

AsJson = Annotated[bool, typer.Option("--json", help="One versioned JSON object on stdout, for programs.")]

LogStart = Annotated[
    int | None,
    typer.Option(
        "--log-start",
        min=1,
        metavar="LSN",
        help="The first LSN that the log must still hold. Without it the log may begin anywhere: whether what came "
        "before was deleted or lost is then not judged.",
        show_default=False,
    ),
]


def open_data(data: Path) -> DiskFiles:
    """The files of a data directory that holds a log; InvalidRequest where it does not."""
    files = DiskFiles(data)
    if _holds_log(files, LOG):
        return files
    if _holds_log(files, ""):
        above = shlex.quote(str(data.parent))
        raise InvalidRequest(f"{data} is the log itself; give the directory above it: {above}")
    raise InvalidRequest(f"{data} holds no log; give the directory in which `log/` is")


def _holds_log(files: DiskFiles, directory: str) -> bool:
    listing = sort_names(files.list(directory))
    return bool(listing.segments or listing.indexes or listing.mark)
