"""The journal's tests are themselves tested: each rule, broken alone, is noticed by the check that its mutant names."""

from __future__ import annotations

import pytest

from tests.simulation.invariants import quiet
from tests.simulation.journal_mutants import MUTANTS, JournalMutant, crashes


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_the_journals_tests_notice_when(mutant: JournalMutant) -> None:
    with mutant(), quiet(), pytest.raises((Exception, pytest.fail.Exception)):
        mutant.killed_by()


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_nothing_is_noticed_where_no_rule_is_broken_by(mutant: JournalMutant) -> None:
    if mutant.killed_by is not crashes:  # tests/faults/test_journal.py runs that one
        with quiet():
            mutant.killed_by()


def test_there_are_as_many_mutants_as_were_promised() -> None:
    names = [mutant.name for mutant in MUTANTS]

    assert len(set(names)) == len(names) >= 40
