"""Where the data is: the argument DATA of every `log` command, and the option `--data` of all others.

DATA     is a directory that holds the log in `log/`, the metadata in `journal/`, and what has landed in `ledger/`; or a
         prefix of a bucket with the same in it, as `s3://bucket/prefix` (docs/objects.md).
SERVER   `--data` may be the address of a server instead, as `hw://host:port` (docs/operating.md); the `log` commands
         look at the files themselves, and are run where those are.
ORDER    `--data`, then the environment's HEADWATER_DATA, then `data` in the working directory's headwater.toml.
         `--catalog`, HEADWATER_CATALOG and `catalog` likewise; in the file it may be a table of pyiceberg's properties.
PROMISE  Only a command that makes something makes a directory; all others say that there is nothing.
"""

from __future__ import annotations

import os
import shlex
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.errors import InvalidRequest, Unavailable
from headwater.log.names import sort_names
from headwater.log.object_files import LogsAsFiles
from headwater.log.object_look import Asking
from headwater.log.slots import TRIM
from headwater.protocol.address import is_server
from headwater.settings import ClientSettings, Settings
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.disk import DiskFiles
from headwater.storage.files import Files
from headwater.storage.objects import StoreUnsure
from headwater.storage.places import is_bucket, open_files

if TYPE_CHECKING:
    from headwater.api import Log

LOG = "log"
JOURNAL = "journal"
CATALOG, LAKE = "catalog.db", "lake"
LEDGER = "ledger"
SETTINGS_FILE = "headwater.toml"
FIRST_TRIES = 2
"""So often a store is asked whether it is there at all: whoever gave a wrong address hears of it soon."""
FIRST_ANSWER_S = 3.0
"""So long a server is waited for at first, likewise; what it is asked later is tried for longer."""
FILES_THEMSELVES = (
    "this looks at the files of the log themselves: run it where they are, with their directory or s3://bucket/prefix "
    "in place of the server's address"
)


def _there(value: str) -> str:
    """A directory that is there, or the address of a bucket."""
    if is_server(value):
        raise typer.BadParameter(f"{value} is a server: {FILES_THEMSELVES}.")
    if not is_bucket(value):
        path = Path(value)
        if not path.exists():
            raise typer.BadParameter(f"Directory {value!r} does not exist.")
        if not path.is_dir():
            raise typer.BadParameter(f"Directory {value!r} is a file.")
    return value


Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        callback=_there,
        help="The data directory, the one that holds `log/`; or s3://bucket/prefix.",
        show_default=False,
    ),
]

DataOption = Annotated[
    str | None,
    typer.Option(
        "--data",
        envvar="HEADWATER_DATA",
        metavar="DIR|s3://BUCKET/PREFIX|hw://HOST:PORT",
        help="The data directory, a prefix of a bucket, or a server. Without it: what `data` in ./headwater.toml says.",
        show_default=False,
    ),
]

