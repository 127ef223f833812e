"""`headwater log verify DATA`: look at every byte of a data directory and name what is wrong."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

from headwater.cli.advice import Advice, advice
from headwater.cli.data_directory import JOURNAL, LEDGER, AsJson, Data, LogStart, open_data
from headwater.cli.exit_codes import ExitCode
from headwater.cli.failures import exit_codes
from headwater.cli.output import (
    counted,
    emit_json,
    lsn_range,
    printable,
    progress_bar,
    results,
    say,
    say_in_colour,
    size_text,
    utc_text,
)
from headwater.clock import SystemClock
from headwater.lake.ledger_verify import LedgerSeen, check_log_reaches, verify_ledger
from headwater.log.object_files import LOGS, LogsAsFiles
from headwater.log.object_look import SlotPlaces
from headwater.log.object_verify import findings_of, notes_of, with_slot
from headwater.log.verify import Finding, VerifyReport
from headwater.metadata.checkpoint_files import SeenCheckpoint
from headwater.metadata.verify import DataReport, JournalSeen, verify_data

COMMAND = "log verify"

ToLsn = Annotated[
    int | None,
    typer.Option(
        "--to-lsn", min=1, metavar="LSN", help="Look no further than this LSN of the log.", show_default=False
    ),
]
Limit = Annotated[
    int, typer.Option("--limit", min=0, metavar="N", help="Show so many findings and notes; 0: all. --json has all.")
]


def verify(
    data: Data, as_json: AsJson = False, log_start: LogStart = None, to_lsn: ToLsn = None, limit: Limit = 50
) -> None:
    """Check every byte of a log, of its metadata journal, of the checkpoints of both, and of the ledger of landings. It
    reads only, and may run beside the log's owner and beside landers.

    A finding is something that no crash may leave: it makes the check FAIL. A note is something that a crash,
    or a process at work, may leave; the log goes on by itself.

    Exit code 0: PASS. 1: FAIL. 2: there is no log. 3: something halted the check itself. 75: try again.
    """
    with exit_codes(as_json=as_json, command=COMMAND):
        files = open_data(data)
        clock = SystemClock()
        began_s = clock.monotonic_s()
        # The ledger before the log that it speaks of: whatever lands meanwhile is then in both.
        ledger = verify_ledger(files)
        with progress_bar("reading") as told:
            report = verify_data(files, log_start=log_start, to_lsn=to_lsn, progress=told)
        if isinstance(files, LogsAsFiles):
            _look_at_objects(files, report)
        if ledger is not None:
            report.findings += ledger.findings
            report.notes += ledger.notes
            if to_lsn is None:
                report.findings += check_log_reaches(ledger, report.log)
        seconds = clock.monotonic_s() - began_s
        if as_json:
            emit_json(COMMAND, as_content(report, ledger, data, seconds))
        else:
            show(results(), report, ledger, data, seconds, limit)
    raise typer.Exit(ExitCode.DONE if report.ok else ExitCode.FAIL)


def _look_at_objects(files: LogsAsFiles, report: DataReport) -> None:
    """What only a bucket can have wrong, before what is wrong with frames; and in which slot those lie."""
    seen = {directory: files.look(directory) for directory in LOGS}
    places = {directory: SlotPlaces(each) for directory, each in seen.items()}
    report.findings[:] = [
        *(finding for each in seen.values() for finding in findings_of(each)),
        *(with_slot(each, places) for each in report.findings),
    ]
    report.notes += [note for each in seen.values() for note in notes_of(each, files.objects)]


def as_content(report: DataReport, ledger: LedgerSeen | None, data: str, seconds: float) -> dict[str, object]:
    """The report for programs: as it is, with a verdict, and with what to do beside each finding."""

    def with_advice(finding: Finding) -> dict[str, object]:
        what = advice(finding, data)
        return {**asdict(finding), "next": what.text, "next_command": what.command}

    bytes_read = _bytes_read(report, ledger)
    return {
        "data": data,
        "verdict": _verdict(report),
        **report.log.as_dict(),
        "ok": report.ok,
        "findings": [with_advice(each) for each in report.findings],
        "notes": [with_advice(each) for each in report.notes],
        "journal": report.journal.as_dict() if report.journal is not None else None,
        "checkpoints": [each.as_dict() for each in report.checkpoints],
        "ledger": ledger.as_dict() if ledger is not None else None,
        "bytes_read": bytes_read,
        "duration_s": round(seconds, 6),
        "bytes_per_s": round(bytes_read / seconds) if seconds else 0,
    }


def show(
    console: Console, report: DataReport, ledger: LedgerSeen | None, data: str, seconds: float, limit: int = 0
) -> None:
    """The report for people; its last line is the verdict."""
    say(console, f"{printable(data)}: {_log_text(report.log)}", indent="  ")
    if report.journal is not None:
        say(console, f"{JOURNAL}: {_journal_text(report.journal)}", indent="  ")
    for checkpoint in report.checkpoints:
        say(console, f"{checkpoint.path}: {_checkpoint_text(checkpoint)}", indent="  ")
    if ledger is not None:
        say(console, f"{LEDGER}: {_ledger_text(ledger)}", indent="  ")
    show_findings(console, "FINDING", report.findings, data, "bold red", limit)
    show_findings(console, "NOTE", report.notes, data, "dim", limit)
    bytes_read = _bytes_read(report, ledger)
    rate = bytes_read / seconds if seconds else 0
    say_in_colour(
        console,
        (_verdict(report), "bold green" if report.ok else "bold red"),
        f"  {counted(len(report.findings), 'finding')}, {counted(len(report.notes), 'note')}; "
        f"{size_text(bytes_read)} read in {seconds:,.2f} s ({rate / 1e6:,.0f} MB/s)",
    )


def show_findings(console: Console, title: str, findings: list[Finding], data: str, style: str, limit: int = 0) -> None:
    """A table: one row a finding with what was seen below it, then what to do, once for each name."""
    if not findings:
        return
    text_style = "dim" if style == "dim" else ""
    shown = findings[:limit] if limit else findings
    rows = [(each.name, lsn_range(each.first_lsn, each.last_lsn), _place(each)) for each in shown]
    widths = [max(len(row[column]) for row in (*rows, (title, "LSN", "WHERE"))) for column in range(2)]
    console.print()
    say(console, f"{title:<{widths[0]}}  {'LSN':<{widths[1]}}  WHERE", text_style or "bold")
    for finding, (name, lsns, place) in zip(shown, rows, strict=True):
        say_in_colour(console, (f"{name:<{widths[0]}}", style), (f"  {lsns:<{widths[1]}}  {place}", text_style))
        say(console, printable(finding.detail), text_style, first="    ", indent="    ")
    if len(shown) < len(findings):
        say(console, f"... and {len(findings) - len(shown):,} more: --limit 0 shows all")
    by_advice: dict[Advice, list[str]] = {}
    for finding in findings:
        names = by_advice.setdefault(advice(finding, data), [])
        if finding.name not in names:
            names.append(finding.name)
    for what, names in by_advice.items():
        say(console, f"{', '.join(names)}: {what.text}", text_style, first="-> ", indent="   ")
        if what.command:
            # Never wrapped: it is there to be copied.
            say_in_colour(console, ("   " + printable(what.command), "bold"))
    console.print()


def _log_text(report: VerifyReport) -> str:
    durable = f"durable up to {report.durable_lsn}" if report.durable_lsn else "nothing known to be durable"
    return (
        f"{counted(report.segments, 'segment')}, {counted(report.frames, 'frame')}, "
        f"LSN {lsn_range(report.first_lsn, report.last_lsn)}, {durable}, epoch {report.epoch}"
    )


def _journal_text(journal: JournalSeen) -> str:
    operations = f"{counted(journal.operations, 'operation')}, {journal.operations_to_replay:,} to replay"
    holds = "its state cannot be had"
    if journal.state is not None:
        topics, groups = len(journal.state.topics), len(journal.state.groups)
        holds = f"{counted(topics, 'topic')}, {counted(groups, 'group')}, log start {journal.state.log_start}"
    return f"{_log_text(journal.log)}; {operations}; {holds}"


def _ledger_text(ledger: LedgerSeen) -> str:
    topics = f"{counted(len(ledger.state.topics), 'topic')}, {ledger.halted:,} halted"
    return f"{_log_text(ledger.log)}; {counted(ledger.records, 'record')}; {topics}, landed up to {ledger.landed_lsn}"


def _checkpoint_text(seen: SeenCheckpoint) -> str:
    checkpoint = seen.file.checkpoint
    if checkpoint is None:
        return f"not valid: {printable(seen.file.damage)}"
    holds = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in seen.contents.items())
    compared = {None: "not compared with its fold", True: "equal to its fold", False: "NOT equal to its fold"}
    made = f"made {utc_text(checkpoint.created_us)} with operation {checkpoint.journal_lsn}"
    return f"state of LSN {checkpoint.lsn}, {made}, {size_text(seen.bytes)}; {holds}; {compared[seen.equals_fold]}"


def _place(finding: Finding) -> str:
    if not finding.segment:
        return "-"
    name = printable(finding.segment)
    return f"{name} at {finding.position}" if finding.position else name


def _bytes_read(report: DataReport, ledger: LedgerSeen | None) -> int:
    return report.bytes + (ledger.log.bytes if ledger is not None else 0)


def _verdict(report: DataReport) -> str:
    return "PASS" if report.ok else "FAIL"
