"""Recorded histories of clients of one partition are linearizable: a server, its deaths and a network that breaks make
no difference to what a single list in one process would have shown.

EACH     1,000 appends and reads by five clients, and two that follow, over a proxy, against a server process: a quarter
         of the histories in peace, the others while the network breaks, while the server is killed, or both.
JUDGE    tests/histories/linearizable.py, which tests/unit/test_linearizable.py has seen fail.

HEADWATER_HISTORIES says how many (CI: 4; torture: 50).
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

import headwater as hw
from tests.e2e.appender_process import Nursery
from tests.e2e.machine import times
from tests.e2e_server.forked_server import ForkedServer, forked_server, server_nursery
from tests.e2e_server.troubles import death, trouble
from tests.histories.history import History
from tests.histories.linearizable import NotLinearizable, check
from tests.histories.recording import final_rows, record
from tests.servers.tcp_proxy import TcpProxy, tcp_proxy

HISTORIES = times("HEADWATER_HISTORIES", 4)
OPERATIONS = 1_000
TROUBLES = 20
"""At most so many in one history; clients that were cut off wait a little longer each time."""
MODES = ("peace", "cuts", "kills", "cuts and kills")


class Disturbing:
    """Breaks what its mode says, until it is told to stop; then all is well."""

    def __init__(self, mode: str, server: ForkedServer, network: TcpProxy, rng: random.Random) -> None:
        self.deaths = 0
        self._mode = mode
        self._server = server
        self._network = network
        self._rng = rng

    def run(self, stopping: threading.Event) -> None:
        rng = self._rng
        for _ in range(0 if self._mode == "peace" else TROUBLES):
            if stopping.wait(rng.uniform(0.02, 0.25)):
                return
            if "cuts" in self._mode:
                trouble(self._network, rng)
            if "kills" in self._mode and rng.random() < 0.6:
                death(self._server, self._network, rng)
                self.deaths += 1
            self._network.resume()


def recorded(nursery: Nursery, where: Path, seed: int, mode: str) -> tuple[History, int, int]:
    rng = random.Random(seed)
    with forked_server(nursery, where, 64) as server, tcp_proxy(server.port) as network:
        server.start()
        disturbing = Disturbing(mode, server, network, rng)
        history = record(
            lambda: hw.connect(f"hw://127.0.0.1:{network.port}"), seed, operations=OPERATIONS, meanwhile=disturbing.run
        )
        resets = network.resets
    with hw.open(where) as log:
        assert final_rows(log) == history.final, "what a client reads at the end is what lies there"
    return history, disturbing.deaths, resets


@pytest.mark.timeout(120 + 60 * HISTORIES)
def test_what_clients_are_told_is_what_one_list_would_have_shown(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    totals: Counter[str] = Counter()
    began_s = time.monotonic()

    with server_nursery() as nursery:
        for number in range(HISTORIES):
            mode = MODES[number % len(MODES)]
            history_seed = rng.randrange(2**32)
            history, deaths, resets = recorded(nursery, tmp_path / f"data-{number}", history_seed, mode)
            try:
                check(history)
            except NotLinearizable as error:
                error.add_note(f"history {number} of seed {seed}, in {mode}")
                raise
            totals.update(
                appends=len(history.appends), reads=len(history.reads), tails=len(history.tails), deaths=deaths
            )
            totals.update(resets=resets)
            totals.update(each.outcome.name for each in history.appends)

    told = ", ".join(f"{count} {name}" for name, count in totals.items())
    print(f"{HISTORIES} histories of {OPERATIONS} operations in {time.monotonic() - began_s:.0f} s: {told}")
