"""Attacks on the HTTP port: requests that are wrong in their lines, headers, lengths and bodies.

Each goes over a connection of its own, from its first byte to its end.
"""

from __future__ import annotations

import gzip
import json
import random
import socket

from tests.hostile import arrow_bytes
from tests.hostile.attack import Attacker, Finding
from tests.hostile.mutations import LIES, mutated
from tests.hostile.wire_attacks import TLS_HELLO

ARROW = b"application/vnd.apache.arrow.stream"
JSON = b"application/json"
NDJSON = b"application/x-ndjson"
MOMENT_S = 0.05


def path_of(attacker: Attacker, query: bytes = b"") -> bytes:
    return b"/v1/topics/" + attacker.target.topic_name.encode() + b"/rows" + query


def authorization(attacker: Attacker) -> bytes:
    return b"authorization: Bearer " + attacker.target.token.encode() + b"\r\n"


def request(path: bytes, headers: bytes, body: bytes, *, method: bytes = b"POST", length: bytes | None = None) -> bytes:
    said = str(len(body)).encode() if length is None else length
    return (
        method
        + b" "
        + path
        + b" HTTP/1.1\r\nhost: localhost\r\ncontent-length: "
        + said
        + b"\r\n"
        + headers
        + b"\r\n"
        + body
    )


def sent(attacker: Attacker, data: bytes, *, whole: bool = False, allowed: tuple[int, ...] = ()) -> str:
    """Send, and read until the server closes; the first status counts.

    A request that is `whole` is answered.  After any other we wait a moment for an answer and then say that no more
    comes: the server must close, whatever it was still waiting for."""
    target = attacker.target
    received = b""
    try:
        with socket.create_connection((target.host, target.http_port), timeout=attacker.patience_s) as connection:
            connection.sendall(data)
            try:
                if not whole:
                    connection.settimeout(MOMENT_S)
                    received = connection.recv(65_536)
            except TimeoutError:
                pass  # It waits for more.
            connection.settimeout(attacker.patience_s)
            if not whole:
                connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(65_536):
                received += piece
    except TimeoutError as error:
        raise Finding(f"no answer, and no end, for {attacker.patience_s} s") from error
    except OSError:
        return "http reset"
    if whole and not received:
        raise Finding("a whole request was not answered")
    return judged(received, allowed)


def judged(received: bytes, allowed: tuple[int, ...]) -> str:
    if not received:
        return "http closed"
    line = received.partition(b"\r\n")[0].split(b" ")
    if len(line) < 2 or not line[1].isdigit():
        raise Finding(f"no HTTP came back: {received[:200]!r}")
    status = int(line[1])
    if status == 500:
        raise Finding(f"the server met a bug: {received[:500]!r}")
    if b"HTTP/1.1 500" in received:
        raise Finding(f"the server met a bug: {received[-500:]!r}")
    if allowed and status not in allowed:
        raise Finding(f"answered {status}: {received[:500]!r}")
    return f"http {status}"


CLOSE = b"connection: close\r\n"


def hostile_arrow(chance: random.Random, attacker: Attacker) -> str:
    headers = authorization(attacker) + CLOSE + b"content-type: " + ARROW + b"\r\n"
    return sent(attacker, request(path_of(attacker), headers, arrow_bytes.hostile_stream(chance)), whole=True)


def hostile_json(chance: random.Random, attacker: Attacker) -> str:
    body, kind = json_body(chance)
    headers = authorization(attacker) + CLOSE + b"content-type: " + kind + b"\r\n"
    query = chance.choice((b"", b"", b"", b"?rejected=keep", b"?partition=0", b"?format=debezium"))
    return sent(attacker, request(path_of(attacker, query), headers, body), whole=True)


