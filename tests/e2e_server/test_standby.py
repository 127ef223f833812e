"""Two servers of one log in a bucket: one owns it, the other stands by.  The owner is killed, or stopped, again and
again; clients that know both addresses go on.

PROMISED  As checks.py says, over owners: what one has acknowledged is there under the next.  A standby goes on within
          `GO_ON_S_MAX` of its owner's death, and a client finds it by itself.

HEADWATER_STANDBYS says how often (CI: 2; torture: 30).
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import headwater as hw
from tests.e2e.machine import times
from tests.e2e_server.checks import check_log
from tests.e2e_server.client_process import ClientSettings
from tests.e2e_server.client_processes import client_process, told_by, wait_for_progress
from tests.servers.headwater import ServerProcess
from tests.servers.versitygw import S3Server, versitygw

STANDBYS = times("HEADWATER_STANDBYS", 2)
GO_ON_S_MAX = 30.0
END_S_MAX = 60.0

CLIENTS = (
    ClientSettings(0, appenders=1, futures=1, copiers=1, followers=1, pause_s=0.01),
    ClientSettings(1, appenders=1, futures=1, expecting=1, consumers=1, pause_s=0.01),
)


@pytest.fixture
def store() -> Iterator[S3Server]:
    with versitygw() as server:
        yield server


@pytest.mark.timeout(300 + 60 * STANDBYS)
def test_a_standby_goes_on_where_the_owner_died_and_clients_find_it(store: S3Server, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    url = store.url("standby")
    environment = {**store.environment, "TMPDIR": str(tmp_path)}
    took_s = []

    with ExitStack() as stack:
        owner = stack.enter_context(ServerProcess(url, "--standby", environment=environment, wait_ready=False))
        owner.wait_ready()
        other = stack.enter_context(ServerProcess(url, "--standby", environment=environment, wait_ready=False))
        address = f"hw://127.0.0.1:{owner.port},127.0.0.1:{other.port}"
        clients = [stack.enter_context(client_process(address, each, tmp_path)) for each in CLIENTS]
        for client in clients:
            wait_for_progress([client], 0.0, GO_ON_S_MAX)
        for number in range(STANDBYS):
            time.sleep(rng.uniform(0.5, 1.5))
            began_s = time.monotonic()
            if number % 2:
                assert owner.stop() == 0, owner.output()
            else:
                owner.kill()
            other.wait_ready(GO_ON_S_MAX)
            took_s.append(wait_for_progress(clients, time.monotonic(), GO_ON_S_MAX) - began_s)
            owner.start()
            owner, other = other, owner
        for client in clients:
            assert not client.errors, client.where()
            client.stop(END_S_MAX)
        told = told_by(clients)
        with hw.connect(address) as log:
            check_log(log, told)
        owner.stop()
        other.kill()
        with store.in_environment(), hw.open(url) as log:
            check_log(log, told)

    assert told.acknowledged > 20 * STANDBYS
    print(
        f"{STANDBYS} takeovers by a standby, {told.acknowledged} acknowledged requests; the next was acknowledged "
        f"{statistics.median(took_s):.1f} s after the owner's end, at most {max(took_s):.1f} s"
    )
