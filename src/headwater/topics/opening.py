"""Opening a data directory, and recovering first what its last owner did not close.

WHY      A power loss can set a mark back, and a reader that goes by it would not see rows that were acknowledged.  So
         where nobody owns a journal or a log that was not closed, whoever comes first recovers it as its owner would,
         closes it, and then opens it as anybody does (G21).  Where somebody owns it, its mark is true.
ORDER    The journal first: where the log begins is in it.
PROMISE  Whatever goes wrong, no lock stays taken.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from headwater.errors import InvalidRequest, LogLocked, Unavailable
from headwater.log.frame_log import FrameLog
from headwater.metadata.journal import Journal
from headwater.topics.shard import Shard

logger = logging.getLogger("headwater.topics")


def open_recovered(
    open_journal: Callable[[], Journal], use_journal: Callable[[Journal], None], open_shard: Callable[[], Shard]
) -> Shard:
    """Open both; `use_journal` is told of the journal that the shard is to go by."""
    journal = open_journal()
    shard: Shard | None = None
    try:
        use_journal(journal)
        was_claimed = somebody_else_recovers = False
        if _was_left_open(journal.log):
            was_claimed = _can_claim(journal.claim)
            somebody_else_recovers = not was_claimed
        shard = open_shard()
        if _was_left_open(shard.log) and not somebody_else_recovers and _can_claim(shard.log.claim):
            shard.log.close()
            shard = open_shard()
        shard.check_not_lost()
        if was_claimed:
            journal.close()
            journal = open_journal()
            use_journal(journal)
        return shard
    except BaseException:
        # Whoever opens it next, here or elsewhere, must find the locks free.
        if shard is not None:
            shard.log.close()
        journal.close()
        raise


def claim_both(journal: Journal, shard: Shard) -> None:
    """Become the owner of both.  On a disk the journal's lock is the first; on a store the log has the sign of life
    that tells whether its owner is to be left alone, so it comes before anything is taken from that owner."""
    if shard.log.is_on_a_store:
        shard.log.claim()
        journal.follow(shard.log.device.claim())
    journal.claim()
    shard.claim()


def locked_elsewhere(error: LogLocked, directory: str) -> LogLocked:
    """Who has it, in the words of whoever opened it here; a bucket says so by itself."""
    if "holder" not in error.facts:
        return error
    pid = str(error.facts["holder"]).removeprefix("pid ")
    if pid == str(os.getpid()):
        message = "this process has it open already, and writes there: use that Log, or close it"
    else:
        message = f"the process with pid {pid} writes here: stop it, or write through it; reading works beside it"
    return LogLocked(message, directory=directory, pid=pid)


def _was_left_open(log: FrameLog) -> bool:
    report = log.recovery_report
    return report.segments > 0 and not report.clean


def _can_claim(claim: Callable[[], object]) -> bool:
    try:
        claim()
    except LogLocked:
        return False
    except (Unavailable, InvalidRequest) as error:
        # A place that cannot be written is read up to the mark.
        logger.warning("not recovered, because it cannot be written here: %s", error)
        return False
    return True
