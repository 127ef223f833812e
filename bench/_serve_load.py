"""A web service with several workers under load: uvicorn's processes, and one process that keeps requests under way.

    python -m bench._serve_load HOST PORT COUNT IN_FLIGHT      prints one JSON object: seconds, times_ms, failures

Each of IN_FLIGHT connections sends a request, waits for the answer, and sends the next.  The client is a bare asyncio
protocol, because a full one would be slower than what it measures.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench._kafka import free_port

START_S_MAX = 60.0
LOAD_S_MAX = 300.0
NOTE_CHARACTERS = 990
"""With its number an order has about 1 KB of JSON."""


@contextmanager
def web_service(side: str, address: str, topic: str, workers: int, told: Path) -> Iterator[int]:
    """The app over one side, with so many workers; the port that it listens at."""
    port = free_port()
    command = [
        sys.executable, "-m", "uvicorn", "bench._serve_app:app", "--host", "127.0.0.1", "--port", str(port),
        "--workers", str(workers), "--log-level", "warning", "--no-access-log",
    ]  # fmt: skip
    environment = {**os.environ, "BENCH_SIDE": side, "BENCH_ADDRESS": address, "BENCH_TOPIC": topic}
    with told.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        if not _all_workers_answer(port, workers, process):
            raise AssertionError(f"the web service did not start: {told.read_text(errors='replace')[-4000:]}")
        yield port
    finally:
        process.terminate()
        try:
            process.wait(START_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(START_S_MAX)


def _all_workers_answer(port: int, workers: int, process: subprocess.Popen[bytes]) -> bool:
    """Connections go to whichever worker takes them: it is asked until each has answered once."""
    seen: set[int] = set()
    begun = time.monotonic()
    while time.monotonic() - begun < START_S_MAX and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5) as answer:
                seen.add(json.load(answer)["pid"])
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)  # not yet
        if len(seen) == workers or (seen and time.monotonic() - begun > START_S_MAX / 4):
            return True
    return False


def load(port: int, count: int, in_flight: int) -> dict[str, Any]:
    """What a process that sends so many requests says of them."""
    command = [sys.executable, "-m", "bench._serve_load", "127.0.0.1", str(port), str(count), str(in_flight)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=LOAD_S_MAX)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# The process that sends -------------------------------------------------------------------------------------------


class _Sender(asyncio.Protocol):
    """One connection: a request, its answer, the next."""

    def __init__(self, requests: Iterator[bytes], times_ms: list[float], failures: list[str]) -> None:
        self._requests = requests
        self._times_ms = times_ms
        self._failures = failures
        self._got = b""
        self._begun = 0.0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._next()

    def _next(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self._transport.close()
            return
        self._begun = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, found, body = self._got.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(body) < length:
            return
        self._got = b""
        self._times_ms.append((time.perf_counter() - self._begun) * 1_000)
        if not head.startswith(b"HTTP/1.1 200"):
            self._failures.append((head[:60] + b" " + body[:200]).decode(errors="replace"))
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None:
            self._failures.append(repr(error))
        if not self.done.done():
            self.done.set_result(None)


def _requests(host: str, count: int) -> Iterator[bytes]:
    note = os.urandom(NOTE_CHARACTERS // 2).hex()
    for number in range(count):
        body = json.dumps({"order_id": number, "note": note}).encode()
        head = f"POST /orders HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        yield head.encode() + b"\r\n\r\n" + body


async def _send(host: str, port: int, count: int, in_flight: int) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    times_ms: list[float] = []
    failures: list[str] = []
    requests = _requests(host, count)
    begun = time.perf_counter()
    senders = []
    for _ in range(in_flight):
        _, sender = await loop.create_connection(lambda: _Sender(requests, times_ms, failures), host, port)
        senders.append(sender)
    await asyncio.gather(*(sender.done for sender in senders))
    seconds = time.perf_counter() - begun
    return {"seconds": seconds, "times_ms": times_ms, "failures": failures[:10], "failed": len(failures)}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_send(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))))
