"""Topics as dicts and lists: what every reader of a log must find, and what a crash may leave of a request.

ROWS     Of each partition a list, in which a row's place is its offset.  A row is there as it was sent, or is LOOSE
         (a policy lets it go; it may be there or not) or GONE (it was seen to be away, and stays away).
OPEN     A request whose outcome nobody was told: the stages that it may have reached, each whole.  `match` finds the
         one that the log shows; from then on it is true.
LEARNT   What only the log can tell, the LSN of a row, the time of a request that was cut short, is taken from the log
         once and must be the same ever after.

NOT HERE Doing anything to a log: topics_life.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from tests.simulation.model import Violation
from tests.simulation.topics_observed import Observed, ObservedRow, SeenAnswer

ANSWERS_KEPT = 4
KEYS_MAX = 8
"""The simulation lives with these in place of the product's, so that short lives come to their limits."""
DAY_US = 86_400 * 1_000_000
KEY_AGE_US = DAY_US
PRODUCER_IDLE_US = 7 * DAY_US

Values = dict[str, Any]
Placed = dict[tuple[int, int], tuple[int, int]]
"""By topic number and partition: the first offset, and the one after the last."""


@dataclass(slots=True)
class Row:
    """A row that was acknowledged, or shown by a recovery."""

    offset: int
    values: Values
    op: str
    order: int
    lsns: tuple[int, int] | None
    """Between these, both included; None where it is not known yet."""
    time_us: int | None
    loose: bool = False
    gone: bool = False


@dataclass
class Policy:
    cleanup: str = "delete"
    retention_s: float | None = None
    retention_bytes: int | None = None
    tombstones_s: float = 86_400.0


@dataclass
class PlainTopic:
    """A topic: its rows, and all that was said when it was made or changed."""

    name: str
    kind: str
    columns: dict[str, str]
    partitions: int
    policy: Policy
    number: int = 0
    topic_id: str = ""
    versions: int = 1
    rows: list[list[Row]] = field(default_factory=list)

    @property
    def keyed(self) -> bool:
        return self.kind == "keyed"

    def copy(self) -> PlainTopic:
        return replace(self, columns=dict(self.columns), policy=self.policy, rows=[list(rows) for rows in self.rows])

    def shown(self, row: Row) -> Values:
        """The row as it is read now: in the present columns."""
        return {name: row.values.get(name) for name in self.columns}

    def all_rows(self) -> list[Row]:
        """In the order in which they were appended."""
        return sorted((row for rows in self.rows for row in rows), key=lambda row: row.order)


@dataclass(frozen=True)
class Write:
    """What one request wants to be there, together or not at all."""

    rows: tuple[tuple[str, int, Values, str], ...] = ()
    """Topic, partition, values and sense, in order."""
    offsets: tuple[tuple[str, int, int, int], ...] = ()
    """Group, topic number, partition, offset."""
    sources: tuple[tuple[str, Any, int | None], ...] = ()
    producer: tuple[str, int] | None = None
    """A producer's name and the number of its request."""
    key: str | None = None
    """As topics_observed.key_of names it."""


@dataclass
class Told:
    """What the log has told about a write; None where it has told nothing."""

    first_lsn: int
    last_lsn: int
    time_us: int


@dataclass
class PlainProducer:
    producer_id: int
    epoch: int
    next_sequence: int
    time_us: int | None
    answers: dict[int, SeenAnswer | None] = field(default_factory=dict)

    def copy(self) -> PlainProducer:
        return replace(self, answers=dict(self.answers))


@dataclass
class PlainKey:
    answer: SeenAnswer | None
    order: int


Stage = Callable[["PlainTopics"], None]
"""What a request changes when it has come so far."""


