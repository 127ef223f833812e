"""Security, against real servers: who may do what, who is let in, and whether a secret ever comes out again."""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import flight

import headwater as hw
from headwater.errors import HeadwaterError, InvalidRequest, NotAllowed, Unauthenticated, UnknownTopic
from headwater.protocol.address import parse_address
from headwater.protocol.calls import Nothing
from headwater.protocol.codec import pack, unpack
from headwater.protocol.places import AtLsn
from headwater.protocol.streams import AppendStream, ReadRows, RowsAnswer, RowsRequest
from headwater.server import tokens
from headwater.server.access import RIGHTS, parse_grant
from headwater.server.serving import Server
from headwater.storage.disk import DiskFiles
from tests.servers.certificates import Certificate, Certificates, make_certificates
from tests.servers.headwater import ServerProcess, on_loopback, serving
from tests.servers.planted import leaks

SCHEMA = pa.schema([pa.field("order_id", pa.int64(), nullable=False), pa.field("note", pa.string())])
EVERYTHING = tuple(f"{right}:*" for right in RIGHTS)
SOON = hw.ClientSettings(retry_s=2.0)


BODIES = (None, b'{"order_id": 1}', b'{"order_id": "x"}', b"{")


def topic_id_of(log: hw.Log, name: str) -> bytes:
    return log._engine.topic(name).topic_id


def token(data: Path, name: str, *grants: str) -> str:
    return tokens.create(DiskFiles(data), name, tuple(parse_grant(each) for each in grants))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


# Rights ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, dict[str, str]]]:
    """A server with two topics, and tokens: one for each right over `orders` alone, and one for everything."""
    data = tmp_path_factory.mktemp("guarded")
    held: dict[str, str] = {right: token(data, right, f"{right}:orders") for right in RIGHTS}
    held["all"] = token(data, "all", *EVERYTHING)
    with serving(data, settings=on_loopback(tokens=True)) as server:
        with hw.connect(server.address, token=held["all"]) as log:
            for name in ("orders", "secret"):
                log.topic(name, schema=SCHEMA).append([{"order_id": 1, "note": "x"}])
        yield server, held


def _in_a_transaction(log: hw.Log, topic: str) -> None:
    with log.transaction() as transaction:
        transaction.append(topic, [{"order_id": 3}])


def _in_a_group(log: hw.Log, topic: str) -> None:
    with log.consumer(topic, group="group") as consumer:
        consumer.poll(timeout_s=0.1)


