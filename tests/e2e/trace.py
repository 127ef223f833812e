"""What strace saw a process do, and the promises about the order of its calls.

HOLDS    A parser of strace's output to a list of calls, each with the lines at which it began and returned, and the
         checks that an order of calls keeps what `storage/files.py` says a power loss would leave.
PROMISE  A call that is said to begin after another returned did so in the process too: strace prints an entry before
         the kernel acts and a return before the thread goes on.
READS    strace -f -ttt -y -x -s 128: paths beside descriptors; strings that are not ASCII as \\xNN.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from headwater.log.mark import unpack_slot
from tests.e2e.workload import Acknowledgement, StoredFrame, Violation, parse_line

TRACED = (
    "write,writev,pwrite64,pwritev,pwritev2,fdatasync,fsync,openat,mkdir,mkdirat,"
    "rename,renameat,renameat2,unlink,unlinkat,ftruncate"
)
ON_DESCRIPTORS = frozenset(("write", "writev", "pwrite64", "pwritev", "pwritev2", "fdatasync", "fsync", "ftruncate"))

_LINE = re.compile(r"(?P<thread>\d+)\s+(?:\d+\.\d+ )?(?P<rest>.*)")
_UNFINISHED = re.compile(r"(?P<text>.*) <unfinished \.\.\.>$")
_RESUMED = re.compile(r"<\.\.\. (?P<name>\w+) resumed>(?P<text>.*)")
_CALL = re.compile(r"(?P<name>\w+)\((?P<arguments>.*)\)\s*= (?P<result>-?\d+)(?P<more>.*)")
_DESCRIPTOR = re.compile(r"(\d+)<([^>]*)>")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(rb"\\(x[0-9a-f]{2}|.)")


@dataclass(frozen=True)
class Call:
    thread: int
    name: str
    arguments: str
    result: int
    began: int
    returned: int

    @property
    def path(self) -> str:
        """Of the descriptor that it is about, or of the name that it makes."""
        if self.name in ON_DESCRIPTORS:
            match = _DESCRIPTOR.match(self.arguments)
            return match[2] if match else ""
        names = self.strings()
        return os.fsdecode(names[-1]) if names else ""

    def strings(self) -> list[bytes]:
        return [_unescape(found) for found in _STRING.findall(self.arguments)]

    @property
    def start(self) -> int:
        """Where a write with a position begins in its file; pwritev2 has flags behind it."""
        return int(self.arguments.rsplit(", ", 2)[-2 if self.name == "pwritev2" else -1])


def _unescape(text: str) -> bytes:
    plain = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b'"': b'"', b"\\": b"\\"}

    def one(match: re.Match[bytes]) -> bytes:
        escape = match[1]
        return bytes.fromhex(escape[1:].decode()) if len(escape) == 3 else plain[escape]

    return _ESCAPE.sub(one, text.encode())


def parse_trace(text: str) -> list[Call]:
    """The calls that returned, in the order of their returns."""
    calls: list[Call] = []
    waiting: dict[int, tuple[int, str]] = {}
    for number, line in enumerate(text.splitlines()):
        match = _LINE.match(line)
        if match is None:
            continue
        thread, rest = int(match["thread"]), match["rest"]
        began = number
        if unfinished := _UNFINISHED.match(rest):
            waiting[thread] = (number, unfinished["text"])
            continue
        if resumed := _RESUMED.match(rest):
            began, beginning = waiting.pop(thread)
            rest = beginning + resumed["text"]
        call = _CALL.match(rest)
        if call is not None:
            arguments, result = call["arguments"], int(call["result"])
            calls.append(Call(thread, call["name"], arguments, result, began, number))
    return calls


class Trace:
    """The calls of one appender on one log, and what must be true of their order."""

    def __init__(self, calls: list[Call], log_directory: Path) -> None:
        self._log_directory = str(log_directory)
        self.acknowledgements: list[tuple[Call, Acknowledgement]] = []
        self._writes: dict[str, list[Call]] = defaultdict(list)
        self._syncs: dict[str, list[Call]] = defaultdict(list)
        self._makes: dict[str, Call] = {}
        for call in calls:
            self._sort(call)

    def _sort(self, call: Call) -> None:
        if call.result < 0:
            return
        if call.name in ("fdatasync", "fsync"):
            self._syncs[call.path].append(call)
        elif call.name in ("pwrite64", "pwritev", "pwritev2"):
            self._writes[call.path].append(call)
        elif call.name in ("write", "writev"):
            if call.path.startswith(self._log_directory):
                raise Violation(f"a write to {call.path} without a position: the trace cannot say where it went")
            said = [parse_line(line.removesuffix(b"\n")) for line in call.strings()]
            if said and isinstance(said[0], Acknowledgement) and call.arguments.startswith("1<"):
                self.acknowledgements.append((call, said[0]))
        elif (call.name == "openat" and "O_CREAT" in call.arguments) or call.name.startswith(("mkdir", "rename")):
            self._makes.setdefault(call.path, call)

    @property
    def segments(self) -> list[str]:
        """The segments that were written, oldest first."""
        return sorted(path for path in self._writes if path.endswith(".seg"))

    # ---- what must be true

    def check_synced_before_acknowledged(self, frames: Iterable[StoredFrame]) -> None:
        """A sync of the segment began after the bytes were written and returned before anybody was told."""
        by_lsn = {frame.lsn: frame for frame in frames}
        for told, said in self.acknowledgements:
            for lsn in range(said.first_lsn, said.last_lsn + 1):
                frame = by_lsn[lsn]
                path = f"{self._log_directory}/{Path(frame.segment).name}"
                self._require_synced(path, frame.position, frame.position + frame.frame_size, told, f"LSN {lsn}")

    def check_names_synced_before_acknowledged(self, frames: Iterable[StoredFrame]) -> None:
        """A sync of the directory began after the segment's name was made and returned before the first row in it
        was acknowledged; the same for the directories above it, which this process made."""
        first_told: dict[str, Call] = {}
        segments = {frame.lsn: f"{self._log_directory}/{Path(frame.segment).name}" for frame in frames}
        for told, said in self.acknowledgements:
            first_told.setdefault(segments[said.last_lsn], told)
        for segment, told in first_told.items():
            path = segment
            while path in self._makes:
                parent = os.path.dirname(path)
                if not self._synced_between(parent, self._makes[path].returned, told.began):
                    raise Violation(f"{path} was made, its directory was not synced, and a row in it was acknowledged")
                path = parent

    def check_old_segment_synced_first(self) -> None:
        """The old segment was synced to its last byte before the first byte of the new one was written."""
        for old, new in zip(self.segments, self.segments[1:], strict=False):
            first_byte = min(call.began for call in self._writes[new])
            last_byte = max(call.returned for call in self._writes[old])
            if not self._synced_between(old, last_byte, first_byte):
                raise Violation(f"{new} was begun before {old} was synced to its end")

    def check_mark_behind_syncs(self) -> int:
        """V7: no mark was written that names a byte that no returned sync covered.  Returns how many there were."""
        count = 0
        for call in self._writes[f"{self._log_directory}/mark"]:
            mark = unpack_slot(call.strings()[0][:64])
            if mark is None or mark.durable_lsn == 0:
                continue
            count += 1
            for segment in self.segments:
                if int(Path(segment).name.split(".")[0]) == mark.segment:
                    self._require_synced(segment, 0, mark.position, call, f"the mark of LSN {mark.durable_lsn}")
        return count

    def _require_synced(self, path: str, start: int, end: int, before: Call, what: str) -> None:
        writes = [
            call
            for call in self._writes[path]
            if call.began < before.began and call.start < end and call.start + call.result > start
        ]
        position = start
        for call in sorted(writes, key=lambda call: call.start):
            if call.start <= position:
                position = max(position, call.start + call.result)
        if position < end:
            raise Violation(f"{what}: bytes {position} to {end} of {path} had not been written")
        if not self._synced_between(path, max(call.returned for call in writes), before.began):
            raise Violation(f"{what}: bytes {start} to {end} of {path} had been written and not synced")

    def _synced_between(self, path: str, after: int, before: int) -> bool:
        return any(after < call.began and call.returned < before for call in self._syncs[path])
