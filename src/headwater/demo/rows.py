"""The rows of the demo: each is known by its number, and all of it follows from that number.

REQUEST  Writer w sends requests 0, 1, 2 ...; request r holds the numbers that `numbers_of(w, r)` gives, and no other
         request does.  So whoever knows which requests were acknowledged knows every row, value for value.
KEYED    Every fifth request of the keyed writer deletes keys instead; a deletion has no number in the table, so those
         are counted by key.
"""

from __future__ import annotations

from collections.abc import Iterable

ORDERS, ACCOUNTS = "orders", "accounts"
ORDERS_TABLE, ACCOUNTS_TABLE = "shop.orders", "shop.accounts"
CHANGES_TABLE = f"{ACCOUNTS_TABLE}_changes"
"""Where the changes of the keyed topic land."""

ORDERS_SCHEMA = {"id": int, "writer": int, "amount": float, "note": str}
ACCOUNTS_SCHEMA = {"account": int, "change": int, "balance": int}

ROWS_OF_A_REQUEST = 100
WRITER_SPAN = 100_000_000
"""So many numbers each writer has."""
KEYS = 97
DELETES_EVERY = 5
DELETED_KEYS = 7


def numbers_of(writer: int, request: int) -> range:
    first = writer * WRITER_SPAN + request * ROWS_OF_A_REQUEST
    return range(first, first + ROWS_OF_A_REQUEST)


def writer_of(number: int) -> int:
    return number // WRITER_SPAN


def amount_of(number: int) -> float:
    return (number * 7919 % 100_003) / 100


def note_of(number: int) -> str:
    return f"order {number:,} of writer {writer_of(number)}"


def balance_of(number: int) -> int:
    return number * 31 % 1_000_003


def key_of(number: int) -> int:
    return number % KEYS


def order_columns(numbers: Iterable[int]) -> dict[str, list[object]]:
    """Rows of `orders` with these numbers, as columns."""
    given = list(numbers)
    return {
        "id": list(given),
        "writer": [writer_of(each) for each in given],
        "amount": [amount_of(each) for each in given],
        "note": [note_of(each) for each in given],
    }


def account_columns(numbers: Iterable[int]) -> dict[str, list[object]]:
    """Changes of `accounts` with these numbers, as columns."""
    given = list(numbers)
    return {
        "account": [key_of(each) for each in given],
        "change": list(given),
        "balance": [balance_of(each) for each in given],
    }


def deletes(request: int) -> bool:
    """Does this request of the keyed writer delete?"""
    return request % DELETES_EVERY == DELETES_EVERY - 1


def deleted_keys(request: int) -> list[int]:
    return [(request * 13 + each * 5) % KEYS for each in range(DELETED_KEYS)]
