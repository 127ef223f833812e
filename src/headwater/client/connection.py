"""A connection to a server, or to whichever of several serves now.

    connection.call(CALL, request)      one message there, one back; sent again where that is safe
    connection.flight()                 the Flight client for a stream, and the options of a call

PROMISE  What a server refuses is raised as the error that it names.  A server that cannot be reached is asked again,
         and the others after it, for `retry_s`; then it is Unavailable if nothing can have happened, OutcomeUnknown if
         something can.
         No secret is in an error, a log line or a repr.
THREADS  Safe for any number of them.  In a forked child it is closed: gRPC does not live through a fork.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

import pyarrow as pa
from pyarrow import flight

from headwater.client.credentials import Credentials
from headwater.client.read_ahead import ReadAhead
from headwater.clock import Clock, Entropy
from headwater.errors import (
    Closed,
    HeadwaterError,
    OutcomeUnknown,
    Unauthenticated,
    Unavailable,
    UnknownFormat,
)
from headwater.protocol.address import Address
from headwater.protocol.calls import HELLO, AnyAnswer, AnyRequest, Call, Hello, Nothing
from headwater.protocol.codec import VERSION, pack, unpack
from headwater.protocol.failures import Failure, error_of
from headwater.settings import ClientSettings

_PAUSE_S = 0.02
_PAUSE_S_MAX = 1.0
_HELLO_S = 5.0
_GONE_LOOK_S = 0.25
_QUICK_S = 20.0
_SLOW = {"cleanup", "compact", "checkpoint", "flush", "commit", "delete_topic"}
"""Calls that may take as long as they take."""
_CHANNEL = [
    # A server that was restarted is found again at once, and not after the minutes that gRPC would wait.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Each client has a connection of its own: one that hangs must not hold up another's.
    ("grpc.use_local_subchannel_pool", 1),
]

Answer = TypeVar("Answer")


class ServerLost(Exception):
    """The connection broke, or nobody answered: what was on its way may have been done."""


class Connection:
    def __init__(
        self,
        address: Address,
        *,
        settings: ClientSettings,
        clock: Clock,
        entropy: Entropy,
        credentials: Credentials,
    ) -> None:
        self.address = address
        self.settings = settings
        self.clock = clock
        self.entropy = entropy
        self._credentials = credentials
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._pausing = threading.Event()
        """Set when it is closed: whoever pauses goes on, and finds it closed."""
        self._at = 0
        self._client: flight.FlightClient | None = None
        self._hello: Hello | None = None
        self._readers: set[ReadAhead] = set()
        """Streams that are being read: closing ends them."""

    # Calls -----------------------------------------------------------------------------------------

    def call(self, call: Call[AnyRequest, AnyAnswer], request: AnyRequest, *, retry: bool | None = None) -> AnyAnswer:
        """Ask, and wait for the answer; sent again after a broken connection if the call, or `retry`, says that this
        is safe."""
        body = pack(request)
        again = call.retry if retry is None else retry

        def ask(client: flight.FlightClient, options: flight.FlightCallOptions) -> AnyAnswer:
            results = list(client.do_action(flight.Action(call.name, body), options))
            if len(results) != 1:
                raise UnknownFormat(
                    f"the server answered {call.name!r} with {len(results)} messages: use one version on both sides"
                )
            answer: AnyAnswer = unpack(memoryview(results[0].body), call.answer)
            return answer

        quick = None if call.name in _SLOW else min(_QUICK_S, self.settings.call_s)
        return self.asked(ask, again=again, changes=call.changes, timeout_s=quick)

    def asked(
        self,
        ask: Callable[[flight.FlightClient, flight.FlightCallOptions], Answer],
        *,
        again: bool = True,
        changes: bool = False,
        timeout_s: float | None = None,
    ) -> Answer:
        """Do something with the server; again where it was lost, if that is safe, or if it said that it did nothing."""
        deadline_s = self.clock.monotonic_s() + self.settings.retry_s
        pause_s = _PAUSE_S
        maybe = False  # an attempt that was lost may have been done
        while True:
            sent = False
            try:
                client = self._connected()
                options = self.options(timeout_s)
                sent = True
                with as_our_errors():
                    return ask(client, options)
            except ServerLost as lost:
                self._turn_to_the_next()
                maybe = maybe or (sent and changes)
                if (maybe and not again) or self.clock.monotonic_s() + pause_s >= deadline_s:
                    self._give_up(lost, unknown=maybe)
            except Unavailable as refused:
                # It says that nothing was done: another server may, or the same one soon.
                self._turn_to_the_next()
                if self.clock.monotonic_s() + pause_s >= deadline_s:
                    if maybe:
                        self._give_up(refused, unknown=True)
                    raise
            self.pause(pause_s)
            pause_s = min(pause_s * 2, _PAUSE_S_MAX)

    def _give_up(self, error: Exception, *, unknown: bool) -> NoReturn:
        if unknown:
            text = "the connection to the server broke before it answered"
            raise OutcomeUnknown(text, server=self.address.text, why=str(error)) from error
        raise Unavailable("the server does not answer", server=self.address.text, why=str(error)) from error

    def pause(self, seconds: float) -> None:
        """Wait a little, by chance more or less, so that many clients do not all come back at once."""
        share = self.entropy(1)[0] / 255
        self._pausing.wait(seconds * (0.5 + share))

    # The connection --------------------------------------------------------------------------------

    @property
    def hello(self) -> Hello:
        """Who answered last; asked for if nobody did yet."""
        found = self._hello
        if found is None:
            found = self.call(HELLO, Nothing())
        return found

    def get(
        self, ticket: object, gone: Callable[[], bool] | None = None
    ) -> Iterator[tuple[pa.RecordBatch, bytes | None]]:
        """What a ticket gives, batch by batch, with what stands beside each.  Asked for again as long as nothing has
        come; a stream that breaks in the middle, or whose reader has gone, is Unavailable: whoever reads knows where to
        go on."""
        wanted = flight.Ticket(pack(ticket))
        client, reader = self.asked(lambda client, _: (client, client.do_get(wanted, self.options(lasting=True))))
        ahead = ReadAhead(reader)
        with self._lock:
            self._readers.add(ahead)
        try:
            while True:
                self.check_open()
                with as_our_errors():
                    try:
                        given = ahead.take(None if gone is None else _GONE_LOOK_S)
                    except StopIteration:
                        return
                if given is not None:
                    yield given
                elif gone is not None and gone():
                    raise Unavailable("nobody reads any more")
        except ServerLost as lost:
            self.check_open()
            self.lost(client)
            raise Unavailable("the connection to the server broke", server=self.address.text, why=str(lost)) from lost
        finally:
            with self._lock:
                self._readers.discard(ahead)
            ahead.cancel()

    def stream(self) -> tuple[flight.FlightClient, flight.FlightCallOptions]:
        """For a stream that lasts as long as it is wanted.  ServerLost where nobody answers now."""
        return self._connected(), self.options(None, lasting=True)

    def options(self, timeout_s: float | None = None, *, lasting: bool = False) -> flight.FlightCallOptions:
        headers = [(b"hw-version", str(VERSION).encode())]
        hello = self._hello
        if hello is not None:
            headers.append((b"hw-shard", str(hello.shard).encode()))
            headers.append((b"hw-epoch", str(hello.epoch).encode()))
        token = self._credentials.token()
        if token is not None:
            headers.append((b"authorization", b"Bearer " + token))
        if lasting:
            return flight.FlightCallOptions(headers=headers)
        return flight.FlightCallOptions(timeout=timeout_s or self.settings.call_s, headers=headers)

    def _connected(self) -> flight.FlightClient:
        """A client whose server has said hello: a channel alone says nothing of whether anybody is there."""
        with self._lock:
            self._check_open()
            if self._client is not None:
                return self._client
            where = self.address.locations()[self._at % len(self.address.hosts)]
            client = flight.FlightClient(where, generic_options=_CHANNEL, **self._credentials.for_channel())
            with as_our_errors():
                action = flight.Action(HELLO.name, pack(Nothing()))
                results = list(client.do_action(action, self._hello_options()))
            hello = unpack(memoryview(results[0].body), Hello)
            if VERSION not in hello.versions:
                raise UnknownFormat(
                    f"the server speaks other versions of the protocol: {hello.versions}, and this client {VERSION}; "
                    "use one version on both sides",
                    server=hello.server,
                )
            self._client, self._hello = client, hello
            return client

    def _hello_options(self) -> flight.FlightCallOptions:
        # Without shard and epoch: whoever answers says which it has.
        self._hello = None
        return self.options(_HELLO_S)

    def lost(self, client: flight.FlightClient) -> None:
        """This client's server does not answer: the next call looks for one that does."""
        with self._lock:
            if self._client is client:
                self._let_go()

    def _turn_to_the_next(self) -> None:
        with self._lock:
            self._let_go()

    def _let_go(self) -> None:
        # It is not closed, because a stream of another thread may be in the middle of it, and Flight does not survive
        # that: it goes with the last stream that holds it.
        self._client = None
        self._at += 1

    def _check_open(self) -> None:
        if self._pausing.is_set():
            raise Closed("this connection is closed")
        if os.getpid() != self._pid:
            raise Closed("this connection was made by another process, which forked this one: connect here")

    def check_open(self) -> None:
        self._check_open()

    @property
    def is_closed(self) -> bool:
        return self._pausing.is_set()

    def close(self) -> None:
        self._pausing.set()
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._client = None
            readers = list(self._readers)
        for reader in readers:
            reader.cancel()


class as_our_errors:  # noqa: N801  it is used like a word: `with as_our_errors():`
    """What Flight raises, as what the server meant; ServerLost where it was not the server that said it."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or isinstance(error, HeadwaterError | ServerLost):
            return
        if isinstance(error, flight.FlightError | pa.ArrowException | OSError | EOFError):
            raise our_error(error) from error


def our_error(error: BaseException) -> HeadwaterError | ServerLost:
    told = getattr(error, "extra_info", b"")
    if told:
        return error_of(unpack(told, Failure))
    if isinstance(error, flight.FlightUnauthenticatedError):
        return Unauthenticated("the server does not know who is asking: give token_file=, or a certificate")
    if isinstance(error, flight.FlightInternalError):
        return ServerLost(f"the server failed: {_first_words(error)}")
    return ServerLost(_first_words(error))


def _first_words(error: BaseException) -> str:
    """What happened, without the machinery's own account of it."""
    return str(error).partition(". Client context")[0].partition(" Detail:")[0][:200]
