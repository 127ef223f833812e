"""A whole data directory, checked offline: its log, its metadata journal, and the checkpoints of both.

log/                  every byte, as log/verify.py does; the journal says where it must begin
journal/              the same, from the oldest checkpoint on that it continues; each operation is applied again
journal/checkpoints/  each file by itself, and against the journal: replay up to its LSN must give its state
checkpoints/          each file by itself, and against the log: the fold up to its LSN must give its state

PROMISE  It reads and changes nothing, and may run beside an owner: what names others is read before what it names, and
         where the log must begin is asked last.
FINDING, NOTE as in log/verify.py, with the file's path in place of a segment's name.
NOT HERE What to do about a finding: cli/advice.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace

from headwater.errors import HeadwaterError
from headwater.frames.frame import Kind
from headwater.log.verify import Finding, FindingName, LogStart, NoteName, Progress, VerifyReport, verify_log
from headwater.metadata.checkpoint import KEPT, Checkpoint, CheckpointKind
from headwater.metadata.checkpoint_files import (
    SeenCheckpoint,
    SeenDirectory,
    State,
    contents_of,
    look_at_checkpoints,
    unpack_state,
)
from headwater.metadata.fold_check import (
    FoldCheck,
    MetadataFinding,
    Valid,
    apply_operation,
    fold_frame,
    frames_until_gone,
)
from headwater.metadata.recovery import apply_frame
from headwater.metadata.recovery import log_start as journal_start
from headwater.metadata.shard_state import ShardState
from headwater.metadata.state import MetadataState
from headwater.metadata.stored_frames import StoredFrames
from headwater.settings import LogSettings
from headwater.storage.files import Files

LOG = "log"
JOURNAL = "journal"
CHECKPOINTS = "checkpoints"
JOURNAL_CHECKPOINTS = f"{JOURNAL}/{CHECKPOINTS}"


@dataclass
class JournalSeen:
    """What the journal holds."""

    log: VerifyReport
    operations: int = 0
    operations_to_replay: int = 0
    """Behind the newest checkpoint that is valid: an opening applies them."""
    state: MetadataState | None = None
    """After its last operation; None where it cannot be had."""

    def as_dict(self) -> dict[str, object]:
        about = asdict(self.log)
        del about["findings"], about["notes"]
        return {
            **about,
            "operations": self.operations,
            "operations_to_replay": self.operations_to_replay,
            "state": contents_of(self.state) if self.state is not None else None,
        }


@dataclass
class DataReport:
    """What a verification of a data directory saw.  `ok` is the verdict."""

    log: VerifyReport
    journal: JournalSeen | None = None
    """None: there is no journal, and the log stands alone."""
    checkpoints: list[SeenCheckpoint] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.findings

    @property
    def bytes(self) -> int:
        """All that was read."""
        journal = self.journal.log.bytes if self.journal is not None else 0
        return self.log.bytes + journal + sum(each.bytes for each in self.checkpoints)


def verify_data(
    files: Files,
    *,
    log_start: int | None = None,
    to_lsn: int | None = None,
    settings: LogSettings | None = None,
    progress: Progress | None = None,
) -> DataReport:
    """Look at everything; of the log no further than `to_lsn`.  Without `log_start` the journal is asked for it."""
    check = _Verification(files, settings if settings is not None else LogSettings())
    return check.run(log_start, to_lsn, progress)


class _Verification:
    def __init__(self, files: Files, settings: LogSettings) -> None:
        self._files = files
        self._settings = settings
        self._findings: list[Finding] = []
        self._notes: list[Finding] = []

    def run(self, log_start: int | None, to_lsn: int | None, progress: Progress | None) -> DataReport:
        of_shard = self._look_at(CHECKPOINTS, CheckpointKind.SHARD)
        of_journal = self._look_at(JOURNAL_CHECKPOINTS, CheckpointKind.JOURNAL)
        journal = self._verify_journal(of_journal) if self._files.list(JOURNAL) else None
        start: LogStart = log_start
        if log_start is None and journal is not None and journal.state is not None:
            start = self._log_start
        log = self._verify_log(start, to_lsn, progress)
        if journal is not None or of_shard.checkpoints:
            self._check_shard(of_shard, log, journal, to_lsn)
        return DataReport(
            log,
            journal,
            of_journal.checkpoints + of_shard.checkpoints,
            log.findings + self._findings,
            log.notes + self._notes,
        )

    def _verify_log(self, log_start: LogStart, to_lsn: int | None, progress: Progress | None) -> VerifyReport:
        if self._files.list(LOG):
            return verify_log(
                self._files, LOG, log_start=log_start, to_lsn=to_lsn, settings=self._settings, progress=progress
            )
        # Before the first append there is none.
        start = log_start() if callable(log_start) else log_start
        if start is not None and start > 1:
            self._find(FindingName.LOST_SEGMENT, f"the log begins at LSN {start}, and is not there", LOG)
        return VerifyReport(LOG)

    def _log_start(self) -> int | None:
        state = self._state_now()
        return state.log_start if state is not None else None

    def _state_now(self) -> MetadataState | None:
        """The journal's state as its next owner would have it; None where there is none, which has its finding."""
        while True:
            found = look_at_checkpoints(self._files, JOURNAL_CHECKPOINTS, CheckpointKind.JOURNAL).valid()
            log = self._stored(JOURNAL)
            state = self._begin_of_journal(log.first_lsn, [checkpoint for _, checkpoint in found])
            if state is not None:
                try:
                    for frame in frames_until_gone(log, state.lsn + 1):
                        apply_frame(state, frame)
                except HeadwaterError:
                    return None
            if self._stored(JOURNAL).first_lsn == log.first_lsn:
                return state
            # An owner at work has compacted it meanwhile: read it again.

    @staticmethod
    def _begin_of_journal(first_lsn: int | None, wanted: Iterable[Checkpoint]) -> MetadataState | None:
        """What replay begins with: the first of these that the journal continues, or nothing where it is all there."""
        for checkpoint in wanted:
            if first_lsn is not None and checkpoint.lsn + 1 >= first_lsn:
                return MetadataState.unpack(checkpoint.body)
        return MetadataState() if first_lsn == 1 else None

    # The files of checkpoints by themselves --------------------------------------------------

    def _look_at(self, directory: str, kind: CheckpointKind) -> SeenDirectory:
        seen = look_at_checkpoints(self._files, directory, kind)
        for path in seen.temporaries:
            self._note(NoteName.LEFT_OVER, "left by a crash; the next checkpoint removes it", path)
        for path in seen.foreign:
            self._note(NoteName.FOREIGN_FILE, "not a checkpoint; it is never touched", path)
        for each in seen.checkpoints:
            if each.file.unknown:
                self._find(FindingName.UNKNOWN_FORMAT, each.file.damage, each.path)
            elif each.file.damage:
                self._find(MetadataFinding.DAMAGED_CHECKPOINT, each.file.damage, each.path)
        return seen

    # The journal -----------------------------------------------------------------------------

    def _verify_journal(self, seen: SeenDirectory) -> JournalSeen:
        def start() -> int:
            # Looked at anew: an owner at work may have compacted since.
            now = look_at_checkpoints(self._files, JOURNAL_CHECKPOINTS, CheckpointKind.JOURNAL)
            return journal_start([each.file for each in now.checkpoints], self._stored(JOURNAL).first_lsn)

        report = verify_log(self._files, JOURNAL, log_start=start, settings=self._settings)
        self._findings += [_within(JOURNAL, each) for each in report.findings]
        self._notes += [
            _within(JOURNAL, each)
            for each in report.notes
            if (each.name, each.segment) != (NoteName.FOREIGN_FILE, CHECKPOINTS)
        ]
        journal = JournalSeen(report)
        self._check_ends(seen.valid(), report)
        if report.first_lsn:
            self._replay(journal, self._valid_by_now(seen, JOURNAL_CHECKPOINTS, CheckpointKind.JOURNAL))
        elif seen.checkpoints and not seen.valid():
            self._find(MetadataFinding.CHECKPOINT_LOST, "there are only damaged checkpoints", JOURNAL)
        return journal

    def _replay(self, journal: JournalSeen, valid: Valid) -> None:
        """Apply every operation, and compare the state at each checkpoint's LSN."""
        log = self._stored(JOURNAL)
        newest_lsn = valid[0][1].lsn if valid else 0
        # All of them are compared where it is all there; else all but the oldest, with which replay begins.
        oldest_first = [] if log.first_lsn == 1 else [checkpoint for _, checkpoint in reversed(valid)]
        state = self._begin_of_journal(log.first_lsn, oldest_first)
        if state is None:
            first_lsn = journal.log.first_lsn
            self._find(
                MetadataFinding.CHECKPOINT_LOST,
                f"the journal begins at LSN {first_lsn}, and no valid checkpoint holds what was before",
                JOURNAL_CHECKPOINTS,
                lsns=(1, first_lsn - 1),
            )
        journal.state = state
        for frame, after in FoldCheck(self._find).along(log, journal.log.first_lsn, state, valid, apply_operation):
            if frame.header.kind == Kind.METADATA:
                journal.operations += 1
                journal.operations_to_replay += frame.lsn > newest_lsn
            journal.state = after if isinstance(after, MetadataState) else None
        if journal.state is not None and journal.state.lsn < journal.log.last_lsn:
            journal.state = None

    # The shard's checkpoints -----------------------------------------------------------------

    def _check_shard(
        self, seen: SeenDirectory, log: VerifyReport, journal: JournalSeen | None, to_lsn: int | None
    ) -> None:
        first_lsn = log.first_lsn
        if to_lsn is None:
            self._check_ends(seen.valid(), log)
        if journal is not None:
            self._check_journal_reaches(seen.valid(), journal)
        if not first_lsn:
            return
        valid = self._valid_by_now(seen, CHECKPOINTS, CheckpointKind.SHARD)
        continued = [each for each in valid if each[1].lsn + 1 >= first_lsn]
        if not continued and first_lsn > 1 and journal is not None:
            self._find(
                MetadataFinding.CHECKPOINT_LOST,
                f"the log begins at LSN {first_lsn}, and no valid checkpoint holds what is known of the rows before",
                CHECKPOINTS,
                lsns=(1, first_lsn - 1),
            )
        # From the older of the two that are kept: what only that one covers may have left the log.
        state: State | None = None
        from_lsn = first_lsn
        if len(continued) >= KEPT:
            base = continued[KEPT - 1][1]
            state, from_lsn = unpack_state(base), max(base.lsn, first_lsn)
        elif first_lsn == 1:
            state = ShardState()
        for _ in FoldCheck(self._find).along(self._stored(LOG), from_lsn, state, continued[:KEPT], fold_frame, to_lsn):
            pass
        if journal is not None and journal.state is not None:
            self._check_topics(log.last_topic_number, journal.state)

    def _check_journal_reaches(self, valid: Valid, journal: JournalSeen) -> None:
        for each, checkpoint in valid:
            if checkpoint.journal_lsn > journal.log.last_lsn:
                self._find(
                    MetadataFinding.METADATA_BEHIND_LOG,
                    f"it was made with operation {checkpoint.journal_lsn}, and the journal ends at "
                    f"{journal.log.last_lsn}",
                    each.path,
                )

    def _check_topics(self, highest: int, state: MetadataState) -> None:
        """Every topic with frames in the log must be one that the journal has made."""
        if highest < state.next_topic_number:
            return
        # Or it was made since the journal was read.
        now = self._state_now()
        if now is None or highest >= now.next_topic_number:
            self._find(
                MetadataFinding.METADATA_BEHIND_LOG,
                f"the log holds frames of topic {highest}, and the journal has made none of that number",
                JOURNAL,
            )

    def _valid_by_now(self, seen: SeenDirectory, directory: str, kind: CheckpointKind) -> Valid:
        """Those that were valid, and those that an owner at work has made since: a log goes on from the latter."""
        lsns = {each.file.lsn for each in seen.checkpoints}
        since = look_at_checkpoints(self._files, directory, kind).valid()
        return [each for each in since if each[1].lsn not in lsns] + seen.valid()

    # Both ------------------------------------------------------------------------------------

    def _check_ends(self, valid: Valid, log: VerifyReport) -> None:
        """A checkpoint is of an LSN that its log has, or had."""
        for each, checkpoint in valid:
            if checkpoint.lsn > log.last_lsn:
                self._find(
                    FindingName.LOST_LSNS,
                    f"the state of LSN {checkpoint.lsn} was saved, but `{log.directory}/` ends at {log.last_lsn}",
                    each.path,
                    (log.last_lsn + 1, checkpoint.lsn),
                )
            elif checkpoint.lsn + 1 < log.first_lsn:
                detail = f"older than all of `{log.directory}/`; the next checkpoint removes it"
                self._note(NoteName.LEFT_OVER, detail, each.path)

    def _stored(self, directory: str) -> StoredFrames:
        return StoredFrames(self._files, directory, chunk_bytes=self._settings.scan_chunk_bytes)

    def _find(
        self, name: FindingName | MetadataFinding, detail: str, path: str, lsns: tuple[int, int] = (0, 0)
    ) -> None:
        self._findings.append(Finding(name, detail, path, first_lsn=lsns[0], last_lsn=lsns[1]))

    def _note(self, name: NoteName, detail: str, path: str) -> None:
        self._notes.append(Finding(name, detail, path))


def _within(directory: str, finding: Finding) -> Finding:
    return replace(finding, segment=f"{directory}/{finding.segment}" if finding.segment else directory)
