"""Every public name says what it is for: names, methods, properties, fields, errors."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

import headwater as hw
from headwater import errors, testing
from tests.docs.reference_python import members
from tests.docs.reference_settings import field_texts

PUBLIC = {name: getattr(hw, name) for name in hw.__all__ if name not in ("errors", "BYTES")}
PUBLIC |= {f"testing.{name}": getattr(testing, name) for name in testing.__all__}
PUBLIC |= {
    f"errors.{name}": kind
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and kind.__module__ == errors.__name__
}
SAID_BY_THEIR_NAMES = {
    "Appended": {"topic", "rows", "first_lsn", "lsn", "time"},
    "LandingReport": {"topics", "bytes_read", "seconds", "verify_s"},
    "Cut": {"log_id", "topics"},
}


def undocumented(name: str, value: Any) -> Iterator[str]:
    """What of it has no text of its own."""
    text = inspect.getdoc(value) or ""
    if not text or text.startswith(f"{name.rpartition('.')[2]}("):  # what Python makes of a dataclass
        yield name
    if not inspect.isclass(value):
        return
    for member, static in members(value):
        if not inspect.getdoc(static.fget if isinstance(static, property) else getattr(value, member)):
            yield f"{name}.{member}"
    if is_dataclass(value):
        plain = SAID_BY_THEIR_NAMES.get(name, set()) | ({"number", "reason"} if name == "errors.RefusedRow" else set())
        texts = field_texts(value)
        for each in fields(value):
            if not each.name.startswith("_") and not texts.get(each.name) and each.name not in plain:
                yield f"{name}.{each.name}"


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_and_all_that_it_has_say_what_they_are_for(name: str) -> None:
    assert list(undocumented(name, PUBLIC[name])) == []


def test_what_says_nothing_is_found() -> None:
    class Silent:
        """Something."""

        def act(self) -> None: ...

    Silent.__module__ = "headwater.silent"

    assert list(undocumented("Silent", Silent)) == ["Silent.act"]
