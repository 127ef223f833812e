"""A log with 1,000 topics, 10,000 partitions and 100,000 operations of its journal: what opening it costs.

Each opening is measured in a process of its own, from the call until the topics are listed and until the first row is
durable, with the most memory that the process ever held.  It is opened after a clean close and after a kill -9, before
there are rows and when every partition has some.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.appender_process import REPOSITORY, appender_environment

TOPICS = 1_000
PARTITIONS = 10
OPERATIONS = 100_000
OPERATIONS_A_WRITE = 500
OPEN_S_MAX = 2.0
RSS_MIB_MAX = 300.0

MAKE = f"""
import sys
import headwater as hw
from headwater.metadata.operations import AddPartitions, Policy, SetPolicy

log = hw.open(sys.argv[1])
made = log.create_topics([hw.NewTopic(f"topic-{{n:04}}", {{"id": int, "text": str}}) for n in range({TOPICS})])
operations = [AddPartitions(topic.number, {PARTITIONS}) for topic in made]
while len(operations) < {OPERATIONS} - {TOPICS}:
    topic = made[len(operations) % {TOPICS}]
    operations.append(SetPolicy(topic.number, Policy(retention_s=1.0 + len(operations))))
# Through the journal, because altering topics one by one would be a sync each.
journal = log._engine.journal
for first in range(0, len(operations), {OPERATIONS_A_WRITE}):
    journal.append(operations[first : first + {OPERATIONS_A_WRITE}])
assert log.status().journal_lsn >= {OPERATIONS}
"""

FILL = f"""
import sys
import headwater as hw

log = hw.open(sys.argv[1])
for first in range(0, {TOPICS}, 100):
    with log.transaction() as tx:
        for n in range(first, first + 100):
            for partition in range({PARTITIONS}):
                tx.append(f"topic-{{n:04}}", {{"id": n, "text": "row"}}, partition=partition)
"""

OPEN = """
import json
import pathlib
import sys
import time

import pyarrow as pa

import headwater as hw

hw.open  # imported by now
pa.array([0])  # and so is pandas, where it is installed: pyarrow looks for it at its first array
began = time.perf_counter()
log = hw.open(sys.argv[1])
topics = log.topics()
listed = time.perf_counter()
log["topic-0500"].append({"id": 1, "text": "first"}, partition=3)
appended = time.perf_counter()
# Not ru_maxrss, which a child inherits from whoever started it.
status = dict(line.split(":", 1) for line in pathlib.Path("/proc/self/status").read_text().splitlines())
print(json.dumps({
    "topics": len(topics),
    "partitions": sum(topic.partitions for topic in topics),
    "rows": sum(topic.rows for topic in topics),
    "open_s": listed - began,
    "first_append_s": appended - listed,
    "rss_mib": int(status["VmHWM"].split()[0]) / 1024,
}), flush=True)
"""

CLOSE = "log.close()\n"
KILLED = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"


@dataclass(frozen=True)
class Opened:
    """What one opening was like."""

    topics: int
    partitions: int
    rows: int
    open_s: float
    first_append_s: float
    rss_mib: float

    def __str__(self) -> str:
        return (
            f"topics listed after {self.open_s:.3f} s, first row durable {self.first_append_s:.3f} s later, "
            f"{self.rss_mib:.0f} MiB"
        )


def run(script: str, root: Path, *, killed: bool) -> str:
    """A whole process; its output."""
    done = subprocess.run(
        [sys.executable, "-c", script, str(root)],
        capture_output=True,
        text=True,
        env=appender_environment(),
        cwd=REPOSITORY,
        timeout=120,
    )
    assert done.returncode == (-signal.SIGKILL if killed else 0), done.stderr
    return done.stdout


def opened(root: Path, *, killed: bool) -> Opened:
    return Opened(**json.loads(run(OPEN + (KILLED if killed else CLOSE), root, killed=killed)))


@pytest.mark.timeout(180)
def test_a_thousand_topics_and_a_hundred_thousand_operations_are_opened_in_two_seconds_and_300_mib(
    tmp_path: Path,
) -> None:
    found: dict[str, Opened] = {}

    run(MAKE + KILLED, tmp_path, killed=True)
    found["operations, after a kill"] = opened(tmp_path, killed=False)
    found["operations, after a close"] = opened(tmp_path, killed=True)
    run(FILL + KILLED, tmp_path, killed=True)
    found["rows in every partition, after a kill"] = opened(tmp_path, killed=False)
    found["rows in every partition, after a close"] = opened(tmp_path, killed=False)

    for name, each in found.items():
        print(f"{name}: {each}")
    for name, each in found.items():
        assert (each.topics, each.partitions) == (TOPICS, TOPICS * PARTITIONS), name
        assert each.open_s + each.first_append_s < OPEN_S_MAX, (name, str(each))
        assert each.rss_mib < RSS_MIB_MAX, (name, str(each))
    assert found["rows in every partition, after a close"].rows == TOPICS * PARTITIONS + 3
    assert sum(os.path.getsize(path) for path in tmp_path.rglob("journal/*") if path.is_file()) < 10 * 2**20
