"""Where a topic's rows are, by LSN: in the table alone, in both and verified, in both, in the log alone.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from headwater.topics.answers import LandingStatus


class LsnSpans(NamedTuple):
    """How many LSNs are of each kind, in the order of LSNs; together they are the durable LSN."""

    in_table_alone: int
    """Deleted from the log, and verified in the table."""
    in_both_verified: int
    in_both: int
    """In the table, and not verified there yet."""
    in_log_alone: int


def lsn_spans(landing: LandingStatus, durable_lsn: int) -> LsnSpans:
    landed = min(landing.landed_lsn, durable_lsn)
    verified = min(landing.verified_lsn, landed)
    if not landing.lag_rows:
        # What came after its last landing is other topics': its own rows are all there.
        landed, verified = durable_lsn, durable_lsn if verified == landed else verified
    in_log = landing.log_first_lsn or durable_lsn + 1
    gone = min(max(in_log - 1, 0), verified)
    return LsnSpans(gone, verified - gone, landed - verified, durable_lsn - landed)
