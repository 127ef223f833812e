"""Pins in a bucket, held by real processes: a live one stays, and those of the dead and of the silent go.

The times are a tenth of the usual ones.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from headwater.log.pins import Pins
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.s3 import S3Objects
from tests.servers.versitygw import S3Server, versitygw

RENEW_S = 0.1
STALE_S = 2.0

HOLDER = """
import sys, time
from headwater.ids import Lsn
from headwater.log.pins import Pins
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.s3 import S3Objects
url, lsn, renew_s, stale_s = sys.argv[1:]
files = BucketFiles(S3Objects(url), renew_s=float(renew_s), stale_s=float(stale_s))
pin = Pins(files).hold(Lsn(int(lsn)), lambda: 1)
print("held", flush=True)
while pin._lock.is_held():
    time.sleep(0.05)
print("lost", flush=True)
pin.release()
print("released", flush=True)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with versitygw() as server, server.in_environment():
        yield server


@contextmanager
def holder(url: str, lsn: int) -> Iterator[subprocess.Popen[str]]:
    """A process that holds this LSN until it is ended, or has lost its pin."""
    command = [sys.executable, "-c", HOLDER, url, str(lsn), str(RENEW_S), str(STALE_S)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def test_a_live_pin_stays_and_those_of_dead_and_of_silent_holders_go(server: S3Server) -> None:
    url = server.url("pins-of-processes")
    pins = Pins(BucketFiles(S3Objects(url), renew_s=RENEW_S, stale_s=STALE_S))

    def held() -> list[int]:
        return sorted(pin.lsn for pin in pins.read())

    with ExitStack() as stack:
        killed, stopped, _living = (stack.enter_context(holder(url, lsn)) for lsn in (1, 2, 3))
        begun_s = time.monotonic()
        while time.monotonic() - begun_s < 1.5 * STALE_S:
            assert held() == [1, 2, 3]
            threading.Event().wait(0.1)

        killed.kill()
        stopped.send_signal(signal.SIGSTOP)
        _until(lambda: held() == [3])
        stopped.send_signal(signal.SIGCONT)

        assert stopped.stdout is not None
        assert [stopped.stdout.readline() for _ in range(2)] == ["lost\n", "released\n"]
        assert held() == [3]
    _until(lambda: held() == [])
    assert S3Objects(url).list_after("") == []


def _until(is_so: Callable[[], bool]) -> None:
    begun_s = time.monotonic()
    while not is_so():
        assert time.monotonic() - begun_s < 30, "it never came to be"
        threading.Event().wait(0.1)
