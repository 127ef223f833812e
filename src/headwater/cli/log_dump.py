"""`headwater log dump DATA`: the frames of a log, of its metadata journal, or of its ledger, one line each."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Annotated, Protocol

import typer

from headwater.cli.data_directory import JOURNAL, LEDGER, LOG, AsJson, Data, open_data
from headwater.cli.exit_codes import ExitCode
from headwater.cli.failures import code_of, describe, exit_codes, tell
from headwater.cli.log_walk import Break, Seen, SeenFrame, SegmentStart, walk_log
from headwater.cli.output import (
    JsonStream,
    counted,
    lsn_range,
    printable,
    remarks,
    results,
    say,
    utc_text,
)
from headwater.errors import HeadwaterError, InvalidRequest
from headwater.frames.bodies import GapReason
from headwater.frames.frame import Flag, Header, Kind
from headwater.lake.ledger_describe import record_content, record_text
from headwater.lake.ledger_records import LedgerRecord, unpack_ledger_record
from headwater.log.names import SegmentName
from headwater.log.object_files import LogsAsFiles
from headwater.log.object_look import SlotPlaces
from headwater.metadata.describe import operation_content, operation_text
from headwater.metadata.operations import Operation, decode_operation

COMMAND = "log dump"

FromLsn = Annotated[int, typer.Option("--from-lsn", min=1, metavar="LSN", help="Begin at this LSN.")]
ToLsn = Annotated[
    int | None, typer.Option("--to-lsn", min=1, metavar="LSN", help="End with this LSN.", show_default=False)
]
Topic = Annotated[
    int | None,
    typer.Option(
        "--topic",
        min=0,
        metavar="N",
        help="Only the frames of this topic, by its number; 0: those of no topic.",
        show_default=False,
    ),
]
Limit = Annotated[
    int | None, typer.Option("--limit", min=1, metavar="N", help="Show so many frames.", show_default=False)
]
OfJournal = Annotated[
    bool,
    typer.Option("--journal", help="The metadata journal in place of the log: what was done to topics and groups."),
]
OfLedger = Annotated[
    bool, typer.Option("--ledger", help="The ledger in place of the log: what has landed, was verified, or is halted.")
]

Content = Operation | LedgerRecord
"""What stands in a frame of the journal, or of the ledger."""

HEADING = (
    f"{'LSN':>7} {'KIND':<9} {'TOPIC/P':>7} {'OFFSETS':>11} {'ROWS':>5} {'BYTES':>8} {'EPOCH':>5} {'WRITE':>5} "
    f"{'APPENDED (UTC)':<24} AT, FLAGS"
)
JOURNAL_HEADING = f"{'LSN':>7} {'EPOCH':>5} {'WRITE':>9} {'APPENDED (UTC)':<24} {'AT':<12} OPERATION"
LEDGER_HEADING = JOURNAL_HEADING.replace("OPERATION", "RECORD")
HEADINGS = {LOG: HEADING, JOURNAL: JOURNAL_HEADING, LEDGER: LEDGER_HEADING}


@dataclass
class Tally:
    """What a dump has come by."""

    frames: int = 0
    next_lsn: int | None = None
    """Where to go on, if the limit ended it."""
    breaks: list[Break] = field(default_factory=list)
    undecoded: int = 0
    """Operations of the journal, or records of the ledger, that nobody here can read."""

    @property
    def halted(self) -> bool:
        return bool(self.undecoded) or any(not each.torn_tail for each in self.breaks)


class Printer(Protocol):
    def segment(self, start: SegmentStart) -> None: ...

    def frame(self, frame: SeenFrame, content: Content | HeadwaterError | None) -> None: ...

    def broken(self, broken: Break) -> None: ...

    def end(self, tally: Tally, error: HeadwaterError | OSError | None) -> None: ...


def dump(
    data: Data,
    as_json: AsJson = False,
    from_lsn: FromLsn = 1,
    to_lsn: ToLsn = None,
    topic: Topic = None,
    limit: Limit = None,
    journal: OfJournal = False,
    ledger: OfLedger = False,
) -> None:
    """Show the frames of a log, one line each; or with --journal the operations of its metadata, with --ledger the
    records of its landings. It reads only, and may run beside the log's owner.

    It also works on a damaged log: it shows what can be read, before and behind the damage, and where the log breaks.
    AT is the segment (first LSN.generation) and the position in it; WRITE 1/2 is the first of two frames that became
    visible together. In a bucket the slot is shown too, while a frame still lies in one.

    Exit code 0: done, a torn tail included. 2: there is no log. 3: the log is damaged. 75: try again.
    """
    with exit_codes(as_json=as_json, command=COMMAND):
        files = open_data(data)
        if journal and ledger:
            raise InvalidRequest("--journal and --ledger are two dumps: ask for one at a time")
        directory = JOURNAL if journal else LEDGER if ledger else LOG
        if directory != LOG and topic is not None:
            raise InvalidRequest(f"--topic chooses among the frames of the log: leave it out, or --{directory}")
        places = SlotPlaces(files.look(directory)) if isinstance(files, LogsAsFiles) else None
        printer: Printer = (JsonLines if as_json else TextLines)(data, directory, places)
        tally = Tally()
        error: HeadwaterError | OSError | None = None
        try:
            seen = walk_log(files, directory, from_lsn=from_lsn, to_lsn=to_lsn, bodies=directory != LOG)
            pour(seen, printer, tally, topic, limit)
        except BrokenPipeError:
            raise
        except (HeadwaterError, OSError) as met:
            # What has been shown stays valid output; the error is its last word.
            error = met
            tell(met)
        printer.end(tally, error)
    if error is not None:
        raise typer.Exit(code_of(error))
    raise typer.Exit(ExitCode.HALTED if tally.halted else ExitCode.DONE)


def pour(seen: Iterator[Seen], printer: Printer, tally: Tally, topic: int | None, limit: int | None) -> None:
    """Print what is wanted of what is seen."""
    for each in seen:
        if isinstance(each, SegmentStart):
            printer.segment(each)
        elif isinstance(each, Break):
            tally.breaks.append(each)
            printer.broken(each)
        elif topic is None or each.header.topic_number == topic:
            if tally.frames == limit:
                tally.next_lsn = each.first_lsn
                return
            tally.frames += 1
            content = content_of(each)
            tally.undecoded += isinstance(content, HeadwaterError)
            printer.frame(each, content)


def content_of(frame: SeenFrame) -> Content | HeadwaterError | None:
    """The operation in a frame of the journal, the record in one of the ledger, or why it cannot be had; nothing in any
    other frame."""
    if frame.body is None:
        return None
    try:
        if frame.header.kind == Kind.METADATA:
            return decode_operation(frame.body, frame.header.lsn)
        return unpack_ledger_record(frame.body) if frame.header.kind == Kind.LEDGER else None
    except HeadwaterError as error:
        return error


def content_text(content: Content) -> str:
    return record_text(content) if isinstance(content, LedgerRecord) else operation_text(content)


class TextLines:
    """For people: a line a frame; a segment's own line where its first frame is shown."""

    def __init__(self, data: str, directory: str, places: SlotPlaces | None) -> None:
        self._places = places
        self._data = data
        self._directory = directory
        self._console = results()
        self._write = self._console.file.write
        self._start: SegmentStart | None = None
        self._any = False

    def segment(self, start: SegmentStart) -> None:
        self._start = start

    def frame(self, frame: SeenFrame, content: Content | HeadwaterError | None) -> None:
        if not self._any:
            self._any = True
            say(self._console, HEADINGS[self._directory], "bold")
        if self._start is not None:
            self._tell_segment(self._start)
            self._start = None
        line = frame_line(frame) if self._directory == LOG else content_line(frame, content)
        self._write(f"{line}{slot_text(frame, self._places)}\n")

    def broken(self, broken: Break) -> None:
        where = f" ({broken.segment}:{broken.position})" if broken.segment else ""
        if broken.torn_tail:
            text = f"torn tail of {broken.bytes:,} bytes, never acknowledged: {printable(broken.why)}{where}"
            say(self._console, text, "yellow", first="~~~ ", indent="    ")
        else:
            lsns = f"LSN {lsn_range(broken.first_lsn, broken.last_lsn)}"
            text = f"{lsns} cannot be read: {printable(broken.why)}{where}"
            say(self._console, text, "bold red", first="!!! ", indent="    ")

    def end(self, tally: Tally, error: HeadwaterError | OSError | None) -> None:
        self._console.file.flush()
        aside = remarks()
        more = f"; there are more: --from-lsn {tally.next_lsn}" if tally.next_lsn is not None else ""
        say(aside, f"{counted(tally.frames, 'frame')}{more}", "dim")
        if tally.halted:
            damage = counted(sum(not each.torn_tail for each in tally.breaks) + tally.undecoded, "break")
            say(
                aside,
                f"HALTED  {damage} in the log. Next: headwater log verify {shlex.quote(self._data)}",
                "bold red",
            )

    def _tell_segment(self, start: SegmentStart) -> None:
        header = start.opening.header
        text = (
            f"--- {short_name(start.name)} is {start.name}, made {utc_text(header.created_us)}, "
            f"log {header.log_id.hex()[:8]}"
        )
        say(self._console, text, "dim", indent="    ")


