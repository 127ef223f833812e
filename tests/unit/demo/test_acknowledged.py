"""The demo's own account: what was sent, what was acknowledged, and where a writer's next life begins."""

from __future__ import annotations

from collections import Counter

import pytest

from headwater.demo.acknowledged import Account, Acknowledged
from headwater.demo.rows import DELETED_KEYS, ROWS_OF_A_REQUEST, deleted_keys, deletes, numbers_of


def test_a_request_counts_when_its_answer_has_come() -> None:
    account = Account(1, "producer")

    account.take({"sending": 0})
    assert account.rows == 0 and account.sent == {0}

    account.take({"acknowledged": 0, "duplicate": True, "lsn": 9})
    assert account.rows == ROWS_OF_A_REQUEST and account.duplicates == 1 and account.lsn == 9


@pytest.mark.parametrize(
    ("how", "acknowledged", "following"),
    [
        ("producer", False, 4),
        ("idempotent", False, 4),
        ("keyed", False, 4),
        ("append", False, 5),
        ("producer", True, 5),
    ],
)
def test_the_next_life_sends_again_what_nobody_heard_of_if_that_is_safe(
    how: str, acknowledged: bool, following: int
) -> None:
    account = Account(1, how)
    account.take({"sending": 4})
    if acknowledged:
        account.take({"acknowledged": 4})

    assert account.next_request == following


def test_a_writer_that_never_sent_begins_at_the_beginning() -> None:
    assert Account(1, "append").next_request == 0
    assert Account(1, "producer").next_request == 0


def test_deletions_are_counted_by_key_and_have_no_numbers() -> None:
    keyed = Account(4, "keyed")
    for request in range(5):
        keyed.take({"sending": request})
        keyed.take({"acknowledged": request})
    known = Acknowledged([keyed])

    assert [request for request in range(5) if deletes(request)] == [4]
    assert set(known.numbers(keyed=True)) == {number for request in range(4) for number in numbers_of(4, request)}
    assert known.deletions() == Counter(deleted_keys(4))
    assert known.rows == 4 * ROWS_OF_A_REQUEST + DELETED_KEYS
    assert not list(known.numbers(keyed=False))


def test_no_two_requests_share_a_number() -> None:
    requests = [numbers_of(writer, request) for writer in range(1, 5) for request in range(200)]

    assert len({number for numbers in requests for number in numbers}) == len(requests) * ROWS_OF_A_REQUEST
