"""docs/reference/python.md and errors.md: every public name with its signature and its docstring.

PROMISE  Types stand as they are written in the source.  A member that a class has from another one of ours is listed
         with it; what it has from Python is not.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import headwater as hw
from headwater import errors, testing
from tests.docs.reference_commands import cell, linked
from tests.docs.reference_settings import default, field_texts

WIDTH = 100

PYTHON_HEAD = """# Python

Every public name of `headwater`, written from the code by `python -m tests.docs.references`. What is not here is not
public, and may change at any time. The package is typed (`py.typed`).
"""

ERRORS_HEAD = """# Errors

Everything that Headwater raises on purpose is an `hw.errors.HeadwaterError`, sorted by what the caller should do next.
`error.message` is for people and `error.facts` for programs. Written from the code by
`python -m tests.docs.references`.
"""


def python_page() -> str:
    made = [PYTHON_HEAD]
    for name in hw.__all__:
        if name == "errors":
            continue
        made += of_name(f"hw.{name}", getattr(hw, name))
    made.append("## Testing: `headwater.testing`\n")
    made.append("[settings.md](../settings.md#testing-your-program-headwatertesting) shows it at work.\n")
    for name in testing.__all__:
        made += of_name(f"headwater.testing.{name}", getattr(testing, name))
    return "\n".join(made).rstrip("\n") + "\n"


def errors_page() -> str:
    tree = inspect.cleandoc(errors.__doc__ or "").split("\n\n")[1]
    made = [ERRORS_HEAD, f"```text\n{tree}\n```\n", "| error | is a | means |\n|---|---|---|"]
    for name, kind in vars(errors).items():
        if inspect.isclass(kind) and issubclass(kind, errors.HeadwaterError):
            base = "-" if kind is errors.HeadwaterError else f"`{kind.__bases__[0].__name__}`"
            made.append(f"| `{name}` | {base} | {linked(cell(inspect.getdoc(kind)))} |")
    return "\n".join(made) + "\n"


def of_name(name: str, value: Any) -> Iterator[str]:
    yield f"## `{name}`\n"
    if not inspect.isclass(value):
        if callable(value):
            yield signature(name, value)
        yield text_of(value) if callable(value) else f"`{value}`\n"
        return
    if issubclass(value, Exception):
        yield f"{text_of(value)}\nThe others: [errors](errors.md).\n"
        return
    yield text_of(value)
    if is_dataclass(value):
        yield from _fields(value)
    for member, static in members(value):
        if isinstance(static, property):
            of = _annotation(inspect.signature(static.fget).return_annotation) if static.fget else ""
            yield f"### `{name.rpartition('.')[2]}.{member}`\n\n```python\n{member}: {of}\n```\n"
            yield text_of(static)
        else:
            yield f"### `{name.rpartition('.')[2]}.{member}()`\n"
            yield signature(member, getattr(value, member))
            yield text_of(getattr(value, member))


def members(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """Public methods and properties in the order in which the class, and then those it comes from, define them."""
    seen: set[str] = set()
    own = {field.name for field in fields(kind)} if is_dataclass(kind) else set()
    for each in kind.__mro__:
        if not each.__module__.startswith("headwater"):
            continue
        for name, value in vars(each).items():
            if name.startswith("_") or name in seen or name in own:
                continue
            if isinstance(value, property | classmethod | staticmethod) or inspect.isfunction(value):
                seen.add(name)
                yield name, value


def signature(name: str, value: Any) -> str:
    """As it stands in the source, over several lines where it is long."""
    found = inspect.signature(value)
    parts: list[str] = []
    starred = False
    for parameter in found.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            starred = True
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        parts.append(_parameter(parameter))
    gives = "" if found.return_annotation is found.empty else f" -> {_annotation(found.return_annotation)}"
    word = "await " if inspect.iscoroutinefunction(value) else ""
    line = f"{word}{name}({', '.join(parts)}){gives}"
    if len(line) > WIDTH:
        line = f"{word}{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){gives}"
    return f"```python\n{line}\n```\n"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = "*" * (parameter.kind is parameter.VAR_POSITIONAL) + "**" * (parameter.kind is parameter.VAR_KEYWORD)
    of = "" if parameter.annotation is parameter.empty else f": {_annotation(parameter.annotation)}"
    if parameter.default is parameter.empty:
        return f"{stars}{parameter.name}{of}"
    value = parameter.default
    given = repr(value) if isinstance(value, str | int | float | bool | bytes | tuple) or value is None else "..."
    return f"{stars}{parameter.name}{of} = {given}" if of else f"{parameter.name}={given}"


def _annotation(annotation: Any) -> str:
    if isinstance(annotation, str):
        return annotation
    return annotation.__name__ if inspect.isclass(annotation) else str(annotation)


def text_of(value: Any) -> str:
    """A docstring as Markdown: its indented parts are programs or pictures and stay as they are."""
    text = inspect.getdoc(value) or ""
    if is_dataclass(value) and text.startswith(f"{getattr(value, '__name__', '')}("):
        return ""
    return linked("\n".join(fenced(text)))


def fenced(text: str) -> Iterator[str]:
    """Parts that a docstring indents become blocks: a page says of every block what it is."""
    for part in text.split("\n\n"):
        if part.startswith("    "):
            yield f"```text\n{inspect.cleandoc(part)}\n```\n"
        else:
            yield f"{part}\n"


def _fields(kind: type[Any]) -> Iterator[str]:
    texts = field_texts(kind)
    yield "| field | type | default | |\n|---|---|---|---|"
    for field in fields(kind):
        if not field.name.startswith("_"):
            value = default(field).replace("needed", "-")
            yield f"| `{field.name}` | `{cell(str(field.type))}` | {value} | {texts.get(field.name, '')} |"
    yield ""
