"""The command `headwater`, as a shell starts it, on a real store: what works, and what a newcomer is told otherwise.

Each command is a process of its own, so nothing is left of the one before but what is in the bucket.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.servers.versitygw import S3Server, versitygw

SOON_S = 15.0
"""A command that cannot reach its store has said so by then, on a slow machine too."""


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with versitygw() as running:
        yield running


def run(
    server: S3Server, *arguments: str, given: str = "", code: int = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    known = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "HEADWATER_DATA"))}
    done = subprocess.run(
        [sys.executable, "-m", "headwater", *arguments],
        env={**known, **server.environment, **environment},
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code, done.stderr
    return done


def test_rows_go_in_and_come_out_by_processes_that_share_nothing_but_the_bucket(server: S3Server) -> None:
    url = server.url("command-line/rows")
    data = ("--data", url)

    run(server, "topic", "create", "orders", "--schema", "id:int64", *data)
    run(server, "append", "orders", *data, given='{"id": 1}\n{"id": 2}\n')
    run(server, "append", "orders", given='{"id": 3}\n', HEADWATER_DATA=url)

    read = run(server, "read", "orders", *data).stdout.splitlines()
    assert [json.loads(line)["id"] for line in read] == [1, 2, 3]
    told = json.loads(run(server, "status", "--json", *data).stdout)
    assert (told["store"]["url"], told["store"]["owner"]) == (url, None)
    verified = json.loads(run(server, "log", "verify", url, "--json").stdout)
    assert (verified["ok"], verified["findings"], verified["notes"]) == (True, [], [])
    assert "fence]" in run(server, "log", "dump", url).stdout


def test_a_wrong_key_a_wrong_bucket_and_a_wrong_endpoint_are_told_within_seconds(server: S3Server) -> None:
    url = server.url("command-line/wrong")
    began_s = time.monotonic()

    key = run(server, "status", "--data", url, code=2, AWS_SECRET_ACCESS_KEY="wrong")
    bucket = run(server, "status", "--data", "s3://no-such-bucket/x", code=2)
    endpoint = run(server, "status", "--data", url, code=75, AWS_ENDPOINT_URL="http://127.0.0.1:9")

    assert time.monotonic() - began_s < 3 * SOON_S
    assert "AWS_SECRET_ACCESS_KEY" in key.stderr
    assert "no-such-bucket" in bucket.stderr
    assert "AWS_ENDPOINT_URL (http://127.0.0.1:9)" in endpoint.stderr
    for done in (key, bucket, endpoint):
        assert "Traceback" not in done.stderr and done.stderr.count("\n") == 1


def test_without_the_extra_it_is_named(server: S3Server) -> None:
    program = (
        "import sys; sys.modules['obstore'] = None; sys.argv = ['headwater', 'status', '--data', 's3://bucket/x'];"
        "from headwater.cli.main import app; app()"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

    assert done.returncode == 2
    assert "headwater[objects]" in done.stderr and "Traceback" not in done.stderr
