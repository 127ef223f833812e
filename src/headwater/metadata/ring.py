"""The headers of the latest frames of the journal, and how many more may come before a checkpoint is due.

A header stands in the slot of its LSN modulo the number of slots, so a later frame takes the place of the one that
lies a whole round before it.  A lookup answers only if the slot holds that very LSN.

RULES    What no checkpoint covers is not evicted: `has_room` is asked before anything is written.
         The checkpoint's LSN only rises.
NOT HERE Making the checkpoint: journal.py.
"""

from __future__ import annotations

from headwater.frames.frame import Header

SLOTS = 1024
MARGIN = 64
"""A checkpoint is made while at least this many slots remain."""


class Ring:
    """Recent headers by LSN.  Nothing here is safe for threads: the journal has one lock."""

    def __init__(self, slots: int = SLOTS) -> None:
        self._slots: list[Header | None] = [None] * slots
        self._last_lsn = 0
        self._filled_lsn = 0
        self._checkpoint_lsn = 0

    # How full it is --------------------------------------------------------------------------

    @property
    def last_lsn(self) -> int:
        """The last LSN of the journal; 0 where it is empty."""
        return self._last_lsn

    @property
    def filled_lsn(self) -> int:
        """The last LSN whose header is here; those after it are durable and have not been read back yet."""
        return self._filled_lsn

    @property
    def checkpoint_lsn(self) -> int:
        """The last LSN that a checkpoint covers."""
        return self._checkpoint_lsn

    @property
    def remaining_capacity(self) -> int:
        """How many frames may come before one is evicted that no checkpoint covers."""
        return max(0, len(self._slots) - (self._last_lsn - self._checkpoint_lsn))

    def has_room(self, frames: int, *, margin: int = 0) -> bool:
        """True if this many frames may come and leave `margin` slots."""
        return self.remaining_capacity >= frames + margin

    def cover(self, lsn: int) -> None:
        """A checkpoint covers everything up to this LSN from now on."""
        assert self._checkpoint_lsn <= lsn <= self._last_lsn, "the checkpoint's LSN only rises, up to what is durable"
        self._checkpoint_lsn = lsn

    # What is in it ---------------------------------------------------------------------------

    def extend_to(self, lsn: int) -> None:
        """The journal is durable up to this LSN."""
        assert lsn >= self._last_lsn, "what is durable stays"
        self._last_lsn = lsn

    def push(self, header: Header) -> None:
        """Take in the next header, in the place of the one a round before it."""
        assert header.lsn > self._filled_lsn, "headers come in order"
        self._slots[header.lsn % len(self._slots)] = header
        self._filled_lsn = header.lsn
        self._last_lsn = max(self._last_lsn, header.lsn)

    def drop_below(self, lsn: int) -> None:
        """Empty the slots of what the journal no longer holds."""
        self._slots = [header if header is not None and header.lsn >= lsn else None for header in self._slots]

    def header(self, lsn: int) -> Header | None:
        """The header of this LSN; nothing where it is not here, or no longer."""
        header = self._slots[lsn % len(self._slots)]
        return header if header is not None and header.lsn == lsn else None

    def previous(self, lsn: int) -> Header | None:
        """The header before this LSN; there is none before the first."""
        return self.header(lsn - 1)

    def headers_from(self, lsn: int) -> list[Header]:
        """The headers from this LSN on, in order."""
        first = max(lsn, self._filled_lsn - len(self._slots) + 1)
        found = map(self.header, range(first, self._filled_lsn + 1))
        return [header for header in found if header is not None]
