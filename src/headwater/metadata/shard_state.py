"""What a shard knows besides its rows: a fold of the log, frame by frame, up to an LSN.

    next offsets      of every partition
    producers         epoch, next sequence, the last 64 answers
    keys              the answers to requests with an idempotency key, of the last 24 hours, at most a million
    groups            the offsets that each has committed
    sources           how far each outside source has been taken in

PROMISE  `fold` is pure: the same frames in the same order give the same state, whoever folds them, and `pack` gives the
         same bytes for it.  So a checkpoint can be checked against the log (V10), and is never a source of its own.
TIME     is the log's own: append times.  `prune` forgets by it: a producer that has been idle for a week, a key that is
         a day old.  It is called at each checkpoint and nowhere else; what it forgets no later frame speaks of, so
         that pruning earlier, later or twice makes no difference once all have been pruned at the same LSN.
NOT HERE When checkpoints are made: topics/shard.py.  Who may do what: topics/forming.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

import msgspec

from headwater.errors import CorruptData
from headwater.frames.bodies import unpack_gap
from headwater.frames.frame import Kind, chain_value
from headwater.ids import Lsn
from headwater.log.device import Frame
from headwater.log.index import partition_key
from headwater.metadata.records import (
    CommittedOffset,
    Part,
    unpack_offsets,
    unpack_producer,
    unpack_sequences,
    unpack_source,
)

ANSWERS_KEPT = 64
PRODUCER_IDLE_US_MAX = 7 * 86_400 * 1_000_000
KEY_AGE_US_MAX = 86_400 * 1_000_000
KEYS_MAX = 1_000_000


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """Where the rows of a request are."""

    first_lsn: int
    last_lsn: int
    append_time_us: int
    parts: tuple[Part, ...]


class Producer(msgspec.Struct):
    """A producer as the log knows it."""

    producer_id: int
    name: str
    epoch: int
    last_time_us: int
    next_sequence: int = 0
    answers: dict[int, Answer] = {}
    """The last 64, by sequence, in order."""


class Source(msgspec.Struct, frozen=True):
    position: Any
    watermark_us: int | None
    lsn: int
    time_us: int


class Committed(msgspec.Struct, frozen=True, array_like=True):
    """What a group committed for a partition, and where that stands."""

    offset: int
    epoch: int
    counter: int
    lsn: int


class _Packed(msgspec.Struct, forbid_unknown_fields=True):
    """The form of a state in a checkpoint."""

    lsn: int
    chain: int
    time_us: int
    next_offsets: list[tuple[int, int]]
    next_producer_id: int
    producers: list[Producer]
    keys: list[tuple[bytes, Answer]]
    groups: list[tuple[str, int, list[tuple[int, Committed]]]]
    sources: list[tuple[str, Source]]


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_Packed)


class ShardState:
    """The fold.  Whoever holds one decides who may change it: the owner changes its own under the baton."""

    def __init__(self) -> None:
        self.lsn = Lsn(0)
        """The last LSN that was folded."""
        self.chain = 0
        """That frame's chain value."""
        self.time_us = 0
        """That frame's append time."""
        self.next_offsets: dict[int, int] = {}
        self.next_producer_id = 1
        self.producers: dict[int, Producer] = {}
        self.producer_ids: dict[str, int] = {}
        self.keys: dict[bytes, Answer] = {}
        self.groups: dict[tuple[str, int], dict[int, Committed]] = {}
        self.sources: dict[str, Source] = {}

    # Folding ---------------------------------------------------------------------------------

    def fold(self, frame: Frame) -> None:
        """Take in the next frame of the log."""
        header = frame.header
        kind = header.kind
        if kind == Kind.DATA or kind == Kind.SPARSE:
            key = partition_key(header.topic_number, header.partition)
            self.next_offsets[key] = header.base_offset + header.offset_count
        elif kind == Kind.GAP:
            self._fold_gap(frame)
        else:
            first_lsn = header.lsn - header.write_index
            last_lsn = first_lsn + header.write_count - 1
            self.fold_record(kind, frame.body, header.lsn, first_lsn, last_lsn, header.append_time_us)
        self.move_to(header.lsn, chain_value(header, frame.body), header.append_time_us)

    def move_to(self, lsn: int, chain: int, time_us: int) -> None:
        """Everything up to this LSN has been folded."""
        self.lsn = Lsn(lsn)
        self.chain = chain
        self.time_us = max(self.time_us, time_us)

    def fold_record(
        self, kind: int, body: memoryview | bytes, lsn: int, first_lsn: int, last_lsn: int, time_us: int
    ) -> None:
        """Take in a frame that is not rows: `first_lsn` and `last_lsn` are its write's."""
        if kind == Kind.SEQUENCES:
            for entry in unpack_sequences(body):
                answer = Answer(first_lsn, last_lsn, time_us, entry.parts)
                if entry.producer_id:
                    self._fold_sequence(entry.producer_id, entry.epoch, entry.sequence, answer)
                if entry.key:
                    # Taken out and put in again, so that the keys stay in the order of their LSNs.
                    self.keys.pop(entry.key, None)
                    self.keys[entry.key] = answer
        elif kind == Kind.OFFSETS:
            record = unpack_offsets(body)
            self._fold_offsets(record.group, record.topic_number, record.offsets, lsn)
        elif kind == Kind.PRODUCER:
            registered = unpack_producer(body)
            producer = self.producers.get(registered.producer_id)
            if producer is None:
                producer = Producer(registered.producer_id, registered.name, registered.epoch, time_us)
                self.producers[registered.producer_id] = producer
            producer.epoch = registered.epoch
            producer.last_time_us = time_us
            self.producer_ids[registered.name] = registered.producer_id
            self.next_producer_id = max(self.next_producer_id, registered.producer_id + 1)
        elif kind == Kind.SOURCE:
            source = unpack_source(body)
            before = self.sources.get(source.name)
            watermark_us = source.watermark_us
            if watermark_us is None and before is not None:
                watermark_us = before.watermark_us
            self.sources[source.name] = Source(source.position, watermark_us, lsn, time_us)

    def _fold_sequence(self, producer_id: int, epoch: int, sequence: int, answer: Answer) -> None:
        producer = self.producers.get(producer_id)
        if producer is None:
            # Its registration was lost with frames that a repair declared lost.
            producer = Producer(producer_id, "", epoch, answer.append_time_us)
            self.producers[producer_id] = producer
            self.next_producer_id = max(self.next_producer_id, producer_id + 1)
        producer.epoch = max(producer.epoch, epoch)
        producer.next_sequence = sequence + 1
        producer.last_time_us = answer.append_time_us
        producer.answers[sequence] = answer
        if len(producer.answers) > ANSWERS_KEPT:
            del producer.answers[next(iter(producer.answers))]

    def _fold_offsets(self, group: str, topic_number: int, offsets: Iterable[CommittedOffset], lsn: int) -> None:
        committed = self.groups.setdefault((group, topic_number), {})
        for each in offsets:
            committed[each.partition] = Committed(each.offset, each.epoch, each.counter, lsn)

    def _fold_gap(self, frame: Frame) -> None:
        gap = unpack_gap(frame.body)
        assert gap is not None, "the log gives out gaps that it has checked"
        for topic_number, partition, following in gap.next_offsets:
            self.next_offsets[partition_key(topic_number, partition)] = following

    # Forgetting ------------------------------------------------------------------------------

    def prune(self) -> None:
        """Forget producers and keys that are too old by the log's own time."""
        idle_since_us = self.time_us - PRODUCER_IDLE_US_MAX
        for producer in [each for each in self.producers.values() if each.last_time_us < idle_since_us]:
            del self.producers[producer.producer_id]
            if self.producer_ids.get(producer.name) == producer.producer_id:
                del self.producer_ids[producer.name]
        # Keys are in the order of their LSNs, so that what goes is a prefix.
        too_many = len(self.keys) - KEYS_MAX
        going = list(islice(self.keys, max(too_many, 0)))
        for key, answer in islice(self.keys.items(), len(going), None):
            if answer.append_time_us >= self.time_us - KEY_AGE_US_MAX:
                break
            going.append(key)
        for key in going:
            del self.keys[key]

    # Saving ----------------------------------------------------------------------------------

    def pack(self) -> bytes:
        """Its body in a checkpoint; equal states give equal bytes."""
        return _ENCODER.encode(
            _Packed(
                lsn=self.lsn,
                chain=self.chain,
                time_us=self.time_us,
                next_offsets=sorted(self.next_offsets.items()),
                next_producer_id=self.next_producer_id,
                producers=sorted(self.producers.values(), key=lambda producer: producer.producer_id),
                keys=list(self.keys.items()),
                groups=[(*group, sorted(offsets.items())) for group, offsets in sorted(self.groups.items())],
                sources=sorted(self.sources.items()),
            )
        )

    @classmethod
    def unpack(cls, body: bytes | memoryview) -> ShardState:
        try:
            packed = _DECODER.decode(body)
        except msgspec.DecodeError as error:
            raise CorruptData(f"the state in a checkpoint cannot be read: {error}") from error
        state = cls()
        state.lsn = Lsn(packed.lsn)
        state.chain = packed.chain
        state.time_us = packed.time_us
        state.next_offsets = dict(packed.next_offsets)
        state.next_producer_id = packed.next_producer_id
        state.producers = {producer.producer_id: producer for producer in packed.producers}
        state.producer_ids = {producer.name: producer.producer_id for producer in packed.producers if producer.name}
        state.keys = dict(packed.keys)
        state.groups = {(group, topic): dict(offsets) for group, topic, offsets in packed.groups}
        state.sources = dict(packed.sources)
        return state


def fold_frames(state: ShardState, frames: Iterable[Frame]) -> ShardState:
    """The state after these frames, which follow the last one it has folded."""
    for frame in frames:
        state.fold(frame)
    return state
