"""A shard: its checkpoints come when they should, opening replays only what they do not cover, and halts by name."""

from __future__ import annotations

import errno
import logging
from dataclasses import replace
from threading import Thread

import pytest

from headwater.api import Log
from headwater.errors import (
    CheckpointFailed,
    CheckpointLost,
    DamagedLog,
    Forgotten,
    LostSegment,
    MetadataBehindLog,
    OutcomeUnknown,
)
from headwater.frames.bodies import Gap, GapReason, pack_gap
from headwater.frames.frame import Kind
from headwater.ids import Lsn
from headwater.metadata.checkpoint import Checkpoint, CheckpointKind, pack_checkpoint, unpack_checkpoint
from headwater.metadata.shard_state import ShardState
from headwater.settings import KIB
from headwater.storage.simulated import SimulatedFiles
from headwater.topics.shard import CHECKPOINTS, Shard, _check_holds_state
from tests.unit.topics.small_engines import (
    PLAIN,
    QUIET,
    World,
    checkpoint_names,
    engine_of,
    frames,
    values,
    with_log,
)


def a_log(world: World, rows: int = 3) -> Log:
    log = world.log()
    log.topic("a", PLAIN)
    for number in range(rows):
        log["a"].append({"x": number})
    return log


def shard_of(log: Log) -> Shard:
    return engine_of(log).shard


def bend(files: SimulatedFiles, name: str, checkpoint: Checkpoint) -> None:
    files.put(f"{CHECKPOINTS}/{name}", pack_checkpoint(checkpoint))


def read_checkpoint(files: SimulatedFiles, name: str) -> Checkpoint:
    found = unpack_checkpoint(files.contents(f"{CHECKPOINTS}/{name}"), CheckpointKind.SHARD)
    assert isinstance(found, Checkpoint)
    return found


# When a checkpoint is made ------------------------------------------------------------------------


def test_closing_makes_a_checkpoint_and_the_next_opening_replays_nothing() -> None:
    world = World()
    a_log(world, rows=20).close()

    again = world.log()
    again["a"].append({"x": 20})

    assert shard_of(again).frames_replayed == 0
    assert values(again) == list(range(21))


def test_after_a_kill_the_opening_replays_what_no_checkpoint_covers_and_only_that() -> None:
    world = World()
    log = a_log(world, rows=10)
    log.checkpoint()
    covered = shard_of(log).checkpoint_lsn
    log["a"].append({"x": 10}, idempotency_key="k")

    again = world.kill().log()

    assert again["a"].append({"x": 10}, idempotency_key="k").duplicate
    assert shard_of(again).frames_replayed == 2
    assert shard_of(again).checkpoint_lsn == covered


def test_without_any_checkpoint_the_whole_log_is_folded() -> None:
    world = World()
    log = a_log(world, rows=5)

    again = world.kill().log()
    again["a"].append({"x": 5})

    assert shard_of(again).frames_replayed == engine_of(log).durable_lsn()
    shard_of(again).check_fold()


def test_a_checkpoint_is_made_after_so_many_bytes() -> None:
    world = World(settings=replace(QUIET, shard_checkpoint_bytes=4 * KIB))
    log = a_log(world, rows=0)
    made = []
    for number in range(60):
        log["a"].append({"x": number})
        made.append(shard_of(log).checkpoint_lsn)
        assert shard_of(log).replay_bytes < 4 * KIB

    assert len(set(made)) > 3
    assert len(checkpoint_names(world.files)) == 2, "two are kept"
    shard_of(log).check_fold()


def test_a_checkpoint_is_made_at_every_roll() -> None:
    world = World()
    log = a_log(world, rows=1)
    for number in range(3):
        sealed = engine_of(log).durable_lsn()
        shard_of(log).log.roll()
        log["a"].append({"x": number})

        assert shard_of(log).checkpoint_lsn > sealed


