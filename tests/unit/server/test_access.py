"""Who may do what: grants by topic and prefix, deny by default, and topics that are hidden."""

from __future__ import annotations

import pytest

import headwater as hw
from headwater.errors import InvalidRequest, NotAllowed, UnknownTopic
from headwater.protocol.streams import Right
from headwater.server.access import (
    EVERYBODY,
    RIGHTS,
    Grant,
    OpenAccess,
    Principal,
    check,
    check_all,
    check_known,
    check_making,
    parse_grant,
    unknown_topic,
)


def principal(*grants: str) -> Principal:
    return Principal("loader", tuple(parse_grant(each) for each in grants))


@pytest.mark.parametrize(
    ("grant", "topic", "covers"),
    [
        ("read:orders", "orders", True),
        ("read:orders", "orders.eu", False),
        ("read:orders", "order", False),
        ("read:orders", "Orders", False),
        ("read:orders.*", "orders.eu", True),
        ("read:orders.*", "orders.", True),
        ("read:orders.*", "orders", False),
        ("read:orders*", "orders2", True),
        ("read:*", "anything", True),
    ],
)
def test_a_grant_is_for_one_topic_or_for_those_that_begin_alike(grant: str, topic: str, covers: bool) -> None:
    assert principal(grant).may("read", topic) is covers


def test_a_right_holds_no_other() -> None:
    for right in RIGHTS:
        others: list[Right] = [each for each in RIGHTS if each != right]

        holder = principal(f"{right}:*")

        assert holder.may(right, "orders") and holder.may_any(right) and holder.may_all(right)
        assert not any(holder.may(each, "orders") or holder.may_any(each) or holder.may_all(each) for each in others)


def test_nothing_is_allowed_that_was_not_granted() -> None:
    nobody = Principal("nobody")

    assert not any(nobody.may(right, "orders") or nobody.may_any(right) for right in RIGHTS)
    assert not nobody.knows("orders")


@pytest.mark.parametrize(
    "text", ["", "read", "read:", ":orders", "rea:orders", "READ:orders", "read:a b", "read:*x", "read:**", "read:o/*"]
)
def test_what_is_no_grant_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_grant(text)


def test_a_grant_is_written_as_it_is_read() -> None:
    for text in ("read:orders", "write:orders.*", "admin:*"):
        assert str(parse_grant(text)) == text
    assert parse_grant("land:a*") == Grant("land", "a*")


def test_a_topic_that_a_principal_knows_of_is_refused_by_right() -> None:
    with pytest.raises(NotAllowed) as refused:
        check(principal("read:orders"), "write", "orders")

    assert refused.value.facts == {"principal": "loader", "right": "write", "topic": "orders"}
    check(principal("read:orders"), "read", "orders")
    check_known(principal("read:orders"), "orders")


def test_a_topic_without_any_right_is_refused_as_one_that_is_not_there() -> None:
    stranger = principal("read:orders")
    with hw.open(":memory:") as log, pytest.raises(UnknownTopic) as not_there:
        log.topic("secret")

    with pytest.raises(UnknownTopic) as hidden:
        check(stranger, "read", "secret", asked="secret")
    with pytest.raises(UnknownTopic) as known:
        check_known(stranger, "secret", asked="secret")

    assert str(hidden.value) == str(known.value) == str(not_there.value)


def test_a_topic_that_was_asked_for_by_its_id_does_not_give_its_name_away() -> None:
    with pytest.raises(UnknownTopic) as hidden:
        check(principal("read:orders"), "read", "secret-project")

    assert "secret-project" not in str(hidden.value)
    assert str(hidden.value) == str(unknown_topic())


def test_who_may_not_make_a_topic_hears_so_whether_it_is_there_or_not() -> None:
    with pytest.raises(NotAllowed):
        check_making(principal("write:orders", "admin:other*"), "orders")
    check_making(principal("admin:o*"), "orders")


def test_what_is_asked_of_the_whole_server_needs_the_right_over_every_topic() -> None:
    with pytest.raises(NotAllowed, match="a clean-up"):
        check_all(principal("admin:orders.*"), "admin", "a clean-up")
    check_all(principal("admin:*"), "admin", "a clean-up")


def test_without_tokens_everybody_may_do_everything() -> None:
    access = OpenAccess()

    assert access.authenticate(None, None) is EVERYBODY
    assert access.authenticate("Bearer anything", "anybody") is EVERYBODY
    assert all(EVERYBODY.may_all(right) for right in RIGHTS)
    access.close()
