"""An error that stops somebody says what to do next: every message of these kinds is read here, as it is written.

NOT HERE  What the message of one error says: the tests of whoever raises it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from headwater import errors

SOURCE = Path(errors.__file__).parent
A_PERSON_DECIDES = {
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.Halted | errors.Poisoned)
}
OTHERS_THAT_STOP = {
    "LogLocked", "CutExpired", "RowsUnlanded", "Fenced", "Forgotten", "NotAllowed", "Unauthenticated", "Conflict",
    "Duplicate", "OutOfSequence", "UnknownProducer", "TooLarge",
}  # fmt: skip
MESSAGE_IS = {"LandingHalted": 1}
"""The argument that is the message, where it is not the first."""
NEXT = re.compile(
    r"\b(?:run|restore|put|use|read|give|move|remove|close|open|audit|land|merge|begin|bring|take|wait|stop|look|roll|"
    r"replace|connect|drop|report|change|ask|make|ends|let go|split|send|join|append|plan again|go on|leave|store|"
    r"name|calls|is asked by|a token or a certificate with)\b|`headwater |nothing goes until|nothing was read"
)
"""Words with which a sentence tells somebody what to do; the two others say that time will do it."""


class Message(NamedTuple):
    place: str
    kind: str
    text: str


def messages(source: str, place: str, kinds: set[str]) -> Iterator[Message]:
    """What errors of these kinds are made with; values stand in it as `{}`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            kind = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            number = MESSAGE_IS.get(kind, 0)
            if kind in kinds and len(node.args) > number:
                yield Message(f"{place}:{node.lineno}", kind, _text(node.args[number]))


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(each) for each in node.values)
    if isinstance(node, ast.BinOp):
        return _text(node.left) + _text(node.right)
    return "{}"


def in_the_product() -> list[Message]:
    found: list[Message] = []
    for path in sorted(SOURCE.rglob("*.py")):
        found += messages(path.read_text(), str(path.relative_to(SOURCE)), A_PERSON_DECIDES | OTHERS_THAT_STOP)
    return found


def silent(found: list[Message]) -> list[str]:
    """Those that leave whoever reads them alone; one that only passes another on is not judged."""
    return [
        f"{each.place}: {each.kind}: {each.text}"
        for each in found
        if each.text.replace("{}", "").strip(" :;,") and not NEXT.search(each.text)
    ]


def test_whoever_is_stopped_is_told_what_to_do_next() -> None:
    found = in_the_product()

    assert len(found) > 80
    assert silent(found) == []


@pytest.mark.parametrize(("text", "judged"), [("rows are gone", 1), ("rows are gone: restore the table", 0)])
def test_a_message_that_leaves_its_reader_alone_is_found(text: str, judged: int) -> None:
    source = f"raise LandingHalted('gap', f'{text}' + '', table=name)"

    assert len(silent(list(messages(source, "here", A_PERSON_DECIDES)))) == judged
