"""A data directory checked offline: the journal, its operations, and every checkpoint against what it stands for."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from headwater.clock import ManualClock
from headwater.frames.bodies import GapReason
from headwater.frames.checksum import crc32c
from headwater.frames.frame import Kind, chain_value
from headwater.ids import Lsn
from headwater.log import Draft, FrameLog, open_log
from headwater.log.deletion import Release, drain
from headwater.log.rewrite import KEEP, REMOVE, rewrite_segment
from headwater.log.verify import Finding, FindingName, NoteName
from headwater.metadata.checkpoint import Checkpoint, CheckpointKind, Checkpoints, name_of, pack_checkpoint
from headwater.metadata.fold_check import MetadataFinding
from headwater.metadata.operations import SetLogStart, encode_operation
from headwater.metadata.records import (
    CommittedOffset,
    OffsetsRecord,
    Part,
    ProducerRecord,
    SequenceEntry,
    SourceRecord,
    pack_record,
)
from headwater.metadata.shard_state import ShardState, fold_frames
from headwater.metadata.state import MetadataState
from headwater.metadata.verify import DataReport, _Verification, verify_data
from headwater.storage.simulated import Choice, SimulatedFiles
from tests.unit.metadata.small_journals import CHECKPOINTS, ONE_OF_EACH, SETTINGS, create, group, journal_on

SHARD = "checkpoints"


def verify(files: SimulatedFiles, log_start: int | None = None, to_lsn: int | None = None) -> DataReport:
    return verify_data(files, settings=SETTINGS, log_start=log_start, to_lsn=to_lsn)


def told(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(str(finding.name), finding.segment) for finding in findings]


def log_on(files: SimulatedFiles, log_start: int = 1) -> FrameLog:
    return open_log(
        files, "log", settings=SETTINGS, clock=ManualClock(), entropy=Random(5).randbytes, log_start=log_start
    )


def rows(topic: int, count: int = 1) -> Draft:
    return Draft(Kind.DATA, b"rows", topic_number=topic, row_count=count)


RECORDS = [
    Draft(Kind.PRODUCER, pack_record(ProducerRecord(1, 1, "loader"))),
    Draft(Kind.SEQUENCES, pack_record((SequenceEntry(1, 1, 0, b"k" * 16, (Part(1, 0, 0, 1),)),))),
    Draft(Kind.OFFSETS, pack_record(OffsetsRecord("billing", 1, (CommittedOffset(0, 1, 1, 1),)))),
    Draft(Kind.SOURCE, pack_record(SourceRecord("pg", "0/16"))),
]


def shard_checkpoint(log: FrameLog, files: SimulatedFiles, journal_lsn: int = 2, from_lsn: int = 1) -> str:
    """Write down what the log folds to, as its owner would."""
    state = fold_frames(ShardState(), log.read(Lsn(from_lsn)))
    state.prune()
    made = Checkpoint(CheckpointKind.SHARD, state.lsn, state.chain, journal_lsn, 1_000, state.pack())
    Checkpoints(files, SHARD, CheckpointKind.SHARD).write(made)
    return f"{SHARD}/{name_of(state.lsn)}"


def whole(files: SimulatedFiles | None = None, *, checkpoints: int = 3) -> SimulatedFiles:
    """A journal with so many checkpoints, two of them kept, and operations behind; a log of two segments with a
    checkpoint at LSN 6 and one at its end, 9."""
    files = SimulatedFiles() if files is None else files
    with journal_on(files) as journal:
        journal.append([create(1), create(2)])
        for number in range(checkpoints):
            journal.append([group(number)])
            journal.checkpoint()
        journal.append([group(10), group(11)])
    with log_on(files) as log:
        log.append([rows(1), *RECORDS])
        shard_checkpoint(log, files)
        log.roll()
        log.append([rows(2), rows(1, 3)])
        log.append([RECORDS[2]])
        shard_checkpoint(log, files)
    return files


def path_of(report: DataReport, number: int) -> str:
    return report.checkpoints[number].path


def remove(files: SimulatedFiles, path: str) -> None:
    files.unlink(path)
    files.sync_directory(path.rpartition("/")[0])


def remade(files: SimulatedFiles, path: str, **fields: object) -> None:
    """Put another checkpoint under the name of one: a valid file that says something else."""
    directory, _, name = path.rpartition("/")
    kind = CheckpointKind.SHARD if directory == SHARD else CheckpointKind.JOURNAL
    (found,) = [each for each in Checkpoints(files, directory, kind).read() if each.name == name]
    assert found.checkpoint is not None
    files.put(path, pack_checkpoint(replace(found.checkpoint, **fields)))  # type: ignore[arg-type]


# What is healthy ------------------------------------------------------------------------------------------------------


def test_a_healthy_directory_passes_and_says_what_it_holds() -> None:
    files = whole()

    report = verify(files)

    assert report.ok and report.notes == []
    assert report.journal is not None
    assert (report.journal.operations, report.journal.operations_to_replay) == (3, 2)
    assert report.journal.state is not None
    assert (len(report.journal.state.topics), len(report.journal.state.groups)) == (2, 5)
    assert [(each.path, each.equals_fold) for each in report.checkpoints] == [
        (f"{CHECKPOINTS}/{name_of(6)}", True),
        (f"{CHECKPOINTS}/{name_of(5)}", None),
        (f"{SHARD}/{name_of(9)}", True),
        (f"{SHARD}/{name_of(6)}", None),
    ]
    assert report.bytes > report.log.bytes + report.journal.log.bytes


def test_each_checkpoint_says_of_itself_what_it_is() -> None:
    files = whole()

    journal, _, shard, _ = [each.as_dict() for each in verify(files).checkpoints]

    assert journal == {
        "file": f"{CHECKPOINTS}/{name_of(6)}",
        "lsn": 6,
        "valid": True,
        "damage": "",
        "bytes": len(files.contents(f"{CHECKPOINTS}/{name_of(6)}")),
        "equals_fold": True,
        "kind": "journal",
        "chain": journal["chain"],
        "journal_lsn": 6,
        "created_us": 1_700_000_000_000_000,
        "contents": {"topics": 2, "deleted_topics": 0, "groups": 3, "next_topic_number": 3, "log_start": 1},
    }
    assert len(str(journal["chain"])) == 16
    assert shard["contents"] == {
        "partitions": 2,
        "producers": 1,
        "idempotency_keys": 1,
        "group_topics": 1,
        "sources": 1,
    }


def test_a_journal_that_holds_every_operation_checks_each_checkpoint() -> None:
    files = SimulatedFiles()
    with journal_on(files) as journal:
        journal.append(ONE_OF_EACH[:-1])
        journal.checkpoint()

    report = verify(files)

    assert report.ok
    assert [each.equals_fold for each in report.checkpoints] == [True]
    assert report.journal is not None
    assert report.journal.as_dict()["operations_to_replay"] == 0
    assert report.journal.as_dict()["state"] == {
        "topics": 1,
        "deleted_topics": 1,
        "groups": 1,
        "next_topic_number": 4,
        "log_start": 1,
    }


@pytest.mark.parametrize("checkpoints", [0, 1, 2, 5])
def test_any_number_of_checkpoints_passes(checkpoints: int) -> None:
    assert verify(whole(checkpoints=checkpoints)).ok


def test_a_journal_whose_only_segment_holds_nothing_yet_has_the_state_of_its_checkpoint() -> None:
    files = SimulatedFiles()
    with journal_on(files) as journal:
        for number in range(3):
            journal.append([group(number)])
            journal.checkpoint()
        first = journal.log.segments()[0].name
        last = journal.log.segments()[-1].name
    assert first != last
    remove(files, f"journal/{first}")
    remove(files, f"{CHECKPOINTS}/{name_of(3)}")

    report = verify(files)

    assert report.ok
    assert report.journal is not None and report.journal.state is not None
    assert len(report.journal.state.groups) == 3


def test_a_log_without_a_journal_is_checked_alone() -> None:
    files = SimulatedFiles()
    with log_on(files) as log:
        log.append([rows(7)])

    report = verify(files)

    assert report.ok and report.journal is None and report.checkpoints == []


def test_the_beginning_of_the_log_is_asked_of_the_journal() -> None:
    files = whole()
    with journal_on(files) as journal, log_on(files) as log:
        first = log.segments()[0].name
        log.claim()
        journal.append([SetLogStart(7, (first,))])
        before = verify(files)
        log.exclusively(lambda: log.device.forget(Lsn(7)))
        after = verify(files)
    wrong = verify(files, log_start=3)

    assert before.ok and told(before.notes) == [(NoteName.LEFT_OVER, first)]
    assert after.ok and after.notes == []
    assert told(wrong.findings) == [(FindingName.LOST_SEGMENT, "")]


def test_a_journal_that_breaks_off_does_not_say_where_the_log_begins() -> None:
    files = whole()
    with journal_on(files) as journal, log_on(files) as log:
        log.claim()
        journal.append([SetLogStart(7, ("00000000000000000001.0.seg",))])
        journal.append([group(50)])
        log.exclusively(lambda: log.device.forget(Lsn(7)))
    with journal_on(files) as journal:
        (frame,) = [each for each in journal.log.read(Lsn(7)) if each.lsn == journal.last_lsn - 1]
    files.flip_bit(f"journal/{frame.segment}", (frame.position + 130) * 8)

    report = verify(files)

    assert told(report.findings) == [(FindingName.DAMAGED_FRAME, f"journal/{frame.segment}")]
    assert told(report.notes) == [(NoteName.BEGINS_LATER, "00000000000000000007.0.seg")]
    assert report.journal is not None and report.journal.state is None


def test_a_lost_beginning_of_the_log_is_a_finding_because_the_journal_knows() -> None:
    files = whole()
    remove(files, "log/00000000000000000001.0.seg")

    report = verify(files)

    assert told(report.findings) == [(FindingName.LOST_SEGMENT, "")]
    assert (report.findings[0].first_lsn, report.findings[0].last_lsn) == (1, 6)


def test_a_log_that_is_not_there_is_a_finding_only_if_it_ever_was() -> None:
    new, old = SimulatedFiles(), SimulatedFiles()
    for files, operations in ((new, ONE_OF_EACH[:-1]), (old, ONE_OF_EACH)):
        with journal_on(files) as journal:
            journal.append(operations)

    assert verify(new).ok and verify(new).notes == []
    assert told(verify(old).findings) == [(FindingName.LOST_SEGMENT, "log")]


def test_it_changes_nothing() -> None:
    files = whole()
    names = [
        f"{directory}/{name}" for directory in ("log", "journal", CHECKPOINTS, SHARD) for name in files.list(directory)
    ]
    before = {name: files.contents(name) for name in names if name != CHECKPOINTS}
    calls: list[str] = []
    files.before_call = lambda verb, name: calls.append(verb)

    verify(files)

    assert calls == []
    assert before == {name: files.contents(name) for name in before}


# Files of checkpoints -------------------------------------------------------------------------------------------------


def _cut(files: SimulatedFiles, path: str) -> None:
    files.put(path, files.contents(path)[:-1])


def _cut_the_header(files: SimulatedFiles, path: str) -> None:
    files.put(path, files.contents(path)[:63])


def _flip(at: int) -> Callable[[SimulatedFiles, str], None]:
    return lambda files, path: files.flip_bit(path, at * 8)


def _of_the_other_kind(files: SimulatedFiles, path: str) -> None:
    other = CheckpointKind.JOURNAL if path.startswith(SHARD) else CheckpointKind.SHARD
    remade(files, path, kind=other)


def _state_of_another_lsn(files: SimulatedFiles, path: str) -> None:
    of_another = f"{path.rpartition('/')[0]}/{name_of(6 if path.startswith(SHARD) else 5)}"
    kind = CheckpointKind.SHARD if path.startswith(SHARD) else CheckpointKind.JOURNAL
    (body,) = [
        each.checkpoint.body
        for each in Checkpoints(files, path.rpartition("/")[0], kind).read()
        if each.checkpoint is not None and of_another.endswith(each.name)
    ]
    remade(files, path, body=body)


@pytest.mark.parametrize("directory", [CHECKPOINTS, SHARD])
@pytest.mark.parametrize(
    ("damage", "detail"),
    [
        (_cut, "the body has"),
        (_cut_the_header, "shorter than a header"),
        (_flip(0), "does not begin as"),
        (_flip(16), "the header does not match"),
        (_flip(70), "the body does not match"),
        (_of_the_other_kind, "it is of kind"),
        (lambda files, path: remade(files, path, lsn=77), "its name is not its own"),
        (lambda files, path: remade(files, path, body=b"\xc1"), "cannot be read|not a state"),
        (_state_of_another_lsn, "its state is of lsn"),
    ],
)
def test_a_checkpoint_that_breaks_a_rule_is_a_finding_with_the_rule(
    directory: str, damage: Callable[[SimulatedFiles, str], None], detail: str
) -> None:
    files = whole()
    path = f"{directory}/{name_of(9 if directory == SHARD else 6)}"

    damage(files, path)
    report = verify(files)

    (finding,) = report.findings
    assert (finding.name, finding.segment) == (MetadataFinding.DAMAGED_CHECKPOINT, path)
    assert any(part in finding.detail for part in detail.split("|"))
    (seen,) = [each for each in report.checkpoints if each.path == path]
    assert seen.as_dict()["valid"] is False and seen.as_dict()["damage"] == finding.detail


def test_a_checkpoint_of_a_later_version_is_no_damage() -> None:
    files = whole()
    path = f"{SHARD}/{name_of(9)}"
    data = bytearray(files.contents(path))
    data[8] = 2
    data[4:8] = crc32c(bytes(data[8:64])).to_bytes(4, "little")
    files.put(path, bytes(data))

    report = verify(files)

    assert told(report.findings) == [(FindingName.UNKNOWN_FORMAT, path)]


def test_a_checkpoint_that_the_disk_does_not_give_is_a_finding_and_hides_no_other() -> None:
    files = whole()
    files.fail(1, errno.EIO, verbs=["read_at"])

    report = verify(files)
    files.heal()

    assert told(report.findings) == [(MetadataFinding.DAMAGED_CHECKPOINT, f"{SHARD}/{name_of(9)}")]
    assert "it cannot be read" in report.findings[0].detail
    assert len(report.checkpoints) == 4


def test_a_checkpoint_that_goes_while_it_is_looked_at_is_passed_over() -> None:
    files = whole()
    listing = files.list(SHARD)

    class Stale:
        def __getattr__(self, name: str) -> object:
            return getattr(files, name)

        def list(self, directory: str) -> list[str]:
            return [*listing, name_of(2)] if directory == SHARD else files.list(directory)

    report = verify_data(Stale(), settings=SETTINGS)  # type: ignore[arg-type]

    assert report.ok and len(report.checkpoints) == 4


def test_what_is_no_checkpoint_is_a_note() -> None:
    files = whole()
    files.put(f"{SHARD}/{name_of(12)}.tmp", b"half")
    files.put(f"{SHARD}/notes.txt", b"mine")
    files.put(f"{CHECKPOINTS}/7.ckpt", b"mine")
    files.put("journal/notes.txt", b"mine")

    report = verify(files)

    assert report.ok
    assert sorted(told(report.notes)) == sorted(
        [
            (NoteName.LEFT_OVER, f"{SHARD}/{name_of(12)}.tmp"),
            (NoteName.FOREIGN_FILE, f"{SHARD}/notes.txt"),
            (NoteName.FOREIGN_FILE, f"{CHECKPOINTS}/7.ckpt"),
            (NoteName.FOREIGN_FILE, "journal/notes.txt"),
        ]
    )


def test_a_checkpoint_that_is_older_than_all_that_is_left_is_a_note() -> None:
    files = whole()
    old = Checkpoint(CheckpointKind.JOURNAL, 2, 0, 2, 0, b"")
    with journal_on(SimulatedFiles()) as journal:
        journal.append([group(1)])
        old = replace(old, body=journal.state.pack())
    files.put(f"{CHECKPOINTS}/{name_of(2)}", pack_checkpoint(old))

    report = verify(files)

    assert report.ok
    assert told(report.notes) == [(NoteName.LEFT_OVER, f"{CHECKPOINTS}/{name_of(2)}")]


# Against the frames ---------------------------------------------------------------------------------------------------


def test_a_state_of_the_journal_that_replay_does_not_give_is_a_finding() -> None:
    files = whole()
    path = f"{CHECKPOINTS}/{name_of(6)}"
    with journal_on(files) as journal:
        other = journal.state.copy()
    other.lsn = 6

    remade(files, path, body=other.pack())
    report = verify(files)

    assert told(report.findings) == [(MetadataFinding.WRONG_CHECKPOINT, path)]
    assert report.findings[0].last_lsn == 6
    assert [each.equals_fold for each in report.checkpoints[:2]] == [False, None]


def test_a_state_of_the_shard_that_the_fold_does_not_give_is_a_finding() -> None:
    files = whole()
    path = f"{SHARD}/{name_of(9)}"
    state = ShardState.unpack(Checkpoints(files, SHARD, CheckpointKind.SHARD).read()[0].checkpoint.body)  # type: ignore[union-attr]
    state.next_offsets[1 << 32] += 1

    remade(files, path, body=state.pack())
    report = verify(files)

    assert told(report.findings) == [(MetadataFinding.WRONG_CHECKPOINT, path)]


@pytest.mark.parametrize(
    ("directory", "lsn"),
    [(CHECKPOINTS, 6), (CHECKPOINTS, 5), (SHARD, 9), (SHARD, 6)],
    ids=["journal, newest", "journal, before its first segment", "shard, newest", "shard, older"],
)
def test_a_checkpoint_of_another_history_is_a_finding(directory: str, lsn: int) -> None:
    files = whole()
    path = f"{directory}/{name_of(lsn)}"

    remade(files, path, chain=1)
    report = verify(files)

    assert (MetadataFinding.FOREIGN_CHECKPOINT, path) in told(report.findings)


@pytest.mark.parametrize("directory", [CHECKPOINTS, SHARD])
def test_a_checkpoint_ahead_of_its_log_tells_what_is_lost(directory: str) -> None:
    files = whole()
    newest = 9 if directory == SHARD else 6
    path = f"{directory}/{name_of(newest)}"
    ahead = f"{directory}/{name_of(40)}"
    kind = CheckpointKind.SHARD if directory == SHARD else CheckpointKind.JOURNAL
    found = Checkpoints(files, directory, kind).read()[0].checkpoint
    assert found is not None
    state = ShardState.unpack(found.body) if directory == SHARD else None
    with journal_on(files) as journal:
        metadata = journal.state.copy()
    metadata.lsn = 40
    if state is not None:
        state.lsn = Lsn(40)
    body = state.pack() if state is not None else metadata.pack()
    files.put(ahead, pack_checkpoint(replace(found, lsn=40, body=body)))

    report = verify(files)

    assert (FindingName.LOST_LSNS, ahead) in told(report.findings)
    assert path in {each.path for each in report.checkpoints}
    (finding,) = [each for each in report.findings if each.segment == ahead]
    assert finding.last_lsn == 40
    assert directory == CHECKPOINTS or verify(files, to_lsn=9).ok


def test_a_journal_that_ends_before_what_the_shard_was_made_with_is_behind() -> None:
    files = whole()

    remade(files, f"{SHARD}/{name_of(9)}", journal_lsn=500)
    report = verify(files)

    assert told(report.findings) == [(MetadataFinding.METADATA_BEHIND_LOG, f"{SHARD}/{name_of(9)}")]


def test_rows_of_a_topic_that_the_journal_has_not_made_are_a_finding() -> None:
    files = whole()
    with log_on(files) as log:
        log.append([rows(3)])

    report = verify(files)

    assert told(report.findings) == [(MetadataFinding.METADATA_BEHIND_LOG, "journal")]


def test_a_topic_that_is_made_while_the_check_runs_is_known() -> None:
    files = whole()
    with log_on(files) as log:
        log.append([rows(3)])

    def told_of(done: int, all_bytes: int) -> None:
        with journal_on(files) as journal:
            if 3 not in journal.state.topics:
                journal.append([create(3)])

    with log_on(files) as log:
        log.append([Draft(Kind.DATA, bytes(9_000), topic_number=1, row_count=1), rows(1)])
    report = verify_data(files, settings=SETTINGS, progress=told_of)

    assert report.ok


@pytest.mark.parametrize("newest_only", [False, True])
def test_without_a_checkpoint_that_reaches_the_journal_is_lost(newest_only: bool) -> None:
    files = whole()
    for lsn in (5, 6):
        if lsn == 5 or not newest_only:
            files.flip_bit(f"{CHECKPOINTS}/{name_of(lsn)}", 70 * 8)

    report = verify(files)

    names = told(report.findings)
    assert names.count((MetadataFinding.DAMAGED_CHECKPOINT, f"{CHECKPOINTS}/{name_of(5)}")) == 1
    assert ((MetadataFinding.CHECKPOINT_LOST, CHECKPOINTS) in names) == (not newest_only)
    assert report.journal is not None
    assert (report.journal.state is None) == (not newest_only)


def test_without_segments_the_journal_is_lost() -> None:
    for broken in (False, True):
        files = whole()
        for each in files.list("journal"):
            if each not in ("checkpoints", "lock"):
                remove(files, f"journal/{each}")
        if broken:
            for lsn in (5, 6):
                files.flip_bit(f"{CHECKPOINTS}/{name_of(lsn)}", 70 * 8)

        report = verify(files)

        lost = (FindingName.LOST_LSNS, f"{CHECKPOINTS}/{name_of(6)}")
        assert ((MetadataFinding.CHECKPOINT_LOST, "journal") if broken else lost) in told(report.findings)


def test_a_log_that_forgot_its_beginning_needs_a_checkpoint() -> None:
    files = whole()
    with journal_on(files) as journal, log_on(files) as log:
        log.claim()
        journal.append([SetLogStart(7, ("00000000000000000001.0.seg",))])
        log.exclusively(lambda: log.device.forget(Lsn(7)))
    for lsn in (6, 9):
        remove(files, f"{SHARD}/{name_of(lsn)}")

    report = verify(files)

    assert told(report.findings) == [(MetadataFinding.CHECKPOINT_LOST, SHARD)]


# Records that do not apply --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b"\x81\xa2op\xacdelete_group", MetadataFinding.BAD_RECORD),
        (b"\x82\xa2op\xacdelete_group\xa4name\xa6nobody", MetadataFinding.BAD_RECORD),
        (b"\x81\xa2op\xa6future", FindingName.UNKNOWN_FORMAT),
    ],
    ids=["undecodable", "refused", "unknown"],
)
def test_an_operation_that_does_not_apply_is_a_finding_and_hides_no_other(body: bytes, name: str) -> None:
    files = SimulatedFiles()
    state = MetadataState()
    with open_log(files, "journal", settings=SETTINGS, clock=ManualClock(), entropy=Random(5).randbytes) as log:
        log.append([Draft(Kind.METADATA, encode_operation(group(1)))])
        log.append([Draft(Kind.METADATA, body)])
        state.apply(3, group(9))
        (frame,) = log.read(Lsn(3))
        made = Checkpoint(CheckpointKind.JOURNAL, 3, chain_value(frame.header, frame.body), 3, 0, state.pack())
        Checkpoints(files, CHECKPOINTS, CheckpointKind.JOURNAL).write(made)
        log.append([Draft(Kind.METADATA, encode_operation(group(2)))])
        state.apply(4, group(2))

    report = verify(files)

    (finding,) = report.findings
    assert (finding.name, finding.first_lsn, finding.last_lsn) == (name, 3, 3)
    assert finding.segment == "journal/00000000000000000001.0.seg"
    assert report.journal is not None and report.journal.state is not None
    assert report.journal.state.pack() == state.pack()
    assert report.checkpoints[0].equals_fold is None


def test_a_record_of_the_log_that_cannot_be_read_is_a_finding() -> None:
    files = whole()
    with log_on(files) as log:
        log.append([Draft(Kind.OFFSETS, b"\xc1")])

    report = verify(files)

    assert [(finding.name, finding.first_lsn) for finding in report.findings] == [(MetadataFinding.BAD_RECORD, 11)]


# Damage and rewriting of the log itself -------------------------------------------------------------------------------


@pytest.mark.parametrize("directory", ["journal", "log"])
def test_damage_of_frames_is_found_once_and_ends_the_comparison(directory: str) -> None:
    files = whole()
    segment = sorted(name for name in files.list(directory) if name.endswith(".seg"))[-1 if directory == "log" else 0]
    path = f"{directory}/{segment}"
    files.flip_bit(path, (256 + 128 + 4) * 8)

    report = verify(files)

    found = "journal/" + segment if directory == "journal" else segment
    assert told(report.findings)[0] == (FindingName.DAMAGED_FRAME, found)
    assert {finding.name for finding in report.findings[1:]} <= {FindingName.LOST_SEGMENT}
    compared = [
        each.equals_fold for each in report.checkpoints if each.path.startswith(directory) or directory == "log"
    ]
    assert None in compared


@pytest.mark.parametrize("directory", ["journal", "log"])
def test_a_mark_of_another_log_is_found_and_hides_nothing(directory: str) -> None:
    files = whole()
    other = SimulatedFiles()
    with open_log(other, directory, settings=SETTINGS, clock=ManualClock(), entropy=Random(99).randbytes) as log:
        log.append([rows(1)])
    files.put(f"{directory}/mark", other.contents(f"{directory}/mark"))

    report = verify(files)

    assert {finding.name for finding in report.findings} == {FindingName.FOREIGN_LOG}
    assert [each.equals_fold for each in report.checkpoints] == [True, None, True, None]


def test_an_index_that_cannot_be_had_hides_the_topics_of_its_segment_alone() -> None:
    files = whole()
    files.flip_bit("log/00000000000000000001.0.seg", (256 + 128 + 4) * 8)
    files.flip_bit("log/00000000000000000001.0.idx", 0)

    report = verify(files)

    assert told(report.findings) == [(FindingName.DAMAGED_FRAME, "00000000000000000001.0.seg")]


def test_checkpoints_of_a_log_whose_journal_is_gone_are_still_compared() -> None:
    files = SimulatedFiles()
    with log_on(files) as log:
        log.append([rows(1), *RECORDS])
        shard_checkpoint(log, files)

    report = verify(files)

    assert report.ok and report.journal is None
    assert [each.equals_fold for each in report.checkpoints] == [True]


def drained(files: SimulatedFiles) -> None:
    with log_on(files) as log:
        log.claim()
        first = log.segments()[0].name
        drain(log, first, released={1: Release(Lsn(6), 0)}, covered_lsn=Lsn(6))


def compacted(files: SimulatedFiles) -> None:
    with log_on(files) as log:
        log.claim()
        log.roll()
        for segment in log.segments()[:-1]:
            rewrite_segment(
                log,
                segment.name,
                lambda header, body: REMOVE if header.kind == Kind.DATA else KEEP,
                reason=GapReason.COMPACTED,
            )


@pytest.mark.parametrize("rewritten", [drained, compacted])
def test_checkpoints_of_a_log_that_was_rewritten_are_still_its_fold(
    rewritten: Callable[[SimulatedFiles], None],
) -> None:
    files = whole()

    rewritten(files)
    report = verify(files)

    assert report.ok
    assert [each.equals_fold for each in report.checkpoints[2:]] == [True, None]


def test_where_records_were_drained_a_fold_from_the_beginning_proves_nothing() -> None:
    files = whole()
    drained(files)
    remove(files, f"{SHARD}/{name_of(6)}")

    report = verify(files)

    assert report.ok
    assert [each.equals_fold for each in report.checkpoints[2:]] == [None]


def test_one_checkpoint_of_a_log_that_is_all_there_is_compared() -> None:
    files = whole()
    remove(files, f"{SHARD}/{name_of(6)}")

    report = verify(files)

    assert [each.equals_fold for each in report.checkpoints[2:]] == [True]


def test_a_journal_that_is_compacted_while_its_state_is_read_is_read_again() -> None:
    files = whole()
    looks = 0
    with journal_on(files) as journal:
        journal.claim()

        class Busy:
            """The owner makes two checkpoints when the journal is first listed."""

            def __getattr__(self, name: str) -> object:
                return getattr(files, name)

            def list(self, directory: str) -> list[str]:
                nonlocal looks
                found = files.list(directory)
                if directory == "journal":
                    looks += 1
                    for number in (100, 101) if looks == 1 else ():
                        journal.append([group(number)])
                        journal.checkpoint()
                return found

        state = _Verification(Busy(), SETTINGS)._state_now()  # type: ignore[arg-type]

    assert looks == 4
    assert state is not None and "group-101" in state.groups


def test_a_journal_without_a_beginning_has_no_state() -> None:
    files = whole()
    for lsn in (5, 6):
        files.flip_bit(f"{CHECKPOINTS}/{name_of(lsn)}", 70 * 8)

    assert _Verification(files, SETTINGS)._state_now() is None


def test_beside_an_owner_that_compacts_its_journal_nothing_is_missed() -> None:
    files = whole()
    looks = 0
    with journal_on(files) as journal:
        journal.claim()

        class Busy:
            """The owner makes a checkpoint whenever the journal is listed."""

            def __getattr__(self, name: str) -> object:
                return getattr(files, name)

            def list(self, directory: str) -> list[str]:
                nonlocal looks
                found = files.list(directory)
                if directory == CHECKPOINTS and looks < 3:
                    looks += 1
                    journal.append([group(100 + looks)])
                    journal.checkpoint()
                return found

        report = verify_data(Busy(), settings=SETTINGS)  # type: ignore[arg-type]

    assert looks == 3
    assert report.findings == []


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("choice", list(Choice))
def test_whatever_a_power_loss_leaves_of_a_healthy_directory_passes(choice: Choice, seed: int) -> None:
    files = SimulatedFiles(seed)
    chance = Random(seed)
    reports: list[DataReport] = []

    def examine(verb: str, name: str) -> None:
        reports.append(verify(files.crash(chance, choice=choice)))
        reports.append(verify(files.restart()))

    files.before_call = examine
    whole(files)
    with journal_on(files) as journal, log_on(files) as log:
        log.claim()
        journal.append([SetLogStart(7, ("00000000000000000001.0.seg",))])
        log.exclusively(lambda: log.device.forget(Lsn(7)))
        journal.checkpoint()

    assert len(reports) > 100
    assert [report.findings for report in reports if not report.ok] == []
