"""How `just release-check` judges: holes fail it, silence is said and does not; the SBOM names what we need."""

from __future__ import annotations

import json
import tomllib

from tests.release.building import PACKAGES, in_sources, judge_wheel
from tests.release.environments import EXTRAS as TRIED
from tests.release.environments import PROGRAMS, VERSIONS, find_pythons
from tests.release.verdicts import Verdict
from tests.release_check import EXTRAS, LOCK, ROOT, installed_by_users, judge, locked

HOLE = {"id": "PYSEC-1", "fix_versions": ["1.1", "2.0"], "aliases": [], "description": ""}


def report(*dependencies: dict[str, object]) -> str:
    return json.dumps({"dependencies": list(dependencies), "fixes": []})


def test_a_hole_is_told_with_what_mends_it() -> None:
    found = judge(report({"name": "a", "version": "1.0", "vulns": [HOLE]}, {"name": "b", "version": "2", "vulns": []}))

    assert found.answered
    assert found.holes == ("a 1.0: PYSEC-1, mended in 1.1, 2.0",)


def test_packages_of_which_nobody_knows_anything_are_no_pass() -> None:
    found = judge(report({"name": "a", "skip_reason": "not found"}, {"name": "b", "skip_reason": "not found"}))

    assert not found.answered
    assert found.unknown == 2
    assert not judge("").answered
    assert not judge("[]").answered
    assert not judge("could not connect").answered


def test_the_sbom_names_what_users_install_and_not_what_only_we_do() -> None:
    names = installed_by_users(EXTRAS)

    assert {"pyarrow", "msgspec", "pyiceberg", "uvicorn", "starlette", "obstore"} <= names
    assert not {"pytest", "ruff", "mypy", "hypothesis", "headwater"} & names


def test_every_extra_that_users_can_install_is_in_the_sbom() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert set(project["optional-dependencies"]) == {*EXTRAS, "dev"}


def test_each_package_is_in_the_lock_with_its_hashes() -> None:
    lock = locked(LOCK.read_text(), {"pyarrow", "typing-extensions"})

    assert [line.partition("==")[0] for line in lock.splitlines() if "==" in line] == ["pyarrow", "typing-extensions"]
    assert "--hash=sha256:" in lock


# Packages -------------------------------------------------------------------------------------------------------------


def test_a_wheel_holds_the_packages_and_nothing_else() -> None:
    sources = in_sources()

    assert {name.split("/")[0] for name in sources} == {*PACKAGES}
    assert list(judge_wheel([*sources, "headwater-1.dist-info/METADATA"], sources)) == []
    assert list(judge_wheel([*sources, "tests/conftest.py"], sources)) == [
        "tests/conftest.py is in the wheel and not in the sources"
    ]
    assert list(judge_wheel([*sources, "headwater/data.bin"], [*sources, "headwater/data.bin"])) == [
        "headwater/data.bin is no part of a program"
    ]
    without = [name for name in sources if name != "headwater/py.typed"]
    assert list(judge_wheel(without, sources)) == [
        "headwater/py.typed is not in the wheel",
        "headwater/py.typed is missing",
    ]


def test_every_extra_of_users_is_tried_and_has_its_program() -> None:
    declared = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])

    assert {*TRIED} - {""} == declared - {"dev"} == {*EXTRAS}
    assert {path.stem for path in PROGRAMS.glob("use_*.py")} == {f"use_{extra}" for extra in EXTRAS}


def test_the_pythons_that_are_tried_are_those_that_the_package_names() -> None:
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]

    assert tuple(each.rpartition(" ")[2] for each in named if ":: 3." in each) == VERSIONS


def test_a_python_that_is_not_here_is_said_and_fails_nothing() -> None:
    found, steps = find_pythons([])

    assert {*found} | {step.what.removeprefix("Python ") for step in steps} == {*VERSIONS}
    assert all(step.verdict is Verdict.NOT_DONE for step in steps)
