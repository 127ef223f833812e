"""Many open streams of one server, as cheap as they can be had: bare Flight clients, no thread until somebody reads.

NOT HERE What a user has in hand: `topic.read(follow=True)`.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, Self

from pyarrow import flight

from headwater.errors import HeadwaterError
from headwater.protocol.codec import VERSION, pack, unpack
from headwater.protocol.failures import Failure, error_of
from headwater.protocol.places import AtWord
from headwater.protocol.streams import ReadRows

STREAMS_A_CONNECTION = 50


class OpenStreams:
    """Followers of topics, each a stream of its own."""

    def __init__(self, port: int) -> None:
        self._location = f"grpc://127.0.0.1:{port}"
        self._clients: list[Any] = []
        self._room = 0
        self._readers: list[Any] = []
        self._live: list[threading.Thread] = []
        self.rows = 0
        """That live readers were given."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for reader in self._readers:
            reader.cancel()
        for thread in self._live:
            thread.join(30)
            assert not thread.is_alive(), "a reader that was cancelled did not end"
        for client in self._clients:
            client.close()
        self._readers, self._clients, self._live, self._room = [], [], [], 0

    def open(self, topic_id: str, *, start: str = "latest") -> Any:
        """One more follower; it has the schema, and no row was asked for."""
        if not self._room:
            self._clients.append(flight.FlightClient(self._location))
            self._room = STREAMS_A_CONNECTION
        self._room -= 1
        ticket = ReadRows(bytes.fromhex(topic_id), AtWord(start), follow=True)
        options = flight.FlightCallOptions(headers=[(b"hw-version", str(VERSION).encode())])
        reader = self._clients[-1].do_get(flight.Ticket(pack(ticket)), options)
        self._readers.append(reader)
        return reader

    def open_live(self, topic_id: str) -> None:
        """One that takes what comes, as it comes."""
        reader = self.open(topic_id)
        thread = threading.Thread(target=self._take, args=(reader,), daemon=True)
        thread.start()
        self._live.append(thread)

    def _take(self, reader: Any) -> None:
        try:
            while True:
                self.rows += reader.read_chunk().data.num_rows
        except (flight.FlightCancelledError, StopIteration):
            return


def told(error: flight.FlightError) -> HeadwaterError:
    """What the server meant."""
    return error_of(unpack(error.extra_info, Failure))
