"""One DoPut stream of appends to a topic: messages go out in order, answers come back in order.

PROMISE  `answered` is called for each answer, and `broke` once, when no more will come; both by one thread of the
         stream's own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pyarrow as pa
from pyarrow import flight

from headwater.client.connection import Connection, ServerLost, as_our_errors, our_error
from headwater.client.requests import Message
from headwater.client.threads import join, started
from headwater.errors import HeadwaterError
from headwater.metadata.operations import TopicRecord
from headwater.protocol.codec import pack, unpack
from headwater.protocol.streams import AppendStream as Command
from headwater.protocol.streams import RowsAnswer
from headwater.topics.schema import unpack_schema

logger = logging.getLogger("headwater.client")


class AppendStream:
    def __init__(
        self,
        connection: Connection,
        topic_id: bytes,
        topic: TopicRecord,
        answered: Callable[[AppendStream, RowsAnswer], None],
        broke: Callable[[AppendStream, BaseException], None],
    ) -> None:
        self.version = len(topic.schemas)
        self.sending = threading.Lock()
        """Held by whoever writes, says that no more will come, or closes: two of these at once abort the process."""
        self._connection = connection
        self._answered = answered
        self._broke = broke
        self._abandoned = False
        with as_our_errors():
            self._client, options = connection.stream()
            command = flight.FlightDescriptor.for_command(pack(Command(topic_id, self.version)))
            self._writer, self._reader = self._client.do_put(command, unpack_schema(topic.schemas[-1]), options)
        self._answers = started(self._read, "headwater-answers")

    def write(self, message: Message) -> None:
        """Send it; ServerLost where the stream is broken."""
        if self._abandoned:
            raise ServerLost("this stream is over")
        message.sends += 1
        try:
            self._writer.write_with_metadata(message.batch, message.metadata())
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            raise ServerLost(str(error)[:200]) from error

    def _read(self) -> None:
        try:
            while True:
                with as_our_errors():
                    data = self._reader.read()
                if data is None:
                    # The server ends a stream with an error where there was one: closing is how to be told.
                    with self.sending, as_our_errors():
                        self._writer.close()
                    raise ServerLost("the server ended the stream")
                self._answered(self, unpack(memoryview(data), RowsAnswer))
        except (ServerLost, HeadwaterError) as error:
            self._broke(self, error)
        except (flight.FlightError, pa.ArrowException, OSError, StopIteration) as error:
            self._broke(self, our_error(error))

    def abandon(self, *, lost: bool) -> None:
        """Nothing more is sent on it, and what it answers is not heard."""
        self._abandoned = True
        if lost:
            self._connection.lost(self._client)
        # The server is told, so that it keeps no stream open for nobody; by a thread of its own, because whoever writes
        # to a dead connection may hang there.
        started(self.end, "headwater-ends")

    def end(self) -> None:
        """Say that no more will come, and wait a moment for the server to end it, too."""
        self._abandoned = True
        with self.sending:
            try:
                self._writer.done_writing()
            except (flight.FlightError, pa.ArrowException, OSError) as error:
                logger.debug("a stream of appends was not ended in order: %s", error)
        join(self._answers)
