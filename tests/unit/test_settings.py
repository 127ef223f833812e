"""Settings are frozen, and those that contradict each other are refused when they are made."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from headwater.settings import MIB, WRITE_BODY_BYTES_CEILING, LogSettings


def test_the_defaults_are_the_documented_ones() -> None:
    settings = LogSettings()

    assert settings.segment_size_bytes_max == 256 * MIB and settings.segment_age_s_max == 3600
    assert settings.write_body_bytes_max == settings.in_flight_bytes_max == 64 * MIB
    assert settings.append_timeout_s == 30 and settings.mark_sync_idle_s == 0.1
    assert settings.reserve_bytes == 16 * MIB and settings.deletion_grace_s == 600


def test_settings_do_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        LogSettings().reserve_bytes = 1  # type: ignore[misc]


@pytest.mark.parametrize("limit", [0, -1, WRITE_BODY_BYTES_CEILING + 1])
def test_a_write_has_a_size_above_zero_and_below_the_ceiling(limit: int) -> None:
    with pytest.raises(ValueError, match="write_body_bytes_max is above 0"):
        LogSettings(write_body_bytes_max=limit, segment_size_bytes_max=1024 * MIB)


def test_a_write_may_be_raised_to_the_ceiling() -> None:
    settings = LogSettings(write_body_bytes_max=WRITE_BODY_BYTES_CEILING, segment_size_bytes_max=1024 * MIB)

    assert settings.write_body_bytes_max == 256 * MIB


def test_a_write_must_fit_into_a_segment() -> None:
    with pytest.raises(ValueError, match="never spans segments"):
        LogSettings(write_body_bytes_max=2 * MIB, segment_size_bytes_max=MIB)
