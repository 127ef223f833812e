"""What a person can do about each finding and note; docs/tools.md explains them at length."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from headwater.lake.ledger import DIRECTORY as LEDGER
from headwater.log.object_verify import ObjectFinding, ObjectNote
from headwater.log.verify import Finding, FindingName, NoteName
from headwater.metadata.fold_check import MetadataFinding
from headwater.metadata.verify import CHECKPOINTS, JOURNAL
from headwater.storage.places import is_bucket


@dataclass(frozen=True)
class Advice:
    """What to do, and the command that goes on from here, if there is one."""

    text: str
    command: str = ""


_MEND = Advice(
    "Restore the file from a backup. Without one, see what would be lost by going on:",
    "headwater log repair {data} --dry-run",
)
_NOTHING = Advice("Nothing needs to be done.")
_PUT_BACK = Advice(
    "Stop the owner and put the object back: from the store's versions, if the bucket keeps them, or from a copy. What "
    "has landed is in the tables."
)
_RESTORE_LOG = Advice(
    "Restore `log/` from a backup. Without one those rows are lost: move the checkpoint out of the directory to go on."
)
_RESTORE_JOURNAL = Advice(
    "Restore `journal/` from a backup, as a whole. Without one the log can tell again what it knows of its topics:",
    "headwater log rebuild {data} --to DIR",
)

ADVICE: dict[str, Advice] = {
    FindingName.DAMAGED_FRAME: _MEND,
    FindingName.BROKEN_CHAIN: _MEND,
    FindingName.STALE_FRAME: _MEND,
    FindingName.TORN_WRITE: _MEND,
    FindingName.HEADLESS_SEGMENT: _MEND,
    FindingName.LOST_LSNS: _MEND,
    FindingName.LOST_SEGMENT: _MEND,
    FindingName.DUPLICATE_LSN: Advice(
        "Move the file that does not belong here out of the directory; `repair` does not choose between two."
    ),
    FindingName.MISNAMED_SEGMENT: Advice("Give the file its own name back, or move it out of the directory."),
    FindingName.FOREIGN_LOG: Advice("Move it out of the directory: it belongs to another log."),
    FindingName.UNKNOWN_FORMAT: Advice("Use the version of Headwater that wrote it, or a later one."),
    FindingName.TIME_FELL: Advice(
        "No row is lost, but a lookup by time can miss some. Please report it: no crash leaves this."
    ),
    FindingName.WRONG_INDEX: Advice("No row is lost. Have it rebuilt:", "headwater log repair {data}"),
    MetadataFinding.DAMAGED_CHECKPOINT: Advice(
        "Nothing is lost while another one is valid: opening passes it over, and a later checkpoint removes it. "
        "Look at the disk: no crash leaves this."
    ),
    MetadataFinding.WRONG_CHECKPOINT: Advice(
        "Move it out of the directory: opening then replays more. Please report it: no crash leaves this."
    ),
    MetadataFinding.FOREIGN_CHECKPOINT: Advice("Move it out of the directory: it belongs to another log."),
    MetadataFinding.CHECKPOINT_LOST: Advice("Restore a checkpoint that is older, or the directory, from a backup."),
    MetadataFinding.BAD_RECORD: Advice("Use the latest version of Headwater. If it says the same, please report it."),
    MetadataFinding.METADATA_BEHIND_LOG: _RESTORE_JOURNAL,
    ObjectFinding.LOST_TRIM: _PUT_BACK,
    ObjectFinding.DAMAGED_TRIM: _PUT_BACK,
    ObjectFinding.DAMAGED_SLOT: _PUT_BACK,
    ObjectFinding.LOST_SLOT: _PUT_BACK,
    ObjectFinding.LOST_OBJECT: _PUT_BACK,
    ObjectNote.IN_FLIGHT: _NOTHING,
    ObjectNote.VOID_SLOT: _NOTHING,
    ObjectNote.ORPHAN: Advice(
        "Nothing needs to be done. If it stays when no owner is at work, it may be removed: no row is in it alone."
    ),
    NoteName.TORN_TAIL: _NOTHING,
    NoteName.STILLBORN_ROLL: _NOTHING,
    NoteName.SUPERSEDED_GENERATION: _NOTHING,
    NoteName.LEFT_OVER: _NOTHING,
    NoteName.SET_ASIDE: Advice("Remove it once nobody needs its bytes any more."),
    NoteName.FOREIGN_FILE: Advice("Move it elsewhere, if you put it there."),
    NoteName.NO_INDEX: _NOTHING,
    NoteName.NO_MARK: _NOTHING,
    NoteName.BEGINS_LATER: Advice("If you know where the log must begin, say so: --log-start LSN."),
    NoteName.DECLARED_LOSS: Advice("Nothing needs to be done: a person decided it, by `headwater log repair`."),
}

_IN_THE_JOURNAL = {
    _MEND: _RESTORE_JOURNAL,
    ADVICE[MetadataFinding.CHECKPOINT_LOST]: _RESTORE_JOURNAL,
    ADVICE[FindingName.WRONG_INDEX]: Advice("Nothing is lost. Remove the index: opening rebuilds it."),
}
"""`repair` mends a log of rows by doing without some; the journal cannot do without any of its operations."""

_IN_THE_LEDGER = {
    _MEND: Advice(
        "Restore `ledger/` from a backup, as a whole. Without one move it out of the directory: the tables say how far "
        "they have come, and the log lets go of no row until its landing has been verified again."
    ),
    ADVICE[FindingName.WRONG_INDEX]: _IN_THE_JOURNAL[ADVICE[FindingName.WRONG_INDEX]],
}
"""Nor can the ledger do without any of its records."""


_NEEDS_FILES = {_MEND, ADVICE[FindingName.WRONG_INDEX]}
"""What is mended by commands that work on files alone."""


def advice(finding: Finding, data: str) -> Advice:
    """What to do about a finding in this data directory."""
    found = ADVICE[finding.name]
    directory = finding.segment.partition("/")[0]
    if is_bucket(data) and found in _NEEDS_FILES:
        return _PUT_BACK
    if directory == JOURNAL:
        found = _IN_THE_JOURNAL.get(found, found)
    elif directory == LEDGER:
        found = _IN_THE_LEDGER.get(found, found)
    elif directory == CHECKPOINTS and found is _MEND:
        found = _RESTORE_LOG
    return Advice(found.text, found.command.format(data=shlex.quote(data)))
