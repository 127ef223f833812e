"""Step 8 of a landing: read back, through a new connection, what the ledger says has landed.

read-back   the landing is on main, its files are there, and their rows and digest are those of the ledger
metadata    the landing is on main and its files are named there; nothing is read, so a file that was written wrong, or
            is missing in a store elsewhere, is not noticed

A landing whose snapshot has expired is verified by its rows: those with its LSNs in the files of main's head, whoever
has rewritten them since.

PROMISE  Only what has been verified is ever released to be forgotten by the log.  On a local disk its files, and the
         table's own, have been synced before: a power loss must not take from the lake what the log has let go.
         Landings are verified in their order; one that cannot be holds up those behind it, and halts by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.clock import Clock
from headwater.errors import LandingHalted, Unavailable
from headwater.lake.connections import Connections
from headwater.lake.ledger import LandingLedger
from headwater.lake.ledger_records import Decided, HaltedLanding, Landed, LedgerRecord, Verification, Verified
from headwater.lake.marks import landing_in_history, standing_of
from headwater.lake.runner import Runner
from headwater.lake.shape import landing_table
from headwater.lake.standing import Decisions
from headwater.lake.tables import Tables, TableState
from headwater.lake.work import Block, Digest, ReadBackDone, ReadBackWork
from headwater.metadata.operations import TopicRecord

FILES_PER_ITEM = 4
_Read = Digest | str | Unavailable | None
"""What a landing's files hold; what is wrong with them; that nobody could look; or that nobody was asked to."""
_ROW_BYTES_GUESS = 64
"""How large a landed row is: only for sharing out the work."""


@dataclass(frozen=True)
class Verdict:
    verified: bool = False
    """Everything that has landed is verified."""
    halt: LandingHalted | None = None
    message: str = ""


@dataclass(frozen=True)
class _ToRead:
    """A landing whose files are to be read back."""

    topic: TopicRecord
    landed: Landed
    target: bytes
    files: tuple[str, ...]
    between: tuple[int, int] | None = None
    """Its snapshot is gone: of these files only rows with these LSNs are the landing's."""


