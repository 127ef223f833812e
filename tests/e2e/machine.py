"""What these suites need of the machine, and how often they are run.

RULE     Where CI=true a missing tool is a failure: a suite that is skipped where it matters protects nothing.
         On a developer's machine it is a skip that says what is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.lossy_filesystem import unmount


def _missing(reason: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}; in CI this suite must run")
    pytest.skip(reason)


def require_root() -> None:
    if os.geteuid() != 0:
        _missing("mounting a file system needs root")


def require_fuse() -> None:
    require_root()
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as error:
        _missing(f"/dev/fuse cannot be opened: {error.strerror}")


def require_strace() -> None:
    strace = shutil.which("strace")
    if strace is None:
        _missing("strace is not installed (Debian: apt-get install strace)")
        return
    tried = subprocess.run([strace, "-o", "/dev/null", "true"], capture_output=True, text=True)
    if tried.returncode != 0:
        _missing(f"strace cannot trace here: {tried.stderr.strip()}")


def times(variable: str, default: int) -> int:
    """How often to do it: CI's number, unless the environment names another."""
    return int(os.environ.get(variable, default))


@contextmanager
def small_file_system(mountpoint: Path, size_bytes: int) -> Iterator[Path]:
    """An empty tmpfs of this size."""
    mountpoint.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(mountpoint)], check=True)
    try:
        yield mountpoint
    finally:
        unmount(mountpoint)
