"""`just release-check`: does what we publish install and work, has what we stand on known holes, and what is that?

    build   wheel and sdist; the sdist builds the very same wheel; the wheel holds the packages and nothing else.
    page    twine looks at the description that a package index would show.
    types   mypy --strict over a program of a user, against the installed wheel.
    extras  the wheel in a clean environment, with each extra alone, on each Python from 3.11 that is on this machine
            (--python gives further ones): first rows, the extra's own feature, and that a missing one is named.
    audit   pip-audit over every locked package (requirements/ci.txt).  FAIL where one has a known hole.  Where no
            advisory service answers, that is said, and the rest goes on.
    SBOM    CycloneDX, of what users install (the package, its extras, and what these need), with the locked versions
            and their hashes: dist/sbom.cdx.json.

The tools are no dependencies of ours: they live in an environment that is made for the run and thrown away.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from tests.release.building import build
from tests.release.environments import EXTRAS as TRIED
from tests.release.environments import find_pythons, try_extra, try_types
from tests.release.verdicts import Step, Verdict

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "ci.txt"
SBOM = ROOT / "dist" / "sbom.cdx.json"
TOOLS = ("pip-audit==2.10.1", "cyclonedx-bom==7.5.0", "twine==6.2.0")
PARTS = ("build", "page", "types", "extras", "audit", "sbom")
EXTRAS = ("server", "objects", "lake", "duckdb", "postgres", "spark")
TIMEOUT_S = 600


@dataclass(frozen=True)
class Audit:
    """What pip-audit found out."""

    audited: int
    unknown: int
    """Packages of which no advisory service said anything."""
    holes: tuple[str, ...]

    @property
    def answered(self) -> bool:
        return self.audited > 0


def judge(report: str) -> Audit:
    """pip-audit's report in JSON; one that is none means that nobody answered."""
    try:
        dependencies: list[dict[str, Any]] = json.loads(report)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return Audit(0, 0, ())
    audited = [each for each in dependencies if "skip_reason" not in each]
    holes = tuple(
        f"{each['name']} {each['version']}: {hole['id']}"
        + (f", mended in {', '.join(hole['fix_versions'])}" if hole.get("fix_versions") else "")
        for each in audited
        for hole in each["vulns"]
    )
    return Audit(len(audited), len(dependencies) - len(audited), holes)


def installed_by_users(extras: Iterable[str]) -> set[str]:
    """The names of all that Headwater needs with these extras, and what those need, as they are installed here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: set[str] = set()
    waiting = [(each, frozenset({""})) for each in project["dependencies"]]
    waiting += [(each, frozenset({""})) for extra in extras for each in project["optional-dependencies"][extra]]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        text, with_extras = waiting.pop()
        each = Requirement(text)
        name, wanted = _normal(each.name), frozenset({"", *each.extras})
        if each.marker is not None and not any(each.marker.evaluate({"extra": extra}) for extra in with_extras):
            continue
        if name == project["name"] or (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        found.add(name)
        try:
            waiting += [(needed, wanted) for needed in metadata.requires(name) or []]
        except metadata.PackageNotFoundError:
            # An extra that is not installed here: its name is known, what it needs is not.
            continue
    return found


def locked(lock: str, names: set[str]) -> str:
    """The entries of a lock file that are of these names."""
    entries = re.findall(r"^[a-zA-Z0-9].*(?:\n[ \t].*)*", lock, re.MULTILINE)
    return "\n".join(each for each in entries if _normal(re.split(r"[=\[ ;]", each, maxsplit=1)[0]) in names) + "\n"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sbom", type=Path, default=SBOM, help="where the SBOM is written")
    parser.add_argument("--only", choices=PARTS, action="append", help="only this part; may be given again")
    parser.add_argument("--python", action="append", default=[], metavar="PATH", help="a further Python to try")
    parser.add_argument("--extra", choices=[*TRIED], action="append", help="of the extras only this one")
    given = parser.parse_args(arguments)
    parts = given.only or PARTS
    failed = 0
    with tempfile.TemporaryDirectory(prefix="headwater-release-") as home:
        tools = Path(home) / "tools"
        if {"page", "audit", "sbom"} & {*parts}:
            venv.create(tools, with_pip=True)
            made = _run(str(tools / "bin" / "python"), "-m", "pip", "install", "--quiet", *TOOLS)
            if made.returncode:
                print(f"FAIL     the tools could not be installed:\n{made.stderr}")
                return 1
        if {"build", "page", "types", "extras"} & {*parts}:
            for step in _package(parts, Path(home), tools, given.python, given.extra or [*TRIED]):
                print(step, flush=True)
                failed |= step.verdict is Verdict.FAIL
        if "audit" in parts:
            failed |= _audit(tools)
        if "sbom" in parts:
            failed |= _write_sbom(tools, Path(home), given.sbom)
    return failed


def _package(
    parts: Sequence[str], home: Path, tools: Path, given: Sequence[str], extras: Sequence[str]
) -> Iterator[Step]:
    built, steps = build(home)
    yield from steps
    if "page" in parts:
        ended = _run(str(tools / "bin" / "twine"), "check", "--strict", str(built.wheel), str(built.sdist))
        verdict = Verdict.FAIL if ended.returncode else Verdict.PASS
        yield Step(verdict, "page", ended.stdout + ended.stderr if ended.returncode else "twine check --strict")
    pythons, missing = find_pythons(given)
    if "types" in parts:
        yield try_types(built.wheel, next(iter(pythons.values())), home / "types")
    if "extras" in parts:
        yield from missing
        for number, (version, python) in enumerate(pythons.items()):
            for extra in extras:
                place = home / f"{version}-{extra}"
                # One session of Spark is enough: it takes a minute, and Java.
                yield from try_extra(built.wheel, python, version, extra, place, session=number == 0)


def _audit(tools: Path) -> int:
    command = ["--requirement", str(LOCK), "--disable-pip", "--require-hashes", "--format", "json", "--timeout", "10"]
    ended = _run(str(tools / "bin" / "pip-audit"), "--progress-spinner", "off", *command)
    found = judge(ended.stdout)
    if not found.answered:
        print(
            "NOT DONE audit: no advisory service answered, so nothing is known of holes; run it again where one can be "
            "reached"
        )
        return 0
    for hole in found.holes:
        print(f"FAIL     audit: {hole}")
    unknown = f"; nothing is known of {found.unknown} others" if found.unknown else ""
    if not found.holes:
        print(f"PASS     audit: no known hole in {found.audited} packages{unknown}")
    return 1 if found.holes else 0


def _write_sbom(tools: Path, home: Path, sbom: Path) -> int:
    names = installed_by_users(EXTRAS)
    chosen = home / "requirements.txt"
    chosen.write_text(locked(LOCK.read_text(), names))
    sbom.parent.mkdir(parents=True, exist_ok=True)
    command = ["requirements", str(chosen), "--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "library"]
    options = ["--output-reproducible", "--validate", "--of", "JSON", "-o", str(sbom)]
    ended = _run(str(tools / "bin" / "cyclonedx-py"), *command, *options)
    if ended.returncode:
        print(f"FAIL     SBOM:\n{ended.stderr}")
        return 1
    components = json.loads(sbom.read_text())["components"]
    if not components:
        print("FAIL     SBOM: it names nothing")
        return 1
    print(f"PASS     SBOM: {len(components)} components, {sbom}")
    return 0


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


if __name__ == "__main__":
    sys.exit(main())
