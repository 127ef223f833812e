"""Starting, stopping, killing and listening to processes that own a log, or stand by; and what all of them were told.

PROMISE  Every line that a process has written is seen, with the time at which it came, also those that lay in the pipe
         when it was killed.  No process outlives the block that started it, nor stays stopped.
         An error that a careful client does not meet is a Violation.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import headwater as hw
from headwater.frames.bodies import unpack_gap
from headwater.frames.frame import Kind
from tests.e2e.appender_process import appender_environment
from tests.e2e.test_topic_kills import History, check_log, range_of, requests_in, require, rows_of
from tests.e2e_objects.owner import OwnerSettings
from tests.unit.topics.small_engines import engine_of

OWNER = Path(__file__).with_name("owner.py")
EXPECTED_ERRORS = {"Fenced", "Poisoned", "OutcomeUnknown", "Unavailable", "StoreUnavailable", "LogLocked", "Closed"}
"""What a process may meet whose log is taken over, or whose store is away for a while."""


@dataclass(frozen=True)
class Line:
    at_s: float
    epoch: int
    """In which the process was when it wrote it; 0 before it has been the owner."""
    words: list[str]

    @property
    def acknowledges(self) -> bool:
        return self.words[0] == "a"


class OwnerProcess:
    """One process, and the lines that it has written so far."""

    def __init__(self, process: subprocess.Popen[bytes], stderr: Path) -> None:
        self.lines: list[Line] = []
        self.ended = False
        self._process = process
        self._stderr = stderr
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def _listen(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        epoch = 0
        for line in stdout:
            words = line.decode().rstrip("\n").split(" ")
            if words[0] == "o":
                epoch = int(words[1])
            self.lines.append(Line(time.monotonic(), epoch, words))
        self.ended = True

    @property
    def epoch(self) -> int:
        """Of which it is, or was, the owner."""
        return self.lines[-1].epoch if self.lines else 0

    def since(self, at_s: float) -> list[Line]:
        return [line for line in list(self.lines) if line.at_s >= at_s]

    def wait_for(self, what: Callable[[Line], bool], since_s: float, timeout_s: float) -> Line:
        """The first such line that came at this time or later."""
        deadline_s = time.monotonic() + timeout_s
        seen = 0
        while True:
            ended = self.ended
            lines = self.lines
            while seen < len(lines):
                line = lines[seen]
                seen += 1
                if line.at_s >= since_s and what(line):
                    return line
            if ended or time.monotonic() > deadline_s:
                state = "ended" if ended else f"did not say it in {timeout_s} s"
                raise AssertionError(
                    f"the process {state}; its last lines: {[' '.join(line.words) for line in lines[-8:]]}; "
                    f"its errors: {self._stderr.read_text()[-3000:]}"
                )
            time.sleep(0.005)

    def wait_for_acknowledgements(self, count: int, timeout_s: float = 30.0) -> None:
        """So many from now on."""
        since_s = time.monotonic()
        for _ in range(count):
            since_s = self.wait_for(lambda line: line.acknowledges, since_s, timeout_s).at_s + 1e-9

    def where(self) -> str:
        """What its threads are doing, and the last that it has said: for a person."""
        self.send(signal.SIGUSR2)
        time.sleep(0.5)
        said = [" ".join(line.words) for line in self.lines[-4:]]
        return f"{said}\n{self._stderr.read_text(errors='replace')[-6000:]}"

    def send(self, number: signal.Signals) -> None:
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        """SIGKILL, and all lines to the last.  Nothing if it has ended."""
        self._process.kill()
        self._process.wait(timeout=30)
        self._reader.join(timeout=30)


@contextmanager
def owner_process(url: str, settings: OwnerSettings, home: Path) -> Iterator[OwnerProcess]:
    """A new interpreter that owns this log or stands by; all that it may keep on this machine is below `home`."""
    home.mkdir(parents=True, exist_ok=True)
    stderr = home / "stderr"
    with stderr.open("ab") as errors:
        process = subprocess.Popen(
            [sys.executable, str(OWNER), url, *settings.arguments()],
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=home,
            env={**appender_environment(), "HOME": str(home), "TMPDIR": str(home)},
            start_new_session=True,  # A process group of its own, so that a signal meets it and nobody else.
        )
    owner = OwnerProcess(process, stderr)
    try:
        yield owner
    finally:
        owner.kill()
        assert process.stdout is not None
        process.stdout.close()


def history_of(processes: list[OwnerProcess]) -> History:
    """What all of them were told, owner after owner."""
    told: dict[int, list[bytes]] = {}
    owners: dict[int, OwnerProcess] = {}
    for process in processes:
        for line in list(process.lines):
            kind = line.words[0]
            if kind == "o":
                require(line.epoch not in owners, "an epoch has one owner", line.epoch)
                owners[line.epoch] = process
            elif kind == "e":
                require(line.words[2] in EXPECTED_ERRORS, "a careful client meets no such error", *line.words)
            elif kind == "a":
                told.setdefault(line.epoch, []).append(" ".join(line.words).encode())
    history = History()
    for epoch in sorted(told):
        history.add_lines(epoch, told[epoch])
    return history


def check_bucket(url: str, history: History) -> None:
    """Whoever opens it now finds all that was acknowledged, once, in order; and claims nothing by looking."""
    with hw.open(url) as log:
        check_log(log, history)
        check_frames(log)
        assert not log.status().owner


def check_beside(url: str, history: History) -> None:
    """The same, as far as somebody can see who looks while others write: what was acknowledged before is there."""
    with hw.open(url) as log:
        events = requests_in(rows_of(log, "events"))
        for name, answer in history.appended.items():
            require(name in events, "what was acknowledged is there", "events", name)
            found = (events[name][0]["_hw_partition"], *range_of(events[name]))
            require(found == answer, "an answer stays true", name, found, answer)
        left = requests_in(rows_of(log, "left")).keys()
        right = requests_in(rows_of(log, "right")).keys()
        require(history.transactions <= left <= right, "a transaction is in all its topics or in none")
        assert not log.status().owner


def check_frames(log: hw.Log) -> None:
    """LSNs are dense, epochs never fall, and an owner's first frame says so."""
    frames = engine_of(log).shard.log
    following = epoch = 0
    drained = True
    for frame in frames.read(frames.segments()[0].first_lsn):
        header = frame.header
        first = header.lsn
        if header.kind == Kind.GAP:
            gap = unpack_gap(frame.body)
            assert gap is not None
            first = gap.first_lsn
        require(not following or first == following, "LSNs are dense", first, following)
        following = header.lsn + 1
        if header.kind == Kind.GAP:
            drained = True
            continue
        require(header.epoch >= epoch, "epochs never fall", header.lsn, header.epoch, epoch)
        begins = header.epoch == epoch or header.kind == Kind.EPOCH
        require(begins or drained, "an owner begins with its epoch", header.lsn, header.kind)
        epoch = header.epoch
        drained = False