VERBS: dict[str, tuple[set[str], Callable[[hw.Log, str], object]]] = {
    "append": ({"write"}, lambda log, topic: log.topic(topic).append([{"order_id": 2}])),
    "read": ({"read"}, lambda log, topic: list(log.topic(topic).read())),
    "join a group": ({"read"}, _in_a_group),
    "transaction": ({"write"}, _in_a_transaction),
    "alter": ({"admin"}, lambda log, topic: log.topic(topic).alter(retention="30d")),
    "describe": (set(RIGHTS), lambda log, topic: log.topic(topic).describe()),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("right", RIGHTS)
def test_each_right_allows_its_own_verbs_and_no_others(
    guarded: tuple[Server, dict[str, str]], right: str, verb: str
) -> None:
    server, held = guarded
    needed, do = VERBS[verb]
    with hw.connect(server.address, token=held[right], client=SOON) as log:
        if right in needed:
            do(log, "orders")
        else:
            with pytest.raises(NotAllowed):
                do(log, "orders")
        with pytest.raises(UnknownTopic):
            do(log, "secret")


def test_a_topic_without_any_right_is_not_in_any_list(guarded: tuple[Server, dict[str, str]]) -> None:
    server, held = guarded
    with hw.connect(server.address, token=held["read"]) as log:
        assert [each.name for each in log.topics()] == ["orders"]


def test_the_right_is_looked_up_for_the_topic_that_was_found_and_not_for_a_name(
    guarded: tuple[Server, dict[str, str]],
) -> None:
    server, held = guarded
    with hw.connect(server.address, token=held["all"]) as log:
        ticket = flight.Ticket(pack(ReadRows(topic_id_of(log, "secret"), start=AtLsn(1))))
    client = flight.connect(server.location)

    with pytest.raises(flight.FlightError) as hidden:
        list(client.do_get(ticket, flight.FlightCallOptions(headers=_headers(held["read"]))))
    nowhere = flight.Ticket(pack(ReadRows(bytes(16), start=AtLsn(1))))
    with pytest.raises(flight.FlightError) as not_there:
        list(client.do_get(nowhere, flight.FlightCallOptions(headers=_headers(held["read"]))))

    assert "secret" not in str(hidden.value)
    assert str(hidden.value) == str(not_there.value)
    client.close()


def test_nobody_makes_or_deletes_a_topic_without_the_right_to(guarded: tuple[Server, dict[str, str]]) -> None:
    server, held = guarded
    for right in ("read", "write", "land"):
        with hw.connect(server.address, token=held[right]) as log:
            with pytest.raises(NotAllowed):
                log.topic("new", schema=SCHEMA)
            with pytest.raises(NotAllowed):
                log.delete_topic("orders", force=True)
    with hw.connect(server.address, token=held["admin"]) as log:
        with pytest.raises(NotAllowed):
            log.topic("new", schema=SCHEMA)
        with pytest.raises(UnknownTopic):
            log.delete_topic("secret", force=True)


def test_what_concerns_the_whole_server_needs_the_right_over_everything(
    guarded: tuple[Server, dict[str, str]],
) -> None:
    server, held = guarded
    with hw.connect(server.address, token=held["admin"]) as log, pytest.raises(NotAllowed):
        log.status()
    with hw.connect(server.address, token=held["all"]) as log:
        assert {each.name for each in log.status().topics} >= {"orders", "secret"}


# Being let in ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [None, "wrong", "hw_" + "A" * 43, "x" * 5_000])
def test_whoever_has_no_good_token_is_not_let_in(
    guarded: tuple[Server, dict[str, str]], given: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADWATER_TOKEN", raising=False)
    server, _ = guarded

    with pytest.raises((Unauthenticated, InvalidRequest)) as refused:
        hw.connect(server.address, token=given)

    assert given is None or given not in str(refused.value)


def test_whoever_goes_around_the_front_is_refused_with_a_good_token_too(guarded: tuple[Server, dict[str, str]]) -> None:
    server, held = guarded
    assert server._flight is not None
    inner = flight.connect(f"grpc://127.0.0.1:{server._flight.port}")

    with pytest.raises(flight.FlightUnauthenticatedError, match="the server's own door"):
        _call(inner, flight.Action("topics", pack(Nothing())), flight.FlightCallOptions(headers=_headers(held["all"])))
    inner.close()


def test_a_revoked_token_is_refused_within_two_seconds_on_open_connections_too(tmp_path: Path) -> None:
    held = token(tmp_path, "loader", *EVERYTHING)
    with (
        serving(tmp_path, settings=on_loopback(tokens=True)) as server,
        hw.connect(server.address, token=held) as log,
    ):
        log.topic("orders", schema=SCHEMA)

        tokens.revoke(DiskFiles(tmp_path), "loader")

        time.sleep(2.0)
        with pytest.raises(Unauthenticated):
            log.topics()


def test_a_new_token_is_good_within_two_seconds(tmp_path: Path) -> None:
    with serving(tmp_path, settings=on_loopback(tokens=True)) as server:
        held = token(tmp_path, "loader", *EVERYTHING)
        time.sleep(2.0)

        with hw.connect(server.address, token=held) as log:
            assert log.topics() == []


def test_certificates_are_principals_and_strangers_get_no_answer(certificates: Certificates, tmp_path: Path) -> None:
    loader = certificates.client("loader", alternative_name="DNS:loader.example")
    unknown = certificates.client("unknown")
    stranger = make_certificates(tmp_path / "other").client("stranger")
    data = tmp_path / "data"
    tokens.create(
        DiskFiles(data), "loader", (parse_grant("admin:orders"), parse_grant("write:orders")),
        certificate="loader.example",
    )  # fmt: skip
    settings = on_loopback(tls=certificates.tls(client_ca=True), http=("127.0.0.1", 0))
    with serving(data, settings=settings) as server:
        port = server.address.rpartition(":")[2]

        def address(cert: Path, key: Path) -> str:
            return f"hws://localhost:{port}?ca_file={certificates.ca_file}&cert_file={cert}&key_file={key}"

        with hw.connect(address(loader.cert_file, loader.key_file)) as log:
            orders = log.topic("orders", schema=SCHEMA)
            orders.append([{"order_id": 1}])
            with pytest.raises(NotAllowed):
                list(orders.read())
        url = f"https://localhost:{server.http_port}/v1/topics/orders/rows"
        answers = [_posted(url, certificates, each) for each in (loader, unknown, stranger, None)]
        assert answers == ["200", "401", "no answer", "no answer"]
        with pytest.raises(Unauthenticated, match="unknown"):
            hw.connect(address(unknown.cert_file, unknown.key_file))
        for wrong in (
            address(stranger.cert_file, stranger.key_file),
            f"hws://localhost:{port}?ca_file={certificates.ca_file}",
        ):
            with pytest.raises(HeadwaterError):
                hw.connect(wrong, client=SOON)


def _posted(url: str, certificates: Certificates, client: Certificate | None) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(certificates.ca_file)
    if client is not None:
        context.load_cert_chain(client.cert_file, client.key_file)
    try:
        with urllib.request.urlopen(url, b'{"order_id": 2}', timeout=10, context=context) as answer:
            return str(answer.status)
    except urllib.error.HTTPError as error:
        return str(error.code)
    except OSError:
        return "no answer"


def test_a_server_that_strangers_could_reach_does_not_start_without_tls_and_tokens(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headwater", "serve", str(tmp_path), "--listen", "0.0.0.0:0", "--http", "none"]

    for options in ([], ["--tokens"]):
        ended = subprocess.run([*command, *options], capture_output=True, text=True, timeout=60)
        assert ended.returncode == 2, ended.stderr
        assert "--tls-cert" in ended.stderr


# Memory ---------------------------------------------------------------------------------------------------------------


def peak_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no peak is told")


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="the peak is read from /proc")
def test_neither_bombs_nor_strangers_cost_a_server_its_life_or_its_memory(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("order_id", pa.int64(), nullable=False)])
    data = tmp_path / "data"
    held = token(data, "loader", *EVERYTHING)
    with (
        ServerProcess(data, "--tokens", environment={"MIMALLOC_RESERVE_OS_MEMORY": "262144KiB"}) as server,
        hw.connect(server.address, token=held) as log,
    ):
        topic = log.topic("orders", schema=schema)
        topic.append([{"order_id": 1}])
        before = peak_bytes(server.pid)

        _say_too_much(server, "wrong", size_bytes=64 << 20)
        assert peak_bytes(server.pid) - before < 16 << 20, "a stranger's message was held"

        for _ in range(2):
            _drop_bomb(server, held, topic_id_of(log, "orders"), schema, rows=1 << 26)
        assert peak_bytes(server.pid) - before < 400 << 20, "half a gigabyte was decompressed"

        topic.append([{"order_id": 2}])
        assert topic.read().to_arrow().column("order_id").to_pylist() == [1, 2]


def _say_too_much(server: ServerProcess, held: str, size_bytes: int) -> None:
    client = flight.connect(f"grpc://127.0.0.1:{server.port}")
    options = flight.FlightCallOptions(timeout=30, headers=_headers(held))
    try:
        with pytest.raises((pa.ArrowException, flight.FlightError)):
            _call(client, flight.Action("topics", bytes(size_bytes)), options)
    finally:
        client.close()


def _drop_bomb(server: ServerProcess, held: str, topic_id: bytes, schema: pa.Schema, rows: int) -> None:
    """Half a gigabyte of zeroes in some kilobytes."""
    client = flight.connect(f"grpc://127.0.0.1:{server.port}")
    options = flight.FlightCallOptions(
        timeout=60, headers=_headers(held), write_options=pa.ipc.IpcWriteOptions(compression="zstd")
    )
    descriptor = flight.FlightDescriptor.for_command(pack(AppendStream(topic_id, 1)))
    column = pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(bytes(8 * rows))])
    try:
        writer, answers = client.do_put(descriptor, schema, options)
        writer.write_with_metadata(pa.RecordBatch.from_arrays([column], schema=schema), pack(RowsRequest(1)))
        writer.done_writing()
        answer = answers.read()
        assert answer is None or unpack(answer.to_pybytes(), RowsAnswer).failure is not None, "the bomb was taken"
        writer.close()
    except (pa.ArrowException, flight.FlightError):
        # The stream was ended: that is an answer too.
        pass
    finally:
        client.close()