class PlainTopics:
    """Everything that a log holds."""

    def __init__(self) -> None:
        self.topics: dict[str, PlainTopic] = {}
        self.next_number = 1
        self.ids: set[str] = set()
        self.sources: dict[str, tuple[Any, int | None]] = {}
        self.groups: dict[tuple[str, int], dict[int, int]] = {}
        self.producers: dict[str, PlainProducer] = {}
        self.keys: dict[str, PlainKey] = {}
        self.order = 0
        self.time_us = 0
        """The time of the last write that is known: the log's own time is at least this."""
        self.lsn = 0
        """The last LSN of which anybody was told."""
        self.open: list[Stage] = []
        """The stages of a request that was cut short, in order; it has come to one of them or to none."""

    def copy(self) -> PlainTopics:
        other = PlainTopics()
        other.__dict__.update(self.__dict__)
        other.topics = {name: topic.copy() for name, topic in self.topics.items()}
        other.ids = set(self.ids)
        other.sources = dict(self.sources)
        other.groups = {group: dict(offsets) for group, offsets in self.groups.items()}
        other.producers = {name: producer.copy() for name, producer in self.producers.items()}
        other.keys = dict(self.keys)
        other.open = []
        return other

    # What is told -----------------------------------------------------------------------------

    def create(self, topic: PlainTopic) -> None:
        topic.number = self.next_number
        topic.rows = [[] for _ in range(topic.partitions)]
        self.next_number += 1
        self.topics[topic.name] = topic

    def delete(self, name: str) -> None:
        number = self.topics.pop(name).number
        self.groups = {group: offsets for group, offsets in self.groups.items() if group[1] != number}

    def write(self, write: Write, told: Told | None = None, answer: SeenAnswer | None = None) -> Placed:
        """The write is there; returns where its rows are."""
        placed: Placed = {}
        lsns = None if told is None else (told.first_lsn, told.last_lsn)
        time_us = None if told is None else told.time_us
        for name, partition, values, op in write.rows:
            topic = self.topics[name]
            rows = topic.rows[partition]
            offset = len(rows)
            self.order += 1
            rows.append(Row(offset, values, op, self.order, lsns, time_us))
            first, _ = placed.get((topic.number, partition), (offset, offset))
            placed[topic.number, partition] = (first, offset + 1)
        for group, number, partition, offset in write.offsets:
            self.groups.setdefault((group, number), {})[partition] = offset
        for source, position, watermark_us in write.sources:
            before = self.sources.get(source)
            kept_us = before[1] if watermark_us is None and before is not None else watermark_us
            self.sources[source] = (position, kept_us)
        if answer is None and told is not None:
            answer = SeenAnswer(told.first_lsn, told.last_lsn, told.time_us, placed)
        if write.producer is not None:
            name, sequence = write.producer
            producer = self.producers[name]
            assert sequence == producer.next_sequence
            producer.next_sequence = sequence + 1
            producer.time_us = time_us
            producer.answers[sequence] = answer
            if len(producer.answers) > ANSWERS_KEPT:
                del producer.answers[min(producer.answers)]
        if write.key is not None:
            self.keys.pop(write.key, None)
            self.keys[write.key] = PlainKey(answer, self.order)
        if told is not None:
            self.time_us = max(self.time_us, told.time_us)
            if told.first_lsn <= self.lsn:
                raise Violation(f"V3: LSN {told.first_lsn} was told after {self.lsn}")
        return placed

    def note_lsn(self, lsn: int) -> None:
        self.lsn = max(self.lsn, lsn)

    def register(self, name: str, producer_id: int, epoch: int, next_sequence: int) -> None:
        producer = self.producers.get(name)
        if producer is None or producer.producer_id != producer_id:
            self.producers[name] = PlainProducer(producer_id, epoch, next_sequence, None)
        else:
            producer.epoch = epoch
            producer.time_us = None

    def producer_may_be_forgotten(self, name: str, now_us: int) -> bool:
        producer = self.producers[name]
        return producer.time_us is not None and producer.time_us < max(now_us, self.time_us) - PRODUCER_IDLE_US

    def key_is(self, key: str, now_us: int) -> str:
        """Whether a key must be "known", must be "new", or may be either."""
        known = self.keys.get(key)
        if known is None:
            return "new"
        now_us = max(now_us, self.time_us + 1)
        time_us = known.answer.time_us if known.answer is not None else now_us
        if abs(time_us - (now_us - KEY_AGE_US)) < 1_000:
            return "either"
        if time_us < now_us - KEY_AGE_US:
            return "new"
        newer = sum(each.order > known.order for each in self.keys.values())
        return "known" if newer < KEYS_MAX else "either"

    def loosen(self, now_us: int) -> None:
        """A cleanup begins: what the policies let go may be there or not from now on."""
        for topic in self.topics.values():
            policy = topic.policy
            rows = [row for row in topic.all_rows() if not row.gone]
            if policy.cleanup != "compact":
                for row in rows:
                    assert row.time_us is not None
                    aged = policy.retention_s is not None and row.time_us + policy.retention_s * 1e6 <= now_us
                    row.loose = row.loose or aged or policy.retention_bytes is not None
            if policy.cleanup != "delete":
                self.loosen_superseded(topic, rows, now_us)

    @staticmethod
    def loosen_superseded(topic: PlainTopic, rows: Iterable[Row], now_us: int) -> None:
        latest: dict[Any, Row] = {}
        for row in rows:
            before = latest.get(row.values["k"])
            if before is not None:
                before.loose = True
            latest[row.values["k"]] = row
        for row in latest.values():
            assert row.time_us is not None
            if row.op == "D" and row.time_us + topic.policy.tombstones_s * 1e6 <= now_us:
                row.loose = True

    # What must hold ---------------------------------------------------------------------------

    def variants(self) -> list[PlainTopics]:
        """All that may be true: with an open request, each stage of it."""
        found = [self]
        for stage in self.open:
            reached = self.copy()
            stage(reached)
            found.append(reached)
        return found

    def match(self, observed: Observed, variants: list[PlainTopics] | None = None) -> PlainTopics:
        """The variant that the log shows; a Violation where it is none of them."""
        troubles = []
        for variant in self.variants() if variants is None else variants:
            trouble = variant.difference(observed)
            if trouble is None:
                return variant
            troubles.append(trouble)
        raise Violation(" | or, with the open request: ".join(troubles))

    def difference(self, observed: Observed, *, as_reader: bool = False) -> str | None:
        """What is not as it must be (V1 to V6, V11)."""
        if observed.topics.keys() != self.topics.keys():
            return f"topics {sorted(observed.topics)} and not {sorted(self.topics)}"
        for name, topic in self.topics.items():
            trouble = _topic_difference(topic, observed, as_reader) or _rows_difference(topic, observed, as_reader)
            if trouble is not None:
                return f"topic {name!r}: {trouble}"
        return self._state_difference(observed)

    def _state_difference(self, observed: Observed) -> str | None:
        groups = {group: offsets for group, offsets in observed.groups.items() if offsets}
        if groups != {group: offsets for group, offsets in self.groups.items() if offsets}:
            return f"groups have committed {groups} and not {self.groups}"
        if observed.sources != self.sources:
            return f"sources are at {observed.sources} and not at {self.sources}"
        for name, producer in self.producers.items():
            seen = observed.producers.get(name)
            if seen is None and self.producer_may_be_forgotten(name, observed.time_us):
                continue
            trouble = _producer_difference(producer, seen)
            if trouble is not None:
                return f"V6: producer {name!r}: {trouble}"
        strange = observed.producers.keys() - self.producers.keys()
        if strange:
            return f"V6: the producers {strange} are known and were never opened"
        live = {"", *(topic.topic_id for topic in observed.topics.values())}
        for key, known in self.keys.items():
            if key.partition(":")[0] not in live:
                continue
            answered = observed.keys.get(key)
            if answered is None:
                if self.key_is(key, observed.time_us) == "known":
                    return f"V6: the key {key!r} is forgotten"
            elif known.answer is not None and not known.answer.fits(answered):
                return f"V6: the key {key!r} is answered {answered} and not {known.answer}"
        unknown = [key for key in observed.keys if key not in self.keys]
        return f"V6: the keys {unknown} are known and were never used" if unknown else None

    def settle(self, observed: Observed) -> None:
        """Take in what the log has shown: what was open or loose is decided now, and LSNs and times are known."""
        self.open.clear()
        for name, topic in self.topics.items():
            seen_topic = observed.topics[name]
            if not topic.topic_id:
                topic.topic_id = seen_topic.topic_id
                if topic.topic_id in self.ids:
                    raise Violation(f"topic {name!r}: its id was another's before")
                self.ids.add(topic.topic_id)
            seen = observed.rows[name]
            for partition, rows in enumerate(topic.rows):
                for row in rows:
                    there = seen.get((partition, row.offset))
                    if there is None:
                        row.gone = True
                    else:
                        row.loose = False
                        row.lsns = (there.lsn, there.lsn)
                        row.time_us = there.time_us
        for name, producer in self.producers.items():
            known = observed.producers.get(name)
            if known is not None:
                producer.producer_id = known.producer_id
                producer.time_us = known.time_us
                producer.answers = {sequence: known.answers[sequence] for sequence in producer.answers}
        for key, plain in self.keys.items():
            if key in observed.keys:
                plain.answer = observed.keys[key]
        self.time_us = max(self.time_us, observed.time_us)
        self.note_lsn(observed.durable_lsn)


