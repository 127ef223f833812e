"""A log behind a server, for code that is given nothing but its address: tasks in processes of their own, Spark.

    hw://host:port, hws://host:port?token_file=…        protocol/address.py

BY NAME  The client stands on the lake, whose landings are its own, so the lake may not import the client; but a task is
         begun in a worker with its work alone.  So the one module that opens such addresses is named here, and it is
         imported when an address is met.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Protocol, cast

from headwater.lake.ledger import LakeLedger
from headwater.lake.source import OpenLog
from headwater.lake.work import LandWork

SCHEMES = ("hw://", "hws://")
_CLIENT = "headwater.client.lake"


class ServedLog(OpenLog, Protocol):
    """A log behind a server, connected to."""

    @property
    def ledger(self) -> LakeLedger: ...


class _Client(Protocol):
    def open_log(self, address: str) -> ServedLog: ...

    def read_frames(self, work: LandWork) -> Iterator[memoryview]: ...


def is_elsewhere(directory: str) -> bool:
    """Is this a server's address, rather than a folder or a bucket?"""
    return directory.startswith(SCHEMES)


def open_elsewhere(address: str) -> ServedLog:
    """A connection of its own; whoever asks for it closes it."""
    return _client().open_log(address)


def frames_elsewhere(work: LandWork) -> Iterator[memoryview]:
    """The frame that opens the work's segment, then the frames that the work asks for, as they lie in the log, in LSN
    order.  Nothing of them has been checked."""
    return _client().read_frames(work)


def _client() -> _Client:
    return cast(_Client, importlib.import_module(_CLIENT))
