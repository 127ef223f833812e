"""The few verbs through which every byte reaches an object store, and what each promises.

NAMES    Relative to a prefix, with `/`: "log/trim".  There are no directories: a name is all that there is.
ETAGS    A word that the store gives to what a name holds; another content has another etag.
SURE     A verb that returns has been done, and whoever reads afterwards sees it.  So do Exists, Changed and
         FileNotFoundError, which are answers: the store looked, and nothing was changed.
UNSURE   StoreUnsure: an error of the store, a time-out, a lost reply, "try again".  The verb may have been done, may be
         done later, or never.  Whoever gets it asks again; nobody below this seam does, so that each request is
         counted and each outcome is somebody's to judge.

verb            when it has returned                                      answers
put             the name holds these bytes, whatever it held before
put_if_absent   the name held nothing, and holds these bytes              Exists
put_if_match    the name held what had this etag, and holds these bytes   Changed (another content, or none)
get             all bytes of a name, and their etag                       FileNotFoundError
get_range       some of them; fewer only where the object ends            FileNotFoundError
size            how many bytes a name holds                               FileNotFoundError
list_after      names that begin with a prefix, sorted, after a name; what was written or deleted a moment ago may
                or may not be there: nothing is decided by a list alone
delete          the name holds nothing; a name that held nothing is no error
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Protocol

from headwater.storage.files import Buffer


class Exists(OSError):
    """put_if_absent: the name holds something already."""


class Changed(OSError):
    """put_if_match: the name holds something else than what had the etag, or nothing."""


class StoreUnsure(OSError):
    """The store did not say what became of a request: it may have been done, or be done later, or never."""


@dataclass(frozen=True)
class Found:
    """What a name holds."""

    data: bytes
    etag: str


@dataclass(frozen=True)
class Listed:
    name: str
    size: int
    modified_us: int
    """The store's clock; for people, and for what is old by hours."""


@dataclass
class StoreCounters:
    """Requests that were sent, by what a price list calls them, and bytes.  They only rise."""

    puts: int = 0
    gets: int = 0
    lists: int = 0
    deletes: int = 0
    bytes_put: int = 0
    bytes_got: int = 0
    unsure: int = 0
    """Requests of which the store did not say what became of them."""

    def as_dict(self) -> dict[str, int]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


class Objects(Protocol):
    """A part of an object store: all names below one prefix.  Safe for any number of threads."""

    @property
    def url(self) -> str:
        """How another process would open it."""
        ...

    @property
    def counters(self) -> StoreCounters: ...

    def put(self, name: str, data: Buffer) -> str: ...

    def put_if_absent(self, name: str, data: Buffer) -> str: ...

    def put_if_match(self, name: str, data: Buffer, etag: str) -> str: ...

    def get(self, name: str) -> Found: ...

    def get_range(self, name: str, start: int, size: int) -> bytes: ...

    def size(self, name: str) -> int: ...

    def list_after(self, prefix: str, after: str = "", *, limit: int = 1000) -> list[Listed]: ...

    def delete(self, name: str) -> None: ...