class Verifying:
    def __init__(
        self,
        connections: Connections,
        runner: Runner,
        ledger: LandingLedger,
        clock: Clock,
        log_id: str,
        decisions: Decisions,
    ) -> None:
        self._connections = connections
        self._runner = runner
        self._ledger = ledger
        self._clock = clock
        self._log_id = log_id
        self._decisions = decisions

    def verify(self, topics: Sequence[TopicRecord], mode: Verification) -> dict[int, Verdict]:
        """Verify what is not yet; one verdict a topic."""
        known = self._ledger.state()
        verdicts = {topic.number: Verdict(verified=True) for topic in topics}
        due = [topic for topic in topics if known.topic(topic.topic_id.hex()).unverified]
        if not due:
            return verdicts
        found = self._connections.each(lambda topic: self._locate(topic, mode), due)
        to_read = [landing for landings, _ in found for landing in landings]
        read = self._read_back(to_read, mode)
        records: list[LedgerRecord] = []
        for topic, (landings, located) in zip(due, found, strict=True):
            verdict = located
            for landing in landings:
                difference = _difference(landing, read[landing.landed.commit_id])
                if difference is not None:
                    verdict = difference
                    break
                records.append(self._verified(landing.landed, mode))
            verdicts[topic.number] = verdict
            if verdict.halt is not None:
                decided = self._decided(topic, verdict.halt)
                records.extend([decided] if decided is not None else self._halted(topic, verdict.halt))
                if decided is not None:
                    verdicts[topic.number] = Verdict(verified=True)
        self._ledger.record(records)
        return verdicts

    def _decided(self, topic: TopicRecord, halt: LandingHalted) -> Decided | None:
        """That a person has looked at the table and answers for it; nothing where nobody does."""
        known = self._ledger.state().topic(topic.topic_id.hex())
        said = self._decisions.landed_lsn.get(topic.name)
        if halt.cause != "verification" or said is None or said < known.landed_lsn:
            return None
        return Decided(
            topic_id=topic.topic_id.hex(),
            table=landing_table(topic),
            act="landed-lsn",
            lsn=known.landed_lsn,
            lsn_before=known.landed_lsn,
            at_us=self._clock.now_us(),
        )

    def _locate(self, topic: TopicRecord, mode: Verification) -> tuple[list[_ToRead], Verdict]:
        """The landings of a topic that are on main and can be read, in order, and what is to be said of the rest."""
        known = self._ledger.state().topic(topic.topic_id.hex())
        landings: list[_ToRead] = []
        try:
            with self._connections.new() as tables:
                state = tables.load(landing_table(topic))
                if state is None:
                    raise _gone(topic, "is gone")
                standing = standing_of(
                    state,
                    log_id=self._log_id,
                    topic_id=topic.topic_id.hex(),
                    max_row_lsn=lambda: tables.max_row_lsn(state),
                )
                for landed in sorted(known.unverified.values(), key=lambda each: each.lsn_to):
                    if standing.landed_lsn < landed.lsn_to:
                        raise _gone(topic, f"no longer holds what was landed up to lsn {landed.lsn_to}")
                    if known.hole_lsn is not None and landed.lsn_to > known.hole_lsn:
                        raise LandingHalted(
                            "verification",
                            f"what was landed in the table of {topic.name!r} after lsn {known.hole_lsn} was not "
                            "written down: audit the table, then land with --landed-lsn",
                            topic=topic.name,
                        )
                    landings.append(self._to_read(tables, state, topic, landed, mode))
        except LandingHalted as halt:
            return landings, Verdict(halt=halt)
        except Exception as error:  # noqa: BLE001  one topic's trouble, whatever it is, must not stop the others
            return landings, Verdict(message=f"{type(error).__name__}: {error}")
        return landings, Verdict(verified=True)

    @staticmethod
    def _to_read(tables: Tables, state: TableState, topic: TopicRecord, landed: Landed, mode: Verification) -> _ToRead:
        target = tables.read_back_target(state, landed.snapshot, landed.columns)
        stands_on, between = landed.snapshot, None
        if landing_in_history(state, landed.commit_id) is not None and landed.snapshot in state.snapshots:
            files = tables.added_files(state, landed.snapshot)
        else:
            head = state.head()
            assert head is not None, "a table that has landed rows has a snapshot"
            stands_on, between = head.snapshot_id, (landed.lsn_from, landed.lsn_to)
            files = tables.files_between(state, *between)
        # Data files are synced by whoever reads them back; where nobody does, here.
        tables.make_durable(state, stands_on, files if mode == "metadata" else ())
        return _ToRead(topic, landed, target, tuple(files), between)

    def _read_back(self, landings: Sequence[_ToRead], mode: Verification) -> dict[str, _Read]:
        """Of each landing, the digest of what its files hold, or what is wrong with them."""
        if mode == "metadata":
            return {landing.landed.commit_id: None for landing in landings}
        works: list[ReadBackWork] = []
        owners: list[str] = []
        for landing in landings:
            for first in range(0, len(landing.files), FILES_PER_ITEM):
                files = landing.files[first : first + FILES_PER_ITEM]
                size_bytes = landing.landed.rows * len(files) // len(landing.files) * _ROW_BYTES_GUESS
                works.append(
                    ReadBackWork(landing.target, files, landing.topic.number, size_bytes, len(owners), landing.between)
                )
                owners.append(landing.landed.commit_id)
        blocks: dict[str, list[Block]] = {landing.landed.commit_id: [] for landing in landings}
        errors: dict[str, str | Unavailable | None] = dict.fromkeys(blocks)
        missing = len(works)
        try:
            for done in self._runner.run(works):
                assert isinstance(done, ReadBackDone)
                missing -= 1
                owner = owners[done.item]
                blocks[owner].extend(done.digest.blocks)
                if done.error is not None:
                    errors[owner] = done.error
                elif done.unread is not None and errors[owner] is None:
                    errors[owner] = Unavailable("data files could not be read back", reason=done.unread)
            if missing:
                raise Unavailable("not every task gave back what it read", missing=missing)
        except Unavailable as error:
            return dict.fromkeys(blocks, error)
        return {owner: errors[owner] or Digest(tuple(each)) for owner, each in blocks.items()}

    def _verified(self, landed: Landed, mode: Verification) -> Verified:
        return Verified(
            topic_id=landed.topic_id,
            table=landed.table,
            commit_id=landed.commit_id,
            snapshot=landed.snapshot,
            lsn_to=landed.lsn_to,
            mode=mode,
            at_us=self._clock.now_us(),
        )

    def _halted(self, topic: TopicRecord, halt: LandingHalted) -> list[LedgerRecord]:
        known = self._ledger.state().topic(topic.topic_id.hex()).halted
        if (
            known is not None
            and known.cause == halt.cause
            and (
                # The lander has said it in other words.
                halt.cause != "verification" or known.message == halt.message
            )
        ):
            return []
        return [
            HaltedLanding(
                topic_id=topic.topic_id.hex(),
                table=landing_table(topic),
                cause=halt.cause,
                message=halt.message,
                at_us=self._clock.now_us(),
            )
        ]


def _difference(landing: _ToRead, read: _Read) -> Verdict | None:
    """What keeps a landing from being verified; nothing where it is what was written."""
    landed = landing.landed
    if read is None or (isinstance(read, Digest) and (read.rows, str(read)) == (landed.rows, landed.total)):
        return None
    if isinstance(read, Unavailable):
        return Verdict(message=str(read))
    what = read
    if isinstance(read, Digest):
        what = f"{read.rows} rows with digest {read} were read back, {landed.rows} with {landed.total} landed"
    return Verdict(
        halt=LandingHalted(
            "verification",
            f"the landing of {landing.topic.name!r} up to lsn {landed.lsn_to} is not what was written: {what}; "
            "audit the table, and look at who else writes there",
            topic=landing.topic.name,
            table=landed.table,
            snapshot=landed.snapshot,
        )
    )


def _gone(topic: TopicRecord, what: str) -> LandingHalted:
    return LandingHalted(
        "gap",
        f"the table of {topic.name!r} {what}: if that was meant, land with --after-rollback",
        topic=topic.name,
        table=landing_table(topic),
    )
