"""A new log takes over a table of a log that was lost: a stamp, committed on condition of the head that was read.

    landing's table   no rows, after the landed LSN and up to the LSN before the new log's first, with the new log's id
    state table       no rows, nothing after its merged LSN: merging goes on from there
    both              the property headwater.adopted: from which log, and when

PROMISE  It is the only act by which the log id of a table's marks changes, and it is in the table for good.
         If the old log is still somewhere and lands, it meets a mark that is not its own and halts (foreign-mark).
         If it lands before this commit, the commit is refused and the table is read again.
         Done again it is nothing: a table that bears the new log's mark is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace

from headwater.clock import Clock, Entropy
from headwater.errors import LandingHalted, Unavailable
from headwater.lake.baseline import check_system_columns
from headwater.lake.iceberg_tables import IcebergTables
from headwater.lake.restore_plan import RestorePlan
from headwater.lake.stamping import new_commit_id, stage_stamp, stamp_of
from headwater.lake.survey import MarkedTable, marked
from headwater.lake.tables import CommitRefused, CommitUncertain, TableShape, TableState
from headwater.lake.topic_description import ADOPTED, Adoption, adoption_of, adoption_property

ATTEMPTS_MAX = 10


@dataclass(frozen=True)
class TakenOver:
    """A table that bears the new log's mark."""

    table: MarkedTable
    adoption: Adoption

    @property
    def state(self) -> TableState:
        return self.table.state


class TakingOver:
    def __init__(
        self, connect: Callable[[], IcebergTables], plan: RestorePlan, *, clock: Clock, entropy: Entropy
    ) -> None:
        self._connect = connect
        self._plan = plan
        self._clock = clock
        self._entropy = entropy

    def take(self, name: str, shape: TableShape, *, is_state: bool = False) -> TakenOver:
        """Make the table the new log's, and load it as it is then.  LandingHalted where it is neither's."""
        for _ in range(ATTEMPTS_MAX):
            # A new connection each time: one that has met trouble may show what was never committed.
            with closing(self._connect()) as tables:
                found = self._loaded(tables, name)
                if found.mark.log_id == self._plan.log_id:
                    return self._taken(tables, found)
                try:
                    self._stamp(tables, found, shape, is_state=is_state)
                except (CommitRefused, CommitUncertain):
                    # Whether it was applied the table says.
                    continue
        raise Unavailable(f"others go on committing to {name!r}, or the catalog does not answer", table=name)

    def _loaded(self, tables: IcebergTables, name: str) -> MarkedTable:
        state = tables.load(name)
        found = marked(tables, state) if state is not None else None
        if found is None:
            raise LandingHalted("gap", f"{name!r} is gone, or has lost its mark: begin anew", table=name)
        if found.trouble is not None:
            raise found.trouble
        if found.mark.log_id not in {self._plan.log_id, *self._plan.log_ids_before}:
            raise LandingHalted(
                "foreign-mark",
                f"{name!r} was taken over by another log since this restore began: give up one of the two, remove "
                "what it has made, and begin anew",
                table=name,
                mark_log_id=found.mark.log_id,
            )
        return found

    def _stamp(self, tables: IcebergTables, found: MarkedTable, shape: TableShape, *, is_state: bool) -> None:
        check_system_columns(found.state)
        lsn_before = found.standing.landed_lsn
        lsn_to = lsn_before if is_state else self._plan.first_lsn - 1
        if lsn_before >= self._plan.first_lsn:
            raise LandingHalted(
                "foreign-mark", f"{found.name!r} has landed beyond what this restore began with: begin anew"
            )
        stamp = stamp_of(found.standing, new_commit_id(self._entropy))
        mark = replace(stamp, log_id=self._plan.log_id, lsn_to=lsn_to, chain="")
        adoption = Adoption(
            log_id=self._plan.log_id,
            log_ids_before=(found.mark.log_id, *found.log_ids_before),
            lsn_before=lsn_before,
            lsn_to=lsn_to,
            at_us=self._clock.now_us(),
        )
        adopted = replace(shape, properties={**shape.properties, ADOPTED: adoption_property(adoption)})
        tables.commit(stage_stamp(tables, found.state, adopted, mark))

    @staticmethod
    def _taken(tables: IcebergTables, found: MarkedTable) -> TakenOver:
        head = found.state.head()
        adoption = adoption_of(found.state.properties, found.name)
        assert head is not None and adoption is not None, "what took it over has left both"
        # A power loss must not give the table back to the old log when the new one is there.
        tables.make_durable(found.state, head.snapshot_id)
        return TakenOver(found, adoption)
