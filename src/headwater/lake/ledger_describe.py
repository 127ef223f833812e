"""The ledger's records, told: a line for people, plain values for programs.

NOT HERE What a record does: ledger_state.py.
"""

from __future__ import annotations

import msgspec

from headwater.lake.ledger_records import (
    Audited,
    Begun,
    CheckedCatalog,
    Decided,
    Ended,
    Erased,
    HaltedLanding,
    Intended,
    Kept,
    Landed,
    LedgerRecord,
    Merged,
    Restored,
    Verified,
)


def record_name(record: LedgerRecord) -> str:
    """As it stands in the frame."""
    return str(record.__struct_config__.tag)


def record_text(record: LedgerRecord) -> str:
    """One line, which begins with the record's name."""
    return f"{record_name(record)} {_told(record)}"


def record_content(record: LedgerRecord) -> dict[str, object]:
    """Its fields by name, for JSON."""
    content: dict[str, object] = msgspec.to_builtins(record)
    return content


def _told(record: LedgerRecord) -> str:
    match record:
        case Begun():
            return f"{record.table}: epoch {record.epoch}, commit {record.commit_id}"
        case Intended():
            base = f"on snapshot {record.base}" if record.base is not None else "on an empty table"
            files = _counted(len(record.files), "file")
            return f"{record.table}: {_range(record.lsn_from, record.lsn_to)}, {files}, {base}"
        case Landed():
            found = ", found in the table" if record.adopted else ""
            landing = f"{_range(record.lsn_from, record.lsn_to)}, {_counted(record.rows, 'row')}"
            return f"{record.table}: {landing}, digest {record.total}, snapshot {record.snapshot}{found}"
        case Verified():
            return f"{record.table}: up to LSN {record.lsn_to}, snapshot {record.snapshot}, by {record.mode}"
        case HaltedLanding():
            return f"{record.table}: {record.cause}: {record.message}"
        case Ended():
            return f"{record.table}: {record.why}, commit {record.commit_id}"
        case Decided():
            return f"{record.table}: {record.act}, LSN {record.lsn} in place of {record.lsn_before}"
        case CheckedCatalog():
            failed = [name for name, held in record.properties.items() if not held]
            return f"{record.catalog}: {'passed' if record.passed else 'failed: ' + ', '.join(failed)}"
        case Merged():
            return f"{record.table}: {_range(record.lsn_from, record.lsn_to)}, snapshot {record.snapshot}"
        case Erased():
            gone = f"{_counted(record.rows, 'row')} up to LSN {record.lsn_to}"
            return f"{record.table}: {gone}, from {', '.join(record.done) or 'nothing yet'}: {record.reason}"
        case Audited():
            outcome = "PASS" if record.passed else f"FAIL, {_counted(record.differences, 'difference')}"
            return f"{record.table}: {outcome}, {_counted(record.rows, 'row')} up to LSN {record.lsn_to}"
        case Restored():
            return f"{record.table}: taken over from log {record.log_id_before}, {_counted(record.rows, 'row')}"
    return _upkeep_text(record)


def _upkeep_text(record: Kept) -> str:
    return f"{record.table}: {record.what}" + (f", {record.detail}" if record.detail else "")


def _range(lsn_from: int, lsn_to: int) -> str:
    return f"LSN {lsn_from + 1} to {lsn_to}"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"
