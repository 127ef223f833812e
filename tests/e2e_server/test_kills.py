"""kill -9 of a server under load by several client processes, on a network that breaks in between.

PROMISED  As checks.py says: what was acknowledged is there once, at the offsets of its answer; what was refused is not;
          nothing is torn apart, doubled, or out of a client's order; groups lose nothing that they committed.
          The clients live through all of it: no error reaches them that a careful program does not expect, and they go
          on by themselves within `GO_ON_S_MAX` of the server's and the network's return (V14).

SCHEDULE  All that is drawn comes from the seed: when the server dies, how long it stays away, what happens to the
          network (connections break at some byte, stall, are cut, are slow) and whether it is well when the server
          dies.  Only the processes' timing is not the seed's.

HEADWATER_SERVER_KILLS says how many (CI: 60; torture: 3,000).
"""

from __future__ import annotations

import random
import shutil
import statistics
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

import headwater as hw
from tests.e2e.appender_process import Nursery
from tests.e2e.machine import times
from tests.e2e_server.checks import Told, check_log
from tests.e2e_server.client_process import ClientSettings
from tests.e2e_server.client_processes import ClientProcess, client_process, told_by, wait_for_progress
from tests.e2e_server.forked_server import ForkedServer, forked_server, server_nursery
from tests.e2e_server.troubles import death, trouble
from tests.servers.headwater import ServerProcess
from tests.servers.tcp_proxy import TcpProxy, tcp_proxy

KILLS = times("HEADWATER_SERVER_KILLS", 60)
KILLS_IN_ONE_PLACE = 60
GO_ON_S_MAX = 30.0
END_S_MAX = 60.0

CLIENTS = (
    ClientSettings(0, appenders=2, futures=1, copiers=1, followers=1),
    ClientSettings(1, appenders=1, futures=2, transactions=2, consumers=1),
    ClientSettings(2, expecting=2, copiers=1, consumers=1, followers=1, senders=2),
    ClientSettings(3, expecting=1, followers=1, copiers=1, retry_s=0.15),
)


def one_death(server: ForkedServer, network: TcpProxy, clients: list[ClientProcess], rng: random.Random) -> float:
    """The server dies and comes back; in seconds, until somebody was acknowledged something after its return."""
    for _ in range(rng.choice((0, 1, 1, 2))):
        time.sleep(rng.uniform(0.0, 0.2))
        trouble(network, rng)
    time.sleep(rng.uniform(0.0, 0.2))
    death(server, network, rng)
    began_s = time.monotonic()
    try:
        return wait_for_progress(clients, began_s, GO_ON_S_MAX) - began_s
    except AssertionError:
        server.show_where()
        raise


def check_place(where: Path, told: Told) -> None:
    """As a client of `headwater serve` sees it; and, when that has ended, as it lies there."""
    with ServerProcess(where) as server:
        with hw.connect(server.address) as log:
            check_log(log, told)
        assert server.stop() == 0, server.output()
    with hw.open(where) as log:
        check_log(log, told)


def kill_in_one_place(nursery: Nursery, home: Path, kills: int, rng: random.Random) -> tuple[Told, list[float]]:
    with ExitStack() as stack:
        server = stack.enter_context(forked_server(nursery, home / "data", rng.choice((64, 256, 65_536))))
        network = stack.enter_context(tcp_proxy(server.port))
        server.start()
        address = f"hw://127.0.0.1:{network.port}"
        clients = [stack.enter_context(client_process(address, each, home)) for each in CLIENTS]
        for client in clients:
            wait_for_progress([client], 0.0, GO_ON_S_MAX)
        came_back_s = []
        for _ in range(kills):
            came_back_s.append(one_death(server, network, clients, rng))
            for client in clients:
                assert not client.errors, client.where()
        for client in clients:
            client.stop(END_S_MAX)
        told = told_by(clients)
        server.kill()
        check_place(server.where, told)
    return told, came_back_s


@pytest.mark.timeout(300 + 5 * KILLS)
def test_no_kill_and_no_cut_loses_splits_or_repeats_what_was_acknowledged(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    acknowledged = unknown = refused = 0
    came_back_s: list[float] = []
    began_s = time.monotonic()

    with server_nursery() as nursery:
        for first in range(0, KILLS, KILLS_IN_ONE_PLACE):
            home = tmp_path / f"place-{first}"
            told, took_s = kill_in_one_place(nursery, home, min(KILLS_IN_ONE_PLACE, KILLS - first), rng)
            acknowledged += told.acknowledged
            unknown += sum(map(len, told.unknown.values()))
            refused += sum(map(len, told.refused.values()))
            came_back_s += took_s
            shutil.rmtree(home)

    seconds = time.monotonic() - began_s
    assert acknowledged > 20 * KILLS
    print(
        f"{KILLS} kills in {seconds:.0f} s; {acknowledged} acknowledged requests, {unknown} of unknown outcome, "
        f"{refused} refused; acknowledged again after {statistics.median(came_back_s):.2f} s, "
        f"at most {max(came_back_s):.2f} s"
    )
