"""An S3 bucket, or any store that speaks its protocol, as Objects.

PROMISE  One call is one request (a list: one a page), sent once: the client's own retries are off, and a put is never
         split.  What the answers mean is read from their status and code (storage/s3_answers.py), because Exists,
         Changed and FileNotFoundError must be said only by a store that looked.
REFUSED  What asking again cannot mend (credentials, a bucket that is not there, a wrong region, a store without
         conditional puts) is PermissionError, at once: it names the bucket and what the store said.
TIME     Connecting is given up after 5 s, a put after 30 s (one of at most 4 KiB after 5 s, because leases hang on
         such; one above 16 MiB after 5 minutes), a read when nothing has come for 30 s.  All of these are StoreUnsure.
ADDRESS  s3://bucket/prefix.  Endpoint, region and credentials come by the usual environment (AWS_ENDPOINT_URL,
         AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN; AWS_ALLOW_HTTP=true for an endpoint
         without TLS), by a container's or web identity's, or by the machine's metadata service.
FORK     The client's threads do not live on in a forked child, where a request would wait for ever: Closed, instead.
NOT HERE Asking again, and judging what was unsure: whoever calls.  Other kinds of stores: none has been tested.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import threading
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, ClassVar

from headwater.errors import Closed, InvalidRequest
from headwater.storage.files import Buffer
from headwater.storage.objects import Changed, Exists, Found, Listed, StoreCounters, StoreUnsure
from headwater.storage.s3_answers import Answer, Meaning, read_answer

try:
    import obstore
    from obstore.exceptions import BaseError
    from obstore.store import S3Store
except ImportError as error:
    raise InvalidRequest("a log in a bucket needs the extra `objects`: pip install 'headwater[objects]'") from error

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta, PutMode
    from obstore.store import ClientConfig

CONNECT_S_MAX = 5.0
REQUEST_S_MAX = 30.0
SMALL_REQUEST_S_MAX = 5.0
SMALL_BYTES = 4 << 10
LARGE_REQUEST_S_MAX = 300.0
LARGE_BYTES = 16 << 20
PAGE_NAMES = 1_000
"""S3 lists so many names a request."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ADDRESS = re.compile(r"s3://([A-Za-z0-9][A-Za-z0-9._-]{2,62})(?:/(.*))?", re.DOTALL)
_SEGMENT = re.compile(r"[A-Za-z0-9_.=+@-]+")
"""The client writes other characters in another way, and would not find them again in a list."""

_YES = frozenset({"1", "true", "yes", "on"})

_CREDENTIALS = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run where the machine gives credentials"

_ERRORS = (BaseError, FileNotFoundError)


