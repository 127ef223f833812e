"""A client owns no log: connecting, appending and consuming load nothing that could."""

from __future__ import annotations

import subprocess
import sys

OWNERS = ("headwater.topics.engine", "headwater.topics.shard", "headwater.metadata.journal", "headwater.api.opening")

CONNECTS = f"""
import sys
import headwater as hw
from headwater.client.engine import ClientEngine

try:
    hw.connect("hw://127.0.0.1:1", client=hw.ClientSettings(retry_s=0.0))
except hw.errors.Unavailable:
    pass
print(sorted(set({OWNERS!r}) & set(sys.modules)))
"""


def test_a_client_loads_no_engine() -> None:
    done = subprocess.run([sys.executable, "-c", CONNECTS], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.strip() == "[]"
