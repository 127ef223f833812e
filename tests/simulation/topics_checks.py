"""Rules of topics that a life meets too rarely, each put to the test by itself: an error where one is broken."""

from __future__ import annotations

import errno
from random import Random

from headwater.errors import Fenced, HeadwaterError, Unavailable
from headwater.storage.simulated import SimulatedFiles
from tests.simulation.topics_life import SeededDraw
from tests.simulation.topics_observed import check_schemas, read_rows
from tests.simulation.topics_steps import Steps
from tests.unit.topics.small_engines import engine_of


def _a_life(seed: int, log_seed: int | None = None) -> Steps:
    return Steps(seed if log_seed is None else log_seed, SeededDraw(Random(f"directed {seed}")))


def lose_a_checkpoint(seed: int) -> None:
    """Whatever a cleanup has let go of, the log opens without its newest checkpoint."""
    life = _a_life(seed)
    topic = life.log.topic("aged", {"n": "int64"}, retention=1.0)
    for number in range(4):
        topic.append({"n": number})
        engine_of(life.log).shard.log.roll()
        topic.append({"n": number})
        life.log.checkpoint()
        life.clock.advance(100)
        life.log.cleanup()
        files = life.files.restart()
        newest = max(files.list("checkpoints"))
        files.flip_bit(f"checkpoints/{newest}", 8 * 70)
        log = life.open_on(files)
        engine_of(log).claim()
        assert log["aged"].offsets()[0].next == topic.offsets()[0].next


def take_over(seed: int) -> None:
    """A member whose lease is over, and whose partition another reads, commits nothing."""
    life = _a_life(seed)
    topic = life.log.topic("t", {"n": "int64"})
    topic.append([{"n": 1}, {"n": 2}])
    late, new = (life.log.consumer("t", group="g") for _ in range(2))
    assert late.poll(max_rows=1) is not None or new.poll(max_rows=1) is not None
    late, new = (late, new) if late.assignment else (new, late)
    life.clock.advance(60)
    assert new.poll(max_rows=2) is not None
    try:
        if seed % 2:
            late.commit()
        else:
            with life.log.transaction() as transaction:
                transaction.append("t", {"n": 3})
                transaction.commit_offsets(late)
    except Fenced:
        return
    raise AssertionError("offsets of a partition that another member reads were committed")


def refuse_a_schema(seed: int) -> None:
    """The first rows of a topic meet a full disk; those that come later are described all the same."""
    life = _a_life(seed)
    life.log.topic("before", {"n": "int64"}).append({"n": 0})
    topic = life.log.topic("t", {"n": "int64"})
    life.files.fail(1, errno.ENOSPC, verbs=["append"], short=bool(seed % 2))
    try:
        topic.append({"n": 1})
    except Unavailable:
        life.files.heal()
    topic.append({"n": 2})
    check_schemas(life.log)


def mix_checkpoints(seed: int) -> None:
    """A checkpoint of another log of the same length is put in: it is refused by name."""
    one, other = _a_life(seed), _a_life(seed, seed + 9)
    for life in (one, other):
        life._create("a", "plain")
        life.append()
        life.log.checkpoint()
    files = one.files.restart()
    name = max(files.list("checkpoints"))
    assert name == max(other.files.list("checkpoints"))
    files.put(f"checkpoints/{name}", other.files.contents(f"checkpoints/{name}"))
    try:
        engine_of(one.open_on(files)).claim()
    except HeadwaterError:
        return
    raise AssertionError("a checkpoint of another log was taken for this one's")


def cut_the_log(seed: int) -> None:
    """The log is put back to what it was before its newest checkpoint: that is not hidden."""
    life = _a_life(seed)
    life._create("a", "plain")
    life.append()
    before = {name: life.files.contents(f"log/{name}") for name in life.files.list("log")}
    life.append()
    life.log.checkpoint()
    files = SimulatedFiles(seed)
    for directory in ("journal", "journal/checkpoints", "checkpoints"):
        for name in life.files.list(directory) if directory in life.files._directories else ():
            if f"{directory}/{name}" in life.files._names:
                files.put(f"{directory}/{name}", life.files.contents(f"{directory}/{name}"))
    for name, data in before.items():
        files.put(f"log/{name}", data)
    try:
        engine_of(life.open_on(files)).claim()
    except HeadwaterError:
        return
    raise AssertionError("rows that were durable are gone, and nobody was told")


def join_in_order(seed: int) -> None:
    """An upsert, a delete and an upsert of one key in one commit are read in that order."""
    life = _a_life(seed)
    topic = life.log.topic("k", {"k": "int64", "n": "int64"}, key="k")
    writer = engine_of(life.log).shard.log._writer
    engine_of(life.log).shard.keep_up()
    assert writer._baton.acquire(blocking=False)
    made = []
    for number in range(3):
        if number == 1:
            prepared = engine_of(life.log).preparation.keys(engine_of(life.log).topic("k"), [1])
            request = engine_of(life.log).preparation.request(prepared.rows)
            writer._queue.append(request)
            made.append(request)
        else:
            topic.append_future({"k": 1, "n": number})
    for request in made:
        request.waiting = False
    writer._lead()
    found = [row["_hw_op"] for row in topic.read().to_pylist()]
    assert found == ["U", "D", "U"], found
    offsets = [row.offset for row in read_rows(topic)]
    assert offsets == [0, 1, 2], offsets
