"""`headwater demo chaos`: writers, landers, kill -9, races, compaction, expiry and rollback, for about a minute.

PASS     Every acknowledged row is in its table once, by the audit and by plain pyiceberg, and no other row is.
SEED     draws the steps; `--seed N` takes the same ones again.
LEFT     Nothing, after a PASS, unless `--data` says where; after a FAIL all of it is kept, and told where.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import typer

from headwater.cli.demo_picture import shown, told_on_stderr
from headwater.cli.demo_verdict import show_beside, show_outcome
from headwater.cli.exit_codes import ExitCode
from headwater.cli.failures import exit_codes
from headwater.cli.output import counted, emit_json, printable, remarks, say
from headwater.clock import SystemClock, system_entropy
from headwater.demo.schedule import SEEDS, STEPS, draw
from headwater.errors import InvalidRequest
from headwater.lake.extra import from_the_extra
from headwater.storage.disk import DiskFiles, new_temporary_directory, remove_directory

COMMAND = "demo chaos"

demo = typer.Typer(help="See it at work, and in trouble.", no_args_is_help=True, rich_markup_mode="markdown")

DemoData = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Where to do it, in a directory that is empty or not there; it is kept. Without it: a temporary one.",
        show_default=False,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", metavar="N", min=0, help="Draw the steps from this number.", show_default=False),
]
Steps = Annotated[int, typer.Option("--steps", metavar="N", min=1, max=1_000, help="So many steps.")]
BesideSparkOption = Annotated[
    bool,
    typer.Option(
        "--beside-spark",
        help="Afterwards, do the like to Iceberg's own sink of Spark Structured Streaming, and count its lost and "
        "doubled rows. Needs headwater[spark] and Java.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="One versioned JSON object on stdout, for programs.")]


@demo.command("chaos")
def chaos(
    data: DemoData = None,
    seed: Seed = None,
    steps: Steps = STEPS,
    beside_spark: BesideSparkOption = False,
    as_json: AsJson = False,
) -> None:
    """Write, land, kill -9, race, compact, expire and roll back, for about a minute; then count every row.

    Real processes on this machine: the log's owner, four writers, three landers. It ends in an audit and in a check of
    its own, which compares what was acknowledged with what plain pyiceberg reads.

    Exit code 0: PASS. 1: FAIL, with what failed and the seed. 2: another call is needed. 130: interrupted.
    """
    passed = False
    with exit_codes(as_json=as_json, command=COMMAND):
        if beside_spark:
            from headwater.demo.beside_spark import check_spark

            check_spark()
        with _interrupted(), _place(data) as place:
            passed = _run(place, seed, steps, beside_spark=beside_spark, as_json=as_json)
    raise typer.Exit(ExitCode.DONE if passed else ExitCode.FAIL)


def _run(place: _Place, seed: int | None, steps: int, *, beside_spark: bool, as_json: bool) -> bool:
    """All of it; did it pass?"""
    with from_the_extra():
        from headwater.demo.chaos import Chaos
    number = seed if seed is not None else int.from_bytes(system_entropy(8), "big") % SEEDS
    schedule = draw(number, steps)
    clock = SystemClock()
    if not as_json:
        say(remarks(), f"in {printable(place.directory)}, seed {number}, {counted(steps, 'step')}", "dim")
    with (
        Chaos(place.directory, schedule, seed=number, clock=clock) as run,
        shown(run, seed=number, as_json=as_json),
    ):
        outcome = run.run()
    place.kept = place.kept or not outcome.passed
    outcome.directory = place.directory if place.kept else ""
    content = outcome.to_json()
    if not as_json:
        show_outcome(outcome)
    if beside_spark:
        from headwater.demo.beside_spark import BesideSpark

        with BesideSpark(place.directory, outcome, schedule, clock=clock, listener=told_on_stderr(as_json)) as other:
            beside = other.run()
        content["beside_spark"] = beside.to_json()
        if not as_json:
            show_beside(outcome, beside)
    if as_json:
        emit_json(COMMAND, content)
    return outcome.passed


@dataclass
class _Place:
    """Where a run lies."""

    directory: str
    kept: bool


@contextmanager
def _place(given: str | None) -> Iterator[_Place]:
    """The directory that was given, or a temporary one, which goes again unless something is to be looked at in it."""
    if given is not None:
        if DiskFiles(given).list(""):
            raise InvalidRequest(f"{given} is not empty: give a directory that is empty, or not there", data=given)
        yield _Place(given, kept=True)
        return
    place = _Place(new_temporary_directory("headwater-demo-"), kept=False)
    try:
        yield place
    finally:
        if not place.kept:
            remove_directory(place.directory)


@contextmanager
def _interrupted() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        say(remarks(), "interrupted; its processes have ended", "yellow")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
