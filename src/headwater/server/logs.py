"""A server's log: one JSON object a line on stderr, for machines that collect and people who grep.

    {"time": "2026-11-15T02:55:13.889000Z", "level": "info", "logger": "headwater.server", "message": "...",
     "fields": {...}, "trace": "..."}

PROMISE  One event is one line, whatever is in it.
         No token is in it: nobody logs one, and whatever looks like one, or stands where one would, is taken out here
         once more, of messages, fields and traces.
"""

from __future__ import annotations

import logging
import re
import sys
from datetime import UTC, datetime
from typing import TextIO

import msgspec

LEVELS = ("debug", "info", "warning", "error")
HIDDEN = "[hidden]"
_SECRETS = (
    re.compile(r"(?i)(?<=bearer )\s*[^\s'\",;)]+"),
    re.compile(r"(?i)(?<=bearer%20)[^\s'\",;)&]+"),
    re.compile(r"\bhw_[A-Za-z0-9_-]{20,}"),
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)", re.DOTALL),
)
_SECRET_NAMES = re.compile(r"(?i)authorization|token|secret|password|private_key")
_NOT_SECRET = re.compile(r"(?i)_file$|tokens?_(count|kept)$")
_OF_EVERY_RECORD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_THIRD_PARTIES = ("uvicorn", "uvicorn.error", "starlette", "asyncio")


def hide_secrets(text: str) -> str:
    """The text without what looks like a token or a key."""
    for secret in _SECRETS:
        text = secret.sub(HIDDEN, text)
    return text


class JsonLines(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        try:
            message = record.getMessage()
        except (TypeError, ValueError):
            # A message whose arguments do not fit it is still worth its words.
            message = str(record.msg)
        found: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="microseconds")
            .replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": hide_secrets(message),
        }
        fields = {
            name: HIDDEN if _is_secret(name) else _plain(value)
            for name, value in vars(record).items()
            if name not in _OF_EVERY_RECORD
        }
        if fields:
            found["fields"] = fields
        if record.exc_info:
            found["trace"] = hide_secrets(self.formatException(record.exc_info))
        return msgspec.json.encode(_utf8(found)).decode()


def configure_logs(level: str = "info", stream: TextIO | None = None) -> logging.Handler:
    """Whatever this process logs goes to stderr from now on, as JSON; gives the handler, for whoever takes it away."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("headwater").setLevel(level.upper())
    for name in _THIRD_PARTIES:
        # Their handlers would write lines of another form, and anybody could have them warn of nonsense without end.
        logging.getLogger(name).handlers = []
        logging.getLogger(name).setLevel(logging.ERROR)
    logging.captureWarnings(True)
    return handler


def _is_secret(name: str) -> bool:
    return _SECRET_NAMES.search(name) is not None and _NOT_SECRET.search(name) is None


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, dict):
        return {str(name): HIDDEN if _is_secret(str(name)) else _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    return hide_secrets(str(value))


def _utf8(value: object) -> object:
    """Half a character, which no encoding has, is written as its escape."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {str(_utf8(name)): _utf8(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_utf8(each) for each in value]
    if isinstance(value, int) and not isinstance(value, bool) and not -(1 << 63) <= value < 1 << 64:
        return str(value)
    return value
