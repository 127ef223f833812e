"""Damage to what was durable: a halt or an error by name, never silently fewer or other rows (V9).

KINDS    A flipped bit, a zeroed sector, two sectors swapped, a write that went to another sector, a file cut short,
         a file gone; in a segment, in the mark, in an index.
ORACLE   A mark or an index may be wrong or gone: the log still shows everything, and finds it.
         A segment may be wrong: the log shows everything, or halts, or raises CorruptData where it is read.  It
         shows less only of what no undamaged byte knows to have been durable: nothing below the mark, and nothing
         below the durable LSN of any header that is still whole.  It never shows anything else.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

from headwater.errors import CorruptData, Halted, HeadwaterError
from headwater.frames.frame import MAGIC, UNIT_BYTES
from headwater.log import Draft
from headwater.log.names import MARK, parse_segment_name
from headwater.log.segment import Opening, read_opening
from headwater.storage.power_loss import SECTOR_SIZE_BYTES
from headwater.storage.simulated import Choice, SimulatedFiles
from tests.simulation.invariants import DIRECTORY, World, check_lookups, newest_mark, quiet, read_all, segment_bytes
from tests.simulation.model import Seen, Violation
from tests.simulation.workload import Workload


@dataclass
class DamageCounts:
    damages: int = 0
    named: dict[str, int] = field(default_factory=dict)

    def count(self, outcome: str) -> None:
        self.damages += 1
        self.named[outcome] = self.named.get(outcome, 0) + 1


def run_damage(seed: int, damages: int) -> DamageCounts:
    """Let a log live, then damage copies of it."""
    workload = Workload(seed)
    with quiet():
        while len(workload.model.settled) < 8:
            workload.run(60)
        try:
            return damage_log(workload, Random(f"damage of {seed}"), damages)
        except Violation as violation:
            violation.add_note(f"replay with: python -m tests.simulation.replay --seed {seed} --damages {damages}")
            raise


def damage_log(workload: Workload, chance: Random, damages: int) -> DamageCounts:
    """Damage copies of the log as it is after a kill, a clean close, or a power loss that took the newest mark."""
    counts = DamageCounts()
    world = workload.world
    files = workload.files.restart()
    before = files.restart()
    log = world.open(files)
    log.claim()
    observed = read_all(log)
    workload.model.check(observed)
    # Marks that are durable, then appends behind them: a power loss takes the mark back and leaves the rows.
    workload.model.recovered(observed, log.recovery_report.epoch)
    workload._use(files)
    files.before_call = None
    workload.log = log
    commits = [workload.some_writes() for _ in range(chance.randint(1, 4))]
    for writes in commits:
        workload.commit(writes)
    observed = workload.model.settled
    other = _other_history(world, before, commits, chance)
    killed = files.restart()
    old_mark = files.crash(chance, choice=Choice.NOTHING)
    log.close()
    workload.log = None
    for number in range(damages):
        state = (killed, old_mark, files)[number % 3].restart()
        counts.count(_damage_once(world, state, chance, observed, other))
    return counts


def _other_history(
    world: World, files: SimulatedFiles, commits: list[list[list[Draft]]], chance: Random
) -> dict[str, bytes]:
    """The segments as they would be had other rows of the same sizes been appended: what a mirror gives back that
    was cut off while it was written to."""
    with world.open(files) as log:
        for writes in commits:
            for drafts in writes:
                log.append([replace(draft, body=chance.randbytes(draft.body_size)) for draft in drafts])
    return segment_bytes(files)


def _damage_once(
    world: World, files: SimulatedFiles, chance: Random, observed: list[Seen], other: dict[str, bytes]
) -> str:
    names = [name for name in files.list(DIRECTORY) if name.endswith((".seg", ".idx")) or name == MARK]
    # Segments are most of the bytes, and the newest is where cutting is allowed.
    segments = [name for name in names if name.endswith(".seg")]
    name = chance.choice([*names, *segments, segments[-1], segments[-1]])
    forked = [each for each in segments if _can_be_spliced(files.contents(f"{DIRECTORY}/{each}"), other.get(each, b""))]
    splice = bool(forked) and chance.random() < 0.15
    if splice:
        name = chance.choice(forked)
    path = f"{DIRECTORY}/{name}"
    before = files.contents(path)
    known = _newest_frames(files, segments[-1], observed)
    what = _splice(files, chance, path, other[name]) if splice else _damage(files, chance, path)
    try:
        after: bytes | None = files.contents(path)
    except FileNotFoundError:
        after = None
    if after == before:
        return "nothing changed"
    try:
        return _judge(world, files, name, before, after, known, observed)
    except Violation as violation:
        violation.add_note(f"damage: {what} of {name}")
        raise


def _can_be_spliced(data: bytes, other: bytes) -> bool:
    # From the first frame on that differs it would be another history and nothing else, which nobody can tell.
    return _first_difference(data, other) + UNIT_BYTES < min(len(data), len(other))


def _splice(files: SimulatedFiles, chance: Random, path: str, other: bytes) -> str:
    data = files.contents(path)
    first = -(-(_first_difference(data, other) + 1) // UNIT_BYTES) * UNIT_BYTES
    units = range(first, len(data), UNIT_BYTES)
    beginnings = [at for at in units if other.startswith(MAGIC, at)]
    start = chance.choice(beginnings if beginnings and chance.random() < 0.7 else units)
    files.put(path, data[:start] + other[start:])
    return f"bytes of another history from {start} on"


def _damage(files: SimulatedFiles, chance: Random, path: str) -> str:
    data = files.contents(path)
    draw = chance.random()
    if not data or draw < 0.03:
        files.unlink(path)
        files.sync_directory(DIRECTORY)
        return "loss"
    sectors = -(-len(data) // SECTOR_SIZE_BYTES)
    sector, other = chance.randrange(sectors), chance.randrange(sectors)
    if draw < 0.5:
        bit = chance.randrange(len(data) * 8)
        files.flip_bit(path, bit)
        return f"a flip of bit {bit}"
    if draw < 0.65:
        files.zero_sector(path, sector)
        return f"zeroes in sector {sector}"
    if draw < 0.75:
        files.swap_sectors(path, sector, other)
        return f"a swap of sectors {sector} and {other}"
    if draw < 0.85:
        files.misdirect(path, sector, other)
        return f"a write of sector {sector} that went to {other}"
    size = chance.randrange(len(data))
    if chance.random() < 0.5:
        size -= size % UNIT_BYTES
    files.put(path, data[:size])
    return f"a cut to {size} bytes"


def _first_difference(one: bytes, other: bytes) -> int:
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return at
    return min(len(one), len(other))


def _newest_frames(files: SimulatedFiles, name: str, observed: list[Seen]) -> list[tuple[int, int]]:
    """(position, durable LSN) of every frame of the newest segment."""
    opening = read_opening(files.open(f"{DIRECTORY}/{name}"))
    assert isinstance(opening, Opening)
    position = 2 * UNIT_BYTES
    frames = []
    for header, _ in observed[opening.header.first_lsn - 1 :]:
        frames.append((position, header.durable_lsn))
        position += header.frame_size
    return frames


def _judge(
    world: World,
    files: SimulatedFiles,
    name: str,
    before: bytes,
    after: bytes | None,
    newest: list[tuple[int, int]],
    observed: list[Seen],
) -> str:
    outcome = ""
    for reader in (files.restart(), None):
        try:
            log = world.open_unread(files) if reader is None else world.open(reader)
            if reader is None:
                log.claim()
            shown = read_all(log)
        except (Halted, CorruptData) as error:
            outcome = type(error).__name__
            if not name.endswith(".seg"):
                raise Violation(f"V9: the {name} alone is damaged, and the log halts: {error}") from error
            continue
        except HeadwaterError as error:
            raise Violation(f"V9: damage is answered with {error!r}") from error
        if shown != observed[: len(shown)]:
            raise Violation("V9: damage shows other rows than were acknowledged")
        if len(shown) == len(observed):
            outcome = "everything is shown"
            if reader is None:
                check_lookups(world, log, observed)
            continue
        known_lsn = _known_durable(files, name, before, after, newest)
        if reader is None and len(shown) < known_lsn:
            raise Violation(f"V9: LSN {len(shown) + 1} to {known_lsn} were known to be durable, and are silently gone")
        outcome = "cut above all that is known to be durable"
    return outcome


def _known_durable(
    files: SimulatedFiles, name: str, before: bytes, after: bytes | None, newest: list[tuple[int, int]]
) -> int:
    """How far undamaged bytes say that the log was durable."""
    mark = newest_mark(files.contents(f"{DIRECTORY}/{MARK}")) if name != MARK else None
    known_lsn = mark.durable_lsn if mark is not None else 0
    segment = parse_segment_name(name)
    if segment is None or after is None:
        return known_lsn
    start = 2 * UNIT_BYTES
    if after[:start] != before[:start]:
        return known_lsn
    for position, durable_lsn in newest:
        end = position + UNIT_BYTES
        if after[position:end] == before[position:end] and len(after) >= end:
            known_lsn = max(known_lsn, durable_lsn)
    return known_lsn
