"""Cuts as tokens: what comes back from one, and what is refused."""

from __future__ import annotations

import base64
import string

import msgspec
import pytest

from headwater.errors import InvalidRequest
from headwater.frames.checksum import crc32c
from headwater.lake.cut import PREFIX, Cut, TopicCut

ORDERS, ITEMS = "0a" * 16, "0b" * 16
CUT = Cut(
    "10" * 16,
    2**40,
    1_700_000_000_000_000,
    (TopicCut(ORDERS, 2**62, 17, 2**61, 9), TopicCut(ITEMS, log_rows=3)),
)


def token_of(body: bytes) -> str:
    """A token around any bytes, with a checksum that is right."""
    return PREFIX + base64.urlsafe_b64encode(crc32c(body).to_bytes(4, "little") + body).decode()


def test_a_cut_comes_back_from_its_token() -> None:
    again = Cut.parse(str(CUT))

    assert again == CUT and hash(again) == hash(CUT)
    assert (again.log_id, again.lsn, again.time_us) == ("10" * 16, 2**40, 1_700_000_000_000_000)
    assert again.topic(ORDERS) == TopicCut(ORDERS, 2**62, 17, 2**61, 9)
    assert again.topic(ITEMS).log_rows == 3
    assert len(str(CUT)) < 250


def test_the_order_in_which_topics_were_named_makes_no_other_cut() -> None:
    turned = Cut(CUT.log_id, CUT.lsn, CUT.time_us, CUT.topics[::-1])

    assert turned == CUT and str(turned) == str(CUT)


def test_cuts_differ_in_each_of_their_parts_and_from_anything_else() -> None:
    others = [
        Cut("11" * 16, CUT.lsn, CUT.time_us, CUT.topics),
        Cut(CUT.log_id, CUT.lsn + 1, CUT.time_us, CUT.topics),
        Cut(CUT.log_id, CUT.lsn, CUT.time_us + 1, CUT.topics),
        Cut(CUT.log_id, CUT.lsn, CUT.time_us, CUT.topics[:1]),
    ]

    assert all(other != CUT for other in others)
    assert str(CUT) != CUT
    assert repr(CUT) == f"Cut(lsn={2**40}, topics=2)"


def test_a_topic_that_is_not_in_a_cut_is_told() -> None:
    with pytest.raises(InvalidRequest, match="not in this cut"):
        CUT.topic("0c" * 16)


@pytest.mark.parametrize("topics", [CUT.topics, CUT.topics[:1], ()], ids=len)
def test_a_token_that_was_changed_by_one_character_is_refused(topics: tuple[TopicCut, ...]) -> None:
    token = str(Cut(CUT.log_id, CUT.lsn, CUT.time_us, topics))
    alphabet = string.ascii_letters + string.digits + "-_=! \n"

    accepted = []
    for place in range(len(token)):
        for character in alphabet:
            changed = token[:place] + character + token[place + 1 :]
            if changed != token and is_accepted(changed):
                accepted.append(changed)

    assert accepted == []


def test_a_token_that_is_longer_or_shorter_is_refused() -> None:
    token = str(CUT)
    changed = [token[:end] for end in range(len(token))]
    changed += [token + more for more in ("A", "=", "==", "!", "\n", " ")]
    changed += [token[:40] + more + token[40:] for more in ("A", "!", "\n")]

    assert [each for each in changed if is_accepted(each)] == []


def test_what_is_no_token_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match="begins with hwcut1"):
        Cut.parse("2026-11-15T10:00:00Z")
    with pytest.raises(InvalidRequest, match="cannot be read"):
        Cut.parse(PREFIX + "grüße")
    with pytest.raises(InvalidRequest, match="changed or cut short"):
        Cut.parse(PREFIX + "AAAA")
    with pytest.raises(InvalidRequest, match="cannot be read"):
        Cut.parse(token_of(b"\xc1"))
    with pytest.raises(InvalidRequest, match="cannot be read"):
        Cut.parse(token_of(msgspec.msgpack.encode(["10" * 16, "not a number", 1, []])))


def test_a_token_of_the_same_cut_in_other_bytes_is_refused() -> None:
    # The same values with the topics in another order: nobody wrote it, and it would not compare as text.
    packed = [CUT.log_id, CUT.lsn, CUT.time_us, [list(msgspec.structs.astuple(each)) for each in CUT.topics[::-1]]]

    with pytest.raises(InvalidRequest, match="was changed"):
        Cut.parse(token_of(msgspec.msgpack.encode(packed)))


def is_accepted(token: str) -> bool:
    try:
        Cut.parse(token)
    except InvalidRequest:
        return False
    return True
