"""A server's log: one JSON object a line, and no secret in any."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from headwater.server.logs import HIDDEN, JsonLines, configure_logs

TOKEN = "hw_" + "x7Q" * 14


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    root = logging.getLogger()
    before, level = root.handlers, root.level
    headwater_level = logging.getLogger("headwater").level
    configure_logs("info", stream)
    yield stream
    logging.captureWarnings(False)
    root.handlers = before
    root.setLevel(level)
    logging.getLogger("headwater").setLevel(headwater_level)
    for name in ("uvicorn", "uvicorn.error", "starlette", "asyncio"):
        logging.getLogger(name).setLevel(logging.NOTSET)


def read(lines: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in lines.getvalue().splitlines()]


def test_an_event_is_one_line_with_its_time_level_words_and_fields(lines: io.StringIO) -> None:
    logging.getLogger("headwater.server").warning("two\nlines for %s", "you", extra={"topic": "orders", "rows": 3})

    (found,) = read(lines)
    assert str(found.pop("time")).endswith("Z")
    assert found == {
        "level": "warning",
        "logger": "headwater.server",
        "message": "two\nlines for you",
        "fields": {"topic": "orders", "rows": 3},
    }


def test_what_is_below_the_level_is_not_said_and_nonsense_of_callers_is_not_warned_of(lines: io.StringIO) -> None:
    logging.getLogger("headwater.http").debug("no")
    logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
    logging.getLogger("uvicorn.error").error("yes")
    logging.getLogger("others").warning("yes")

    assert [each["message"] for each in read(lines)] == ["yes", "yes"]


def test_no_token_and_no_key_is_ever_in_a_line(lines: io.StringIO) -> None:
    logger = logging.getLogger("headwater.http")
    logger.info("header authorization: Bearer abc.def-123, and %s", TOKEN)
    logger.info("x", extra={"authorization": "abc.def-123", "headers": {"Authorization": TOKEN, "host": "h"}})
    logger.info("x", extra={"values": ["Bearer abc.def-123", TOKEN], "token_file": "/run/token"})
    logger.info("-----BEGIN PRIVATE KEY-----\nabc.def-123\n-----END PRIVATE KEY-----")
    try:
        raise ValueError(f"Bearer abc.def-123 {TOKEN}")
    except ValueError:
        logger.exception("it went wrong")

    text = lines.getvalue()
    assert "abc.def-123" not in text and TOKEN not in text
    assert text.count(HIDDEN) >= 8
    assert "/run/token" in text and '"host":"h"' in text


def test_what_json_cannot_hold_is_written_all_the_same() -> None:
    odd = logging.makeLogRecord(
        {"msg": "half \ud800", "big": 1 << 80, "nan": float("nan"), "set": {1}, "other": object, "bytes": b"\xff"}
    )
    wrong = logging.makeLogRecord({"msg": "%d arguments", "args": ("no number",)})

    first, second = (json.loads(JsonLines().format(each)) for each in (odd, wrong))

    assert first["message"] == "half \\ud800"
    assert first["fields"]["big"] == str(1 << 80)
    assert second["message"] == "%d arguments"
