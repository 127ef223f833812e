"""What a power loss makes of one file: sectors, sizes, and the plans that decide over them.

VIEWS    A file has two: the *cache* is what processes read; the *disk* is what a power loss leaves.
         A sync carries one into the other.
SECTOR   512 bytes.  A written sector is dirty until a sync.  On a power loss each dirty sector, by
         itself, turns out as one of
             old      what the disk holds (zeroes beyond its end)
             new      what was written
             zero     nothing was ever written here
             garbage  anything, or the first half new and the second half old
             ghost    what these blocks held before: in this file until it was cut, or in the file
                      that had them before it was removed
         A byte that is on disk and was not changed stays in all of these cases: drives write a
         sector whole, so only what differs between old and new is at stake.
SIZE     Kept or lost apart from the data: on a power loss it is any size since the last sync, or
         a sector's boundary on the way as it grew.  A cut is such a size, so the old end may come back.
SYNC     A failed sync *drops* the dirty sectors: they stay in the cache, count as clean, and no
         later sync carries them to the disk unless they are written again.
NOT HERE Names, handles and faults: simulated.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from itertools import product
from typing import Final, NamedTuple, Protocol

SECTOR_SIZE_BYTES: Final = 512
ZERO_SECTOR: Final = bytes(SECTOR_SIZE_BYTES)
# `plans` tries every subset of what is pending when there are no more of them than this.
SUBSETS_MAX: Final = 64

_DIFFERS: Final = b"\x00" + b"\xff" * 255


class Chance(Protocol):
    """As much of a seeded random.Random as decides over a power loss."""

    def random(self) -> float: ...

    def randint(self, a: int, b: int, /) -> int: ...

    def randbytes(self, n: int, /) -> bytes: ...

    def sample(self, population: Sequence[Pending], k: int) -> list[Pending]: ...


class Fate(Enum):
    """How a dirty sector turns out."""

    OLD = "old"
    NEW = "new"
    ZERO = "zero"
    GARBAGE = "garbage"
    GHOST = "ghost"


class Pending(NamedTuple):
    """One thing that a power loss keeps or loses by itself: a change of names, a size, or a sector."""

    inode: int  # 0 for a change of names
    place: int  # which change, in order; or which sector; -1 for the size


class Inode:
    """One file without its name."""

    __slots__ = ("cache", "dirty", "disk", "dropped", "former", "ghosts", "number", "sizes")

    def __init__(self, number: int, cache: bytes | bytearray, disk: bytes | bytearray, former: bytes = b"") -> None:
        self.number = number
        # Both are `bytes` while another instance may share them, and become `bytearray` at the first write.
        self.cache = cache
        self.disk = disk
        self.dirty: set[int] = set()
        self.dropped: set[int] = set()  # by a failed sync: in the cache and not on disk, and no longer dirty
        self.sizes: list[int] = []  # every size since the last sync, in order; the last is the cache's
        self.ghosts: dict[int, bytes] = {}  # whole sectors that were cut off
        self.former = former  # what its blocks held in the file that had them before

    def write(self, position: int, data: bytes) -> None:
        if not data:
            return
        cache = self.cache
        if type(cache) is bytes:
            cache = self.cache = bytearray(cache)
        assert isinstance(cache, bytearray)
        size = len(cache)
        end = position + len(data)
        if position > size:
            cache.extend(bytes(position - size))
        cache[position:end] = data
        written = range(min(position, size) // SECTOR_SIZE_BYTES, _sectors(end))
        self.dirty.update(written)
        if self.dropped:
            self.dropped.difference_update(written)
        if end > size:
            self.sizes.append(end)

    def cut(self, size: int) -> None:
        cache = self.cache
        for sector in range(size // SECTOR_SIZE_BYTES, _sectors(len(cache))):
            held = bytes(cache[sector * SECTOR_SIZE_BYTES : (sector + 1) * SECTOR_SIZE_BYTES])
            # Where the cache ended inside the sector, what an earlier cut took may still lie behind it.
            self.ghosts[sector] = held + self.ghosts.get(sector, ZERO_SECTOR)[len(held) :]
        self.cache = cache[:size]
        end = _sectors(size)
        self.dirty = {sector for sector in self.dirty if sector < end}
        self.dropped = {sector for sector in self.dropped if sector < end}
        self.sizes.append(size)

    def sync(self) -> None:
        if not self.dirty and not self.sizes:
            return
        cache = self.cache
        if type(cache) is bytes and not self.dropped:
            self.disk = cache
        else:
            disk = self.disk if type(self.disk) is bytearray else bytearray(self.disk)
            del disk[len(cache) :]
            disk.extend(bytes(len(cache) - len(disk)))
            for first, end in _runs(self.dirty):
                disk[first:end] = memoryview(cache)[first:end]
            self.disk = disk
        if self.ghosts:
            for sector in self.dirty:
                self.ghosts.pop(sector, None)
        self.dirty.clear()
        self.sizes.clear()

    def drop(self) -> None:
        """A sync failed: the kernel calls the sectors clean and forgets to write them."""
        self.dropped |= self.dirty
        self.dirty.clear()

    def freeze(self) -> None:
        if type(self.cache) is not bytes:
            self.cache = bytes(self.cache)
        if type(self.disk) is not bytes:
            self.disk = bytes(self.disk)

    def twin(self) -> Inode:
        self.freeze()
        other = Inode(self.number, self.cache, self.disk, self.former)
        other.dirty = set(self.dirty)
        other.dropped = set(self.dropped)
        other.sizes = list(self.sizes)
        other.ghosts = dict(self.ghosts)
        return other

    def after_power_loss(self, plan: Plan) -> Inode:
        self.freeze()
        disk = self.disk
        if not self.dirty and not self.sizes:
            after = Inode(self.number, disk, disk, self.former)
            after.ghosts = dict(self.ghosts) if self.ghosts else {}
            return after
        size = plan.size(self) if self.sizes else len(disk)
        ghosts = dict(self.ghosts)
        data = bytearray(disk[:size])
        data.extend(bytes(size - len(data)))
        for sector in sorted(self.dirty):
            fate = plan.fate(self, sector)
            start = sector * SECTOR_SIZE_BYTES
            if start >= size:
                # The data arrived and the size did not: the bytes wait in blocks that a later append takes.
                if fate is Fate.NEW:
                    ghosts[sector] = sector_of(self.cache, sector)
            elif fate is not Fate.OLD:
                survivor = self._sector_after(sector, fate, plan.chance)
                data[start : start + SECTOR_SIZE_BYTES] = survivor[: size - start]
                if size - start < SECTOR_SIZE_BYTES:
                    ghosts[sector] = survivor
        content = bytes(data)
        after = Inode(self.number, content, content, self.former)
        if ghosts:
            after.ghosts = {at: ghost for at, ghost in ghosts.items() if (at + 1) * SECTOR_SIZE_BYTES > size}
        return after

    def _sector_after(self, sector: int, fate: Fate, chance: Chance) -> bytes:
        new = sector_of(self.cache, sector)
        if fate is Fate.NEW:
            return new
        old = sector_of(self.disk, sector)
        if fate is Fate.ZERO:
            other = ZERO_SECTOR
        elif fate is Fate.GHOST:
            other = self._ghost(sector)
        elif chance.random() < 0.25:
            half = SECTOR_SIZE_BYTES // 2
            other = new[:half] + old[half:]
        else:
            other = chance.randbytes(SECTOR_SIZE_BYTES)
        on_disk = min(len(self.disk) - sector * SECTOR_SIZE_BYTES, SECTOR_SIZE_BYTES)
        if on_disk <= 0:
            return other
        return _where_equal_keep(old[:on_disk], new[:on_disk], other[:on_disk]) + other[on_disk:]

    def _ghost(self, sector: int) -> bytes:
        ghost = self.ghosts.get(sector)
        if ghost is None and sector * SECTOR_SIZE_BYTES >= len(self.disk):
            ghost = sector_of(self.former, sector)
        return ghost or ZERO_SECTOR

    def damage(self, change: Callable[[bytes], bytes]) -> None:
        """Change both views without anybody noticing."""
        self.freeze()
        same = self.cache is self.disk
        self.cache = change(bytes(self.cache))
        self.disk = self.cache if same else change(bytes(self.disk))

    def become(self, data: bytes) -> None:
        """Have these bytes in both views, with no past."""
        self.cache = self.disk = data
        self.former = b""
        for past in (self.dirty, self.dropped, self.sizes, self.ghosts):
            past.clear()


def _sectors(size: int) -> int:
    return -(-size // SECTOR_SIZE_BYTES)


def sector_of(data: bytes | bytearray, sector: int) -> bytes:
    """That sector, filled up with zeroes where the data ends inside it."""
    start = sector * SECTOR_SIZE_BYTES
    return bytes(data[start : start + SECTOR_SIZE_BYTES]).ljust(SECTOR_SIZE_BYTES, b"\x00")


def _runs(sectors: set[int]) -> Iterator[tuple[int, int]]:
    """The sectors as few ranges of bytes."""
    first = end = None
    for sector in sorted(sectors):
        if sector != end:
            if first is not None and end is not None:
                yield first * SECTOR_SIZE_BYTES, end * SECTOR_SIZE_BYTES
            first = sector
        end = sector + 1
    if first is not None and end is not None:
        yield first * SECTOR_SIZE_BYTES, end * SECTOR_SIZE_BYTES


def _where_equal_keep(old: bytes, new: bytes, other: bytes) -> bytes:
    """`other`, but `old` at every byte where old and new are the same."""
    if old == new:
        return old
    kept = int.from_bytes(old, "little")
    differs = (kept ^ int.from_bytes(new, "little")).to_bytes(len(old), "little").translate(_DIFFERS)
    mask = int.from_bytes(differs, "little")
    return (kept ^ (mask & (kept ^ int.from_bytes(other, "little")))).to_bytes(len(old), "little")


def overwritten(data: bytes, position: int, new: bytes) -> bytes:
    new = new[: max(0, len(data) - position)]  # a view that ends before it is not touched
    return data[:position] + new + data[position + len(new) :]


def with_sector(data: bytes, sector: int, new: bytes) -> bytes:
    return overwritten(data, sector * SECTOR_SIZE_BYTES, new)


class Plan:
    """The same fate for everything that is pending, with exceptions."""

    __slots__ = ("_default", "_exceptions", "chance")

    def __init__(self, chance: Chance, default: Fate, exceptions: dict[Pending, Fate] | None = None) -> None:
        self.chance = chance
        self._default = default
        self._exceptions = exceptions or {}

    def keeps(self, index: int) -> bool:
        return self._exceptions.get(Pending(0, index), self._default) is not Fate.OLD

    def size(self, inode: Inode) -> int:
        kept = self._exceptions.get(Pending(inode.number, -1), self._default) is not Fate.OLD
        return inode.sizes[-1] if kept else len(inode.disk)

    def fate(self, inode: Inode, sector: int) -> Fate:
        return self._exceptions.get(Pending(inode.number, sector), self._default)


class MixedPlan(Plan):
    """Each by itself, at random; how much survives in all differs from plan to plan."""

    __slots__ = ("_kept", "_losses")

    def __init__(self, chance: Chance) -> None:
        super().__init__(chance, Fate.OLD)
        draw = chance.random()
        self._kept = (0.15, 0.5, 0.85)[int(draw * 3)]
        # One kind of loss for all sectors in half of the plans, all kinds mixed in the others.
        one = _LOSSES[int(chance.random() * len(_LOSSES))]
        self._losses = (one,) if chance.random() < 0.5 else _LOSSES

    def keeps(self, index: int) -> bool:
        return self.chance.random() < self._kept

    def size(self, inode: Inode) -> int:
        draw = self.chance.random()
        if draw < 0.5:
            return inode.sizes[-1]
        sizes = [len(inode.disk), *inode.sizes]
        at = int(self.chance.random() * len(sizes))
        if draw < 0.8 or at == 0:
            return sizes[at]
        low, high = _sectors(sizes[at - 1]), sizes[at] // SECTOR_SIZE_BYTES
        return self.chance.randint(low, high) * SECTOR_SIZE_BYTES if low <= high else sizes[at]

    def fate(self, inode: Inode, sector: int) -> Fate:
        if self.chance.random() < self._kept:
            return Fate.NEW
        return self._losses[int(self.chance.random() * len(self._losses))]


_LOSSES: Final = (Fate.OLD, Fate.ZERO, Fate.GARBAGE, Fate.GHOST)


def plans(chance: Chance, items: Sequence[Pending], limit: int) -> Iterator[Plan]:
    """The extremes, then one thing lost or one kept, then every subset if there are few, then mixes without end."""
    yield Plan(chance, Fate.OLD)
    yield Plan(chance, Fate.NEW)
    if not items:
        return
    # Every name and size is there, and no data.
    apart = {item: Fate.NEW for item in items if item.place < 0 or not item.inode}
    for fate in _LOSSES:
        yield Plan(chance, fate, apart)
    # Half of the limit is for single losses and survivals; where that is not enough for all, some are drawn.
    singles_max = max(1, limit // 12)
    for item in items if len(items) <= singles_max else chance.sample(items, singles_max):
        yield Plan(chance, Fate.NEW, {item: Fate.OLD})
        yield Plan(chance, Fate.OLD, {item: Fate.NEW})
        yield Plan(chance, Fate.OLD, {**apart, item: Fate.NEW})
        if item not in apart:
            for fate in (Fate.ZERO, Fate.GARBAGE, Fate.GHOST):
                yield Plan(chance, Fate.NEW, {item: fate})
    if 2 ** len(items) <= SUBSETS_MAX:
        for fates in product((Fate.OLD, Fate.NEW), repeat=len(items)):
            yield Plan(chance, Fate.OLD, dict(zip(items, fates, strict=True)))
    while True:
        yield MixedPlan(chance)