def json_body(chance: random.Random) -> tuple[bytes, bytes]:
    """JSON that is none, or is deep, long, huge, or means something else."""
    lie = str(chance.choice(LIES)).encode()
    value = chance.choice(
        (
            b"NaN",
            b"Infinity",
            b"-Infinity",
            b"1e999",
            b"1" * chance.choice((20, 400, 5_000)),
            b"-0",
            lie,
            b'"\\ud800"',
            b'"\\udfff\\ud800"',
            b'"\\u0000"',
            b'"\xff\xfe"',
            b'"' + b"x" * chance.choice((10, 200_000)) + b'"',
            b"[" * chance.choice((10, 500, 100_000)),
            b"[" * 60 + b"]" * 60,
            b'{"a":' * chance.choice((10, 70, 100_000)),
            b"null",
            b"true",
            b"[]",
            b"{}",
            b'"2026-13-45T99:00:00Z"',
            b'"99999999-01-01"',
            b"1e-400",
            b"1E400",
            b"0.1" + b"0" * 5_000,
        )
    )
    column = chance.choice(
        (b"id", b"note", b"tags", b"place", b"raw", b"price", b"at", b"ok", b"none", b"\\ud800", b"")
    )
    row = b'{"id":1,"' + column + b'":' + value + b"}"
    if column == b"id":
        row = b'{"id":' + value + b"}"
    shape = chance.randrange(8)
    if shape == 0:
        return b"[" + b",".join([row] * chance.choice((1, 3, 300))) + b"]", JSON
    if shape == 1:
        return b"\n".join([row] * chance.choice((1, 3, 300))), NDJSON
    if shape == 2:
        return b"".join([row] * 3), NDJSON
    if shape == 3:
        return value, chance.choice((JSON, NDJSON))
    if shape == 4:
        return mutated(row, chance), chance.choice((JSON, NDJSON))
    if shape == 5:
        return b"\xef\xbb\xbf" + row, JSON
    if shape == 6:
        return row.decode("latin-1").encode("utf-16"), JSON
    return row, chance.choice((JSON, NDJSON, b"text/plain", b"application/xml", b"", ARROW))


def good_row(number: int) -> bytes:
    return json.dumps({"id": number, "note": "from http"}).encode()


def wrong_lengths(chance: random.Random, attacker: Attacker) -> str:
    """Content-Length and chunks that lie, shapes of request smuggling among them."""
    row = good_row(7)
    line = b"POST " + path_of(attacker) + b" HTTP/1.1\r\nhost: a\r\n" + authorization(attacker)
    hidden = b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n"
    chunked = b"transfer-encoding: chunked\r\n"
    data = chance.choice(
        (
            line + b"content-length: 5\r\ncontent-length: 6\r\n\r\n" + row,
            line + b"content-length: 4\r\n" + chunked + b"\r\n0\r\n\r\n" + hidden,
            line + chunked + b"content-length: 4\r\n\r\n5c\r\n" + hidden + b"\r\n0\r\n\r\n",
            line + b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
            line + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
            line + b"transfer-encoding : chunked\r\n\r\n0\r\n\r\n",
            line + b"transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n0\r\n\r\n" + hidden,
            line + b"content-length: -1\r\n\r\n" + row,
            line + b"content-length: +5\r\n\r\n" + row,
            line + b"content-length: 0x10\r\n\r\n" + row,
            line + b"content-length: " + b"9" * chance.choice((15, 19, 30, 5_000)) + b"\r\n\r\n" + row,
            line + b"content-length: 68719476736\r\n\r\n" + row,
            line + b"content-length: 100000000\r\n\r\n" + row,
            line + b"content-length: 1000\r\n\r\n" + row,
            line + b"content-length: 0\r\n\r\n" + hidden * 50,
            line + b"\r\n" + row,
            line + chunked + b"\r\nzz\r\n" + row + b"\r\n0\r\n\r\n",
            line + chunked + b"\r\nffffffffffffffff\r\n" + row,
            line + chunked + b"\r\n-1\r\n" + row,
            line + chunked + b"\r\n1;" + b"x" * 100_000 + b"\r\n",
            line + chunked + b"\r\n" + b"1\r\n{\r\n" * 300,
            line + chunked + b"\r\n" + b"%x\r\n%s\r\n0\r\n" % (len(row), row) + b"x: y\r\n" * 3_000 + b"\r\n",
            line + b"expect: 100-continue\r\ncontent-length: 30\r\n\r\n",
            line + b"upgrade: websocket\r\nconnection: upgrade\r\ncontent-length: 0\r\n\r\n",
            line
            + b"upgrade: h2c\r\nconnection: upgrade, http2-settings\r\nhttp2-settings: AA\r\ncontent-length: 0\r\n\r\n",
        )
    )
    return sent(attacker, data)


