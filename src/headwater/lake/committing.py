"""Steps 6 and 7 of a landing: one conditional commit, and its outcome by the table rather than by the exception.

After anything but a plain success the connection is thrown away, the table is loaded through a new one, and our own
commit-id is looked for first:

found                                   it was applied, whatever we were told: adopted
absent, refused, nothing of ours moved  another commit came between (a compaction, an owner's delete): the same files go
                                        onto the new head
absent, refused, schema or spec moved   the files were written under another one: write them again
absent, refused, landed LSN moved       another lander won
absent, and nobody knows                begin anew with files of another name.  The late request and the new one are
                                        conditional on the same head, so at most one of them is ever applied

PROMISE  A request is sent once.  Nothing is deleted.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from headwater.clock import Clock
from headwater.errors import LandingHalted
from headwater.lake.connections import Connections
from headwater.lake.mark import Mark, property_name
from headwater.lake.marks import Standing, landing_in_history, standing_of
from headwater.lake.tables import CommitRefused, CommitUncertain, Fit, Tables, TableState
from headwater.lake.work import WrittenFile

ATTEMPT_US_MAX = 86_400 * 1_000_000
"""A lander that was paused for longer than this does not commit what it had written: upkeep may take it for orphans."""
REFUSALS_MAX = 10
"""How often the same files are tried on a new head before the topic begins anew."""


@dataclass(frozen=True)
class Committed:
    snapshot_id: int
    table_uuid: str
    adopted: bool = False


class NotCommitted(enum.Enum):
    AGAIN = "begin anew"
    LOST = "another lander won"


class Committing:
    def __init__(self, connections: Connections, clock: Clock) -> None:
        self._connections = connections
        self._clock = clock

    def commit(
        self,
        state: TableState,
        fit: Fit,
        files: Sequence[WrittenFile],
        mark: Mark,
        standing: Standing,
        begun_us: int | None = None,
    ) -> Committed | NotCommitted:
        """Commit what was written for this landing onto the state from which its landed LSN was read."""
        begun_us = self._clock.now_us() if begun_us is None else begun_us
        for _ in range(REFUSALS_MAX):
            if self._clock.now_us() - begun_us > ATTEMPT_US_MAX:
                return NotCommitted.AGAIN
            certain = True
            try:
                with self._connections.lent() as tables:
                    staged = tables.stage(state, fit, files, mark)
                    tables.commit(staged)
                    return Committed(staged.snapshot_id, state.uuid)
            except CommitRefused:
                certain = True
            except CommitUncertain:
                certain = False
            try:
                with self._connections.new() as tables:
                    found = self._outcome(tables, state, mark, standing, certain)
            except Exception:  # noqa: BLE001  the request may still arrive, so whatever this is, it has not failed
                # Not even the table can be asked: it is asked again when the topic begins anew.
                return NotCommitted.AGAIN
            if not isinstance(found, TableState):
                return found
            state = found
        return NotCommitted.AGAIN

    def _outcome(
        self, tables: Tables, before: TableState, mark: Mark, standing: Standing, certain: bool
    ) -> Committed | NotCommitted | TableState:
        """What became of a request that was not plainly applied; a table where it can be tried again on its head."""
        now = tables.load(before.name)
        if now is None or now.uuid != before.uuid:
            return NotCommitted.AGAIN
        landing = landing_in_history(now, mark.commit_id)
        if landing is not None:
            return Committed(landing.snapshot_id, now.uuid, adopted=True)
        try:
            reached = standing_of(
                now, log_id=mark.log_id, topic_id=mark.topic_id, max_row_lsn=lambda: tables.max_row_lsn(now)
            )
        except LandingHalted:
            # What it means is said by whoever begins anew and reads the table from the start.
            return NotCommitted.AGAIN
        if reached.mark is not None and reached.mark.commit_id == mark.commit_id:
            return Committed(reached.snapshot or 0, now.uuid, adopted=True)
        if not certain:
            return NotCommitted.AGAIN
        if reached.landed_lsn != standing.landed_lsn:
            return NotCommitted.LOST if reached.landed_lsn >= mark.lsn_to else NotCommitted.AGAIN
        if (now.schema_id, now.spec_id) != (before.schema_id, before.spec_id):
            return NotCommitted.AGAIN
        if now.properties.get(property_name()) != before.properties.get(property_name()):
            # Somebody landed, and was undone: whoever begins anew asks the ledger what that means.
            return NotCommitted.AGAIN
        return now
