"""`headwater log rebuild DATA --to DIR`: a new journal from the log's own frames, where the old one is lost.

PROMISE  DATA is only read.  DIR gets a journal, read back and compared; with --copy-log also the log, so that it is a
         whole data directory.
NOT HERE What comes back and what is lost: metadata/rebuild.py has the table.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headwater.cli.data_directory import JOURNAL, LOG, AsJson, Data, open_data, refuse_bucket
from headwater.cli.exit_codes import ExitCode
from headwater.cli.failures import exit_codes
from headwater.cli.log_walk import Break, SeenFrame, walk_log
from headwater.cli.output import counted, emit_json, printable, remarks, results, say, say_in_colour
from headwater.cli.plain_table import Column, print_table
from headwater.clock import SystemClock, system_entropy
from headwater.errors import DamagedLog, Halted, InvalidRequest
from headwater.log.names import MARK, sort_names
from headwater.metadata.checkpoint import CheckpointKind, Checkpoints
from headwater.metadata.journal import open_journal
from headwater.metadata.rebuild import Rebuilding, Rebuilt
from headwater.metadata.shard_state import ShardState
from headwater.metadata.state import MetadataState
from headwater.settings import Settings
from headwater.storage.disk import DiskFiles
from headwater.storage.files import Files
from headwater.storage.places import is_bucket

COMMAND = "log rebuild"
NOT_INTO_A_BUCKET = "a journal is rebuilt into a directory, not into a bucket: give a directory"
CHECKPOINTS = "checkpoints"
OPERATIONS_PER_WRITE = 500
COPY_BYTES = 4 * 1024 * 1024

LOST = [
    "policies (retention, cleanup): every topic keeps all its rows, until `headwater topic alter` says otherwise",
    "tables: `headwater topic alter TOPIC --table NAME` names one again",
    "topics and groups that the log holds nothing of; columns and partitions that were added and never written to",
    "deletions: a topic that was deleted is there again, as long as rows of it are in the log",
]

To = Annotated[
    str, typer.Option("--to", metavar="DIR", help="The new data directory; it has no journal.", show_default=False)
]
CopyLog = Annotated[
    bool, typer.Option("--copy-log", help="Copy the log and its checkpoints too, so that DIR is whole.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would come back, and make nothing.")]


def rebuild(data: Data, to: To, copy_log: CopyLog = False, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Make the metadata journal anew from what the log says of itself, where the journal is lost or cannot be read.

    Topics, schemas, keys, partitions and groups come back. Policies and tables are not in the log, and do not: it says
    what is missing. DATA is not changed; stop its owner first. Restoring a backup of `journal/` is better, if there is
    one.

    Exit code 0: done. 2: there is no log, or DIR has a journal. 3: the log is damaged: `headwater log repair` first.
    """
    with exit_codes(as_json=as_json, command=COMMAND):
        refuse_bucket(to, NOT_INTO_A_BUCKET)
        files = open_data(data)
        target = DiskFiles(to)
        if target.list(JOURNAL) or (copy_log and target.list(LOG)):
            raise InvalidRequest(f"{to} is in use: it has a journal or a log; give a directory that has none")
        with remarks().status("reading the log ..."):
            found = gather(files, data)
        if not dry_run:
            _write(target, found)
            if copy_log:
                _copy(files, target)
        if as_json:
            emit_json(COMMAND, as_content(found, data, to, dry_run=dry_run, copied=copy_log and not dry_run))
        else:
            _show(results(), found, data, to, dry_run=dry_run, copied=copy_log)
    raise typer.Exit(ExitCode.DONE)


def gather(files: Files, data: str) -> Rebuilt:
    """Walk all of the log; a damaged one halts, because what is behind the damage may say something else."""
    rebuilding = Rebuilding()
    for seen in walk_log(files, LOG, bodies=True):
        if isinstance(seen, Break) and not seen.torn_tail:
            raise DamagedLog(
                f"the log is damaged: {seen.why}; run `headwater log repair {shlex.quote(data)}`, then this again",
                segment=seen.segment,
                first_lsn=seen.first_lsn,
            )
        if isinstance(seen, SeenFrame):
            rebuilding.take(seen.header, seen.body, seen.first_lsn)
    for each in Checkpoints(files, CHECKPOINTS, CheckpointKind.SHARD).read():
        if each.checkpoint is not None:
            rebuilding.know(ShardState.unpack(each.checkpoint.body), each.checkpoint.journal_lsn)
    return rebuilding.result()


