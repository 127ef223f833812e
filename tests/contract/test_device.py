"""What every Device promises, whatever it keeps its commits in (headwater/log/device.py).

Runs over the file device on a real disk and on simulated files, and over the object device on a simulated store and on
a real S3 server.  No device needs a test of its own here, nor a test here another verb than Device has.

NOT HERE Faults of what is below a device: its own unit tests, tests/simulation and tests/faults.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Protocol

import pytest

from headwater.clock import Clock, ManualClock, SystemClock, system_entropy
from headwater.errors import Closed, Conflict, Forgotten, HeadwaterError, LogLocked, OutcomeUnknown, Poisoned
from headwater.frames.frame import Kind
from headwater.ids import Lsn
from headwater.log.device import Device, Frame, TopicInSegment
from headwater.log.drafts import Draft
from headwater.log.file_device import FileDevice
from headwater.log.index import partition_key
from headwater.log.object_device import ObjectDevice
from headwater.log.segments import LogPlace
from headwater.log.slots import WINDOW
from headwater.metrics import LogCounters
from headwater.settings import LogSettings
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.disk import DiskFiles
from headwater.storage.files import Files
from headwater.storage.objects import Objects
from headwater.storage.s3 import S3Objects
from headwater.storage.simulated import SimulatedFiles
from headwater.storage.simulated_store import SimulatedStore
from tests.servers.stores import s3_server, store_kinds
from tests.servers.versitygw import S3Server

SETTINGS = LogSettings(
    segment_size_bytes_max=1 << 16, write_body_bytes_max=1 << 16, reserve_bytes=0, scan_chunk_bytes=1 << 15
)


class Store(Protocol):
    """Where a log is kept: whoever opens it later finds what was there."""

    def open(self, log_start: int = 1) -> Device:
        """As another process would: a device that has read nothing yet."""
        ...

    def killed(self) -> Store:
        """What is there after every process that had it open was killed."""
        ...


def file_device(files: Files, log_start: int) -> FileDevice:
    place = LogPlace(files, "log", SETTINGS, LogCounters())
    return FileDevice(place, clock=ManualClock(), entropy=Random(log_start).randbytes, log_start=lambda: log_start)


class DiskStore:
    def __init__(self, root: Path) -> None:
        self._root = root

    def open(self, log_start: int = 1) -> Device:
        return file_device(DiskFiles(self._root / "now"), log_start)

    def killed(self) -> Store:
        # A copy is what a kill leaves: the bytes, and nobody who holds the lock.
        shutil.copytree(self._root / "now", self._root / "then" / "now")
        return DiskStore(self._root / "then")


class MemoryStore:
    def __init__(self, files: SimulatedFiles) -> None:
        self._files = files

    def open(self, log_start: int = 1) -> Device:
        return file_device(self._files, log_start)

    def killed(self) -> Store:
        return MemoryStore(self._files.restart())


class ObjectStore:
    """A log in a bucket.  Whoever comes after a kill takes it over: the lease of the dead says that it is alive."""

    def __init__(self, objects: Objects, *, threads: bool, take_over: bool = False) -> None:
        self._objects = objects
        self._threads = threads
        self._take_over = take_over
        self._clock: Clock = SystemClock() if threads else ManualClock()
        self._opened: list[Device] = []

    def open(self, log_start: int = 1) -> Device:
        files = BucketFiles(
            self._objects, clock=self._clock, take_over=self._take_over, threads=self._threads, stale_s=0.5
        )
        device = ObjectDevice(
            LogPlace(files, "log", SETTINGS, LogCounters()),
            clock=self._clock,
            entropy=system_entropy,
            log_start=lambda: log_start,
            window=WINDOW,
            leased=True,
        )
        self._opened.append(device)
        return device

    def killed(self) -> Store:
        after = ObjectStore(self._objects, threads=self._threads, take_over=True)
        after._opened = self._opened
        return after

    def close(self) -> None:
        """Nobody's thread outlives its test."""
        for device in self._opened:
            device.close()


