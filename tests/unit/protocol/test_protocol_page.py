"""docs/protocol.md is complete: every call, ticket, message and field stands in it, and its bytes are what is sent."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headwater import errors
from headwater.protocol import lake_calls, places, streams
from headwater.protocol.calls import CALLS
from headwater.protocol.codec import VERSION, unpack
from headwater.protocol.failures import Failure
from headwater.protocol.lake_calls import LAKE_CALLS
from headwater.server.settings import ServerLimits
from headwater.topics.appending import key_hash

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "protocol.md").read_text()
TOPIC = bytes(range(16))
RENAMED = {lake_calls.AtLsn: "LakeAtLsn", lake_calls.AtTime: "LakeAtTime"}
"""Two messages of one name: the page tells them apart."""


def fields_of(kind: Any) -> list[str]:
    if hasattr(kind, "_fields"):
        return list(kind._fields)
    if issubclass(kind, msgspec.Struct):
        return [field.name for field in msgspec.structs.fields(kind)]
    return [field.name for field in dataclasses.fields(kind)]


def messages_in(annotation: Any) -> list[Any]:
    """The kinds of messages that an annotation names, however deep."""
    if inspect.isclass(annotation) and (
        issubclass(annotation, msgspec.Struct) or dataclasses.is_dataclass(annotation) or hasattr(annotation, "_fields")
    ):
        return [annotation]
    return [found for each in typing.get_args(annotation) for found in messages_in(each)]


def all_messages() -> list[Any]:
    """Whatever travels: requests, answers, tickets and commands, and what is in them."""
    open_: list[Any] = [Failure, lake_calls.FramesEnd, streams.ReadTo, streams.RowsRequest, streams.RowsAnswer]
    open_ += typing.get_args(streams.Ticket) + typing.get_args(streams.Command) + typing.get_args(places.WirePlace)
    for call in {**CALLS, **LAKE_CALLS}.values():
        open_ += [call.request, *messages_in(call.answer)]
    found: list[Any] = []
    while open_:
        kind = open_.pop()
        if kind in found:
            continue
        found.append(kind)
        for annotation in typing.get_type_hints(kind, include_extras=True).values():
            open_ += messages_in(annotation)
    return sorted(found, key=lambda kind: str(kind.__name__))


def section(title: str) -> str:
    found = re.search(rf"^#### {title}\n(.*?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/protocol.md has no section {title}"
    return found[1]


def example(after: str) -> bytes:
    """The bytes of the first block behind these words."""
    block = PAGE[PAGE.index(after) :].split("```text\n", 1)[1].split("```", 1)[0]
    return bytes.fromhex("".join(block.split()))


@pytest.mark.parametrize("name", sorted({**CALLS, **LAKE_CALLS}))
def test_every_call_stands_in_the_page_with_its_request_and_its_right(name: str) -> None:
    call = {**CALLS, **LAKE_CALLS}[name]
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{name}` | [")]
    request = RENAMED.get(call.request, call.request.__name__)

    cells = [cell.strip() for cell in line.split("|")]
    assert cells[2] == f"[{request}](#{request.lower()})"
    assert cells[4] == (call.right or "any")
    assert cells[5] == ("yes" if call.retry else "no")


@pytest.mark.parametrize(
    "kind", all_messages(), ids=lambda kind: f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}"
)
def test_every_message_stands_in_the_page_with_its_fields_and_no_others(kind: Any) -> None:
    told = section(RENAMED.get(kind, kind.__name__))

    assert re.findall(r"^\| `(\w+)` \|", told, re.MULTILINE) == fields_of(kind)
    config = getattr(kind, "__struct_config__", None)
    is_array = hasattr(kind, "_fields") or (config is not None and config.array_like)
    assert ("n array, in this order" in told) == bool(is_array)
    if config is not None and config.tag:
        assert f'`"{config.tag}"`' in told


def test_every_link_within_the_page_leads_somewhere() -> None:
    titles = re.findall(r"^#+ (.*)$", PAGE, re.MULTILINE)
    anchors = [re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles]

    assert len(set(anchors)) == len(anchors), "two sections of one name"
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) <= set(anchors)


def test_every_error_and_every_limit_stands_in_the_page() -> None:
    kinds = [
        name
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.HeadwaterError) and kind is not errors.HeadwaterError
    ]
    assert [name for name in kinds if f"`{name}` |" not in PAGE] == []
    assert [field.name for field in dataclasses.fields(ServerLimits) if f"| `{field.name}`: " not in PAGE] == []


def test_the_example_in_bytes_is_what_travels() -> None:
    assert f"This is version {VERSION}." in PAGE
    assert unpack(example("AppendStream:\n"), streams.AppendStream) == streams.AppendStream(TOPIC, 1)
    request = unpack(example("has this RowsRequest"), streams.RowsRequest)
    assert request == streams.RowsRequest(number=1, partition=0, identity=streams.WireIdentity(7, 1, 0))
    answer = unpack(example("is answered by the RowsAnswer"), streams.RowsAnswer)
    assert answer.appended is not None and answer.appended.rows == 2
    ticket = unpack(example("has the ticket:"), streams.ReadRows)
    assert ticket == streams.ReadRows(TOPIC, places.AtWord("earliest"), follow=True)
    assert f"is `{key_hash('order-1', TOPIC).hex()}`" in PAGE
