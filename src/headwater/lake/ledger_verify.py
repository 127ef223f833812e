"""Every byte of the ledger: its log, as log/verify.py looks at one, and each record in it.

PROMISE  It reads and changes nothing, and may run beside landers.  It needs none of the packages of the `lake` extra.
ORDER    Look at the ledger before the log whose rows it speaks of: the log is then never behind it at work.
FINDING, NOTE as in log/verify.py, with the file's path in place of a segment's name.
NOT HERE Whether tables hold what the ledger says: landing verifies that, and an audit.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace

from headwater.errors import HeadwaterError
from headwater.frames.frame import Kind
from headwater.lake.ledger import DIRECTORY
from headwater.lake.ledger_records import Landed, unpack_ledger_record
from headwater.lake.ledger_state import LedgerState
from headwater.log.verify import Finding, FindingName, VerifyReport, verify_log
from headwater.metadata.fold_check import MetadataFinding, frames_until_gone
from headwater.metadata.stored_frames import StoredFrames
from headwater.settings import LogSettings
from headwater.storage.files import Files


@dataclass
class LedgerSeen:
    """What the ledger holds."""

    log: VerifyReport
    records: int = 0
    state: LedgerState = field(default_factory=LedgerState)
    """As far as its records can be read."""
    landed_lsn: int = 0
    """The highest LSN up to which any topic has landed."""
    findings: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)

    @property
    def halted(self) -> int:
        """How many topics need a person."""
        return sum(topic.halted is not None for topic in self.state.topics.values())

    def as_dict(self) -> dict[str, object]:
        about = asdict(self.log)
        del about["findings"], about["notes"]
        topics = {
            topic_id: {
                "table": topic.table,
                "landed_lsn": topic.landed_lsn,
                "verified_lsn": topic.verified_lsn,
                "halted": topic.halted.cause if topic.halted is not None else None,
            }
            for topic_id, topic in sorted(self.state.topics.items())
        }
        return {**about, "records": self.records, "landed_lsn": self.landed_lsn, "topics": topics}


def verify_ledger(files: Files, *, settings: LogSettings | None = None) -> LedgerSeen | None:
    """Look at all of it; None where there is no ledger."""
    if not files.list(DIRECTORY):
        return None
    settings = settings if settings is not None else LogSettings()
    # Nothing of a ledger is ever deleted.
    report = verify_log(files, DIRECTORY, log_start=1, settings=settings)
    seen = LedgerSeen(
        report,
        findings=[_within(each) for each in report.findings],
        notes=[_within(each) for each in report.notes],
    )
    frames = StoredFrames(files, DIRECTORY, chunk_bytes=settings.scan_chunk_bytes)
    for frame in frames_until_gone(frames, 1):
        if frame.header.kind != Kind.LEDGER:
            continue
        try:
            record = unpack_ledger_record(frame.body)
        except HeadwaterError as error:
            path = f"{DIRECTORY}/{frame.segment}"
            seen.findings.append(
                Finding(MetadataFinding.BAD_RECORD, error.message, path, first_lsn=frame.lsn, last_lsn=frame.lsn)
            )
            continue
        seen.records += 1
        seen.state.apply(record)
        if isinstance(record, Landed):
            seen.landed_lsn = max(seen.landed_lsn, record.lsn_to)
    return seen


def check_log_reaches(seen: LedgerSeen, log: VerifyReport) -> list[Finding]:
    """What has landed was durable in the log, which was looked at afterwards: it must still end behind it."""
    if seen.landed_lsn <= log.last_lsn:
        return []
    detail = f"rows up to LSN {seen.landed_lsn} have landed in tables, but `{log.directory}/` ends at {log.last_lsn}"
    return [Finding(FindingName.LOST_LSNS, detail, log.directory, first_lsn=log.last_lsn + 1, last_lsn=seen.landed_lsn)]


def _within(finding: Finding) -> Finding:
    return replace(finding, segment=f"{DIRECTORY}/{finding.segment}" if finding.segment else DIRECTORY)