@pytest.fixture(scope="module")
def servers() -> Iterator[Callable[[str], S3Server]]:
    """S3 servers, each begun when the first of this module asks for it."""
    with ExitStack() as running:
        yield cache(lambda kind: running.enter_context(s3_server(kind)))


STORES: dict[str, Callable[[Path], Store]] = {
    "files on a disk": DiskStore,
    "simulated files": lambda _: MemoryStore(SimulatedFiles()),
    "simulated store": lambda _: ObjectStore(SimulatedStore(), threads=False),
}


@pytest.fixture(params=[*STORES, *store_kinds()])
def store(request: pytest.FixtureRequest, servers: Callable[[str], S3Server], tmp_path: Path) -> Iterator[Store]:
    (tmp_path / "now").mkdir()
    if request.param in STORES:
        yield STORES[request.param](tmp_path)
        return
    server = servers(request.param)
    with server.in_environment():
        on_server = ObjectStore(S3Objects(server.url(f"{tmp_path.parent.name}/{tmp_path.name}")), threads=True)
        yield on_server
        on_server.close()


def opened(store: Store, log_start: int = 1) -> Device:
    device = store.open(log_start)
    device.recover()
    return device


def owned(store: Store, log_start: int = 1) -> Device:
    device = opened(store, log_start)
    device.claim()
    return device


def forgotten_by(device: Device, log_start: Lsn) -> list[str]:
    device.take_in()
    return device.forget(log_start)


def rows(count: int, *, topic: int = 1, partition: int = 0, body: bytes = b"rows") -> Draft:
    return Draft(Kind.DATA, body, topic_number=topic, partition=partition, row_count=count)


def commit(device: Device, *writes: Sequence[Draft], time_us: int | None = None) -> Lsn:
    """Commit as the writer does: offsets go on where they were, time does not fall."""
    nexts = dict(device.next_offsets())
    placed = []
    for drafts in writes:
        bases = []
        for draft in drafts:
            key = partition_key(draft.topic_number, draft.partition)
            bases.append(nexts.get(key, 0))
            nexts[key] = nexts.get(key, 0) + draft.row_count
        placed.append((drafts, bases))
    ticket = device.commit(placed, device.last_append_time_us() + 1 if time_us is None else time_us)
    ticket.wait()
    return ticket.first_lsn


def read(device: Device, from_lsn: int = 1, to_lsn: int | None = None) -> list[Frame]:
    """What was committed; some devices have frames of their own between, in which an owner's epoch begins."""
    frames = device.frames(Lsn(from_lsn), device.durable() if to_lsn is None else Lsn(to_lsn))
    return [frame for frame in frames if frame.header.kind != Kind.EPOCH]


def lsns(device: Device, from_lsn: int = 1, to_lsn: int | None = None) -> list[int]:
    return [frame.lsn for frame in read(device, from_lsn, to_lsn)]


def check_dense(device: Device, from_lsn: int = 1) -> None:
    """No LSN is missing between the first and the next, whoever wrote it."""
    found = [frame.lsn for frame in device.frames(Lsn(from_lsn), device.durable())]
    assert found == list(range(from_lsn, device.next_lsn()))


# Recovering and claiming ----------------------------------------------------------------------------------------------


def test_where_there_is_nothing_recovery_finds_nothing_and_says_so(store: Store) -> None:
    device = store.open()

    report = device.recover()

    assert (report.segments, report.last_lsn, report.owner) == (0, 0, False)
    assert report == device.report
    assert device.durable() == device.refresh() == 0
    assert list(device.segments()) == []
    assert lsns(device) == []
    assert device.find(1, 0, 0) is None
    assert device.find_time(0) is None
    assert not device.claimed


def test_recovering_claims_nothing_and_changes_nothing(store: Store) -> None:
    device = owned(store)
    first = commit(device, [rows(1)])

    reports = [opened(store).report for _ in range(2)]
    reader = opened(store)

    assert reports[0] == reports[1]
    assert not reader.claimed
    assert commit(device, [rows(1)]) == first + 1


