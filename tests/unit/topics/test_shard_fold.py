"""The owner's state is what the log folds to, whatever is done."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.api import Log
from headwater.errors import CorruptData, HeadwaterError
from headwater.metadata.records import Part
from headwater.metadata.shard_state import Answer
from headwater.topics.requests import Identity
from headwater.topics.shard import Shard
from tests.unit.topics.small_engines import DAY_S, PLAIN, World, engine_of, folded


def shard_of(log: Log) -> Shard:
    return engine_of(log).shard


def test_a_state_that_is_not_its_fold_is_found() -> None:
    log = World().log()
    log.topic("a", PLAIN).append({"x": 1})
    shard_of(log).state().keys[b"never"] = Answer(1, 1, engine_of(log).clock.now_us(), (Part(1, 0, 0, 1),))

    with pytest.raises(CorruptData, match="folds to"):
        shard_of(log).check_fold()


def random_step(log: Log, world: World, chance: Random) -> None:
    """Something that a user may do; conflicts are part of it."""
    engine = engine_of(log)
    topic = chance.choice(["a", "b"])
    row = [{"x": chance.randrange(100)} for _ in range(chance.randint(1, 3))]
    what = chance.randrange(9)
    if what < 2:
        log[topic].append(row, partition=chance.randrange(2))
    elif what == 2:
        log[topic].append(row, partition=0, idempotency_key=str(chance.randrange(4)))
    elif what == 3:
        log.producer(f"p{chance.randrange(2)}").append(topic, row, sequence=chance.choice([None, 0, 1]))
    elif what == 4:
        identity = Identity(chance.randint(1, 2), chance.randint(1, 3), chance.randrange(4))
        engine.append(engine.topic(topic).number, row, identity=identity)
    elif what == 5:
        with log.transaction() as tx:
            tx.append("a", row, partition=1)
            tx.append("b", row)
            tx.set_source(f"s{chance.randrange(2)}", chance.randrange(9))
    elif what == 6:
        consumer = log.consumer(topic, group=f"g{chance.randrange(2)}")
        consumer.poll()
        consumer.commit()
        consumer.close()
    elif what == 7:
        world.clock.advance(chance.choice([1.0, DAY_S, 8 * DAY_S]))
    else:
        chance.choice([log.checkpoint, shard_of(log).log.roll])()


@given(st.integers(0, 2**32))
@settings(max_examples=12)
def test_whatever_is_done_the_state_is_what_the_log_folds_to(seed: int) -> None:
    chance = Random(seed)
    world = World()
    log = world.log()
    log.topic("a", PLAIN, partitions=2)
    log.topic("b", PLAIN, partitions=2)
    for _ in range(40):
        try:
            random_step(log, world, chance)
        except HeadwaterError:
            pass  # refused, which must leave the state as it was
        if chance.random() < 0.05:
            world = world.kill()
            log = world.log()

    engine_of(log).claim()
    shard_of(log).check_fold()
    shard = shard_of(log)
    assert dict(shard.next_offsets()) == folded(engine_of(log)).next_offsets
