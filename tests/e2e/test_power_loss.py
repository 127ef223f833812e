"""Power losses of a real process under load, on a file system that loses what was not synced.

Each round: an appender works on the lossy file system; it is killed and then the power goes, or the power goes while
it works; what is left is mounted again, perhaps loses power once more while it is being recovered, is recovered, and is
checked against everything that was acknowledged (G1, V1 to V4, V7, V8).  Then the next round goes on in the same place.

HEADWATER_POWER_LOSSES says how many rounds (CI: 20).  The seed says what is lost in each of them; threads and the clock
are the machine's own.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from headwater.errors import Halted, HeadwaterError
from headwater.frames.frame import Kind
from headwater.log import FrameLog, open_log
from headwater.settings import LogSettings
from headwater.storage.disk import DiskFiles
from tests.e2e.appender import AppenderSettings
from tests.e2e.appender_process import running_appender
from tests.e2e.lossy_filesystem import Loss, LossyMount, Order
from tests.e2e.machine import require_fuse, times
from tests.e2e.workload import History, StoredFrame, Violation, read_frames

POWER_LOSSES = times("HEADWATER_POWER_LOSSES", 20)
ROUNDS_IN_ONE_PLACE = 10
KIB = 1024


@dataclass(frozen=True)
class Plan:
    """What happens in one round, drawn from the seed."""

    round_number: int
    threads: int
    segment_size_bytes_max: int
    acknowledgements: int
    """The loss comes after this many of them."""
    power_goes_first: bool
    """While the appender works; otherwise it is killed and then the power goes."""
    recovered_before_the_loss: bool
    """After the kill somebody recovers from what the cache still has, and only then the power goes: whatever the
    recovery showed was to be durable, also what the killed appender had not synced."""
    after_changes: int
    in_a_roll: bool
    """The changes are counted from the next new name on."""
    kept: str
    losses_in_recovery: tuple[int, ...]
    """Recovery is tried on this many mounts first, and loses power after so many changes."""
    recovered_by_the_next: bool
    """Nobody looks: the next round's appender recovers what is left and goes on."""
    loss_seed: int

    @classmethod
    def draw(cls, seed: int, round_number: int) -> Plan:
        rng = random.Random(f"{seed} {round_number}")
        drawn = cls(
            round_number,
            threads=rng.choice((1, 2, 4)),
            segment_size_bytes_max=rng.choice((32, 64, 256)) * KIB,
            acknowledgements=rng.choice((1, 5, 20, 60)),
            power_goes_first=rng.random() < 0.5,
            recovered_before_the_loss=rng.random() < 0.5,
            after_changes=rng.choice((1, 2, 3, 4, 5, 7, 20)),
            in_a_roll=rng.random() < 0.5,
            kept=rng.choice(("nothing", "some", "some", "some", "everything")),
            losses_in_recovery=tuple(rng.randint(1, 8) for _ in range(rng.choice((0, 0, 1, 2)))),
            recovered_by_the_next=rng.random() < 0.2,
            loss_seed=rng.randrange(2**32),
        )
        if round_number % 5:
            return drawn
        # Every fifth is aimed at the middle of a roll, so that even a few rounds are sure to lose names.
        return replace(drawn, power_goes_first=True, in_a_roll=True, after_changes=rng.randint(2, 6), kept="nothing")