def test_a_new_log_begins_with_lsn_1_and_with_nothing_but_its_owners_epoch(store: Store) -> None:
    device = owned(store)

    begun = [(frame.lsn, frame.header.kind) for frame in device.frames(Lsn(1), device.durable())]

    assert begun in ([], [(1, Kind.EPOCH)])
    assert (device.next_lsn(), device.durable()) == (len(begun) + 1, len(begun))
    assert device.claimed
    assert device.report.owner
    assert device.next_offsets() == {}


def test_each_claim_raises_the_epoch_and_every_frame_carries_its_owners(store: Store) -> None:
    epochs = []
    for _ in range(3):
        device = owned(store)
        epochs.append(device.claim().epoch)
        commit(device, [rows(1)])
        device.close()

    found = [frame.header.epoch for frame in read(opened(store))]

    assert epochs == sorted(set(epochs))
    assert found == epochs


def test_claiming_again_is_the_same_claim(store: Store) -> None:
    device = store.open()

    first, second = device.claim(), device.claim()

    assert first == second


def test_a_log_has_one_owner(store: Store) -> None:
    device = owned(store)

    with pytest.raises(LogLocked):
        opened(store).claim()
    device.close()

    assert owned(store).claimed


# Committing -----------------------------------------------------------------------------------------------------------


def test_lsns_are_dense_over_writes_commits_and_segments(store: Store) -> None:
    device = owned(store)

    following = device.next_lsn()

    firsts = [commit(device, [rows(1), rows(1)], [rows(1)])]
    firsts.append(commit(device, [rows(1)]))
    device.roll()
    firsts.append(commit(device, [rows(1)] * 3))

    assert firsts == [following, following + 3, following + 4]
    assert lsns(device) == list(range(following, following + 7))
    assert device.next_lsn() == following + 7
    check_dense(device)


def test_what_a_ticket_was_waited_for_is_durable_and_visible(store: Store) -> None:
    device = owned(store)
    following = device.next_lsn()

    ticket = device.commit([([rows(2)], [0])], device.last_append_time_us() + 1_000)
    ticket.wait()

    assert ticket.first_lsn == following
    assert device.durable() == device.refresh() == following
    assert lsns(opened(store)) == [following]


def test_frames_come_back_as_they_were_drafted(store: Store) -> None:
    device = owned(store)
    drafts = [
        Draft(
            Kind.DATA, b"body " * 40, topic_number=3, partition=9, row_count=4, schema_version=2, producer_id=77,
            producer_epoch=6, sequence=5, flags=4, time_min_us=-3, time_max_us=8,
        ),
        Draft(Kind.SCHEMA, b""),
        Draft(200, bytes(128)),
    ]  # fmt: skip

    time_us = device.last_append_time_us() + 5_000
    device.commit([(drafts, [40, 0, 0])], time_us).wait()

    first, second, third = read(device)
    header = first.header
    assert bytes(first.body) == b"body " * 40
    assert (header.kind, header.topic_number, header.partition, header.schema_version) == (Kind.DATA, 3, 9, 2)
    assert (header.base_offset, header.row_count, header.offset_count) == (40, 4, 4)
    assert (header.producer_id, header.producer_epoch, header.sequence, header.flags) == (77, 6, 5, 4)
    assert (header.append_time_us, header.time_min_us, header.time_max_us) == (time_us, -3, 8)
    assert (second.header.kind, bytes(second.body)) == (Kind.SCHEMA, b"")
    assert (third.header.kind, bytes(third.body)) == (200, bytes(128))
    assert [frame.header.write_index for frame in (first, second, third)] == [0, 1, 2]
    assert {frame.header.write_count for frame in (first, second, third)} == {3}


def test_next_offsets_and_time_follow_what_was_committed(store: Store) -> None:
    device = owned(store)

    time_us = device.last_append_time_us() + 9_000

    commit(device, [rows(3), rows(2, partition=1)], [rows(4)], time_us=time_us)

    assert device.next_offsets() == {partition_key(1, 0): 7, partition_key(1, 1): 2}
    assert device.last_append_time_us() == time_us


