"""What may be appended, said before anything is written (G7)."""

from __future__ import annotations

import pytest

from headwater.errors import InvalidRequest, TooLarge
from headwater.frames.frame import BODY_SIZE_BYTES_MAX, WRITE_FRAMES_MAX, Flag, Kind, body_crc
from headwater.log.drafts import Draft, check_write
from headwater.settings import LogSettings

SMALL = LogSettings(segment_size_bytes_max=1000, write_body_bytes_max=1000)


def test_a_draft_knows_the_size_and_the_checksum_of_its_frame() -> None:
    draft = Draft(Kind.DATA, b"three bytes more than 128" * 6)

    assert draft.body_size == 150
    assert draft.frame_size == 128 + 256
    assert draft.body_crc == body_crc(b"three bytes more than 128" * 6)


def test_a_body_of_wider_items_counts_in_bytes() -> None:
    words = memoryview(bytearray(80)).cast("Q")

    draft = Draft(Kind.DATA, words)

    assert len(words) == 10
    assert draft.body_size == 80


def test_a_body_above_64_mib_is_refused_with_both_sizes() -> None:
    body = memoryview(bytearray(BODY_SIZE_BYTES_MAX + 1))

    with pytest.raises(TooLarge) as refusal:
        Draft(Kind.DATA, body)

    assert refusal.value.facts == {"body_bytes": BODY_SIZE_BYTES_MAX + 1, "limit_bytes": BODY_SIZE_BYTES_MAX}
    assert Draft(Kind.DATA, body[1:]).body_size == BODY_SIZE_BYTES_MAX


def test_the_bytes_of_a_write_are_those_of_its_frames() -> None:
    write = [Draft(Kind.DATA, b"x"), Draft(Kind.SCHEMA, b""), Draft(Kind.OFFSETS, bytes(128))]

    size = check_write(write, SMALL)

    assert size == 256 + 128 + 256


def test_a_write_without_frames_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="at least one frame"):
        check_write([], SMALL)


def test_a_write_of_more_than_65535_frames_is_refused() -> None:
    draft = Draft(Kind.DATA, b"")

    with pytest.raises(TooLarge) as refusal:
        check_write([draft] * (WRITE_FRAMES_MAX + 1), SMALL)

    assert refusal.value.facts == {"frames": 65_536, "limit": 65_535}
    assert check_write([draft] * WRITE_FRAMES_MAX, SMALL) == 65_535 * 128


@pytest.mark.parametrize("kind", [0, 13, 127, 256, Kind.SEGMENT, Kind.EPOCH, Kind.GAP, Kind.SPARSE])
def test_a_kind_that_is_unknown_or_made_by_the_log_alone_is_refused(kind: int) -> None:
    with pytest.raises(InvalidRequest, match=f"kind={kind}"):
        check_write([Draft(kind, b"")], SMALL)


@pytest.mark.parametrize("kind", [Kind.SCHEMA, Kind.DATA, Kind.LEDGER, Kind.SOURCE, 128, 255])
def test_kinds_of_the_users_and_those_that_readers_skip_may_be_appended(kind: int) -> None:
    size = check_write([Draft(kind, b"")], SMALL)

    assert size == 128


@pytest.mark.parametrize("flags", [Flag.REWRITTEN, 2, 16, Flag.REWRITTEN | Flag.TRANSACTION])
def test_flags_that_are_unknown_or_the_logs_own_are_refused(flags: int) -> None:
    with pytest.raises(InvalidRequest, match="flags"):
        check_write([Draft(Kind.DATA, b"", flags=flags)], SMALL)

    assert check_write([Draft(Kind.DATA, b"", flags=Flag.TRANSACTION | Flag.TOMBSTONES)], SMALL)


def test_bodies_that_are_together_above_the_limit_are_refused_and_at_the_limit_are_not() -> None:
    half = Draft(Kind.DATA, bytes(500))

    with pytest.raises(TooLarge) as refusal:
        check_write([half, half, Draft(Kind.DATA, b"x")], SMALL)

    assert refusal.value.facts == {"body_bytes": 1001, "limit_bytes": 1000}
    assert check_write([half, half], SMALL)
