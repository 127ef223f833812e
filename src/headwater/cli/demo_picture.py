"""The live picture of `headwater demo`: who writes, who lands, where rows are, what has happened.

TERMINAL A picture that is drawn again four times a second, and gone at the end.
ELSE     A line an event, on stderr; with --json nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from headwater.cli.lsn_picture import lsn_picture
from headwater.cli.output import printable, remarks, say_in_colour
from headwater.clock import Clock, SystemClock

if TYPE_CHECKING:
    from headwater.demo.chaos import Chaos
    from headwater.demo.told import Counts, Event, Listener
    from headwater.topics.answers import Status

TIMES_A_SECOND = 4
LOOK_EVERY_S = 0.5
EVENTS_KEPT = 100
BAR_CELLS = 26
STYLES = {"plain": "", "kill": "bold red", "others": "yellow", "good": "green", "bad": "bold white on red"}
DOING = {"lands": "green", "killed": "red", "starts": "dim", "waits": "dim"}


@contextmanager
def shown(run: Chaos, *, seed: int, as_json: bool) -> Iterator[None]:
    """Show a run while it goes on."""
    console = remarks()
    if as_json or not console.is_terminal:
        run.crew.listener = told_on_stderr(as_json)
        yield
        return
    picture = Picture(run, seed, console, SystemClock())
    run.crew.listener = picture.take
    with Live(
        get_renderable=picture.render, console=console, refresh_per_second=TIMES_A_SECOND, transient=True, screen=False
    ):
        yield


def told_on_stderr(as_json: bool) -> Listener:
    """A line an event; nothing where a program asks."""

    def tell(event: Event) -> None:
        if not as_json:
            say_in_colour(remarks(), *_event(event))

    return tell


class Picture:
    def __init__(self, run: Chaos, seed: int, console: Console, clock: Clock) -> None:
        self._run = run
        self._seed = seed
        self._console = console
        self._clock = clock
        self._begun_s = clock.monotonic_s()
        self._events: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self._status: Status | None = None
        self._looked_s = 0.0

    def take(self, event: Event) -> None:
        self._events.append(event)

    def render(self) -> Group:
        """All of it, in lines that fit the terminal."""
        width, height = self._console.width, self._console.height
        lines = [self._head(), Text(), *self._processes(), Text(), *self._map(width), *_counts(self._run.crew.counts)]
        room = max(height - len(lines) - 2, 3)
        lines.append(Text())
        lines += [Text.assemble(*_event(event)) for event in list(self._events)[-room:]]
        for line in lines:
            line.no_wrap = True
            line.overflow = "ellipsis"
        return Group(*lines)

    def _head(self) -> Text:
        done, of = self._run.steps_taken, len(self._run.schedule)
        cells = round(BAR_CELLS * done / max(of, 1))
        return Text.assemble(
            ("headwater demo chaos", "bold"),
            f"   seed {self._seed}   step {min(done + 1, of)} of {of}  ",
            ("━" * cells, "green"),
            ("─" * (BAR_CELLS - cells), "dim"),
            f"  {self._clock.monotonic_s() - self._begun_s:5.1f} s",
        )

    def _processes(self) -> list[Text]:
        """Writers on the left, landers on the right."""
        head = f"{'WRITER':<9}{'HOW':<12}{'LIVES':>5}{'ROWS ACKNOWLEDGED':>19}{'':6}{'LANDER':<10}{'LIVES':>5}  NOW"
        lines = [Text(head, "bold")]
        writers = list(self._run.crew.known.accounts)
        landers = sorted(self._run.crew.landers, key=lambda each: each.number)
        for place in range(max(len(writers), len(landers), 1)):
            line = Text()
            if place < len(writers):
                each = writers[place]
                line.append(f"{each.writer:<9}{each.how:<12}{each.lives:>5}{each.rows:>19,}")
            line.pad_right(max(51 - len(line.plain), 0))
            if place < len(landers):
                lander = landers[place]
                line.append(f"{lander.number:<10}{lander.lives:>5}  ")
                line.append(lander.doing, DOING.get(lander.doing, "yellow"))
            lines.append(line)
        return lines

    def _map(self, width: int) -> list[Text]:
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_s > LOOK_EVERY_S:
            self._status = self._run.status() or self._status
            self._looked_s = now_s
        if self._status is None:
            return []
        picture = lsn_picture(self._status.landing, self._status.durable_lsn, width)
        return [*picture, Text()] if picture else []


def _event(event: Event) -> tuple[str | tuple[str, str], ...]:
    return (f"{event.at_s:6.1f}", "dim"), "  ", (printable(event.text), STYLES[event.tone])


def _counts(counts: Counts) -> list[Text]:
    """What has happened so far."""
    rows = (
        (
            ("kills of landers", counts.lander_kills),
            ("of the owner", counts.owner_kills),
            ("of writers", counts.writer_kills),
            ("landings", counts.landings),
            ("races", counts.races),
            ("lost to another", counts.races_lost),
        ),
        (
            ("compactions", counts.compactions),
            ("expiries", counts.expiries),
            ("rollbacks", counts.rollbacks),
            ("halts by name", counts.halts),
            ("late commits refused", counts.late_commits_refused),
        ),
    )
    lines = []
    for row in rows:
        line = Text()
        for name, number in row:
            line.append("   " if line.plain else "")
            line.append(f"{name} ", "dim")
            line.append(f"{number:,}", "bold" if number else "dim")
        lines.append(line)
    return lines