class JsonLines:
    """For programs: one object whose `frames` are written as they come."""

    def __init__(self, data: str, directory: str, places: SlotPlaces | None) -> None:
        self._places = places
        self._stream = JsonStream(COMMAND, {"data": data, "directory": directory}, "frames")
        self._segments: list[dict[str, object]] = []
        self._of_ledger = directory == LEDGER

    def segment(self, start: SegmentStart) -> None:
        header = start.opening.header
        self._segments.append(
            {
                "name": str(start.name),
                "first_lsn": header.first_lsn,
                "generation": header.generation,
                "log_id": header.log_id.hex(),
                "epoch": header.epoch,
                "created_us": header.created_us,
            }
        )

    def frame(self, frame: SeenFrame, content: Content | HeadwaterError | None) -> None:
        told = frame_content(frame)
        if self._places is not None:
            told["slot"] = self._places.at(str(frame.segment), frame.position)
        name = "record" if self._of_ledger else "operation"
        if isinstance(content, HeadwaterError):
            told[name], told[f"{name}_error"] = None, describe(content)
        elif isinstance(content, LedgerRecord):
            told[name] = record_content(content)
        elif content is not None:
            told[name] = operation_content(content)
        self._stream.add(told)

    def broken(self, broken: Break) -> None:
        """Told at the end, behind the frames."""

    def end(self, tally: Tally, error: HeadwaterError | OSError | None) -> None:
        self._stream.end(
            {
                "next_lsn": tally.next_lsn,
                "breaks": [asdict(each) for each in tally.breaks],
                "halted": tally.halted,
                "segments": self._segments,
                "error": describe(error) if error is not None else None,
            }
        )