def _topic_difference(topic: PlainTopic, observed: Observed, as_reader: bool) -> str | None:
    seen = observed.topics[topic.name]
    wanted = (topic.number, topic.columns, topic.versions, topic.partitions, topic.keyed)
    found = (seen.number, seen.columns, seen.versions, seen.partitions, bool(seen.key))
    if wanted != found:
        return f"it is {found} and not {wanted}"
    if topic.topic_id and seen.topic_id != topic.topic_id:
        return "its id is another"
    policy = topic.policy
    wanted_policy = (policy.cleanup, policy.retention_s, policy.retention_bytes, policy.tombstones_s)
    if wanted_policy != seen.policy:
        return f"its policy is {seen.policy} and not {wanted_policy}"
    for partition, (first, following) in seen.offsets.items():
        rows = topic.rows[partition]
        if following != len(rows):
            return f"V3: the next offset of partition {partition} is {following} and not {len(rows)}"
        there = [row.offset for row in rows if not row.gone and not row.loose]
        if first > following or (there and first > there[0]):
            return f"partition {partition} begins at {first}, and offset {there[:1]} is there"
    return None


def _rows_difference(topic: PlainTopic, observed: Observed, as_reader: bool) -> str | None:
    seen = observed.rows[topic.name]
    found = 0
    for partition, rows in enumerate(topic.rows):
        for row in rows:
            there = seen.get((partition, row.offset))
            if there is None:
                if not row.gone and not row.loose:
                    return f"V1: offset {row.offset} of partition {partition} is missing: {row}"
                continue
            found += 1
            if row.gone and not as_reader:
                return f"V13: offset {row.offset} of partition {partition} was gone, and is back: {row}"
            trouble = _row_difference(topic, row, there)
            if trouble is not None:
                return f"offset {row.offset} of partition {partition}: {trouble}"
    if found != len(seen):
        extra = [place for place in seen if place[1] >= len(topic.rows[place[0]])]
        return f"V5: rows that were never acknowledged: {[(place, seen[place]) for place in extra]}"
    return _latest_difference(topic, seen) if topic.keyed else None


