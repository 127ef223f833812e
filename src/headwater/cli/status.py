"""`headwater status [--watch] [--web DIR]`: what there is, how much, how fast, and who is behind, at a glance.

PROMISE  It reads only, and may run beside the log's owner; with --web it writes one file, DIR/index.html.
RATE     With --watch: rows appended to a topic since the look before, by the second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from headwater.cli.data_directory import AsJson, DataOption, locate, open_topics
from headwater.cli.failures import exit_codes
from headwater.cli.landing_output import lag_text, landing_content
from headwater.cli.lsn_picture import lsn_picture
from headwater.cli.output import counted, emit_json, lsn_range, printable, results, utc_text
from headwater.cli.plain_table import Column, fit, size_cell, table_lines, widths_of
from headwater.cli.topic_show import line_content, policy_text
from headwater.clock import Clock, SystemClock
from headwater.errors import InvalidRequest

if TYPE_CHECKING:
    from headwater.topics.answers import Status, StoreStatus, TopicStatus

COMMAND = "status"
EVERY_S = 1.0
TOPICS_SHOWN_MIN = 3

Watch = Annotated[
    bool, typer.Option("--watch", "-w", help="Look again every second, with --web every five, until Ctrl-C.")
]
Web = Annotated[
    str | None,
    typer.Option(
        "--web",
        metavar="DIR",
        help="Write it as a web page, DIR/index.html, which needs no server and no other file.",
        show_default=False,
    ),
]


def status(data: DataOption = None, watch: Watch = False, web: Web = None, as_json: AsJson = False) -> None:
    """Show topics, consumer groups and the log at a glance. It may run beside the log's owner.

    Exit code 0: done. 2: there is no log. 3: the log is halted. 75: try again.
    """
    with exit_codes(as_json=as_json, command=COMMAND), open_topics(data) as log:
        if as_json and watch:
            raise InvalidRequest("--watch is for people: a program asks again with --json")
        if as_json and web is not None:
            raise InvalidRequest("--web is for people: give --json without it")
        if web is not None:
            from headwater.cli.web_page import write_page

            write_page(log, locate(data), web, SystemClock(), watch=watch, ended=Event())
        elif as_json:
            emit_json(COMMAND, as_content(log.status()))
        elif watch:
            _watch(results(), log.status, SystemClock(), Event())
        else:
            console = results()
            for line in render(log.status(), console, None):
                console.print(line, soft_wrap=True)


@dataclass(frozen=True)
class Look:
    """What the look before saw, and when."""

    at_s: float
    appended: dict[str, int]

    def rate(self, name: str, appended: int, now_s: float) -> float | None:
        """Rows by the second since then; None for a topic that was not there."""
        if name not in self.appended or now_s <= self.at_s:
            return None
        return (appended - self.appended[name]) / (now_s - self.at_s)


def as_content(found: Status) -> dict[str, object]:
    """The status for programs."""
    return {
        "directory": found.directory,
        "log_id": found.log_id,
        "owner": found.owner,
        "epoch": found.epoch,
        "log": {
            "first_lsn": found.first_lsn,
            "durable_lsn": found.durable_lsn,
            "segments": found.segments,
            "bytes": found.log_bytes,
            "checkpoint_lsn": found.checkpoint_lsn,
            "replay_bytes": found.replay_bytes,
        },
        "journal": {"lsn": found.journal_lsn, "remaining": found.journal_remaining},
        "topics": [line_content(each) for each in found.topics],
        "groups": [
            {
                "group": each.group,
                "topic": each.topic,
                "lag": each.total_lag,
                "partitions": [
                    {"partition": number, "committed": each.committed.get(number), "lag": lag}
                    for number, lag in sorted(each.lag.items())
                ],
            }
            for each in found.groups
        ],
        "landing": landing_content(found.landing),
        "producers": found.producers,
        "sources": sorted(found.sources),
        "deleted_topics": found.deleted_topics,
        "notes": found.notes,
        "counters": found.counters,
        **({"store": asdict(found.store)} if found.store is not None else {}),
    }


Rates = dict[str, float | None]
"""Rows by the second of each topic; None for one that was not there before."""


def _watch(console: Console, look: Callable[[], Status], clock: Clock, ended: Event) -> None:
    """Draw it again every second, in the same place, until somebody has seen enough."""
    before: Look | None = None
    try:
        with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
            while True:
                found = look()
                now_s = clock.monotonic_s()
                appended = {each.name: each.appended for each in found.topics}
                rates = {name: before.rate(name, rows, now_s) if before else None for name, rows in appended.items()}
                lines = render(found, console, rates, lines_max=console.height - 1 if console.is_terminal else None)
                live.update(Group(*lines), refresh=True)
                before = Look(now_s, appended)
                if ended.wait(EVERY_S):
                    return
    except KeyboardInterrupt:
        return


def render(found: Status, console: Console, rates: Rates | None, *, lines_max: int | None = None) -> list[Text]:
    """All of it, as lines that fit the console; where they may not be many, the topics at work come first."""
    above = [*_log_lines(found), Text()]
    below: list[Text] = []
    if found.landing:
        below += [Text(), *_landing(found, console)]
        picture = lsn_picture(found.landing, found.durable_lsn, console.width)
        below += [Text(), *picture] if picture else []
    if found.groups:
        below += [Text(), *_groups(found, console)]
    if found.notes:
        below += [Text(), Text("NOTES", "bold")]
        below += [Text(f"- {printable(note)}", "yellow") for note in found.notes]
    if lines_max is None:
        return [*above, *_topics(found.topics, console, rates), *below]
    # Two lines are the heads and the count of what is left out; some topics are shown whatever else there is.
    room = max(lines_max - len(above) - len(below) - 2, TOPICS_SHOWN_MIN)
    if len(found.topics) <= room:
        return [*above, *_topics(found.topics, console, rates), *below]
    busiest = sorted(found.topics, key=lambda each: (-((rates or {}).get(each.name) or 0.0), each.name))
    left_out = Text(f"... and {len(found.topics) - room:,} topics more, with no higher rate", "dim")
    return [*above, *_topics(busiest[:room], console, rates), left_out, *below]


def _log_lines(found: Status) -> list[Text]:
    durable = lsn_range(found.first_lsn, found.durable_lsn)
    replay = f", {size_cell(found.replay_bytes)} behind it" if found.replay_bytes else ""
    facts = [
        ("data", f"{found.directory}  (log {found.log_id[:8]}, epoch {found.epoch})"),
        ("log", f"LSN {durable}, {counted(found.segments, 'segment')}, {size_cell(found.log_bytes)}"),
        ("checkpoint", f"LSN {found.checkpoint_lsn or '-'}{replay}"),
        ("journal", f"LSN {found.journal_lsn or '-'}, room for {found.journal_remaining:,} operations"),
    ]
    if found.store is not None:
        facts += _store_facts(found.store, owner_here=found.owner)
    others = [
        counted(count, noun)
        for count, noun in (
            (found.producers, "producer"),
            (len(found.sources), "source"),
            (found.deleted_topics, "deleted topic"),
        )
        if count
    ]
    if others:
        facts.append(("also", ", ".join(others)))
    lines = []
    for name, text in facts:
        line = Text()
        line.append(f"{name:<12}", "dim")
        line.append(printable(text))
        lines.append(line)
    return lines


def _store_facts(store: StoreStatus, *, owner_here: bool) -> list[tuple[str, str]]:
    owner = store.owner
    if owner is None:
        text = "nobody: whoever writes next takes the log"
    else:
        text = f"pid {owner.pid} on {owner.host}, since {utc_text(owner.since_us)}, "
        text += "this process" if owner_here else "alive" if owner.alive else "silent: whoever writes next takes over"
    slots = f"{counted(store.slots, 'slot')} since trim, {counted(store.kept_segments, 'segment')} before it"
    sent = [f"{store.requests[each]:,} {each}" for each in ("puts", "gets", "lists", "deletes")]
    moved = f"{size_cell(store.requests['bytes_put'])} sent, {size_cell(store.requests['bytes_got'])} read"
    return [
        ("owner", text),
        ("store", f"{slots}, window {store.window}"),
        ("requests", f"{', '.join(sent)}; {moved}, by this process"),
    ]


def _topics(found: list[TopicStatus], console: Console, rates: Rates | None) -> list[Text]:
    if not found:
        return [Text("There is no topic yet; `headwater topic create NAME` makes one.")]
    columns = [
        Column("TOPIC", style="bold"),
        Column("ROWS", right=True, keep=True),
        Column("BYTES", right=True, keep=True),
        *([Column("ROWS/S", right=True, keep=True)] if rates is not None else []),
        Column("PARTS", right=True, keep=True),
        Column("KEY"),
        Column("CLEANUP"),
        Column("TABLE"),
    ]
    rows = []
    for each in found:
        rate = rates.get(each.name) if rates is not None else None
        rows.append(
            [
                each.name,
                f"{each.rows:,}",
                size_cell(each.bytes),
                *([f"{rate:,.0f}" if rate is not None else "-"] if rates is not None else []),
                f"{each.partitions:,}",
                ",".join(each.key) or "-",
                policy_text(each.policy, each.table),
                each.table or "-",
            ]
        )
    return _table(console, columns, rows)


def _landing(found: Status, console: Console) -> list[Text]:
    keyed = any(each.merged_lsn is not None for each in found.landing)
    columns = [
        Column("LANDING", style="bold"),
        Column("TABLE"),
        Column("LANDED LSN", right=True, keep=True),
        Column("VERIFIED", right=True, keep=True),
        Column("AUDITED", right=True, keep=True),
        *([Column("MERGED", right=True, keep=True)] if keyed else []),
        Column("LAG", right=True, keep=True),
        Column("HALTED", keep=True, style="red"),
    ]
    rows = [
        [
            each.topic,
            each.table,
            f"{each.landed_lsn}" if each.landed_lsn else "-",
            f"{each.verified_lsn}" if each.verified_lsn else "-",
            f"{each.audited_lsn}" if each.audited_lsn else "-",
            *([f"{each.merged_lsn}" if each.merged_lsn else "-"] if keyed else []),
            lag_text(each),
            each.halted or "-",
        ]
        for each in found.landing
    ]
    return _table(console, columns, rows)


def _groups(found: Status, console: Console) -> list[Text]:
    columns = [
        Column("GROUP", style="bold"),
        Column("TOPIC"),
        Column("LAG", right=True, keep=True),
        Column("PARTITIONS", right=True, keep=True),
    ]
    rows = [
        [each.group, each.topic, f"{each.total_lag:,}", f"{len(each.lag):,}"]
        for each in sorted(found.groups, key=lambda each: (each.group, each.topic))
    ]
    return _table(console, columns, rows)


def _table(console: Console, columns: list[Column], rows: list[list[str]]) -> list[Text]:
    shown = [[printable(cell) for cell in row] for row in rows]
    widths = widths_of(columns, shown)
    if console.is_terminal:
        widths = fit(widths, columns, console.width)
    return list(table_lines(columns, shown, widths, with_heads=True))