@dataclass
class Place:
    """One data directory on the lossy file system, through all its rounds."""

    seed: int
    backing: Path
    mountpoint: Path
    history: History = field(init=False)
    seen: list[StoredFrame] = field(default_factory=list)
    """What a reader saw before the power went: whatever is shown is durable."""
    losses: list[Loss] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.history = History(self.seed)

    @property
    def root(self) -> Path:
        return self.mountpoint / "data"

    def open(self) -> FrameLog:
        settings = LogSettings(segment_size_bytes_max=256 * KIB, write_body_bytes_max=32 * KIB, reserve_bytes=0)
        return open_log(DiskFiles(self.root), "log", settings=settings)

    def run(self, plan: Plan, disabled: str = "") -> None:
        """One round."""
        self._append_and_lose(plan, disabled)
        for number, changes in enumerate(plan.losses_in_recovery):
            self._recover_and_lose(changes, plan.loss_seed + 1 + number)
        if not plan.recovered_by_the_next:
            with LossyMount(self.backing, self.mountpoint):
                self._check_recovered()

    def _append_and_lose(self, plan: Plan, disabled: str) -> None:
        settings = AppenderSettings(
            seed=self.seed,
            round=plan.round_number,
            threads=plan.threads,
            segment_size_bytes_max=plan.segment_size_bytes_max,
            disabled=disabled,
        )
        with (
            LossyMount(self.backing, self.mountpoint) as mount,
            running_appender(self.root, settings) as appender,
        ):
            appender.wait_for_acknowledgements(plan.acknowledgements)
            if plan.power_goes_first:
                mount.arm(Order(plan.loss_seed, plan.kept, plan.after_changes, plan.in_a_roll))
                # The appender is listened to all the while: a full pipe would keep it from its next change.
                losses: list[Loss] = []
                appender.listen(until=lambda: self._loss_came(mount, losses), timeout_s=30.0)
                assert losses, "the appender changes something all the time, so the loss has to come"
                appender.kill()
            else:
                with self.open() as reader:
                    self.seen = read_frames(reader)
                appender.kill()
                self.history.add_lines(plan.round_number, appender.lines)
                if plan.recovered_before_the_loss:
                    with self.open() as log:
                        log.claim()
                        self.history.check_recovered(read_frames(log))
                losses = [mount.lose_power(seed=plan.loss_seed, kept=plan.kept)]
        self.losses += losses
        self.history.add_lines(plan.round_number, appender.lines)

    @staticmethod
    def _loss_came(mount: LossyMount, losses: list[Loss]) -> bool:
        loss = mount.wait_for_loss(timeout_s=0.0)
        if loss is not None:
            losses.append(loss)
        return loss is not None

    def _recover_and_lose(self, after_changes: int, loss_seed: int) -> None:
        """A recovery that is itself cut short, wherever it happens to be."""
        with LossyMount(self.backing, self.mountpoint) as mount:
            mount.arm(Order(loss_seed, "some", after_changes))
            try:
                with self.open() as log:
                    log.claim()
            except (HeadwaterError, OSError) as error:
                loss = mount.wait_for_loss(timeout_s=10.0)
                if loss is None:
                    raise
                if isinstance(error, Halted):
                    # A halt says that the log is damaged; a disk that stopped answering is no such proof.
                    raise Violation(f"V9: a power loss during recovery was taken for damage: {error}") from error
                self.losses.append(loss)

    def _check_recovered(self) -> None:
        with self.open() as log:
            shown = read_frames(log)
            self.history.check_shown(shown)
            log.claim()
            recovered = read_frames(log)
            self.history.check_recovered(recovered)
        if recovered[: len(shown)] != shown:
            raise Violation("V7: a reader was shown what the recovery then took away")
        if recovered[: len(self.seen)] != self.seen:
            raise Violation("V7: a reader was shown, before the loss, what the loss took away")
        with self.open() as log:
            log.claim()
            again = read_frames(log)
            self.history.check_recovered(again)
            assert log.recovery_report.bytes_cut == 0, "V8: the second recovery finds nothing to do"
        if any(frame.kind == Kind.DATA for frame in again[len(recovered) :]):
            raise Violation("V8: a second recovery shows rows that the first did not")


@pytest.mark.timeout(120 + 10 * POWER_LOSSES)
def test_an_acknowledged_row_survives_every_power_loss(tmp_path: Path, seed: int) -> None:
    require_fuse()
    losses: list[Loss] = []
    acknowledged = 0

    for first in range(0, POWER_LOSSES, ROUNDS_IN_ONE_PLACE):
        place = Place(seed, tmp_path / f"backing-{first}", tmp_path / "mounted")
        for round_number in range(first, min(first + ROUNDS_IN_ONE_PLACE, POWER_LOSSES)):
            plan = Plan.draw(seed, round_number)
            try:
                place.run(plan)
            except (AssertionError, HeadwaterError) as error:
                error.add_note(f"in round {round_number}: {plan}; what is left is in {place.backing}")
                raise
        losses += place.losses
        acknowledged += len(place.history.acknowledged)

    sectors = sum(loss.sectors_dropped for loss in losses)
    names = sum(loss.names_dropped for loss in losses)
    print(f"{len(losses)} power losses, {acknowledged} acknowledged writes, {sectors} sectors and {names} names lost")
    assert len(losses) >= POWER_LOSSES
    assert acknowledged > POWER_LOSSES
    assert sectors > 0, "power losses that lose nothing prove nothing"
    assert names > 0


def plan_without_rolls(seed: int) -> Plan:
    """Drop everything after 60 acknowledgements in one segment, so that nothing but their own syncs can save them."""
    return Plan(
        round_number=0,
        threads=2,
        segment_size_bytes_max=16 * 1024 * KIB,
        acknowledgements=60,
        power_goes_first=False,
        recovered_before_the_loss=False,
        after_changes=0,
        in_a_roll=False,
        kept="nothing",
        losses_in_recovery=(),
        recovered_by_the_next=False,
        loss_seed=seed,
    )


@pytest.mark.parametrize("disabled", ["fdatasync", "fsync"])
def test_a_log_that_does_not_sync_is_caught(tmp_path: Path, seed: int, disabled: str) -> None:
    require_fuse()
    place = Place(seed, tmp_path / "backing", tmp_path / "mounted")

    with pytest.raises((Violation, Halted)) as caught:
        place.run(plan_without_rolls(seed), disabled)

    # Either the rows are silently gone, or what is left shows that something is missing; both are losses.
    assert isinstance(caught.value, Halted) or str(caught.value).startswith(("V1", "V7"))


def test_the_same_plan_without_the_fault_passes(tmp_path: Path, seed: int) -> None:
    require_fuse()
    place = Place(seed, tmp_path / "backing", tmp_path / "mounted")

    place.run(plan_without_rolls(seed))

    assert len(place.history.acknowledged) >= 60
    assert len(place.losses) == 1
