"""One shared, chained, self-describing log of frames; bodies are bytes here."""

from headwater.log.device import Frame, FrameRef, SegmentInfo
from headwater.log.drafts import Draft, Receipt
from headwater.log.frame_log import FrameLog, open_log
from headwater.log.recovery import RecoveryReport

__all__ = ["Draft", "Frame", "FrameLog", "FrameRef", "Receipt", "RecoveryReport", "SegmentInfo", "open_log"]
