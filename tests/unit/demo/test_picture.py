"""What people see of the demo: a picture that fits its terminal, and a last word that says it all."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from headwater.cli.demo_picture import Picture
from headwater.cli.demo_verdict import show_beside, show_outcome
from headwater.clock import ManualClock
from headwater.demo.acknowledged import Account
from headwater.demo.chaos import Chaos
from headwater.demo.schedule import draw
from headwater.demo.spark_told import Beside, SparkStep
from headwater.demo.told import Counts, Event, Outcome
from headwater.demo.writer import HOWS


def _outcome(**changed: object) -> Outcome:
    told = Outcome(
        seed=7,
        steps=20,
        steps_taken=20,
        passed=True,
        seconds=58.3,
        acknowledged=312_400,
        judged=True,
        in_tables=312_400,
        lost=0,
        doubled=0,
        altered=0,
        never_sent=0,
        counts=Counts(landings=41, lander_kills=11, owner_kills=2, writer_kills=1, rollbacks=1, halts=1, expiries=1),
        audit="PASS: 312,400 of 312,400 rows, all read",
    )
    for name, value in changed.items():
        setattr(told, name, value)
    return told


@pytest.mark.parametrize(("width", "height"), [(100, 30), (80, 24), (200, 60)])
def test_the_picture_fits_its_terminal_however_much_has_happened(width: int, height: int, tmp_path: Path) -> None:
    clock = ManualClock()
    run = Chaos(str(tmp_path / "data"), draw(7), seed=7, clock=clock)
    run.crew.known.accounts += [Account(number, how) for number, how in enumerate(HOWS, start=1)]
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    picture = Picture(run, 7, console, clock)
    for number in range(200):
        picture.take(Event(float(number), f"event {number} " + "with many words " * 20, "kill"))

    console.print(picture.render())

    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert len(lines) < height
    assert all(len(line) <= width for line in lines)
    assert "seed 7" in lines[0] and "step 1 of 20" in lines[0]
    assert "event 199" in lines[-1]
    assert any("idempotent" in line for line in lines)


def test_a_pass_says_its_counts_its_time_and_its_seed(capsys: pytest.CaptureFixture[str]) -> None:
    show_outcome(_outcome(damage_found=["partition 0: missing: offset 0"]))

    said = capsys.readouterr().out
    assert said.startswith("PASS  seed 7: 20 steps in 58.3 s\n")
    for part in (
        "312,400 rows acknowledged",
        "lost 0, doubled 0, altered 0, never sent 0",
        "14 kill -9: 11 landers",
        "the log's owner twice",
        "1 writer;",
        "41 landings",
        "1 expiry",
        "1 rollback; 1 halt by name",
        "was named: partition 0: missing",
        "--seed 7 --steps 20",
    ):
        assert part in said, part


def test_a_failure_says_what_is_wrong_the_seed_and_where_it_lies(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = [f"shop.orders: {number} lost: 1" for number in range(30)]

    show_outcome(_outcome(passed=False, steps_taken=4, judged=False, findings=wrong, directory="/somewhere"))

    said = capsys.readouterr().out
    assert said.startswith("FAIL  seed 7: failed in step 5 of 20, in 58.3 s")
    assert "in the tables" not in said
    assert wrong[0] in said and "and 18 more" in said
    assert "all of it is in /somewhere" in said and "--seed 7 --steps 20" in said


def test_both_sides_stand_beside_each_other_and_are_summed(capsys: pytest.CaptureFixture[str]) -> None:
    beside = Beside("4.1.4", "iceberg-spark-runtime 1.12.0", written=9_000, lost=2_000, doubled=3_000)
    beside.steps.append(SparkStep("rollback of the table", "once: lost 0, doubled 0", "lost 2,000", lost=2_000))

    show_beside(_outcome(), beside)

    said = capsys.readouterr().out
    assert "HEADWATER" in said and "ICEBERG'S SPARK SINK" in said
    assert "lost 0, doubled 0 of 312,400" in said and "lost 2,000, doubled 3,000 of 9,000" in said
    assert "Spark 4.1.4" in said
