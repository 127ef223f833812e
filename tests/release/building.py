"""Wheel and sdist, as they would be published: built twice, compared, and looked into.

PROMISE  The wheel that comes out of the sdist is, byte for byte, the one that comes out of the sources.
         The wheel holds every file of src/ that belongs to the packages, and nothing else.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.release.verdicts import Step, Verdict

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("headwater", "pyspark_headwater")
ASSETS = frozenset({".py", ".css", ".html", ".js", ".svg", ".typed"})
"""What a package may be made of: sources, the parts of the web page, and the mark that it is typed."""
WHEEL_BYTES_MAX = 3_000_000
TIMEOUT_S = 300


class Built(NamedTuple):
    wheel: Path
    sdist: Path


def build(directory: Path) -> tuple[Built, list[Step]]:
    """Both, from the sources; and the wheel once more, from the sdist."""
    first, second, unpacked = directory / "dist", directory / "again", directory / "unpacked"
    _hatchling(ROOT, first, "sdist", "wheel")
    (sdist,), (wheel,) = first.glob("*.tar.gz"), first.glob("*.whl")
    with tarfile.open(sdist) as tar:
        tar.extractall(unpacked, filter="data")
    (sources,) = unpacked.iterdir()
    _hatchling(sources, second, "wheel")
    (again,) = second.glob("*.whl")
    same = wheel.read_bytes() == again.read_bytes()
    names = zipfile.ZipFile(wheel).namelist()
    complaints = list(judge_wheel(names, in_sources()))
    if wheel.stat().st_size > WHEEL_BYTES_MAX:
        complaints.append(f"{wheel.stat().st_size:,} bytes, more than {WHEEL_BYTES_MAX:,}")
    return Built(wheel, sdist), [
        _step(
            "sdist", [] if same else ["the wheel that it builds is another one"], f"{sdist.name}; same wheel from it"
        ),
        _step("wheel", complaints, f"{wheel.name}, {wheel.stat().st_size:,} bytes, {len(names)} files"),
    ]


def in_sources() -> list[str]:
    """The files of our packages, as they are in the tree."""
    return [
        str(path.relative_to(ROOT / "src"))
        for package in PACKAGES
        for path in sorted((ROOT / "src" / package).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    ]


def judge_wheel(names: Iterable[str], sources: Iterable[str]) -> Iterator[str]:
    """What is in it and should not be, and what is not and should."""
    in_wheel = {name for name in names if not name.split("/")[0].endswith(".dist-info")}
    wanted = set(sources)
    for name in sorted(in_wheel - wanted):
        yield f"{name} is in the wheel and not in the sources"
    for name in sorted(wanted - in_wheel):
        yield f"{name} is not in the wheel"
    for name in sorted(in_wheel & wanted):
        if Path(name).suffix not in ASSETS and Path(name).name != "py.typed":
            yield f"{name} is no part of a program"
    for needed in ("headwater/py.typed", "headwater/__init__.py", "pyspark_headwater/__init__.py"):
        if needed not in in_wheel:
            yield f"{needed} is missing"


def _hatchling(sources: Path, target: Path, *kinds: str) -> None:
    wanted = [argument for kind in kinds for argument in ("-t", kind)]
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(target), *wanted]
    subprocess.run(command, cwd=sources, check=True, capture_output=True, timeout=TIMEOUT_S)


def _step(what: str, complaints: list[str], well: str) -> Step:
    if complaints:
        return Step(Verdict.FAIL, what, "; ".join(complaints[:10]))
    return Step(Verdict.PASS, what, well)
