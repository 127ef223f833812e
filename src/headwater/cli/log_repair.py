"""`headwater log repair DATA`: go on without what is lost, when a person has decided to."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated

import typer
from rich.console import Console

from headwater.cli.data_directory import LOG, AsJson, Data, LogStart, open_data, refuse_bucket
from headwater.cli.exit_codes import ExitCode
from headwater.cli.failures import exit_codes
from headwater.cli.log_verify import show_findings
from headwater.cli.output import counted, emit_json, lsn_range, printable, remarks, results, say, say_in_colour
from headwater.clock import SystemClock, system_entropy
from headwater.log.repair import RepairResult, carry_out
from headwater.log.repair_plan import RepairPlan, plan_repair
from headwater.log.verify import VerifyReport, verify_log
from headwater.storage.files import Files

COMMAND = "log repair"
NOT_ON_A_BUCKET = (
    "a log in a bucket is not repaired in place: put the objects that `headwater log verify` names back, from the "
    "store's versions or from a copy"
)

DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done and lost, and change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it without asking.")]


def repair(
    data: Data, dry_run: DryRun = False, yes: Yes = False, as_json: AsJson = False, log_start: LogStart = None
) -> None:
    """Mend a damaged log by declaring lost what cannot be read. Restoring a backup is better, if there is one.

    It says which LSNs would be lost, and asks. Frames before and behind the damage are kept; a gap stands for the
    lost ones, so that their LSNs are never given out again; damaged files are kept aside under a name that ends
    in `.damaged`.

    Exit code 0: mended, or nothing to do. 2: it was not confirmed. 3: it cannot mend this, or you said no. 75: the
    log has an owner: stop it, then try again.
    """
    with exit_codes(as_json=as_json, command=COMMAND):
        refuse_bucket(data, NOT_ON_A_BUCKET)
        files = open_data(data)
        with remarks().status("reading the log ..."):
            plan = plan_repair(files, LOG, log_start=log_start)
        outcome = _decide(plan, data, log_start, dry_run=dry_run, yes=yes, as_json=as_json)
        result: RepairResult | None = None
        after: VerifyReport | None = None
        if outcome is None:
            result, after = _carry_out(files, plan, log_start)
            outcome = ExitCode.DONE if after.ok else ExitCode.HALTED
        if as_json:
            emit_json(COMMAND, as_content(plan, data, result, after, dry_run=dry_run))
        elif result is not None and after is not None:
            _show_result(results(), result, after, data)
    raise typer.Exit(outcome)


def as_content(
    plan: RepairPlan, data: str, result: RepairResult | None, after: VerifyReport | None, *, dry_run: bool
) -> dict[str, object]:
    return {
        "data": data,
        "dry_run": dry_run,
        **plan.as_dict(),
        "done": result is not None,
        "aside": result.aside if result is not None else [],
        "made": result.made if result is not None else [],
        "verified": after.ok if after is not None else None,
    }


def _decide(
    plan: RepairPlan, data: str, log_start: int | None, *, dry_run: bool, yes: bool, as_json: bool
) -> ExitCode | None:
    """Show the plan; the exit code if it ends here, nothing if it is to be carried out."""
    # With --json the plan is told for people too, on stderr, so that whoever started it sees why it stopped.
    console = remarks() if as_json else results()
    if not plan.needed:
        say(console, f"{printable(data)}: nothing to repair.")
        return ExitCode.DONE
    if plan.refusals:
        show_findings(console, "CANNOT BE REPAIRED", plan.refusals, data, "bold red")
        say_in_colour(console, ("REFUSED", "bold red"), "  nothing was changed.")
        return ExitCode.HALTED
    _show_plan(console, plan)
    if dry_run:
        start = f" --log-start {log_start}" if log_start is not None else ""
        say(console, f"Nothing was changed. To do it: headwater log repair {shlex.quote(data)}{start}")
        return ExitCode.DONE
    if yes:
        return None
    if as_json or not sys.stdin.isatty():
        say(remarks(), "Nothing was changed: give --yes, or run it on a terminal, where it asks.", "red")
        return ExitCode.USAGE
    if _confirmed(plan):
        return None
    say(console, "Nothing was changed. The log stays halted.")
    return ExitCode.HALTED


def _confirmed(plan: RepairPlan) -> bool:
    question = "Do this, and lose these LSNs for good?" if plan.lost else "Do this?"
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:
        say(remarks(), "")
        return False


def _show_plan(console: Console, plan: RepairPlan) -> None:
    say(console, "What would be done:", "bold")
    for step in plan.steps:
        say(console, f"{printable(step.segment)}: {step.what}", first="  - ", indent="    ")
    say(console, "Damaged files are kept aside, under names that end in .damaged.", first="  ", indent="  ")
    console.print()
    if not plan.lost:
        say(console, "No LSN would be lost.", "bold")
        return
    say(console, "What would be lost:", "bold")
    for lost in plan.lost:
        where = f" ({lost.segment})" if lost.segment else ""
        text = f"LSN {lsn_range(lost.first_lsn, lost.last_lsn)}: {printable(lost.why)}{where}"
        say(console, text, "red", first="  - ", indent="    ")
    total = sum(lost.last_lsn - lost.first_lsn + 1 for lost in plan.lost)
    text = f"{counted(total, 'LSN')} in all, declared as a gap. Every other frame is kept."
    say(console, text, first="  ", indent="  ")
    console.print()


def _carry_out(files: Files, plan: RepairPlan, log_start: int | None) -> tuple[RepairResult, VerifyReport]:
    """Do it, then look at every byte again: a repair that was not looked at is not done."""
    with remarks().status("repairing ..."):
        result = carry_out(files, LOG, plan, clock=SystemClock(), entropy=system_entropy)
        return result, verify_log(files, LOG, log_start=log_start)


def _show_result(console: Console, result: RepairResult, after: VerifyReport, data: str) -> None:
    console.print()
    for name in result.made:
        say(console, f"made        {printable(name)}")
    for name in result.aside:
        say(console, f"kept aside  {printable(name)}")
    if after.ok:
        say_in_colour(console, ("MENDED", "bold green"), "  the log was looked at again, and passes.")
    else:
        show_findings(console, "STILL THERE", after.findings, data, "bold red")
        say_in_colour(console, ("HALTED", "bold red"), "  something is left: please report it, with the files.")