def test_after_it_was_poisoned_a_device_commits_no_more_and_can_be_closed(store: Store) -> None:
    device = owned(store)
    first = commit(device, [rows(1)])

    told = device.poison(RuntimeError("interrupted"))

    assert isinstance(told, OutcomeUnknown)
    with pytest.raises(Poisoned):
        commit(device, [rows(1)])
    device.close()
    assert lsns(owned(store)) == [first]


# Reading --------------------------------------------------------------------------------------------------------------


def filled(store: Store) -> Device:
    """Three segments with two frames each, that are called 1 to 6 here; topic 1 has 2 rows in each, topic 2 has 3."""
    device = owned(store)
    time_us = device.last_append_time_us()
    for number in range(3):
        if number:
            device.roll()
        commit(device, [rows(2)], [rows(3, topic=2)], time_us=time_us + 1_000 * (number + 1))
    return device


class View:
    """A log that was filled as above, and its frames by the numbers that they have here."""

    def __init__(self, device: Device) -> None:
        self.device = device
        first = read(device)[0]
        self.shift = first.lsn - 1
        """How many frames a device of this kind writes by itself before the first."""
        self.time_us = first.header.append_time_us - 1_000

    def lsn(self, number: int) -> Lsn:
        return Lsn(number + self.shift)

    def numbers(self, frames: Iterable[Frame]) -> list[int]:
        return [frame.lsn - self.shift for frame in frames if frame.header.kind != Kind.EPOCH]

    def read(self, first: int, last: int) -> list[int]:
        return self.numbers(self.device.frames(self.lsn(first), self.lsn(last)))

    def held(self) -> list[list[int]]:
        """What each segment has of them, without those that have nothing."""
        ranges = [(each.first_lsn, each.last_lsn) for each in self.device.segments()]
        return [found for found in (self.numbers(self.device.frames(*each)) for each in ranges) if found]


@pytest.fixture(params=["owner", "reader", "after closing", "after a kill"])
def view(request: pytest.FixtureRequest, store: Store) -> View:
    """The same log as those see it who may."""
    device = filled(store)
    if request.param == "reader":
        device = opened(store)
    if request.param == "after closing":
        device.close()
        device = owned(store)
    if request.param == "after a kill":
        device = owned(store.killed())
    return View(device)


def test_frames_are_read_from_one_lsn_to_another_both_included(view: View) -> None:
    found = {range_: view.read(*range_) for range_ in [(1, 6), (2, 5), (4, 4), (5, 100), (7, 7), (4, 3)]}

    assert found == {
        (1, 6): [1, 2, 3, 4, 5, 6],
        (2, 5): [2, 3, 4, 5],
        (4, 4): [4],
        (5, 100): [5, 6],
        (7, 7): [],
        (4, 3): [],
    }


def test_a_frame_can_be_kept_while_others_are_read(store: Store) -> None:
    device = owned(store)
    bodies = [bytes([number]) * 25_000 for number in range(6)]
    for body in bodies:
        commit(device, [rows(1, body=body)])

    frames = read(device)

    assert [bytes(frame.body) for frame in frames] == bodies


def test_the_frames_of_a_partition_are_read_from_an_offset_on(view: View) -> None:
    found = {offset: view.numbers(view.device.frames_of(2, 0, offset)) for offset in (0, 3, 5, 8, 9)}

    assert found == {0: [2, 4, 6], 3: [4, 6], 5: [4, 6], 8: [6], 9: []}
    assert list(view.device.frames_of(9, 0, 0)) == []


def test_the_rows_of_a_topic_are_read_from_one_lsn_to_another_both_included(view: View) -> None:
    ranges = [(1, 6), (2, 6), (3, 4), (6, 100), (7, 7), (4, 3)]

    found = {range_: view.numbers(view.device.frames_of_topic(2, *map(view.lsn, range_))) for range_ in ranges}

    assert found == {(1, 6): [2, 4, 6], (2, 6): [2, 4, 6], (3, 4): [4], (6, 100): [6], (7, 7): [], (4, 3): []}
    assert list(view.device.frames_of_topic(9, view.lsn(1), view.lsn(6))) == []


