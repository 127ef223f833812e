"""The audit is itself tested: each rule, broken alone, is noticed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulation.audit_mutants import MUTANTS, AuditMutant, kills, noticed

SCENES = sorted({mutant.scene for mutant in MUTANTS}, key=lambda scene: scene.__name__)


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_mutant_of_the_audit_is_killed(mutant: AuditMutant, tmp_path: Path) -> None:
    assert kills(mutant, tmp_path) is not None, f"nobody notices that {mutant.what}"


@pytest.mark.parametrize("scene", SCENES, ids=[scene.__name__ for scene in SCENES])
def test_a_scene_has_nothing_to_say_where_every_rule_holds(scene: Callable[..., None], tmp_path: Path) -> None:
    assert noticed(scene, tmp_path) is None
