"""Messages of every kind are read for the first time by many threads at once, as when a server has just started and all
its clients come back: nothing dies.  (msgspec shares what it knows of a class before it knows all of it.)"""

from __future__ import annotations

import subprocess
import sys

STARTS = 60

PROGRAM = """
import os, sys, threading
from headwater.protocol import calls, codec, streams

sys.setswitchinterval(1e-6)
TOPIC = b"x" * 16
OFFSET = calls.TransactionOffset("g", TOPIC, 0, 1, 1, 1)
MESSAGES = [
    calls.PollGroup("g", TOPIC, "m", (1, 2)),
    calls.CommitOffsets((OFFSET,)),
    calls.Commit((calls.TransactionRows(TOPIC, b"r"),), (OFFSET,)),
    streams.RowsRequest(1, identity=streams.WireIdentity(1, 2, 3)),
    calls.JoinGroup("g", TOPIC),
    calls.Register("p"),
    calls.OneTopic(TOPIC),
    calls.WaitBeyond(1, 1.0),
]
PACKED = [(type(each), codec.pack(each)) for each in MESSAGES]


def first_messages():
    together = threading.Barrier(16)

    def read(number):
        kind, data = PACKED[number % len(PACKED)]
        together.wait()
        codec.unpack(data, kind)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


died = 0
for _ in range(int(sys.argv[1])):
    child = os.fork()
    if child == 0:
        first_messages()
        os._exit(0)
    died += os.waitpid(child, 0)[1] != 0
print(died)
"""


def test_first_messages_in_many_threads_at_once_are_read() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(STARTS)], capture_output=True, text=True, timeout=120)

    assert done.stdout == "0\n", f"{done.stdout} of {STARTS} processes died: {done.stderr[-2000:]}"