def test_a_topic_is_read_over_its_partitions_in_lsn_order_and_without_its_schemas(store: Store) -> None:
    device = owned(store)
    schema = Draft(Kind.SCHEMA, b"columns", topic_number=1)
    first = commit(device, [schema, rows(1, partition=2)], [rows(1), rows(1, topic=2)], [rows(1, partition=1)])
    device.roll()
    commit(device, [rows(1, topic=2), rows(1, partition=2)])

    found = [frame.lsn for frame in device.frames_of_topic(1, Lsn(1), device.durable())]

    assert found == [first + 1, first + 2, first + 4, first + 6]


def test_reading_a_topic_passes_over_what_was_let_go(store: Store) -> None:
    view = View(filled(store))

    forgotten_by(view.device, view.lsn(4))

    assert view.numbers(view.device.frames_of_topic(1, view.lsn(1), view.lsn(6))) == [3, 5]


def test_an_offset_is_found_in_its_frame_and_one_that_is_not_there_yet_is_not(view: View) -> None:
    found = [view.device.find(1, 0, offset) for offset in range(7)]

    assert [ref.lsn - view.shift if ref is not None else None for ref in found] == [1, 1, 3, 3, 5, 5, None]
    for ref in found[:6]:
        assert ref is not None
        (frame,) = view.device.frames(ref.lsn, ref.lsn)
        assert (frame.segment, frame.position) == (ref.segment, ref.position)
    assert view.device.find(1, 1, 0) is None
    headers = [view.device.find_header(1, 0, offset) for offset in range(7)]
    assert [each.base_offset if each is not None else None for each in headers] == [0, 0, 2, 2, 4, 4, None]
    assert view.device.find_header(1, 1, 0) is None


def test_the_first_frame_at_or_after_a_time_is_found(view: View) -> None:
    found = {after_us: view.device.find_time(view.time_us + after_us) for after_us in (1, 1_000, 1_001, 2_000, 3_000)}
    behind_all = view.device.find_time(view.time_us + 1_000_000_000_000)

    assert {after_us: lsn and lsn - view.shift for after_us, lsn in found.items()} == {
        1: 1,
        1_000: 1,
        1_001: 3,
        2_000: 3,
        3_000: 5,
    }
    assert behind_all is None


def test_segments_say_what_they_hold_and_only_the_last_is_open(view: View) -> None:
    segments = view.device.segments()

    assert view.held() == [[1, 2], [3, 4], [5, 6]]
    assert segments[0].first_lsn == 1
    assert all(after.first_lsn == before.last_lsn + 1 for before, after in pairwise(segments))
    assert [each.sealed for each in segments] == [True] * (len(segments) - 1) + [False]
    assert len({each.name for each in segments}) == len(segments)
    assert {each.generation for each in segments} == {0}
    topics = [found for found in map(view.device.topics_in, segments) if 1 in found]
    assert len(topics) == 3
    for number, found in enumerate(topics):
        size = found[1].bytes
        assert found[1] == TopicInSegment(1, size, 2, view.lsn(2 * number + 1))
        assert found[2] == TopicInSegment(1, size, 3, view.lsn(2 * number + 2))


def test_a_reader_sees_what_is_committed_when_it_looks_again(store: Store) -> None:
    device = owned(store)
    reader = opened(store)
    following = device.next_lsn()

    seen = []
    for number in range(4):
        commit(device, [rows(1)], [rows(1)])
        if number % 2:
            device.roll()
        seen.append([reader.durable(), reader.refresh(), lsns(reader)[-1]])

    last = following - 1
    assert seen == [[last + 2 * at, last + 2 * at + 2, last + 2 * at + 2] for at in range(4)]


# Rolling and forgetting -----------------------------------------------------------------------------------------------


def test_a_roll_seals_what_there_is_and_returns_its_first_lsn(store: Store) -> None:
    device = owned(store)

    device.roll()  # what a device has written by itself

    answers = [device.roll()]
    first = commit(device, [rows(1)], [rows(1)])
    answers += [device.roll(), device.roll()]
    commit(device, [rows(1)])

    assert answers == [None, first, None]
    assert View(device).held() == [[1, 2], [3]]


