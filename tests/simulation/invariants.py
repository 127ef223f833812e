"""Recover a log and check every promise about what is found (V1 to V5, V7, V8, V10, V11).

A state is a SimulatedFiles that a power loss, a kill or a fault may have left.  `examine` opens it as a reader,
claims it, reads it back, and lets the model judge.  A legal state never halts, so any error is a violation.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random

from headwater.clock import ManualClock
from headwater.errors import HeadwaterError
from headwater.frames.frame import Kind
from headwater.log import FrameLog, open_log
from headwater.log.file_device import FileDevice
from headwater.log.index import ActiveIndex, read_footer
from headwater.log.mark import SLOT_BYTES, SLOT_POSITIONS, Mark, unpack_slot
from headwater.log.names import MARK, SegmentName, parse_segment_name
from headwater.log.segment import Opening, read_opening
from headwater.log.segments import LogPlace, scan_whole
from headwater.log.writer import each_alone
from headwater.metrics import LogCounters
from headwater.settings import LogSettings
from headwater.storage.power_loss import Fate, Plan
from headwater.storage.simulated import Choice, SimulatedFiles
from tests.simulation.model import Model, Seen, Violation

DIRECTORY = "log"


@contextmanager
def quiet() -> Iterator[None]:
    """The log warns at every cut; a simulation cuts thousands of tails."""
    logger = logging.getLogger("headwater.log")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before


@dataclass
class World:
    """What a log needs beside its files."""

    settings: LogSettings
    clock: ManualClock
    chance: Random
    sealed: dict[tuple[str, bytes], list[Seen]] = field(default_factory=dict)
    """Sealed segments that have been read already: name and bytes, and their frames."""

    def open(self, files: SimulatedFiles) -> FrameLog:
        return open_log(files, DIRECTORY, settings=self.settings, clock=self.clock, entropy=self.chance.randbytes)

    def open_unread(self, files: SimulatedFiles) -> FrameLog:
        """As `open`, for somebody who claims the log at once: what only readers look at is not loaded."""
        counters = LogCounters()
        device = FileDevice(
            LogPlace(files, DIRECTORY, self.settings, counters),
            clock=self.clock,
            entropy=self.chance.randbytes,
            log_start=lambda: 1,
        )
        return FrameLog(device, settings=self.settings, clock=self.clock, counters=counters, form=each_alone)


def read_all(log: FrameLog) -> list[Seen]:
    return [(frame.header, bytes(frame.body)) for frame in log.read()]


def read_new(world: World, log: FrameLog, files: SimulatedFiles) -> list[Seen]:
    """The whole log; sealed segments are read once, and known by their bytes when they are met again."""
    observed: list[Seen] = []
    for segment in log.segments():
        if not segment.sealed:
            observed.extend((frame.header, bytes(frame.body)) for frame in log.read(segment.first_lsn))
            continue
        key = (segment.name, files.contents(f"{DIRECTORY}/{segment.name}"))
        frames = world.sealed.get(key)
        if frames is None:
            frames = [(frame.header, bytes(frame.body)) for frame in log.read(segment.first_lsn, segment.last_lsn)]
            world.sealed[key] = frames
        observed.extend(frames)
    return observed


def recover(world: World, files: SimulatedFiles, *, as_reader_first: bool = True) -> tuple[FrameLog, list[Seen]]:
    """Open, claim, and read the whole log."""
    # A full disk may keep a log from being opened for writing; whoever tries again has made room.
    files.capacity_bytes = None
    try:
        log = world.open(files) if as_reader_first else world.open_unread(files)
        log.claim()
        return log, read_new(world, log, files)
    except HeadwaterError as error:
        raise Violation(f"a legal state could not be recovered: {type(error).__name__}: {error}") from error


def examine(
    world: World, files: SimulatedFiles, model: Model, *, visible_lsn: int = 0, as_reader_first: bool = True
) -> tuple[FrameLog, list[Seen]]:
    """Recover a crash state and check it; the model itself does not move."""
    log, observed = recover(world, files, as_reader_first=as_reader_first)
    model.check(observed)
    if len(observed) < visible_lsn:
        raise Violation(f"V1: a reader had seen LSN {visible_lsn}, and {len(observed)} is the last that survived")
    epoch = log.recovery_report.epoch
    if epoch <= model.epoch:
        raise Violation(f"epoch {epoch} was claimed again: {model.epoch} had been claimed before")
    return log, observed


def examine_again(world: World, files: SimulatedFiles, observed: list[Seen]) -> None:
    """V8: what a recovery has shown, a second one shows too, whatever is lost in between; and it changes no byte."""
    first = segment_bytes(files)
    for again in (files.restart(), files.crash(world.chance), files.crash(world.chance, choice=Choice.NOTHING)):
        _, observed_again = recover(world, again, as_reader_first=False)
        if observed_again != observed:
            raise Violation(f"V8: recovering twice shows {len(observed_again)} frames and not {len(observed)}")
        if segment_bytes(again) != first:
            raise Violation("V8: recovering twice has changed a segment")


def segment_bytes(files: SimulatedFiles) -> dict[str, bytes]:
    return {name: files.contents(f"{DIRECTORY}/{name}") for name in files.list(DIRECTORY) if name.endswith(".seg")}


def ghosts_only(files: SimulatedFiles, chance: Random) -> SimulatedFiles:
    """A power loss that keeps every name and size, and no data: all unsynced sectors show what was there before."""
    kept = {item: Fate.NEW for item in files.pending() if item.place < 0 or not item.inode}
    return files._after_power_loss(Plan(chance, Fate.GHOST, kept))


def without_sizes(files: SimulatedFiles, chance: Random) -> SimulatedFiles:
    """A power loss that keeps every name and all data, and no size: what was appended waits behind the ends."""
    lost = {item: Fate.OLD for item in files.pending() if item.place < 0}
    return files._after_power_loss(Plan(chance, Fate.NEW, lost))


def newest_mark(data: bytes) -> Mark | None:
    """What the bytes of a mark file say."""
    slots = [unpack_slot(data[at : at + SLOT_BYTES]) for at in SLOT_POSITIONS]
    return max((slot for slot in slots if slot is not None), key=lambda slot: slot.counter, default=None)


def check_mark(files: SimulatedFiles) -> int:
    """V7: what the mark says is on disk already, by name and by bytes; returns the LSN that it covers."""
    try:
        data = files.contents(f"{DIRECTORY}/{MARK}")
    except FileNotFoundError:
        return 0
    mark = newest_mark(data)
    if mark is None:
        return 0
    name = f"{DIRECTORY}/{SegmentName(mark.segment, 0)}"
    on_disk = files.contents_on_disk(name)
    if on_disk is None or on_disk[: mark.position] != files.contents(name)[: mark.position]:
        raise Violation(f"V7: the mark covers LSN {mark.durable_lsn}, and {name} is not on disk up to {mark.position}")
    return mark.durable_lsn


def check_reader(world: World, files: SimulatedFiles) -> int:
    """A reader in another process never halts on a healthy log; returns the last LSN that it sees."""
    try:
        return len(read_new(world, world.open(files), files))
    except HeadwaterError as error:
        raise Violation(f"a reader could not open a healthy log: {type(error).__name__}: {error}") from error


def check_lookups(world: World, log: FrameLog, observed: list[Seen]) -> None:
    """Every offset and every append time leads to its frame (V10, V11)."""
    first_at: dict[int, int] = {}
    for header, _ in observed:
        first_at.setdefault(header.append_time_us, header.lsn)
        if header.kind == Kind.DATA and header.row_count:
            for offset in {header.base_offset, header.base_offset + header.row_count - 1}:
                found = log.find(header.topic_number, header.partition, offset)
                if found is None or found.lsn != header.lsn:
                    raise Violation(f"V10: offset {offset} of LSN {header.lsn} was not found but {found}")
    for time_us, lsn in first_at.items():
        if log.find_time(time_us) != lsn:
            raise Violation(f"V11: time {time_us} leads to {log.find_time(time_us)} and not to {lsn}")
    if observed:
        if log.find_time(observed[-1][0].append_time_us + 1) is not None:
            raise Violation("V11: a time after the last frame leads to a frame")
        offsets: dict[tuple[int, int], int] = {}
        for header, _ in observed:
            if header.kind == Kind.DATA:
                offsets[header.topic_number, header.partition] = header.base_offset + header.row_count
        for (topic, partition), following in offsets.items():
            if log.find(topic, partition, following) is not None:
                raise Violation(f"V10: offset {following} of {topic}/{partition} was found before it was appended")


def check_indexes(world: World, files: SimulatedFiles) -> int:
    """V10: every index file that its segment would accept is byte for byte what a rebuild makes."""
    place = LogPlace(files, DIRECTORY, world.settings, LogCounters())
    next_offsets: dict[int, int] = {}
    checked = 0
    last_time_us = 0
    names = [name for name in map(parse_segment_name, files.list(DIRECTORY)) if name is not None]
    for name in names:
        file = files.open(place.path(name))
        opening = read_opening(file)
        if not isinstance(opening, Opening):
            continue
        index = ActiveIndex(name.first_lsn, next_offsets)
        end = scan_whole(place, name, opening, file, file.size(), index)
        try:
            index_file = files.open(place.path(name.index))
        except FileNotFoundError:
            footer = None
        else:
            footer = read_footer(index_file)
        if footer is not None and footer.segment_bytes == file.size():
            if index.place_of(0) is None:
                # Nothing in it says when the last frame before it was appended.
                end = replace(end, append_time_us=last_time_us)
            rebuilt = index.pack(file.read_at(0, 256), end, file.size(), opening.header.created_us)
            if rebuilt != files.contents(place.path(name.index)):
                raise Violation(f"V10: {name.index} is not what a rebuild makes")
            checked += 1
        next_offsets = dict(index.next_offsets())
        last_time_us = end.append_time_us
    return checked
