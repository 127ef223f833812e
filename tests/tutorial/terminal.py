"""A real terminal to type into: bash in tmux, on a socket of its own.

    with Terminal(home, environment) as terminal:
        terminal.type("ls", within_s=10)      what it showed, and the exit code, once there is a prompt again

PROMISE  Keys go to a terminal as fingers would send them, and what comes back is what its screen shows.
         A prompt says how the line before it ended.  Nothing waits for ever: TimeoutError has the screen.
         The server of this tmux, and all that was started in it, end with the block.
NOT HERE What is typed: tests/tutorial/page.py.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

WIDTH, HEIGHT = 180, 50
LOOK_S = 0.05

# The shell's prompt begins with the exit code of the line before it; an environment puts its name in front.
_PROMPT = re.compile(r"^(?:\(\S+\) )?(?:(?P<code>\d+) \$|(?P<python>>>>|\.\.\.))(?: |$)")


def has_tmux() -> bool:
    return shutil.which("tmux") is not None


class Terminal:
    """One shell, and the screen that it has written so far."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self._socket = directory / "tmux.socket"
        self._directory = directory
        self._environment = {**environment, "PS1": "$? $ ", "TERM": "xterm-256color", "HISTFILE": ""}

    def __enter__(self) -> Terminal:
        settings = self._directory / "tmux.conf"
        settings.write_text("set -g history-limit 50000\nset -g status off\n")
        self._tmux(
            *("-f", str(settings), "new-session", "-d", "-s", "reader", "-x", str(WIDTH), "-y", str(HEIGHT)),
            *("-c", str(self._directory), "bash", "--norc", "--noprofile"),
        )
        try:
            self._wait_for_prompt(1, 30)
        except TimeoutError:
            self._tmux("kill-server")
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._tmux("kill-server")

    def type(self, line: str, *, within_s: float) -> tuple[str, int]:
        """Type a line and Enter; what the screen shows below it, and the shell's exit code (0 from Python)."""
        before = self._prompts()
        self._keys(line)
        self._tmux("send-keys", "-t", "reader", "Enter")
        lines = self._wait_for_prompt(len(before) + 1, within_s)
        last = _PROMPT.match(lines[-1])
        assert last is not None
        return "\n".join(lines[before[-1] + 1 : -1]), int(last["code"] or 0)

    def save(self, name: str, content: str, *, within_s: float) -> None:
        """A file, as `cat` makes it of what is typed."""
        before = self._prompts()
        self._keys(f"cat > {name}")
        for line in content.splitlines():
            self._tmux("send-keys", "-t", "reader", "Enter")
            self._keys(line)
        self._tmux("send-keys", "-t", "reader", "Enter", "C-d")
        self._wait_for_prompt(len(before) + 1, within_s)

    def screen(self) -> list[str]:
        """All lines so far; one that is wider than the terminal is one line."""
        shown = self._tmux("capture-pane", "-t", "reader", "-p", "-J", "-S", "-")
        return [line.rstrip() for line in shown.rstrip().splitlines()]

    def _keys(self, text: str) -> None:
        if text:
            self._tmux("send-keys", "-t", "reader", "-l", "--", text)

    def _prompts(self) -> list[int]:
        return [number for number, line in enumerate(self.screen()) if _PROMPT.match(line)]

    def _wait_for_prompt(self, count: int, within_s: float) -> list[str]:
        """Until there are so many prompts, and nothing behind the last one."""
        end = time.monotonic() + within_s
        while time.monotonic() < end:
            lines = self.screen()
            prompts = [line for line in lines if _PROMPT.match(line)]
            if len(prompts) >= count and lines and (last := _PROMPT.match(lines[-1])) and last.end() == len(lines[-1]):
                return lines
            time.sleep(LOOK_S)
        raise TimeoutError(f"no prompt within {within_s:.0f} s; the terminal shows\n" + "\n".join(self.screen()[-30:]))

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(self._socket), *words],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        return done.stdout