def _row_difference(topic: PlainTopic, row: Row, there: ObservedRow) -> str | None:
    shown = topic.shown(row)
    if topic.kind == "rejected":
        # The reason is for people.
        if not there.values.get("reason"):
            return "V1: a rejected row without its reason"
        shown["reason"] = there.values["reason"]
    if there.values != shown or there.op != row.op:
        return f"V1: it is {there.op} {there.values} and not {row.op} {shown}"
    if row.lsns is not None and not row.lsns[0] <= there.lsn <= row.lsns[1]:
        return f"V1: its LSN is {there.lsn} and not in {row.lsns}"
    if row.time_us is not None and there.time_us != row.time_us:
        return f"V11: its time is {there.time_us} and not {row.time_us}"
    return None


def _latest_difference(topic: PlainTopic, seen: dict[tuple[int, int], ObservedRow]) -> str | None:
    """Whoever reads it all finds the latest row of a key, or nothing of that key; never an older one as the latest."""
    latest: dict[Any, tuple[int, int, int]] = {}
    visible: dict[Any, tuple[int, int, int]] = {}
    for partition, rows in enumerate(topic.rows):
        for row in rows:
            key = row.values["k"]
            place = (row.order, partition, row.offset)
            latest[key] = max(latest.get(key, place), place)
            if (partition, row.offset) in seen:
                visible[key] = max(visible.get(key, place), place)
    for key, place in visible.items():
        if place != latest[key]:
            return f"key {key} is back: its latest row {latest[key]} is gone, and the older one {place} is there"
    return None


def _producer_difference(producer: PlainProducer, seen: Any) -> str | None:
    if seen is None:
        return "it is forgotten"
    # A number that nobody was told is the log's to choose.
    wanted = (producer.producer_id or seen.producer_id, producer.epoch, producer.next_sequence)
    found = (seen.producer_id, seen.epoch, seen.next_sequence)
    if wanted != found:
        return f"it is {found} and not {wanted}"
    if list(seen.answers) != list(producer.answers):
        return f"it remembers the answers {list(seen.answers)} and not {list(producer.answers)}"
    for sequence, answer in producer.answers.items():
        if answer is not None and not answer.fits(seen.answers[sequence]):
            return f"request {sequence} is answered {seen.answers[sequence]} and not {answer}"
    return None