def _write(target: DiskFiles, found: Rebuilt) -> None:
    settings, clock = Settings().journal, SystemClock()
    with open_journal(target, JOURNAL, settings=settings, clock=clock, entropy=system_entropy) as journal:
        for start in range(0, len(found.operations), OPERATIONS_PER_WRITE):
            journal.append(found.operations[start : start + OPERATIONS_PER_WRITE])
        while (missing := found.journal_lsn - journal.last_lsn) > 0:
            journal.append([found.filler] * min(missing, OPERATIONS_PER_WRITE))
        journal.checkpoint()
    with open_journal(target, JOURNAL, settings=settings, clock=clock, entropy=system_entropy) as journal:
        _compare(journal.state, found)


def _compare(state: MetadataState, found: Rebuilt) -> None:
    """A journal that was not read back is not made."""
    if list(state.topics.values()) != found.topics or sorted(state.groups) != found.groups:
        raise Halted("the journal that was made does not read back as it was meant; please report it, with the log")


def _copy(files: Files, target: DiskFiles) -> None:
    listing = sort_names(files.list(LOG))
    names = [*map(str, listing.segments), *(name.index for name in listing.indexes), *([MARK] if listing.mark else [])]
    chosen = [f"{LOG}/{name}" for name in names]
    chosen += [f"{CHECKPOINTS}/{name}" for name in files.list(CHECKPOINTS) if name.endswith(".ckpt")]
    for directory in (LOG, CHECKPOINTS):
        target.make_directory(directory)
    for name in chosen:
        _copy_file(files, target, name)
    for directory in (LOG, CHECKPOINTS):
        target.sync_directory(directory)


def _copy_file(files: Files, target: DiskFiles, name: str) -> None:
    source, copy = files.open(name), target.create(name)
    try:
        size = source.size()
        for position in range(0, size, COPY_BYTES):
            copy.append([source.read_at(position, min(COPY_BYTES, size - position))])
        copy.sync_all()
    finally:
        source.close()
        copy.close()


def as_content(found: Rebuilt, data: str, to: str, *, dry_run: bool, copied: bool) -> dict[str, object]:
    return {
        "data": data,
        "to": to,
        "dry_run": dry_run,
        "log_copied": copied,
        "operations": len(found.operations),
        "log_start": found.log_start,
        "topics": [
            {
                "number": topic.number,
                "name": topic.name,
                "topic_id": topic.topic_id.hex(),
                "schema_versions": len(topic.schemas),
                "partitions": topic.partitions,
                "key": list(topic.key),
                "rows": found.rows.get(topic.number, 0),
            }
            for topic in found.topics
        ],
        "replaced": [{"number": topic.number, "name": topic.name} for topic in found.replaced],
        "unnamed": found.unnamed,
        "groups": found.groups,
        "lost": LOST,
    }


def _show(console: Console, found: Rebuilt, data: str, to: str, *, dry_run: bool, copied: bool) -> None:
    heads = [Column("NUMBER", right=True), Column("TOPIC", keep=True, style="bold"), Column("ROWS", right=True)]
    heads += [Column("PARTITIONS", right=True), Column("SCHEMAS", right=True), Column("KEY")]
    rows = [
        (
            f"{topic.number}",
            printable(topic.name),
            f"{found.rows.get(topic.number, 0):,}",
            f"{topic.partitions:,}",
            f"{len(topic.schemas)}",
            printable(",".join(topic.key)) or "-",
        )
        for topic in found.topics
    ]
    print_table(console, heads, rows)
    console.print()
    if found.groups:
        say(console, f"groups: {printable(', '.join(found.groups))}", indent="  ")
    for topic in found.replaced:
        say(
            console,
            f"number {topic.number} was {printable(topic.name)!r} before another got its name: it is deleted again",
        )
    if found.unnamed:
        numbers = ", ".join(map(str, found.unnamed[:10])) + (" ..." if len(found.unnamed) > 10 else "")
        say(console, f"{counted(len(found.unnamed), 'number')} without a schema in the log, passed over: {numbers}")
    say(console, "What a log does not say, and is not there again:", "bold")
    for each in LOST:
        say(console, each, first="  - ", indent="    ")
    console.print()
    if dry_run:
        say(console, f"Nothing was made. {counted(len(found.operations), 'operation')} would be.")
        return
    journal = f"{counted(len(found.operations), 'operation')} in {printable(str(Path(to) / JOURNAL))}"
    say_in_colour(console, ("REBUILT", "bold green"), f"  {journal}, read back and compared.")
    if copied:
        say(console, f"The log was copied: {printable(to)} is a data directory of its own.")
    elif is_bucket(data):
        say(
            console,
            f"Look at it there: the journal of {printable(data)} is put back from the store's versions or a copy.",
        )
    else:
        old, new = shlex.quote(str(Path(data) / JOURNAL)), shlex.quote(str(Path(to) / JOURNAL))
        say(console, f"To use it: mv {old} {old}.lost; mv {new} {old}")
