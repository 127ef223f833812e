"""A sync that fails: nothing is promised any more, and recovery writes again what only the page cache may hold.

The simulated files do what kernels do: a failed sync drops the dirty sectors, leaves them readable, and the next
sync succeeds without writing them.
"""

from __future__ import annotations

import errno
from random import Random

import pytest

from headwater.errors import OutcomeUnknown, Poisoned
from headwater.frames.frame import Kind
from headwater.log import Draft
from headwater.storage.simulated import Choice, SimulatedFiles
from tests.faults.life import Life
from tests.simulation.plain_model import body_of, read_from_start
from tests.simulation.workload import commit_together

SEGMENT = "log/00000000000000000001.0.seg"


def rows(number: int) -> Draft:
    return Draft(Kind.DATA, body_of(number, 200), topic_number=1, row_count=1)


def bodies(life: Life, files: SimulatedFiles) -> list[bytes]:
    """What an owner finds."""
    other = Life(files)
    other.model.log_start = life.model.log_start
    with other.open() as log:
        log.claim()
        return [bytes(frame.body) for frame in read_from_start(log) if frame.header.kind == Kind.DATA]


def test_every_request_of_the_commit_is_unknown_and_every_later_one_is_turned_away(seed: int) -> None:
    life = Life(SimulatedFiles(seed))
    log = life.open()
    log.append([rows(1)])
    life.files.fail(1, errno.EIO, verbs=["sync_data"])

    answers = [future.exception(0) for future in commit_together(log, [[rows(2)], [rows(3), rows(4)]])]

    assert [type(answer) for answer in answers] == [OutcomeUnknown] * 2
    for act in (lambda: log.append([rows(6)]), log.roll, log.claim):
        with pytest.raises(Poisoned):
            act()
    assert [bytes(frame.body) for frame in read_from_start(log)][1:] == [body_of(1, 200)]


def test_a_second_sync_would_succeed_and_lie_and_recovery_does_not_believe_it(seed: int) -> None:
    life = Life(SimulatedFiles(seed))
    log = life.open()
    log.append([rows(1)])
    life.files.fail(1, errno.EIO, verbs=["sync_data"])
    with pytest.raises(OutcomeUnknown):
        log.append([rows(2)])

    life.files.open(SEGMENT, writable=True).sync_all()
    lied = life.files.crash(Random(seed), choice=Choice.NOTHING)
    log.close()
    recovered = bodies(life, life.files)
    afterwards = bodies(life, life.files.crash(Random(seed), choice=Choice.NOTHING))

    # The sync has returned, and the bytes are not on the disk: whoever believed it would have lost the row.
    assert bodies(life, lied) == [body_of(1, 200)]
    assert recovered == [body_of(1, 200), body_of(2, 200)]
    assert afterwards == recovered


def test_what_a_reader_saw_after_the_recovery_survives_a_power_loss_even_if_the_first_recovery_failed(
    seed: int,
) -> None:
    life = Life(SimulatedFiles(seed))
    log = life.open()
    log.append([rows(1)])
    life.files.fail(1, errno.EIO, verbs=["sync_data"])
    with pytest.raises(OutcomeUnknown):
        log.append([rows(2)])
    log.close()
    # The recovery that would mend it fails at its own sync, once more without a trace in the page cache.
    life.files.fail(1, errno.EIO, verbs=["sync_all"])
    life.claim()
    assert len(life.refusals) == 1

    recovered = bodies(life, life.files)
    afterwards = bodies(life, life.files.crash(Random(seed), choice=Choice.NOTHING))

    assert recovered == afterwards == [body_of(1, 200), body_of(2, 200)]


def test_a_reader_in_another_process_does_not_see_a_row_whose_sync_failed(seed: int) -> None:
    life = Life(SimulatedFiles(seed))
    log = life.open()
    log.append([rows(1)])
    reader = life.open()
    life.files.fail(1, errno.EIO, verbs=["sync_data"])
    with pytest.raises(OutcomeUnknown):
        log.append([rows(2)])
    log.close()

    seen = [bytes(frame.body) for frame in read_from_start(reader)]
    seen_anew = [bytes(frame.body) for frame in read_from_start(life.open())]

    assert seen[1:] == seen_anew[1:] == [body_of(1, 200)]


@pytest.mark.parametrize("verb", ["sync_data", "sync_all", "sync_directory"])
def test_whichever_sync_fails_and_whatever_survives_no_acknowledged_row_is_lost(verb: str, seed: int) -> None:
    calls = SimulatedFiles()
    Life(calls).run()
    syncs = sum(called == verb for called, _ in calls.calls)
    assert syncs > 5
    for number in range(1, syncs + 1):
        files = SimulatedFiles(seed + number)
        life = Life(files)
        files.fail(number, errno.EIO, verbs=[verb])
        chance = Random(seed)
        looked = False

        def look(life: Life = life, chance: Random = chance) -> None:
            # The first step that noticed, and what is left there: many subsets of what was not synced.
            nonlocal looked
            if life.refusals and not looked:
                looked = True
                for state in life.files.crash_states(chance, 12):
                    life.check(state)

        life.after_step = look
        life.run()
        life.check(files)
