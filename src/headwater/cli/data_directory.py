"""Where the data is: the argument DATA of every `log` command, and the option `--data` of all others.

DATA     is a directory that holds the log in `log/`, the metadata in `journal/`, and what has landed in `ledger/`.
ORDER    `--data`, then the environment's HEADWATER_DATA, then `data` in the working directory's headwater.toml.
         `--catalog`, HEADWATER_CATALOG and `catalog` likewise; in the file it may be a table of pyiceberg's properties.
PROMISE  Only a command that makes something makes a directory; all others say that there is nothing.
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.errors import InvalidRequest
from headwater.log.names import sort_names
from headwater.settings import Settings
from headwater.storage.disk import DiskFiles

if TYPE_CHECKING:
    from headwater.api import Log

LOG = "log"
JOURNAL = "journal"
CATALOG, LAKE = "catalog.db", "lake"
LEDGER = "ledger"
SETTINGS_FILE = "headwater.toml"

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

DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        envvar="HEADWATER_DATA",
        metavar="DIR",
        help="The data directory. Without it: what `data` in ./headwater.toml says.",
        show_default=False,
    ),
]

CatalogOption = Annotated[
    str | None,
    typer.Option(
        "--catalog",
        envvar="HEADWATER_CATALOG",
        metavar="NAME",
        help="The catalog, by its name in pyiceberg's configuration. Without it: what `catalog` in ./headwater.toml "
        "says, else SQLite in the data directory.",
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
        help="The first LSN that the log must still hold. Without it the journal says so; without a journal the log "
        "may begin anywhere: whether what came before was deleted or lost is then not judged.",
        show_default=False,
    ),
]


def open_data(data: Path) -> DiskFiles:
    """The files of a data directory that holds a log, or its metadata alone; InvalidRequest where it does not."""
    files = DiskFiles(data)
    if _holds_log(files, LOG) or _holds_log(files, JOURNAL):
        return files
    if _holds_log(files, ""):
        above = shlex.quote(str(data.parent))
        raise InvalidRequest(f"{data} is the log itself; give the directory above it: {above}")
    raise InvalidRequest(f"{data} holds no log; give the directory in which `log/` is")


@contextmanager
def open_topics(
    given: Path | None, *, making: bool = False, catalog: str | None = None, settings: Settings | None = None
) -> Iterator[Log]:
    """The log of the data directory that was meant.  Reading claims nothing; the first write takes the lock."""
    data = locate(given)
    if not making:
        require_topics(data)
    from headwater import api

    with api.open(data, catalog=catalog if catalog is not None else configured_catalog(), settings=settings) as log:
        yield log


def locate(given: Path | None) -> Path:
    """The data directory that was meant; InvalidRequest where nothing says so."""
    data = given if given is not None else _from_settings_file()
    if data is None:
        raise InvalidRequest(
            f'say where the data is: --data DIR, or HEADWATER_DATA=DIR, or `data = "DIR"` in {SETTINGS_FILE}'
        )
    return data


def require_topics(data: Path) -> None:
    """InvalidRequest where no log was ever begun, so that a wrong name does not become an empty directory."""
    files = DiskFiles(data)
    if files.list(JOURNAL) or files.list(LOG):
        return
    quoted = shlex.quote(str(data))
    if {CATALOG, LAKE} & set(files.list("")):
        # Whoever began a log here would begin another one than the tables are of.
        raise InvalidRequest(
            f"{data} holds tables and no log: if that was lost, `headwater log restore {quoted} --from-lake` makes one "
            "from them"
        )
    raise InvalidRequest(f"{data} holds no log; `headwater topic create NAME --data {quoted}` begins one")


def _from_settings_file() -> Path | None:
    data = _settings_file().get("data")
    if data is not None and not isinstance(data, str):
        raise InvalidRequest(f"{SETTINGS_FILE}: `data` is a directory as a string, not {data!r}")
    return Path(data) if data else None


def configured_catalog() -> str | dict[str, Any] | None:
    """What the settings file says of the catalog; None where it says nothing."""
    catalog = _settings_file().get("catalog")
    if catalog is not None and not isinstance(catalog, str | dict):
        raise InvalidRequest(f"{SETTINGS_FILE}: `catalog` is a name or a table of properties, not {catalog!r}")
    return catalog or None


def _settings_file() -> dict[str, Any]:
    files = DiskFiles(Path())
    if SETTINGS_FILE not in files.list(""):
        return {}
    file = files.open(SETTINGS_FILE)
    try:
        text = file.read_at(0, file.size()).decode()
    finally:
        file.close()
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidRequest(f"{SETTINGS_FILE} cannot be read: {error}") from error


def _holds_log(files: DiskFiles, directory: str) -> bool:
    listing = sort_names(files.list(directory))
    return bool(listing.segments or listing.indexes or listing.mark)
