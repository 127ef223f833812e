"""A topic of a log, looked at by a query: where it may begin and end.

PROMISE  A position is at the end of a write, so a stream's batches never cut a write in two.
         Where nothing of the topic is new, the position is the same as before, and Spark starts no batch.
         Opening claims nothing; a directory that is not there is not made.
SERVED   Positions are found where the log is: in this process (LogPositions), or by its server, which does the same.
NOT HERE Which bytes lie between two positions: source_pieces.py.  How they are read: source_reader.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Protocol, Self, cast

from headwater.clock import SystemClock, system_entropy
from headwater.errors import Conflict, Forgotten, InvalidRequest
from headwater.frames.bodies import GapReason, unpack_gap
from headwater.frames.frame import Kind
from headwater.ids import Lsn
from headwater.lake.elsewhere import ServedLog, is_elsewhere, open_elsewhere
from headwater.lake.engine_log import EngineLog
from headwater.lake.ledger import LakeLedger, Ledger
from headwater.lake.source import OpenLog
from headwater.metadata.operations import TopicRecord
from headwater.settings import Settings
from headwater.spark.source_options import (
    EARLIEST,
    EARLIEST_OFFSET,
    LATEST,
    LATEST_OFFSET,
    AtTime,
    Offsets,
    Where,
)
from headwater.spark.source_pieces import Piece, PiecesSource, TopicPieces
from headwater.spark.source_position import Position, Positions
from headwater.storage.places import open_files
from headwater.topics.engine import Engine
from headwater.topics.retention import NOTHING_LANDED

logger = logging.getLogger("headwater.spark")

_PARTS_OF_A_TRIGGER = 8
"""A limit for a trigger is filled in steps of this part of it."""


class LogPositions:
    """Positions in a log that an engine has open."""

    def __init__(self, engine: Engine, source: PiecesSource, number: int) -> None:
        self._engine = engine
        self._source = source
        self._number = number

    def position(self, where: Where, *, ending: bool) -> Position:
        """The place from which on rows are wanted; `ending`: before which."""
        if where == LATEST:
            return self.latest()
        if where == EARLIEST:
            return self._earliest()
        if isinstance(where, AtTime):
            lsn = self._engine.shard.log.find_time(where.time_us)
            return self.latest() if lsn is None else self._before(lsn)
        assert isinstance(where, dict)
        return self._end_at(where) if ending else self._start_at(where)

    def latest(self) -> Position:
        log = self._engine.shard.log
        durable = log.durable_lsn()
        # Both are of the moment of that look: nothing is looked at again between them.
        offsets = {each: log.device.next_offset(self._number, each) for each in range(self.record.partitions)}
        return Position(self._topic_id, durable, offsets)

    def _earliest(self) -> Position:
        first = self._first_lsn()
        latest = self.latest()
        return Position(self._topic_id, first - 1, {each: self._first_held(each, latest) for each in latest.offsets})

    def _before(self, lsn: int) -> Position:
        """Just before an LSN."""
        return self._at(lsn - 1, self._earliest().offsets, self.latest())

    def _start_at(self, given: Offsets) -> Position:
        latest, earliest = self.latest(), self._earliest()
        offsets = self._named(given, "startingOffsets", earliest, latest)
        found = [self._engine.shard.log.find(self._number, each, offset) for each, offset in offsets.items()]
        lsn = min((place.lsn - 1 for place in found if place is not None), default=latest.lsn)
        if any(offset < earliest.offsets[each] for each, offset in offsets.items()):
            lsn = 0  # from where on it is asked for is not in the log: whether that is a loss is for the check to say
        return Position(self._topic_id, lsn, offsets)

    def _end_at(self, given: Offsets) -> Position:
        latest = self.latest()
        offsets = self._named(given, "endingOffsets", self._earliest(), latest)
        log = self._engine.shard.log
        # Each partition's last wanted row, or where it is gone the one after it, which its offset then leaves out.
        found = [log.find(self._number, each, offset - 1) for each, offset in offsets.items() if offset]
        lsn = max((place.lsn if place is not None else latest.lsn for place in found), default=0)
        return Position(self._topic_id, lsn, offsets)

    def _named(self, given: Offsets, option: str, earliest: Position, latest: Position) -> Offsets:
        """Offsets of all partitions, with Kafka's two numbers replaced by what they stand for."""
        missing = sorted(set(latest.offsets) - set(given))
        if missing:
            raise InvalidRequest(
                f"{option} says nothing of partition {missing[0]}: name all {len(latest.offsets)} of "
                f"{self.record.name!r}; {EARLIEST_OFFSET} is earliest, {LATEST_OFFSET} latest",
                partitions=missing,
            )
        unknown = sorted(set(given) - set(latest.offsets))
        if unknown:
            raise InvalidRequest(
                f"{self.record.name!r} has no partition {unknown[0]}", option=option, partition=unknown[0]
            )
        named = {EARLIEST_OFFSET: earliest.offsets, LATEST_OFFSET: latest.offsets}
        return {each: named[offset][each] if offset in named else offset for each, offset in given.items()}

    def _at(self, lsn: int, low: Mapping[int, int], latest: Position) -> Position:
        """The position at an LSN, which is between what `low` says and the latest."""
        offsets = {
            each: self._next_offset_at(each, lsn, low.get(each, 0), end) for each, end in sorted(latest.offsets.items())
        }
        return Position(self._topic_id, lsn, offsets)

    def _next_offset_at(self, partition: int, lsn: int, low: int, high: int) -> int:
        """The offset after the partition's last row at or below an LSN, by halving: LSNs and offsets rise together."""
        log = self._engine.shard.log.device
        while low < high:
            middle = (low + high) // 2
            found = log.find(self._number, partition, middle)
            if found is None or found.lsn > lsn:
                high = middle
            else:
                low = middle + 1
        return low

    def after(self, position: Position, bytes_max: int | None) -> Position:
        """The latest position, or one that is about `bytes_max` bytes after the given one and at the end of a write."""
        latest = self.latest()
        if not any(latest.offsets[each] > position.offsets.get(each, 0) for each in latest.offsets):
            return position
        if bytes_max is None:
            return latest
        lsn, total = position.lsn, 0
        pieces = self._pieces
        for part in pieces.parts(position.lsn, latest.lsn, max(bytes_max // _PARTS_OF_A_TRIGGER, 1)):
            size = pieces.bytes_of(part)
            # At least one write, however small the limit: a stream that stands still helps nobody.
            if total and total + size > bytes_max:
                end = self._end_of_write(lsn)
                return latest if end >= latest.lsn else self._at(end, position.offsets, latest)
            lsn, total = part.lsn_to, total + size
        return latest

    def _end_of_write(self, lsn: int) -> int:
        """The last LSN of the write that this LSN is in."""
        log = self._engine.shard.log
        frame = next(iter(log.read(Lsn(lsn), Lsn(lsn))), None)
        if frame is None:
            return lsn
        header = frame.header
        return int(header.lsn) + header.write_count - 1 - header.write_index

    @property
    def record(self) -> TopicRecord:
        """The topic as it is now; UnknownTopic where it was deleted."""
        return self._engine.topic_numbered(self._number)

    @property
    def _topic_id(self) -> str:
        return self.record.topic_id.hex()

    @property
    def _pieces(self) -> TopicPieces:
        return TopicPieces(self._source, self.record)

    # What is gone --------------------------------------------------------------------------------

    def forgotten(self, start: Position) -> Iterator[Forgotten]:
        """Where rows after this position are not in the log any more, what is to be said of each partition."""
        latest = self.latest()
        for partition in latest.offsets:
            wanted = start.offsets.get(partition, 0)
            first = self._first_held(partition, latest)
            if wanted >= first or not self._was_forgotten(partition, start.lsn, wanted):
                continue
            yield Forgotten(
                f"the log has forgotten rows of {self.record.name!r} that this query has not read: read them from the "
                "table, or say failOnDataLoss=false to go on without them",
                partition=partition,
                offset=wanted,
                first_offset=first,
                table=self.record.table or "none",
            )

    def _was_forgotten(self, partition: int, lsn: int, offset: int) -> bool:
        """Of offsets that are not there: were they let go of?  What was compacted is not lost, because a later row of
        its key is there."""
        if not self.record.key or self._first_lsn() > lsn + 1:
            return True
        log = self._engine.shard.log
        found = log.find(self._number, partition, offset)
        for frame in log.read(Lsn(lsn + 1), found.lsn if found is not None else None):
            gap = unpack_gap(frame.body) if frame.header.kind == Kind.GAP else None
            lost = gap.next_offsets if gap is not None and gap.reason != GapReason.COMPACTED else ()
            if any((self._number, partition) == each[:2] and each[2] > offset for each in lost):
                return True
        return False

    def _first_lsn(self) -> int:
        segments = self._engine.shard.log.segments()
        return segments[0].first_lsn if segments else 1

    def _first_held(self, partition: int, latest: Position) -> int:
        first = self._engine.shard.log.first_offset(self._number, partition)
        return latest.offsets[partition] if first is None else first


class _OpenedElsewhere(ServedLog, Protocol):
    """A log behind a server."""

    def positions(self, topic: str) -> Positions:
        """Where rows of the topic of this name begin and end; UnknownTopic."""
        ...


class _OpenedHere:
    """A log that this process opens itself."""

    def __init__(self, directory: str) -> None:
        files = open_files(directory)
        if not files.list("journal"):
            raise InvalidRequest(f"there is no log in {directory}", uri=directory)
        clock, entropy = SystemClock(), system_entropy
        self._engine = Engine(files, directory=directory, settings=Settings(), clock=clock, entropy=entropy)
        self.log = EngineLog(
            self._engine, directory, files=files, clock=clock, entropy=entropy, landings=NOTHING_LANDED
        )
        self.ledger = Ledger(files, clock=clock, entropy=entropy)

    def positions(self, topic: str) -> LogPositions:
        return LogPositions(self._engine, self.log, self._engine.topic(topic).number)

    def close(self) -> None:
        self.log.close()
        self.ledger.close()
        self._engine.close()


class OpenTopic:
    """A topic of an open log.  Close it, or use it in a `with`."""

    def __init__(self, directory: str, name: str) -> None:
        self._name = name
        opened: _OpenedElsewhere | _OpenedHere
        opened = (
            cast(_OpenedElsewhere, open_elsewhere(directory)) if is_elsewhere(directory) else _OpenedHere(directory)
        )
        self._close = opened.close
        self.log: OpenLog = opened if not isinstance(opened, _OpenedHere) else opened.log
        """As the lake asks it."""
        self.ledger: LakeLedger = opened.ledger
        try:
            self._positions: Positions = opened.positions(name)
        except BaseException:
            opened.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._close()

    @property
    def record(self) -> TopicRecord:
        """The topic as it is now; UnknownTopic where it was deleted."""
        return self._positions.record

    # Positions -----------------------------------------------------------------------------------

    def start(self, where: Where) -> Position:
        """The place from which on rows are wanted."""
        return self._positions.position(where, ending=False)

    def end(self, where: Where) -> Position:
        """The place before which they are."""
        return self._positions.position(where, ending=True)

    def latest(self) -> Position:
        return self.end(LATEST)

    def after(self, position: Position, bytes_max: int | None) -> Position:
        """The latest position, or one that is about `bytes_max` bytes after the given one and at the end of a write."""
        self.check(position)
        return self._positions.after(position, bytes_max)

    def check(self, position: Position) -> None:
        """A position of another topic that had this name before is of no use."""
        now = self.record.topic_id.hex()
        if position.topic_id != now:
            raise Conflict(
                f"{self._name!r} was deleted and created again since this stream began: begin it with a new checkpoint",
                topic=self._name,
                was=position.topic_id,
                now=now,
            )

    def check_not_forgotten(self, start: Position, *, fail: bool) -> None:
        """Raise Forgotten where rows after this position are not in the log any more; or say so, and go on."""
        for lost in self._positions.forgotten(start):
            if fail:
                raise lost
            logger.warning("%s", lost)

    # Pieces --------------------------------------------------------------------------------------

    @property
    def _pieces(self) -> TopicPieces:
        return TopicPieces(self.log, self.record)

    def pieces(self, start: Position, end: Position, *, partitions_min: int | None) -> list[tuple[Piece, ...]]:
        """What is to be read from one position to another: the pieces of each Spark partition, in order."""
        low, high = dict(start.offsets), dict(end.offsets)
        return self._pieces.between(start.lsn, end.lsn, low, high, partitions_min=partitions_min)

    def again(self, piece: Piece) -> list[Piece]:
        """The same rows where they lie now: a rewrite has put another file into the place of the one that was named."""
        topic = piece.topic
        segments = self.log.segments()
        if segments and segments[0].first_lsn > topic.lsn_from + 1:
            raise Forgotten(
                f"the log has forgotten rows of {self._name!r} while they were being read: read them from the table",
                lsn=topic.lsn_from + 1,
            )
        return self._pieces.again(piece)
