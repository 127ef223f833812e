"""Rows that come in (DoPut): each record batch is one request, and each is answered, in order.

    the stream's thread   reads a batch, checks it, hands it to the log, reads the next
    its answers' thread   waits for the log in the order of the requests, and writes the answers

PROMISE  An answer says that rows are durable only once they are.  A request that is refused does not end the stream.
         Answers leave in the order of the requests.
BOUND    `in_flight_max` requests of a stream wait for their answers; while they do, nothing more is read from it, and
         the sender is slowed down by its own connection.  The log's own bound on bytes in flight holds it, too.
IDLE     A sender of whom nothing was heard for `idle_s` is told to end its stream (an answer of number 0): a stream
         cannot be ended from this side.
NOT HERE Numbers that make a request safe to send again: the log remembers them (topics/forming.py).
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import NamedTuple

import pyarrow as pa
from pyarrow import flight

from headwater.errors import HeadwaterError, InvalidRequest, OutcomeUnknown, TooLarge, Unavailable
from headwater.protocol.codec import pack, unpack
from headwater.protocol.failures import failure_of
from headwater.protocol.streams import AppendStream, RowsAnswer, RowsRequest
from headwater.server.access import Principal
from headwater.server.flight_errors import OWN_ERROR, Outward
from headwater.server.in_flight import InFlight
from headwater.server.incoming import identity_of, keys_of_bytes, rejected_of, schema_of_version
from headwater.server.memory import NO_MEMORY
from headwater.server.served import Served
from headwater.server.untrusted import check_schema, checked_batch
from headwater.topics.answers import Appended

logger = logging.getLogger("headwater.server")

Who = Callable[[], Principal]
"""Who sends; asked again and again, because a token may be revoked while a stream is open."""

_TEXT_MAX = 300
STOPPING = 0
"""The number of an answer to no request; senders count from 1."""
IDLE = "nothing came on this stream for long: end it, and begin another when there is something to send"


def append_rows(
    served: Served,
    who: Who,
    command: AppendStream,
    reader: flight.MetadataRecordBatchReader,
    writer: flight.FlightMetadataWriter,
    in_flight: InFlight,
) -> None:
    """Serve one stream until its sender ends it."""
    topic = served.by_id(who(), command.topic, "write")
    schema = schema_of_version(topic, command.schema_version)
    with _from_the_sender():
        sent = reader.schema
    check_schema(sent, schema)
    limits = served.settings.limits
    answers = Answers(writer, limits.in_flight_max, limits.idle_s, served.outward)
    try:
        with in_flight.told(answers.tell_stopping):
            while answers.has_room():
                try:
                    with _from_the_sender():
                        chunk = reader.read_chunk()
                except StopIteration:
                    break
                request = _request(served, chunk)
                try:
                    in_flight.begin()
                except Unavailable as stopping:
                    answers.add(request.number, stopping)
                else:
                    answers.add(request.number, _done(served, who, command, schema, chunk, request), in_flight.end)
    finally:
        answers.finish()


@contextmanager
def _from_the_sender() -> Iterator[None]:
    """Around reading what was sent: what Arrow cannot read of it is the sender's mistake, and ends the stream."""
    try:
        yield
    except (flight.FlightError, MemoryError):
        raise
    except (pa.ArrowException, OSError) as error:
        raise InvalidRequest(f"bytes that are no Arrow: {' '.join(str(error).split())[:_TEXT_MAX]}") from error


def _request(served: Served, chunk: flight.FlightStreamChunk) -> RowsRequest:
    """What a message asks for.  Without a number nothing can be answered, so that ends the stream."""
    if chunk.app_metadata is None:
        raise InvalidRequest("a record batch came without a request beside it")
    limit = served.settings.limits.message_bytes_max
    if chunk.app_metadata.size > limit:
        raise TooLarge("a message is too large: split it", bytes=chunk.app_metadata.size, bytes_max=limit)
    return unpack(memoryview(chunk.app_metadata), RowsRequest)


def _done(
    served: Served,
    who: Who,
    command: AppendStream,
    schema: pa.Schema,
    chunk: flight.FlightStreamChunk,
    request: RowsRequest,
) -> Future[Appended] | HeadwaterError:
    """What becomes of a request."""
    try:
        return _append(served, who(), command, schema, chunk.data, request)
    except HeadwaterError as error:
        return error
    except MemoryError:
        return Unavailable(NO_MEMORY)
    except Exception:  # whatever it is, it is ours: whether anything came of it is not known, and the stream goes on
        logger.exception("a request of an append stream failed")
        return OutcomeUnknown(OWN_ERROR)


