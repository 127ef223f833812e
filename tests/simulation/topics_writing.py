"""Topics made, changed and deleted, and rows appended in every way: the writing half of a life's steps.

Each step draws what it does, tells the model the stages that it may come to, does it, and compares the answer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa

import headwater as hw
from headwater.api import Topic
from headwater.errors import (
    InvalidRequest,
    OffsetMismatch,
    OutcomeUnknown,
    Poisoned,
    RowsRefused,
    TopicExists,
    Unavailable,
    UnknownTopic,
)
from headwater.topics.partitioning import partition_ids
from tests.simulation.model import Violation
from tests.simulation.topics_life import Life
from tests.simulation.topics_model import PlainTopic, PlainTopics, Policy, Stage, Told, Values, Write
from tests.simulation.topics_observed import KEY_NAMES, key_of
from tests.unit.topics.small_engines import engine_of

NAMES = ("a", "b", "c")
KEYS = 5
COLUMNS = {
    "plain": {"n": "int64", "w": "int32", "p": "string"},
    "keyed": {"k": "int64", "n": "int64", "w": "int32", "p": "string"},
    "bytes": {each.name: str(each.type) for each in hw.BYTES},
    "rejected": {"row": "string", "reason": "string", "number": "int64"},
}
SCHEMAS: dict[str, Any] = {"plain": COLUMNS["plain"], "keyed": COLUMNS["keyed"], "bytes": hw.BYTES}
SIZES = (0, 0, 0, 20, 300, 900)
REJECTED = ".rejected"
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _homes() -> dict[int, list[int]]:
    keys = pa.record_batch({"k": pa.array(range(KEYS), pa.int64())})
    return {count: partition_ids(keys, ("k",), count).to_pylist() for count in range(1, 7)}


HOMES = _homes()
"""By the number of partitions, the partition of each key: for ever the same (docs/formats/partitioning.md)."""


class Request(NamedTuple):
    """Rows for a topic, as a caller gives them and as the model expects them."""

    topic: PlainTopic
    given: Any
    partition: int | None
    rows: list[tuple[Values, str]]
    rejected: list[tuple[int, Values]]

    def write(self, partition: int | None, **more: Any) -> Write:
        """The write, if rows without a key and without a partition go to this one."""
        rows = [(self.topic.name, self._home(values, partition), values, op) for values, op in self.rows]
        kept = [
            (self.topic.name + REJECTED, 0, {"row": json.dumps(row), "number": number}, "")
            for number, row in self.rejected
        ]
        return Write(rows=(*rows, *kept), **more)

    def _home(self, values: Values, partition: int | None) -> int:
        if self.topic.keyed:
            return HOMES[self.topic.partitions][values["k"]]
        chosen = self.partition if self.partition is not None else partition
        return 0 if chosen is None else chosen

    @property
    def partitions(self) -> Sequence[int]:
        """Where its rows may go."""
        if self.topic.keyed or self.partition is not None:
            return (0,)
        return range(self.topic.partitions)


class Writing(Life):
    """A life that writes."""

    # Topics -----------------------------------------------------------------------------------

    def _a_topic(self, *kinds: str) -> PlainTopic | None:
        found = [topic for topic in self.model.topics.values() if not kinds or topic.kind in kinds]
        return self.pick(found) if found else None

    def _some_topic(self, *kinds: str) -> PlainTopic:
        """One that rows can be appended to; made if there is none."""
        topic = self._a_topic(*(kinds or ("plain", "keyed", "bytes")))
        if topic is None:
            free = [name for name in NAMES if name not in self.model.topics]
            if not free:
                self.delete_topic()
                return self._some_topic(*kinds)
            topic = self._create(free[0], self.pick(kinds or ("plain", "keyed", "bytes")))
        return topic

    def create(self) -> None:
        """A topic that is not there, or two of them in one write."""
        free = [name for name in NAMES if name not in self.model.topics]
        if free:
            self._create(self.pick(free), self.pick(("plain", "keyed", "keyed", "bytes")))

    def _create(self, name: str, kind: str) -> PlainTopic:
        partitions = 1 + self.draw.below(3)
        policy = self._policy(kind)
        made = PlainTopic(name, kind, dict(COLUMNS[kind]), partitions, policy)
        self.note(f"create {made}")
        options: dict[str, Any] = {"key": "k"} if kind == "keyed" else {}
        if policy.cleanup != "delete":
            options["cleanup"] = policy.cleanup
        if policy.tombstones_s != 86_400.0:
            options["tombstones"] = policy.tombstones_s
        topic = self._perform(
            [lambda model: model.create(made.copy())],
            lambda: self.log.topic(
                name,
                SCHEMAS[kind],
                partitions=partitions,
                retention=policy.retention_s,
                retention_bytes=policy.retention_bytes,
                **options,
            ),
        )
        self.model.create(made)
        self._know(made, topic)
        return made

    def _know(self, made: PlainTopic, topic: Topic) -> None:
        if topic.number != made.number or topic.topic_id in self.model.ids:
            raise Violation(f"topic {made.name!r} has the number or the id of another")
        made.topic_id = topic.topic_id
        self.model.ids.add(topic.topic_id)

    def _policy(self, kind: str) -> Policy:
        retention_s = self.pick((None, None, 50.0))
        retention_bytes = self.pick((None, None, None, 3000))
        if kind != "keyed":
            return Policy("delete", retention_s, retention_bytes)
        return Policy(self.pick(("compact", "compact", "both", "delete")), retention_s, retention_bytes, 30.0)

    def create_together(self) -> None:
        """Those that are there and those that are not, in one call."""
        made = [PlainTopic(name, "plain", dict(COLUMNS["plain"]), 1, Policy()) for name in NAMES]
        there = {name for name in NAMES if name in self.model.topics}
        if any(self.model.topics[name].kind != "plain" for name in there):
            return
        new = [topic for topic in made if topic.name not in there]
        self.note(f"create together {[topic.name for topic in new]}")

        def all_of_them(model: PlainTopics) -> None:
            for topic in new:
                model.create(topic.copy())

        topics = self._perform(
            [all_of_them] if new else [],
            lambda: self.log.create_topics([hw.NewTopic(topic.name, COLUMNS["plain"]) for topic in made]),
        )
        for topic in new:
            self.model.create(topic)
        for plain, handle in zip(made, topics, strict=True):
            if plain.name not in there:
                self._know(plain, handle)

    def create_again(self) -> None:
        """What is there already is nothing; something else is refused, and nothing changes."""
        topic = self._a_topic("plain", "keyed", "bytes")
        if topic is None:
            return
        self.note(f"create {topic.name} again")
        key = "k" if topic.keyed else None
        again = self._perform(
            [], lambda: self.log.topic(topic.name, SCHEMAS[topic.kind], key=key, partitions=topic.partitions)
        )
        if again.topic_id != topic.topic_id:
            raise Violation("creating a topic that is there has made another")
        other = {**COLUMNS[topic.kind], "q": "float64"} if topic.kind != "bytes" else COLUMNS["plain"]
        self._refused(TopicExists, lambda: self.log.topic(topic.name, other, key=key))
        self._refused(TopicExists, lambda: self.log.topic(topic.name, partitions=topic.partitions + 1))

    def alter(self) -> None:
        topic = self._a_topic("plain", "keyed", "bytes")
        if topic is None:
            return
        changes: dict[str, Any] = {}
        after = topic.copy()
        what = self.draw.below(4)
        if what == 0 and topic.kind != "bytes" and topic.versions < 4:
            added = f"x{topic.versions}"
            changes["add"] = {added: str}
            after.columns[added] = "string"
            after.versions += 1
        elif what == 1 and topic.columns.get("w") == "int32":
            changes["widen"] = {"w": "int64"}
            after.columns["w"] = "int64"
            after.versions += 1
        if what == 2 or (changes and self.often(30)):
            changes["partitions"] = after.partitions = min(topic.partitions + 1 + self.draw.below(2), 6)
            after.rows += [[] for _ in range(after.partitions - topic.partitions)]
        if what == 3:
            changes["retention"] = 80.0
            after.policy = Policy(topic.policy.cleanup, 80.0, topic.policy.retention_bytes, topic.policy.tombstones_s)
        if not changes:
            return
        self.note(f"alter {topic.name}: {changes}")

        def altered(model: PlainTopics) -> None:
            model.topics[topic.name] = after

        self._perform([altered], lambda: self.log[topic.name].alter(**changes))
        altered(self.model)
        if after.partitions > 1:
            self._refused(InvalidRequest, lambda: self.log[topic.name].alter(partitions=after.partitions - 1))

    def delete_topic(self) -> None:
        topic = self._a_topic()
        if topic is None:
            return
        self.note(f"delete topic {topic.name}")
        handle = self.log[topic.name]
        self._perform([lambda model: model.delete(topic.name)], lambda: self.log.delete_topic(topic.name))
        self.model.delete(topic.name)
        self.members = [member for member in self.members if member.number != topic.number]
        self._refused(UnknownTopic, lambda: handle.append({"n": 1}))
        self._refused(UnknownTopic, handle.read)

    # Appending --------------------------------------------------------------------------------

    def row(self, topic: PlainTopic) -> Values:
        """A row that no other is equal to."""
        self.number += 1
        if topic.kind == "bytes":
            return {"key": None, "value": b"%d" % self.number + b"." * self.pick(SIZES), "headers": None}
        row: Values = {"n": self.number, "w": self.draw.below(100)}
        if topic.columns["w"] == "int64" and self.often(50):
            row["w"] += 1 << 40
        size = self.pick(SIZES)
        row["p"] = "." * size if size else None
        if topic.keyed:
            row["k"] = self.draw.below(KEYS)
        if topic.versions > 1 and "x1" in topic.columns and self.often(50):
            row["x1"] = str(self.number)
        return row

    def request(self, topic: PlainTopic, rows_max: int = 4, *, bad: bool = False) -> Request:
        """Some rows for a topic, one in a while one that does not fit."""
        rows = [self.row(topic) for _ in range(1 + self.draw.below(rows_max))]
        partition = None
        if not topic.keyed and self.often(60):
            partition = self.draw.below(topic.partitions)
        rejected = []
        given: list[Any] = list(rows)
        if bad:
            at = self.draw.below(len(rows) + 1)
            wrong = {"n": "no number", "z": 1}
            given.insert(at, wrong)
            rejected = [(at, wrong)]
        if topic.kind == "bytes" and not bad and self.often(50):
            given = [row["value"] for row in rows]
        op = "U" if topic.keyed else ""
        one = len(given) == 1 and self.often(50)
        return Request(topic, given[0] if one else given, partition, [(row, op) for row in rows], rejected)

    def stages(self, request: Request, **more: Any) -> list[Stage]:
        """What the request may have come to, if it was cut short."""
        return [stage_of(request.write(partition, **more)) for partition in request.partitions]

    def acknowledge(self, request: Request, told: Any, **more: Any) -> None:
        """It has returned: its rows are where the answer says, behind those before them."""
        home = next(iter(told.offsets), 0)
        if not request.topic.keyed and len(told.offsets) > 1:
            raise Violation(f"rows without a key went to several partitions: {told}")
        if told.duplicate:
            raise Violation(f"V6: a request that is new was answered as a repeated one: {told}")
        seen = Told(told.first_lsn, told.lsn, us_of(told.time))
        placed = self.model.write(request.write(home, **more), seen)
        mine = {place[1]: span for place, span in placed.items() if place[0] == request.topic.number}
        if mine != {partition: tuple(span) for partition, span in told.offsets.items()}:
            raise Violation(f"V3: the answer says {told.offsets} and not {mine}")
        if (told.rows, told.rejected) != (len(request.rows), len(request.rejected)):
            raise Violation(f"the answer counts {told.rows} rows and {told.rejected} rejected ones of {request}")

    def append(self) -> None:
        topic = self._some_topic()
        request = self.request(topic)
        self.note(f"append {brief(request)}")
        told = self._perform(
            self.stages(request), lambda: self.log[topic.name].append(request.given, partition=request.partition)
        )
        self.acknowledge(request, told)
        self.model.note_lsn(told.lsn)

    def append_expecting(self) -> None:
        """The next offset as the caller believes it to be, rightly or not."""
        topic = self._some_topic("plain", "bytes")
        partition = self.draw.below(topic.partitions)
        request = self.request(topic)._replace(partition=partition)
        following = len(topic.rows[partition])
        wrong = self.pick((0, 0, 1, -1))
        self.note(f"append {brief(request)} expecting {following + wrong}")

        def act() -> Any:
            return self.log[topic.name].append(request.given, partition=partition, expect_offset=following + wrong)

        if wrong and following + wrong >= 0:
            self._refused(OffsetMismatch, act)
            return
        if wrong:
            return
        told = self._perform(self.stages(request), act)
        self.acknowledge(request, told)
        self.model.note_lsn(told.lsn)

    def append_with_key(self) -> None:
        """A key that is new, or was used before: then the first answer, and no row."""
        topic = self._some_topic()
        request = self.request(topic)
        name = self.pick(KEY_NAMES[:8])
        key = key_of(topic.topic_id, name)
        self.note(f"append {brief(request)} with {name}")
        known = self.model.key_is(key, self.clock.now_us()) == "known"
        told = self._perform(
            [] if known else self.stages(request, key=key),
            lambda: self.log[topic.name].append(request.given, partition=request.partition, idempotency_key=name),
        )
        self.answer_key(request, told, key)
        self.model.note_lsn(told.lsn)

    def answer_key(self, request: Request, told: Any, key: str, **more: Any) -> None:
        known = self.model.key_is(key, self.clock.now_us())
        if told.duplicate if known == "either" else known == "known":
            answer = self.model.keys[key].answer
            if not told.duplicate or answer is None:
                raise Violation(f"V6: the key {key} was used before, and its request was applied again: {told}")
            if (told.first_lsn, told.lsn, us_of(told.time)) != answer[:3]:
                raise Violation(f"V6: the key {key} was first answered {answer}, and now {told}")
        else:
            self.acknowledge(request, told, key=key, **more)

    def append_refused(self) -> None:
        """A row that does not fit: nothing of the request appears."""
        topic = self._some_topic()
        request = self.request(topic, bad=True)
        self.note(f"append rows that do not fit to {topic.name}")
        self._refused(RowsRefused, lambda: self.log[topic.name].append(request.given, partition=request.partition))

    def append_kept(self) -> None:
        """A row that does not fit goes to the topic beside, by the same write."""
        topic = self._some_topic()
        request = self.request(topic, bad=True)
        name = topic.name + REJECTED
        made = None
        if name not in self.model.topics:
            made = PlainTopic(name, "rejected", dict(COLUMNS["rejected"]), 1, Policy())
        self.note(f"append {brief(request)}, and keep what does not fit")

        def beside(model: PlainTopics) -> None:
            if made is not None:
                model.create(made.copy())

        def after(stage: Stage) -> Stage:
            def both(model: PlainTopics) -> None:
                beside(model)
                stage(model)

            return both

        told = self._perform(
            [beside, *(after(stage) for stage in self.stages(request))],
            lambda: self.log[topic.name].append(request.given, partition=request.partition, rejected="keep"),
            refused=[beside],
        )
        if made is not None:
            self.model.create(made)
            self._know(made, self.log[name])
        self.acknowledge(request, told)
        self.model.note_lsn(told.lsn)

    def delete_keys(self) -> None:
        topic = self._some_topic("keyed")
        keys = [self.draw.below(KEYS) for _ in range(1 + self.draw.below(2))]
        request = Request(topic, None, None, [({"k": key}, "D") for key in keys], [])
        self.note(f"delete {keys} of {topic.name}")
        told = self._perform(self.stages(request), lambda: self.log[topic.name].delete(keys))
        self.acknowledge(request, told)
        self.model.note_lsn(told.lsn)

    def append_together(self) -> None:
        """Several callers at once: one commit, in which small requests are joined; a key twice is applied once."""
        count = 2 + self.draw.below(3)
        topics = [self._some_topic() for _ in range(count)]
        requests: list[tuple[Request, str | None, int | None]] = []
        for topic in topics:
            request = self.request(topic, 2)
            key = key_of(topic.topic_id, self.pick(KEY_NAMES[:3])) if self.often(25) else None
            expected = None
            if request.partition is not None and key is None and self.often(25):
                expected = len(topic.rows[request.partition])
            requests.append((request, key, expected))
            if key is not None and self.often(50):
                # A caller that has not waited for its answer sends it again.
                requests.append((request, key, None))
        self.note("append together " + "; ".join(f"{brief(request)} {key}" for request, key, _ in requests))
        stages: list[Stage] = []
        for end in range(1, len(requests) + 1):
            stages += self._stages_together(requests[:end])
        futures = self._perform(stages, lambda: self._submit_together(requests))
        last_lsn = 0
        for (request, key, expected), future in zip(requests, futures, strict=True):
            following = None if expected is None else len(request.topic.rows[request.partition or 0])
            if following != expected:
                if not isinstance(future.exception(0), OffsetMismatch):
                    raise Violation(f"offset {expected} was expected, {following} follows, and it was appended")
                continue
            told = future.result(0)
            if key is None:
                self.acknowledge(request, told)
            else:
                self.answer_key(request, told, key)
            last_lsn = max(last_lsn, told.lsn)
        self.model.note_lsn(last_lsn)

    def _submit_together(self, requests: list[tuple[Request, str | None, int | None]]) -> list[Future[Any]]:
        """As the background thread would, but in this thread: whoever has the baton commits all that is queued."""
        shard = engine_of(self.log).shard
        shard.keep_up()
        writer = shard.log._writer
        assert writer._baton.acquire(blocking=False)
        # Whoever holds the baton cannot make a checkpoint: as if another thread were at it.
        shard._checkpointing.acquire()
        futures: list[Future[Any]] = []
        try:
            for request, key, expected in requests:
                topic = self.log[request.topic.name]
                name = None if key is None else key.partition(":")[2]
                futures.append(
                    topic.append_future(
                        request.given, partition=request.partition, idempotency_key=name, expect_offset=expected
                    )
                )
        finally:
            shard._checkpointing.release()
            writer._lead()
        for future in futures:
            error = future.exception(0)
            if isinstance(error, Unavailable | OutcomeUnknown | Poisoned):
                # The whole commit was refused, or nobody knows.
                raise error
        return futures

    def _stages_together(self, requests: list[tuple[Request, str | None, int | None]]) -> list[Stage]:
        """All of these requests, wherever those without a partition go: they go to one, of each topic."""
        now_us = self.clock.now_us()

        def stage(home: int, again: bool) -> Stage:
            def reached(model: PlainTopics) -> None:
                for request, key, expected in requests:
                    if (
                        expected is not None
                        and len(model.topics[request.topic.name].rows[request.partition or 0]) != expected
                    ):
                        continue
                    if key is not None:
                        known = model.key_is(key, now_us)
                        if known == "known" or (known == "either" and again):
                            continue
                    partition = min(home, request.topic.partitions - 1)
                    model.write(request.write(partition, key=key))

            return reached

        # Sticky: a topic's rows begin at partition 0 and stay there for longer than these lives last.
        return [stage(0, False), stage(0, True)]


def brief(request: Request) -> str:
    """A request in a few words, for the list of steps."""
    rows = [op + str({name: value for name, value in row.items() if name in ("k", "n")}) for row, op in request.rows]
    size = sum(len(row.get("p") or "") for row, _ in request.rows)
    return f"{' '.join(rows)} ({size} bytes) to {request.topic.name}/{request.partition}"


def stage_of(write: Write) -> Stage:
    def reached(model: PlainTopics) -> None:
        model.write(write)

    return reached


def us_of(moment: datetime) -> int:
    """Microseconds since 1970, exactly."""
    return (moment - _UNIX_EPOCH) // timedelta(microseconds=1)
