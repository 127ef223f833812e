"""A restore that is under way: `restore.json` in the data directory, from before the first table is touched until the
log is there.

PROMISE  Whoever finds it can go on with the same log id and the same first LSN, so that what was done is not done again
         in another way.
"""

from __future__ import annotations

import msgspec

from headwater.errors import CorruptData
from headwater.storage.files import Files

PLAN = "restore.json"
LOCK = "restore.lock"
_TEMPORARY = PLAN + ".tmp"
FORMAT = 1


class RestorePlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    format: int = FORMAT
    log_id: str
    """Of the log that is made."""
    log_ids_before: tuple[str, ...]
    """Tables with a mark of these are taken over."""
    first_lsn: int
    namespaces: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    begun_us: int


_decoder = msgspec.json.Decoder(RestorePlan)


def read_plan(files: Files) -> RestorePlan | None:
    """The restore that is under way here; None where none is."""
    try:
        file = files.open(PLAN)
    except FileNotFoundError:
        return None
    try:
        data = file.read_at(0, file.size())
    finally:
        file.close()
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise CorruptData(
            f"{PLAN}, which says what a restore has begun, cannot be read: {error}; put it back from a copy"
        ) from error


def write_plan(files: Files, plan: RestorePlan) -> None:
    """Durable under its name, whole, when it returns."""
    if _TEMPORARY in files.list(""):
        files.unlink(_TEMPORARY)
    file = files.create(_TEMPORARY)
    try:
        file.append([msgspec.json.encode(plan)])
        file.sync_all()
    finally:
        file.close()
    files.rename(_TEMPORARY, PLAN)
    files.sync_directory("")


def forget_plan(files: Files) -> None:
    files.unlink(PLAN)
    files.sync_directory("")