def wrong_heads(chance: random.Random, attacker: Attacker) -> str:
    """Lines and headers that are no HTTP, or too much of it."""
    path = path_of(attacker)
    token = authorization(attacker)
    data = chance.choice(
        (
            b"",
            b"\r\n" * 100,
            b"\0" * 1_000,
            TLS_HELLO,
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0" * 9,
            b"GET " + b"/" * 100_000 + b" HTTP/1.1\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"GET /\r\n\r\n",
            b"get / http/1.1\r\n\r\n",
            b"BREW /metrics HTTP/1.1\r\nhost: a\r\n\r\n",
            b"GET /metrics HTTP/1.1\r\n" + b"x: y\r\n" * 10_000 + b"\r\n",
            b"GET /metrics HTTP/1.1\r\nx: " + b"y" * 200_000 + b"\r\n\r\n",
            b"GET /metrics HTTP/1.1\r\n" + b"z" * 200_000,
            b"GET /metrics HTTP/1.1\r\nhost: a\r\n x: folded\r\n\r\n",
            b"GET /metrics HTTP/1.1\r\nhost: a\nx: y\n\n",
            b"GET /metrics HTTP/1.1\r\nhost: a\r\nx: \0\r\n\r\n",
            b"GET /metrics HTTP/1.1\r\n: nameless\r\n\r\n",
            b"GET http://other/metrics HTTP/1.1\r\nhost: a\r\n\r\n",
            b"OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n",
            b"CONNECT a:1 HTTP/1.1\r\nhost: a\r\n\r\n",
            b"TRACE /metrics HTTP/1.1\r\nhost: a\r\n\r\n",
            b"HEAD /livez HTTP/1.1\r\nhost: a\r\n\r\n",
            b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n" * chance.choice((2, 100)),
            request(b"/v1/topics/../../metrics", token, b"", method=b"GET"),
            request(b"/v1/topics/%2e%2e%2ftokens.json/rows", token, good_row(1)),
            request(b"/v1/topics/%00/rows", token, good_row(1)),
            request(b"/v1/topics/%ff%fe/rows", token, good_row(1)),
            request(b"/v1/topics/" + b"a" * 10_000 + b"/rows", token, good_row(1)),
            request(b"/v1/topics//rows", token, good_row(1)),
            request(path + b"?partition=99999999999999999999", token, good_row(1)),
            request(path + b"?partition=-1", token, good_row(1)),
            request(path + b"?" + b"a=b&" * 1_000, token, good_row(1)),
            request(path + b"?rejected=%ff%00", token, good_row(1)),
            request(path, token + b"idempotency-key: " + b"k" * 10_000 + b"\r\n", good_row(1)),
            request(path, token + b"idempotency-key: \xff\xfe\r\n", good_row(1)),
            request(path, token + b"idempotency-key: \r\n", good_row(1)),
            request(path, token + token, good_row(1)),
            request(path, token + b"content-type: " + b"a/" * 5_000 + b"\r\n", good_row(1)),
            request(path, token + b"content-type: \xff\xfe\r\n", good_row(1)),
            request(path, token + b"content-encoding: gzip\r\n", gzip.compress(b" " * 5_000_000, 9)),
            request(path, token + b"content-encoding: br, gzip, deflate\r\n", b"x" * 100),
            request(path, token, good_row(1), method=chance.choice((b"PUT", b"DELETE", b"PATCH", b"GET"))),
        )
    )
    return sent(attacker, data)


