"""Names that a power loss takes away or brings back: no file counts before its name is durable, and none is missed."""

from __future__ import annotations

from random import Random

import pytest

from headwater.errors import Forgotten
from headwater.ids import Lsn
from headwater.storage.power_loss import Fate, Pending, Plan
from headwater.storage.simulated import SimulatedFiles
from tests.faults.life import Life

LOSSES = ["no name", "no name but all data", "all names and no data", "one name lost", "one name kept"]


def after(files: SimulatedFiles, chance: Random, loss: str) -> list[SimulatedFiles]:
    """Power losses in which names and data part ways."""
    pending = files.pending()
    names = [item for item in pending if not item.inode]
    if loss == "no name":
        return [files._after_power_loss(Plan(chance, Fate.OLD))]
    if loss == "no name but all data":
        return [files._after_power_loss(Plan(chance, Fate.NEW, dict.fromkeys(names, Fate.OLD)))]
    if loss == "all names and no data":
        return [files._after_power_loss(Plan(chance, Fate.OLD, dict.fromkeys(names, Fate.NEW)))]
    default, exception = (Fate.NEW, Fate.OLD) if loss == "one name lost" else (Fate.OLD, Fate.NEW)
    exceptions: list[dict[Pending, Fate]] = [{name: exception} for name in names]
    return [files._after_power_loss(Plan(chance, default, each)) for each in exceptions]


@pytest.mark.parametrize("loss", LOSSES)
def test_before_every_call_of_a_life_names_may_be_lost_and_no_promise_is_broken(loss: str, seed: int) -> None:
    files = SimulatedFiles(seed)
    life = Life(files)
    chance = Random(seed)
    with_names = 0

    def before_call(verb: str, name: str) -> None:
        nonlocal with_names
        if not any(not item.inode for item in files.pending()):
            return
        with_names += 1
        for state in after(files, chance, loss):
            life.check(state)

    files.before_call = before_call
    life.run()

    assert with_names > 15


def test_the_first_row_of_a_new_log_survives_with_its_directory_its_segment_and_its_mark(seed: int) -> None:
    files = SimulatedFiles(seed)
    life = Life(files)

    life.append((1, 0))

    # All that the row needs is durable by its name; only the reserve, which nobody relies on, may be lost.
    lost = files._after_power_loss(Plan(Random(seed), Fate.OLD))
    assert set(files.list("log")) - set(lost.list("log")) <= {"reserve"}
    life.check(lost)


def test_a_deleted_segment_that_comes_back_is_not_served_and_goes_again(seed: int) -> None:
    files = SimulatedFiles(seed)
    life = Life(files)
    for _ in range(6):
        life.append((1, 0), size=900)
    states: list[SimulatedFiles] = []

    def before_call(verb: str, name: str) -> None:
        if verb == "sync_directory":
            states.append(files._after_power_loss(Plan(Random(seed), Fate.OLD)))

    files.before_call = before_call
    life.delete()
    files.before_call = None

    assert len(states) > 4
    assert life.model.log_start > 1
    for state in states:
        other = Life(state)
        other.model = life.model
        with other.open() as log:
            log.claim()
            came_back = len(log.device.to_be_forgotten)
            with pytest.raises(Forgotten):
                list(log.read())
            gone = log.exclusively(lambda log=log: log.device.forget(Lsn(life.model.log_start)))  # type: ignore[misc]
            assert len(gone) == came_back
        assert int(min(name for name in state.list("log") if name.endswith(".seg"))[:20]) >= life.model.log_start
        life.check(state)
