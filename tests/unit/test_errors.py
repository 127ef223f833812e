"""The error tree as its docstring draws it, and messages with their facts."""

from __future__ import annotations

import inspect

from headwater import errors
from headwater.errors import HeadwaterError, LogLocked


def tree(root: type[HeadwaterError], depth: int = 0) -> list[tuple[int, str]]:
    found = [(depth, root.__name__)]
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            found += tree(child, depth + 1)
    return found


def drawn() -> list[tuple[int, str]]:
    """The picture at the top of the file: names by how far they are indented."""
    found = []
    for line in (errors.__doc__ or "").splitlines():
        name = line.lstrip("│├└─ ").split(" ")[0]
        if line.startswith(("HeadwaterError", "├", "└", "│")):
            found.append(((len(line) - len(line.lstrip("│├└─ "))) // 4, name))
    return found


def test_the_picture_at_the_top_of_the_file_is_the_tree() -> None:
    assert sorted(drawn()) == sorted(tree(HeadwaterError))
    assert len(drawn()) > 10


def test_every_error_says_what_it_means() -> None:
    ours = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if cls.__module__ == errors.__name__]

    for cls in ours:
        assert (issubclass(cls, HeadwaterError) or cls is errors.RefusedRow) and cls.__doc__
    assert len(ours) > 20


def test_facts_stand_in_the_message_and_are_there_for_programs() -> None:
    error = LogLocked("owned by another", directory="log", pid=7)

    assert str(error) == "owned by another (directory=log, pid=7)"
    assert error.message == "owned by another" and error.facts == {"directory": "log", "pid": 7}


def test_a_message_without_facts_stands_alone() -> None:
    assert str(HeadwaterError("plainly")) == "plainly"
