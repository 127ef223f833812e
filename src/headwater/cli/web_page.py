"""`headwater status --web DIR`: the web page of a log in one file, for whoever has no server, or wants to send it on.

PROMISE  DIR/index.html is whole at every moment: it is written aside and renamed.  Nothing else in DIR is touched.
WATCH    Every few seconds it is written anew, with the history since the watch began, and a browser that shows it reads
         it again; the last one, at the end, tells it to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING

from headwater.cli.output import printable, remarks, results, say
from headwater.clock import Clock, system_entropy
from headwater.errors import HeadwaterError, InvalidRequest
from headwater.page.assets import file_page
from headwater.page.document import EVERYTHING, Question, page_document
from headwater.page.ledger_tail import PIECE_BYTES, LedgerTail
from headwater.page.looking import Looking, Seen
from headwater.protocol.address import is_server
from headwater.storage.disk import DiskFiles, space_of
from headwater.storage.places import is_bucket, open_files

if TYPE_CHECKING:
    from headwater.api import Log

FILE = "index.html"
TEMPORARY = "index.html.tmp"
EVERY_S = 5.0
TOPICS_MAX = 2_000
"""In the file; a server is asked for more."""


def write_page(log: Log, data: str, directory: str, clock: Clock, *, watch: bool, ended: Event) -> None:
    """Write the page once, or again and again until somebody has seen enough."""
    if is_bucket(directory):
        raise InvalidRequest("--web writes into a directory of this machine", got=directory)
    files = DiskFiles(directory)
    files.make_directory("")
    with _ledger_of(data, clock) as tail:
        looking = Looking(lambda: _seen(log, data, tail), clock)

        def write(again_s: float | None) -> None:
            content = page_document(
                looking.now(),
                looking.points,
                EVERYTHING,
                Question(topics_max=TOPICS_MAX),
                source="file",
                again_s=again_s,
            )
            _write(files, file_page(content))

        where = printable(f"{directory.rstrip('/') or '/'}/{FILE}")
        if not watch:
            write(None)
            say(results(), f"wrote {where}")
            return
        write(EVERY_S)
        say(results(), f"writing {where} every {EVERY_S:.0f} s, until Ctrl-C")
        _again(lambda: write(EVERY_S), ended)
        write(None)


def _again(write: Callable[[], None], ended: Event) -> None:
    try:
        while not ended.wait(EVERY_S):
            write()
    except KeyboardInterrupt:
        return


def _seen(log: Log, data: str, tail: LedgerTail) -> Seen:
    status = log.status()
    try:
        tail.read()
    except (HeadwaterError, OSError) as error:
        # What was known stays on the page, and the status has the same trouble among its notes.
        say(remarks(), f"the ledger cannot be read: {printable(str(error))}", "yellow")
    on_disk = not is_server(data) and not is_bucket(data)
    return Seen(status, tail.landings(), tail.audits(), tail.names, space_of(data) if on_disk else None)


@contextmanager
def _ledger_of(data: str, clock: Clock) -> Iterator[LedgerTail]:
    """The end of the ledger of these files, or of a server's."""
    if is_server(data):
        from headwater.client.connecting import connect_to
        from headwater.protocol.lake_calls import LEDGER_AFTER, AtLsn

        connection = connect_to(data)
        try:
            yield LedgerTail(lambda lsn: connection.call(LEDGER_AFTER, AtLsn(lsn)))
        finally:
            connection.close()
        return
    from headwater.lake.ledger import Ledger

    ledger = Ledger(open_files(data), clock=clock, entropy=system_entropy)
    try:
        yield LedgerTail(lambda lsn: ledger.page(lsn, PIECE_BYTES))
    finally:
        ledger.close()


def _write(files: DiskFiles, content: bytes) -> None:
    if TEMPORARY in files.list(""):
        # Somebody was killed while writing.
        files.unlink(TEMPORARY)
    file = files.create(TEMPORARY)
    try:
        file.append([content])
    finally:
        file.close()
    files.rename(TEMPORARY, FILE)
