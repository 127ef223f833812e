"""Arrow's ceiling: what does not fit is an error of one allocation, and all else goes on."""

from __future__ import annotations

import os
import subprocess
import sys

import pyarrow as pa
import pytest

from headwater.server.memory import bound_arrow_memory

PROGRAM = """
import sys
from headwater.server.memory import bound_arrow_memory, warn_if_unbounded
assert "pyarrow" not in sys.modules, "it must be bounded before it is loaded"
bounded = bound_arrow_memory(256 << 20)
import pyarrow as pa
warn_if_unbounded(bounded)
kept = pa.allocate_buffer(64 << 20)
try:
    pa.allocate_buffer(512 << 20)
except pa.ArrowMemoryError:
    print("refused", bounded)
again = pa.allocate_buffer(64 << 20)
ours = bytearray(512 << 20)
print("and goes on")
"""


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MIMALLOC_", "ARROW_"))}
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env={**kept, **environment}
    )


def test_an_allocation_above_the_ceiling_fails_alone_and_only_arrow_is_bounded() -> None:
    ended = run(PROGRAM)

    assert ended.stdout.splitlines() == ["refused True", "and goes on"], ended.stderr
    assert ended.stderr == ""


def test_where_there_is_no_ceiling_that_is_said() -> None:
    ended = run(PROGRAM, ARROW_DEFAULT_MEMORY_POOL="system")

    assert "and goes on" in ended.stdout
    assert "nothing bounds the memory" in ended.stderr


def test_once_arrow_is_loaded_it_is_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MIMALLOC_RESERVE_OS_MEMORY", raising=False)
    assert pa.__name__ in sys.modules

    assert not bound_arrow_memory()
    assert "MIMALLOC_RESERVE_OS_MEMORY" not in os.environ


def test_the_command_loads_no_arrow_before_it_serves() -> None:
    ended = run("import sys, headwater.cli.main, headwater.server.memory; print('pyarrow' in sys.modules)")

    assert ended.stdout == "False\n", ended.stderr