def mutated_http(chance: random.Random, attacker: Attacker) -> str:
    """A good request, or two in a row, changed anywhere."""
    headers = authorization(attacker) + b"content-type: " + JSON + b"\r\n"
    data = request(path_of(attacker), headers, good_row(chance.randrange(100)))
    return sent(attacker, mutated(data * chance.choice((1, 1, 2)), chance))


def stranger_http(chance: random.Random, attacker: Attacker) -> str:
    """Without a token that counts no row gets in, and no figure out."""
    target = attacker.target
    token = target.token.encode()
    header = chance.choice(
        (
            b"",
            b"authorization: \r\n",
            b"authorization: Bearer\r\n",
            b"authorization: Bearer " + chance.choice(target.dead_tokens).encode() + b"\r\n",
            b"authorization: Bearer " + token[:-1] + b"\r\n",
            b"authorization: Bearer " + token + b"=\r\n",
            b"authorization: Basic " + token + b"\r\n",
            b"authorization: " + token + b"\r\n",
            b"authorization: Bearer " + b"x" * 10_000 + b"\r\n",
            b"authorization: Bearer \xff\xfe\r\n",
            b"authorization: Bearer " + token + b"\r\n" + b"authorization: Bearer x\r\n",
            b"cookie: authorization=Bearer " + token + b"\r\n",
        )
    )
    path, method, body = chance.choice(
        ((path_of(attacker), b"POST", good_row(1)), (b"/metrics", b"GET", b""), (path_of(attacker), b"POST", b"x" * 10))
    )
    return sent(attacker, request(path, header + CLOSE, body, method=method), whole=True, allowed=(400, 401, 403, 431))


def hostile_read(chance: random.Random, attacker: Attacker) -> str:
    """Rows are asked for from places and in columns that are none; whatever was appended can be read."""
    start = chance.choice(
        (b"earliest", b"latest", b"lsn:1", b"lsn:99999999999999999999", b"lsn:", b"-1", b"2026-11-15", b"%ff", b"0")
    )
    query = b"&".join(
        chance.choice(
            (
                b"start=" + start,
                b"limit=" + chance.choice((b"0", b"1", b"5", b"-1", b"1e3", b"999999999999999999999")),
                b"partition=" + chance.choice((b"0", b"7", b"-1", b"99999999999999", b"%00")),
                b"columns=" + chance.choice((b"id", b"id,id", b"", b",", b"none", b"at", b"%ff", b"place.x")),
                b"system_columns=" + chance.choice((b"true", b"maybe", b"")),
                b"limit=3",
            )
        )
        for _ in range(chance.choice((1, 1, 2, 3)))
    )
    headers = chance.choice((authorization(attacker),) * 3 + (b"",))
    if b"limit" not in query:
        query += b"&limit=3"
    data = request(path_of(attacker, b"?" + query), headers + CLOSE, b"", method=b"GET")
    return sent(attacker, data, whole=True, allowed=(200, 400, 404, 413) if headers else (401,))


def foreign_http(chance: random.Random, attacker: Attacker) -> str:
    """A topic that is somebody else's looks as if it were not there."""
    name = chance.choice((attacker.target.foreign_name, attacker.target.foreign_name + ".rejected", "nothing"))
    path = b"/v1/topics/" + name.encode() + b"/rows"
    return sent(attacker, request(path, authorization(attacker) + CLOSE, good_row(1)), whole=True, allowed=(404,))


ATTACKS = {
    hostile_arrow: 10,
    hostile_json: 8,
    wrong_lengths: 5,
    wrong_heads: 6,
    mutated_http: 5,
    stranger_http: 4,
    foreign_http: 1,
    hostile_read: 3,
}