TakeOver = Annotated[
    bool,
    typer.Option(
        "--take-over",
        help="On a bucket: write although another owner seems to be alive. That owner is fenced: it can no longer "
        "acknowledge anything.",
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


def open_data(data: str) -> Files:
    """What a data directory or a prefix holds, to be looked at: a log, or its metadata alone; InvalidRequest where it
    holds none.  The logs of a bucket are shown as files would show them."""
    files: Files = reached(data)
    if isinstance(files, BucketFiles):
        files = LogsAsFiles(files, Asking(files.objects, files.patience)).as_files()
    if _holds_log(files, LOG) or _holds_log(files, JOURNAL):
        return files
    if _holds_log(files, "") or TRIM in files.list(""):
        above = shlex.quote(data.rstrip("/").rpartition("/")[0] if is_bucket(data) else str(Path(data).parent))
        raise InvalidRequest(f"{data} is the log itself; give the directory above it: {above}")
    raise InvalidRequest(f"{data} holds no log; give the {'prefix' if is_bucket(data) else 'directory'} of `log/`")


def reached(data: str) -> DiskFiles | BucketFiles:
    """The files of this place, which is no server.  Unavailable where a store does not answer, InvalidRequest where it
    will not let us in: both within seconds, because what was given is more likely wrong than a store is down."""
    refuse_server(data)
    files = open_files(data)
    if isinstance(files, BucketFiles):
        try:
            files.patience.ask(lambda: files.objects.list_after("", limit=1), tries=FIRST_TRIES)
        except StoreUnsure as error:
            # The last words say what happened; those before, which request it was.
            why = (error.strerror or str(error)).rpartition(" - ")[2]
            endpoint = os.environ.get("AWS_ENDPOINT_URL")
            look_at = (
                f"AWS_ENDPOINT_URL ({endpoint})" if endpoint else "AWS_REGION, and AWS_ENDPOINT_URL if it is not AWS"
            )
            raise Unavailable(
                f"the store of {data} does not answer: {why}; look at {look_at} and the network"
            ) from error
    return files


def refuse_server(data: str) -> None:
    """InvalidRequest for what is done where the files are."""
    if is_server(data):
        raise InvalidRequest(FILES_THEMSELVES, data=data)


def refuse_bucket(data: str, why: str) -> None:
    """InvalidRequest for what is done with files alone."""
    if is_bucket(data):
        raise InvalidRequest(why, data=data)


@contextmanager
def open_topics(
    given: str | None,
    *,
    making: bool = False,
    catalog: str | None = None,
    settings: Settings | None = None,
    take_over: bool = False,
) -> Iterator[Log]:
    """The log of the data directory that was meant, or of the server.  Reading claims nothing; the first write takes
    the lock."""
    data = locate(given)
    named = catalog if catalog is not None else configured_catalog()
    if is_server(data):
        with _connected(data, named, settings, take_over=take_over) as log:
            yield log
        return
    if take_over and not is_bucket(data):
        raise InvalidRequest("--take-over is for buckets: on a disk, stop the process that has the lock", data=data)
    if not making:
        require_topics(data)
    from headwater import api

    with api.open(data, catalog=named, settings=settings, take_over=take_over) as log:
        yield log


@contextmanager
def _connected(
    data: str, catalog: str | dict[str, Any] | None, settings: Settings | None, *, take_over: bool
) -> Iterator[Log]:
    if take_over:
        raise InvalidRequest("--take-over is for buckets: a server has its log already, and stays its owner", data=data)
    from headwater.api.connecting import connect
    from headwater.client.connecting import connect_to

    # An address is more likely wrong than a server is down: who gave it hears of it within seconds.
    first = connect_to(data, settings=ClientSettings(retry_s=FIRST_ANSWER_S))
    try:
        first.hello  # noqa: B018  what it says is of no matter, that it answers is
    finally:
        first.close()
    with connect(data, catalog=catalog, settings=settings) as log:
        yield log


def locate(given: str | None) -> str:
    """The data directory that was meant; InvalidRequest where nothing says so."""
    data = given or _from_settings_file()
    if data is None:
        raise InvalidRequest(
            f'say where the data is: --data DIR, or HEADWATER_DATA=DIR, or `data = "DIR"` in {SETTINGS_FILE}; '
            "in place of DIR s3://bucket/prefix for a bucket, hw://host:port for a server"
        )
    return data


def require_topics(data: str) -> None:
    """InvalidRequest where no log was ever begun, so that a wrong name does not become an empty directory."""
    files = reached(data)
    if files.list(JOURNAL) or files.list(LOG):
        return
    quoted = shlex.quote(data)
    if {CATALOG, LAKE} & set(files.list("")):
        # Whoever began a log here would begin another one than the tables are of.
        raise InvalidRequest(
            f"{data} holds tables and no log: if that was lost, `headwater log restore {quoted} --from-lake` makes one "
            "from them"
        )
    raise InvalidRequest(f"{data} holds no log; `headwater topic create NAME --data {quoted}` begins one")


def _from_settings_file() -> str | None:
    data = _settings_file().get("data")
    if data is not None and not isinstance(data, str):
        raise InvalidRequest(
            f"{SETTINGS_FILE}: `data` is a directory, s3://bucket/prefix or hw://host:port, as a string, not {data!r}"
        )
    return data or None


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


def _holds_log(files: Files, directory: str) -> bool:
    listing = sort_names(files.list(directory))
    return bool(listing.segments or listing.indexes or listing.mark)
