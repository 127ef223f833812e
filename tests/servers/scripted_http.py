"""An HTTP server that answers as it is told, to see what a client makes of it.

    with scripted_http(reply("503 Slow Down", error("SlowDown")), RESET) as server:
        ...                         each request takes the next answer; the last one is given again and again
        server.requests             what came: "PUT /bucket/name", and the headers of each

PROMISE  One request is one entry of `requests`, so that a client's silent second try is seen.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

RESET = b"reset"
"""The connection is broken after the request was read."""
CLOSE = b"close"
"""The connection is closed after the request was read, without an answer."""
SILENCE = b"silence"
"""No answer comes, and the connection stays."""


def reply(status: str, body: bytes = b"", *headers: str, length: int | None = None) -> bytes:
    lines = [f"HTTP/1.1 {status}", *headers, f"content-length: {len(body) if length is None else length}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def error(code: str) -> bytes:
    """The body of an S3 error."""
    return f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>as told: {code}</Message></Error>'.encode()


@dataclass(frozen=True)
class Request:
    line: str
    headers: dict[str, str]
    body: bytes


@dataclass
class ScriptedServer:
    """The server while it runs."""

    answers: list[bytes]
    port: int
    requests: list[Request] = field(default_factory=list)
    guard: threading.Lock = field(default_factory=threading.Lock)
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as incoming:
            while (line := incoming.readline()) and (headers := self._headers(incoming)) is not None:
                body = incoming.read(int(headers.get("content-length", "0")))
                with self.guard:
                    self.requests.append(Request(line.decode().rpartition(" HTTP")[0], headers, body))
                    answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
                if answer == SILENCE:
                    self.ended.wait(60)
                if answer == RESET:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                if answer in (SILENCE, RESET, CLOSE):
                    return
                connection.sendall(answer)

    @staticmethod
    def _headers(incoming: object) -> dict[str, str] | None:
        found: dict[str, str] = {}
        while text := incoming.readline().strip().decode():  # type: ignore[attr-defined]
            name, _, value = text.partition(":")
            found[name.lower()] = value.strip()
        return found


@contextmanager
def scripted_http(*answers: bytes) -> Iterator[ScriptedServer]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = ScriptedServer(list(answers), listening.getsockname()[1])

        def accept() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return  # the test is over
                threading.Thread(target=server.serve, args=(connection,), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.ended.set()
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(10)
