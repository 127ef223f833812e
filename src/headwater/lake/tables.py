"""The seam between the landing and a catalog: what a table shows, and one conditional commit to it.

    Tables            a connection to a catalog: load, create, fit, stage, commit
    pyiceberg's       iceberg_tables.py, for every catalog that pyiceberg knows
    simulated         tests/simulation/lake_world.py: conflicts, lost replies, late and repeated requests

PROMISE  `load` shows the table as the catalog has it now; nothing is kept from an earlier load.
         `commit` sends once what was staged, with all its requirements, and never retries or rebases by itself.
         CommitRefused from it means: this request was not applied, as far as the catalog says.  Everything else that it
         raises (CommitUncertain) means that nobody knows; the connection must not be used again.
         `max_row_lsn` raises Unavailable when that bound cannot be told.
NOT HERE What any of it means for the landing: lander.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from headwater.errors import Conflict, OutcomeUnknown
from headwater.lake.mark import MAIN, Mark
from headwater.lake.work import Column, WrittenFile


class CommitRefused(Conflict):
    """The catalog says that this commit was not applied: its requirements did not hold."""


class CommitUncertain(OutcomeUnknown):
    """Nobody knows whether this commit was, or will be, applied."""


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    snapshot_id: int
    parent_id: int | None
    operation: str
    """append, replace, overwrite or delete."""
    summary: Mapping[str, str]
    timestamp_ms: int = 0


@dataclass(frozen=True)
class TableState:
    """A table, as one load showed it."""

    name: str
    uuid: str
    format_version: int
    schema_id: int
    spec_id: int
    properties: Mapping[str, str]
    branches: Mapping[str, int]
    """Each branch's head snapshot."""
    snapshots: Mapping[int, TableSnapshot]
    native: object = field(default=None, repr=False, compare=False)
    """The connection's own handle of what was loaded."""

    def head(self, branch: str = MAIN) -> TableSnapshot | None:
        head = self.branches.get(branch)
        return self.snapshots[head] if head is not None else None


@dataclass(frozen=True)
class TableShape:
    """The table that a topic wants: its columns, the system's behind them, and how it is made where there is none."""

    schema: pa.Schema
    """The topic's newest schema, then `_hw_shard`, `_hw_lsn`, `_hw_partition`, `_hw_offset`, `_hw_time` and, in a
    change table, `_hw_op` (and there every column but the key is nullable): shape.py."""
    key: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    """Of a table that is created: "day(created_at)", "bucket(16, id)", "region"."""
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Fit:
    """How the rows of a topic go into a table that is there."""

    target: bytes
    """What a task needs to write data files: opaque, for write_target.py."""
    columns: tuple[Column, ...]
    """The columns that are written, by field id: of these is the digest."""
    changes_schema: bool = False
    """The landing's commit will add columns or widen them."""
    native: object = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Staged:
    """A commit that has not been sent."""

    snapshot_id: int
    base: int | None
    """The branch's head that it is conditional on; None: no snapshot yet."""
    native: object = field(default=None, repr=False, compare=False)


class Tables(Protocol):
    """One connection to a catalog.  Used by one thread at a time."""

    def load(self, name: str) -> TableState | None:
        """The table now; None where there is none of this name."""
        ...

    def create(self, name: str, shape: TableShape) -> TableState:
        """Make the table, and its namespace; the one that is there where somebody else was faster."""
        ...

    def fit(self, state: TableState, shape: TableShape) -> Fit:
        """How rows of this shape go into this table.  LandingHalted("schema") where they do not."""
        ...

    def stage(
        self, state: TableState, fit: Fit, files: Sequence[WrittenFile], mark: Mark, *, branch: str = MAIN
    ) -> Staged:
        """Prepare the commit: schema change, append, property with the mark; write its manifests.

        Its requirements: the table's uuid, the branch's head as loaded, schema id and spec id as loaded."""
        ...

    def commit(self, staged: Staged) -> None:
        """Send it, once.  Returns when it was applied; CommitRefused; CommitUncertain for everything else."""
        ...

    def max_row_lsn(self, state: TableState, branch: str = MAIN) -> int:
        """The greatest upper bound of `_hw_lsn` over the data files of a branch's head; 0 where there are none."""
        ...

    def added_files(self, state: TableState, snapshot_id: int) -> Sequence[str]:
        """The data files that a snapshot added, by path."""
        ...

    def files_between(self, state: TableState, lsn_from: int, lsn_to: int) -> Sequence[str]:
        """The data files of main's head that may hold rows after one LSN and up to another, by path."""
        ...

    def read_back_target(self, state: TableState, snapshot_id: int, columns: Sequence[Column]) -> bytes:
        """What a task needs to read these columns from data files, as the schema of a snapshot has them; where the
        snapshot is gone in their own types, or, where those are not known, in the table's.  All columns where none is
        named."""
        ...

    def make_durable(self, state: TableState, snapshot_id: int, data_files: Sequence[str] = ()) -> None:
        """Where the table is on this disk: sync what a snapshot stands on beside its data files, the table's metadata,
        its manifest list and manifests, these data files, and their folders.  Elsewhere the store has done that."""
        ...

    def close(self) -> None:
        """Let go of every connection; what comes next opens new ones.  Twice is nothing."""
        ...