class S3Objects:
    """Every name below one prefix of one bucket."""

    _client_pid: ClassVar[int | None] = None
    """The process in which the client's threads run."""

    def __init__(self, url: str, *, request_s_max: float = REQUEST_S_MAX) -> None:
        self._bucket, prefix = parse_address(url)
        self._url = f"s3://{self._bucket}/{prefix}" if prefix else f"s3://{self._bucket}"
        self._root = f"{prefix}/" if prefix else ""
        self._counters = StoreCounters()
        self._lock = threading.Lock()
        self._answered = False
        S3Objects._client_pid = S3Objects._client_pid or os.getpid()
        self._small_puts = self._client(total_s=min(request_s_max, SMALL_REQUEST_S_MAX))
        self._puts = self._client(total_s=request_s_max)
        self._large_puts = self._client(total_s=max(request_s_max, LARGE_REQUEST_S_MAX))
        # A read takes as long as its bytes take; the clock that matters runs while nothing comes.
        self._reads = self._client(total_s=max(request_s_max, LARGE_REQUEST_S_MAX), silence_s=request_s_max)

    @property
    def url(self) -> str:
        return self._url

    @property
    def counters(self) -> StoreCounters:
        return self._counters

    # -------------------------------------------------------------------------------------------------- puts

    def put(self, name: str, data: Buffer) -> str:
        return self._put(name, data, "overwrite", {})

    def put_if_absent(self, name: str, data: Buffer) -> str:
        return self._put(name, data, "create", {Meaning.UNMET: Exists})

    def put_if_match(self, name: str, data: Buffer, etag: str) -> str:
        return self._put(name, data, {"e_tag": etag}, {Meaning.UNMET: Changed, Meaning.ABSENT: Changed})

    def _put(self, name: str, data: Buffer, mode: PutMode, answers: Mapping[Meaning, type[OSError]]) -> str:
        key = self._key(name)
        size = memoryview(data).nbytes
        client = self._puts
        if size <= SMALL_BYTES:
            client = self._small_puts
        elif size > LARGE_BYTES:
            client = self._large_puts
        self._count(puts=1, bytes_put=size)
        try:
            done = obstore.put(client, key, data, mode=mode, use_multipart=False)
        except _ERRORS as error:
            raise self._judge(name, error, answers) from error
        return self._etag(name, done["e_tag"])

    # ------------------------------------------------------------------------------------------------- reads

    def get(self, name: str) -> Found:
        data, meta = self._get(name, {})
        return Found(data, self._etag(name, meta["e_tag"]))

    def get_range(self, name: str, start: int, size: int) -> bytes:
        if not size:
            self.size(name)  # an absent name is told even by a read of nothing
            return b""
        try:
            data, _ = self._get(name, {"range": (start, start + size)})
        except _BeyondTheEnd:
            return b""
        return data

    def size(self, name: str) -> int:
        # Not by HEAD: its answers have no body, so a bucket that is not there would look like an absent object.
        try:
            _, meta = self._get(name, {"range": (0, 1)})
        except _BeyondTheEnd:
            return 0
        return meta["size"]

    def _get(self, name: str, options: GetOptions) -> tuple[bytes, ObjectMeta]:
        key = self._key(name)
        self._count(gets=1)
        try:
            # The client itself sees to it that all bytes come, and those that were asked for.
            answer = obstore.get(self._reads, key, options=options)
            data = bytes(answer.bytes())
        except _ERRORS as error:
            raise self._judge(
                name, error, {Meaning.ABSENT: FileNotFoundError, Meaning.BEYOND: _BeyondTheEnd}
            ) from error
        self._count(bytes_got=len(data))
        return data, answer.meta

    # ----------------------------------------------------------------------------------------- list, delete

    def list_after(self, prefix: str, after: str = "", *, limit: int = 1000) -> list[Listed]:
        assert limit > 0, limit
        begins = self._key(prefix)
        folder = begins.rpartition("/")[0]
        from_key = max(_just_before(begins), self._root + after if after else "")
        found: list[Listed] = []
        seen = 0
        try:
            # The client lists whole folders only; the rest of the prefix is looked at here.
            stream = obstore.list(
                self._reads, folder or None, offset=from_key or None, chunk_size=min(limit, PAGE_NAMES)
            )
            for meta in _each(stream):
                seen += 1
                if meta["path"].startswith(begins) and meta["path"] > from_key:
                    found.append(self._listed(meta))
                if len(found) == limit or meta["path"][: len(begins)] > begins:
                    break
        except _ERRORS as error:
            raise self._judge(prefix, error, {}) from error
        finally:
            self._count(lists=max(-(-seen // PAGE_NAMES), 1))
        if any(one.name >= other.name for one, other in itertools.pairwise(found)):
            raise self._refusal(
                prefix, "it lists names in no order (a directory bucket?), and this needs them in order"
            )
        return found

    def delete(self, name: str) -> None:
        key = self._key(name)
        self._count(deletes=1)
        try:
            obstore.delete(self._puts, key)
        except _ERRORS as error:
            told = self._judge(name, error, {Meaning.ABSENT: FileNotFoundError})
            if not isinstance(told, FileNotFoundError):
                raise told from error

    def _listed(self, meta: ObjectMeta) -> Listed:
        modified_us = (meta["last_modified"] - _EPOCH) // timedelta(microseconds=1)
        return Listed(meta["path"].removeprefix(self._root), meta["size"], modified_us)

    # ----------------------------------------------------------------------------------------------- judging

    def _judge(self, name: str, error: Exception, answers: Mapping[Meaning, type[OSError]]) -> OSError:
        """What to raise for an error of the client; `answers` are those that this verb can have."""
        answer = read_answer(str(error))
        meaning = answer.meaning
        if answer.before_the_store:
            if not self._answered:
                return self._refusal(name, f"no credentials were found: {_CREDENTIALS} ({answer.text})")
            meaning = Meaning.UNSURE  # there were some, so there will be some again
        if meaning in answers:
            self._answered = True
            return answers[meaning](_ERRNO.get(answers[meaning], errno.EIO), answer.text, f"{self._url}/{name}")
        if meaning is Meaning.UNSURE:
            return self._unsure(name, answer.text)
        return self._refusal(name, _advice(answer, self._bucket))

    def _unsure(self, name: str, what: str) -> StoreUnsure:
        self._count(unsure=1)
        return StoreUnsure(
            errno.EAGAIN, f"the store did not say what became of a request: {what}", f"{self._url}/{name}"
        )

    def _refusal(self, name: str, what: str) -> PermissionError:
        return PermissionError(errno.EACCES, f"the store refuses: {what}", f"{self._url}/{name}")

    def _etag(self, name: str, etag: str | None) -> str:
        if not etag:
            raise self._refusal(name, "it gives no etags, so no conditional put can be made")
        self._answered = True
        return etag

    # ------------------------------------------------------------------------------------------------ client

    def _client(self, *, total_s: float, silence_s: float | None = None) -> S3Store:
        options: ClientConfig = {
            "connect_timeout": timedelta(seconds=CONNECT_S_MAX),
            "timeout": timedelta(seconds=total_s),
            # Options that are given here make the client look for none in the environment.
            "allow_http": os.environ.get("AWS_ALLOW_HTTP", "").lower() in _YES,
        }
        if silence_s is not None:
            options["read_timeout"] = timedelta(seconds=silence_s)
        return S3Store(
            self._bucket,
            # A bulk delete answers 200 and hides in its body which names it refused.
            config={"disable_bulk_delete": True, "conditional_put": "etag"},
            client_options=options,
            retry_config={"max_retries": 0},
        )

    def _key(self, name: str) -> str:
        if os.getpid() != S3Objects._client_pid:
            raise Closed(
                "this process was forked from one that used an object store, whose client does not work after a fork; "
                "start a new process (multiprocessing: `spawn`)",
                name=name,
            )
        return self._root + name

    def _count(self, **by: int) -> None:
        with self._lock:
            for counter, number in by.items():
                setattr(self._counters, counter, getattr(self._counters, counter) + number)


class _BeyondTheEnd(OSError):
    """A range began at or after the end of its object."""


_ERRNO: Mapping[type[OSError], int] = {FileNotFoundError: errno.ENOENT, Exists: errno.EEXIST, Changed: errno.ESTALE}


def parse_address(url: str) -> tuple[str, str]:
    """Bucket and prefix of s3://bucket/prefix; slashes at the end mean nothing."""
    found = _ADDRESS.fullmatch(url)
    if found is None:
        raise InvalidRequest("an address in a bucket is s3://bucket or s3://bucket/prefix", got=url)
    prefix = (found[2] or "").rstrip("/")
    for segment in prefix.split("/") if prefix else ():
        if segment in (".", "..") or not _SEGMENT.fullmatch(segment):
            raise InvalidRequest(
                "the parts of a prefix are letters, digits and any of _ . = + @ -, with one / between them", got=url
            )
    return found[1], prefix


def _just_before(begins: str) -> str:
    """A key below all that begin so, and above most others: a list that starts after it need not read from the front.
    What it lets through too many is looked at again."""
    if not begins or begins.endswith("/"):
        return ""
    return f"{begins[:-1]}{chr(ord(begins[-1]) - 1)}zzzz"


def _each(chunks: Iterable[Iterable[ObjectMeta]]) -> Iterable[ObjectMeta]:
    for chunk in chunks:
        yield from chunk


def _advice(answer: Answer, bucket: str) -> str:
    if answer.code == "NoSuchBucket":
        return f"there is no bucket {bucket!r}: make it, or mind the name and AWS_ENDPOINT_URL ({answer.text})"
    if answer.status in (401, 403):
        return f"look at AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and what they may do ({answer.text})"
    if answer.status == 501:
        return f"it cannot do what is needed, conditional puts among it ({answer.text})"
    if "builder error" in answer.text:
        return f"an endpoint without TLS needs AWS_ALLOW_HTTP=true ({answer.text})"
    return f"look at AWS_ENDPOINT_URL and AWS_REGION ({answer.text})"
