"""What a shell may put in for a TOPIC: the names in the metadata journal of the data directory that was meant.

PROMISE   A look: no lock is taken, nothing is recovered, no byte is written, and nothing is asked over a network.
          What cannot be looked at gives no names: a shell has no place for an error.
"""

from __future__ import annotations

from collections.abc import Iterator

import typer

from headwater.cli.data_directory import JOURNAL, locate
from headwater.clock import SystemClock, system_entropy
from headwater.errors import HeadwaterError
from headwater.metadata.journal import open_journal
from headwater.protocol.address import is_server
from headwater.settings import Settings
from headwater.storage.disk import DiskFiles
from headwater.storage.places import is_bucket


def topic_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The names that begin like this, for the shell that asks."""
    try:
        return sorted(name for name in _names_in(locate(ctx.params.get("data"))) if name.startswith(incomplete))
    except (HeadwaterError, OSError):
        return []


def _names_in(data: str) -> Iterator[str]:
    if is_server(data) or is_bucket(data):
        return
    files = DiskFiles(data)
    if not files.list(JOURNAL):
        return
    with open_journal(
        files, JOURNAL, settings=Settings().journal, clock=SystemClock(), entropy=system_entropy
    ) as journal:
        yield from (topic.name for topic in journal.state.topics.values())
