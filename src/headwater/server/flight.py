"""The door for Arrow Flight: each call is told apart, answered by those who know, and its errors are made to travel.

    DoAction        calls.py                 DoGet            reads.py, frames.py
    DoPut           appends.py               GetFlightInfo    reads.py (plans)

PROMISE  Whoever calls is known before anything else is looked at.
         An error of ours travels with its kind and facts; anything else is written to the log with its stack, and the
         caller is told only that there was one.
         A server whose log is lost (poisoned, closed, taken over) answers Unavailable: what was asked for was not done,
         and another server, or this one once it was started again, will do it.
NOT HERE When to begin and to end: serving.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyarrow import flight

from headwater.clock import Clock
from headwater.errors import InvalidRequest, TooLarge, Unauthenticated
from headwater.protocol.calls import CALLS, Call
from headwater.protocol.codec import pack, unpack
from headwater.protocol.lake_calls import LAKE_CALLS
from headwater.protocol.streams import AppendStream, ReadFrames, ReadPartitions, ReadPlan, ReadRows, Ticket
from headwater.server.appends import append_rows
from headwater.server.callers import CALLER, Asked, Caller, CallerFactory
from headwater.server.calls import HANDLERS
from headwater.server.flight_errors import told
from headwater.server.frames import read_frames
from headwater.server.front import Front
from headwater.server.in_flight import InFlight
from headwater.server.lake_calls import LAKE_HANDLERS
from headwater.server.reads import Outgoing, Plan, plan_parts, plan_rows, read_partition, read_partitions, read_rows
from headwater.server.served import Served

KNOWN = {**CALLS, **LAKE_CALLS}
ANSWERED = {**HANDLERS, **LAKE_HANDLERS}
"""Each call's handler: a test holds the two to each other."""

Command = AppendStream | ReadPlan | ReadRows


class FlightDoor(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """A Flight server over what is served; it listens from when it is made."""

    def __init__(
        self, served: Served, listen: tuple[str, int], clock: Clock, *, behind_a_front: bool, by_certificate: bool
    ) -> None:
        self._served = served
        self._clock = clock
        self._in_flight = InFlight()
        self._behind_a_front = behind_a_front
        self.front: Front | None = None
        """Who lets callers in, where strangers may come: set before the first of them can."""
        host, port = ("127.0.0.1", 0) if behind_a_front else listen
        super().__init__(
            f"grpc://{f'[{host}]' if ':' in host else host}:{port}",
            middleware={CALLER: CallerFactory(served.authenticate, by_certificate=by_certificate)},
        )

    # Calls -------------------------------------------------------------------------------------

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> Iterator[bytes]:
        with self._answering(context) as who, self._in_flight.counted():
            call = _call(action.type)
            body = action.body
            limit = self._served.settings.limits.message_bytes_max
            if body.size > limit:
                raise TooLarge("a message is too large: split it", bytes=body.size, bytes_max=limit)
            principal = who()
            self._served.streams.moved(principal, body.size)
            answer = ANSWERED[call.name](self._served, principal, unpack(memoryview(body), call.request))
            return iter([pack(answer)])

    def list_actions(self, context: flight.ServerCallContext) -> list[tuple[str, str]]:
        with self._answering(context):
            return [(call.name, f"{call.request.__name__}: see docs/protocol.md") for call in KNOWN.values()]

    # Streams -----------------------------------------------------------------------------------

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        with self._answering(context) as who:
            command = _command(descriptor)
            if not isinstance(command, AppendStream):
                raise InvalidRequest("DoPut takes rows to append")
            with self._served.streams.opened(who()):
                append_rows(self._served, who, command, reader, writer, self._in_flight)

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        with self._answering(context) as who:
            wanted: Ticket = unpack(ticket.ticket, Ticket)  # type: ignore[arg-type]  # a union is a type to msgspec
            if isinstance(wanted, ReadFrames):
                found = read_frames(self._served, who(), wanted)
                return flight.GeneratorStream(found.schema, self._guarded(found, who))
            topic = wanted.topic

            def still() -> object:
                # Whoever was let in when it began may not be any more.
                return self._served.by_id(who(), topic, "read")

            def gone() -> bool:
                self._served.check_serving()
                return bool(context.is_cancelled()) or not still()

            if isinstance(wanted, ReadRows):
                found = read_rows(self._served, who(), wanted, gone)
            elif isinstance(wanted, ReadPartitions):
                found = read_partitions(self._served, who(), wanted)
            else:
                found = read_partition(self._served, who(), wanted, gone)
            return flight.GeneratorStream(found.schema, self._guarded(found, still))

    def _guarded(self, found: Outgoing, still: Callable[[], object]) -> Iterator[Any]:
        """What is sent, as long as there is a server and its reader may have it."""
        with told(self._served.outward):
            for batch, metadata in found.batches:
                self._served.check_serving()
                still()
                yield batch if metadata is None else (batch, pa.py_buffer(metadata))

    def get_flight_info(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        with self._answering(context) as who:
            command = _command(descriptor)
            if isinstance(command, ReadRows):
                return self._info(descriptor, plan_rows(self._served, who(), command))
            if isinstance(command, ReadPlan):
                return self._info(descriptor, plan_parts(self._served, who(), command))
            raise InvalidRequest("what is to be planned is a read")

    @staticmethod
    def _info(descriptor: flight.FlightDescriptor, plan: Plan) -> flight.FlightInfo:
        # No location: whoever asked knows how to reach us, by a name that we may not know.
        endpoints = [flight.FlightEndpoint(pack(ticket), []) for ticket in plan.tickets]
        return flight.FlightInfo(plan.schema, descriptor, endpoints, -1, -1)

    # Around each of them -----------------------------------------------------------------------

    @contextmanager
    def _answering(self, context: flight.ServerCallContext) -> Iterator[Asked]:
        with told(self._served.outward), self._served.calls.counted("flight"):
            caller = context.get_middleware(CALLER)
            assert isinstance(caller, Caller)
            peer = context.peer()
            who = Asked(self._served.authenticate, caller, self._certificate(peer), self._clock)
            if self.front is not None:
                self.front.authenticated(peer)
            caller.check_meant(self._served.epoch)
            yield who

    def _certificate(self, peer: str) -> str | None:
        """Whose certificate the caller showed; Unauthenticated where it has gone around the front."""
        if not self._behind_a_front:
            return None
        if self.front is None or not self.front.knows(peer):
            raise Unauthenticated("calls come in by the server's own door")
        return self.front.identity_of(peer)

    def finish(self, timeout_s: float) -> bool:
        """Wait for what is in flight, and tell those who hold append streams open; False where it took too long."""
        return self._in_flight.finish(timeout_s)


def _call(name: str) -> Call[Any, Any]:
    call = KNOWN.get(name)
    if call is None:
        raise InvalidRequest("there is no call of this name", call=name[:100])
    return call


def _command(descriptor: flight.FlightDescriptor) -> Command:
    if descriptor.descriptor_type != flight.DescriptorType.CMD or descriptor.command is None:
        raise InvalidRequest("a descriptor is a command, and no path")
    command: Command = unpack(descriptor.command, Command)  # type: ignore[arg-type]  # a union is a type to msgspec
    return command