# Secrets --------------------------------------------------------------------------------------------------------------


def test_no_secret_is_in_any_log_error_page_or_file_of_a_server(certificates: Certificates, tmp_path: Path) -> None:
    data = tmp_path / "data"
    good = token(data, "admin", *EVERYTHING)
    weak = token(data, "weak", "read:orders")
    gone = token(data, "gone", *EVERYTHING)
    tokens.revoke(DiskFiles(data), "gone")
    wrong = "hw_" + "Wr0ngT0ken" * 4
    odd = "not-even-a-token-" + "Zq7" * 8
    secrets = [good, weak, gone, wrong, odd]
    token_file = tmp_path / "token"
    token_file.write_text(f"{good}\n")
    told: list[str] = []
    options = ["--tokens", "--tls-cert", certificates.server.cert_file, "--tls-key", certificates.server.key_file]
    server = ServerProcess(data, *map(str, options), "--log-level", "debug", host="127.0.0.1", wait_ready=False)
    base = f"https://127.0.0.1:{server.http_port}"
    with server:
        _wait_ready(base, certificates, server)
        address = f"hws://127.0.0.1:{server.port}?ca_file={certificates.ca_file}"

        told += _by_flight(address, token_file, [good, weak, gone, wrong, odd])
        with hw.connect(address, token=weak) as log:
            told += [repr(log), _refused(lambda: log.topic("orders").append([{"order_id": 1}]))]
            told.append(_refused(lambda: log.topic("other")))
        for held in secrets:
            told += [_asked(f"{base}/v1/topics/orders/rows", certificates, held, body) for body in BODIES]
            for path in ("/v1/topics/nothing/rows", "/metrics", "/no/such/path"):
                told.append(_asked(base + path, certificates, held, None))
            # Where none belongs, but where people put them.
            told.append(_asked(f"{base}/metrics?token={held}", certificates, "", None))
        told.append(_command("status", "--json", "--data", f"{address}&token_file={token_file}"))
        told.append(_command("token", "list", "--json", "--data", str(data)))
        assert server.stop() == 0

    assert any("order_id" in each for each in told) and any("headwater_" in each for each in told)
    assert server.output(), "the server wrote no log"
    assert leaks(secrets, data, server.log_path, *told) == []
    assert not any("Traceback" in each or "site-packages" in each for each in told), "a stack was told to a caller"