def frame_line(frame: SeenFrame) -> str:
    header = frame.header
    write = f"{header.write_index + 1}/{header.write_count}"
    at = f"{short_name(frame.segment)}:{frame.position}"
    if frame.gap is not None:
        gap = frame.gap
        what = f"LSN {lsn_range(gap.first_lsn, gap.last_lsn)}: {counted(gap.frames, 'frame')} {reason_name(gap.reason)}"
        return f"{header.lsn:>7} {'GAP':<9} {what:<71} {at}"
    flags = "".join(f" {each}" for each in flag_names(frame))
    owner = f"{header.topic_number}/{header.partition}" if header.topic_number else "-"
    offsets = "-"
    if header.offset_count:
        offsets = f"{header.base_offset}..{header.base_offset + header.offset_count - 1}"
    return (
        f"{header.lsn:>7} {kind_name(header.kind):<9} {owner:>7} {offsets:>11} {header.row_count or '-':>5} "
        f"{header.body_size:>8} {header.epoch:>5} {write:>5} {utc_text(header.append_time_us):<24} {at}{flags}"
    )


def slot_text(frame: SeenFrame, places: SlotPlaces | None) -> str:
    """Where a frame lies in a bucket; an owner begins its epoch with a fence."""
    slot = places.at(str(frame.segment), frame.position) if places is not None else None
    if slot is None:
        return ""
    return f" [slot {slot}{', fence' if frame.header.kind == Kind.EPOCH else ''}]"


def content_line(frame: SeenFrame, content: Content | HeadwaterError | None) -> str:
    header = frame.header
    if isinstance(content, HeadwaterError):
        what = f"!!! {content.message}"
    elif content is not None:
        what = content_text(content)
    else:
        what = kind_name(header.kind)
    write = f"{header.write_index + 1}/{header.write_count}"
    at = f"{short_name(frame.segment)}:{frame.position}"
    flags = "".join(f" [{each}]" for each in flag_names(frame))
    return (
        f"{header.lsn:>7} {header.epoch:>5} {write:>9} {utc_text(header.append_time_us):<24} {at:<12} "
        f"{printable(what)}{flags}"
    )


def frame_content(frame: SeenFrame) -> dict[str, object]:
    header: Header = frame.header
    content: dict[str, object] = {
        "lsn": header.lsn,
        "kind": kind_name(header.kind),
        "kind_number": header.kind,
        "topic_number": header.topic_number,
        "partition": header.partition,
        "base_offset": header.base_offset,
        "row_count": header.row_count,
        "offset_count": header.offset_count,
        "body_bytes": header.body_size,
        "frame_bytes": header.frame_size,
        "codec": header.codec,
        "flags": flag_names(frame),
        "epoch": header.epoch,
        "durable_lsn": header.durable_lsn,
        "write_index": header.write_index,
        "write_count": header.write_count,
        "schema_version": header.schema_version,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "sequence": header.sequence,
        "append_time": utc_text(header.append_time_us),
        "append_time_us": header.append_time_us,
        "time_min_us": header.time_min_us,
        "time_max_us": header.time_max_us,
        # Numbers of 64 random bits: many readers of JSON would round them.
        "prev": f"{header.prev:016x}",
        "segment": str(frame.segment),
        "position": frame.position,
    }
    if frame.gap is not None:
        content["gap"] = {
            "first_lsn": frame.gap.first_lsn,
            "last_lsn": frame.gap.last_lsn,
            "frames": frame.gap.frames,
            "reason": reason_name(frame.gap.reason),
            "next_offsets": [
                {"topic_number": topic, "partition": partition, "next_offset": following}
                for topic, partition, following in frame.gap.next_offsets
            ],
        }
    return content


def kind_name(kind: int) -> str:
    return Kind(kind).name if kind in Kind._value2member_map_ else f"KIND{kind}"


def reason_name(reason: int) -> str:
    return GapReason(reason).name.lower() if reason in GapReason._value2member_map_ else f"reason{reason}"


def flag_names(frame: SeenFrame) -> list[str]:
    names = [flag.name.lower() for flag in Flag if frame.header.flags & flag and flag.name is not None]
    return [*names, "beyond-mark"] if frame.beyond_mark else names


def short_name(name: SegmentName) -> str:
    return f"{name.first_lsn}.{name.generation}"
