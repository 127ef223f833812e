"""The wheel in clean environments: each extra alone, on every Python that can be had here.

An environment is made, the wheel and one extra are installed into it from the package index that this machine uses, in
the newest versions that our bounds allow, and small programs are run in it, as a user would write them (programs/).

FIRST    `import headwater`, `headwater --version`, first rows, in every one.
OWN      what the extra is for, once.
MISSING  what every other extra is for: refused, naming the extra that is to be installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.release.verdicts import Step, Verdict

PROGRAMS = Path(__file__).resolve().parent / "programs"
VERSIONS = ("3.11", "3.12", "3.13")
"""Those that pyproject.toml names."""
EXTRAS: dict[str, tuple[str, ...]] = {
    "": (),
    "server": ("server",),
    "objects": ("objects",),
    "lake": ("lake",),
    "duckdb": ("duckdb", "lake"),
    "postgres": ("postgres", "lake"),
    "spark": ("spark", "lake"),
}
"""Each extra, and which of them it brings."""
INSTALL_S, PROGRAM_S = 900, 300
NOT_HERE = 77
"""The exit code of a program that needs something which this machine has not."""


def find_pythons(given: Sequence[str]) -> tuple[dict[str, Path], list[Step]]:
    """An interpreter of each version: from those that were given, the PATH, and pyenv."""
    found: dict[str, Path] = {}
    for candidate in [*given, sys.executable, *(f"python{version}" for version in VERSIONS), *_of_pyenv()]:
        version = _version_of(candidate)
        if version in VERSIONS and version not in found:
            found[version] = Path(shutil.which(candidate) or candidate)
    steps = [
        Step(Verdict.NOT_DONE, f"Python {version}", "no interpreter was found here: give one with --python")
        for version in VERSIONS
        if version not in found
    ]
    return dict(sorted(found.items())), steps


def _of_pyenv() -> list[str]:
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    return sorted(str(path) for path in root.glob("versions/*/bin/python"))


def _version_of(python: str) -> str:
    asked = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        said = subprocess.run([python, "-c", asked], capture_output=True, text=True, timeout=60)
    except OSError:
        return ""
    return said.stdout.strip()


def try_extra(wheel: Path, python: Path, version: str, extra: str, home: Path, *, session: bool) -> Iterator[Step]:
    """Install it, and run the programs; `session`: with a session of Spark, which takes a minute."""
    what = f"Python {version}, {'no extra' if not extra else f'[{extra}]'}"
    environment, work = home / "environment", home / "work"
    work.mkdir(parents=True)
    try:
        _install(python, environment, f"{wheel}[{extra}]" if extra else str(wheel))
        runs = [["first_rows.py"], ["missing.py", *(each for each in EXTRAS if each and each not in EXTRAS[extra])]]
        if extra:
            runs.append([f"use_{extra}.py", *(["session"] if session else [])])
        for run in runs:
            ended = _run(environment / "bin" / "python", work, str(PROGRAMS / run[0]), *run[1:])
            name = run[0].removesuffix(".py").replace("_", " ")
            said = (ended.stdout.strip().splitlines() or [""])[-1]
            if ended.returncode == NOT_HERE:
                yield Step(Verdict.NOT_DONE, f"{what}, {name}", said)
            elif ended.returncode:
                yield Step(Verdict.FAIL, f"{what}, {name}", f"exit {ended.returncode}\n{ended.stdout}{ended.stderr}")
            else:
                yield Step(Verdict.PASS, f"{what}, {name}", said)
    except subprocess.CalledProcessError as error:
        yield Step(Verdict.FAIL, what, f"cannot be installed\n{error.stderr}")
    finally:
        shutil.rmtree(home)


def try_types(wheel: Path, python: Path, home: Path) -> Step:
    """mypy --strict over a program of a user, against the wheel."""
    environment = home / "environment"
    try:
        _install(python, environment, str(wheel), "mypy")
        program = str(PROGRAMS / "typed.py")
        home_cache = ["--cache-dir", str(home / "cache"), "--config-file", os.devnull]
        ended = _run(environment / "bin" / "python", home, "-m", "mypy", "--strict", *home_cache, program)
        if ended.returncode:
            return Step(Verdict.FAIL, "types", ended.stdout + ended.stderr)
        return Step(Verdict.PASS, "types", "mypy --strict over a program against the wheel")
    finally:
        shutil.rmtree(home)


def _install(python: Path, environment: Path, *wanted: str) -> None:
    """With uv where it is at hand, because it is quicker; else with pip."""
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv:
        commands = [
            [uv, "venv", "--quiet", "--python", str(python), str(environment)],
            [uv, "pip", "install", "--quiet", "--python", str(environment / "bin" / "python"), *wanted],
        ]
    else:
        commands = [
            [str(python), "-m", "venv", str(environment)],
            [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", *wanted],
        ]
    for command in commands:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_S, env=_clean())


def _run(python: Path, work: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [str(python), *arguments],
        cwd=work,
        env={**_clean(), "PATH": path, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )


def _clean() -> dict[str, str]:
    """The environment without what would let another installation, or this tree, be seen."""
    hidden = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "SPARK_HOME", "PYSPARK_PYTHON", "HEADWATER_DATA"}
    return {name: value for name, value in os.environ.items() if name not in hidden}
