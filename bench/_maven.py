"""Jars of a peer, by Maven, once, into `HEADWATER_CACHE` (or ~/.cache/headwater)."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

FETCH_S_MAX = 600.0


class Jar(NamedTuple):
    group: str
    name: str
    version: str
    without: tuple[tuple[str, str], ...] = ()
    """Of what it needs, these by group and name are left out."""


def jars(folder: str, wanted: Sequence[Jar]) -> Path:
    """The folder that has these jars and what they need; fetched if they are not there yet."""
    cache = Path(os.environ.get("HEADWATER_CACHE") or Path.home() / ".cache" / "headwater")
    found = cache / folder / "lib"
    if found.is_dir():
        return found
    found.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=found.parent) as work:
        pom = Path(work) / "pom.xml"
        pom.write_text(_pom(wanted), encoding="utf-8")
        fetched = Path(work) / "lib"
        command = ["mvn", "-B", "-q", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={fetched}"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=FETCH_S_MAX)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        try:
            fetched.rename(found)
        except OSError:
            assert found.is_dir()  # another process was faster
    return found


def _pom(wanted: Sequence[Jar]) -> str:
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>headwater</groupId><artifactId>bench</artifactId><version>1</version>"
        f"<dependencies>{''.join(map(_dependency, wanted))}</dependencies></project>"
    )


def _dependency(jar: Jar) -> str:
    left_out = "".join(
        f"<exclusion><groupId>{group}</groupId><artifactId>{name}</artifactId></exclusion>"
        for group, name in jar.without
    )
    return (
        f"<dependency><groupId>{jar.group}</groupId><artifactId>{jar.name}</artifactId><version>{jar.version}</version>"
        f"<exclusions>{left_out}</exclusions></dependency>"
    )
