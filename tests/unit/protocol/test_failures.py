"""Every error goes over the wire and comes back: the same class, the same text, the same facts."""

from __future__ import annotations

import inspect

import pytest

from headwater import errors
from headwater.errors import Conflict, HeadwaterError, InvalidRequest, LandingHalted, RefusedRow, RowsRefused
from headwater.protocol.codec import pack, unpack
from headwater.protocol.failures import KINDS, REFUSED_ROWS_MAX, Failure, error_of, failure_of
from tests.unit.protocol.every_error import ALL, FACTS, TOLD_FACTS, one_of


def sent(error: HeadwaterError) -> HeadwaterError:
    return error_of(unpack(pack(failure_of(error)), Failure))


def test_the_list_is_every_error_of_the_tree() -> None:
    ours = {kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, HeadwaterError)}

    assert set(KINDS.values()) == ours and len(ours) > 30
    assert all(kind.__name__ == name for name, kind in KINDS.items())


@pytest.mark.parametrize("error", ALL, ids=lambda error: type(error).__name__)
def test_an_error_comes_back_as_the_same_class_with_the_same_text_and_facts(error: HeadwaterError) -> None:
    back = sent(error)

    assert type(back) is type(error)
    assert str(back) == str(error) and back.message == error.message
    assert back.facts == error.facts
    assert list(back.facts) == list(error.facts), "the facts have changed places, so the text has"


@pytest.mark.parametrize("name", TOLD_FACTS)
def test_a_fact_that_msgpack_has_no_word_for_travels_as_it_stands_in_the_text(name: str) -> None:
    error = InvalidRequest("no", **{name: TOLD_FACTS[name]})

    back = sent(error)

    assert str(back) == str(error)
    assert back.facts == {name: str(TOLD_FACTS[name])}


@pytest.mark.parametrize("where", ["message", "fact", "name", "topic", "reason", "cause"])
def test_half_a_character_travels_as_its_escape(where: str) -> None:
    half = "a\ud800b"
    error: HeadwaterError = {
        "message": InvalidRequest(half),
        "fact": InvalidRequest("no", fact=half),
        "name": InvalidRequest("no", **{half: 1}),
        "topic": RowsRefused(half, [RefusedRow(0, "no")], 1),
        "reason": RowsRefused("orders", [RefusedRow(0, half)], 1),
        "cause": LandingHalted(half, "no"),
    }[where]

    back = sent(error)

    assert type(back) is type(error) and "ud800b" in str(back)
    str(back).encode("utf-8")


def test_refused_rows_come_back_one_by_one_and_counted() -> None:
    error = RowsRefused("orders", [RefusedRow(3, "amount: text"), RefusedRow(9, "größer")], 12, 7)

    back = sent(error)

    assert isinstance(back, RowsRefused)
    assert (back.topic, back.refused, back.refused_count, back.rows) == ("orders", error.refused, 7, 12)


def test_of_many_refused_rows_the_first_are_told_and_all_are_counted() -> None:
    error = RowsRefused("orders", [RefusedRow(each, "no") for each in range(REFUSED_ROWS_MAX + 50)], 1_000)

    back = sent(error)

    assert isinstance(back, RowsRefused)
    assert back.refused == error.refused[:REFUSED_ROWS_MAX]
    assert back.refused_count == REFUSED_ROWS_MAX + 50 and str(back) == str(error)


def test_the_cause_of_a_halt_comes_back() -> None:
    back = sent(LandingHalted("table-replaced", "the table is another one", table="a.b"))

    assert isinstance(back, LandingHalted) and back.cause == "table-replaced"
    assert back.facts == {"cause": "table-replaced", "table": "a.b"}


def test_a_kind_that_is_not_known_comes_as_the_nearest_that_is() -> None:
    class LaterConflict(errors.OffsetMismatch):
        """What a later version may have."""

    assert type(sent(LaterConflict("later", offset=1))) is errors.OffsetMismatch
    assert type(error_of(Failure(("Later", "Conflict", "HeadwaterError"), "m"))) is Conflict
    assert type(error_of(Failure(("Later",), "m"))) is HeadwaterError
    assert type(error_of(Failure((), "m"))) is HeadwaterError


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.__name__)
def test_facts_that_only_a_stranger_would_send_do_no_harm(kind: type[HeadwaterError]) -> None:
    """They are named like the parameters of the error itself."""
    names = ("self", "message", "cause", "topic", "refused", "rows", "count", "args", "__class__")
    failure = Failure((kind.__name__,), "m", dict.fromkeys(names, 1))

    assert type(error_of(failure)) is kind


def test_the_name_of_something_else_in_the_module_is_no_kind() -> None:
    for name in ("RefusedRow", "Sequence", "dataclass", "__builtins__", "Exception", "SystemExit"):
        assert type(error_of(Failure((name,), "m"))) is HeadwaterError


def test_a_failure_without_anything_in_it_is_the_root() -> None:
    assert type(error_of(unpack(pack({"kinds": [], "message": ""}), Failure))) is HeadwaterError


def test_facts_of_every_sort_are_there() -> None:
    assert {type(value) for value in FACTS.values()} == {str, int, float, bool, type(None), list}
    assert one_of(InvalidRequest, **FACTS).facts == FACTS
