"""The bench that compares with Kafka says what to install where Kafka's clients, or Java, are missing."""

from __future__ import annotations

import pytest

from bench import _kafka


def test_a_client_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_kafka, "NEEDED", {"json": "json", "no_such_module": "no-such-package==1.*"})

    with pytest.raises(SystemExit, match=r"pip install no-such-package==1\.\*$"):
        _kafka.check_installed()


def test_a_program_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_kafka, "NEEDED", {})
    monkeypatch.setenv("PATH", "")

    with pytest.raises(SystemExit, match="needs java"):
        _kafka.check_installed()
