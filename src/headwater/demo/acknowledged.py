"""What the writers sent, and what was acknowledged to them: the demo's own account, outside the log.

PROMISE  A request is `sent` before it can have been applied, and `acknowledged` only after its answer has come.
         A request that was sent and is neither acknowledged nor sent again may be there, whole and once, or not at all.
THREADS  Each writer's messages come from one thread; anybody may count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from headwater.demo.children import Message
from headwater.demo.rows import DELETED_KEYS, ROWS_OF_A_REQUEST, deleted_keys, deletes, numbers_of


@dataclass
class Account:
    """One writer's."""

    writer: int
    how: str
    sent: set[int] = field(default_factory=set)
    acknowledged: set[int] = field(default_factory=set)
    last: int = -1
    """The request that was sent last."""
    lives: int = 1
    duplicates: int = 0
    """Requests that were sent again and had been applied before: they were given their first answer."""
    lsn: int = 0

    @property
    def keyed(self) -> bool:
        return self.how == "keyed"

    @property
    def rows(self) -> int:
        return sum(self._size(request) for request in tuple(self.acknowledged))

    @property
    def next_request(self) -> int:
        """Where its next life begins: with the request of which nobody heard, if it can be sent again."""
        if self.last in self.acknowledged or self.how == "append":
            return self.last + 1
        return max(self.last, 0)

    def take(self, message: Message) -> None:
        """What the writer said."""
        if "sending" in message:
            self.last = message["sending"]
            self.sent.add(self.last)
        elif "acknowledged" in message:
            self.acknowledged.add(message["acknowledged"])
            self.duplicates += bool(message.get("duplicate"))
            self.lsn = max(self.lsn, message.get("lsn", 0))

    def _size(self, request: int) -> int:
        return DELETED_KEYS if self.keyed and deletes(request) else ROWS_OF_A_REQUEST


@dataclass
class Acknowledged:
    """Of all writers."""

    accounts: list[Account] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(account.rows for account in self.accounts)

    def numbers(self, *, keyed: bool, sent: bool = False) -> Iterator[int]:
        """The number of every row that was acknowledged; with `sent`, that was sent at all."""
        for account in self.accounts:
            if account.keyed == keyed:
                for request in account.sent if sent else account.acknowledged:
                    if not (keyed and deletes(request)):
                        yield from numbers_of(account.writer, request)

    def deletions(self, *, sent: bool = False) -> Counter[int]:
        """How often each key's deletion was acknowledged; with `sent`, was sent at all."""
        found: Counter[int] = Counter()
        for account in self.accounts:
            if account.keyed:
                for request in account.sent if sent else account.acknowledged:
                    if deletes(request):
                        found.update(deleted_keys(request))
        return found
