"""The rest of a life: transactions, producers, groups, upkeep, time, and reading in every way.

STEPS    All that a life may do, by name; how often each is drawn says `weight`.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import headwater as hw
from headwater.errors import Conflict, Duplicate, Fenced, InvalidRequest, OutOfSequence, UnknownProducer
from tests.simulation.model import Violation
from tests.simulation.topics_model import PlainProducer, PlainTopic, PlainTopics, Stage, Told, Write
from tests.simulation.topics_observed import KEY_NAMES, ReadRow, check_folds, key_of, observe, read_rows
from tests.simulation.topics_writing import KEYS, REJECTED, Request, Writing, brief, stage_of, us_of
from tests.unit.topics.small_engines import engine_of

PRODUCERS = ("one", "two")
GROUPS = ("g", "h")
SOURCES = ("pg", "s3")
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class Member:
    """A consumer, and what it has been handed."""

    consumer: Any
    topic: str
    number: int
    group: str
    positions: dict[int, int] = field(default_factory=dict)

    def place(self, partition: int) -> tuple[str, int, int]:
        return self.group, self.number, partition


class Aborted(Exception):
    """Raised in a transaction, to end it."""


class Steps(Writing):
    """A life with all its steps."""

    holders: dict[tuple[str, int, int], Member]
    """Of each group's topic and partition, the member that read it last."""

    def open(self) -> None:
        self.holders = {}
        super().open()

    # Transactions -----------------------------------------------------------------------------

    def transaction(self) -> None:
        """Rows of some topics, sources, a group's offsets: one write, or nothing of it."""
        requests = [self.request(self._some_topic(), 2) for _ in range(self.draw.below(3))]
        requests = [each for each in requests if each.topic.name in self.model.topics]
        deletes = []
        keyed = self._a_topic("keyed")
        if keyed is not None and self.often(30):
            deletes = [self.draw.below(KEYS)]
            requests.append(Request(keyed, None, None, [({"k": deletes[0]}, "D")], []))
        sources = []
        for name in SOURCES:
            if self.often(40):
                self.number += 1
                watermark_us = self.clock.now_us() if self.often(50) else None
                sources.append((name, {"at": self.number}, watermark_us))
        member = self.pick(self.members) if self.members and self.often(50) else None
        offsets = self._offsets_of(member) if member is not None else {}
        fenced = member is not None and (bool(member.consumer._lost) or self._has_lost(member, offsets))
        producer = self._newest_producer() if self.often(30) else None
        name_of_key = self.pick(KEY_NAMES[:4]) if producer is None and self.often(20) else None
        key = None if name_of_key is None else key_of("", name_of_key)
        known = "new" if key is None else self.model.key_is(key, self.clock.now_us())
        aborted = self.often(15)
        self.note(f"transaction of {[brief(each) for each in requests]}, {sources}, {offsets}, {producer}, {key}")
        if not requests and not sources and not offsets:
            return
        more: dict[str, Any] = {"key": key}
        if producer is not None:
            more["producer"] = (producer[0], producer[1].next_sequence)
        groups = [] if member is None else [(member.group, member.number, p, at) for p, at in sorted(offsets.items())]

        def write(home: int) -> Write:
            rows = [row for request in requests for row in request.write(min(home, request.topic.partitions - 1)).rows]
            return Write(tuple(rows), tuple(groups), tuple(sources), **more)

        def act() -> Any:
            with self.log.transaction(
                producer=producer[1] if producer is not None else None, idempotency_key=name_of_key
            ) as transaction:
                for request in requests:
                    if request.given is None:
                        transaction.delete(request.topic.name, deletes)
                    else:
                        transaction.append(request.topic.name, request.given, partition=request.partition)
                for name, position, watermark_us in sources:
                    watermark = None if watermark_us is None else _moment(watermark_us)
                    transaction.set_source(name, position, watermark=watermark)
                if member is not None:
                    transaction.commit_offsets(member.consumer)
                if aborted:
                    raise Aborted
            return transaction.result

        if aborted:
            try:
                act()
            except Aborted:
                return
            raise Violation("an aborted transaction has committed")
        try:
            told = self._perform([] if known == "known" or fenced else [stage_of(write(0))], act)
        except Fenced:
            self._was_fenced(member, producer)
            return
        except UnknownProducer:
            self._was_forgotten(producer)
            return
        if fenced and known == "new":
            raise Violation("a transaction has committed offsets of a partition that was lost")
        self._transaction_told(told, write, key, known)
        if member is not None and not told.duplicate:
            member.consumer.mark_committed()

    def _transaction_told(self, told: Any, write: Callable[[int], Write], key: str | None, known: str) -> None:
        if key is not None and (told.duplicate if known == "either" else known == "known"):
            answer = self.model.keys[key].answer
            if not told.duplicate or answer is None or told.first_lsn != answer.first_lsn:
                raise Violation(f"V6: the key {key} was first answered {answer}, and now {told}")
            return
        if told.duplicate:
            raise Violation(f"V6: a transaction that is new was answered as a repeated one: {told}")
        placed = self.model.write(write(0), Told(told.first_lsn, told.lsn, us_of(told.time)))
        numbers = {name: topic.number for name, topic in self.model.topics.items()}
        found = {(numbers[name], p): tuple(span) for name, spans in told.offsets.items() for p, span in spans.items()}
        if found != placed:
            raise Violation(f"V3: the answer says {found} and not {placed}")
        self.model.note_lsn(told.lsn)

    def _was_fenced(self, member: Member | None, producer: tuple[str, Any] | None) -> None:
        """A consumer's lease may be over; the newest epoch of a producer is not."""
        if member is None:
            raise Violation(f"the newest epoch of a producer was fenced: {producer}")

    # Producers --------------------------------------------------------------------------------

    def open_producer(self) -> None:
        """Its next epoch begins, and its numbers go on."""
        name = self.pick(PRODUCERS)
        self.note(f"open producer {name}")
        before = self.model.producers.get(name)
        may_be_new = before is None or self.model.producer_may_be_forgotten(name, self.clock.now_us())

        def again(model: PlainTopics) -> None:
            model.producers[name].epoch += 1
            model.producers[name].time_us = None

        stages: list[Stage] = [] if before is None else [again]
        if may_be_new:
            stages.append(lambda model: model.producers.update({name: PlainProducer(0, 1, 0, None)}))
        producer = self._perform(stages, lambda: self.log.producer(name))
        registered = (producer.producer_id, producer.epoch, producer.next_sequence)
        wanted = None if before is None else (before.producer_id, before.epoch + 1, before.next_sequence)
        new = producer.epoch == 1 and producer.next_sequence == 0
        if registered != wanted and not (may_be_new and new):
            raise Violation(f"producer {name} was opened as {registered} and not as {wanted}")
        others = {each.producer_id for other, each in self.model.producers.items() if other != name}
        if producer.producer_id in others:
            raise Violation(f"producer {name} has the number of another")
        self.model.register(name, *registered)
        self.model.producers[name].time_us = max(self.clock.now_us(), self.model.time_us)
        self.producers.append((name, producer))

    def _newest_producer(self) -> tuple[str, Any] | None:
        """A handle whose epoch is the present one."""
        for name, producer in reversed(self.producers):
            plain = self.model.producers.get(name)
            if plain is not None and (plain.producer_id, plain.epoch) == (producer.producer_id, producer.epoch):
                return name, producer
        return None

    def produce(self) -> None:
        found = self._newest_producer()
        if found is None:
            self.open_producer()
            found = self._newest_producer()
            assert found is not None
        name, producer = found
        topic = self._some_topic()
        request = self.request(topic)
        more = {"producer": (name, producer.next_sequence)}
        self.note(f"{name} appends {brief(request)}, {more}")
        if producer.next_sequence != self.model.producers[name].next_sequence:
            raise Violation(f"{producer!r} counts otherwise than {self.model.producers[name]}")
        try:
            told = self._perform(
                self.stages(request, **more),
                lambda: producer.append(topic.name, request.given, partition=request.partition),
            )
        except UnknownProducer:
            self._was_forgotten((name, producer))
            return
        self.acknowledge(request, told, **more)
        self.model.note_lsn(told.lsn)

    def _was_forgotten(self, producer: tuple[str, Any] | None) -> None:
        if producer is None or not self.model.producer_may_be_forgotten(producer[0], self.clock.now_us()):
            raise Violation(f"V6: the producer {producer} is forgotten")
        self.producers.remove(producer)

    def produce_again(self) -> None:
        """A number that was used gets its first answer, as long as that is remembered; one to come is refused."""
        found = self._newest_producer()
        if found is None:
            return
        name, producer = found
        plain = self.model.producers[name]
        sequence = plain.next_sequence - 1 - self.draw.below(6)
        ahead = self.often(20)
        if ahead:
            sequence = plain.next_sequence + 1
        if sequence < 0:
            return
        topic = self._some_topic()
        request = self.request(topic, 1)
        self.note(f"{name} appends request {sequence} again, or too early")
        producer_next = producer.next_sequence
        try:
            told = producer.append(topic.name, request.given, partition=request.partition, sequence=sequence)
        except UnknownProducer:
            self._was_forgotten(found)
        except OutOfSequence:
            if not ahead:
                raise
        except Duplicate:
            if ahead or sequence in plain.answers:
                raise
        except Conflict:
            answer = plain.answers.get(sequence)
            beside = self.model.topics.get(topic.name + REJECTED)
            own = {topic.number, beside.number if beside is not None else 0}
            if ahead or answer is None or {place[0] for place in answer.placed} <= own:
                raise
        else:
            answer = plain.answers.get(sequence)
            if ahead or answer is None or not told.duplicate:
                raise Violation(f"V6: request {sequence} of {name} was answered {told}, and first {answer}")
            if (told.first_lsn, told.lsn, us_of(told.time)) != answer[:3]:
                raise Violation(f"V6: request {sequence} of {name} was answered {told}, and first {answer}")
            if producer.next_sequence != producer_next:
                raise Violation("a repeated request has moved its producer's number")

    def produce_fenced(self) -> None:
        """Whoever held an earlier epoch of a producer can do nothing any more."""
        for name, producer in self.producers:
            plain = self.model.producers.get(name)
            if plain is None or plain.epoch == producer.epoch:
                continue
            topic = self._some_topic()
            request = self.request(topic, 1)
            self.note(f"an old epoch of {name} appends")
            try:
                producer.append(topic.name, request.given, sequence=plain.next_sequence)
            except Fenced:
                return
            except UnknownProducer:
                return
            raise Violation(f"an old epoch of {name} was not fenced")

    # Groups -----------------------------------------------------------------------------------

    def join_group(self) -> None:
        topic = self._some_topic()
        group = self.pick(GROUPS)
        self.note(f"a consumer of {topic.name} joins {group}")
        consumer = self._perform([], lambda: self.log.consumer(topic.name, group=group))
        self.members.append(Member(consumer, topic.name, topic.number, group))

    def poll(self) -> None:
        """What is handed out follows what was handed out, or what is committed; no row is passed over."""
        if not self.members:
            return
        member = self.pick(self.members)
        polled = member.consumer.poll(max_rows=1 + self.draw.below(4))
        for partition in member.consumer.assignment:
            self.holders[member.place(partition)] = member
        self.note(
            f"{member.group} polls {member.topic}: {polled and (polled.partition, polled.offset, polled.next_offset)}"
        )
        if polled is None:
            return
        topic = self.model.topics[member.topic]
        rows = topic.rows[polled.partition]
        committed = self.model.groups.get((member.group, member.number), {}).get(polled.partition, 0)
        starts = {committed, member.positions.get(polled.partition, committed)}
        if not any(start <= polled.offset and all(row.gone for row in rows[start : polled.offset]) for start in starts):
            raise Violation(f"V1: {polled.offset} of partition {polled.partition} was handed out, and not {starts}")
        wanted = [topic.shown(row) for row in rows[polled.offset : polled.next_offset] if not row.gone]
        names = [name for name in polled.batch.schema.names if not name.startswith("_hw_")]
        if (
            polled.batch.select(names).to_pylist() != [_plain(row, names) for row in wanted]
            and topic.kind != "rejected"
        ):
            raise Violation(f"V1: {polled} was handed out and not {wanted}")
        member.positions[polled.partition] = polled.next_offset

    def _offsets_of(self, member: Member) -> dict[int, int]:
        return {partition: offset for partition, (offset, _) in member.consumer._uncommitted().items()}

    def _has_lost(self, member: Member, offsets: dict[int, int]) -> bool:
        """Another member has begun to read a partition of which this one would commit."""
        return any(self.holders.get(member.place(partition)) is not member for partition in offsets)

    def commit(self) -> None:
        if not self.members:
            return
        member = self.pick(self.members)
        offsets = self._offsets_of(member)
        lost = self._has_lost(member, offsets)
        self.note(f"{member.group} commits {offsets} of {member.topic}")
        group = (member.group, member.number)

        def committed(model: PlainTopics) -> None:
            model.groups.setdefault(group, {}).update(offsets)

        try:
            told = self._perform([committed] if offsets and not lost else [], member.consumer.commit)
        except Fenced:
            # Those that are still held are committed all the same, or with the next call.
            state = self.log._engine.committed(*group)
            before = self.model.groups.get(group, {})
            for partition, offset in state.items():
                if offset not in (before.get(partition), offsets.get(partition)):
                    raise Violation(f"{offset} of partition {partition} was committed by nobody") from None
            self.model.groups[group] = dict(state)
            return
        if lost:
            raise Violation(f"{member} has committed {told}, of a partition that another member reads")
        if told != offsets:
            raise Violation(f"{told} was committed and not {offsets}")
        if offsets:
            committed(self.model)

    # Upkeep and time --------------------------------------------------------------------------

    def roll(self) -> None:
        self.note("roll")
        self._perform([], engine_of(self.log).shard.log.roll)

    def checkpoint(self) -> None:
        self.note("checkpoint")
        self._perform([], self.log.checkpoint)

    def check_fold(self) -> None:
        check_folds(self.log, self.files)

    def cleanup(self) -> None:
        """What the policies let go is away, or stays for another time; all else is there."""
        self.look()
        self.note("cleanup")
        self.model.loosen(self.clock.now_us())
        report = self._perform([], self.log.cleanup)
        for failure in report.failures:
            raise Violation(f"cleanup failed: {failure}") from failure.error
        self.look()

    def clean_thoroughly(self) -> None:
        """Two checkpoints behind all that is sealed, and time: now much may go."""
        for _ in range(2):
            engine_of(self.log).shard.log.roll()
            self.append()
            self.log.checkpoint()
        self.clock.advance(100)
        self.cleanup()

    def compact(self) -> None:
        self.look()
        now_us = self.clock.now_us()
        names = []
        for topic in self.model.topics.values():
            if topic.keyed and topic.policy.cleanup != "delete":
                names.append(topic.name)
                rows = [row for row in topic.all_rows() if not row.gone]
                self.model.loosen_superseded(topic, rows, now_us)
        if names:
            self.note(f"compact {names}")
            report = self._perform([], lambda: self.log.compact(*names))
            for failure in report.failures:
                raise Violation(f"compaction failed: {failure}") from failure.error
            self.look()

    def time_passes(self) -> None:
        seconds = self.pick((-5.0, 0.5, 0.5, 20.0, 20.0, 100.0, 4000.0, 90_000.0, 8 * 86_400.0))
        self.note(f"{seconds} s pass")
        if seconds < 0:
            self.clock.set_wall_clock(self.clock.now_us() + round(seconds * 1_000_000))
        else:
            self.clock.advance(seconds)

    # Reading ----------------------------------------------------------------------------------

    def read_everything(self) -> None:
        self.look()

    def read_elsewhere(self) -> None:
        """A process that owns nothing sees all that was acknowledged, whenever it was opened."""
        if self.reader is None or self.often(30):
            self.reader = self.open_on(self.files)
        self.note("read in another process")
        trouble = self.model.difference(observe(self.reader), as_reader=True)
        if trouble is not None:
            raise Violation(f"in another process: {trouble}")

    def read(self) -> None:
        """From anywhere to anywhere: what a read of everything shows, between the two."""
        topic = self._a_topic()
        if topic is None:
            return
        handle = self.log[topic.name]
        rows = read_rows(handle)
        partition = self.draw.below(topic.partitions) if self.often(40) else None
        start, after = self._place(topic, rows, partition)
        stop, before = (None, None) if self.often(40) else self._place(topic, rows, partition)
        limit = self.draw.below(6) if self.often(40) else None
        batch_rows = self.pick((65_536, 1, 2))
        wanted = [
            row
            for row in rows
            if (partition is None or row.partition == partition)
            and after(row)
            and (before is None or (before(row) is False))
        ][:limit]
        options: dict[str, Any] = {"limit": limit, "batch_rows": batch_rows, "partition": partition}
        found = read_rows(handle, start=start, stop=stop, **options)
        if found != wanted:
            raise Violation(f"read from {start} to {stop} with {options}: {found} and not {wanted}")
        batches = list(handle.read(start, stop, **options))
        if any(not 0 < batch.num_rows <= batch_rows for batch in batches):
            raise Violation(
                f"batches of {[batch.num_rows for batch in batches]} rows where {batch_rows} were asked for"
            )

    def _place(
        self, topic: PlainTopic, rows: list[ReadRow], partition: int | None
    ) -> tuple[Any, Callable[[ReadRow], bool | None]]:
        """A place, and whether a row is at or behind it; None where a stop would leave its partition out."""
        kind = self.draw.below(6)
        if kind == 0:
            return "earliest", lambda row: True
        if kind == 1:
            return "latest", lambda row: False
        row = self.pick(rows) if rows else None
        if kind == 2:
            time_us = (row.row.time_us if row is not None else self.clock.now_us()) + self.draw.below(3) - 1
            moment: Any = _moment(time_us)
            return (moment.isoformat() if self.often(30) else moment), lambda row: row.row.time_us >= time_us
        if kind == 3:
            lsn = (row.row.lsn if row is not None else 1) + self.draw.below(3) - 1
            return hw.Lsn(lsn), lambda row: row.row.lsn >= lsn
        if kind == 4 and partition is not None:
            offset = self.draw.below(len(topic.rows[partition]) + 2)
            return offset, lambda row: row.offset >= offset
        offsets = {
            number: self.draw.below(len(topic.rows[number]) + 2)
            for number in range(topic.partitions)
            if number == 0 or self.often(70)
        }

        def behind(row: ReadRow) -> bool | None:
            return row.offset >= offsets[row.partition] if row.partition in offsets else None

        return offsets, behind

    def wrong_calls(self) -> None:
        """Calls that make no sense are refused, and nothing comes of them."""
        topic = self._some_topic()
        handle = self.log[topic.name]
        self._refused(InvalidRequest, lambda: handle.append(self.row(topic), partition=topic.partitions + 3))
        self._refused(InvalidRequest, lambda: handle.read(partition=topic.partitions + 1))
        self._refused(InvalidRequest, lambda: self.log["no-such-topic"])
        if not topic.keyed:
            self._refused(InvalidRequest, lambda: handle.delete([1]))


