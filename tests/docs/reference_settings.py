"""docs/reference/settings.md: every setting with its type, its default and its text, from the classes themselves."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from typing import Any

from headwater.server.settings import ServerLimits, ServerSettings
from headwater.settings import ClientSettings, LandingSettings, LogSettings, Settings, bucket_settings
from tests.docs.reference_commands import cell, linked

CLASSES: list[tuple[type[Any], str]] = [
    (Settings, "`hw.open(where, settings=hw.Settings(...))`"),
    (LogSettings, "`hw.Settings(log=hw.LogSettings(...))`"),
    (LandingSettings, "`hw.Settings(landing=hw.LandingSettings(...))`"),
    (ClientSettings, "`hw.connect(where, client=hw.ClientSettings(...))`"),
    (ServerSettings, "the options of `headwater serve`"),
    (ServerLimits, "what a server takes from anybody; options of `headwater serve`"),
]

HEAD = """# Every setting

Written from the code by `python -m tests.docs.references`. [settings.md](../settings.md) says when to change which.
Settings belong to an open log, client or server and are not stored. Durability is not a setting.
"""


def settings_page() -> str:
    made = [HEAD]
    for kind, where in CLASSES:
        about = linked(f"{_text(kind)} Given by: {where}.".strip())
        made.append(f"## `{kind.__name__}`\n\n{about}\n\n| field | type | default | means |\n|---|---|---|---|")
        texts = field_texts(kind)
        made += [
            f"| `{each.name}` | `{cell(str(each.type))}` | {default(each)} | {texts.get(each.name, '')} |"
            for each in fields(kind)
        ]
        made.append("")
    made.append("## In a bucket\n\nWhere no settings are given, a log in a bucket has these in place of the above:\n")
    made.append("| field | default |\n|---|---|")
    made += list(_of_a_bucket())
    return "\n".join(made) + "\n"


def field_texts(kind: type[Any]) -> dict[str, str]:
    """The text below each field.  One that begins or ends in dots goes on from, or into, its neighbour."""
    (found,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(found, ast.ClassDef)
    texts: dict[str, str] = {}
    for field, following in zip(found.body, found.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(following, ast.Expr):
            texts[field.target.id] = cell(str(ast.literal_eval(following.value)))
    return texts


def default(field: Field[Any]) -> str:
    value = field.default if field.default is not MISSING else None
    if field.default_factory is not MISSING:
        value = field.default_factory()
    if field.default is MISSING and field.default_factory is MISSING:
        return "needed"
    return shown(field.name, value)


def shown(name: str, value: object) -> str:
    """A number of bytes in MiB where it is whole ones; another class by its name."""
    if isinstance(value, int) and not isinstance(value, bool) and ("bytes" in name):
        for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
            if value and value % size == 0:
                return f"{value // size:,} {unit}"
    if hasattr(value, "__dataclass_fields__"):
        differing = [
            f"{each.name}={shown(each.name, getattr(value, each.name))}"
            for each in fields(value)  # type: ignore[arg-type]
            if getattr(value, each.name) != each.default
        ]
        return f"`{type(value).__name__}()`" + (f" with {', '.join(differing)}" if differing else "")
    return f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else f"`{value}`"


def _text(kind: type[Any]) -> str:
    own = (inspect.getdoc(kind) or "").split("\n\n")[0]
    return "" if own.startswith(f"{kind.__name__}(") else " ".join(own.split())


def _of_a_bucket() -> Iterator[str]:
    usual, there = Settings().log, bucket_settings().log
    for field in fields(usual):
        if getattr(usual, field.name) != getattr(there, field.name):
            yield f"| `log.{field.name}` | {shown(field.name, getattr(there, field.name))} |"