def test_a_log_rolls_by_itself_before_a_segment_becomes_too_large(store: Store) -> None:
    device = owned(store)

    for _ in range(4):
        commit(device, [rows(1, body=bytes(30_000))])

    assert View(device).held() == [[1, 2], [3, 4]]
    assert all(each.bytes <= SETTINGS.segment_size_bytes_max for each in device.segments())


def test_a_prefix_can_be_let_go_and_is_then_forgotten(store: Store) -> None:
    view = View(filled(store))
    names = [each.name for each in view.device.segments()]

    gone = forgotten_by(view.device, view.lsn(4))

    assert gone == names[:1]
    assert view.read(3, 6) == [3, 4, 5, 6]
    with pytest.raises(Forgotten):
        view.read(2, 6)
    assert isinstance(Forgotten("x"), Conflict)


def test_after_a_deletion_numbers_go_on_where_they_were(store: Store) -> None:
    view = View(filled(store))
    forgotten_by(view.device, view.lsn(5))
    view.device.close()

    again = owned(store, log_start=view.lsn(5))

    assert again.next_offsets() == {partition_key(1, 0): 6, partition_key(2, 0): 9}
    assert view.numbers(read(again, view.lsn(5))) == [5, 6]
    assert commit(again, [rows(1)]) > view.lsn(6)
    check_dense(again, view.lsn(5))


def test_the_last_segment_stays_however_far_the_log_start_is(store: Store) -> None:
    view = View(filled(store))

    forgotten_by(view.device, Lsn(1_000))

    assert [each.first_lsn for each in view.device.segments()] == [view.lsn(5)]
    assert commit(view.device, [rows(1)]) == view.lsn(7)


# Closing and opening again --------------------------------------------------------------------------------------------


def test_what_was_committed_is_there_after_closing_and_opening_again(store: Store) -> None:
    device = filled(store)
    before = [(frame.header, bytes(frame.body)) for frame in read(device)]
    device.close()

    again = owned(store)

    assert [(frame.header, bytes(frame.body)) for frame in read(again)] == before
    assert again.report.last_lsn == again.durable() == again.next_lsn() - 1
    assert commit(again, [rows(1)]) == again.durable()
    check_dense(again)
    assert again.next_offsets() == {partition_key(1, 0): 7, partition_key(2, 0): 9}


def test_what_was_committed_is_there_after_a_kill(store: Store) -> None:
    device = filled(store)
    before = [(frame.header, bytes(frame.body)) for frame in read(device)]
    device_epoch = device.claim().epoch

    again = owned(store.killed())

    assert [(frame.header, bytes(frame.body)) for frame in read(again)] == before
    assert again.claim().epoch > device_epoch
    assert commit(again, [rows(1)]) == again.durable()
    check_dense(again)


@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
def test_the_offsets_of_a_partition_go_on_although_its_rows_are_in_older_segments_only(
    store: Store, killed: bool
) -> None:
    device = owned(store)
    commit(device, [rows(3, topic=8)])
    device.roll()
    commit(device, [rows(1)])
    device.roll()
    commit(device, [rows(1)])
    if not killed:
        device.close()

    again = owned(store.killed() if killed else store)

    assert again.next_offsets() == {partition_key(1, 0): 2, partition_key(8, 0): 3}


def test_recovering_twice_changes_nothing(store: Store) -> None:
    filled(store)
    after = store.killed()
    first = owned(after)
    before = [frame.header for frame in read(first)]
    first.close()

    second, third = opened(after), owned(after)

    assert [frame.header for frame in read(second)] == before
    assert [frame.header for frame in read(third)] == before


def test_a_closed_device_commits_no_more_and_closing_it_again_is_nothing(store: Store) -> None:
    device = filled(store)

    device.close()
    device.close()

    for act in (device.claim, device.next_lsn, device.roll):
        with pytest.raises(Closed):
            act()
    with pytest.raises(HeadwaterError):
        device.commit([([rows(1)], [0])], 1)


def test_an_idle_owner_makes_durable_what_readers_go_by(store: Store) -> None:
    device = owned(store)
    first = commit(device, [rows(1)])

    device.sync_mark()
    device.sync_mark()

    assert opened(store).durable() == first