def _moment(time_us: int) -> datetime:
    return _UNIX_EPOCH + timedelta(microseconds=time_us)


def _plain(row: dict[str, Any], names: list[str]) -> dict[str, Any]:
    return {name: row[name] for name in names}


class Step(NamedTuple):
    name: str
    weight: int
    cut: bool
    """It can be cut short."""


STEPS = (
    Step("append", 8, True),
    Step("append_together", 5, True),
    Step("append_with_key", 4, True),
    Step("append_expecting", 2, True),
    Step("append_refused", 1, False),
    Step("append_kept", 2, True),
    Step("delete_keys", 3, True),
    Step("transaction", 6, True),
    Step("open_producer", 2, True),
    Step("produce", 6, True),
    Step("produce_again", 4, False),
    Step("produce_fenced", 1, False),
    Step("join_group", 2, True),
    Step("poll", 5, False),
    Step("commit", 3, True),
    Step("create", 3, True),
    Step("create_together", 1, True),
    Step("create_again", 1, True),
    Step("alter", 3, True),
    Step("delete_topic", 1, True),
    Step("roll", 2, True),
    Step("checkpoint", 2, True),
    Step("check_fold", 1, False),
    Step("cleanup", 2, True),
    Step("clean_thoroughly", 2, False),
    Step("compact", 2, True),
    Step("time_passes", 4, False),
    Step("read", 4, False),
    Step("read_everything", 1, False),
    Step("read_elsewhere", 2, False),
    Step("wrong_calls", 1, False),
    Step("close", 1, True),
    Step("kill", 1, False),
    Step("lose_power", 2, False),
)
FAILING = (
    "append", "append_together", "append_with_key", "append_kept", "delete_keys", "transaction", "open_producer",
    "produce", "commit", "create", "create_together", "alter", "delete_topic", "roll", "checkpoint",
)  # fmt: skip
_FAULTS = ("append", "append", "sync_data", "sync_all", "create", "rename", "write_at", "sync_directory")
CUTTABLE = tuple(step.name for step in STEPS if step.cut)
_WEIGHTED = tuple(step.name for step in STEPS for _ in range(step.weight))
CALLS_CUT_MAX = 24


def any_step(life: Steps, cut_percent: int = 20) -> None:
    """One step, drawn."""
    draw = life.draw.below(100)
    if draw < cut_percent:
        cut_step(life)
    elif draw < cut_percent + 8:
        failing_step(life)
    else:
        getattr(life, life.pick(_WEIGHTED))()


def cut_step(life: Steps) -> None:
    """A step, and a power loss in the middle of it."""
    cuttable = [name for name in _WEIGHTED if name in CUTTABLE]
    step = life.pick(cuttable)
    life.cut(getattr(life, step), life.draw.below(CALLS_CUT_MAX) if life.often(40) else life.draw.below(4))


def failing_step(life: Steps) -> None:
    """A step, and a call of it that fails."""
    error = life.pick((errno.EIO, errno.ENOSPC))
    life.fail(getattr(life, life.pick(FAILING)), 1 + life.draw.below(2), error, life.pick(_FAULTS))
