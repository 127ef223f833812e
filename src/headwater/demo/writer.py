"""A writer, as a process: it sends one request after the other, and says of each when it sends it and when it is
acknowledged.

    python -m headwater.demo.writer ADDRESS NUMBER HOW FIRST-REQUEST

HOW      append      rows, and nothing else: a request of which nobody heard may have been applied, or not
         idempotent  rows with an idempotency key: a later life sends the same request again, and it is applied once
         producer    rows of a producer with sequence numbers: likewise
         keyed       upserts and deletions of a keyed topic, of a producer: likewise
PROMISE  {"sending": r} is said before request r leaves, {"acknowledged": r} after its answer has come.
         It is told {"stop": true}, finishes what it has begun, and ends.
"""

from __future__ import annotations

import sys
import threading

import pyarrow as pa

from headwater.api.connecting import connect
from headwater.api.log import Log
from headwater.demo.children import Message, tell, until_input_ends
from headwater.demo.rows import (
    ACCOUNTS,
    ORDERS,
    account_columns,
    deleted_keys,
    deletes,
    numbers_of,
    order_columns,
)
from headwater.errors import HeadwaterError
from headwater.topics.answers import Appended
from headwater.topics.producers import Producer

PAUSE_S = 0.08
AGAIN_EVERY = 6
"""So often a request is sent a second time, by writers that may."""
HOWS = ("append", "idempotent", "producer", "keyed")


class Requests:
    """Sends the requests of one writer."""

    def __init__(self, log: Log, writer: int, how: str) -> None:
        self._log = log
        self._writer = writer
        self._how = how
        self._producer: Producer | None = None

    def send(self, request: int) -> Appended:
        numbers = numbers_of(self._writer, request)
        if self._how == "append":
            return self._log[ORDERS].append(pa.table(order_columns(numbers)))
        if self._how == "idempotent":
            key = f"writer {self._writer}, request {request}"
            return self._log[ORDERS].append(pa.table(order_columns(numbers)), idempotency_key=key)
        if self._producer is None:
            self._producer = self._log.producer(f"writer-{self._writer}")
        if self._how == "producer":
            return self._producer.append(ORDERS, pa.table(order_columns(numbers)), sequence=request)
        if deletes(request):
            return self._producer.delete(ACCOUNTS, deleted_keys(request), sequence=request)
        return self._producer.append(ACCOUNTS, pa.table(account_columns(numbers)), sequence=request)


def main() -> None:
    address, writer, how, first = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    stopped = threading.Event()

    def on_message(message: Message) -> None:
        if message.get("stop"):
            stopped.set()

    until_input_ends(on_message)
    with connect(address) as log:
        requests = Requests(log, writer, how)
        request = first
        while not stopped.wait(PAUSE_S):
            tell(sending=request)
            try:
                answer = requests.send(request)
                if how != "append" and request % AGAIN_EVERY == AGAIN_EVERY - 1:
                    # As one does whose answer was lost: it must be told the first one again.
                    answer = requests.send(request)
            except HeadwaterError as error:
                # Nobody knows what became of it: a writer that can, sends it again with its number or its key.
                tell(unsure=request, why=f"{type(error).__name__}: {error}")
                request += how == "append"
                continue
            tell(acknowledged=request, duplicate=answer.duplicate, lsn=answer.lsn)
            request += 1
    tell(ended=True)


if __name__ == "__main__":
    main()