def test_many_short_lives_do_not_put_a_checkpoint_off_for_ever() -> None:
    """What was replayed counts against the next one."""
    world = World(settings=replace(QUIET, shard_checkpoint_bytes=8 * KIB))
    a_log(world, rows=1)
    replayed = []
    for number in range(40):
        world = world.kill()
        log = world.log()
        log["a"].append({"x": number})
        replayed.append(shard_of(log).frames_replayed)

    assert max(replayed) < 40
    assert checkpoint_names(world.files)


def test_a_checkpoint_of_the_same_place_is_not_made_twice() -> None:
    log = a_log(World())

    assert shard_of(log).checkpoint()
    assert not shard_of(log).checkpoint()
    assert not shard_of(log).checkpoint()


def test_a_checkpoint_that_fails_is_named_and_the_appends_before_and_after_it_stand(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(settings=replace(QUIET, shard_checkpoint_bytes=1))
    log = a_log(world, rows=1)
    world.files.fail(1, errno.ENOSPC, verbs=["create"], for_ever=True)

    with caplog.at_level(logging.WARNING, logger="headwater.topics"):
        log["a"].append({"x": 1})
    with pytest.raises(CheckpointFailed):
        shard_of(log).checkpoint()
    world.files.heal()
    log["a"].append({"x": 2})

    assert "checkpoint was not made" in caplog.text
    assert shard_of(log).checkpoint_lsn == engine_of(log).durable_lsn(), "the next append has made it"
    assert values(log) == [0, 1, 2]


def test_a_close_whose_checkpoint_fails_still_lets_go_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    log = a_log(world)
    world.files.fail(1, errno.ENOSPC, verbs=["rename"], for_ever=True)

    with caplog.at_level(logging.WARNING, logger="headwater.topics"):
        shard_of(log).close()
    world.files.heal()
    log.close()

    assert "no checkpoint at the close" in caplog.text
    assert values(world.log()) == [0, 1, 2]


def test_a_poisoned_log_closes_without_a_checkpoint() -> None:
    world = World()
    log = a_log(world)
    world.files.fail(1, errno.EIO, verbs=["sync_data"])

    with pytest.raises(OutcomeUnknown):
        log["a"].append({"x": 3})
    log.close()

    assert checkpoint_names(world.files) == []
    again = world.kill().log()
    assert values(again)[:3] == [0, 1, 2]


def test_up_to_the_older_of_two_checkpoints_the_log_is_covered_twice() -> None:
    log = a_log(World())
    shard = shard_of(log)
    assert shard.covered_lsn == 0
    shard.checkpoint()
    first = shard.checkpoint_lsn
    assert shard.covered_lsn == 0
    log["a"].append({"x": 3})
    shard.checkpoint()

    assert (shard.covered_lsn, shard.checkpoint_lsn > first) == (first, True)


def test_an_older_checkpoint_that_cannot_be_removed_does_no_harm(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = a_log(World())
    shard = shard_of(log)

    def failing(count: int = 2) -> list[str]:
        raise OSError(errno.EIO, "the directory cannot be listed")

    monkeypatch.setattr(shard._checkpoints, "keep_newest", failing)

    assert shard.checkpoint()
    assert shard.checkpoint_lsn == engine_of(log).durable_lsn()
    assert "older checkpoints stay" in caplog.text


def test_a_commit_that_rolls_while_a_checkpoint_is_written_makes_the_next_one_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = a_log(World())
    shard = shard_of(log)
    write = shard._checkpoints.write

    def meanwhile(checkpoint: Checkpoint) -> None:
        monkeypatch.undo()
        shard.log.roll()
        log["a"].append({"x": 3})
        write(checkpoint)

    monkeypatch.setattr(shard._checkpoints, "write", meanwhile)
    shard.checkpoint()
    behind = shard.checkpoint_lsn
    log["a"].append({"x": 4})

    assert behind < shard.checkpoint_lsn == engine_of(log).durable_lsn()


# What an opening finds ----------------------------------------------------------------------------


def two_checkpoints(world: World) -> list[str]:
    log = a_log(world)
    log.checkpoint()
    log["a"].append({"x": 3}, idempotency_key="k")
    log.checkpoint()
    log["a"].append({"x": 4})
    return checkpoint_names(world.files)


def test_where_the_newest_checkpoint_is_damaged_the_older_one_and_more_of_the_log_give_the_same_state(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    _, newest = two_checkpoints(world)
    whole, damaged = world.kill(), world.kill()
    damaged.files.flip_bit(f"{CHECKPOINTS}/{newest}", 8 * 80)

    wanted, found = whole.log(), damaged.log()
    with caplog.at_level(logging.WARNING, logger="headwater.topics"):
        for log in (wanted, found):
            engine_of(log).claim()

    assert shard_of(found).frames_replayed > shard_of(wanted).frames_replayed
    assert shard_of(found).state().pack() == shard_of(wanted).state().pack()
    assert newest in caplog.text
    assert found["a"].append({"x": 3}, idempotency_key="k").duplicate


def test_where_every_checkpoint_is_damaged_the_whole_log_is_folded() -> None:
    world = World()
    names = two_checkpoints(world)
    after = world.kill()
    for name in names:
        after.files.flip_bit(f"{CHECKPOINTS}/{name}", 3)

    log = after.log()

    assert log["a"].append({"x": 3}, idempotency_key="k").duplicate
    shard_of(log).check_fold()


def forgetful(world: World) -> Log:
    """A log whose beginning is gone."""
    log = world.log()
    log.topic("a", PLAIN, retention="10s")
    log["a"].append({"x": 0})
    shard_of(log).log.roll()
    log["a"].append({"x": 1})
    log.checkpoint()
    world.clock.advance(3_600)
    log["a"].append({"x": 2}, idempotency_key="k")
    log.checkpoint()
    log["a"].append({"x": 3})
    assert log.cleanup().deleted
    return log


def test_where_no_checkpoint_is_left_and_the_beginning_of_the_log_is_gone_it_halts_by_name() -> None:
    world = World(settings=with_log(deletion_grace_s=0))
    forgetful(world)
    after = world.kill()
    for name in checkpoint_names(after.files):
        after.files.unlink(f"{CHECKPOINTS}/{name}")

    log = after.log()

    with pytest.raises(CheckpointLost, match="reaches back"):
        log["a"].append({"x": 4})


def test_a_checkpoint_that_the_log_no_longer_continues_is_as_good_as_none() -> None:
    world = World(settings=with_log(deletion_grace_s=0))
    forgetful(world)
    after = world.kill()
    newest = read_checkpoint(after.files, checkpoint_names(after.files)[-1])
    for name in checkpoint_names(after.files):
        after.files.unlink(f"{CHECKPOINTS}/{name}")
    old = ShardState()
    old.lsn = Lsn(1)
    bend(after.files, f"{1:020}.ckpt", replace(newest, lsn=1, body=old.pack()))

    with pytest.raises(CheckpointLost):
        after.log()["a"].append({"x": 4})


def test_a_log_whose_beginning_is_gone_is_opened_by_its_checkpoint() -> None:
    world = World(settings=with_log(deletion_grace_s=0))
    forgetful(world)
    log = world.kill().log()

    assert log["a"].append({"x": 2}, idempotency_key="k").duplicate
    assert log["a"].append({"x": 4}).offsets == {0: (4, 5)}


def test_a_checkpoint_of_another_history_is_refused() -> None:
    world = World()
    names = two_checkpoints(world)
    after = world.kill()
    newest = read_checkpoint(after.files, names[-1])
    bend(after.files, names[-1], replace(newest, chain=newest.chain ^ 1))

    with pytest.raises(CheckpointLost, match="does not belong"):
        after.log()["a"].append({"x": 5})


def with_a_checkpoint_ahead(world: World) -> World:
    names = two_checkpoints(world)
    after = world.kill()
    newest = read_checkpoint(after.files, names[-1])
    state = ShardState.unpack(newest.body)
    state.lsn = Lsn(newest.lsn + 100)
    bend(after.files, f"{newest.lsn + 100:020}.ckpt", replace(newest, lsn=newest.lsn + 100, body=state.pack()))
    return after


def test_a_checkpoint_ahead_of_the_log_is_passed_over_by_a_reader() -> None:
    """A reader goes by the mark, which a power loss can set back."""
    log = with_a_checkpoint_ahead(World()).log()

    assert log.source_position("pg") is None
    assert values(log) == [0, 1, 2, 3, 4]


def test_a_checkpoint_ahead_of_the_log_halts_its_owner() -> None:
    """An owner has recovered: rows that were durable are gone."""
    log = with_a_checkpoint_ahead(World()).log()

    with pytest.raises(DamagedLog, match="before its own checkpoint"):
        log["a"].append({"x": 5})


def test_a_checkpoint_ahead_of_the_log_halts_an_owner_that_has_looked_before() -> None:
    log = with_a_checkpoint_ahead(World()).log()
    assert log.source_position("pg") is None

    with pytest.raises(DamagedLog, match="before its own checkpoint"):
        log["a"].append({"x": 5})


def test_a_log_with_rows_of_a_topic_that_the_journal_does_not_know_halts() -> None:
    world = World()
    a_log(world).close()
    after = world.kill()
    for name in after.files.list("journal"):
        if name.endswith((".seg", ".idx", "mark")):
            after.files.unlink(f"journal/{name}")
    for name in after.files.list("journal/checkpoints"):
        after.files.unlink(f"journal/checkpoints/{name}")

    log = after.log()

    with pytest.raises(MetadataBehindLog):
        log.topic("b", PLAIN)


def journal_of(files: SimulatedFiles) -> dict[str, bytes]:
    names = [f"journal/{name}" for name in files.list("journal") if name.endswith((".seg", ".idx", "mark"))]
    names += [f"journal/checkpoints/{name}" for name in files.list("journal/checkpoints")]
    return {name: files.contents(name) for name in names}


@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("change", ["a topic", "partitions", "a schema"])
def test_a_journal_that_was_put_back_is_noticed_by_whoever_writes_and_whoever_looks(
    change: str, checkpointed: bool
) -> None:
    world = World()
    a_log(world).close()
    old = journal_of(world.files)
    log = world.log()
    if change == "a topic":
        log.topic("b", PLAIN).append({"x": 1})
    elif change == "partitions":
        log["a"].alter(partitions=3).append({"x": 1}, partition=2)
    else:
        log["a"].alter(add={"note": str}).append({"x": 1})
    if checkpointed:
        log.close()

    after = world.kill()
    for name in journal_of(after.files):
        after.files.unlink(name)
    for name, data in old.items():
        after.files.put(name, data)

    with pytest.raises(MetadataBehindLog):
        after.log().source_position("pg")
    with pytest.raises(MetadataBehindLog):
        after.log()["a"].append({"x": 9})


def test_offsets_go_on_from_the_checkpoint_where_indexes_were_lost() -> None:
    world = World()
    log = a_log(world, rows=4)
    shard_of(log).log.roll()
    log["a"].append({"x": 4})
    log.close()
    after = world.kill()
    for name in after.files.list("log"):
        if name.endswith(".idx"):
            after.files.unlink(f"log/{name}")

    assert after.log()["a"].append({"x": 5}).offsets == {0: (5, 6)}


def test_a_checkpoint_without_any_segment_is_a_log_that_was_lost() -> None:
    world = World()
    a_log(world).close()
    after = world.kill()
    for name in after.files.list("log"):
        after.files.unlink(f"log/{name}")

    with pytest.raises(LostSegment, match="no segment"):
        after.log()


def test_state_that_a_drain_has_let_go_of_is_not_folded_over() -> None:
    """The frames of a gap that a drain has left spoke of state: only a checkpoint has it."""
    world = World(settings=with_log(deletion_grace_s=0))
    log = world.log()
    log.topic("a", PLAIN)
    log.topic("b", PLAIN, retention="10s")
    log["a"].append({"x": 0})
    log["b"].append({"x": 0}, idempotency_key="k")
    gap = Gap(1, 3, 3, GapReason.DRAINED, chain=1)
    (frame, *_) = frames(engine_of(log))

    drained = replace(frame, header=frame.header._replace(kind=Kind.GAP), body=memoryview(pack_gap(gap)))
    compacted = replace(drained, body=memoryview(pack_gap(replace(gap, reason=GapReason.COMPACTED))))

    with pytest.raises(Forgotten):
        _check_holds_state(drained)
    _check_holds_state(compacted)
    _check_holds_state(frame)


# A reader beside the owner ------------------------------------------------------------------------


def test_a_reader_folds_on_while_the_owner_appends() -> None:
    world = World()
    log = a_log(world)
    reader = world.log()
    with log.transaction() as tx:
        tx.set_source("pg", 1)
    assert reader.source_position("pg") is not None
    replayed = shard_of(reader).frames_replayed

    with log.transaction() as tx:
        tx.set_source("pg", 2)

    position = reader.source_position("pg")
    assert position is not None and position.position == 2
    assert shard_of(reader).frames_replayed == replayed + 1
    assert not engine_of(reader).claimed


def test_a_reader_that_has_slept_through_a_deletion_begins_at_a_checkpoint_again() -> None:
    world = World(settings=with_log(deletion_grace_s=0))
    log = world.log()
    log.topic("a", PLAIN, retention="10s")
    log["a"].append({"x": 0})
    reader = world.log()
    assert reader.source_position("pg") is None
    shard_of(log).log.roll()
    with log.transaction() as tx:
        tx.set_source("pg", 1)
    for _ in range(3):
        shard_of(log).log.roll()
        world.clock.advance(3_600)
        log["a"].append({"x": 1})
        log.checkpoint()
    assert len(log.cleanup().deleted) > 1

    position = reader.source_position("pg")

    assert position is not None and position.position == 1


def test_a_reader_knows_how_much_an_opening_would_fold() -> None:
    world = World()
    log = a_log(world)
    reader = world.log()
    assert shard_of(reader).replay_bytes == reader.status().replay_bytes > 0
    shard_of(log).log.roll()
    log["a"].append({"x": 3})
    log["a"].append({"x": 4})

    status = world.log().status()

    assert status.checkpoint_lsn > 0
    assert 0 < status.replay_bytes < status.log_bytes


def test_a_state_that_the_log_has_let_go_of_and_no_checkpoint_holds_is_lost_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Somebody deleted what no checkpoint covers: looking again does not help."""
    log = a_log(World())
    shard = shard_of(log)

    def forgotten(*_: object) -> None:
        raise Forgotten("gone")

    shard._live = False
    monkeypatch.setattr(shard, "_fold_to", forgotten)
    with pytest.raises(CheckpointLost):
        shard.state()


def test_offsets_can_be_asked_for_while_segments_roll() -> None:
    """A segment that is sealed lets go of its index: whoever looked at it a moment before looks at the next one."""
    log = World(settings=with_log(segment_size_bytes_max=2 * KIB, write_body_bytes_max=2 * KIB)).log()
    topic = log.topic("rows", schema={"x": int})

    def append() -> None:
        for _ in range(100):
            topic.append([{"x": number} for number in range(100)])

    writer = Thread(target=append)
    writer.start()
    engine = engine_of(log)
    seen = []
    while writer.is_alive():
        seen += [engine.next_offset(topic.number, 0) for _ in range(100)]
    writer.join()

    assert seen == sorted(seen)
    assert log.status().segments > 40
