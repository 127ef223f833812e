"""Many logs, and which of them each topic lives in: a registry of small objects in a bucket.

    logs/<log>              {"format": 1, "log": ..., "url": ...}       a log, and where it is
    topics/<topic>          {"format": 1, "topic": ..., "log": ...}     where a topic lives
    placed/<log>/<topic>    {}                                          for counting: one list gives every log's topics

PROMISE  A log and a topic's place are put if nothing is there, and never changed: whoever asks gets the same answer,
         today and later.  Of two who place one topic at the same time one wins, and both are told its log.
SPREAD   One object a topic: creating a thousand topics is a thousand names, not one that everybody waits for.
COUNTS   `placed/` is written after the place itself, so a crash between the two leaves a topic that is not counted
         until it is placed again.  Only the choice of a log for new topics goes by the counts.
NOT HERE Moving a topic: its offsets, its LSNs and what its table says of them are its log's, so it stays where it is.
         Who owns a log: the log itself says so (docs/objects.md).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from headwater.api.log import Log
from headwater.api.opening import open as open_log
from headwater.clock import system_entropy
from headwater.errors import (
    Conflict,
    CorruptData,
    InvalidRequest,
    TopicExists,
    Unavailable,
    UnknownFormat,
    UnknownTopic,
)
from headwater.lake.cut import Cut
from headwater.settings import Settings
from headwater.storage.objects import Objects, StoreUnsure
from headwater.storage.store_patience import Patience, put_new
from headwater.topics.names import check_topic_name

FORMAT = 1
LIST_NAMES = 1_000

_LOG_NAME = re.compile(r"[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,99}")

T = TypeVar("T")


@dataclass(frozen=True)
class RegisteredLog:
    """A log that a registry knows."""

    name: str
    url: str
    topics: int
    """How many topics were placed in it."""


class Registry:
    """The logs of a registry and the places of its topics: `hw.Registry("s3://bucket/registry")`."""

    def __init__(self, where: str | Objects, *, pause: Callable[[float], object] = time.sleep) -> None:
        self._objects = _objects_of(where) if isinstance(where, str) else where
        self._patience = Patience(system_entropy, pause)
        # What was read once is true for ever: nothing here is changed or deleted.
        self._urls: dict[str, str] = {}
        self._places: dict[str, str] = {}

    @property
    def url(self) -> str:
        """Where it is: s3://bucket/prefix."""
        return self._objects.url

    # Logs --------------------------------------------------------------------------------------

    def add_log(self, name: str, url: str) -> None:
        """Make a log known; saying it again is nothing, another URL for the same name is a Conflict.  The log itself
        is begun by whoever first writes to it."""
        if _LOG_NAME.fullmatch(name) is None:
            raise InvalidRequest(f"a log's name is 1 to 100 of a-z A-Z 0-9 . _ - and begins with no dot: not {name!r}")
        if "://" not in url and not url.startswith("/"):
            raise InvalidRequest(f"a log of a registry is named by a URL or a whole path: {url!r} is neither")
        url = url.rstrip("/")
        if not self._put(f"logs/{name}", {"format": FORMAT, "log": name, "url": url}) and self._log_url(name) != url:
            raise Conflict(
                "a log of this name is somewhere else: give this one another name", log=name, url=self._log_url(name)
            )
        self._urls[name] = url

    def logs(self) -> list[RegisteredLog]:
        """Every log, by name."""
        names = [name.removeprefix("logs/") for name in self._list("logs/")]
        counts = dict.fromkeys(names, 0)
        for placed in self._list("placed/"):
            log = placed.split("/")[1]
            # A log that was added a moment ago may be in the second list and not in the first.
            counts[log] = counts.get(log, 0) + 1
        return [RegisteredLog(name, self._log_url(name), count) for name, count in sorted(counts.items())]

    # Topics ------------------------------------------------------------------------------------

    def place(self, topic: str, log: str | None = None) -> str:
        """The URL of the log that the topic lives in, from now on and for ever: this one, else the one with the fewest
        topics.  A topic that has a place keeps it; TopicExists where that is not the log that was asked for."""
        check_topic_name(topic)
        if log is not None:
            self._log_url(log)
        wanted = log if log is not None else (self._place_of(topic) or self._emptiest())
        if not self._put(f"topics/{topic}", {"format": FORMAT, "topic": topic, "log": wanted}):
            there = self._place_of(topic)
            assert there is not None
            if log not in (None, there):
                raise TopicExists("the topic lives in another log, and topics are not moved", topic=topic, log=there)
            wanted = there
        self._places[topic] = wanted
        self._put(f"placed/{wanted}/{topic}", {})
        return self._log_url(wanted)

    def find(self, topic: str) -> str:
        """The URL of the log that the topic lives in; UnknownTopic where it has no place yet."""
        return self._log_url(self._found(topic))

    def topics(self) -> dict[str, str]:
        """Every topic that was counted, with the name of its log."""
        parts = [name.split("/") for name in self._list("placed/")]
        return {topic: log for _, log, topic in sorted(parts, key=lambda each: each[2])}

    def open(
        self, topic: str, *, catalog: str | Mapping[str, Any] | None = None, settings: Settings | None = None
    ) -> Log:
        """Open the log that the topic lives in; with anything else that `hw.open` takes, `hw.open(registry.find(topic),
        ...)`."""
        return open_log(self.find(topic), catalog=catalog, settings=settings)

    def cut(self, topics: Iterable[str], *, catalog: str | Mapping[str, Any] | None = None) -> dict[str, Cut]:
        """A cut of each log that these topics live in, by the log's name.  Consistent per log ONLY: within a log no
        transaction is in it by half; two logs are cut one after the other, and nothing orders a row of the one before
        a row of the other."""
        by_log: dict[str, list[str]] = {}
        for topic in topics:
            by_log.setdefault(self._found(topic), []).append(topic)
        cuts = {}
        for name, names in sorted(by_log.items()):
            with open_log(self._log_url(name), catalog=catalog) as log:
                cuts[name] = log.cut(*names)
        return cuts

    # The store ---------------------------------------------------------------------------------

    def _emptiest(self) -> str:
        logs = self.logs()
        if not logs:
            raise InvalidRequest("the registry knows no log yet: add one first", registry=self.url)
        return min(logs, key=lambda each: (each.topics, each.name)).name

    def _found(self, topic: str) -> str:
        check_topic_name(topic)
        log = self._place_of(topic)
        if log is None:
            raise UnknownTopic(f"the topic {topic!r} has no place in this registry: place it first", registry=self.url)
        return log

    def _place_of(self, topic: str) -> str | None:
        if topic not in self._places:
            content = self._get(f"topics/{topic}")
            if content is None:
                return None
            self._places[topic] = content["log"]
        return self._places[topic]

    def _log_url(self, name: str) -> str:
        if name not in self._urls:
            content = self._get(f"logs/{name}")
            if content is None:
                raise InvalidRequest(f"the registry knows no log {name!r}: add it first", registry=self.url)
            self._urls[name] = content["url"]
        return self._urls[name]

    def _put(self, name: str, content: dict[str, Any]) -> bool:
        """True once the object holds this, False where it holds something else."""
        data = json.dumps(content, sort_keys=True).encode()
        try:
            self._asked(lambda: put_new(self._patience, self._objects, name, data))
        except FileExistsError:
            return False
        return True

    def _get(self, name: str) -> dict[str, Any] | None:
        try:
            data = self._asked(lambda: self._patience.ask(lambda: self._objects.get(name))).data
        except FileNotFoundError:
            return None
        try:
            content = json.loads(data)
            version = content["format"]
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptData(
                "an object of the registry cannot be read: put it back from a copy", name=name, registry=self.url
            ) from error
        if version != FORMAT:
            raise UnknownFormat(
                "an object of the registry was written by a later version: use that one", name=name, format=version
            )
        assert isinstance(content, dict)
        return content

    def _list(self, prefix: str) -> list[str]:
        names: list[str] = []
        while True:
            list_once = partial(self._objects.list_after, prefix, names[-1] if names else "", limit=LIST_NAMES)
            page = self._asked(lambda: self._patience.ask(list_once))  # noqa: B023 (it is asked before the next)
            names += [each.name for each in page]
            if len(page) < LIST_NAMES:
                return names

    @staticmethod
    def _asked(request: Callable[[], T]) -> T:
        """What was put is what would be put again, so whoever is told Unavailable may just ask again."""
        try:
            return request()
        except StoreUnsure as error:
            raise Unavailable(f"the object store does not answer, ask the registry again: {error}") from error


def _objects_of(where: str) -> Objects:
    from headwater.storage.bucket_files import BucketFiles
    from headwater.storage.places import open_files

    files = open_files(where)
    if not isinstance(files, BucketFiles):
        raise InvalidRequest(f"a registry is in an object store, s3://bucket/prefix: {where!r} is not")
    return files.objects