def _append(
    served: Served,
    principal: Principal,
    command: AppendStream,
    schema: pa.Schema,
    batch: pa.RecordBatch | None,
    request: RowsRequest,
) -> Future[Appended]:
    # The topic as it is now: it may have changed, or gone, since the stream began.
    topic = served.by_id(principal, command.topic, "write")
    limits = served.settings.limits
    if batch is None:
        raise InvalidRequest("a request came without a record batch")
    size = batch.get_total_buffer_size() + len(request.rejected) + len(request.deletes)
    served.streams.moved(principal, size)
    if request.deletes:
        if batch.num_rows:
            raise InvalidRequest("keys to delete come beside a batch without rows")
        rows = keys_of_bytes(topic, request.deletes, limits)
    else:
        rows = checked_batch(batch, schema, limits)
    return served.engine.append_checked_future(
        topic.number,
        rows,
        rejected=rejected_of(request.rejected, limits),
        partition=request.partition,
        expect_offset=request.expect_offset,
        identity=identity_of(request.identity),
        deletes=bool(request.deletes),
    )


class Answers:
    """Answers of one stream, in the order of its requests, by a thread of their own."""

    def __init__(
        self, writer: flight.FlightMetadataWriter, in_flight_max: int, idle_s: float, outward: Outward
    ) -> None:
        self._writer = writer
        self._idle_s = idle_s
        self._outward = outward
        self._room = threading.Semaphore(in_flight_max)
        self._waiting: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._broken = False
        """The sender takes no answers any more: it is gone, or about to be."""
        self._thread = threading.Thread(target=self._run, name="headwater-answers", daemon=True)
        self._thread.start()

    def has_room(self) -> bool:
        """Wait until one more request may be read; False where nobody hears the answers."""
        self._room.acquire()
        return not self._broken

    def add(self, number: int, done: Future[Appended] | HeadwaterError, then: Callable[[], None] | None = None) -> None:
        """The next request; `then` is called when it was answered, or could not be."""
        self._waiting.put(_Waiting(number, done, then, takes_room=True))

    def tell_stopping(self) -> None:
        """An answer to no request: the sender should end its stream, and go on elsewhere or later."""
        stopping = Unavailable("the server is being stopped: ask another, or this one soon")
        self._waiting.put(_Waiting(STOPPING, stopping, None, takes_room=False))

    def finish(self) -> None:
        """Return when everything that was added was answered, or cannot be."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        told = False
        while True:
            try:
                item = self._waiting.get(timeout=None if told else self._idle_s)
            except queue.Empty:
                told = True
                self._write(RowsAnswer(STOPPING, failure=failure_of(Unavailable(IDLE))))
                continue
            if item is None:
                return
            told = False
            self._write(answer_of(item.number, item.done, self._outward))
            if item.then is not None:
                item.then()
            if item.takes_room:
                self._room.release()

    def _write(self, answer: RowsAnswer) -> None:
        if self._broken:
            return
        try:
            self._writer.write(pa.py_buffer(pack(answer)))
        except (pa.ArrowException, OSError) as error:
            # The rows are what the log made of them all the same: who sends them again is told.
            logger.info("an append stream's sender is gone: %s", error)
            self._broken = True


class _Waiting(NamedTuple):
    number: int
    done: Future[Appended] | HeadwaterError
    then: Callable[[], None] | None
    takes_room: bool


def answer_of(number: int, done: Future[Appended] | HeadwaterError, outward: Outward) -> RowsAnswer:
    """Wait for what becomes of a request."""
    if isinstance(done, HeadwaterError):
        return RowsAnswer(number, failure=failure_of(outward(done)))
    try:
        return RowsAnswer(number, appended=done.result())
    except HeadwaterError as error:
        return RowsAnswer(number, failure=failure_of(outward(error)))
    except Exception:  # whatever it is, it is ours: nobody knows what became of the rows, and the sender asks again
        logger.exception("an append failed in the log")
        return RowsAnswer(number, failure=failure_of(OutcomeUnknown(OWN_ERROR)))
