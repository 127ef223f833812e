"""Appends to one topic, on their way to a server: joined, numbered, several in flight, sent again after a break.

    callers ──▶ queue ──▶ held (made into a message) ──▶ in flight (sent, not answered) ──▶ each caller is told

ORDER    Rows stand in the log in the order in which they were submitted.  One thread at a time holds items, which are
         neither queued nor in flight: they go back to the queue's head where their stream ended meanwhile.
NUMBERS  The pipe registers a producer of its own and numbers its messages.  After a broken connection, and after an
         answer that leaves it open what became of a message, all that is in flight is sent again, in order, with the
         same numbers: what was applied before gets its first answer.
REFUSED  A refused message uses no number, so those behind it come back as out of sequence: once nothing is in flight
         they are numbered anew, and sent.
PATIENCE After `retry_s` without a sign of life, what is in flight is OutcomeUnknown, and what is queued Unavailable.
THREADS  Any number of callers.  A caller that blocks sends by itself if nobody is sending; else one thread sends, and
         another reads answers, as long as there is something to do.
NOT HERE Turning rows into Arrow: preparing.py.  What a message holds: requests.py.  One connection: append_stream.py.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from headwater.client.append_stream import AppendStream
from headwater.client.connection import Connection, ServerLost
from headwater.client.preparing import Preparing
from headwater.client.requests import Item, Message, message_of
from headwater.client.threads import join, started
from headwater.errors import (
    Closed,
    Conflict,
    Duplicate,
    HeadwaterError,
    InvalidRequest,
    OutcomeUnknown,
    OutOfSequence,
    TooLarge,
    Unavailable,
    UnknownProducer,
)
from headwater.protocol.failures import error_of
from headwater.protocol.streams import RowsAnswer
from headwater.topics.requests import Registered

logger = logging.getLogger("headwater.client")

_IDLE_S = 60.0
"""A pipe that has nothing to do lets go of its stream and its threads."""
_WATCH_S = 1.0
_PAUSE_S = 0.05
_PAUSE_S_MAX = 1.0


class Pipe:
    def __init__(
        self,
        connection: Connection,
        topic_id: bytes,
        preparing: Preparing,
        register: Callable[[], Registered],
    ) -> None:
        self._connection = connection
        self._topic_id = topic_id
        self._preparing = preparing
        self._register = register
        self._settings = connection.settings
        self._clock = connection.clock
        self._changed = threading.Condition()
        self._queue: deque[Item] = deque()
        self._queued_bytes = 0
        self._held: list[Item] = []
        """Taken off the queue, and being made into a message, by whoever sends."""
        self._flying: deque[Message] = deque()
        self._again: list[Item] = []
        """Of messages that came back as out of sequence: sent once nothing is in flight."""
        self._renumber_from: int | None = None
        self._producer: Registered | None = None
        self._next_sequence = 0
        self._next_number = 0
        self._stream: AppendStream | None = None
        self._worker: threading.Thread | None = None
        self._urgent = False
        """Somebody waits: nothing lingers."""
        self._first_queued_s = 0.0
        self._trouble_s: float | None = None
        """Since when nothing has come back."""
        self._pause_s = _PAUSE_S
        self._closed = False

    # For callers -----------------------------------------------------------------------------------

    def submit(self, item: Item, *, urgent: bool) -> None:
        """Queue the rows of a call; an urgent one is sent at once, by the caller if nobody is sending."""
        with self._changed:
            while self._queued_bytes >= self._settings.queued_bytes_max and not self._closed:
                self._work()
                self._changed.wait()
            if self._closed:
                raise Closed("this log is closed")
            if not self._queue:
                self._first_queued_s = self._clock.monotonic_s()
            self._queue.append(item)
            self._queued_bytes += item.bytes
            self._urgent = self._urgent or urgent
            stream = self._stream
            if not urgent or stream is None:
                self._work()
                self._changed.notify_all()
                return
        if not self._send(stream):
            with self._changed:
                self._work()
                self._changed.notify_all()

    def flush(self) -> None:
        """Return when all that was asked for before is answered."""
        with self._changed:
            self._urgent = True
            flying = (item for message in self._flying for item in message.items)
            waiting = [*self._queue, *self._held, *self._again, *flying]
            self._changed.notify_all()
        for item in waiting:
            item.future.exception()

    def close(self) -> None:
        """Send what is queued, wait for the answers, let go."""
        self.flush()
        with self._changed:
            self._closed = True
            stream, self._stream = self._stream, None
            worker = self._worker
            self._changed.notify_all()
        if stream is not None:
            stream.end()
        join(worker)

    def end_streams(self) -> None:
        """Have its threads come back, and tell nobody anything: the process ends."""
        with self._changed:
            self._closed = True
            stream, self._stream = self._stream, None
            self._changed.notify_all()
        if stream is not None:
            stream.abandon(lost=False)

    # Sending ---------------------------------------------------------------------------------------

    def _work(self) -> None:
        """There is a thread that sends; called with the lock."""
        if self._worker is None and not self._closed:
            self._worker = started(self._keep_sending, "headwater-appends")

    def _keep_sending(self) -> None:
        me = threading.current_thread()
        while True:
            with self._changed:
                if not self._wait_for_work(me):
                    if self._worker is me:
                        self._worker = None
                    return
                stream = self._stream
            if stream is None:
                self._begin_stream()
            else:
                self._send(stream)

    def _wait_for_work(self, me: threading.Thread) -> bool:
        """Whether there is something to send, or a stream to begin; False where this thread is no longer needed."""
        idle_since_s = self._clock.monotonic_s()
        while not self._closed and self._worker is me:
            now_s = self._clock.monotonic_s()
            if self._stream is None and (self._queue or self._flying):
                return True
            if self._can_send():
                left_s = self._first_queued_s + self._settings.linger_s - now_s
                # With nothing on its way nobody else can be helped by waiting: the answer's arrival sends the rest.
                enough = self._queued_bytes >= self._settings.batch_bytes
                if self._urgent or not self._flying or left_s <= 0 or enough:
                    return True
                self._changed.wait(left_s)
                continue
            if self._queue or self._flying:
                idle_since_s = now_s
                self._check_silence(now_s)
                self._changed.wait(_WATCH_S)
                continue
            if now_s - idle_since_s >= _IDLE_S:
                stream, self._stream = self._stream, None
                if stream is not None:
                    started(stream.end, "headwater-ends")
                return False
            self._changed.wait(_IDLE_S)
        return False

    def _can_send(self) -> bool:
        if not self._queue or self._held or self._renumber_from is not None or self._stream is None:
            return False
        if self._queue[0].version != self._stream.version:
            return not self._flying
        return len(self._flying) < self._settings.in_flight_max

    def _check_silence(self, now_s: float) -> None:
        """A stream that owes an answer for too long is broken, whatever its connection says."""
        if self._flying and self._stream is not None and now_s - self._flying[0].sent_s > self._settings.silence_s:
            self._broken(self._stream, ServerLost("no answer for too long"))

    def _send(self, stream: AppendStream) -> bool:
        """Send what can be sent now; False where somebody else is sending, who sees what is queued."""
        if not stream.sending.acquire(blocking=False):
            return False
        try:
            while True:
                message = self._next_message(stream)
                if message is None:
                    return True
                stream.write(message)
        except ServerLost as lost:
            with self._changed:
                self._broken(stream, lost)
            return True
        finally:
            stream.sending.release()
            with self._changed:
                # Whoever queued something while this one was leaving could not send: the worker does.
                if self._can_send():
                    self._changed.notify_all()

    def _next_message(self, stream: AppendStream) -> Message | None:
        while True:
            with self._changed:
                if self._stream is not stream or not self._can_send():
                    return None
                if self._queue[0].version != stream.version:
                    # Another version of the schema takes another stream.
                    self._stream = None
                    self._work()
                    self._changed.notify_all()
                    started(stream.end, "headwater-ends")
                    return None
                items = self._held = self._taken()
            message = self._made_of(items)
            with self._changed:
                self._held = []
                if message is not None and self._goes_on(message, stream):
                    self._numbered(message)
                    message.sent_s = self._clock.monotonic_s()
                    self._flying.append(message)
                    return message
                if message is not None:
                    self._put_back(message)
                self._after_a_change()

    def _made_of(self, items: list[Item]) -> Message | None:
        """Their message, unless none of them fits: then each caller was told."""
        try:
            return message_of(items, self._preparing)
        except BaseException as error:
            # Whatever it is, nobody else will tell those who wait, and this thread is needed for others' rows.
            for item in items:
                if not item.future.done():
                    item.future.set_exception(error)
            if not isinstance(error, Exception):
                with self._changed:
                    self._held = []
                    self._after_a_change()
                raise
            return None

    def _goes_on(self, message: Message, stream: AppendStream) -> bool:
        """Whether it may be sent on this stream, which may have ended since its items were taken.  With the lock."""
        if self._stream is not stream or self._renumber_from is not None:
            return False
        if self._producer is None and message.items[0].identity is None:
            # The stream was begun for items with identities of their own: it begins anew with a producer.
            self._broken(stream, None)
            return False
        return True

    def _taken(self) -> list[Item]:
        """The next item, and those behind it that travel with it."""
        first = self._queue.popleft()
        items, size, count = [first], first.bytes, first.rows.count
        while self._queue and first.joins:
            after = self._queue[0]
            size += after.bytes
            count += after.rows.count
            together = after.joins and after.partition == first.partition and after.version == first.version
            if not together or size > self._settings.batch_bytes or count > self._settings.batch_rows:
                break
            items.append(self._queue.popleft())
        self._queued_bytes -= sum(item.bytes for item in items)
        if self._queue:
            self._first_queued_s = self._clock.monotonic_s()
        else:
            self._urgent = False
        self._changed.notify_all()
        return items

    def _numbered(self, message: Message) -> None:
        self._next_number += 1
        message.number = self._next_number
        if message.items[0].identity is None:
            assert self._producer is not None
            message.sequence = self._next_sequence
            message.producer = self._producer.producer_id, self._producer.epoch
            self._next_sequence += 1

    def _put_back(self, message: Message) -> None:
        self._queue.extendleft(reversed(message.items))
        self._queued_bytes += sum(item.bytes for item in message.items)

    # The stream ------------------------------------------------------------------------------------

    def _begin_stream(self) -> None:
        """A new stream, and on it all that is in flight; or a pause, or the end of patience."""
        with self._changed:
            if self._flying:
                record = self._flying[0].items[0].rows.topic
            elif self._queue:
                record = self._queue[0].rows.topic
            else:
                return
            given_up = self._is_out_of_patience()
            needs_producer = self._producer is None and any(
                item.identity is None for item in (*self._queue, *self._held, *self._again)
            )
        if given_up:
            self._refuse_all(ServerLost("no answer for too long"))
            return
        try:
            if needs_producer:
                registered = self._register()
                with self._changed:
                    self._producer, self._next_sequence = registered, registered.next_sequence
            stream = AppendStream(self._connection, self._topic_id, record, self._answered, self._broke)
        except (ServerLost, Unavailable, OutcomeUnknown) as error:
            self._rest(error)
            return
        except HeadwaterError as error:
            self._refuse_all(error)
            return
        with self._changed:
            again = list(self._flying)
            for message in again:
                message.sent_s = self._clock.monotonic_s()
            stream.sending.acquire()
            self._stream = stream
        try:
            for message in again:
                stream.write(message)
        except ServerLost as lost:
            with self._changed:
                self._broken(stream, lost)
        finally:
            stream.sending.release()

    def _rest(self, error: BaseException) -> None:
        with self._changed:
            now_s = self._clock.monotonic_s()
            self._trouble_s = self._trouble_s if self._trouble_s is not None else now_s
            given_up = self._is_out_of_patience() or self._connection.is_closed
            pause_s, self._pause_s = self._pause_s, min(self._pause_s * 2, _PAUSE_S_MAX)
        if given_up:
            self._refuse_all(error)
        else:
            self._connection.pause(pause_s)

    def _is_out_of_patience(self) -> bool:
        return self._trouble_s is not None and self._clock.monotonic_s() - self._trouble_s > self._settings.retry_s

    def _refuse_all(self, error: BaseException) -> None:
        """Nobody knows what became of what was sent; the rest never left."""
        with self._changed:
            flying, self._flying = list(self._flying), deque()
            queued = [*self._again, *self._queue]
            self._queue.clear()
            self._again.clear()
            self._queued_bytes, self._renumber_from, self._producer = 0, None, None
            self._trouble_s, self._pause_s = None, _PAUSE_S
            self._changed.notify_all()
        text = "the server does not answer"
        where = self._connection.address.text
        for message in flying:
            unknown = OutcomeUnknown(f"{text}, and these rows were sent", server=where, why=str(error))
            unknown.__cause__ = error
            message.fail(unknown)
        for item in queued:
            if isinstance(error, HeadwaterError) and not isinstance(error, OutcomeUnknown):
                item.future.set_exception(error)
            else:
                item.future.set_exception(Unavailable(text, server=where, why=str(error)))

    def _broke(self, stream: AppendStream, error: BaseException) -> None:
        """The stream's reader has come to its end."""
        refused: list[Message] = []
        with self._changed:
            if self._stream is not stream:
                return
            if isinstance(error, HeadwaterError) and not isinstance(error, Unavailable | OutcomeUnknown):
                # The server will not have this stream.  Every message that it took in was answered before it said so.
                refused = list(self._flying)
                self._flying.clear()
                self._renumber_from, self._producer = None, None
                self._requeue()
            self._broken(stream, None if refused else error)
        for message in refused:
            if message.sends == 1:
                message.fail(error)
            else:
                message.fail(OutcomeUnknown("the server took these rows once, or not at all", why=str(error)))

    def _broken(self, stream: AppendStream, error: BaseException | None) -> None:
        """This stream is over; what is in flight goes on the next one.  Called with the lock."""
        if self._stream is not stream:
            return
        self._stream = None
        if error is not None:
            logger.info("a stream of appends broke: %s", error)
            if self._trouble_s is None:
                self._trouble_s = self._clock.monotonic_s()
        stream.abandon(lost=isinstance(error, ServerLost))
        # A thread that hangs in a write to a dead connection must not hold up the next one.
        if self._worker is not threading.current_thread():
            self._worker = None
        if self._queue or self._flying:
            self._work()
        self._changed.notify_all()

    # Answers ---------------------------------------------------------------------------------------

    def _answered(self, stream: AppendStream, answer: RowsAnswer) -> None:
        error = None if answer.failure is None else error_of(answer.failure)
        with self._changed:
            if self._stream is not stream:
                return  # it was given up, and what it still says is asked for again elsewhere
            if not answer.number:
                # The server is about to stop, and takes nothing more from this stream.
                self._broken(stream, error or ServerLost("the server ends the stream"))
                return
            if not self._flying or self._flying[0].number != answer.number:
                self._broken(stream, ServerLost("the server answered what it was not asked"))
                return
            if error is not None and not isinstance(error, InvalidRequest | Conflict):
                # Only these two say for certain that the log has not taken it, and never will under this number.
                self._broken(stream, error)
                return
            message = self._flying.popleft()
            self._trouble_s, self._pause_s = None, _PAUSE_S
            told = self._settled(message, error)
            self._after_a_change()
        if not told:
            return
        if error is not None:
            message.fail(error)
        else:
            assert answer.appended is not None
            message.tell(answer.appended)

    def _settled(self, message: Message, error: HeadwaterError | None) -> bool:
        """Whether the callers are told now; else it will be sent again, under another number."""
        if error is None or isinstance(error, Duplicate) or message.sequence is None:
            return True
        if isinstance(error, UnknownProducer):
            self._producer = None
        parted = isinstance(error, TooLarge) and len(message.items) > 1
        if parted:
            # Together they were too large for the log: by themselves they may not be.
            for item in message.items:
                item.alone = True
        late = isinstance(error, OutOfSequence) and self._renumber_from is not None
        if parted or late or isinstance(error, UnknownProducer):
            self._again += message.items
            if self._renumber_from is None:
                self._renumber_from = message.sequence
            return False
        if self._renumber_from is None:
            self._renumber_from = message.sequence
        return True

    def _after_a_change(self) -> None:
        """Something was answered, or is held no more: what waited for that goes on.  Called with the lock."""
        if not self._flying and not self._held:
            if self._renumber_from is not None:
                self._next_sequence, self._renumber_from = self._renumber_from, None
                if self._producer is None and self._stream is not None:
                    self._broken(self._stream, None)
            self._requeue()
        if self._queue:
            self._work()
        self._changed.notify_all()

    def _requeue(self) -> None:
        """What is to be sent again stands before all that came later; so not while some of that is held."""
        if self._held:
            return
        self._queue.extendleft(reversed(self._again))
        self._queued_bytes += sum(item.bytes for item in self._again)
        self._again.clear()
