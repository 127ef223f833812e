"""docs/reference/commands.md: every command, argument and option, as `headwater` itself knows them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer.main

from headwater.cli.main import app

_PAGE = re.compile(r"(?<![\w/.`])docs/([\w-]+\.md)\b")

HEAD = """# Every command and option

Written from the command line's own help by `python -m tests.docs.references`. `headwater COMMAND --help` says the same.
[command-line.md](../command-line.md) shows them at work. A `--data` may be a directory, `s3://bucket/prefix` or the
address of a server, `hw://host:port`, where its text says so.
"""


def commands_page() -> str:
    root: Any = typer.main.get_command(app)
    return "\n".join([HEAD, *of_command(root, "headwater"), *_under(root, "headwater")]).rstrip("\n") + "\n"


def _under(group: Any, path: str) -> Iterator[str]:
    for name in sorted(group.commands):
        command = group.commands[name]
        if command.hidden:
            continue
        yield from of_command(command, f"{path} {name}")
        if hasattr(command, "commands"):
            yield from _under(command, f"{path} {name}")


def of_command(command: Any, path: str) -> Iterator[str]:
    yield f"## `{path}`\n"
    yield f"{linked(paragraphs(command.help))}\n"
    arguments = [each for each in command.params if each.param_type_name == "argument" and not each.hidden]
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    if hasattr(command, "commands"):
        yield f"Commands: {', '.join(f'[`{name}`](#{anchor(path, name)})' for name in sorted(command.commands))}.\n"
    else:
        words = [path, *(_shown(each) for each in arguments), *(["[OPTIONS]"] if options else [])]
        yield f"```text\n{' '.join(words)}\n```\n"
    if arguments:
        yield "| argument | |\n|---|---|"
        yield from (f"| `{_shown(each)}` | {linked(cell(each.help))}{_default(each)} |" for each in arguments)
        yield ""
    if options:
        yield "| option | |\n|---|---|"
        yield from (f"| {_names(each)} | {linked(cell(each.help))}{_more(each)}{_default(each)} |" for each in options)
        yield ""


def anchor(path: str, name: str) -> str:
    """What MkDocs and GitHub make of a heading in backticks."""
    return f"{path} {name}".replace(" ", "-")


def paragraphs(text: str | None) -> str:
    """A help text: lines of a paragraph are joined; what is indented is kept."""
    found = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(part if part.startswith((" ", "-", "*")) else " ".join(part.split()) for part in found)


def linked(text: str) -> str:
    """A page of the docs that a text names by its path is led to."""
    return _PAGE.sub(r"[\1](../\1)", text)


def cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


def _shown(argument: Any) -> str:
    name = (argument.metavar or argument.name or "").upper()
    if name.startswith("["):
        return str(name)
    many = "..." if argument.nargs == -1 and not name.endswith("...") else ""
    return f"{name}{many}" if argument.required else f"[{name}]{many}"


def _names(option: Any) -> str:
    both = [*option.opts, *option.secondary_opts]
    if option.is_flag or option.count:
        return ", ".join(f"`{name}`" for name in both)
    metavar = (option.metavar or option.name.upper()).replace("|", "\\|")
    return ", ".join(f"`{name} {metavar}`" for name in both)


def _more(option: Any) -> str:
    words = []
    if option.required:
        words.append("needed")
    if option.multiple:
        words.append("may be given several times")
    if option.envvar:
        words.append(f"or by `{option.envvar}`")
    return f" ({'; '.join(words)})" if words else ""


def _default(parameter: Any) -> str:
    """What holds where nothing is said, if the help would say it too."""
    value = parameter.default
    if not parameter.show_default or parameter.required or value is None or value is False or callable(value):
        return ""
    shown = parameter.show_default if isinstance(parameter.show_default, str) else getattr(value, "value", value)
    return f" Default: `{shown}`." if shown not in ((), [], "") else ""
