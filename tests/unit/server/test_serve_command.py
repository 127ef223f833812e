"""`headwater serve`, as whoever starts it sees it: what it says, how it ends."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner

import headwater as hw
from headwater.cli.main import app
from tests.servers.headwater import ServerProcess
from tests.unit.server.wire import Wire


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--listen", "nowhere"], "--listen is HOST:PORT"),
        (["--listen", "127.0.0.1:70000"], "--listen is HOST:PORT"),
        (["--http", "7071"], "--http is HOST:PORT"),
        (["--listen", "0.0.0.0:0"], "can be reached from other machines"),
        (["--http", "0.0.0.0:0"], "can be reached from other machines"),
        (["--tls-cert", "a.pem"], "TLS needs both"),
        (["--client-ca", "ca.pem"], "--client-ca is for TLS"),
        (["--take-over"], "--take-over is for buckets"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_anything_is_opened(
    tmp_path: Path, options: list[str], said: str
) -> None:
    done = CliRunner().invoke(app, ["serve", str(tmp_path / "data"), *options])

    assert done.exit_code == 2, done.output
    assert said in " ".join(done.output.split())
    assert not (tmp_path / "data").exists()


def test_a_server_does_not_serve_another_one() -> None:
    done = CliRunner().invoke(app, ["serve", "hw://127.0.0.1:7070"])

    assert done.exit_code == 2 and "no other server" in " ".join(done.output.split())


def test_a_server_says_where_it_is_stops_with_an_open_stream_and_leaves_a_log_that_was_closed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with ServerProcess(data) as server:
        ready = server.output()
        wire = Wire(f"grpc://127.0.0.1:{server.port}")
        topic = wire.make("orders")
        put = wire.put(topic)
        put.send(1, [{"id": 1, "note": "x"}])
        answers = [put.answer()]
        second = ServerProcess(data, wait_ready=False).start()
        second_code, second_output = second.wait(), second.output()
        server.signal(signal.SIGTERM)
        answers.append(put.answer())
        code = server.wait()

    assert f"serving {data} on hw://127.0.0.1:{server.port}, HTTP on 127.0.0.1:{server.http_port}" in ready
    assert second_code == 75 and "LogLocked" in second_output
    assert code == 0, server.output()
    assert [each.number for each in answers] == [1, 0]
    lines = [json.loads(line) for line in server.output().splitlines() if line.startswith("{")]
    assert lines and all({"time", "level", "logger", "message"} <= set(line) for line in lines)
    assert not any("trace" in line for line in lines), server.output()
    with hw.open(data) as log:
        assert log["orders"].read().to_pylist() == [{"id": 1, "note": "x"}]
        assert log._engine.status().replay_bytes == 0, "it made its checkpoint"
    wire.close()