def _by_flight(address: str, token_file: Path, secrets: list[str]) -> list[str]:
    """What works, what is refused, and what is no message at all."""
    with hw.connect(f"{address}&token_file={token_file}") as log:
        orders = log.topic("orders", schema=SCHEMA)
        orders.append([{"order_id": 1, "note": "x"}])
        told = [repr(log), repr(orders), str(log.status())]
        told.append(_refused(lambda: orders.append([{"order_id": "no number"}])))
    place = parse_address(address)
    assert place.ca_file is not None
    client = flight.connect(place.locations()[0], tls_root_certs=Path(place.ca_file).read_bytes())
    for held in secrets:
        told.append(_refused(partial(hw.connect, address, token=held)))
        options = flight.FlightCallOptions(headers=_headers(held))
        for name, body in (("no_such_call", b"x"), ("commit", b"\xc1"), ("topics", b"\x80")):
            told.append(_refused(partial(_call, client, flight.Action(name, body), options)))
    client.close()
    return told


def _call(client: flight.FlightClient, action: flight.Action, options: flight.FlightCallOptions) -> list[bytes]:
    return [result.body.to_pybytes() for result in client.do_action(action, options)]


def test_a_leak_would_be_found(tmp_path: Path) -> None:
    secret = "hw_" + "0123456789abcdefghij" * 2
    (tmp_path / "deep").mkdir()

    assert leaks([secret], tmp_path, "nothing here", b"hw_0123") == []
    (tmp_path / "deep" / "file").write_text(f"x{secret[5:20]}x")
    for text in (secret, secret.encode().hex(), base64.b64encode(b"ab" + secret.encode()).decode()):
        assert len(leaks([secret], text)) == 1
    assert len(leaks([secret], tmp_path)) == 1


def _headers(held: str) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", f"Bearer {held}".encode())]


def _refused(act: Callable[[], object]) -> str:
    try:
        return repr(act())
    except (HeadwaterError, pa.ArrowException, flight.FlightError) as error:
        return f"{type(error).__name__}: {error} {error!r} {getattr(error, 'extra_info', '')!r}"


def _wait_ready(base: str, certificates: Certificates, server: ServerProcess) -> None:
    end_s = time.monotonic() + 30
    while '"200"' not in _asked(f"{base}/readyz", certificates, "", None):
        assert time.monotonic() < end_s, server.output()
        time.sleep(0.05)


def _asked(url: str, certificates: Certificates, held: str, body: bytes | None) -> str:
    """All that an answer holds: its status, headers and body."""
    request = urllib.request.Request(url, data=body, headers={"Authorization": f"Bearer {held}"} if held else {})
    if body is not None:
        request.add_header("Content-Type", "application/json")
    context = _trusting(str(certificates.ca_file))
    try:
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return json.dumps([str(answer.status), answer.headers.as_string(), answer.read().decode()])
    except urllib.error.HTTPError as error:
        return json.dumps([str(error.code), error.headers.as_string(), error.read().decode()])
    except OSError as error:
        return repr(error)


@cache
def _trusting(ca_file: str) -> ssl.SSLContext:
    # Only this CA: loading all that a machine trusts takes longer than a request.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(ca_file)
    return context


def _command(*arguments: str) -> str:
    ended = subprocess.run([sys.executable, "-m", "headwater", *arguments], capture_output=True, text=True, timeout=60)
    return ended.stdout + ended.stderr
