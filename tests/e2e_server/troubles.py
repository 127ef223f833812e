"""What happens to a server and to the network before it, drawn from a seed."""

from __future__ import annotations

import random
import time

from tests.e2e_server.forked_server import ForkedServer
from tests.servers.tcp_proxy import TcpProxy


def trouble(network: TcpProxy, rng: random.Random) -> None:
    """Something happens to the network, and passes; or stays, until somebody resumes it."""
    match rng.randrange(5):
        case 0:
            network.break_after(rng.choice((0, 9, 60, 500, 5_000, 50_000)), also_new=rng.random() < 0.3)
            time.sleep(rng.uniform(0.0, 0.15))
        case 1:
            network.stall()
            time.sleep(rng.uniform(0.0, 0.3))
        case 2:
            network.cut()
            time.sleep(rng.uniform(0.0, 0.3))
        case 3:
            network.delay(rng.uniform(0.0, 0.03))
            time.sleep(rng.uniform(0.0, 0.2))
        case _:
            network.reset()
    if rng.random() < 0.7:
        network.resume()


def death(server: ForkedServer, network: TcpProxy, rng: random.Random) -> None:
    """The server is killed and comes back, perhaps after a while, perhaps to die again while it opens the log; and the
    network is well again."""
    server.kill()
    if rng.random() < 0.2:
        server.start(wait=False)
        time.sleep(rng.uniform(0.0, 0.1))
        server.kill()
    time.sleep(rng.choice((0.0, 0.0, rng.uniform(0.0, 0.3))))
    server.start(wait=False)
    network.resume()
